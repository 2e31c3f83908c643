"""The process of a cell that begins before its command: for whom it does, and that nothing of it stays behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from aileron.cli import cell_ahead
from aileron_sandbox import cgroups
from tests.cli.command import DEADLINE_S


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty one; what was begun in it is closed."""
    monkeypatch.setenv("AILERON_HOME", str(tmp_path))
    yield tmp_path
    cell_ahead.end()


def children() -> set[int]:
    """Of this process, by their ids: with those that another test has left to be waited for."""
    return {child.pid for child in psutil.Process().children()}


def has_begun(*words: str) -> bool:
    """Whether these words begin one. It is a process of this one, until it is closed."""
    cell_ahead.begin(list(words))
    stub = cell_ahead.taken()
    if stub is not None:
        with stub:
            assert psutil.Process(stub.process.pid).ppid() == os.getpid()
    return stub is not None


def test_it_begins_where_a_cell_was_asked_for(home: Path) -> None:
    """By the option, or by the settings as they are written."""
    assert has_begun("claude", "--jail")
    assert has_begun("claude", "--jail", "--", "--help")
    assert not has_begun("claude")
    (home / "config.toml").write_text("[launch]\njail = true\n")
    assert has_begun("claude")
    (home / "config.toml").write_text("[launch]\njail = false\n")
    assert not has_begun("claude")


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("words", [["--no-jail"], ["--explain"], ["--dry-run"], ["--help"], ["-h"], ["--", "--jail"]])
def test_it_does_not_where_there_will_be_none(words: list[str]) -> None:
    """Or where it only is explained."""
    asked = words if words[0] == "--" else ["--jail", *words]
    assert not has_begun("claude", *asked)


@pytest.mark.usefixtures("home")
def test_it_ends_where_there_is_none_after_all() -> None:
    """As where the settings say yes, and nobody has agreed to them: no process waits beside the agent."""
    before = children()
    cell_ahead.begin(["claude", "--jail"])
    (begun,) = children() - before
    cell_ahead.end()

    assert not psutil.pid_exists(begun)
    assert cell_ahead.taken() is None


_BEGINS = """
import psutil
from aileron.cli import cell_ahead
from aileron.cli.prompts import take_passphrase
take_passphrase()
cell_ahead.begin(["claude", "--jail"])
print(*(child.pid for child in psutil.Process().children()))
"""


def begun_by_another(**environment: str) -> tuple[int, list[int]]:
    """A process that begins one, takes it never and ends; its id, and those of its children."""
    process = subprocess.Popen(
        [sys.executable, "-c", _BEGINS], env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True
    )
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    return process.pid, [int(word) for word in said.split()]


@pytest.mark.usefixtures("home")
def test_it_does_not_in_a_process_that_begins_again() -> None:
    """With the passphrase as a variable: the process after it, which is the same one, would not know of it."""
    assert begun_by_another(AILERON_VAULT_PASSPHRASE="correct horse battery")[1] == []
    assert len(begun_by_another()[1]) == 1


@pytest.mark.usefixtures("home")
def test_what_nobody_takes_leaves_nothing() -> None:
    """No process, and no control group: as where a launch is refused for what its other words say."""
    pid, (stub,) = begun_by_another()

    assert not psutil.pid_exists(stub)
    place = cgroups.find()
    assert place is None or not list(place.memory.glob(f"aileron-jails-{pid}-*"))
