"""Answers, in place of the kernel, to system calls with which a jailed program tries to reach a network by itself.

Runs in a process of its own for each child that makes such a call, forked by the template at the first such call. The
child is hostile: the bytes read from its memory are of its choosing. They are bounded, and decide only the text that
reports its end. The kernel executes none of the calls that reach for a network, so a child gains nothing by changing
an address after it was read.

There are two measured reasons not to do this in the template. Bytes that the template reads stay in its heap, and every later
child is a fork of it. And a child can make the answering process wait: for a lock on its memory, or for a thread that is
never scheduled. The template itself only allows the end of a process, and reads no more of that call than its number.

| call | answer |
|---|---|
| `socket` of IPv4 or IPv6 | a descriptor of /dev/null, so that libraries that only test for a network continue |
| `setsockopt` of TCP | success, but without effect: clients set options before they connect |
| `connect`, `sendto`, `sendmsg`, `sendmmsg` to an IP address | none: the host receives the address, and the child is ended |
| these calls to another kind of address, or without one | EACCES, EPERM |
| `exit_group` | allowed. Calls arrive in order, so an attempt before the end is reported first |

With a datagram to 0.0.0.0:0 the child's own Python reports the name that the program wanted to look up (lookups.py).

Source: seccomp_unotify(2), ip(7), ipv6(7). Not here: which calls come here (filters.py).
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import select
import signal
import socket
import struct
import sys
from typing import Final, NamedTuple, NoReturn

from aileron_sandbox import kernel
from aileron_sandbox.template import descriptors
from aileron_sandbox.template.template_messages import Attempted

__all__ = ["UNKNOWN", "Watched", "forget_question", "run"]

UNKNOWN: Final = "network:unknown"
_MOST_ANSWERS: Final = 4096
"""Maximum number of calls that are answered for one child. Each takes some 20 µs, which count as no child's processor
time. Honest libraries make a handful.
"""
_MOST_ENDS: Final = 16
"""Maximum number of processes of one child whose end the template itself allows (30 µs each). Most children have one."""
_LONGEST_LOOKUP: Final = 253 + len(":65535")  # RFC 1035 section 2.3.4
_LOOKUP: Final = re.compile(r"[A-Za-z0-9._-]{1,253}:[0-9A-Za-z-]{0,15}")
_NOWHERE: Final = "0.0.0.0:0"

# linux/seccomp.h: SECCOMP_IOCTL_NOTIF_RECV, _SEND, _ID_VALID, _ADDFD, and the structs they take.
_RECEIVE, _SEND, _IS_VALID, _ADD_DESCRIPTOR = 0xC0502100, 0xC0182101, 0x40082102, 0x40182103
_AND_SEND: Final = 2
_GO_ON: Final = 1  # SECCOMP_USER_NOTIF_FLAG_CONTINUE, Linux 5.5: for a call that is allowed to everybody
_NOTIFICATION: Final = struct.Struct("=QIIiIQ6Q")  # id, pid, flags, call, architecture, instruction, arguments
_ANSWER: Final = struct.Struct("=QqiI")  # id, value, error, flags
_DESCRIPTOR: Final = struct.Struct("=QIIII")  # id, flags, source, target, flags of the target

_COLUMN: Final = 0 if os.uname().machine == "x86_64" else 1
_CALLS: Final = {
    pair[_COLUMN]: name
    for name, pair in {
        "socket": (41, 198),
        "connect": (42, 203),
        "sendto": (44, 206),
        "sendmsg": (46, 211),
        "sendmmsg": (307, 269),
        "setsockopt": (54, 208),
        "exit_group": (231, 94),
    }.items()
}
_INET, _INET6 = struct.Struct("!HH4s"), struct.Struct("!HHI16s")  # family, port, (flow,) address
_SOCKADDR_BYTES: Final = 28  # struct sockaddr_in6, the largest that is read
_MSGHDR: Final = struct.Struct("=QI")  # its first two members, and those of struct mmsghdr: address, and its length


# Larger than what fcntl.ioctl copies to its stack (1024 bytes), so that a child's bytes are nowhere else in the template.
_question: Final = bytearray(2048)


class _Call(NamedTuple):
    id: int
    pid: int
    name: str
    arguments: tuple[int, ...]


class Watched:
    """The watched system calls of one child, with which it tries to reach a network, and the answers to them. This
    object closes `listener` and `memory`.

    `memory` is /proc/PID/mem of the child, opened before the child became undumpable. It is -1 for a program that was
    exec'ed or may fork, because the descriptor would not refer to the program's present memory.
    """

    def __init__(self, listener: int, memory: int) -> None:
        self.listener = listener
        self._memory = memory
        self._answers = 0
        self._ends = 0

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that must stay open while `answer` is used."""
        return (self.listener, self._memory) if self._memory >= 0 else (self.listener,)

    def will_change_memory(self) -> None:
        """Close the descriptor of the memory of a child that is about to exec or fork, because it will not refer to the
        child's new memory, proc_pid_mem(5).
        """
        if self._memory >= 0:
            os.close(self._memory)
        self._memory = -1

    def maybe_let_end(self) -> bool:
        """Receive one system call of the child and, if it is the end of a process, allow it. Called in the template
        once `listener` is readable.

        Return False for another call, which is kept for `answer` in a fork of this process; the caller must call
        `forget_question` afterwards. Only the number of the call is read.
        """
        try:
            fcntl.ioctl(self.listener, _RECEIVE, _question)
        except OSError:  # ENOENT: the caller is gone
            return True
        self._ends += 1
        if self._ends > _MOST_ENDS or _CALLS.get(_number_of_call()) != "exit_group":
            return False
        self._send(_Call(int.from_bytes(_question[:8], sys.byteorder), 0, "exit_group", ()), flags=_GO_ON)
        forget_question()
        return True

    def answer(self, *, kept: bool = False) -> str | None:
        """Answer the child's next system call, or if `kept` the call that `maybe_let_end` received before. If the call
        names a destination, return the destination and do not answer: the child waits in the call, and the caller must
        end it. Never blocks once `listener` is readable.
        """
        if not kept:
            forget_question()
            try:
                fcntl.ioctl(self.listener, _RECEIVE, _question)
            except OSError:  # ENOENT: the caller is gone
                return None
        call = _call()
        if call.name == "exit_group":
            self._send(call, flags=_GO_ON)
            return None
        self._answers += 1
        if self._answers > _MOST_ANSWERS:
            return UNKNOWN
        try:
            return self._answer(call)
        except (
            OSError,
            OverflowError,
            struct.error,
        ):  # memory that cannot be read; and a child must not be able to end us
            return UNKNOWN

    def _answer(self, call: _Call) -> str | None:
        match call.name:
            case "socket":
                self._give_placeholder(call)
            case "setsockopt":
                self._send(call, value=0)
            case "connect" | "sendto" | "sendmsg" | "sendmmsg":
                return self._destination(call)
            case _:
                self._send(call, error=errno.EPERM)
        return None

    def close(self) -> None:
        """Stop answering the child's system calls: later ones fail with ENOSYS. Idempotent."""
        if self.listener >= 0:
            os.close(self.listener)
        self.listener = -1
        self.will_change_memory()

    def _give_placeholder(self, call: _Call) -> None:
        # Opened anew: otherwise it would share its flags with another child's.
        placeholder = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        flags = os.O_CLOEXEC if call.arguments[1] & socket.SOCK_CLOEXEC else 0
        try:
            fcntl.ioctl(self.listener, _ADD_DESCRIPTOR, _DESCRIPTOR.pack(call.id, _AND_SEND, placeholder, 0, flags))
        except OSError as error:  # EMFILE: its limit; EINVAL: a kernel before 5.14
            self._send(call, error=errno.EMFILE if error.errno == errno.EMFILE else errno.EACCES)
        finally:
            os.close(placeholder)

    def _destination(self, call: _Call) -> str | None:
        address = self._address(call)
        if address is None:
            self._send(call, error=errno.EPERM)
            return None
        place = _place(address)
        if place is None:
            self._send(call, error=errno.EACCES)
            return None
        if place == _NOWHERE and call.name == "sendto":
            place = self._looked_up(call) or place
        # If the call is no longer pending, the pid may belong to another process, whose memory was read. Raises OSError then.
        fcntl.ioctl(self.listener, _IS_VALID, call.id.to_bytes(8, sys.byteorder))
        return f"network:{place}"

    def _address(self, call: _Call) -> bytes | None:
        """Return the struct sockaddr that a system call names, cut to the bytes needed; None if the call has no
        address. Raises OSError if it cannot be read.
        """
        if call.name in {"connect", "sendto"}:
            at, size = call.arguments[1:3] if call.name == "connect" else call.arguments[4:6]
        else:
            at, size = _MSGHDR.unpack(self._read(call, call.arguments[1], _MSGHDR.size))
            if not at:
                return None
        return self._read(call, at, min(size & 0xFFFFFFFF, _SOCKADDR_BYTES))

    def _looked_up(self, call: _Call) -> str | None:
        data = self._read(call, call.arguments[1], min(call.arguments[2], _LONGEST_LOOKUP))
        text = data.decode("ascii", "replace")
        return text.removesuffix(":") if _LOOKUP.fullmatch(text) else None

    def _read(self, call: _Call, address: int, size: int) -> bytes:
        if self._memory >= 0:
            return os.pread(self._memory, size, address)
        return kernel.read_memory(call.pid, address, size)

    def _send(self, call: _Call, *, value: int = 0, error: int = 0, flags: int = 0) -> None:
        try:
            fcntl.ioctl(self.listener, _SEND, _ANSWER.pack(call.id, value, -error, flags))
        except OSError as failed:
            if failed.errno != errno.ENOENT:  # it was interrupted, or is gone
                raise


def run(watched: Watched, pidfd: int, number: int, control: int) -> NoReturn:
    """Answer one child's system calls until the child has ended or names a destination. Report the destination on
    `control`, and kill the child.
    """
    try:
        descriptors.close_all_but(*watched.descriptors, pidfd, control)
        destination = _first_destination(watched, pidfd)
        if destination is not None:
            told = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=control)
            told.send(Attempted(number, destination).encode())  # before its end, which the template reports
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    finally:
        os._exit(0)


def _first_destination(watched: Watched, pidfd: int) -> str | None:
    """Answer the child's system calls, and return the first network destination that one names; None once the child has
    no process left that could make a call.
    """
    destination = watched.answer(kept=True)
    if destination is not None:
        return destination
    questions = select.poll()
    questions.register(pidfd, select.POLLIN)
    questions.register(watched.listener, select.POLLIN)
    while True:
        ready = dict(questions.poll())
        if pidfd in ready or not ready.get(watched.listener, 0) & select.POLLIN:
            return None
        destination = watched.answer()
        if destination is not None:
            return destination


def forget_question() -> None:
    """Overwrite the last received system call in this process's memory with zeros. Later children, which are forks of
    the template, could read it otherwise, and the next receive needs zeros.
    """
    _question[:] = bytes(len(_question))


def _number_of_call() -> int:
    return int.from_bytes(_question[16:20], sys.byteorder)


def _call() -> _Call:
    number, pid, _, call, _, _, *arguments = _NOTIFICATION.unpack_from(_question)
    return _Call(number, pid, _CALLS.get(call, ""), tuple(arguments))


def _place(address: bytes) -> str | None:
    """Return `ADDRESS:PORT` of a struct sockaddr of IPv4 or IPv6; None for another family, or if the struct is too short."""
    family = int.from_bytes(address[:2], sys.byteorder)
    if family == socket.AF_INET and len(address) >= _INET.size:
        _, port, host = _INET.unpack_from(address)
        return f"{socket.inet_ntop(family, host)}:{port}"
    if family == socket.AF_INET6 and len(address) >= _INET6.size:
        _, port, _, host = _INET6.unpack_from(address)
        return f"[{socket.inet_ntop(family, host)}]:{port}"
    return None
