"""Take a lent secret out of what comes back, whatever usual encoding it comes in.

A server that reflects its request (a debug endpoint, an error page, a pagination link with the key in it) would hand the
connector the credential it must never have. Every occurrence of every form in `ENCODINGS` becomes as many `*`, so
lengths stay true. Pure and incremental; runs in the daemon, and holds secret bytes for as long as one step lasts.

Rules
- A byte of the output is `*` if and only if it is part of an occurrence, overlapping ones included; how the input was
  cut into chunks makes no difference. `hits` counts occurrences that begin outside the one before.
- Held back is what follows the last line end, at most `reach` bytes: all that could begin an occurrence of some secret.
  Streams of lines (server-sent events, NDJSON) are not delayed. It is not less on purpose: were only a beginning of
  *this* secret held back, a connector that stores a text and fetches it again would see from the sizes of the pieces
  whether its last bytes are one, and could find the secret byte by byte. So what comes out when depends on the input
  and on `reach` (the length of the secret in steps of two), and on nothing else of the secret.
- Not found: two layers of encoding, except a Basic credential's own base64 in all of them; the up to two
  characters at each end of a base64 run inside which the secret shares a character with its neighbours;
  an encoding that is not in the list. docs/reference/egress.md says so to users.

The needles are searched with `bytes.find`, one after the other: 13 of them scan JSON at 1200 MB/s on one core, where
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
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

__all__ = ["ENCODINGS", "Needles", "Scrubber"]


def _base64_forms(data: bytes, encode: Callable[[bytes], bytes]) -> Iterator[bytes]:
    """The data encoded alone, and the characters it fully determines at each of the three places in a longer text."""
    yield encode(data).rstrip(b"=")
    for offset in range(3):
        text = encode(bytes(offset) + data)
        yield text[-(-offset * 8 // 6) : (offset + len(data)) * 8 // 6]


_PLAIN: Final = re.compile(rb"[A-Za-z0-9\-._]*")  # written as it is by every encoder that encodes what it must
_KEPT_IN_PERCENT: Final = (  # beside letters and digits, by those who encode what must be
    b"-._~",  # RFC 3986 unreserved: Python quote(safe=""), .NET, Go's query, PHP rawurlencode
    b"-._~/",  # Python quote
    b"-._",  # PHP urlencode
    b"-._*",  # HTML forms: URLSearchParams, Java, Ruby
    b"-._~!*'()",  # JavaScript encodeURIComponent
    b"-._~!*'();,/?:@&=+$#",  # JavaScript encodeURI
    b"-._~$&+:=@",  # Go, one segment of a path
    b"-._~$&+,/:;=@",  # Go, a path
    b"-._~!$&'()*+,;=:@",  # RFC 3986, one segment of a path
    b"-._~!$&'()*+,;=:@/",  # a path
    b"-._~!$&'()*+,;=:@/?",  # a query
    b"-._~!$&'()*+,;=:@/%[]\\|",  # browsers, a path (and they leave a percent sign alone)
    b"-._~!$&()*+,;=:@/?%[]\\|^`{}",  # browsers, a query
    b"-._~!$&'()*+,;=:@/?%[]\\|^`{}",  # the same where the scheme is none of theirs
)
_NEEDING_PERCENT: Final = tuple(re.compile(rb"[^A-Za-z0-9%b]" % re.escape(kept)) for kept in _KEPT_IN_PERCENT)


def _percent(data: bytes, needing: re.Pattern[bytes], digits: bytes) -> Iterator[bytes]:
    at = 0
    for match in needing.finditer(data):
        yield data[at : match.start()] + digits % match[0][0]
        at = match.end()
    yield data[at:]


def _percent_forms(data: bytes) -> Iterator[bytes]:
    for needing in () if _PLAIN.fullmatch(data) else _NEEDING_PERCENT:
        for digits in (b"%%%02X", b"%%%02x"):
            parts = [b"".join(_percent(part, needing, digits)) for part in data.split(b" ")]
            yield b"%20".join(parts)
            yield b"+".join(parts)


def _percent_full_forms(data: bytes) -> Iterator[bytes]:
    digits = data.hex(" ")
    yield b"%" + digits.replace(" ", "%").encode()
    yield b"%" + digits.upper().replace(" ", "%").encode()


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


_ESCAPED_IN_JSON: Final = (  # as \\u003c, beside what must be
    "",
    "<>&",  # Go, Rails, Django
    "<>&'",  # Flask
    "<>&'=",  # Gson
    "<>&'\"",  # PHP with JSON_HEX_*, Newtonsoft
    "<>&'\"+`",  # .NET
)


def _json_forms(data: bytes) -> Iterator[bytes]:
    if _PLAIN.fullmatch(data):
        return
    text = _text(data)
    for ascii_only in (True, False):
        plain = [json.dumps(char, ensure_ascii=ascii_only)[1:-1] for char in text]
        for escaped in _ESCAPED_IN_JSON:
            for upper in (False, True):
                form = "".join(_json_char(char, how, escaped, upper) for char, how in zip(text, plain, strict=True))
                yield form.encode()
                yield form.replace("/", "\\/").encode()  # PHP


def _json_char(char: str, plain: str, escaped: str, upper: bool) -> str:
    if char in escaped:
        plain = f"\\u{ord(char):04x}"
    return plain.upper().replace("\\U", "\\u") if upper and plain.startswith("\\u") else plain


def _json_full_forms(data: bytes) -> Iterator[bytes]:
    units = _text(data).encode("utf-16-be").hex(" ", 2)
    yield b"\\u" + units.replace(" ", "\\u").encode()
    yield b"\\u" + units.upper().replace(" ", "\\u").encode()


_MORE_IN_HTML: Final = ("", "/", "`=", "/`=", "+")  # OWASP, Handlebars, Mustache, .NET


def _html_forms(data: bytes) -> Iterator[bytes]:
    if _PLAIN.fullmatch(data):
        return
    escaped = html.escape(_text(data), quote=False)
    for double in ("&quot;", "&#34;", '"'):
        for single in ("&#x27;", "&#39;", "&#039;", "&apos;", "'"):
            quoted = escaped.replace('"', double).replace("'", single)
            for more in _MORE_IN_HTML:
                # A `=` of ours is never inside an entity, and `/`, backquote and `+` are none of their characters.
                yield quoted.translate({ord(char): f"&#x{ord(char):X};" for char in more}).encode()


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

_MIN_REACH: Final = 1 << 10  # 1 KiB: all secrets of up to 170 characters look alike
_LINE_ENDS: Final = bytes(range(1, 0x20))  # control characters: no secret has any (inject.py), so no needle crosses one


class Needles:
    """The forms of some secrets. `roots` are the secrets themselves, each at least 8 bytes. Prints as `<needles>`."""

    __slots__ = ("_roots", "all", "alphabet", "reach")

    def __init__(self, roots: Iterable[bytes]) -> None:
        self._roots = frozenset(roots)
        if any(len(root) < 8 for root in self._roots):
            raise ValueError("a secret of less than 8 bytes cannot be scrubbed: it would match by chance")
        forms = {form for root in self._roots for _name, encode in ENCODINGS for form in encode(root)}
        self.all = tuple(sorted(forms, key=len, reverse=True))
        longest = len(self.all[0]) if self.all else 0
        self.reach = max(_MIN_REACH, 1 << longest.bit_length())
        # NUL is in it for UTF-16; the needles' own bytes for secrets that are no ASCII.
        self.alphabet = bytes(set(range(0x100)).difference(_LINE_ENDS).union(*forms))

    def covers(self, roots: Iterable[bytes]) -> bool:
        """These secrets are among the roots already."""
        return self._roots.issuperset(roots)

    def with_roots(self, roots: Iterable[bytes]) -> Needles:
        """These needles and those of more secrets."""
        return Needles(self._roots.union(roots))

    def may_begin_at(self, data: bytes) -> int:
        """The index from which `data` could be the beginning of some secret; len(data) after a line end."""
        if not self.all:
            return len(data)
        end = data[-self.reach :]
        return len(data) - len(end) + len(end.rstrip(self.alphabet))

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

    def look_for(self, needles: Needles) -> None:
        """From here on, these. What was given out already is not looked at again, what is held back is."""
        self._needles = needles

    def feed(self, data: bytes) -> bytes:
        """What can be said by now. May be empty."""
        data = self._held + data if self._held else data
        return self._decide(data, self._needles.may_begin_at(data))

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
