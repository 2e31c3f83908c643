"""A request and its response over a Unix socket, with only the part of HTTP/1.1 that the daemon uses with commands.

Runs at the start of each `aileron run`. http.client is not used: it can read any server's responses, and for that
imports modules for mail and TLS, which takes longer than the rest of the command. The listener may be hostile; its
response is bounded, and refused if it is not what the daemon sends.

Rules
- One deadline covers the exchange, from connecting to the last byte. After the deadline, TimeoutError is raised.
- The head has at most MAX_HEAD_BYTES and the body MAX_BODY_BYTES. Only bytes that have arrived take memory, whatever
  length was announced.
- UnreadableResponse is raised for another version of HTTP, an interim response, a line that is not a header, a length that is
  given twice or never, or a body in chunks. The daemon's responses to commands have a Content-Length. One response is read
  from each connection.
- A request is checked before it is sent: no target, name or value can end its line.

Source: RFC 9112, sections 2 to 6; RFC 9110, sections 5.5, 5.6.2 and 15. Not here: the requests and their meaning (client.py).
"""

from __future__ import annotations

import contextlib
import time
from _socket import AF_UNIX, SOCK_STREAM, socket  # socket.socket is made of it, and takes 1 ms to import
from collections.abc import Mapping
from typing import Final

__all__ = ["MAX_BODY_BYTES", "MAX_HEAD_BYTES", "UnixExchange", "UnreadableResponse", "request_bytes"]

MAX_HEAD_BYTES: Final = 16 << 10
"""Maximum size of a response's head: 16 KiB. The daemon's heads have about a hundredth of that."""
MAX_BODY_BYTES: Final = 64 << 20
"""Maximum size of a response's body: 64 MiB. The longest is a page of the audit trail, with 8 MiB of records that are
escaped once more.
"""
_CHUNK: Final = 1 << 18
_AGAIN_S: Final = 0.01
"""Seconds between two attempts to connect while the daemon's queue of connections is full. The daemon accepts ten
connections per millisecond.
"""
_END: Final = b"\r\n\r\n"
_VERSION: Final = b"HTTP/1.1 "
_MAX_LENGTH_DIGITS: Final = 18
_TOKEN: Final = frozenset(b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_TEXT: Final = frozenset((0x09, *range(0x20, 0x7F), *range(0x80, 0x100)))
_HAS_BODY: Final = ("POST", "PUT", "PATCH")


class UnreadableResponse(ValueError):
    """Error: a response is not in the form that the daemon sends."""


class UnixExchange:
    """An exchange with the daemon over its Unix socket: a request, made by `request_bytes`, and its response. The
    caller must always close it.
    """

    def __init__(self, path: str, timeout_s: float, request: bytes) -> None:
        self._path = path
        self._request = request
        self._until = time.monotonic() + timeout_s
        self._socket = socket(AF_UNIX, SOCK_STREAM)

    def connect(self) -> None:
        """Connect, without sending anything yet. Raises OSError, and TimeoutError after the deadline."""
        while True:
            self._wait()
            try:
                self._socket.connect(self._path)
            except BlockingIOError:  # the backlog is full: connect(2), EAGAIN
                time.sleep(_AGAIN_S)
            else:
                return

    def response(self) -> tuple[int, bytes]:
        """Send the request and return the response's status and body. Raises OSError if the connection broke,
        UnreadableResponse if the response is malformed.
        """
        self._wait()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the daemon answered before it read the body
            self._socket.sendall(self._request)
        received = bytearray()
        while (end := received.find(_END)) < 0:
            if len(received) >= MAX_HEAD_BYTES:
                raise UnreadableResponse(f"a response with more than {MAX_HEAD_BYTES} bytes of headers")
            received += self._receive(MAX_HEAD_BYTES - len(received), "before its response")
        status, length = parsed_head(bytes(received[:end]))
        del received[: end + len(_END)]
        while len(received) < length:
            received += self._receive(min(length - len(received), _CHUNK), "in the middle of its response")
        if len(received) > length:
            raise UnreadableResponse("a response with more bytes than its Content-Length says")
        return status, bytes(received)

    def close(self) -> None:
        """Close the socket. Calling it again does nothing."""
        self._socket.close()

    def _receive(self, most: int, when: str) -> bytes:
        self._wait()
        data = self._socket.recv(most)
        if not data:
            raise ConnectionResetError(f"it closed the connection {when}")
        return data

    def _wait(self) -> None:
        """Set the socket's timeout to the time that is left. Raises TimeoutError if none is left."""
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self._socket.settimeout(left_s)


def request_bytes(method: str, target: str, payload: bytes | None, headers: Mapping[str, str]) -> bytes:
    r"""Return the bytes of an HTTP request. Raises ValueError for text that could end a line; the error does not quote
    the value, which may be a token.

    >>> request_bytes("GET", "/healthz", None, {})
    b'GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n'
    """
    if not (target.isascii() and target.isprintable() and " " not in target):
        raise ValueError(f"{target!r} cannot be requested")
    length = {"Content-Length": str(len(payload or b""))} if payload is not None or method in _HAS_BODY else {}
    lines = [f"{method} {target} HTTP/1.1"]
    for name, value in {"Host": "localhost", **length, **headers}.items():
        if not (value.isascii() and value.isprintable()):
            raise ValueError(f"the value for {name} is not printable ASCII")
        lines.append(f"{name}: {value}")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + (payload or b"")


def parsed_head(head: bytes) -> tuple[int, int]:
    r"""Return the status and the body's length from `head`, a response's head without its last two line ends. Raises
    UnreadableResponse if it is malformed.

    >>> parsed_head(b"HTTP/1.1 200 \r\ncontent-length: 2")
    (200, 2)
    """
    first, *lines = head.split(b"\r\n")
    if not first.startswith(_VERSION) or not _TEXT.issuperset(first):
        raise UnreadableResponse(f"not a response of HTTP/1.1: {first[:40]!r}")
    status, space, _ = first.removeprefix(_VERSION).partition(b" ")
    if not (space and len(status) == 3 and status.isdigit() and 200 <= int(status) <= 599):
        raise UnreadableResponse(f"not the status of a response: {first[:40]!r}")
    fields = [_field(line) for line in lines]
    if any(name == b"transfer-encoding" for name, _ in fields):
        raise UnreadableResponse("a response with a Transfer-Encoding")
    lengths = [value for name, value in fields if name == b"content-length"]
    if len(lengths) != 1:
        raise UnreadableResponse(f"a response with {len(lengths) or 'no'} Content-Length")
    return int(status), _length(lengths[0])


def _field(line: bytes) -> tuple[bytes, bytes]:
    """Return the name, in lower case, and the value of a header field, from its line."""
    name, colon, value = line.partition(b":")
    if not colon or not name or not _TOKEN.issuperset(name) or not _TEXT.issuperset(value):
        raise UnreadableResponse(f"not a header: {line[:40]!r}")
    return name.lower(), value.strip(b" \t")


def _length(value: bytes) -> int:
    if not value.isdigit() or len(value) > _MAX_LENGTH_DIGITS:
        raise UnreadableResponse(f"not a Content-Length: {value[:40]!r}")
    if int(value) > MAX_BODY_BYTES:
        raise UnreadableResponse(f"a response of more than {MAX_BODY_BYTES >> 20} MiB")
    return int(value)
