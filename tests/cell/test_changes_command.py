"""Tests of `aileron sessions changes`: this folder's latest cell by default, during a session and afterwards, hostile names."""

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
    """Make an empty home of Aileron's: these tests need no daemon."""
    path = tmp_path / "home"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def projects(tmp_path: Path, home: Path) -> Iterator[tuple[Path, Path]]:
    """Yield two projects with a cell each: the first one has ended, the later one still runs."""
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


def test_the_changes_of_the_latest_cell_of_the_current_folder_are_shown(
    home: Path, projects: tuple[Path, Path], tmp_path: Path
) -> None:
    """A folder inside the project works too; elsewhere, the latest cell of all is shown."""
    for folder, seen in ((projects[0], "first"), (projects[1] / "sub", "later"), (tmp_path, "later")):
        said = Command(home, folder=str(folder))("sessions", "changes")
        rows = [line.split("\t") for line in said.out.splitlines()]

        assert said.code == 0, said
        assert rows[0] == ["made", "file", "make", "Makefile"]
        assert ["made", "file", "-", f"{seen}.py"] in rows
        assert ["made", "file", "-", "a\\x1b[2Jb\\nc"] in rows


def test_a_session_can_be_named_by_the_end_of_its_id(home: Path, projects: tuple[Path, Path]) -> None:
    """JSON output has everything that is known of the session, ended or not."""
    aileron = Command(home)
    first, later = (json.loads(aileron("sessions", "changes", name, "--json").out) for name in ("first", "ses-later"))

    assert (first["session"], first["is_final"], first["counts"]["made"]) == ("ses-first", True, 3)
    assert (later["session"], later["is_final"]) == ("ses-later", False)
    assert "a\x1b[2Jb\nc" in {entry["path"] for entry in first["entries"]}


def test_at_a_terminal_the_list_has_a_heading_and_names_are_escaped(home: Path, projects: tuple[Path, Path]) -> None:
    """The heading has the counts; escapes in names are spelled out."""
    said = Command(home, folder=str(projects[0])).at_terminal("sessions", "changes").out

    assert "3 made" in said
    assert "\x1b[2J" not in said
    assert "\\x1b[2J" in said


def test_a_session_without_a_list_of_changes_is_reported_with_the_fix(
    home: Path, projects: tuple[Path, Path], tmp_path: Path
) -> None:
    """The session had no cell, or there is no session; no daemon is started just to say so."""
    missing = Command(home)("sessions", "changes", "ses-none")
    empty = Command(tmp_path / "empty")("sessions", "changes")

    assert (missing.code, empty.code) == (3, 3)
    assert "nothing is kept of a cell" in missing.err
    assert "aileron launch --help" in empty.err
    assert not (home / "run").exists()
