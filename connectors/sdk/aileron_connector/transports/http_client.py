"""Adapter for http.client and the libraries on top of it: urllib.request, urllib3, requests.

All of them have a connection object whose documented method `connect` sets `sock`, and then write and read HTTP/1.1 on
it. Here `sock` becomes a `HostStream`, which parses the request as it is written and returns the answer as a server
would. Layers above stay unchanged: chunked uploads, streamed answers, redirects, retries, pools. Replacing a lower
layer (`socket`) would not work: there, the scheme is unknown and TLS cannot be avoided. In a higher layer, every
library has its own class of responses.

Runs inside the jail; both sides of the stream are the connector's, so malformed data is a mistake and not an attack.

Rules
- A small body with a length is sent in one frame with its request; any other is streamed as it is written.
- A library that sends `Expect: 100-continue` gets `100 Continue` at once, without asking the service.
- An answer without a length ends with the stream, as in HTTP/1.1. If it breaks off, reading raises ConnectionError, so
  that it cannot be taken for complete.

Source: RFC 9112; https://docs.python.org/3/library/http.client.html. Not here: the exchange (exchange.py).
"""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from aileron_connector import loop
from aileron_connector.failures import Refused
from aileron_connector.transports.exchange import Exchange, origin_of
from aileron_sandbox.frames import MAX_BODY_BYTES, HttpHead

__all__ = ["HostStream", "change_http_client", "change_urllib3"]

MAX_HEAD_BYTES: Final = 64 << 10
"""Maximum number of bytes of a request's head: what fits into a frame's header."""
_BUFFER_BYTES: Final = 64 << 10
_GO_ON: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_OF_THE_CONNECTION: Final = frozenset({"expect", "transfer-encoding"})
"""Header fields that are handled here and not sent to the host."""


class HostStream:
    """A replacement for the socket of an HTTP connection. It parses the request that the library writes, and lets the host
    send it.
    """

    def __init__(self, origin: str, connect_timeout_s: float | None) -> None:
        self._origin: Final = origin
        self._patience_s = connect_timeout_s  # time for connecting, in addition to the timeout of the first answer
        self._timeout_s = connect_timeout_s
        self._given = bytearray()
        self._read: Callable[[], bool] = self._read_head
        self._begun: tuple[str, str, list[tuple[str, str]]] = ("", "", [])
        self._left = 0
        self._exchange: Exchange | None = None
        self._method = ""
        self._is_asked = False  # the library sent `Expect: 100-continue`, and no byte of the body yet

    def sendall(self, data: Any) -> None:
        """Parse bytes of a request, and send complete parts of it to the host."""
        self._is_asked = False
        self._given += memoryview(data).cast("B")
        while self._read():
            pass

    def makefile(self, mode: str = "rb", buffering: int = -1) -> io.BufferedReader:
        """Return the answer to the latest request as a file. If the request had `Expect: 100-continue`, the first call,
        before its body is sent, returns `100 Continue`.
        """
        if self._is_asked:
            self._is_asked = False
            return io.BufferedReader(io.BytesIO(_GO_ON))
        if self._exchange is None or "w" in mode:
            raise OSError("there is no response to read: no request head has been written completely")
        exchange, self._exchange = self._exchange, None
        answer = _Answer(exchange, self._timeout_s, self._patience_s or 0)
        self._patience_s = 0
        return io.BufferedReader(answer, _BUFFER_BYTES)

    def settimeout(self, timeout: float | None) -> None:
        """Set the maximum number of seconds for each later wait. None waits for as long as the invocation lasts."""
        self._timeout_s = timeout

    def gettimeout(self) -> float | None:
        """Return the timeout in seconds that was set by `settimeout`."""
        return self._timeout_s

    def setsockopt(self, *_option: object) -> None:
        """Ignore the option, as there is no socket to set it on."""

    def fileno(self) -> int:
        """Return a descriptor for pools that poll it to detect whether the server has closed the connection.

        The descriptor is never readable, except for the answer to `Expect: 100-continue`.
        """
        return _readable() if self._is_asked else loop.current().fd_out

    def shutdown(self, how: int) -> None:
        """Close the stream."""
        self.close()

    def close(self) -> None:
        """Close the stream, and cancel a request if `makefile` was not called for its answer. Files from `makefile`
        stay readable, as with a socket.
        """
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.close()

    def _read_head(self) -> bool:
        end = self._given.find(b"\r\n\r\n")
        if end < 0:
            if len(self._given) > MAX_HEAD_BYTES:
                raise OSError(f"the head of a request has more than {MAX_HEAD_BYTES} bytes")
            return False
        lines = self._take(end + 4).decode("latin-1").split("\r\n")
        method, target, _version = lines[0].split(" ", 2)
        headers = [(name, value.strip(" \t")) for name, _, value in (line.partition(":") for line in lines[1:] if line)]
        self._begin(method, target, headers)
        return True

    def _begin(self, method: str, target: str, headers: list[tuple[str, str]]) -> None:
        self._method = method
        fields = {name.lower(): value for name, value in headers}
        kept = [(name, value) for name, value in headers if name.lower() not in _OF_THE_CONNECTION]
        length = int(fields.get("content-length", "0"))
        self._is_asked = fields.get("expect", "").lower() == "100-continue" and not self._given
        if "transfer-encoding" in fields and "content-length" in fields:
            raise OSError(
                "the request has both Content-Length and Transfer-Encoding: so the end of its body is ambiguous"
            )
        if fields.get("transfer-encoding", "").lower() == "chunked":
            self._open(Exchange(method, self._origin, target, kept, is_streamed=True), self._read_chunk_size)
        elif length > MAX_BODY_BYTES:
            self._left = length
            self._open(Exchange(method, self._origin, target, kept, is_streamed=True), self._read_streamed)
        elif length:
            self._left, self._begun, self._read = length, (method, target, kept), self._read_whole
        else:
            self._open(Exchange(method, self._origin, target, kept), self._read_head)

    def _open(self, exchange: Exchange, then: Callable[[], bool]) -> None:
        self._exchange, self._read = exchange, then

    def _read_whole(self) -> bool:
        if len(self._given) < self._left:
            return False
        method, target, headers = self._begun
        body = self._take(self._left)
        self._open(Exchange(method, self._origin, target, headers, body), self._read_head)
        return True

    def _read_streamed(self) -> bool:
        if not self._upload_what_is_there():
            return False
        if not self._left:
            self._end_upload()
        return True

    def _read_chunk_size(self) -> bool:
        line = self._take_line()
        if line is None:
            return False
        self._left = int(line.partition(b";")[0], 16)
        self._read = self._read_chunk if self._left else self._read_trailers
        return True

    def _read_chunk(self) -> bool:
        if self._left:
            return self._upload_what_is_there()
        if len(self._given) < 2:
            return False
        self._take(2)  # CRLF
        self._read = self._read_chunk_size
        return True

    def _read_trailers(self) -> bool:
        line = self._take_line()
        if line == b"":
            self._end_upload()
        return line is not None

    def _upload_what_is_there(self) -> bool:
        piece = self._take(min(self._left, len(self._given)))
        self._left -= len(piece)
        if piece and self._exchange is not None:
            self._exchange.upload(piece)
        return bool(piece)

    def _end_upload(self) -> None:
        self._read = self._read_head
        if self._exchange is not None:
            self._exchange.end_upload()

    def _take_line(self) -> bytes | None:
        end = self._given.find(b"\r\n", 0, MAX_HEAD_BYTES)
        if end < 0 and len(self._given) >= MAX_HEAD_BYTES:
            raise OSError("a chunk of the request body does not start with its size")
        return None if end < 0 else self._take(end + 2)[:-2]

    def _take(self, count: int) -> bytes:
        taken = bytes(memoryview(self._given)[:count])
        del self._given[:count]
        return taken


class _Answer(io.RawIOBase):
    """The answer to one request in the bytes that a server would send: status line, header fields, body."""

    def __init__(self, exchange: Exchange, timeout_s: float | None, patience_s: float) -> None:
        super().__init__()
        self._exchange: Final = exchange
        self._timeout_s: Final = timeout_s
        self._patience_s: Final = patience_s
        self._pending = memoryview(b"")
        self._has_head = False

    def readable(self) -> bool:
        """Return True: an answer can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into `buffer` and return the number of bytes, 0 at the end. Raises ConnectionError if the answer breaks off,
        or TimeoutError.
        """
        if not self._pending:
            self._pending = memoryview(self._next())
        count = min(len(buffer), len(self._pending))
        buffer[:count] = self._pending[:count]
        self._pending = self._pending[count:]
        return count

    def close(self) -> None:
        """Close the answer, and drop its unread rest."""
        if not self.closed:
            super().close()
            self._exchange.close()

    def _next(self) -> bytes:
        try:
            if self._has_head:
                return self._exchange.read_piece(self._timeout_s)
            timeout_s = None if self._timeout_s is None else self._timeout_s + self._patience_s
            head = self._exchange.read_head(timeout_s)
        except Refused as error:
            raise ConnectionError(error.message) from error
        self._has_head = True
        return _head_bytes(head)


@functools.cache
def _readable() -> int:
    """Return a descriptor that is always readable, because it is at end of file. All streams share it."""
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


def _head_bytes(head: HttpHead) -> bytes:
    from http.client import responses

    lines = [f"HTTP/1.1 {head.status} {responses.get(head.status, '')}", *(": ".join(field) for field in head.headers)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")


def change_http_client(module: ModuleType) -> None:
    """Replace `connect` of http.client's connections, so that within an invocation the host sends their requests. This
    also changes libraries that use these classes.
    """
    module.HTTPConnection.connect = _connect(module.HTTPConnection.connect, "http")
    if hasattr(module, "HTTPSConnection"):
        module.HTTPSConnection.connect = _connect(module.HTTPSConnection.connect, "https")


def change_urllib3(module: ModuleType) -> None:
    """Replace `connect` of urllib3's connections, which override that of http.client, so that within an invocation the
    host sends their requests. InsecureRequestWarning is silenced, since the host verifies TLS.
    """
    module.HTTPConnection.connect = _connect(module.HTTPConnection.connect, "http")
    module.HTTPSConnection.connect = _connect(module.HTTPSConnection.connect, "https")


def _connect(original: Callable[[Any], None], scheme: str) -> Callable[[Any], None]:
    def connect(self: Any) -> None:
        if loop.maybe_current() is None:
            original(self)
            return
        if getattr(self, "_tunnel_host", None) or getattr(self, "proxy", None):
            raise OSError("proxies are not supported: in a jail, the host sends all requests")
        # Any other value is the default, no timeout
        timeout = self.timeout if isinstance(self.timeout, int | float) else None
        self.sock = HostStream(origin_of(scheme, self.host, self.port), timeout)
        if scheme == "https":
            self.is_verified = True  # urllib3 reads this

    return connect
