"""Mask secrets in the responses of a service, in every usual encoding.

A server that reflects its request (a debug endpoint, an error page, a pagination link with the key in it), now or
later, would give the connector the credential, which it must never have. Every occurrence of every form in `ENCODINGS`
is replaced by `*` of the same length. Pure and incremental; runs in the daemon, and holds secret bytes for as long as
the needles exist.

Rules
- An occurrence is the exact bytes of a form, or bytes that differ from a form only in case and in the characters
  between its letters and digits (blanks, punctuation, NUL, and the line ends of wrapped text). So one search finds hex
  in pairs, base64 in lines of 76, UTF-16, and a key in capitals. This tolerant search covers only forms of at least 8
  letters and digits, and an occurrence spans at most `reach` bytes.
- A byte of the output is `*` if and only if it is part of an occurrence, overlapping ones included; how the input was
  cut into chunks makes no difference. `hits` counts the occurrences that do not overlap the previous one.
- No occurrence crosses a control character, except a line end that wraps: a line end after `=` (quoted-printable), after 32
  characters of an encoded text, or in rows of numbers or of pairs of hexadecimal digits (`_WRAPPING`). The bytes after the last
  control character that no occurrence can cross are held back, up to `reach` bytes and a quarter: all bytes that could begin an
  occurrence of some secret. Streams of lines (server-sent events, NDJSON) are not delayed. On purpose, no fewer bytes are held
  back. If only bytes that begin *this* secret were held back, a connector could store a text and fetch it again. From the sizes
  of the pieces, it would see whether the text ends with a beginning of the secret, and could find the secret byte by byte. So
  the timing of output depends on the input and on `reach` (a power of two that grows with the longest secret), and on nothing
  else of the secret.
- The quarter makes the work linear: held-back bytes are not searched again for each piece, but when they have grown by
  a quarter, or when a line ends. If a service sends its response byte by byte, each byte is searched some five times.
- Not found: two layers of encoding, except that a Basic credential's own base64 is found in every encoding; up to two
  characters at each end of a secret inside a longer base64 or base32 run, where a character also encodes a neighbour of the
  secret; an encoding that is not in the list. docs/reference/egress.md says so to users.

The search: the bytes are folded once to lower-case letters and digits, and the result is searched for each folded form
(14 for a usual token) by `bytes.find`. With many secrets, eight bytes at a time are looked up in a set of all
eight-byte parts of the forms, which costs the same for one secret and for a hundred. Only a hit in this set is examined
closely. One regular expression of all forms would be slower than either search, take milliseconds to compile, and stay
in the `re` module's cache with the secret in it.

Source: the encodings' RFCs (4648, 3986, 8259, 2045), the characters that PHP, Go and Python escape in JSON and HTML;
the costs are in docs/adr/0032-scrubbed-of-what-could-have-been-sent.md. Not here: which secrets are searched for
(inject.py, credentials/lent.py), compressed bodies (decode.py, unlabelled.py).

>>> Scrubber(Needles([b"hunter2-hunter2"])).scrub_whole(b'{"k": "hunter2-hunter2"}')
(b'{"k": "***************"}', 1)
"""

from __future__ import annotations

import base64
import bisect
import copy
import html
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

__all__ = ["ENCODINGS", "Needles", "Scrubber"]


def _base64_forms(data: bytes, encode: Callable[[bytes], bytes]) -> Iterator[bytes]:
    """Yield the base64 of the data alone. Then, for each of the three offsets that the data can have in a longer text,
    yield the base64 characters that the data fully determines.
    """
    yield encode(data).rstrip(b"=")
    for offset in range(3):
        text = encode(bytes(offset) + data)
        yield text[-(-offset * 8 // 6) : (offset + len(data)) * 8 // 6]


def _base32_forms(data: bytes) -> Iterator[bytes]:
    """Yield the base32 of the data alone. Then, for each of the five offsets that the data can have in a longer text,
    yield the base32 characters that the data fully determines.
    """
    yield base64.b32encode(data).rstrip(b"=")
    for offset in range(5):
        text = base64.b32encode(bytes(offset) + data)
        yield text[-(-offset * 8 // 5) : (offset + len(data)) * 8 // 5]


_PLAIN: Final = re.compile(rb"[A-Za-z0-9\-._]*")  # left as it is by every encoder that encodes only what it must
_KEPT_IN_PERCENT: Final = (  # beside letters and digits, by encoders that encode only what they must
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
    b"-._~!$&'()*+,;=:@/?%[]\\|^`{}",  # the same for schemes that browsers do not know
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


_ESCAPED_IN_JSON: Final = (  # as \\u003c, beside the characters that must be
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


def _html_full_forms(data: bytes) -> Iterator[bytes]:
    for number in ("&#{};", "&#x{:x};", "&#x{:X};", "&#X{:X};"):
        yield "".join(number.format(ord(char)) for char in _text(data)).encode()


def _quoted_printable_forms(data: bytes) -> Iterator[bytes]:
    """Yield both forms of RFC 2045, section 6.7, in which printable characters are left as they are, or are encoded."""
    yield b"".join(b"%c" % byte if 32 <= byte < 127 and byte != 0x3D else b"=%02X" % byte for byte in data)
    yield b"".join(b"=%02X" % byte for byte in data)


def _escaped_byte_forms(data: bytes) -> Iterator[bytes]:
    for number in (b"\\x%02x", b"\\x%02X"):
        yield b"".join(number % byte for byte in data)


def _number_forms(data: bytes) -> Iterator[bytes]:
    for number in (b"%d", b"0x%02x", b"0x%02X"):
        yield b",".join(number % byte for byte in data)


ENCODINGS: Final[tuple[tuple[str, Callable[[bytes], Iterable[bytes]]], ...]] = (
    ("literal", lambda data: (data,)),
    ("base64", lambda data: _base64_forms(data, base64.b64encode)),
    ("base64url", lambda data: _base64_forms(data, base64.urlsafe_b64encode)),
    ("percent, where needed", _percent_forms),
    ("percent, every byte", _percent_full_forms),
    ("json, where needed", _json_forms),
    ("json, every character", _json_full_forms),
    ("html", _html_forms),
    ("html, every character", _html_full_forms),
    ("hex", lambda data: (data.hex().encode(), data.hex().upper().encode())),
    ("\\x, every byte", _escaped_byte_forms),
    ("numbers", _number_forms),
    ("base32", _base32_forms),
    ("quoted-printable", _quoted_printable_forms),
    ("utf-16", lambda data: (_text(data).encode("utf-16-le"), _text(data).encode("utf-16-be"))),
    ("utf-32", lambda data: (_text(data).encode("utf-32-le"), _text(data).encode("utf-32-be"))),
)
"""Published list of encodings: a name for people, and a function that returns the encoded forms of one secret. The
search for an encoded form ignores case, and blanks, punctuation or line wraps between its letters and digits.
"""

_ESCAPED_IN_BASE64: Final = (  # which of its three other characters than letters and digits are escaped, and how
    ("%%%02X", "+/="),  # Python quote_plus, encodeURIComponent, forms
    ("%%%02X", "+="),  # Python quote
    ("%%%02X", "/"),  # Go, RFC 3986: a segment of a path
    ("\\u%04X", "+"),  # .NET
    ("\\u%04X", "="),  # Gson
    ("&#x%X;", "/"),  # OWASP, Handlebars, Mustache, .NET: as `_MORE_IN_HTML`
    ("&#x%X;", "="),
    ("&#x%X;", "/="),
    ("&#x%X;", "+"),
)


def _escaped_base64_forms(data: bytes) -> Iterator[bytes]:
    """Yield for base64 text the results of `_percent_forms`, `_json_forms` and `_html_forms`, without examining each
    character.
    """
    for form, characters in () if _PLAIN.fullmatch(data) else _ESCAPED_IN_BASE64:
        escaped = data
        for character in characters:
            escaped = escaped.replace(character.encode(), (form % ord(character)).encode())
        yield escaped


_OF_ONE_REQUEST: Final[tuple[Callable[[bytes], Iterable[bytes]], ...]] = (
    lambda data: (data, data.hex().encode()),
    lambda data: _base64_forms(data, base64.b64encode),
    _percent_full_forms,
    _escaped_base64_forms,
    lambda data: (data.decode("latin-1").encode("utf-16-le"), data.decode("latin-1").encode("utf-16-be")),
)
"""Encodings in which a value of only one request, such as a signature, is searched for, because they take only some
microseconds: literal, hex, base64, percent, JSON, HTML and UTF-16. A signature is hex or base64; the search for it also
finds base64url, and encodings that escape only the necessary characters.
"""

_MIN_REACH: Final = 1 << 10  # 1 KiB: all secrets of up to 120 characters look alike
_SPREAD: Final = 8  # bytes for each byte of a secret in its widest form; `&#x41;` and `0x41, ` have six
_WRAPS: Final = 64  # more bytes for line ends
_MIN_FOLDED: Final = 8  # letters and digits; fewer would be found by chance
_CONTROLS: Final = bytes(range(1, 0x20))  # no secret has any (credentials/lent.py), so no needle crosses one
_ENCODED: Final = rb"[A-Za-z0-9+/=_\-]"  # base64, and so base32 and hex
_HEX: Final = rb"[0-9A-Fa-f]{2}"
_WRAPPING: Final = (  # endings of a line that is wrapped; each of a fixed length of at most 32 bytes
    rb"=",  # RFC 2045 section 6.7
    rb"%b{32}" % _ENCODED,
    rb"[0-9],",  # numbers: json.dumps with an indent, console.log
    rb"0x%b," % _HEX,  # C, xxd -i
    rb"(?:%b:){8}" % _HEX,  # openssl, 15 a row
    rb"(?: %b){8}" % _HEX,  # od -An -tx1, 16 a row
    rb"(?:%b ){8}" % _HEX,  # with a blank at the end, as printf would
)
_BETWEEN: Final = bytes(byte for byte in range(0x7F) if byte in b"\0\r\n" or (byte > 0x1F and not chr(byte).isalnum()))
_LOWER: Final = bytes(range(0x100)).lower()
_IS_KEPT: Final = bytes(byte not in _BETWEEN for byte in range(0x100))
_BLOCK: Final = 8  # bytes that are compared at once, as an integer
_FIND_UP_TO: Final = 28  # folded forms, those of two tokens: from there on comparing blocks is faster
_SLACK: Final = 4  # a reach and this fraction of it is held back before it is searched again
_LOOK_BEHIND: Final = 33  # the longest wrapping ending, and the CR of a CR LF


def _fold(data: bytes) -> bytes:
    """Return the data in the folded form in which it is searched: in lower case, without NUL, line ends, blanks and
    punctuation.
    """
    return data.translate(_LOWER, _BETWEEN)


def _ends(crossed: bytes) -> re.Pattern[bytes]:
    """Return a pattern of the characters that no occurrence of a secret can contain: control characters, except those
    in `crossed` and line ends that wrap a line.
    """
    ends = bytes(byte for byte in _CONTROLS if byte not in crossed) or b"\x7f"
    others = bytes(byte for byte in ends if byte not in b"\r\n") or b"\x7f"
    wraps = b"".join(rb"(?<!%b[\r\n])(?<!%b\r\n)" % (before, before) for before in _WRAPPING)
    return re.compile(rb"[%b](?:(?<=[%b])|%b)" % (re.escape(ends), re.escape(others), wraps))


_ENDS: Final = _ends(b"")


class Needles:
    """Needles: the encoded forms of some secrets, for which responses are searched. `roots` are the secrets themselves,
    each at least 8 bytes. The repr is `<needles>`.

    `all` are the exact forms; the search begins with their folded forms (`_fold`).
    """

    __slots__ = (
        "__weakref__",
        "_alone",
        "_blocks",
        "_ends",
        "_first",
        "_folded",
        "_roots",
        "_shortest",
        "all",
        "reach",
    )

    def __init__(self, roots: Iterable[bytes] = ()) -> None:
        self._roots = frozenset(roots)
        if any(len(root) < 8 for root in self._roots):
            raise ValueError("a secret of less than 8 bytes cannot be scrubbed: it would match by chance")
        forms = {form for root in self._roots for _name, encode in ENCODINGS for form in encode(root)}
        self.all = tuple(sorted(forms, key=len, reverse=True))
        longest = max((_SPREAD * len(root) + _WRAPS for root in self._roots), default=0)
        self.reach = max(_MIN_REACH, 1 << max(longest, len(self.all[0]) if self.all else 0).bit_length())
        self._alone = tuple(form for form in self.all if len(_fold(form)) < _MIN_FOLDED)
        folded = {_fold(form) for form in self.all}.difference(map(_fold, self._alone))
        self._folded = tuple(folded)
        self._first = _without_longer(folded)
        self._shortest = min(map(len, (*self._alone, *self._first)), default=0)
        self._blocks = _blocks_of(self._first) if len(self._first) > _FIND_UP_TO else None
        # The needles' own for secrets that are no ASCII: their UTF-16 may have some.
        own = bytes(byte for byte in _CONTROLS if any(byte in form for form in self.all))
        self._ends = _ends(own) if own else _ENDS

    def __bool__(self) -> bool:
        """Return whether there are any secrets to search for."""
        return bool(self.all)

    def covers(self, roots: Iterable[bytes]) -> bool:
        """Return whether all of these secrets are among the roots of these needles already."""
        return self._roots.issuperset(roots)

    def includes(self, other: Needles) -> bool:
        """Return whether all secrets of `other` are among the secrets of these needles."""
        return self._roots >= other._roots

    def with_roots(self, roots: Iterable[bytes]) -> Needles:
        """Return needles for the secrets of these needles and the further secrets `roots`."""
        return Needles(self._roots.union(roots))

    def and_once(self, sent: Iterable[bytes]) -> Needles:
        """Return these needles plus needles for `sent`, values that were sent with only one request, such as its
        signature.

        These values are searched for only in the forms of `_OF_ONE_REQUEST`. So this method is fast enough to be called for
        each request; all forms of the other secrets are reused. Rare forms of a value may be missed, because the value is
        worthless in another request.
        """
        more = frozenset(
            form
            for value in sent
            for encode in _OF_ONE_REQUEST
            for form in encode(value)
            if len(_fold(form)) >= _MIN_FOLDED
        )
        if any(len(form) * _SPREAD + _WRAPS > self.reach for form in sent):
            return self.with_roots(sent)
        both = copy.copy(self)
        folded = tuple({_fold(form) for form in more}.difference(self._folded))
        both.all = (*self.all, *more)
        both._folded = (*self._folded, *folded)
        both._first = (*self._first, *folded)
        both._shortest = min((self._shortest, *map(len, folded)))
        if both._blocks is not None or len(both._first) > _FIND_UP_TO:
            both._blocks = (
                _blocks_of(both._first) if self._blocks is None else _and_blocks(self._blocks, _blocks_of(folded))
            )
        return both

    def and_of(self, other: Needles) -> Needles:
        """Return needles for the secrets of these needles and of `other`."""
        return Needles(self._roots | other._roots)

    def may_begin_at(self, data: bytes, known: int = 0) -> int:
        """Return the smallest index, at least `known`, at which an occurrence of some secret could begin that later
        data continues. Return len(data) if `data` ends with a line end that no occurrence can cross.
        """
        if not self.all:
            return len(data)
        floor = max(known, len(data) - self.reach)
        window = 64
        while True:
            start = max(floor, len(data) - window)
            ends = [match.end() for match in self._ends.finditer(data, start)]
            if ends:
                return ends[-1]
            if start == floor:
                return floor
            window *= 8

    def has_end(self, data: bytes | bytearray, at: int) -> bool:
        """Return whether `data` has, at index `at` or later, a character that no occurrence of a secret can contain."""
        return self._ends.search(data, at) is not None

    def may_be_in(self, data: bytes) -> bool:
        """Return whether the data may contain an occurrence of a secret. The check is fast, and only False is certain.
        Most values of header fields are shorter than any encoded form of a secret.
        """
        if len(data) < self._shortest:
            return False
        return any(form in data for form in self._alone) or any(map(self._is_in_folded, map(_fold, _views(data))))

    def occurrences(self, data: bytes) -> list[tuple[int, int]]:
        """Return the start and end index of each occurrence of a secret in the data, in order, including overlapping
        occurrences.
        """
        if not self.may_be_in(data):
            return []
        found = {span for form in self.all for span in _all_of(form, data)}
        ends = [match.start() for match in self._ends.finditer(data)]
        for view in _views(data):
            found.update(self._spread(view, ends))
        return sorted(found)

    def _is_in_folded(self, folded: bytes) -> bool:
        if self._blocks is not None:
            blocks, short = self._blocks
            if blocks.isdisjoint(memoryview(folded)[: len(folded) // _BLOCK * _BLOCK].cast("Q")):
                return any(form in folded for form in short)
        return any(form in folded for form in self._first)

    def _spread(self, view: bytes, ends: list[int]) -> Iterator[tuple[int, int]]:
        """Yield the positions, in the data, of the folded forms that occur in `view`, a view of the data (`_views`)."""
        folded = _fold(view)
        found = [span for form in self._folded for span in _all_of(form, folded)]
        if not found:
            return
        places = list(itertools.compress(range(len(view)), view.translate(_IS_KEPT)))
        for first, behind in found:
            start, stop = places[first], places[behind - 1] + 1
            is_whole = bisect.bisect_left(ends, start) == bisect.bisect_left(ends, stop)
            if is_whole and stop - start <= self.reach:
                yield start, stop

    def __repr__(self) -> str:
        return "<needles>"


def _without_longer(forms: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return the encoded forms without those that begin with another form, because a search for the shorter form finds
    both.
    """
    kept: list[bytes] = []
    for form in sorted(forms):
        if not (kept and form.startswith(kept[-1])):
            kept.append(form)
    return tuple(kept)


def _blocks_of(folded: Iterable[bytes]) -> tuple[frozenset[int], tuple[bytes, ...]]:
    """Return the first eight-byte block of each long form at each of the eight alignments, as integers; and the other forms,
    which are too short to have a whole block at every alignment.
    """
    forms = tuple(folded)
    long = [form for form in forms if len(form) >= 2 * _BLOCK - 1]
    parts = {form[at : at + _BLOCK] for form in long for at in range(_BLOCK)}
    return frozenset(memoryview(b"".join(parts)).cast("Q")), tuple(form for form in forms if len(form) < 2 * _BLOCK - 1)


def _and_blocks(
    some: tuple[frozenset[int], tuple[bytes, ...]], more: tuple[frozenset[int], tuple[bytes, ...]]
) -> tuple[frozenset[int], tuple[bytes, ...]]:
    return some[0] | more[0], (*some[1], *more[1])


def _all_of(form: bytes, data: bytes) -> Iterator[tuple[int, int]]:
    at = data.find(form)
    while at >= 0:
        yield at, at + len(form)
        at = data.find(form, at + 1)


def _views(data: bytes) -> Iterator[bytes]:
    """Yield the data as it is. If encoded text in the data is wrapped by escaped line ends, as in JSON, then also yield
    the data with real line ends instead.
    """
    yield data
    if b"\\n" in data:
        unwrapped = _WRAP_IN_JSON.sub(b"\r\n", data)
        if b"\\r" in data:
            unwrapped = _LONG_WRAP_IN_JSON.sub(b"\r\n\r\n", unwrapped)
        if unwrapped != data:
            yield unwrapped


_WRAP_IN_JSON: Final = re.compile(rb"\\n(?<=%b{16}\\n)" % _ENCODED)
_LONG_WRAP_IN_JSON: Final = re.compile(rb"\\r\\n(?<=%b{16}\\r\\n)" % _ENCODED)


class Scrubber:
    """A scrubber, which masks the secrets in one stream of bytes. `hits` counts the occurrences that were masked so far."""

    __slots__ = ("_behind", "_covered", "_held", "_needles", "hits")

    def __init__(self, needles: Needles) -> None:
        self._needles = needles
        # Unmasked bytes that are undecided, as they may begin an occurrence; and a few before them.
        self._held = bytearray()
        self._behind = 0  # how many of those are decided, and kept only to see whether a line end wraps
        self._covered = 0  # how many of the undecided ones belong to an occurrence that began before them
        self.hits = 0

    @property
    def is_holding(self) -> bool:
        """True while some of the bytes that were fed are held back, because they may begin a secret."""
        return len(self._held) > self._behind

    def look_for(self, needles: Needles) -> None:
        """Search the stream for `needles` from now on. Bytes that were returned already are not searched again; bytes
        that are held back are.
        """
        self._needles = needles

    def feed(self, data: bytes) -> bytes:
        """Take more bytes, and return bytes that later input can no longer change, masked. The result may be empty, and always
        is if `data` is empty.
        """
        if not data:
            return b""
        known = len(self._held)
        self._held += data
        if self._waits(known):
            return b""
        held = bytes(self._held)
        return self._decide(held, self._needles.may_begin_at(held, self._behind))

    def finish(self) -> bytes:
        """Return the bytes that were held back, masked, at the end of the stream."""
        return self._decide(bytes(self._held), len(self._held))

    def _waits(self, known: int) -> bool:
        """Return whether to wait for more bytes before the held-back bytes are searched again. The first `known` of
        them were already held back before the last bytes came.
        """
        most = self._needles.reach + self._needles.reach // _SLACK
        if not self._needles or len(self._held) - self._behind > most:
            return False
        return not self._needles.has_end(self._held, known)

    def scrub_whole(self, data: bytes) -> tuple[bytes, int]:
        """Mask a complete value. Return the masked value, and the number of occurrences of a secret in it."""
        other = Scrubber(self._needles)
        masked = other.feed(data) + other.finish()
        return masked, other.hits

    def _decide(self, data: bytes, open_from: int) -> bytes:
        """Mask the occurrences of secrets that begin before the index `open_from`, return the bytes before that index,
        and hold back the others.
        """
        behind = self._behind
        found = [span for span in self._needles.occurrences(data) if behind <= span[0] < open_from]
        end = behind + self._covered
        self._behind = min(open_from, _LOOK_BEHIND)
        self._held = bytearray(data[open_from - self._behind :])
        if not found and not self._covered:
            return data[behind:open_from]
        masked = bytearray(data[:open_from])
        masked[behind:end] = b"*" * (min(end, open_from) - behind)
        for start, stop in found:
            self.hits += start >= end
            end = max(end, stop)
            masked[start:stop] = b"*" * (min(stop, open_from) - start)
        self._covered = max(0, end - open_from)
        return bytes(masked[behind:])
