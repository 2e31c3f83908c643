"""A cell's process that starts ahead of its command: when it starts, and that it leaves nothing behind."""

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
from tests.support.waiting import DEADLINE_S


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty home; a process that started in it is closed afterwards."""
    monkeypatch.setenv("AILERON_HOME", str(tmp_path))
    yield tmp_path
    cell_ahead.end()


def children() -> set[int]:
    """Return the ids of this process's children, including those that another test has left to be reaped."""
    return {child.pid for child in psutil.Process().children()}


def has_begun(*words: str) -> bool:
    """Return whether these words start a cell process, which is a child of this process until it is closed."""
    cell_ahead.begin(list(words))
    stub = cell_ahead.taken()
    if stub is not None:
        with stub:
            assert psutil.Process(stub.process.pid).ppid() == os.getpid()
    return stub is not None


def test_the_cell_process_starts_early_if_a_cell_is_requested(home: Path) -> None:
    """Either the option or the setting in the file requests the cell."""
    assert has_begun("claude", "--jail")
    assert has_begun("claude", "--jail", "--", "--help")
    assert not has_begun("claude")
    (home / "config.toml").write_text("[launch]\njail = true\n")
    assert has_begun("claude")
    (home / "config.toml").write_text("[launch]\njail = false\n")
    assert not has_begun("claude")


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("words", [["--no-jail"], ["--explain"], ["--dry-run"], ["--help"], ["-h"], ["--", "--jail"]])
def test_no_cell_process_starts_if_there_will_be_no_cell(words: list[str]) -> None:
    """Options that only explain the launch start no process either."""
    asked = words if words[0] == "--" else ["--jail", *words]
    assert not has_begun("claude", *asked)


@pytest.mark.usefixtures("home")
def test_a_cell_process_started_early_ends_if_no_cell_is_used() -> None:
    """The setting may lack consent, for example: no process must remain beside the agent."""
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
    """Run a process that starts a cell process, never uses it and ends. Return its id and its children's ids."""
    process = subprocess.Popen(
        [sys.executable, "-c", _BEGINS], env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True
    )
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    return process.pid, [int(word) for word in said.split()]


@pytest.mark.usefixtures("home")
def test_no_cell_process_starts_early_in_a_launch_command_that_will_exec_itself() -> None:
    """The exec removes the passphrase variable, and afterwards the command would not know of its child."""
    assert begun_by_another(AILERON_VAULT_PASSPHRASE="correct horse battery")[1] == []
    assert len(begun_by_another()[1]) == 1


@pytest.mark.usefixtures("home")
def test_an_unused_cell_process_leaves_no_process_or_control_group_behind() -> None:
    """A launch whose other options are invalid never uses its cell process."""
    pid, (stub,) = begun_by_another()

    assert not psutil.pid_exists(stub)
    place = cgroups.find()
    assert place is None or not list(place.memory.glob(f"aileron-jails-{pid}-*"))
