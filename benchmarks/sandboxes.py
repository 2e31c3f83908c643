"""Two other sandboxes for programs, nono-py and sandlock, each used as its documentation says, and as cheaply as it can be.

Both confine the same interpreter and the same echo (peers.py) by Landlock and seccomp, in the caller's namespaces: the program
sees files that it may not open, and every other process. Neither keeps a record.

- nono-py has one call that runs a command, `sandboxed_exec`, which returns the output when the command has ended: so the
  message is an argument, and there is a time until reaped but none until the first byte. Of its modes `landlock` is the cheapest.
- sandlock's `popen` has pipes. Its `fork` makes clones of a process that has loaded everything, which is nearest to a template:
  a clone has its caller's memory and gets no input, and only another command can read its output (`reduce`), so it echoes
  what it has in memory.

Each may read the interpreter, its libraries and msgspec, and has no network.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import time
from typing import Any, Final

import msgspec

from benchmarks.measure import Measured
from benchmarks.peers import ECHO_PYTHON, FRAME, MSGSPEC, PYTHON

__all__ = [
    "NONO",
    "NONO_MISSING",
    "SANDLOCK",
    "SANDLOCK_CLONE",
    "SANDLOCK_MISSING",
    "WASM_MISSING",
    "check_clone",
    "nono_echo",
    "sandlock_clone",
    "sandlock_echo",
    "sandlock_first_frame",
]

NONO: Final = "nono-py + Python + msgspec"
SANDLOCK: Final = "sandlock + Python + msgspec"
SANDLOCK_CLONE: Final = "sandlock, a clone of a loaded process"


def _missing(module: str, package: str) -> str | None:
    return None if importlib.util.find_spec(module) else f"{package} is not installed: pip install -e '.[bench]'"


NONO_MISSING: Final = _missing("nono_py", "nono-py")
SANDLOCK_MISSING: Final = _missing("sandlock", "sandlock")
WASM_MISSING: Final = _missing("wasmtime", "wasmtime")

_READABLE: Final = [
    path for path in ("/usr", "/lib", "/lib64", "/etc", sys.base_prefix, str(MSGSPEC.parent)) if os.path.isdir(path)
]
_LOCALE: Final = {"LC_ALL": "C.UTF-8"}
_ECHO_ARGUMENT: Final = ECHO_PYTHON.replace("os.read(0, 65536)", "bytes.fromhex(sys.argv[1])")


def nono_echo() -> None:
    """Run the echo under nono-py, from the request until it is reaped."""
    import nono_py

    done = nono_py.sandboxed_exec(
        _nono_capabilities(),
        [PYTHON, "-I", "-S", "-c", _ECHO_ARGUMENT, FRAME.hex()],
        env=list(_LOCALE.items()),
        enforcement_mode="landlock",
    )
    assert (done.exit_code, done.stdout) == (0, FRAME), done.stderr


def sandlock_echo() -> None:
    """Run the echo under sandlock, from the request until it is reaped."""
    _sandlock_echo()


def sandlock_first_frame() -> Measured:
    """Return the seconds from the request to sandlock to the first frame; the end is waited for after the clock has stopped."""
    return _sandlock_echo()


def sandlock_clone() -> None:
    """Run a clone, from the request until it is reaped; it decodes and encodes the frame, and prints it unread."""
    clones = _cloning().fork(1)
    assert len(clones.pids) == 1


def check_clone() -> None:
    """Check that a clone's output, read by sandlock's `reduce`, is the frame."""
    from sandlock import Sandbox

    done = Sandbox(fs_readable=_READABLE).reduce(["/bin/cat"], _cloning().fork(1))
    assert done.stdout == FRAME, done


@functools.cache
def _nono_capabilities() -> Any:
    import nono_py

    capabilities = nono_py.CapabilitySet()
    for path in _READABLE:
        capabilities.allow_path(path, nono_py.AccessMode.READ)
    capabilities.block_network()
    return capabilities


@functools.cache
def _sandlock() -> Any:
    from sandlock import Sandbox

    return Sandbox(fs_readable=_READABLE, clean_env=True, env=_LOCALE)


@functools.cache
def _cloning() -> Any:
    from sandlock import Sandbox

    def work(_clone: int) -> None:
        os.write(1, msgspec.msgpack.encode(msgspec.msgpack.decode(FRAME)))

    return Sandbox(fs_readable=_READABLE, clean_env=True, env=_LOCALE, init_fn=lambda: None, work_fn=work)


def _sandlock_echo() -> Measured:
    from sandlock.sandbox import StdioMode

    began = time.perf_counter()
    command = [PYTHON, "-I", "-S", "-c", ECHO_PYTHON]
    with _sandlock().popen(command, stdin=StdioMode.PIPED, stdout=StdioMode.PIPED) as process:
        os.write(process.stdin.fileno(), FRAME)
        assert os.read(process.stdout.fileno(), 65536) == FRAME
        seconds = time.perf_counter() - began
        process.wait()
    return Measured([seconds])
