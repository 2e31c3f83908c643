"""The only place where tests wait: for a condition, a file, the end of a process.

    wait_until(lambda: server.started, "the server starts")
    wait_text(home.path / "logs" / "daemon.log", "ready")
    wait_gone(pid)

Rules
- Every wait ends: after `within_s` seconds with Late, which names the condition and shows the value seen last.
- Changes with an event are not polled: inotify(7) for files, a pidfd for the end of a process, an Event for threads and tasks.
- All others are polled, with a pause that starts short, so that quick changes cost little, and grows, so that slow ones leave
  the processor to the process that makes them.

No test sleeps to wait (tests/architecture/test_waiting.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import functools
import inspect
import os
import select
import socket
import subprocess
import sys
import termios
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

if TYPE_CHECKING:
    import pytest

__all__ = [
    "DEADLINE_S",
    "Late",
    "ahead_once",
    "end_of",
    "give_turns",
    "jump",
    "try_lock",
    "unread",
    "wait_ended",
    "wait_gone",
    "wait_listening",
    "wait_signalled",
    "wait_still",
    "wait_still_async",
    "wait_text",
    "wait_text_async",
    "wait_until",
    "wait_until_async",
]

_T = TypeVar("_T")
DEADLINE_S: Final = 60.0
"""Seconds to wait by default: enough for a machine that does ten other things, and a sixth of a test's time (pytest-timeout)."""
_FIRST_PAUSE_S: Final = 0.001
_LONGEST_PAUSE_S: Final = 0.05
_GROWTH: Final = 1.3
"""Growth of the pause: a dozen checks in the first tenth of a second, twenty in each later one."""
_UNTOLD_S: Final = 0.5
"""Seconds that a change without an event stays unseen: of a file that came into a directory before its watch, or of /proc."""
_MAX_SHOWN: Final = 2000
"""Characters to show of what was seen last: the end of a log has the reason."""
_IN_CHANGES: Final = 0x2 | 0x80 | 0x100 | 0x400  # IN_MODIFY, IN_MOVED_TO, IN_CREATE, IN_DELETE_SELF of <sys/inotify.h>


class Late(AssertionError):
    """A wait failed: the condition did not hold in time, or can no longer hold."""


class _Patience:
    """A deadline, the pauses until then, and the message for when it passes."""

    def __init__(
        self,
        what: str,
        within_s: float,
        seen: Callable[[], object] | None = None,
        unless: Callable[[], object] | None = None,
    ) -> None:
        self._what = what
        self._within_s = within_s
        self._seen = seen
        self._unless = unless
        self._over = time.monotonic() + within_s
        self._pause_s = _FIRST_PAUSE_S

    def left_s(self, found: object) -> float:
        """Return how many seconds are left, or raise Late."""
        if self._unless is not None and (why := self._unless()):
            raise Late(f"{self._what}: not any more ({why}); seen last: {self._shown(found)}")
        left_s = self._over - time.monotonic()
        if left_s <= 0:
            raise Late(f"{self._what}: not within {self._within_s:g} s; seen last: {self._shown(found)}")
        return left_s

    def pause_s(self, found: object) -> float:
        """Return how long to pause before the next look, or raise Late."""
        pause_s = min(self._pause_s, self.left_s(found))
        self._pause_s = min(self._pause_s * _GROWTH, _LONGEST_PAUSE_S)
        return pause_s

    def _shown(self, found: object) -> str:
        seen = found if self._seen is None else self._seen()
        return (seen if isinstance(seen, str) else repr(seen))[-_MAX_SHOWN:]


def wait_until(
    look: Callable[[], _T],
    what: str,
    *,
    within_s: float = DEADLINE_S,
    seen: Callable[[], object] | None = None,
    unless: Callable[[], object] | None = None,
) -> _T:
    """Wait until `look` returns something true, and return that.

    Late says `what` was waited for, and what `seen` returns, or `look` itself did last; at once when `unless` returns a reason.
    """
    patience = _Patience(what, within_s, seen, unless)
    while not (found := look()):
        time.sleep(patience.pause_s(found))
    return found


async def wait_until_async(
    look: Callable[[], object],
    what: str,
    *,
    within_s: float = DEADLINE_S,
    seen: Callable[[], object] | None = None,
    unless: Callable[[], object] | None = None,
) -> Any:
    """Wait as wait_until does, while other tasks go on; `look` may be a coroutine function."""
    patience = _Patience(what, within_s, seen, unless)
    while True:
        looked = look()
        found = await looked if inspect.isawaitable(looked) else looked
        if found:
            return found
        await anyio.sleep(patience.pause_s(found))


async def give_turns() -> None:
    """Give every other task of this event loop many turns: for what nothing but this loop does, and what it must not do."""
    for _turn in range(50):
        await anyio.lowlevel.checkpoint()


def jump(monkeypatch: pytest.MonkeyPatch, by_s: float) -> None:
    """Set the clock of this event loop ahead, to a deadline, once everything due before has happened on a slow machine too."""
    loop = asyncio.get_running_loop()
    now = loop.time
    monkeypatch.setattr(loop, "time", lambda: now() + by_s)


@contextlib.asynccontextmanager
async def ahead_once(
    look: Callable[[], object], what: str, monkeypatch: pytest.MonkeyPatch, by_s: float
) -> AsyncIterator[None]:
    """Run the block, and `jump` once `look` returns something true and what has arrived by then has been taken."""

    async def jumping() -> None:
        await wait_until_async(look, what)
        await give_turns()
        jump(monkeypatch, by_s)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(jumping)
        yield


def wait_still(look: Callable[[], _T], what: str, *, for_s: float = 0.3, within_s: float = DEADLINE_S) -> _T:
    """Wait until `look` returns the same value for some time, and return it: for what must not happen, or stops."""
    patience, found = _Patience(what, within_s), look()
    since = time.monotonic()
    while time.monotonic() < since + for_s:
        time.sleep(min(for_s, patience.pause_s(found)))
        if (now := look()) != found:
            found, since = now, time.monotonic()
    return found


async def wait_still_async(
    look: Callable[[], _T], what: str, *, for_s: float = 0.3, within_s: float = DEADLINE_S
) -> _T:
    """Wait as wait_still does, in a thread, while other tasks go on."""
    return await anyio.to_thread.run_sync(lambda: wait_still(look, what, for_s=for_s, within_s=within_s))


def wait_text(
    path: Path, text: str = "", *, within_s: float = DEADLINE_S, unless: Callable[[], object] | None = None
) -> str:
    """Wait until the file is there and has `text` in it, and return all that it has."""
    patience = _Patience(f"{path} has {text!r}", within_s, unless=unless)
    changes = _Changes(path)
    try:
        while (content := changes.content()) is None or text not in content:
            select.select([changes.descriptor], [], [], min(_UNTOLD_S, patience.left_s(content)))
    finally:
        os.close(changes.descriptor)
    return content


async def wait_text_async(path: Path, text: str = "", *, within_s: float = DEADLINE_S) -> str:
    """Wait as wait_text does, while other tasks go on."""
    return await anyio.to_thread.run_sync(lambda: wait_text(path, text, within_s=within_s))


def end_of(process: subprocess.Popen[Any]) -> Callable[[], str]:
    """Return a function for `unless` that says how the process ended, or returns an empty text while it runs."""
    return lambda: "" if process.poll() is None else f"it ended with {process.returncode}"


def wait_listening(
    process: subprocess.Popen[Any], *ports: int, says: Callable[[], str], within_s: float = DEADLINE_S
) -> None:
    """Wait until a server accepts connections at these ports of 127.0.0.1; Late has the end of what it `says`."""
    for port in ports:
        wait_until(
            functools.partial(_listens, port),
            f"{process.args!r} listens at port {port}",
            within_s=within_s,
            seen=says,
            unless=end_of(process),
        )


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def unread(stream: socket.socket | int) -> int:
    """Return how many bytes wait to be read, from a socket or either end of a pipe; FIONREAD of ioctl_tty(2)."""
    return int.from_bytes(fcntl.ioctl(stream, termios.FIONREAD, bytes(4)), sys.byteorder)


def try_lock(file: IO[bytes]) -> bool:
    """Lock a file that another process may have locked. Return whether it worked; flock(2)."""
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def wait_gone(*pids: int, within_s: float = DEADLINE_S) -> None:
    """Wait until each of these processes has ended, and its parent has been told."""
    for pid in pids:
        wait_ended(pid, within_s=within_s)
        # A pidfd is readable when there is an exit status, but does not show when the parent takes it.
        wait_until(functools.partial(_is_reaped, pid), f"process {pid} is reaped", seen=functools.partial(_status, pid))


def wait_ended(pid: int, *, within_s: float = DEADLINE_S) -> None:
    """Wait until this process has ended: there is none, or nothing but its exit status."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if not select.select([pidfd], [], [], within_s)[0]:
            raise Late(f"process {pid} ends: not within {within_s:g} s; seen last: {_status(pid)}")
    finally:
        os.close(pidfd)


def _is_reaped(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def wait_signalled(*pids: int) -> None:
    """Wait until no signal is on its way to any of these processes: each has been taken, or has ended its process."""
    for pid in pids:
        wait_until(partial(_has_taken_all, pid), f"process {pid} takes its signals", seen=partial(_pending, pid))


def _has_taken_all(pid: int) -> bool:
    return not _pending(pid)


def _pending(pid: int) -> list[str]:
    """Return the pending signals of a process and of its first thread, as proc_pid_status(5) shows them; none if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [field for field in fields if field.startswith(("SigPnd:", "ShdPnd:")) and int(field.split()[1], 16)]


def _status(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    return "nothing"


class _Changes:
    """A descriptor that is readable after a change in the folder of a file, or in the nearest existing folder above it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor: Final = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self.descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")

    def content(self) -> str | None:
        """Return the file's content, None if there is no file; changes from now on make the descriptor readable."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.descriptor, 1 << 16)
        folder = next(folder for folder in self._path.absolute().parents if folder.is_dir())
        if self._libc.inotify_add_watch(self.descriptor, os.fsencode(folder), _IN_CHANGES) < 0:
            raise OSError(ctypes.get_errno(), f"inotify_add_watch {folder}")
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return self._path.read_text(encoding="utf-8", errors="replace")
        return None
