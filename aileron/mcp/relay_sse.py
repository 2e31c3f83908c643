r"""Parser for server-sent events as they arrive. It takes bytes in pieces of any size, and returns the data of each event.

Pure. Trusts no server: an event is bounded. Only `data` is used, because the protocol has one kind of event, and the relay
resumes no stream.

>>> events = Events()
>>> list(events.feed(b": ping\n\nevent: message\ndata: {}\n")), list(events.feed(b"\n"))
([], [b'{}'])

Source: the WHATWG HTML standard, server-sent events. Not here: the connection (relay_http.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

__all__ = ["MAX_EVENT_BYTES", "EventError", "Events"]

MAX_EVENT_BYTES: Final = 16 << 20
"""Maximum size of one event in bytes: 16 MiB, as for one line over the socket."""


class EventError(Exception):
    """Error: an event is larger than MAX_EVENT_BYTES."""


class Events:
    """The parser for one stream of server-sent events."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._was_return = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the data of each event that is now complete. An event without data is ignored. Raises EventError."""
        if self._was_return and data:
            data = data.removeprefix(b"\n")  # the other half of a line end
            self._was_return = False
        self._was_return = self._was_return or data.endswith(b"\r")
        *lines, rest = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            self._line += line
            self._check()
            yield from self._take(bytes(self._line))
            self._line.clear()
        self._line += rest
        self._check()

    def _check(self) -> None:
        if self._size + len(self._line) > MAX_EVENT_BYTES:
            raise EventError(f"an event of more than {MAX_EVENT_BYTES >> 20} MiB")

    def _take(self, line: bytes) -> Iterator[bytes]:
        if not line:
            whole = b"\n".join(self._data)
            self._data.clear()
            self._size = 0
            if whole:
                yield whole
            return
        field, _, value = line.partition(b":")
        if field == b"data":
            value = value.removeprefix(b" ")
            self._data.append(value)
            self._size += len(value) + 1
