"""The process that will be a cell, before it is told which: it knows nothing, becomes what it is told, and never stays behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from aileron_sandbox import cgroups
from aileron_sandbox.cell.door import Cell, Ended
from aileron_sandbox.cell.stub import Stub
from aileron_sandbox.unavailable import JailUnavailable
from tests.sandbox.cells import DEADLINE_S, ENVIRONMENT, PIPES, finish, policy_of

pytestmark = pytest.mark.jail

_HOST = """
import os, sys, time
from aileron_sandbox.cell.stub import Stub
stub = Stub.start()
stub.group()
print(stub.process.pid, flush=True)
time.sleep(60)
"""


def test_it_knows_nothing_of_who_started_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable, no directory, and no descriptor but the socket by which it is told."""
    monkeypatch.setenv("A_SECRET", "it")
    monkeypatch.chdir(tmp_path)
    with (tmp_path / "opened").open("w") as opened, Stub.start() as stub:
        os.set_inheritable(opened.fileno(), True)
        process = psutil.Process(stub.process.pid)

        assert process.environ() == {}
        assert process.cwd() == "/"
        held = _descriptors(process.pid)
        assert [held.pop(number) for number in (0, 1)] == ["/dev/null", "/dev/null"]
        held.pop(2)  # where a bug of it would be told
        assert [target.partition(":")[0] for target in held.values()] == ["socket"]


def _descriptors(pid: int) -> dict[int, str]:
    """What each leads to, when there are four or after the deadline: while it imports, it opens files, and closes them."""
    until = time.monotonic() + DEADLINE_S
    while True:
        held: dict[int, str] = {}
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            held = {int(entry.name): os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()}
            if len(held) == 4:
                return held
        if time.monotonic() > until:
            return held


def test_a_cell_is_the_process_that_was_started_for_it(tmp_path: Path) -> None:
    """What it is told is what it becomes; and closing it again is nothing."""
    with Stub.start() as stub:
        with Cell.start(policy_of(tmp_path), ["sh", "-c", "echo it"], ENVIRONMENT, PIPES, stub=stub) as cell:
            assert stub.process.poll() is None
            cell.begin()
            ran = finish(cell)
        assert ran.end == Ended(0, None, None)
        assert ran.out == "it\n"
        assert stub.process.returncode is not None


def test_what_is_never_told_is_gone_with_its_group(tmp_path: Path) -> None:
    """By `close`, twice."""
    with Stub.start() as stub:
        taken = stub.group()
        groups = _groups()
        assert (taken is not None) == any(str(os.getpid()) in name for name in groups)
    stub.close()

    assert stub.process.returncode == -signal.SIGKILL
    assert not psutil.pid_exists(stub.process.pid)
    assert not [name for name in _groups() if f"-{os.getpid()}-" in name]


def _groups() -> list[str]:
    place = cgroups.find()
    return [path.name for path in place.memory.glob("aileron-jails-*")] if place is not None else []


def test_it_is_gone_when_who_started_it_was_killed() -> None:
    """Before it was told anything."""
    with subprocess.Popen([sys.executable, "-c", _HOST], stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        process = psutil.Process(int(host.stdout.readline()))
        assert process.is_running()
        host.kill()

    gone, _ = psutil.wait_procs([process], timeout=DEADLINE_S)
    assert gone == [process]


def test_a_stub_that_was_killed_is_a_cell_that_cannot_be_made(tmp_path: Path) -> None:
    """Said with a fix, and not waited for."""
    with Stub.start() as stub:
        stub.process.kill()
        stub.process.wait(DEADLINE_S)
        with pytest.raises(JailUnavailable) as refused:
            Cell.start(policy_of(tmp_path), ["true"], ENVIRONMENT, PIPES, stub=stub)

    assert "ended" in refused.value.what or "No such process" in refused.value.what
    assert refused.value.fix
