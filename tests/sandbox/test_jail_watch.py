"""Tests of what a watch sees of processes that try to hide. They are ordinary processes of this user: no jail is needed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from aileron_sandbox.watch import ProcessTree, proportional

MIB = 1 << 20
_HOLD = """
import ctypes, mmap, sys, threading
libc = ctypes.CDLL(None)
libc.prctl(15, sys.argv[1].encode("latin-1"), 0, 0, 0)  # PR_SET_NAME
held = mmap.mmap(-1, 48 << 20)
held.write(b"x" * len(held))
if sys.argv[2] == "leave":
    threading.Thread(target=lambda: (print("ready", flush=True), sys.stdin.read()), daemon=True).start()
    libc.syscall(60 if sys.maxsize and __import__("os").uname().machine == "x86_64" else 93, 0)  # exit(2): this thread only
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=["plain", "a\x0bb", "VmRSS: 1\x85", "RssAnon:\x1c0 kB"])
def name(request: pytest.FixtureRequest) -> str:
    """Return a name that a program may give itself."""
    chosen: str = request.param
    return chosen


@pytest.fixture(params=["stay", "leave"])
def held(request: pytest.FixtureRequest, name: str) -> Iterator[int]:
    """Start a process that holds 48 MiB; its first thread may have ended."""
    command = [sys.executable, "-c", _HOLD, name, request.param]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        process.kill()


def test_a_programs_memory_is_measured_whatever_its_name_or_first_thread(held: int) -> None:
    """The name may look like other lines of the status file."""
    assert 48 * MIB <= ProcessTree(held).used().memory_bytes < 256 * MIB
    seen = ProcessTree(held).footprint()
    assert 48 * MIB <= seen.resident_bytes < 256 * MIB
    assert 48 * MIB <= proportional(seen.pids, (), ()).total_bytes < 256 * MIB


_SHARE = """
import mmap, os, sys
held = mmap.mmap(-1, 48 << 20)
held.write(b"x" * len(held))
for _ in range(4):
    if os.fork() == 0:
        held[:: 4096]  # of each the pages are resident
        sys.stdin.read()
        os._exit(0)
print("ready", flush=True)
sys.stdin.read()
"""


def test_memory_shared_by_processes_is_counted_once() -> None:
    """Five processes share the same 48 MiB: added up, they would be five times as many."""
    with subprocess.Popen([sys.executable, "-c", _SHARE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"

        seen = ProcessTree(process.pid).footprint()
        assert seen.resident_bytes > 47 * MIB
        assert 47 * MIB < proportional(seen.pids, (), ()).total_bytes < 150 * MIB
