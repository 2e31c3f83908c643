"""Tests of the stub, the process that becomes a cell: it inherits nothing, becomes what it is told, and never stays behind."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from aileron_sandbox import cgroups
from aileron_sandbox.cell.closed import closed_below
from aileron_sandbox.cell.door import Cell, Ended
from aileron_sandbox.cell.stub import Stub
from aileron_sandbox.unavailable import JailUnavailable
from tests.sandbox.cells import DEADLINE_S, ENVIRONMENT, PIPES, finish, policy_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jail

_HOST = """
import os, sys, time
from aileron_sandbox.cell.stub import Stub
from tests.support.waiting import wait_until
stub = Stub.start()
stub.group()
print(stub.process.pid, flush=True)
time.sleep(60)
"""


def test_the_stub_inherits_nothing_from_its_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stub has no environment, no working directory of the host's, and no descriptor but its control socket."""
    monkeypatch.setenv("A_SECRET", "it")
    monkeypatch.chdir(tmp_path)
    with (tmp_path / "opened").open("w") as opened, Stub.start() as stub:
        os.set_inheritable(opened.fileno(), True)
        process = psutil.Process(stub.process.pid)

        assert process.environ() == {}
        assert process.cwd() == "/"
        held = _descriptors(process.pid)
        assert [held.pop(number) for number in (0, 1)] == ["/dev/null", "/dev/null"]
        held.pop(2)  # where a bug of the stub would be printed
        assert [target.partition(":")[0] for target in held.values()] == ["socket"]


def _descriptors(pid: int) -> dict[int, str]:
    """Return the target of each descriptor once there are four: imports open and close files for a moment."""

    def look() -> dict[int, str]:
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            return {int(entry.name): os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()}
        return {}

    return wait_until(lambda: held if len(held := look()) == 4 else None, "it has four descriptors", seen=look) or {}


def test_a_cell_that_is_started_with_a_stub_runs_its_command(tmp_path: Path) -> None:
    """The stub executes the command that it is sent; closing the stub afterwards has no effect."""
    with Stub.start() as stub:
        with Cell.start(policy_of(tmp_path), ["sh", "-c", "echo it"], ENVIRONMENT, PIPES, stub=stub) as cell:
            assert stub.process.poll() is None
            cell.begin()
            ran = finish(cell)
        assert ran.end == Ended(0, None, None)
        assert ran.out == "it\n"
        assert stub.process.returncode is not None


@pytest.fixture(scope="module")
def etc(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Make a directory with more private files than a datagram holds, one of them with a name that is not UTF-8."""
    made = tmp_path_factory.mktemp("stub") / "etc"
    for number in range(400):
        folder = made / f"{number:03}-{'x' * 60}"
        folder.mkdir(parents=True)
        (folder / "key").touch(mode=0o600)
        (folder / "shown").touch(mode=0o644)
    os.close(os.open(os.fsencode(made) + b"/key\xff", os.O_CREAT, 0o600))
    return str(made)


def test_the_stub_finds_the_files_that_other_users_cannot_read(etc: str, tmp_path: Path) -> None:
    """The stub's result equals a search by this process. It becomes a cell with or without a search."""
    with Stub.start([etc]) as stub:
        closed, unseen = stub.closed
        with Cell.start(policy_of(tmp_path), ["sh", "-c", "echo it"], ENVIRONMENT, PIPES, stub=stub) as cell:
            cell.begin()
            assert finish(cell).out == "it\n"
    with (
        Stub.start([etc]) as unasked,
        Cell.start(policy_of(tmp_path), ["sh", "-c", "echo it"], ENVIRONMENT, PIPES, stub=unasked) as cell,
    ):
        cell.begin()
        assert finish(cell).out == "it\n"

    assert len(closed) == 401
    assert (closed, unseen) == closed_below([etc])


@pytest.mark.parametrize("moment", ["before it has said", "after it has said", "while it waits"])
def test_an_unused_cell_stub_ends_without_output(etc: str, moment: str, capfd: pytest.CaptureFixture[str]) -> None:
    """A stub whose host ends writes nothing to the person's terminal, whatever it was about to do."""
    with Stub.start([etc] if moment != "while it waits" else []) as stub:
        if moment == "after it has said":
            select.select([stub.control], [], [], DEADLINE_S)
        stub.control.close()

        assert stub.process.wait(DEADLINE_S) == 0
    assert capfd.readouterr().err == ""


def test_an_outdated_search_result_of_the_cell_stub_is_not_used(etc: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key may have been added while a person took time to answer. The control: a fresh result is used."""
    with Stub.start([etc]) as at_once, Stub.start([etc]) as later:
        for stub in (at_once, later):
            select.select([stub.control], [], [], DEADLINE_S)
        another = Path(etc) / "another"
        another.touch(mode=0o600)
        monkeypatch.setattr("aileron_sandbox.cell.stub.FRESH_S", 600.0)  # at once, even if the machine stood still
        before = at_once.closed
        monkeypatch.setattr("aileron_sandbox.cell.stub.FRESH_S", 0.0)
        after = later.closed
        another.unlink()

        assert str(another) not in before[0]
        assert str(another) in after[0]


def test_the_search_for_private_files_is_repeated_if_the_stub_died_before_its_result(etc: str, tmp_path: Path) -> None:
    """The host process searches itself; the dead stub is reported when the cell is made."""
    with Stub.start([etc]) as stub:
        stub.process.kill()
        stub.process.wait(DEADLINE_S)

        assert len(stub.closed[0]) == 401
        with pytest.raises(JailUnavailable):
            Cell.start(policy_of(tmp_path), ["true"], ENVIRONMENT, PIPES, stub=stub)


def test_closing_an_unused_stub_removes_it_and_its_control_group(tmp_path: Path) -> None:
    """Calling `close` a second time has no effect."""
    before = _groups()
    with Stub.start() as stub:
        taken = stub.group()
        assert (taken is not None) == bool(_groups() - before)
    stub.close()

    assert stub.process.returncode == -signal.SIGKILL
    assert not psutil.pid_exists(stub.process.pid)
    assert _groups() == before


def _groups() -> set[str]:
    """Return the control groups of this process: other tests make theirs meanwhile."""
    place = cgroups.find()
    return {path.name for path in place.memory.glob(f"aileron-jails-{os.getpid()}-*")} if place is not None else set()


def test_the_stub_ends_when_its_host_is_killed() -> None:
    """The host had not sent it any instruction yet."""
    with subprocess.Popen([sys.executable, "-c", _HOST], stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        process = psutil.Process(int(host.stdout.readline()))
        assert process.is_running()
        host.kill()

    gone, _ = psutil.wait_procs([process], timeout=DEADLINE_S)
    assert gone == [process]


def test_starting_a_cell_with_a_killed_stub_fails_with_a_fix(tmp_path: Path) -> None:
    """The error names a fix, and the caller does not wait."""
    with Stub.start() as stub:
        stub.process.kill()
        stub.process.wait(DEADLINE_S)
        with pytest.raises(JailUnavailable) as refused:
            Cell.start(policy_of(tmp_path), ["true"], ENVIRONMENT, PIPES, stub=stub)

    assert "ended" in refused.value.what or "No such process" in refused.value.what
    assert refused.value.fix
