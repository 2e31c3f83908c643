"""What we are measured against: the same interpreter, bare or with bubblewrap around it, started as cheaply as it can be.

A peer that is not installed is not an error: `BWRAP_MISSING` and `MCP_MISSING` are the words for the table, or None.

The peer is at its best: posix_spawn(3) instead of a fork of this process, no shell, no site packages, one recursive bind of
/ instead of many, and pipes without threads or buffers. It has no seccomp filter, no Landlock, no limits, no ledger.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.measure import Measured

__all__ = [
    "BWRAP_MISSING",
    "BWRAP_PYTHON",
    "BWRAP_TRUE",
    "CALLERS",
    "ECHO",
    "ECHO_PYTHON",
    "FRAME",
    "MCP_MISSING",
    "MSGSPEC",
    "PLAIN_PYTHON",
    "PYTHON",
    "READY",
    "Spawned",
    "bwrap_echo",
    "bwrap_echoes",
    "bwrap_first_frame",
    "bwrap_true",
    "bwrap_waiting",
    "echo",
    "plain_echo",
    "plain_first_frame",
    "read_some",
    "spawned",
    "waiting_echo",
]

BWRAP_MISSING: Final = None if shutil.which("bwrap") else "bubblewrap is not installed: apt-get install bubblewrap"
MCP_MISSING: Final = (
    None if importlib.util.find_spec("mcp") else "the MCP SDK is not installed: pip install -e '.[bench]'"
)
BWRAP_PYTHON: Final = "bubblewrap + Python + msgspec"
BWRAP_TRUE: Final = "bubblewrap + /bin/true"
PLAIN_PYTHON: Final = "Python + msgspec, no sandbox"
CALLERS: Final = (2, 4)
"""At once, when it is about how many a second: two cores are saturated by either."""
DEADLINE_S: Final = 30.0
"""A process on a machine under load takes a hundred times what it takes on an idle one."""

MSGSPEC: Final = Path(msgspec.__file__).parent
READY: Final = b"."
FRAME: Final = msgspec.msgpack.encode({"op": "echo", "args": {"text": "x" * 32}})
ECHO: Final = """
import os, msgspec
message = msgspec.msgpack.decode(os.read({source}, 65536))
os.write({target}, msgspec.msgpack.encode(message))
"""
"""The program, ours and the peer's: one MessagePack frame in, the same out."""
ECHO_PYTHON: Final = (
    f"import sys; sys.path.append({str(MSGSPEC.parent)!r}); sys.modules['typing_extensions'] = None"
    + ECHO.format(source=0, target=1)
)
"""msgspec imports typing_extensions where it is installed, 8 ms that the peer does not need to pay."""
PYTHON: Final = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
"""Without its environment: what a virtual environment adds to its start is not the peer's."""
_ENVIRONMENT: Final = {"LC_ALL": "C.UTF-8"}  # without it CPython starts by trying locales, PEP 538


@dataclasses.dataclass(frozen=True)
class Spawned:
    """A process with our ends of its standard input and output."""

    pid: int
    stdin: int
    stdout: int


@contextmanager
def spawned(*arguments: str) -> Iterator[Spawned]:
    """Run a program; at the end its pipes are closed and it is reaped, killed first if it does not leave by itself."""
    theirs_in, ours_in = os.pipe2(os.O_CLOEXEC)
    ours_out, theirs_out = os.pipe2(os.O_CLOEXEC)
    try:
        actions = [(os.POSIX_SPAWN_DUP2, theirs_in, 0), (os.POSIX_SPAWN_DUP2, theirs_out, 1)]
        pid = os.posix_spawn(arguments[0], arguments, _ENVIRONMENT, file_actions=actions)
    finally:
        os.close(theirs_in)
        os.close(theirs_out)
    try:
        yield Spawned(pid, ours_in, ours_out)
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        os.close(ours_in)
        os.close(ours_out)
        os.waitpid(pid, 0)


def read_some(fd: int, deadline_s: float = DEADLINE_S) -> bytes:
    """What comes next, at most 64 KiB; b"" at the end. TimeoutError if nothing does."""
    if not select.select([fd], [], [], deadline_s)[0]:
        raise TimeoutError(f"nothing to read for {deadline_s} s")
    return os.read(fd, 65536)


def bwrap_echo() -> None:
    """Request to reaped: start it, one frame there and back, gone."""
    with spawned(*_bwrap(PYTHON, "-I", "-S", "-c", ECHO_PYTHON)) as process:
        echo(process)


def bwrap_first_frame() -> Measured:
    """Request to first frame, in seconds; the end is waited for after the clock has stopped."""
    began = time.perf_counter()
    with spawned(*_bwrap(PYTHON, "-I", "-S", "-c", ECHO_PYTHON)) as process:
        echo(process)
        return Measured([time.perf_counter() - began])


def plain_echo() -> None:
    """The same program as a process like any other: request to reaped."""
    with spawned(PYTHON, "-I", "-S", "-c", ECHO_PYTHON) as process:
        echo(process)


def plain_first_frame() -> Measured:
    """The same to its first frame."""
    began = time.perf_counter()
    with spawned(PYTHON, "-I", "-S", "-c", ECHO_PYTHON) as process:
        echo(process)
        return Measured([time.perf_counter() - began])


def bwrap_true() -> None:
    """The same isolation around a program that does nothing."""
    with spawned(*_bwrap("/bin/true")) as process:
        read_some(process.stdout)


def bwrap_echoes(callers: int, count: int) -> int:
    """Request to reaped, again and again, by several callers at once; how many were done, `count` or a few less."""
    with ThreadPoolExecutor(callers) as pool:
        for done in [pool.submit(_repeat, count // callers) for _ in range(callers)]:
            done.result()
    return count // callers * callers


@contextmanager
def bwrap_waiting() -> Iterator[Spawned]:
    """bubblewrap and a Python that has imported msgspec and waits on its standard input."""
    with spawned(*_bwrap(PYTHON, "-I", "-S", "-c", _waiting(ECHO_PYTHON, 1))) as process:
        assert read_some(process.stdout) == READY
        yield process
        echo(process)


def waiting_echo(source: int, target: int) -> str:
    """The echo program, which says READY once it waits for its frame."""
    return _waiting(ECHO.format(source=source, target=target), target)


def _waiting(program: str, target: int) -> str:
    return program.replace("message =", f"os.write({target}, {READY!r})\nmessage =", 1)


def _repeat(times: int) -> None:
    for _ in range(times):
        bwrap_echo()


def _bwrap(*command: str) -> list[str]:
    return [shutil.which("bwrap") or "bwrap", "--unshare-all", "--ro-bind", "/", "/", "--", *command]


def echo(process: Spawned) -> None:
    """One frame there and back."""
    os.write(process.stdin, FRAME)
    assert read_some(process.stdout) == FRAME
