"""Attempts of a process of a user on another process, by its number: each way that the kernel has, and its outcome.

The module runs as a process of its own, `python -m tests.attacks.same_user.reading PID`, because tracing is bound to the
tracing process. It prints JSON: each way with `ok`, or the name of the error.

Source: proc(5), ptrace(2), process_vm_readv(2), pidfd_getfd(2), prlimit(2).
"""

from __future__ import annotations

import ctypes
import errno
import functools
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

__all__ = ["ways_into", "ways_into_a_child"]

_PTRACE_ATTACH, _PTRACE_DETACH, _PTRACE_SEIZE = 16, 17, 0x4206
_PIDFD_OPEN, _PIDFD_GETFD = 434, 438
"""System call numbers that are the same on every architecture, syscalls(2)."""
_libc: Final = ctypes.CDLL(None, use_errno=True)
ROOT: Final = Path(__file__).resolve().parents[3]


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def ways_into(pid: int) -> dict[str, str]:
    """Return the outcome of each way into process `pid`, tried by a process of this user that starts now."""
    return _tried(str(pid))


def ways_into_a_child() -> dict[str, str]:
    """Return the same for a child process that does nothing to prevent it, which Yama allows at its usual setting."""
    return _tried("child")


def _tried(whom: str) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.attacks.same_user.reading", whom],
        capture_output=True,
        cwd=ROOT,
        timeout=30,
        check=True,
    )
    answers: dict[str, str] = json.loads(done.stdout)
    return answers


def _ways(pid: int) -> dict[str, Callable[[], object]]:
    ways: dict[str, Callable[[], object]] = {
        f"/proc/PID/{name}": functools.partial(_opened, f"/proc/{pid}/{name}")
        for name in ("mem", "environ", "maps", "smaps", "auxv", "pagemap", "syscall")
    }
    ways["/proc/PID/mem for writing"] = lambda: os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR))
    ways["/proc/PID/fd"] = lambda: os.listdir(f"/proc/{pid}/fd")
    ways["/proc/PID/fd/0"] = lambda: os.close(os.open(f"/proc/{pid}/fd/0", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY))
    ways["/proc/PID/map_files"] = lambda: os.listdir(f"/proc/{pid}/map_files")
    ways["/proc/PID/task/PID/mem"] = lambda: _opened(f"/proc/{pid}/task/{pid}/mem")
    ways["ptrace attach"] = lambda: _traced(_PTRACE_ATTACH, pid)
    ways["ptrace seize"] = lambda: _traced(_PTRACE_SEIZE, pid)
    ways["process_vm_readv"] = lambda: _copied(_libc.process_vm_readv, pid)
    ways["process_vm_writev"] = lambda: _copied(_libc.process_vm_writev, pid)
    ways["pidfd_getfd"] = lambda: _taken(pid)
    ways["prlimit core"] = lambda: resource.prlimit(
        pid, resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    )
    return ways


def _opened(path: str) -> None:
    with open(path, "rb", buffering=0) as file:
        if not path.endswith("mem"):
            file.read(16)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _traced(request: int, pid: int) -> None:
    _checked(_libc.ptrace(request, pid, 0, 0))
    if request == _PTRACE_ATTACH:
        os.waitpid(pid, 0x40000000)  # __WALL: it need not be a child
        _libc.ptrace(_PTRACE_DETACH, pid, 0, 0)


def _copied(call: Callable[..., int], pid: int) -> None:
    """Copy a byte from or to an address that is not mapped: EFAULT is the response for a process that may be read."""
    room = ctypes.create_string_buffer(1)
    here = _Vector(ctypes.cast(room, ctypes.c_void_p), 1)
    there = _Vector(8, 1)
    try:
        _checked(call(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0))
    except OSError as error:
        if error.errno != errno.EFAULT:
            raise


def _taken(pid: int) -> None:
    pidfd = _checked(_libc.syscall(_PIDFD_OPEN, pid, 0))
    try:
        os.close(_checked(_libc.syscall(_PIDFD_GETFD, pidfd, 0, 0)))
    finally:
        os.close(pidfd)


def _answer(way: Callable[[], object]) -> str:
    try:
        way()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    except ValueError as error:  # what `resource` makes of EPERM
        return "EPERM" if "not allowed" in str(error) else str(error)
    except PermissionError:
        return "EPERM"
    return "ok"


def _main(whom: str) -> None:
    if whom != "child":
        print(json.dumps({name: _answer(way) for name, way in _ways(int(whom)).items()}))
        return
    # It has no part in our output, and is not ended by `child.kill()`, which takes the stop of a traced process for its end: left
    # behind and stopped, it would keep whoever reads that output waiting.
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as child:
        _main(str(child.pid))
        os.kill(child.pid, signal.SIGKILL)


if __name__ == "__main__":
    _main(sys.argv[1])
