"""Peers for comparison: the same interpreter, bare or with bubblewrap around it, started as cheaply as it can be.

A peer that is not installed is not an error: `BWRAP_MISSING` and `MCP_MISSING` are the texts for the table, or None.

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
"""Numbers of concurrent callers when a rate is measured: either saturates two cores."""
DEADLINE_S: Final = 30.0
"""Seconds for one process: on a machine under load it takes a hundred times as long as on an idle one."""

MSGSPEC: Final = Path(msgspec.__file__).parent
READY: Final = b"."
FRAME: Final = msgspec.msgpack.encode({"op": "echo", "args": {"text": "x" * 32}})
ECHO: Final = """
import os, msgspec
message = msgspec.msgpack.decode(os.read({source}, 65536))
os.write({target}, msgspec.msgpack.encode(message))
"""
"""Program of both sides: one MessagePack frame in, the same out."""
ECHO_PYTHON: Final = (
    f"import sys; sys.path.append({str(MSGSPEC.parent)!r}); sys.modules['typing_extensions'] = None"
    + ECHO.format(source=0, target=1)
)
"""The echo for a plain interpreter. It hides typing_extensions, whose import by msgspec would cost the peer 8 ms for nothing."""
PYTHON: Final = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
"""Path of the base interpreter: the peer does not pay for the start of a virtual environment."""
_ENVIRONMENT: Final = {"LC_ALL": "C.UTF-8"}  # without it CPython starts by trying locales, PEP 538


@dataclasses.dataclass(frozen=True)
class Spawned:
    """A process with our ends of its standard input and output."""

    pid: int
    stdin: int
    stdout: int


@contextmanager
def spawned(*arguments: str) -> Iterator[Spawned]:
    """Run a program. At the end close its pipes and reap it; kill it first if the block raised."""
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
    """Read what comes next, at most 64 KiB; b"" at the end. TimeoutError if nothing comes within the deadline."""
    if not select.select([fd], [], [], deadline_s)[0]:
        raise TimeoutError(f"nothing to read for {deadline_s} s")
    return os.read(fd, 65536)


def bwrap_echo() -> None:
    """Run the echo in bubblewrap for one frame, from the request until it is reaped."""
    with spawned(*_bwrap(PYTHON, "-I", "-S", "-c", ECHO_PYTHON)) as process:
        echo(process)


def bwrap_first_frame() -> Measured:
    """Return the seconds from the request to the first frame in bubblewrap; its end is waited for after the clock has stopped."""
    began = time.perf_counter()
    with spawned(*_bwrap(PYTHON, "-I", "-S", "-c", ECHO_PYTHON)) as process:
        echo(process)
        return Measured([time.perf_counter() - began])


def plain_echo() -> None:
    """Run the echo in an ordinary process, from the request until it is reaped."""
    with spawned(PYTHON, "-I", "-S", "-c", ECHO_PYTHON) as process:
        echo(process)


def plain_first_frame() -> Measured:
    """Return the seconds from the request to the first frame of an ordinary process; its end is not counted."""
    began = time.perf_counter()
    with spawned(PYTHON, "-I", "-S", "-c", ECHO_PYTHON) as process:
        echo(process)
        return Measured([time.perf_counter() - began])


def bwrap_true() -> None:
    """Run a program that does nothing in the same isolation of bubblewrap."""
    with spawned(*_bwrap("/bin/true")) as process:
        read_some(process.stdout)


def bwrap_echoes(callers: int, count: int) -> int:
    """Repeat `bwrap_echo` from several callers at once. Return the number of runs, which is `count` or a few less."""
    with ThreadPoolExecutor(callers) as pool:
        for done in [pool.submit(_repeat, count // callers) for _ in range(callers)]:
            done.result()
    return count // callers * callers


@contextmanager
def bwrap_waiting() -> Iterator[Spawned]:
    """Yield bubblewrap around a Python that has imported msgspec and waits on its standard input."""
    with spawned(*_bwrap(PYTHON, "-I", "-S", "-c", _waiting(ECHO_PYTHON, 1))) as process:
        assert read_some(process.stdout) == READY
        yield process
        echo(process)


def waiting_echo(source: int, target: int) -> str:
    """Return the echo program with a line that writes READY before it waits for its frame."""
    return _waiting(ECHO.format(source=source, target=target), target)


def _waiting(program: str, target: int) -> str:
    return program.replace("message =", f"os.write({target}, {READY!r})\nmessage =", 1)


def _repeat(times: int) -> None:
    for _ in range(times):
        bwrap_echo()


def _bwrap(*command: str) -> list[str]:
    return [shutil.which("bwrap") or "bwrap", "--unshare-all", "--ro-bind", "/", "/", "--", *command]


def echo(process: Spawned) -> None:
    """Send one frame and check that it comes back."""
    os.write(process.stdin, FRAME)
    assert read_some(process.stdout) == FRAME
