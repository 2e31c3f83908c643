"""An HTTP request and its answer, sent and read step by step, as the libraries need it.

    exchange = Exchange("POST", "https://api.example.com", "/items", headers, is_streamed=True)
    exchange.upload(b"..."); exchange.end_upload()
    head = exchange.read_head(timeout_s=10)
    while piece := exchange.read_piece(timeout_s=10): ...
    exchange.close()

Errors are those of this package (NetworkError, Refused, TimeoutError); each transport converts them to its library's
errors. Runs inside the jail. Not here: bytes of HTTP (http_client.py), waiting without blocking an event loop (httpx.py).
"""

from __future__ import annotations

from typing import Final

from aileron_connector import http, loop
from aileron_connector.failures import Refused as RequestRefused
from aileron_connector.transports.credentials import check_no_placeholder, name_credential
from aileron_sandbox.frames import MAX_BODY_BYTES, Chunk, Frame, HttpHead, Refused

__all__ = ["Exchange", "origin_of"]

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_BODILESS: Final = frozenset({204, 304})
_END_S: Final = 5.0
"""Seconds to wait for the final frame of an answer after its last byte. The host sends both at once."""


def origin_of(scheme: str, host: str, port: int | None) -> str:
    """Return the origin of a URL: scheme, host and, unless it is the scheme's default, port."""
    name = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return f"{scheme}://{name}" if port in (None, _DEFAULT_PORTS.get(scheme)) else f"{scheme}://{name}:{port}"


class Exchange:
    """A request with its answer. `body` is sent at once; with `is_streamed`, the body follows through `upload`."""

    def __init__(
        self,
        method: str,
        origin: str,
        target: str,
        headers: list[tuple[str, str]],
        body: bytes | None = None,
        *,
        is_streamed: bool = False,
    ) -> None:
        """Open the request. Raises ValueError if `target` does not begin with `/`, since it would become part of the
        host name.
        """
        if not target.startswith("/"):
            raise ValueError(f"a request's target begins with a slash; this one is {target[:100]!r}")
        url, kept, credential = name_credential(origin + target, headers, _host(origin))
        if body is not None:
            check_no_placeholder(body)
        self._conversation: Final = loop.current()
        self._is_head_request: Final = method.upper() == "HEAD"
        self._is_done = False
        self._is_heard = True
        self._left: int | None = None  # bytes of the body that have not arrived; None if its length is unknown
        self._id: Final = self._conversation.open(method, url, kept, credential, body, is_streamed=is_streamed)

    @property
    def request_id(self) -> int:
        """Id of the request in the frames."""
        return self._id

    @property
    def conversation(self) -> loop.Conversation:
        """Conversation that the request belongs to."""
        return self._conversation

    def upload(self, data: bytes | memoryview) -> None:
        """Send a piece of a streamed body. After the host has answered completely, further pieces are dropped silently."""
        view = memoryview(data).cast("B")
        check_no_placeholder(view)
        for at in range(0, len(view), MAX_BODY_BYTES):
            self._is_heard = self._is_heard and self._conversation.upload(self._id, view[at : at + MAX_BODY_BYTES])

    def end_upload(self) -> None:
        """Mark the streamed body as complete."""
        self._is_heard = self._is_heard and self._conversation.upload(self._id, b"", end=True)

    def read_head(self, timeout_s: float | None) -> HttpHead:
        """Wait for the head of the answer and return it. Raises NetworkError, Refused or TimeoutError."""
        return self.take_head(self._conversation.next_answer(self._id, timeout_s))

    def read_piece(self, timeout_s: float | None) -> bytes:
        """Wait for the next bytes of the body and return them; empty after the last. Raises NetworkError, Refused or
        TimeoutError.
        """
        while not self._is_done:
            piece = self.take_piece(self._conversation.next_answer(self._id, timeout_s))
            if piece:
                return piece
        return b""

    def take_head(self, frame: Frame) -> HttpHead:
        """Return the head from the first frame of the answer. Raises NetworkError or Refused if the frame is a refusal."""
        message = frame.message
        if isinstance(message, Refused):
            self.close()
            raise http.refusal(message.error)
        assert isinstance(message, HttpHead)  # the session allows no other first frame
        self._left = self._length(message)
        return message

    def take_piece(self, frame: Frame) -> bytes:
        """Return the bytes, possibly none, of a frame of the answer after its head. Raises NetworkError or Refused if
        the body breaks off.
        """
        message, piece = frame
        if isinstance(message, Refused):
            self.close()
            raise http.refusal(message.error)
        if self._left is not None:
            self._left -= len(piece or b"")
        if isinstance(message, Chunk) and message.end:
            self._is_done = True
            self._conversation.forget(self._id)
        return piece or b""

    @property
    def is_done(self) -> bool:
        """True if the answer has ended, or is no longer needed."""
        return self._is_done

    def close(self) -> None:
        """Close the exchange. If all bytes of the answer have been read, wait for its final frame; otherwise cancel the answer.

        A library that knows the length of a body stops reading at the last byte, before the final frame. If the answer
        were cancelled then, the host could not use its connection again.
        """
        if self._is_done:
            return
        if self._left == 0:
            try:
                while self.read_piece(_END_S):
                    pass
            except (TimeoutError, RequestRefused):
                pass
        if not self._is_done:
            self._is_done = True
            self._conversation.forget(self._id)

    def _length(self, head: HttpHead) -> int | None:
        if self._is_head_request or head.status in _BODILESS:
            return 0
        lengths = [value for name, value in head.headers if name.lower() == "content-length"]
        return int(lengths[0]) if len(lengths) == 1 and lengths[0].isdecimal() else None


def _host(origin: str) -> str:
    host = origin.partition("://")[2]
    name, separator, port = host.rpartition(":")
    return name if separator and port.isdecimal() else host
