"""Reader of the memory of a process and its descendants: for tests that say what is nowhere in a jail.

    memories = {pid: memory_unless_ended(pid) for pid in descendants_of(home.daemon_pid)}
    assert any(needle in memory for memory in memories.values())     # the positive control: it was looked at
    assert not any(secret in memory for memory in memories.values())

Reads with process_vm_readv(2), by the rules of ptrace(2), section "Ptrace access mode checking". Linux only.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
from pathlib import Path

__all__ = ["command_of", "descendants_of", "memory_of", "memory_unless_ended"]


def descendants_of(pid: int) -> list[int]:
    """Return every process that is below this one now."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            found = re.search(r"^PPid:\t(\d+)$", status.read_text(errors="replace"), re.MULTILINE)
        except OSError:
            continue
        if found is not None:
            parents[int(status.parent.name)] = int(found.group(1))
    below: list[int] = []
    found_now = {pid}
    while found_now := {child for child, parent in parents.items() if parent in found_now}:
        below += found_now
    return below


class _Span(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))  # struct iovec


def memory_of(pid: int, *, mode: str = "rw") -> bytes:
    """Return all memory of the process that can be written; with mode `r`, that can be read.

    It uses process_vm_readv(2), as the files of a namespace are hidden even from its maker.
    """
    libc, pieces = ctypes.CDLL(None, use_errno=True), []
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        span, allowed, *_ = line.split()
        if allowed.startswith(mode):
            start, end = (int(part, 16) for part in span.split("-"))
            into = ctypes.create_string_buffer(end - start)
            here, there = _Span(ctypes.addressof(into), end - start), _Span(start, end - start)
            read = libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
            assert read >= 0 or ctypes.get_errno() == errno.EFAULT, os.strerror(
                ctypes.get_errno()
            )  # of a device, or reserved
            pieces.append(into.raw[: max(read, 0)])
    return b"".join(pieces)


def command_of(pid: int) -> bytes:
    """Return the command line of a process, a NUL after each word; empty if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def memory_unless_ended(pid: int) -> bytes:
    """Return the process's writable memory; empty if it has ended. Raise if it runs and cannot be read."""
    try:
        return memory_of(pid)
    except (OSError, AssertionError):
        if command_of(pid):
            raise
        return b""
