r"""Reader of server-sent events: turns a stream of bytes into messages.

    events = Events()
    events.feed(b"data: {}\n")      # []
    events.feed(b"\n")              # [b"{}"]

Runs in the jail, and in the author's command. The server is not trusted.

Rules
- Any split of the bytes gives the same messages.
- Events with a name other than `message` are dropped, as are comments, ids and unknown fields.
- A message that is incomplete at the end of the stream is dropped.
- The number of bytes stored of one event is bounded. After a StreamError, every later call of the reader raises the same error.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html, section 9.2.6. Not here: the bound on a stream's bytes
(client.py), resuming a stream that broke off.
"""

from __future__ import annotations

from typing import Final

__all__ = ["MAX_EVENT_BYTES", "Events", "StreamError"]

MAX_EVENT_BYTES: Final = 4 << 20
"""Maximum number of bytes of one event: four times the largest output of an operation, to have room for images as base64 in
JSON.
"""
_MARK: Final = b"\xef\xbb\xbf"
_MAX_LINES: Final = 100_000
"""Maximum number of data lines in one event. JSON over many lines is accepted, but endless empty lines are not."""


class StreamError(ValueError):
    """Error: the bytes are not a valid stream of events, or an event exceeds the bounds."""


class Events:
    """A reader of one stream, fed with its bytes as they arrive."""

    def __init__(self, limit_bytes: int = MAX_EVENT_BYTES) -> None:
        self._limit: Final = limit_bytes
        self._partial: Final[list[bytes]] = []
        self._data: Final[list[bytes]] = []
        self._name = b""
        self._held = 0
        self._is_first_line = True
        self._is_after_return = False
        self._broken: StreamError | None = None

    def feed(self, data: bytes) -> list[bytes]:
        """Take in bytes and return the data of the messages that they complete. Raises StreamError."""
        if self._broken is not None:
            raise self._broken
        messages: list[bytes] = []
        first, *others = self._lines(data)
        self._keep(first)
        for line in others:
            self._end_of_line(messages)
            self._keep(line)
        return messages

    def _lines(self, data: bytes) -> list[bytes]:
        """Split bytes at line ends. Each piece except the first begins a new line."""
        if not data:
            return [b""]
        if self._is_after_return and data[:1] == b"\n":  # the second half of a line end that was taken already
            data = data[1:]
            self._is_after_return = False
            return self._lines(data)
        self._is_after_return = data[-1:] == b"\r"
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")

    def _keep(self, piece: bytes) -> None:
        if piece:
            self._held += len(piece)
            if self._held > self._limit:
                self._break(f"an event of more than {self._limit} bytes")
            self._partial.append(piece)

    def _end_of_line(self, messages: list[bytes]) -> None:
        line = b"".join(self._partial)
        self._partial.clear()
        if self._is_first_line:
            self._is_first_line = False
            line = line.removeprefix(_MARK)
        if line:
            self._field(line)
            return
        if self._data and self._name in (b"", b"message"):
            messages.append(b"\n".join(self._data))
        self._data.clear()
        self._name = b""
        self._held = 0

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            if len(self._data) == _MAX_LINES:
                self._break(f"an event of more than {_MAX_LINES} lines")
            self._data.append(value)
            return
        self._held -= len(line)
        if name == b"event":
            self._name = value[:64]

    def _break(self, words: str) -> None:
        self._broken = StreamError(words)
        raise self._broken
