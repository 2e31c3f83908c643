r"""A name server on loopback that answers from a table and remembers every question: lookups, counted on the wire.

UDP and TCP, in two threads. The table may change at any time. It knows A, AAAA, CNAME, SRV and TXT, and can be as bad as a name
server of a hostile zone: say nothing, say nonsense, fail, or point a compressed name at itself.

>>> with NameServer({"api.test": ["127.0.0.1"]}) as server, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
...     _ = client.sendto(question("api.test", A), ("127.0.0.1", server.port))
...     client.recv(512)[-4:], server.asked
(b'\x7f\x00\x00\x01', [('api.test', 'A')])

Source: RFC 1035 section 4. Not here: how the system's resolver is made to ask it (tests/support/lab.py).
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from typing import Final, Self

__all__ = ["AAAA", "FAILING", "LOOP", "NONSENSE", "SILENT", "A", "NameServer", "question"]

A: Final = 1
AAAA: Final = 28
_CNAME: Final = 5
_TXT: Final = 16
_SRV: Final = 33
_TYPES: Final = {A: "A", AAAA: "AAAA", _TXT: "TXT", _SRV: "SRV"}
_FAILURE, _NO_SUCH_NAME = 2, 3
_MAX_UDP: Final = 512

SILENT: Final = "silent"
"""Answer of a name for which no response is ever sent."""
NONSENSE: Final = "nonsense"
"""Answer of a name for which the response is bytes that are no message."""
LOOP: Final = "loop"
"""Answer of a name for which the response's name is compressed to itself."""
FAILING: Final = "failing"
"""Answer of a name for which the server says that it failed (SERVFAIL)."""

_TRIES = 10
Answers = list[str] | str
"""Answers for a name: addresses, `cname:NAME`, `srv:PRIORITY WEIGHT PORT TARGET`, `txt:TEXT`; or one of the words above."""


def _bound(port: int) -> tuple[socket.socket, socket.socket]:
    """Return a UDP and a TCP socket, both at `port`; for 0 at a port that is free for both, though the kernel checks only one."""
    for left in range(_TRIES - 1, -1, -1):
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            udp.bind(("127.0.0.1", port))
            return udp, socket.create_server(udp.getsockname())
        except OSError:
            udp.close()
            if port or not left:
                raise
    raise AssertionError("unreachable")


class NameServer:
    """A name server that runs between enter and exit. A name that is not in `zone` does not exist."""

    def __init__(self, zone: Mapping[str, Answers] | None = None, port: int = 0) -> None:
        self.zone: dict[str, Answers] = dict(zone or {})
        self.asked: list[tuple[str, str]] = []
        """Questions as (name, type), in order of arrival, over UDP and TCP alike."""
        self.on_question: Callable[[str], None] = lambda name: None
        self._udp, self._tcp = _bound(port)
        self.port: int = self._udp.getsockname()[1]
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._serve_udp, self._serve_tcp)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for sock in (self._udp, self._tcp):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits on it
        for thread in self._threads:
            thread.join(5)
        self._udp.close()
        self._tcp.close()

    def _serve_udp(self) -> None:
        while True:
            try:
                data, peer = self._udp.recvfrom(4096)
            except OSError:
                return
            if not data:
                return
            said = self._answer(data)
            if said is not None:
                if len(said) > _MAX_UDP:
                    said = said[:2] + b"\x83\x80" + said[4:6] + bytes(6) + _question_of(said)  # TC: ask again over TCP
                self._udp.sendto(said, peer)

    def _serve_tcp(self) -> None:
        while True:
            try:
                sock, _peer = self._tcp.accept()
            except OSError:
                return
            with sock, contextlib.suppress(OSError):
                sock.settimeout(5)
                while head := sock.recv(2):
                    said = self._answer(sock.recv(struct.unpack(">H", head)[0]))
                    if said is None:
                        break
                    sock.sendall(struct.pack(">H", len(said)) + said)

    def _answer(self, data: bytes) -> bytes | None:
        name, kind = _parse_question(data)
        self.asked.append((name, _TYPES.get(kind, str(kind))))
        self.on_question(name)
        answers = self.zone.get(name)
        if answers == SILENT:
            return None
        if answers == NONSENSE:
            return data[:2] + b"\xff" * 30
        asked = _question_of(data)
        if answers == LOOP:
            here = 12 + len(asked)  # the answer's own name begins here, and says that it continues here
            return (
                data[:2]
                + b"\x81\x80\0\1\0\1\0\0\0\0"
                + asked
                + struct.pack(">HHHIH", 0xC000 | here, A, 1, 0, 4)
                + bytes(4)
            )
        if answers == FAILING:
            return data[:2] + struct.pack(">HHHHH", 0x8180 | _FAILURE, 1, 0, 0, 0) + asked
        records = [] if answers is None else _records(answers, kind)
        flags = 0x8180 if answers is not None else 0x8180 | _NO_SUCH_NAME
        return data[:2] + struct.pack(">HHHHH", flags, 1, len(records), 0, 0) + asked + b"".join(records)


def question(name: str, kind: int) -> bytes:
    """Return a query with recursion desired."""
    return struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + _name(name) + struct.pack(">HH", kind, 1)


def _records(answers: Answers, kind: int) -> list[bytes]:
    """Return the records, each with the question's name, compressed; after a CNAME with its target."""
    records, owner = [], b"\xc0\x0c"
    for answer in answers:
        if answer.startswith("cname:"):
            target = _name(answer.removeprefix("cname:"))
            records.append(owner + struct.pack(">HHIH", _CNAME, 1, 0, len(target)) + target)
            owner = target
            continue
        if answer.startswith(("srv:", "txt:")):
            held, data = (_SRV, _server(answer[4:])) if answer.startswith("srv:") else (_TXT, _text(answer[4:]))
            if kind == held:
                records.append(owner + struct.pack(">HHIH", held, 1, 0, len(data)) + data)
            continue
        packed = ipaddress.ip_address(answer).packed
        if (len(packed) == 4) == (kind == A):
            records.append(owner + struct.pack(">HHIH", kind, 1, 0, len(packed)) + packed)
    return records


def _server(text: str) -> bytes:
    priority, weight, port, target = text.split(" ", 3)
    return struct.pack(">HHH", int(priority), int(weight), int(port)) + _name(target)


def _text(text: str) -> bytes:
    return bytes([len(text)]) + text.encode("ascii")


def _name(name: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode("ascii") for label in name.split(".") if label) + b"\0"


def _parse_question(data: bytes) -> tuple[str, int]:
    at, labels = 12, []
    while data[at]:
        labels.append(data[at + 1 : at + 1 + data[at]].decode("ascii"))
        at += 1 + data[at]
    return ".".join(labels).lower(), struct.unpack_from(">H", data, at + 1)[0]


def _question_of(data: bytes) -> bytes:
    at = 12
    while data[at]:
        at += 1 + data[at]
    return data[12 : at + 5]
