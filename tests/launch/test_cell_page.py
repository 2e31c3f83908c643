"""Test of docs/how-to/run-an-agent-in-a-cell.md: its commands run as written, in order. The agent is a program that exits."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.launch.desk import Desk
from tests.support.home import daemon_home

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "run-an-agent-in-a-cell.md"


@pytest.mark.jail
def test_all_commands_of_the_cell_page_work(tmp_path: Path) -> None:
    """Each command exits with 0; the agent was in a cell where the page says so, and only there."""
    lines = re.findall(r"^ *\$ (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(lines) == 12
    with daemon_home() as home:
        home.ask("GET", "/healthz")
        desk = Desk(tmp_path, home)
        (tmp_path / "bin" / "claude").write_text("#!/bin/sh\nexit 0\n")
        for name in ("data", "results"):
            (tmp_path / "person" / name).mkdir()
        for line in lines:
            program, *words = [
                str(tmp_path / "person") + word[1:] if word.startswith("~/") else word for word in shlex.split(line)
            ]
            words = [desk.sessions()[0]["id"] if word == "ID" else word for word in words]
            assert program == "aileron"
            said = desk.aileron(*words)
            assert said.code == 0, (line, said)
        cells = [session["cell"] for session in reversed(desk.sessions())]

    assert [cell is not None for cell in cells] == [True, True, True, True, True, True, True, False]
    assert cells[1]["hosts"] == ["registry.npmjs.org", "api.example.com"]
