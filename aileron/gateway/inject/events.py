r"""Server-sent events, cut out of a stream: each with its own bytes, so that what is not changed is passed on as it came.

Any split of the bytes gives the same events. An event is at most MAX_EVENT_BYTES, and what comes after the last is `rest`.

>>> [event.data for event in Events().feed(b"event: ping\ndata: {}\n\ndata: 1")]
['{}']

Pure. Source: WHATWG HTML, "Server-sent events", 9.2.5 and 9.2.6. Not here: what an event says.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = ["MAX_EVENT_BYTES", "Event", "EventError", "Events", "written"]

MAX_EVENT_BYTES: Final = 16 << 20
"""The last event of a Responses stream has all that was said before once more: half a megabyte of words, and a picture or two
of 6 MiB each in base64. How many values it may have is another bound (wire.py), which is the one that costs time."""
_END: Final = re.compile(rb"\r?\n\r?\n")
"""The providers end lines in one of these ways; a carriage return alone, which the standard allows, ends none of theirs."""
_LINES: Final = re.compile(rb"\r?\n")


class EventError(ValueError):
    """An event is longer than MAX_EVENT_BYTES, or no UTF-8."""


class Event(NamedTuple):
    """One event as it came. `name` and `data` are empty where it has none, as a comment."""

    raw: bytes
    name: str
    data: str


class Events:
    """One for each stream."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._seen = 0

    @property
    def rest(self) -> bytes:
        """What came after the last event."""
        return bytes(self._held)

    def feed(self, piece: bytes) -> list[Event]:
        """The events that end in this piece. EventError, and then for ever."""
        self._held += piece
        found = []
        while end := _END.search(self._held, max(0, self._seen - 3)):
            found.append(_event(bytes(self._held[: end.end()])))
            del self._held[: end.end()]
            self._seen = 0
        self._seen = len(self._held)
        if len(self._held) > MAX_EVENT_BYTES:
            raise EventError(f"an event has more than {MAX_EVENT_BYTES} bytes")
        return found


def written(name: str, data: str) -> bytes:
    """An event of ours, as the providers write theirs."""
    return (f"event: {name}\n" if name else "").encode() + f"data: {data}\n\n".encode()


def _event(raw: bytes) -> Event:
    name, data = "", []
    try:
        for line in _LINES.split(raw):
            field, _, value = line.partition(b":")
            if field == b"event":
                name = value.removeprefix(b" ").decode()
            elif field == b"data":
                data.append(value.removeprefix(b" ").decode())
    except UnicodeDecodeError:
        raise EventError("an event is no UTF-8") from None
    return Event(raw, name, "\n".join(data))
