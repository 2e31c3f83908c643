"""`aileron sessions changes`: the latest cell of this folder by default, during a session and afterwards, and hostile names."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from aileron.cell.changes import Watch, starts_of
from aileron.cell.start import Root
from tests.cli.command import Command

pytestmark = pytest.mark.jail


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home of Aileron's: no daemon is needed for any of this."""
    path = tmp_path / "home"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def projects(tmp_path: Path, home: Path) -> Iterator[tuple[Path, Path]]:
    """Two projects with a cell each: the first one is over, the later one goes on."""
    found = []
    for name in ("first", "later"):
        project = tmp_path / name
        (project / "sub").mkdir(parents=True)
        found.append(Watch.begin(starts_of([Root(str(project))], home / "cells"), home / "cells" / f"ses-{name}"))
        (project / f"{name}.py").write_text("x")
        (project / "Makefile").write_text("x")
        (project / "a\x1b[2Jb\nc").write_text("x")
    os.utime(home / "cells" / "ses-first" / "start.json", (1, 1))
    found[0].finish()
    yield tmp_path / "first", tmp_path / "later"
    found[1].abandon()


def test_the_latest_cell_of_this_folder_is_shown(home: Path, projects: tuple[Path, Path], tmp_path: Path) -> None:
    """Also from a folder in it; elsewhere, the latest one of all."""
    for folder, seen in ((projects[0], "first"), (projects[1] / "sub", "later"), (tmp_path, "later")):
        said = Command(home, folder=str(folder))("sessions", "changes")
        rows = [line.split("\t") for line in said.out.splitlines()]

        assert said.code == 0, said
        assert rows[0] == ["made", "file", "make", "Makefile"]
        assert ["made", "file", "-", f"{seen}.py"] in rows
        assert ["made", "file", "-", "a\\x1b[2Jb\\nc"] in rows


def test_one_session_is_shown_by_the_end_of_its_id(home: Path, projects: tuple[Path, Path]) -> None:
    """As JSON with everything that is known of it, over or not."""
    aileron = Command(home)
    first, later = (json.loads(aileron("sessions", "changes", name, "--json").out) for name in ("first", "ses-later"))

    assert (first["session"], first["is_final"], first["counts"]["made"]) == ("ses-first", True, 3)
    assert (later["session"], later["is_final"]) == ("ses-later", False)
    assert "a\x1b[2Jb\nc" in {one["path"] for one in first["entries"]}


def test_a_terminal_gets_a_head_and_nothing_that_it_obeys(home: Path, projects: tuple[Path, Path]) -> None:
    """Counts, and names with their escapes spelled out."""
    said = Command(home, folder=str(projects[0])).at_terminal("sessions", "changes").out

    assert "3 made" in said
    assert "\x1b[2J" not in said
    assert "\\x1b[2J" in said


def test_what_is_not_there_is_said_with_what_to_do(home: Path, projects: tuple[Path, Path], tmp_path: Path) -> None:
    """A session without a cell, a home without any; and no daemon was started for it."""
    missing = Command(home)("sessions", "changes", "ses-none")
    empty = Command(tmp_path / "empty")("sessions", "changes")

    assert (missing.code, empty.code) == (3, 3)
    assert "nothing is kept of a cell" in missing.err
    assert "aileron launch --help" in empty.err
    assert not (home / "run").exists()
