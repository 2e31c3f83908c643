"""Attacks on a command before it has had time to do anything: tracing it, opening its memory, opening its terminal.

`tracer` seizes a stopped process and lets it continue while it traces it. `Scanner` opens everything of a process and of its
children as soon as they exist and as long as the kernel allows, and searches the memory again and again.

Source: ptrace(2), proc(5).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

__all__ = ["Scanner", "tracer"]

ROOT: Final = Path(__file__).resolve().parents[3]
_SEIZE, _CONT, _LISTEN = 0x4206, 7, 0x4208
_TRACE_FORK: Final = 0x2 | 0x4 | 0x8  # PTRACE_O_TRACEFORK, VFORK and CLONE: whatever it starts is traced too
_WALL: Final = 0x40000000
_EVENT_STOP: Final = 128
_MAX_OPEN: Final = 400
"""Descriptors that the scanner holds at most: an ordinary user has 1024."""
_MAX_MAPPING: Final = 64 << 20


@contextlib.contextmanager
def tracer(pid: int) -> Iterator[str]:
    """Trace a process that has stopped itself, and let it go on. Yield `seized`, or the name of the error."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.attacks.same_user.watching", str(pid)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


class Scanner:
    """A scanner that opens memory and maps of `pid` and its children until it stops; `found` has the `needles` that it saw."""

    def __init__(self, pid: int, *needles: bytes) -> None:
        self._pid = pid
        self._needles = needles
        self._stopping = threading.Event()
        self._opened: dict[tuple[int, int], tuple[int, int]] = {}
        self.found: set[bytes] = set()
        self.rounds = 0
        self.opened_early = 0

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(30)
        for memory, maps in self._opened.values():
            os.close(memory)
            os.close(maps)

    def look(self) -> None:
        """Search all opened memory once, now."""
        for memory, maps in list(self._opened.values()):
            self._search(memory, maps)
        self.rounds += 1

    def _run(self) -> None:
        looks = 0
        while not self._stopping.is_set():
            for pid in _family(self._pid):
                self._open(pid)
            looks += 1
            if looks % 20 == 0:
                self.look()

    def _open(self, pid: int) -> None:
        if len(self._opened) * 2 >= _MAX_OPEN:
            return
        with contextlib.suppress(OSError):
            maps = os.open(f"/proc/{pid}/maps", os.O_RDONLY)
            try:
                place = re.search(r"^([0-9a-f]+).*\[vdso\]$", _whole(maps), re.MULTILINE)
                if place is None or (key := (pid, int(place[1], 16))) in self._opened:  # another place: another program
                    os.close(maps)
                    return
                self._opened[key] = (os.open(f"/proc/{pid}/mem", os.O_RDONLY), maps)
            except OSError:
                os.close(maps)
                raise
            self.opened_early += 1

    def _search(self, memory: int, maps: int) -> None:
        try:
            listed = _whole(maps)
        except OSError:
            return
        for start, end in re.findall(r"^([0-9a-f]+)-([0-9a-f]+) rw", listed, re.MULTILINE):
            at, size = int(start, 16), int(end, 16) - int(start, 16)
            with contextlib.suppress(OSError, OverflowError):
                data = os.pread(memory, min(size, _MAX_MAPPING), at)
                self.found.update(needle for needle in self._needles if needle in data)


def _whole(maps: int) -> str:
    parts, at = [], 0
    while piece := os.pread(maps, 65536, at):
        parts.append(piece)
        at += len(piece)
    return b"".join(parts).decode("ascii", "replace")


def _family(pid: int) -> list[int]:
    """Return a process and all its visible descendants."""
    found, new = [pid], [pid]
    while new:
        below = []
        for parent in new:
            with contextlib.suppress(OSError):
                below += [int(word) for word in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
        found += below
        new = below
    return found


def _trace(pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    if libc.ptrace(_SEIZE, pid, None, _TRACE_FORK) < 0:
        print(errno.errorcode[ctypes.get_errno()], flush=True)
        os.kill(pid, signal.SIGCONT)
        return
    print("seized", flush=True)
    os.kill(pid, signal.SIGCONT)
    while True:
        try:
            stopped, status = os.waitpid(-1, _WALL)
        except ChildProcessError:
            return
        if not os.WIFSTOPPED(status):
            continue
        which, event = os.WSTOPSIG(status), status >> 16
        passed_on = 0 if event or which == signal.SIGTRAP else which
        libc.ptrace(_CONT, stopped, None, passed_on)


if __name__ == "__main__":
    _trace(int(sys.argv[1]))
