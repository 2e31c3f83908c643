"""WebSockets through the host, which checks the request, adds the credential, performs the handshake, and forwards
messages in both directions.

    with websocket.connect("wss://stream.example.com/v1", credential="api_key") as socket:
        socket.send(json.dumps({"subscribe": "trades"}))
        for message in socket: ...

`credential` is the kind your manifest declares; the key itself never comes here, even if it belongs in the first message. A
message is `str` or `bytes`. The host handles pings in both directions. `with` closes the WebSocket at its end.

Runs inside the jail; the host decides which services can be reached. Not here: the library `websockets`
(transports/websockets.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Final, Self

from aileron_connector import http, loop
from aileron_connector.failures import ExternalApiError
from aileron_sandbox.frames import (
    MAX_BODY_BYTES,
    Chunk,
    Frame,
    HttpHead,
    WebSocketClose,
    WebSocketMessage,
    WebSocketOpened,
)
from aileron_sandbox.frames import Refused as RefusedFrame

__all__ = ["DEFAULT_MESSAGE_LIMIT_BYTES", "Closed", "HandshakeRefused", "WebSocket", "connect"]

DEFAULT_MESSAGE_LIMIT_BYTES: Final = 8 << 20
"""Default maximum size of a message: 8 MiB, as for an answer that is read completely (http.py)."""
_NORMAL: Final = 1000
_BENIGN: Final = frozenset({_NORMAL, 1001, None})
"""Close codes that report no error (RFC 6455 section 7.4.1): normal closure, going away, or no code."""
_TOO_BIG: Final = 1009


class Closed(ConnectionError):
    """Error: the service has closed the WebSocket. `code` is None if the service sent no code."""

    def __init__(self, code: int | None, reason: str) -> None:
        super().__init__(f"the WebSocket is closed: {code or 'no code'} {reason}".rstrip())
        self.code: Final = code
        self.reason: Final = reason


class HandshakeRefused(ExternalApiError):
    """Error: the service answered the handshake without opening a WebSocket. `status`, `headers` and `body` are those
    of its answer.
    """

    def __init__(self, url: str, head: HttpHead, body: bytes) -> None:
        answer_headers = http.Headers(head.headers)
        seconds = answer_headers.get("retry-after", "") or ""
        super().__init__(
            f"{url.partition('?')[0]} opened no WebSocket: it returned status {head.status}",
            status=head.status,
            retry_after_s=int(seconds) if seconds.isdecimal() and len(seconds) < 7 else None,
        )
        self.headers: Final = answer_headers
        self.body: Final = body


def connect(
    url: str,
    *,
    headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    subprotocols: Iterable[str] = (),
    credential: str | None = None,
    timeout_s: float | None = None,
    limit_bytes: int = DEFAULT_MESSAGE_LIMIT_BYTES,
) -> WebSocket:
    """Open a WebSocket at a granted host with `wss://`. `ws://` (without TLS) is allowed under the same conditions as `http://`.

    Raises HandshakeRefused if the service opens no WebSocket, NetworkError if it cannot be reached, or TimeoutError.
    `timeout_s` applies to this and each later wait; None waits for as long as the invocation lasts. A message of more than
    `limit_bytes` closes the WebSocket.
    """
    conversation = loop.current()
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
    request_id = conversation.open_websocket(url, pairs, list(subprotocols), credential)
    try:
        frame = conversation.next_answer(request_id, timeout_s)
        if isinstance(frame.message, HttpHead):
            raise _refused(conversation, request_id, url, frame.message, timeout_s)
        return WebSocket.opened(conversation, request_id, url, frame, timeout_s, limit_bytes)
    except BaseException:
        conversation.forget(request_id)
        raise


class WebSocket:
    """An open WebSocket. Iterate over its messages until the service closes it. If the close code reports an error, the
    iteration raises `Closed`.
    """

    def __init__(
        self,
        conversation: loop.Conversation,
        request_id: int,
        url: str,
        head: WebSocketOpened,
        timeout_s: float | None,
        limit_bytes: int,
    ) -> None:
        self.headers: Final = http.Headers(head.headers)
        self.subprotocol: Final = head.subprotocol
        self.timeout_s = timeout_s
        """Maximum number of seconds for each wait; None waits for as long as the invocation lasts."""
        self._conversation: Final = conversation
        self._id: Final = request_id
        self._url: Final = url.partition("?")[0]
        self._limit_bytes: Final = limit_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self._closed: Closed | None = None
        self._has_said_close = False

    @classmethod
    def opened(
        cls,
        conversation: loop.Conversation,
        request_id: int,
        url: str,
        first: Frame,
        timeout_s: float | None = None,
        limit_bytes: int = DEFAULT_MESSAGE_LIMIT_BYTES,
    ) -> Self:
        """Make a WebSocket from the first frame that answers its request. Raises Refused or NetworkError if that frame
        is a refusal.
        """
        message = first.message
        if isinstance(message, RefusedFrame):
            raise http.refusal(message.error)
        assert isinstance(message, WebSocketOpened)  # the session allows no other first frame
        return cls(conversation, request_id, url, message, timeout_s, limit_bytes)

    @property
    def closed(self) -> Closed | None:
        """Code and reason of the closure; None while the WebSocket is open."""
        return self._closed

    def send(self, message: str | bytes | bytearray | memoryview) -> None:
        """Send text (`str`) or binary data. Raises Closed if the service has closed, ConnectionError if the connection broke."""
        text = isinstance(message, str)
        view = memoryview(message.encode() if isinstance(message, str) else message).cast("B")
        for at in range(0, len(view) or 1, MAX_BODY_BYTES):
            if self._closed is not None or self._has_said_close:
                raise self._closed or Closed(None, "")
            part = WebSocketMessage(id=self._id, text=text, more=at + MAX_BODY_BYTES < len(view))
            if not self._conversation.say(part, view[at : at + MAX_BODY_BYTES]):
                self._read_to_the_end()

    def recv(self, timeout_s: float | None = None) -> str | bytes:
        """Wait for the next message. `timeout_s` None means the WebSocket's own `timeout_s`.

        Raises Closed if the service has closed, ConnectionError if the connection broke, ExternalApiError for a message
        of more than `limit_bytes`, or TimeoutError, after which a later call can continue.
        """
        waits = self.timeout_s if timeout_s is None else timeout_s
        while True:
            if self._closed is not None:
                raise self._closed
            message = self.take(self._conversation.next_answer(self._id, waits))
            if message is not None:
                return message

    def take(self, frame: Frame) -> str | bytes | None:
        """Process a frame of this WebSocket and return the message that it completes, or None. Raises the errors of `recv`."""
        message, data = frame
        if isinstance(message, RefusedFrame):
            self._forget(Closed(None, message.error.message))
            raise ConnectionError(message.error.message) from http.refusal(message.error)
        if isinstance(message, WebSocketClose):
            self._forget(Closed(message.code, message.reason))
            return None
        assert isinstance(message, WebSocketMessage)  # the session allows no other frame here
        self._size += len(data or b"")
        if self._size > self._limit_bytes:
            self._say_close(_TOO_BIG, "")
            self._forget(Closed(_TOO_BIG, ""))
            raise ExternalApiError(f"a message on {self._url} is larger than {self._limit_bytes} bytes")
        self._parts.append(data or b"")
        if message.more:
            return None
        whole, self._parts, self._size = b"".join(self._parts), [], 0
        return whole.decode("utf-8", "replace") if message.text else whole

    def close(self, code: int = _NORMAL, reason: str = "") -> None:
        """Send a close frame, and wait for the service's close, for as long as the host waits. Messages that still
        arrive are dropped.

        `reason` is cut to what fits into 123 bytes. Raises ValueError for a code that must not be sent (RFC 6455 section 7.4).
        """
        if self._closed is None:
            self._say_close(code, reason)
            with contextlib.suppress(ConnectionError):
                self._read_to_the_end()

    def __iter__(self) -> Iterator[str | bytes]:
        while True:
            try:
                message = self.recv()
            except Closed as closed:
                if closed.code in _BENIGN:
                    return
                raise
            yield message

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.leave()

    def leave(self) -> None:
        """Close the WebSocket without waiting for the service. The host sends the service the code 1001 (going away).
        Data that was sent earlier is still delivered.
        """
        if self._closed is None:
            self._forget(Closed(None, ""))

    def __repr__(self) -> str:
        return f"<WebSocket to {self._url}>"

    def _say_close(self, code: int | None, reason: str) -> None:
        said = WebSocketClose(id=self._id, code=code, reason=reason)
        if not self._has_said_close:
            self._has_said_close = True
            self._conversation.say(said, b"")

    def _read_to_the_end(self) -> None:
        while self._closed is None:
            self._parts, self._size = [], 0
            self.take(self._conversation.next_answer(self._id))

    def _forget(self, closed: Closed) -> None:
        self._closed = closed
        self._has_said_close = True
        self._parts = []
        self._conversation.forget(self._id)


def _refused(
    conversation: loop.Conversation, request_id: int, url: str, head: HttpHead, timeout_s: float | None
) -> Exception:
    """Return the exception for the service's answer to a handshake that opens no WebSocket. Reads the answer's body,
    which the host limits to about 64 KiB.
    """
    pieces = []
    while True:
        message, piece = conversation.next_answer(request_id, timeout_s)
        if isinstance(message, RefusedFrame):
            return http.refusal(message.error)
        pieces.append(piece or b"")
        if isinstance(message, Chunk) and message.end:
            return HandshakeRefused(url, head, b"".join(pieces))
