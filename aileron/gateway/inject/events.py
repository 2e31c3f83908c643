r"""A parser of server-sent events. Each event keeps its original bytes, so that an unchanged event is passed on byte for byte.

Any split of the bytes gives the same events. An event has at most MAX_EVENT_BYTES; the bytes after the last event are
`rest`.

>>> [event.data for event in Events().feed(b"event: ping\ndata: {}\n\ndata: 1")]
['{}']

Pure. Source: WHATWG HTML, "Server-sent events", 9.2.5 and 9.2.6. Not here: the meaning of an event.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = ["MAX_EVENT_BYTES", "Event", "EventError", "Events", "written"]

MAX_EVENT_BYTES: Final = 16 << 20
"""Maximum size of an event: 16 MiB. The last event of a Responses stream repeats the complete response: half a megabyte
of text, and one or two images of 6 MiB each in base64. Another limit, on the number of values in an event (wire.py),
bounds the time.
"""
_END: Final = re.compile(rb"\r?\n\r?\n")
"""Pattern of the end of an event: an empty line, in one of the two ways in which the providers end lines. A carriage
return alone, which the standard allows, ends no event here.
"""
_LINES: Final = re.compile(rb"\r?\n")


class EventError(ValueError):
    """Error: a server-sent event is longer than MAX_EVENT_BYTES, or is not UTF-8."""


class Event(NamedTuple):
    """A server-sent event, with its original bytes. `name` and `data` are empty if the event has none, as for a comment."""

    raw: bytes
    name: str
    data: str


class Events:
    """The parser of a stream of server-sent events."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._seen = 0

    @property
    def rest(self) -> bytes:
        """Bytes that were fed after the last complete event."""
        return bytes(self._held)

    def feed(self, piece: bytes) -> list[Event]:
        """Take the next piece of the stream, and return the events that are complete with it. Raises EventError for an
        invalid event, and again on every later call.
        """
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
    """Return the bytes of an event of our own, in the form that the providers use."""
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
