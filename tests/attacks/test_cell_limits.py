"""Attacks of a cell on the machine's memory and the person's files: memory that no page shows, files that a program
only reads.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import resource
import select
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from aileron_sandbox import cgroups
from aileron_sandbox.cell.door import Ended
from aileron_sandbox.cell.policy import Bind
from aileron_sandbox.watch import WATCH_PERIOD_S
from tests.attacks.cell.hog import KINDS
from tests.attacks.tally import Attack
from tests.sandbox.cells import PYTHON, begun, finish, outside, policy_of, read_until_said, tried
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jail

_HOLD: Final = (PYTHON, "-I", "-S", "/hog.py")
_HOG: Final = str(Path(__file__).parent / "cell" / "hog.py")
_LIMIT_MIB: Final = 256
_TOO_MUCH_MIB: Final = 320
"""MiB that exceed the limit, but few enough that another user's run at the same time exceeds no other limit here."""
_TURN_S: Final = 90.0
"""Seconds to wait for the other user's run: many times the longest test of this file."""
_F_SETLEASE, _F_SETDELEG = 1024, 1040
_F_RDLCK, _F_WRLCK = 0, 1


@pytest.fixture(autouse=True)
def _turn() -> Iterator[None]:
    """Take turns with the run of another user: the machine's shared memory is counted, and that of other users subtracted."""
    with socket.socket(socket.AF_UNIX) as turn:

        def is_ours() -> bool:
            with contextlib.suppress(OSError):
                turn.bind("\0aileron-tests-shared-memory")  # gone with its process, and of no user
                return True
            return False

        wait_until(is_ours, "it is our turn", within_s=_TURN_S)
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder where the program starts."""
    made = tmp_path.resolve() / "project"
    made.mkdir()
    return made


@pytest.mark.abuse_case("CP2")
@pytest.mark.parametrize("kind", KINDS)
def test_memory_outside_of_process_pages_counts_towards_a_cells_limit(
    attack: Attack, folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The cell fills one kind at a time, such as socket buffers: above the limit it ends with the reason."""
    monkeypatch.setattr(cgroups, "take_one", lambda: None)
    policy = policy_of(folder, Bind(_HOG, "/hog.py"), memory_bytes=_LIMIT_MIB << 20)
    with begun(policy, [*_HOLD, str(_TOO_MUCH_MIB), kind]) as cell:
        over = Ended(None, signal.SIGKILL, f"over its limit of {_LIMIT_MIB} MiB of memory")
        attack.denied(f"{_TOO_MUCH_MIB} MiB of {kind}", {over}, finish(cell).end)
    with begun(policy, [*_HOLD, str(_LIMIT_MIB // 16), kind]) as cell:
        read_until_said(cell, b"held\n")
        cell.close_input()
        attack.control(f"{_LIMIT_MIB // 16} MiB of {kind}", Ended(0, None, None), finish(cell).end)


def test_a_cell_within_its_limit_can_hold_memory_of_every_kind(
    attack: Attack, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell holds all of them at once while a program outside takes more shared memory than the cell may have."""
    attack.waive()
    monkeypatch.setattr(cgroups, "take_one", lambda: None)
    policy = policy_of(folder, Bind(_HOG, "/hog.py"), memory_bytes=3 * _LIMIT_MIB << 20)

    with begun(policy, [*_HOLD, "8", *KINDS]) as cell:
        read_until_said(cell, b"held\n")
        theirs = mmap.mmap(-1, 7 * _LIMIT_MIB << 19, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)
        assert cell.event() is None  # and has taken what says that it was begun
        assert not select.select([cell.control], [], [], 3 * WATCH_PERIOD_S)[0], cell.event()
        cell.close_input()
        assert finish(cell).end == Ended(0, None, None)
        theirs.close()


@pytest.mark.abuse_case("CP2")
def test_a_control_group_also_bounds_tcp_buffers(attack: Attack, folder: Path) -> None:
    """Version 1 of control groups counts TCP buffers separately: they stop growing, so the program runs out of room."""
    policy = policy_of(folder, Bind(_HOG, "/hog.py"), memory_bytes=_LIMIT_MIB << 20, open_files=4096)
    with begun(policy, [*_HOLD, str(_TOO_MUCH_MIB), "buffers of TCP"]) as cell:
        over = Ended(None, signal.SIGKILL, f"over its limit of {_LIMIT_MIB} MiB of memory")
        attack.denied("too many buffers of TCP", {over, Ended(1, None, None)}, finish(cell).end)
    with begun(policy, [*_HOLD, str(_LIMIT_MIB // 16), "buffers of TCP"]) as cell:
        cell.close_input()
        attack.control("some buffers of TCP", Ended(0, None, None), finish(cell).end)


@pytest.mark.abuse_case("CP2")
def test_a_cell_is_ended_if_its_processes_hold_too_many_descriptors_to_check(
    attack: Attack, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes with full descriptor tables would make each check slow, so the cell ends. Two of them are allowed."""
    monkeypatch.setattr(cgroups, "take_one", lambda: None)
    policy = policy_of(folder, Bind(_HOG, "/hog.py"))
    most = min(policy.open_files, resource.getrlimit(resource.RLIMIT_NOFILE)[1])

    with begun(policy, [*_HOLD, str((1 << 17) // most + 2), "descriptors"]) as cell:
        why = "its memory cannot be looked at: its processes have more than 131,072 descriptors"
        attack.denied("descriptors", Ended(None, signal.SIGKILL, why), finish(cell).end)
    with begun(policy, [*_HOLD, "2", "descriptors"]) as cell:
        read_until_said(cell, b"held\n")
        assert cell.event() is None
        attack.control("of two processes", [], select.select([cell.control], [], [], 3 * WATCH_PERIOD_S)[0])


@pytest.mark.abuse_case("CP3")
def test_a_cell_cannot_delay_the_persons_writes_with_a_file_lease(attack: Attack, folder: Path, tmp_path: Path) -> None:
    """A file lease makes other programs wait before they write. A cell gets none, even on its own files; it can lock
    those. Outside, the same leases are granted.
    """
    read_only, own = tmp_path.resolve() / "read-only", folder / "own"
    for path in (read_only, own):
        path.write_text("x", encoding="utf-8")
    leases = [["lease", str(path), _F_SETLEASE, kind] for path in (read_only, own) for kind in (_F_RDLCK, _F_WRLCK)]
    leases += [
        ["lease", str(read_only), _F_SETLEASE | 1 << 32, _F_RDLCK],
        ["lease", str(folder), _F_SETDELEG, _F_RDLCK],
    ]

    *denied, locked = tried(policy_of(folder, Bind(str(read_only), str(read_only))), *leases, ["lock", str(own)])
    attack.all_denied("a lease", "EPERM", dict(enumerate(denied)))
    attack.control("a lock of its own file", "ok", locked)
    attack.control("the same leases outside", ["ok"] * 4, outside(*leases[:4]))


_OF_A_PROCESS: Final = (
    "affinity", "scheduler", "parameters", "niceness", "niceness of the group", "I/O priority", "a limit", "who goes first",
)  # fmt: skip


@pytest.mark.abuse_case("CP4")
def test_an_agent_cannot_control_the_cells_first_process(attack: Attack, folder: Path) -> None:
    """The agent cannot lower its priority, though both have one uid. The control is a process of the agent's own."""
    first = tried(policy_of(folder), *(["rule", what, 1] for what in _OF_A_PROCESS), ["niceness_of_all"])
    own = tried(policy_of(folder), *(["rule", what, 0] for what in _OF_A_PROCESS))

    attack.all_denied("of the first process", {"EPERM", "EROFS", "EACCES"}, dict(enumerate(first)))
    attack.control("the same of a process of its own", ["ok"] * len(own), own)


@pytest.mark.abuse_case("CP4")
def test_a_cell_gets_no_better_priority_than_processes_outside(attack: Attack, folder: Path) -> None:
    """Neither niceness nor the out-of-memory score improves, even if the launching command had a better one."""
    is_root = os.getuid() == 0
    if is_root:
        os.setpriority(os.PRIO_PROCESS, 0, -5)
    try:
        priority, *denied = tried(policy_of(folder), ["priority"], ["better"], ["out_of_memory_score", -1000])
        had = outside(["priority"])
    finally:
        if is_root:
            os.setpriority(os.PRIO_PROCESS, 0, 0)

    attack.all_denied("a better place", "EACCES", dict(enumerate(denied)))
    attack.denied("the priority of a command that root started", [os.SCHED_OTHER, 0], priority)
    attack.control("outside it is handed on", [[os.SCHED_OTHER, -5 if is_root else 0]], had)
