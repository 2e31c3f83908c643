"""Take a lent secret out of what comes back, whatever usual encoding it comes in.

A server that reflects its request (a debug endpoint, an error page, a pagination link with the key in it) would hand the
connector the credential it must never have. Every occurrence of every form in `ENCODINGS` becomes as many `*`, so
lengths stay true. Pure and incremental; runs in the daemon, and holds secret bytes for as long as one step lasts.

Rules
- A byte of the output is `*` if and only if it is part of an occurrence, overlapping ones included; how the input was
  cut into chunks makes no difference. `hits` counts occurrences that begin outside the one before.
- Only bytes that could be the beginning of an occurrence are held back; everything before them comes out at once.
- Not found: two layers of encoding, except a Basic credential's own base64 in all of them; the up to two
  characters at each end of a base64 run inside which the secret shares a character with its neighbours;
  an encoding that is not in the list. docs/reference/egress.md says so to users.

The needles are searched with `bytes.find`, one after the other: 24 of them scan JSON at 700 MB/s on one core, where
one regular expression reaches 200, takes 1.6 ms to compile, and stays in the `re` module's cache with the secret in it.

Source: the encodings' RFCs (4648, 3986, 8259), what PHP, Go and Python escape in JSON and HTML. Not here: which secrets
are looked for (inject.py), decoding of compressed bodies (decode.py).

>>> Scrubber(Needles([b"hunter2-hunter2"])).scrub_whole(b'{"k": "hunter2-hunter2"}')
(b'{"k": "***************"}', 1)
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Final

__all__ = ["ENCODINGS", "Needles", "Scrubber"]


def _base64_forms(data: bytes, encode: Callable[[bytes], bytes]) -> Iterator[bytes]:
    """The data encoded alone, and the characters it fully determines at each of the three places in a longer text."""
    yield encode(data).rstrip(b"=")
    for offset in range(3):
        text = encode(bytes(offset) + data)
        yield text[-(-offset * 8 // 6) : (offset + len(data)) * 8 // 6]


def _percent(data: bytes, kept: str, digits: str) -> bytes:
    return b"".join(b"%c" % byte if chr(byte) in kept else f"%{byte:{digits}}".encode() for byte in data)


_UNRESERVED: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"


def _percent_forms(data: bytes) -> Iterator[bytes]:
    for digits in ("02X", "02x"):
        yield _percent(data, _UNRESERVED, digits)
        yield _percent(data, _UNRESERVED + "/", digits)
        yield _percent(data, _UNRESERVED + "!$&'()*+,;=:@/?", digits)  # what a query may hold as it is
        yield _percent(data, _UNRESERVED + " ", digits).replace(b" ", b"+")  # HTML forms


def _percent_full_forms(data: bytes) -> Iterator[bytes]:
    yield _percent(data, "", "02X")
    yield _percent(data, "", "02x")


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _json_forms(data: bytes) -> Iterator[bytes]:
    for ascii_only in (True, False):
        plain = json.dumps(_text(data), ensure_ascii=ascii_only)[1:-1]
        yield plain.encode()
        yield plain.replace("/", "\\/").encode()  # PHP
        for digits in ("04x", "04X"):  # Go and others: < > & ' as \u003c
            safe = "".join(f"\\u{ord(c):{digits}}" if c in "<>&'" else c for c in plain)
            yield safe.encode()
            yield safe.replace("/", "\\/").encode()


def _json_full_forms(data: bytes) -> Iterator[bytes]:
    units = _text(data).encode("utf-16-be")
    for digits in ("04x", "04X"):
        pairs = (int.from_bytes(units[i : i + 2]) for i in range(0, len(units), 2))
        yield "".join(f"\\u{unit:{digits}}" for unit in pairs).encode()


def _html_forms(data: bytes) -> Iterator[bytes]:
    escaped = html.escape(_text(data), quote=False)
    yield escaped.encode()
    for double in ("&quot;", "&#34;"):
        for single in ("&#x27;", "&#39;", "&#039;", "&apos;", "'"):
            yield escaped.replace('"', double).replace("'", single).encode()


ENCODINGS: Final[tuple[tuple[str, Callable[[bytes], Iterable[bytes]]], ...]] = (
    ("literal", lambda data: (data,)),
    ("base64", lambda data: _base64_forms(data, base64.b64encode)),
    ("base64url", lambda data: _base64_forms(data, base64.urlsafe_b64encode)),
    ("percent, where needed", _percent_forms),
    ("percent, every byte", _percent_full_forms),
    ("json, where needed", _json_forms),
    ("json, every character", _json_full_forms),
    ("html", _html_forms),
    ("hex", lambda data: (data.hex().encode(), data.hex().upper().encode())),
    ("utf-16", lambda data: (_text(data).encode("utf-16-le"), _text(data).encode("utf-16-be"))),
)
"""The published list: a name for people, and the forms of one secret under it."""

_KEY: Final = 4  # bytes of a needle looked for at the end of a chunk; every needle is longer


class Needles:
    """The forms of some secrets. `roots` are the secrets themselves, each at least 8 bytes. Prints as `<needles>`."""

    __slots__ = ("_begins", "_roots", "all", "longest")

    def __init__(self, roots: Iterable[bytes]) -> None:
        self._roots = frozenset(roots)
        if any(len(root) < 8 for root in self._roots):
            raise ValueError("a secret of less than 8 bytes cannot be scrubbed: it would match by chance")
        forms = {form for root in self._roots for _name, encode in ENCODINGS for form in encode(root)}
        self.all = tuple(sorted(forms, key=len, reverse=True))
        self.longest = len(self.all[0]) if self.all else 0
        self._begins = frozenset(form[:length] for form in forms for length in range(1, _KEY))

    def covers(self, roots: Iterable[bytes]) -> bool:
        """These secrets are among the roots already."""
        return self._roots.issuperset(roots)

    def with_roots(self, roots: Iterable[bytes]) -> Needles:
        """These needles and those of more secrets."""
        return Needles(self._roots.union(roots))

    def could_begin_at(self, data: bytes) -> int:
        """The first index from which `data` runs out inside a needle; len(data) if there is none."""
        first = len(data)
        start = max(0, first - self.longest + 1)
        for needle in self.all:
            at = data.find(needle[:_KEY], start, first + _KEY - 1)
            while -1 < at < first:
                if len(data) - at < len(needle) and needle.startswith(data[at:]):
                    first = at
                at = data.find(needle[:_KEY], at + 1, first + _KEY - 1)
        short = (at for at in range(max(start, len(data) - _KEY + 1), first) if data[at:] in self._begins)
        return min(short, default=first)

    def __repr__(self) -> str:
        return "<needles>"


class Scrubber:
    """One stream. `hits` is how many occurrences were masked so far."""

    __slots__ = ("_covered", "_held", "_needles", "hits")

    def __init__(self, needles: Needles) -> None:
        self._needles = needles
        self._held = b""  # unmasked bytes whose fate is open: they may begin an occurrence
        self._covered = 0  # how many of those belong to an occurrence that began before them
        self.hits = 0

    def feed(self, data: bytes) -> bytes:
        """What can be said by now. May be empty; `data` itself, not copied, when nothing is held and nothing found."""
        data = self._held + data if self._held else data
        return self._decide(data, self._needles.could_begin_at(data))

    def finish(self) -> bytes:
        """What was held back, when the stream is over."""
        return self._decide(self._held, len(self._held))

    def scrub_whole(self, data: bytes) -> tuple[bytes, int]:
        """Mask one value that comes in one piece: the masked value, and the occurrences in it."""
        other = Scrubber(self._needles)
        masked = other.feed(data) + other.finish()
        return masked, other.hits

    def _decide(self, data: bytes, open_from: int) -> bytes:
        """Mask what begins before `open_from`, give out what lies before it, hold the rest."""
        found = self._occurrences(data, open_from)
        end = self._covered
        self._held = data[open_from:]
        if not found and not end:
            return data[:open_from]
        masked = bytearray(data[:open_from])
        masked[:end] = b"*" * min(end, open_from)
        for start, stop in found:
            self.hits += start >= end
            end = max(end, stop)
            masked[start:stop] = b"*" * (min(stop, open_from) - start)
        self._covered = max(0, end - open_from)
        return bytes(masked)

    def _occurrences(self, data: bytes, open_from: int) -> list[tuple[int, int]]:
        found = []
        for needle in self._needles.all:
            at = data.find(needle)
            while -1 < at < open_from:
                found.append((at, at + len(needle)))
                at = data.find(needle, at + 1)
        return sorted(found)
