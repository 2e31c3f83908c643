"""The process that will become a cell. It is started before the cell's policy is known, and receives the preparation later.

    with Stub.start(["/etc"]) as stub:               # returns at once
        policy = … stub.closed …                     # 60 ms of examining the machine, on this processor
        cell = Cell.start(policy, command, environment, streams, stub=stub)

An interpreter takes 50 ms to import what a cell needs and to compile its filter; finding the files that are closed to others
takes 15 ms, and putting a process into a control group 15 (measured). None of these depends on the policy, so they run while
the policy is made: the first two on another processor, the third in a thread that mostly waits for the kernel.

Runs on the host. The process has an empty environment, no descriptor but the control socket, and nothing more to do until the
preparation comes; it ends with the socket, and with the thread that started it (PR_SET_PDEATHSIG, prctl(2)).

Not here: what it does with the preparation (prepare.py), the cell (door.py).
"""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib.util
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from aileron_sandbox.unavailable import JailUnavailable

if TYPE_CHECKING:
    from aileron_sandbox.cell.cell_messages import Preparation
    from aileron_sandbox.cell.closed import Closed
    from aileron_sandbox.cgroups import Group, Groups

__all__ = ["FRESH_S", "Stub"]

FRESH_S: Final = 2.0
"""Seconds for which a list of closed files counts as current. A launch takes a tenth of that, or minutes if a person
must answer a question first.
"""

_STOP_DEADLINE_S: Final = 10.0  # a namespace with thousands of processes takes a second to be killed
_DEADLINE_S: Final = 20.0  # 15 ms measured; a machine that is starting up may take a hundred times that
_BOOT: Final = (
    "import sys; sys.path[:0] = [sys.argv[1]]; sys.path.append(sys.argv[2]); "
    "from aileron_sandbox.cell.prepare import main; main(int(sys.argv[3]), sys.argv[4:])"
)


class Stub:
    """A process that will become a cell when it receives the preparation. Make one with `start`. Not thread-safe."""

    def __init__(self, control: socket.socket, process: subprocess.Popen[bytes], look_at: Sequence[str]) -> None:
        self.control: Final = control
        self.process: Final = process
        self._look_at: Final = look_at
        self._started_at: Final = time.monotonic()
        self._entry = _Entry(process.pid)
        self._entry.start()

    @classmethod
    def start(cls, look_at: Sequence[str] = ()) -> Self:
        """Start a process that will become a cell, and that examines the directories `look_at` for files that are
        `closed` to other users. Raises OSError if no process or descriptor is available, and JailUnavailable if a
        package is missing.
        """
        here = str(Path(__file__).resolve().parent.parent.parent)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                # A session of its own: otherwise Ctrl-C in the host's terminal would end the cell before the host decides to.
                words = [_BOOT, here, _library(), str(theirs.fileno()), *look_at]
                process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-X", "utf8", "-c", *words],
                    env={},
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
        except BaseException:
            ours.close()
            raise
        return cls(ours, process, tuple(look_at))

    @functools.cached_property
    def closed(self) -> Closed:
        """Return the files that are closed to other users, as this process's report lists them. Waits for the report.

        If the process does not respond, or examined the directories more than FRESH_S seconds ago, this method
        examines them itself. `Cell.start` reports what is wrong with the process.
        """
        from aileron_sandbox.cell.closed import closed_below

        found = self._said() if self._look_at else None
        is_fresh = time.monotonic() - self._started_at < FRESH_S
        return found if found is not None and is_fresh else closed_below(self._look_at)

    def _said(self) -> Closed | None:
        from aileron_sandbox.cell.cell_messages import LOOKED
        from aileron_sandbox.cell.closed import decode_closed

        with contextlib.suppress(OSError):
            self.control.settimeout(_DEADLINE_S)
            if self.control.recv(1, socket.MSG_PEEK) == LOOKED:
                _, (file, *_), _, _ = socket.recv_fds(self.control, len(LOOKED), 1)
                with open(file, "rb") as said:
                    return decode_closed(said.read())
        return None

    def tell(self, preparation: Preparation, pipes: Sequence[int]) -> None:
        """Send the preparation to the process that becomes a cell, with the agent's ends of its pipes in the order of
        the streams. The process continues when it has received them.
        """
        from aileron_sandbox.cell.cell_messages import GO

        _ = self.closed  # read that report first: otherwise it would be taken for the answer to `Go`
        with open(os.memfd_create("cell", os.MFD_CLOEXEC), "w+b") as file:
            file.write(preparation.encode())
            file.seek(0)
            with contextlib.suppress(ConnectionError):  # it has ended, which the wait for its answer reports
                socket.send_fds(self.control, [GO], [file.fileno(), *pipes])

    def group(self) -> tuple[Groups, Group] | None:
        """Wait until the process that becomes a cell is in a control group, and return that group; None if this machine
        has none for it. Raises OSError if that fails.
        """
        return self._entry.result()

    def close(self) -> None:
        """End the process that would become a cell, and remove its control group. Idempotent. A cell that took over the
        stub does this itself.
        """
        self.control.close()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(_STOP_DEADLINE_S)
        self._entry.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Entry(threading.Thread):
    """A thread that puts the process that becomes a cell into a control group. This must be done before that process
    forks: an earlier child would stay outside.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(name="cell-group", daemon=True)
        self._pid = pid
        self._taken: tuple[Groups, Group] | None = None
        self._error: Exception | None = None

    def run(self) -> None:
        """Put the process that becomes a cell into a control group. If that fails, store the error, which `result` raises."""
        try:
            self._enter()
        except Exception as error:  # noqa: BLE001 - any error is raised to the caller that wants the group
            self._error = error

    def _enter(self) -> None:
        from aileron_sandbox import cgroups

        taken = cgroups.take_one()
        if taken is None:
            return
        groups, group = taken
        try:
            with group.opened() as opened:
                for door in opened.doors:
                    os.write(door, b"%d" % self._pid)
        except BaseException:
            groups.close()
            raise
        self._taken = taken

    def result(self) -> tuple[Groups, Group] | None:
        """Wait until the process that becomes a cell is in a control group, and return that group; None if this machine
        has none. Raises OSError, including TimeoutError.
        """
        self.join(_DEADLINE_S)
        if self.is_alive():
            raise TimeoutError(errno.ETIMEDOUT, f"no control group after {_DEADLINE_S:.0f} s")
        if self._error is not None:
            raise self._error
        return self._taken

    def close(self) -> None:
        """Remove the control group that `run` took. Its processes must have ended."""
        self.join(_DEADLINE_S)
        if self._taken is not None:
            self._taken[0].close()
            self._taken = None


def _library() -> str:
    """Return the directory of pyseccomp, from which the process that becomes a cell imports it: that process starts
    without site-packages.
    """
    found = importlib.util.find_spec("pyseccomp")
    if found is None or found.origin is None:
        raise JailUnavailable("pyseccomp is not installed", "pip install pyseccomp")
    return os.path.dirname(found.origin)
