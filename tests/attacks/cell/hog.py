"""Program that runs in a cell: it holds MIB of memory of each kind, says "held" once it has them, and keeps them until
its input ends.

    python hog.py MIB KIND [KIND …]

Standard library alone. Each kind is held in a way that a process's resident pages do not show, or hardly show.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Final

_MIB: Final = 1 << 20
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.shmat.restype = ctypes.c_void_p
_IPC_CREAT, _CLONE_FILES = 0o1000, 0x400
_MADV_DONTNEED: Final = 4
KEPT: Final[list[object]] = []


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _memory_file(mib: int) -> int:
    fd = os.memfd_create("held")
    os.posix_fallocate(fd, 0, mib * _MIB)
    return fd


def _in_a_thread_s_own_table(mib: int) -> None:
    ready, leave = threading.Event(), threading.Event()

    def hold() -> None:
        _checked(_LIBC.unshare(_CLONE_FILES))
        _memory_file(mib)
        ready.set()
        leave.wait()

    threading.Thread(target=hold, daemon=True).start()
    ready.wait()


def _in_a_socket(mib: int) -> None:
    sent, received = socket.socketpair()
    fd = _memory_file(mib)
    socket.send_fds(sent, [b"x"], [fd])
    os.close(fd)
    KEPT.extend((sent, received))


def _of_one_page(mib: int) -> None:
    """Write to shared memory, then unmap all of it but one page."""
    size = mib * _MIB
    place = _LIBC.mmap(None, ctypes.c_size_t(size), 3, 0x21, -1, ctypes.c_long(0))
    ctypes.memset(place, 1, size)
    _checked(_LIBC.munmap(ctypes.c_void_p(place + 4096), ctypes.c_size_t(size - 4096)))


def _let_go(mib: int) -> None:
    held = mmap.mmap(-1, mib * _MIB)
    for at in range(0, len(held), 4096):
        held[at] = 1
    held.madvise(_MADV_DONTNEED)
    KEPT.append(held)


def _system_v(mib: int) -> None:
    number = _checked(_LIBC.shmget(0, ctypes.c_size_t(mib * _MIB), _IPC_CREAT | 0o600))
    place = _LIBC.shmat(number, None, 0)
    ctypes.memset(place, 1, mib * _MIB)
    _checked(_LIBC.shmdt(ctypes.c_void_p(place)))


def _semaphores(mib: int) -> None:
    for _ in range(mib * _MIB // (32_000 * 64) + 1):
        _checked(_LIBC.semget(0, 32_000, _IPC_CREAT | 0o600))


def _fill(sending: socket.socket) -> int:
    """Fill a socket until it takes no more. Return the number of bytes."""
    sending.setblocking(False)
    sent, piece = 0, bytes(sending.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 8)
    try:
        while True:
            sent += sending.send(piece)
    except BlockingIOError:
        return sent


def _pairs(mib: int, kind: int, *, closes: bool) -> None:
    """Fill pairs of Unix sockets, and close the ends that have sent if `closes`."""
    left = mib * _MIB
    while left > 0:
        sending, receiving = socket.socketpair(socket.AF_UNIX, kind)
        sending.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        left -= _fill(sending)
        KEPT.append(receiving)
        if closes:
            sending.close()
        else:
            KEPT.append(sending)


def _tcp(mib: int) -> None:
    left = mib * _MIB
    with socket.create_server(("127.0.0.1", 0)) as server:
        while left > 0:
            sending = socket.create_connection(server.getsockname())
            receiving, _ = server.accept()
            left -= _fill(sending)
            KEPT.extend((sending, receiving))


def _page_tables(mib: int) -> None:
    """Read one page of zeros at every 2 MiB: each takes a table of 4 KiB, and no page of its own."""
    for _ in range(mib // 32 + 1):
        size = 32 * _MIB // 4096 << 21
        place = _LIBC.mmap(None, ctypes.c_size_t(size), 1, 0x4022, -1, ctypes.c_long(0))
        _checked(_LIBC.madvise(ctypes.c_void_p(place), ctypes.c_size_t(size), 15))  # no huge page of zeros
        for at in range(place, place + size, 1 << 21):
            ctypes.string_at(at, 1)


def _pipes(mib: int) -> None:
    for _ in range(mib * _MIB // 8192):
        try:
            _, write = os.pipe()
        except OSError:  # the table is full: the next process
            if os.fork():
                signal.pause()
            os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
            _, write = os.pipe()
        os.set_blocking(write, False)
        os.write(write, bytes(8192))


def _descriptors(processes: int) -> None:
    """Have this many processes with a full table of descriptors, all of one and the same file."""
    for _ in range(resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 8):
        os.dup(0)
    for _ in range(processes - 1):
        if os.fork() == 0:
            signal.pause()


KINDS: Final[dict[str, Callable[[int], None]]] = {
    "a memory file that is not mapped": lambda mib: KEPT.append(_memory_file(mib)),
    "a memory file in the table of one thread": _in_a_thread_s_own_table,
    "a memory file that waits in a socket": _in_a_socket,
    "shared memory of which one page is mapped": _of_one_page,
    "shared memory that no table has a page of": _let_go,
    "System V shared memory": _system_v,
    "System V semaphores": _semaphores,
    "buffers of Unix streams": lambda mib: _pairs(mib, socket.SOCK_STREAM, closes=False),
    "buffers of streams of which one end is closed": lambda mib: _pairs(mib, socket.SOCK_STREAM, closes=True),
    "buffers of datagrams of which one end is closed": lambda mib: _pairs(mib, socket.SOCK_DGRAM, closes=True),
    "buffers of TCP": _tcp,
    "page tables": _page_tables,
    "pipes": _pipes,
}


if __name__ == "__main__":
    for kind in sys.argv[2:]:
        (KINDS | {"descriptors": _descriptors})[kind](int(sys.argv[1]))
    print("held", flush=True)
    sys.stdin.read()
