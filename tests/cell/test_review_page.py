"""Test of docs/how-to/review-what-an-agent-changed.md: its commands run as written, in order, on a session's changes."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.cell.overlays import SESSION, Aside
from tests.cli.command import Command

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-to" / "review-what-an-agent-changed.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.jail


def commands() -> list[str]:
    """Return the commands that the page tells a reader to type."""
    blocks = re.findall(r"^ *```console\n(.*?)^ *```$", PAGE, re.MULTILINE | re.DOTALL)
    return [line.strip().removeprefix("$ ") for block in blocks for line in block.splitlines()]


def test_every_command_of_the_how_to_page_on_reviewing_changes_exits_with_0(tmp_path: Path) -> None:
    """Each exits with 0; some changes are applied, one by force, and the rest is discarded."""
    aside = Aside(tmp_path)
    (aside.project / "src").mkdir()
    for file in ("README.md", "notes.txt", "src/main.py"):
        (aside.project / file).write_text("before")
    aside.begin()
    steps = [
        ["write", file, "agent", 0o644] for file in ("README.md", "notes.txt", "src/main.py", "src/new.py", "Makefile")
    ]
    aside.session(steps)
    (aside.project / "notes.txt").write_text("person")
    aileron = Command(aside.home, folder=str(aside.project))
    typed = commands()
    for line in typed:
        command, _, file = line.partition(" > ")
        said = aileron(*shlex.split(command.replace("SESSION", SESSION))[1:])
        assert said.code == 0, (line, said)
        if file:
            assert json.loads(said.out)["counts"] == {"made": 2, "changed": 3, "removed": 0}

    assert len(typed) == 6
    assert {path.name: path.read_text() for path in aside.project.rglob("*") if path.is_file()} == {
        "README.md": "agent",
        "notes.txt": "agent",
        "main.py": "agent",
        "new.py": "agent",
    }
    assert not aside.kept.upper.exists()
