"""Test of `aileron launch --jail` as an ordinary user who owns Aileron, agent and project: what the agent sees and what not."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.other_user import UID, environment_of

pytestmark = [
    pytest.mark.jail,
    pytest.mark.skipif(
        os.geteuid() != 0, reason="only root starts programs as somebody else; others run test_in_cell.py"
    ),
]
_RUN_S = 60.0


@pytest.fixture
def folder() -> Iterator[Path]:
    """Make a folder that every user can enter, for all of that user's files."""
    with tempfile.TemporaryDirectory(prefix="ail-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def test_an_ordinary_user_gets_a_cell(folder: Path, readable_python: Path) -> None:
    """The project is written, the rest of the home and Aileron's home are hidden, and the agent keeps the user's id."""
    home, project = folder / "home", folder / "home" / "project"
    for made in (project, home / "tmp"):
        made.mkdir(parents=True)
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id").write_text("secret")
    agent = project / "agent"
    agent.write_text(
        "#!/bin/sh\nid -u\nls -A ~\n"
        "cat ~/.ssh/id || echo hidden\ncat /etc/shadow || echo refused\necho x > made && echo written\n"
    )
    agent.chmod(0o755)
    for path in (home, *home.rglob("*")):
        os.chown(path, UID, UID)
    environment = {**environment_of(home), "AILERON_HOME": str(home / "ail")}
    words = [str(readable_python), "-m", "aileron", "launch", "claude", "--jail", "--program", str(agent)]
    said = _run(words, project, environment)
    _run([str(readable_python), "-m", "aileron", "daemon", "stop"], project, environment)

    assert said.returncode == 0, said.stderr
    assert said.stdout.split() == [str(UID), ".claude", ".claude.json", "project", "hidden", "refused", "written"]
    assert (project / "made").stat().st_uid == UID
    assert (home / ".claude.json").stat().st_uid == UID


def _run(words: list[str], folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_RUN_S,
        user=UID,
        group=UID,
        extra_groups=[],
        check=False,
    )
