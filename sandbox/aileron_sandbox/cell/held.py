"""Measurement of memory that a cell uses besides its processes' resident pages: socket buffers, pipes, memory files and
System V objects. It is needed where no control group counts this memory.

Runs on the host, in the thread that watches the cell's memory (door.py). The host asks the kernel through descriptors
that the first process opened before the agent existed, and that belong to the cell's own namespaces.

    held = Held(diagnostics, (shm, sem, msg))
    held.look_at_kernel()                  # socket buffers, System V objects
    held.look_at_descriptors(pids)         # memory files and pipes; costs a readlink(2) for each descriptor
    held.total_bytes

Counted
- Socket buffers, by sock_diag(7): every socket of the network namespace, even a socket that was sent through another socket
  and is in no descriptor table.
- System V shared memory, semaphores and messages, by /proc/sysvipc of the IPC namespace.
- Memory files (memfd_create(2)) that a process has open, mapped or not, by their blocks.
- Pipes, each by its maximum size.

A socket whose other end is closed may still hold data from that end, and the kernel no longer says how much, so the
maximum is counted.

A memory file that was sent through a socket, but not received yet, is in no descriptor table (`sends_descriptors`),
and its size cannot be read: shared.py finds it in the machine's totals.

Source: sock_diag(7), netlink(7), sysvipc(7), pipe(7), unix(7). Not here: resident pages and page tables (watch.py).
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from aileron_sandbox import kernel
from aileron_sandbox.watch import Object, TooMuchToSeeError

__all__ = ["Held"]

_KIB: Final = 1 << 10
_HEADER: Final = struct.Struct("=IHHII")  # nlmsghdr
_ATTRIBUTE: Final = struct.Struct("=HH")  # nlattr
_SOCK_DIAG_BY_FAMILY: Final = 20
_NLM_F_REQUEST_DUMP: Final = 0x301
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_ANSWER_DEADLINE_S: Final = 1.0  # the kernel answers within the call; a measurement must not hang if it does not
_ANSWER_BYTES: Final = 64 << 10  # of one datagram; the kernel makes them 32 KiB at most
_MOST_SOCKETS: Final = 1 << 18
_MOST_DESCRIPTORS: Final = 1 << 17
"""Maximum number of descriptors that one measurement reads, which takes a second. A large build has some ten thousand."""
_TIME_WAIT: Final = 1 << 6
_ALL_STATES: Final = 0xFFFFFFFF


class _Family(NamedTuple):
    """A request to sock_diag(7) for one address family, with the offset of the attributes in a response and the number
    of the attribute `SK_MEMINFO`.
    """

    request: bytes
    attributes_at: int
    memory: int


def _ip(family: int, protocol: int) -> _Family:
    request = struct.pack("=BBBxI48x", family, protocol, 1 << (_INET_DIAG_SKMEMINFO - 1), _ALL_STATES & ~_TIME_WAIT)
    return _Family(request, 72, _INET_DIAG_SKMEMINFO)


_INET_DIAG_SKMEMINFO: Final = 7
_UNIX_PEER, _UNIX_QUEUE, _UNIX_MEMORY = 2, 4, 5
_UNIX: Final = _Family(
    struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, _ALL_STATES, 0, 0x4 | 0x10 | 0x20, 0, 0), 16, _UNIX_MEMORY
)
_NETLINK: Final = _Family(struct.pack("=BBHIIII", 16, 0xFF, 0, 0, 1, 0, 0), 28, 0)
_FAMILIES: Final = (
    _UNIX,
    _NETLINK,
    *(_ip(family, protocol) for family in (socket.AF_INET, socket.AF_INET6) for protocol in (6, 17)),
)
_SOCKET_BYTES: Final = 4 * _KIB
"""Bytes that are counted for a socket itself, with its inode and name. About 2 KiB were measured."""
_DATAGRAMS: Final = 11
"""Number of datagrams that can wait in one socket: max_dgram_qlen of a new network namespace, plus one."""
_SEMAPHORE_BYTES: Final = 64  # struct sem, a cache line each, ipc/sem.c
_MESSAGE_BYTES: Final = 64  # struct msg_msg and what kmalloc rounds it to
_PIPE_BYTES: Final = 8 * _KIB
"""Maximum number of bytes in a pipe that is made while the user's pipes exceed pipe-user-pages-soft, pipe(7)."""
_LARGE_PIPE_BYTES: Final = 1 << 20  # pipe-max-size
_PIPES_BYTES: Final = 64 << 20
"""Bytes that a user's pipes may hold before new pipes get only _PIPE_BYTES: 16,384 pages, pipe-user-pages-soft."""
_MEMORY_FILE: Final = "/memfd:"
_NUMBERS: Final = re.compile(rb"-?\d+")


class Held:
    """A measurement of the memory that one cell holds in memory files, pipes, sockets and System V objects. Not
    thread-safe.
    """

    def __init__(self, diagnostics: int, system_v: tuple[int, int, int]) -> None:
        """Store the descriptors to measure with. `diagnostics` is a netlink socket of the cell, and `system_v` are
        its lists of shared memory, semaphores and messages.

        The caller keeps ownership of all four descriptors.
        """
        self._diagnostics: Final = socket.socket(fileno=os.dup(diagnostics))
        self._diagnostics.settimeout(_ANSWER_DEADLINE_S)
        self._system_v: Final = system_v
        self._sequence = 0
        self._full_socket_bytes: Final = 2 * int(Path("/proc/sys/net/core/wmem_max").read_text(encoding="ascii"))
        self.memory_files: frozenset[Object] = frozenset()
        """The memory files that `total_bytes` counts."""
        self._files_bytes = self._shm_bytes = self._pipes_bytes = self._kernel_bytes = 0
        self._in_tables: set[str] = set()
        self._sockets: set[int] = set()

    def close(self) -> None:
        """Close the netlink socket. Idempotent."""
        self._diagnostics.close()

    @property
    def total_bytes(self) -> int:
        """Total bytes that the cell held at the last measurement."""
        return self.shared_bytes + self._pipes_bytes + self._kernel_bytes

    @property
    def shared_bytes(self) -> int:
        """Bytes of memory files and System V shared memory, which are part of the machine's total of shared memory."""
        return self._files_bytes + self._shm_bytes

    def look_at_kernel(self) -> None:
        """Measure sockets and System V objects. Raises OSError if the kernel does not return the numbers, and
        TooMuchToSeeError if there are too many objects.
        """
        sockets = sum(self._sockets_bytes(family) for family in _FAMILIES)
        self._shm_bytes, others = self._system_v_bytes()
        self._kernel_bytes = sockets + others

    def look_at_descriptors(self, pids: Iterable[int]) -> None:
        """Find the memory files and pipes that the processes `pids` have open. A process that ends meanwhile is
        skipped. Raises TooMuchToSeeError if they have too many descriptors.
        """
        files: dict[Object, int] = {}
        self._in_tables = set()
        left = _MOST_DESCRIPTORS
        for table in _tables(pids):
            for number, name in _links(table):
                left -= 1
                if not left:
                    raise TooMuchToSeeError(f"its processes have more than {_MOST_DESCRIPTORS:,} descriptors")
                if name.startswith(_MEMORY_FILE):
                    with contextlib.suppress(OSError):
                        found = os.stat(f"{table}/{number}")
                        files[found.st_dev, found.st_ino] = found.st_blocks * 512
                elif name.startswith(("pipe:", "socket:")):
                    self._in_tables.add(name)
        self.memory_files = frozenset(files)
        self._files_bytes = sum(files.values())
        self._pipes_bytes = _bytes_of_pipes(sum(name.startswith("pipe:") for name in self._in_tables))

    def sends_descriptors(self, pids: Iterable[int]) -> bool:
        """Return whether a Unix socket of the cell, whose processes are `pids`, holds or may hold descriptors that were
        sent over it and not received yet. The result is also true if, at the last measurement, a socket of the cell was
        open in no process: that socket itself was sent and is waiting to be received.
        """
        if any(f"socket:[{inode}]" not in self._in_tables for inode in self._sockets):
            return True
        return any(
            name.startswith("socket:") and _has_descriptors(f"{table}info/{number}")
            for table in _tables(pids)
            for number, name in _links(table)
        )

    # Sockets

    def _sockets_bytes(self, family: _Family) -> int:
        answers = list(self._answers(family))
        if family is not _UNIX:
            return sum(_SOCKET_BYTES + _buffers(attributes.get(family.memory, b"")) for _, attributes in answers)
        open_ones = {struct.unpack_from("=I", fixed, 4)[0] for fixed, _ in answers} - {0}
        self._sockets = open_ones
        return sum(_SOCKET_BYTES + self._unix_bytes(fixed, attributes, open_ones) for fixed, attributes in answers)

    def _unix_bytes(self, fixed: bytes, attributes: dict[int, bytes], open_ones: set[int]) -> int:
        """Return the bytes that count for one Unix socket, from the fixed part and the attributes of the kernel's
        response (sock_diag(7)). Unread data counts for the socket that sent it. If that socket is not in `open_ones`
        (inode numbers of open sockets), the maximum that it can have sent counts for the receiver.
        """
        own = _buffers(attributes.get(_UNIX_MEMORY, b""))
        (waiting,) = struct.unpack_from("=I", attributes.get(_UNIX_QUEUE, bytes(4)))
        _, kind, state = struct.unpack_from("=BBB", fixed)
        if not waiting or state == _LISTENS:
            return own
        if kind == socket.SOCK_DGRAM:
            return own + _DATAGRAMS * self._full_socket_bytes
        (peer,) = struct.unpack_from("=I", attributes.get(_UNIX_PEER, bytes(4)))
        return own if peer in open_ones else own + self._full_socket_bytes

    def _answers(self, family: _Family) -> Iterator[tuple[bytes, dict[int, bytes]]]:
        """Ask the kernel for all sockets of a family, and yield the fixed part and the attributes of each response. Raises
        OSError if the kernel does not respond, and TooMuchToSeeError if there are too many sockets.
        """
        self._sequence += 1
        size = _HEADER.size + len(family.request)
        head = _HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST_DUMP, self._sequence, 0)
        self._diagnostics.send(head + family.request)
        left = _MOST_SOCKETS
        while left:
            data = self._diagnostics.recv(_ANSWER_BYTES)
            while data:
                size, kind, _, sequence, _ = _HEADER.unpack_from(data)
                message, data = data[_HEADER.size : size], data[_aligned(size) :]
                if sequence != self._sequence:  # a response to an earlier request that was abandoned
                    continue
                if kind == _NLMSG_DONE:
                    return
                if kind == _NLMSG_ERROR:
                    (number,) = struct.unpack_from("=i", message)
                    raise OSError(-number, os.strerror(-number))
                left = max(0, left - 1)
                yield message[: family.attributes_at], dict(_attributes(message[family.attributes_at :]))
        raise TooMuchToSeeError(f"it has more than {_MOST_SOCKETS:,} sockets")

    # System V

    def _system_v_bytes(self) -> tuple[int, int]:
        """Return the bytes of System V objects as (shared memory, semaphores and messages)."""
        shm, sem, msg = (_rows(fd) for fd in self._system_v)
        semaphores = sum(row[3] * _SEMAPHORE_BYTES + _KIB for row in sem)
        messages = sum(row[3] + row[4] * _MESSAGE_BYTES + _KIB for row in msg)
        return sum(row[-2] + row[-1] for row in shm), semaphores + messages  # resident and swapped


_LISTENS: Final = 10  # TCP_LISTEN, also of a Unix socket


def _aligned(size: int) -> int:
    return (size + 3) & ~3


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= _ATTRIBUTE.size:
        size, kind = _ATTRIBUTE.unpack_from(data)
        yield kind, data[_ATTRIBUTE.size : size]
        data = data[max(_ATTRIBUTE.size, _aligned(size)) :]


def _buffers(memory: bytes) -> int:
    """Return the bytes in a socket's buffers from its `SK_MEMINFO`: received, receive limit, sent, send limit,
    reserved, queued, options, backlog.
    """
    if len(memory) < 32:
        return 0
    received, _, sent, _, reserved, queued, options, backlog = struct.unpack_from("=8I", memory)
    return int(received + max(sent, queued) + reserved + options + backlog)


def _rows(fd: int) -> list[list[int]]:
    """Return the numbers in each line of a file except the first line, which has the column names."""
    data, at = b"", 0
    while piece := os.pread(fd, 1 << 16, at):
        data += piece
        at += len(piece)
    return [[int(number) for number in _NUMBERS.findall(line)] for line in data.splitlines()[1:]]


def _bytes_of_pipes(count: int) -> int:
    return count * _PIPE_BYTES + min(_PIPES_BYTES, count * _LARGE_PIPE_BYTES)


def _tables(pids: Iterable[int]) -> Iterator[str]:
    """Yield the path in /proc of each descriptor table of these processes. A thread may have a table of its own
    (unshare(2), CLONE_FILES).
    """
    for pid in pids:
        with contextlib.suppress(OSError):
            threads = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
            if not threads:  # it was reaped between open(2) and getdents(2), which finds nothing then
                continue
            own = f"/proc/{pid}/task/{threads[0]}/fd"
            yield own
            for thread in threads[1:]:
                table = f"/proc/{pid}/task/{thread}/fd"
                if not _is_same(own, table, kernel.maybe_share_descriptors(threads[0], thread)):
                    yield table


def _is_same(own: str, table: str, known: bool | None) -> bool:
    """Return whether two threads share one descriptor table, given the paths `own` and `table` of their tables in
    /proc. `known` is the answer of kcmp(2); if that call is not available (None), as in containers, compare the
    descriptors' numbers. False if either thread has ended.
    """
    if known is not None:
        return known
    with contextlib.suppress(OSError):
        return os.listdir(own) == os.listdir(table)
    return False


def _has_descriptors(fdinfo: str) -> bool:
    with contextlib.suppress(OSError), open(fdinfo, "rb", buffering=0) as file:
        return re.search(rb"^scm_fds: *[1-9]", file.read(4096), re.MULTILINE) is not None
    return False


def _links(table: str) -> Iterator[tuple[str, str]]:
    """Yield the number and the link text of each descriptor in the table with this path in /proc; a few microseconds each."""
    with contextlib.suppress(OSError):  # it has ended, or executes a file that may not be read
        directory = os.open(table, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for number in os.listdir(directory):
                try:
                    name = os.readlink(number, dir_fd=directory)
                except OSError:  # closed meanwhile; `suppress` takes a third of the time here
                    continue
                yield number, name
        finally:
            os.close(directory)
