"""Adapter for the synchronous client of the library `websockets`: its `websockets.sync.client.connect` opens a
WebSocket through the host.

The library starts a thread for each connection, and only that thread may read the connection; in a jail only one thread
talks to the host. Therefore `connect` returns a `ClientConnection` whose methods (`recv`, `send`, iteration, `close`)
are those of this module. They behave like the library's, and raise the same exceptions. The host makes the connection,
TLS, compression and pings: arguments for those are ignored.

Runs inside the jail. Source: https://websockets.readthedocs.io/en/stable/reference/sync/client.html. Not here: the asynchronous
client (websockets_asyncio.py).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from types import ModuleType
from typing import Any, Final

from aileron_connector import loop, websocket
from aileron_connector.failures import Refused
from aileron_connector.transports.credentials import check_no_placeholder, name_credential

__all__ = ["change_sync_client"]

_OPEN_S: Final = 10.0
_MAX_BYTES: Final = 1 << 20
"""The library's default limit for the bytes of a message. `_OPEN_S` is its default limit for the seconds to open a
connection.
"""
_NO_CODE: Final = 1005


def change_sync_client(module: ModuleType) -> None:
    """Make `connect` of websockets.sync.client open a WebSocket through the host within an invocation. If the caller
    passes a socket, `connect` works as usual.
    """
    original = module.connect
    kind = type("ClientConnection", (_OverTheHost, module.ClientConnection), {})

    def connect(uri: str, **options: Any) -> Any:
        if loop.maybe_current() is None or options.get("sock") is not None or options.get("unix"):
            return original(uri, **options)
        return _open(kind, uri, options)

    module.connect = connect  # type: ignore[attr-defined]


def _open(kind: type[Any], uri: str, options: dict[str, Any]) -> Any:
    library = _Library()
    url, headers, credential = name_credential(uri, _fields(library, options), _host(uri))
    limit = options.get("max_size", _MAX_BYTES)
    try:
        opened = websocket.connect(
            url,
            headers=headers,
            subprotocols=options.get("subprotocols") or (),
            credential=credential,
            timeout_s=options.get("open_timeout", _OPEN_S),
            limit_bytes=websocket.DEFAULT_MESSAGE_LIMIT_BYTES if not isinstance(limit, int) else limit,
        )
    except websocket.HandshakeRefused as error:
        raise library.exceptions.InvalidStatus(library.answer(error.status or 0, error.headers, error.body)) from error
    except Refused as error:
        raise ConnectionError(error.message) from error
    opened.timeout_s = None
    request = library.http11.Request("/" + url.partition("://")[2].partition("/")[2], library.headers(headers))
    return kind(library, opened, request, library.answer(101, opened.headers, b""))


class _Library:
    """The modules and classes of the library `websockets` that are needed here. The library is already loaded."""

    def __init__(self) -> None:
        self.exceptions: Final[Any] = sys.modules["websockets.exceptions"]
        self.frames: Final[Any] = sys.modules["websockets.frames"]
        self.http11: Final[Any] = sys.modules["websockets.http11"]
        self.headers: Final[Any] = sys.modules["websockets.datastructures"].Headers
        self.states: Final[Any] = sys.modules["websockets.protocol"].State

    def answer(self, status: int, headers: Iterable[tuple[str, str]], body: bytes) -> Any:
        """Return an HTTP response as an object of the library `websockets`."""
        try:
            phrase = HTTPStatus(status).phrase
        except ValueError:
            phrase = ""
        return self.http11.Response(status, phrase, self.headers(list(headers)), body)

    def closed(self, closed: websocket.Closed, sent: int | None) -> Exception:
        """Return the exception that the library raises for a closed connection."""
        code = _NO_CODE if closed.code is None else closed.code
        received, ours = self.frames.Close(code, closed.reason), self.frames.Close(sent or code, "")
        is_ok = code in self.frames.OK_CLOSE_CODES
        kind = self.exceptions.ConnectionClosedOK if is_ok else self.exceptions.ConnectionClosedError
        error: Exception = kind(received, ours, sent is None)
        return error

    def broken(self) -> Exception:
        """Return the exception that the library raises for a broken connection."""
        error: Exception = self.exceptions.ConnectionClosedError(None, None)
        return error


def _fields(library: _Library, options: dict[str, Any]) -> list[tuple[str, str]]:
    given = options.get("additional_headers") or ()
    pairs = given.raw_items() if isinstance(given, library.headers) else given
    fields = list(pairs.items() if isinstance(pairs, Mapping) else pairs)
    agent = options.get("user_agent_header", library.http11.USER_AGENT)
    if options.get("origin") is not None:
        fields.append(("Origin", options["origin"]))
    if agent is not None and not any(name.lower() == "user-agent" for name, _ in fields):
        fields.append(("User-Agent", agent))
    return [(str(name), str(value)) for name, value in fields]


def _host(uri: str) -> str:
    authority = uri.partition("://")[2].partition("/")[0].partition("?")[0]
    return authority.partition(":")[0].lower()


class _OverTheHost:
    """Replacements for methods of the library's ClientConnection, which would use a socket and a thread of their own."""

    def __init__(self, library: _Library, opened: websocket.WebSocket, request: Any, response: Any) -> None:
        self._library = library
        self._opened = opened
        self._sent_code: int | None = None
        self.request = request
        self.response = response

    @property
    def local_address(self) -> Any:
        return ("127.0.0.1", 0)

    @property
    def remote_address(self) -> Any:
        return (_host(repr(self._opened).split()[-1]), 0)

    @property
    def state(self) -> Any:
        states = self._library.states
        return states.OPEN if self._opened.closed is None else states.CLOSED

    @property
    def subprotocol(self) -> Any:
        return self._opened.subprotocol

    @property
    def close_code(self) -> int | None:
        closed = self._opened.closed
        return None if closed is None else closed.code or _NO_CODE

    @property
    def close_reason(self) -> str | None:
        closed = self._opened.closed
        return None if closed is None else closed.reason

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close(1000 if kind is None else 1011)

    def __iter__(self) -> Iterator[Any]:
        try:
            while True:
                yield self.recv()
        except self._library.exceptions.ConnectionClosedOK:
            return

    def recv(self, timeout: float | None = None, decode: bool | None = None) -> Any:
        message = self._told(lambda: self._opened.recv(timeout))
        if decode is None or isinstance(message, str) == decode:
            return message
        return message.decode() if decode else message.encode()

    def recv_streaming(self, decode: bool | None = None) -> Iterator[Any]:
        yield self.recv(decode=decode)

    def send(self, message: Any, text: bool | None = None) -> None:
        if isinstance(message, Mapping):
            raise TypeError("data is a dict-like object")
        if not isinstance(message, str | bytes | bytearray | memoryview):
            parts = list(message)
            message = "".join(parts) if parts and isinstance(parts[0], str) else b"".join(parts)
        if text is not None and isinstance(message, str) != text:
            message = bytes(message).decode() if text else message.encode()
        check_no_placeholder(message.encode() if isinstance(message, str) else message)
        self._told(lambda: self._opened.send(message))

    def close(self, code: int = 1000, reason: str = "") -> None:
        self._sent_code = self._sent_code or code
        self._opened.close(code, reason)

    def wait_closed(self, timeout: float | None = None) -> bool:
        return self._opened.closed is not None

    def ping(self, data: Any = None, ack_on_close: bool = False) -> Any:
        answered = threading.Event()  # by the host, which has pings of its own
        answered.set()
        return answered

    def pong(self, data: Any = b"") -> None:
        return None

    def __repr__(self) -> str:
        return f"<ClientConnection over {self._opened!r}>"

    def _told(self, step: Any) -> Any:
        """Call `step`, a function of this package, and return its result. Exceptions of this package are raised as
        exceptions of the library `websockets`.
        """
        try:
            return step()
        except websocket.Closed as error:
            raise self._library.closed(error, self._sent_code) from error
        except ConnectionError as error:
            raise self._library.broken() from error
