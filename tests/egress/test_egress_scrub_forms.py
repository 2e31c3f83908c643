"""The published encodings against the tests' own encoders: any secret, any surroundings, any cut.

The tests take only the scrubber from aileron/egress/scrub.py: a form that it forgot would otherwise be forgotten
twice. Forms that are known not to be found are here too, so that the page stays honest.
"""

from __future__ import annotations

import base64
import binascii
import bz2
import gzip
import hashlib
import html
import itertools
import json
import quopri
import re
import urllib.parse
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.egress.scrub import Needles, Scrubber
from tests.egress.conftest import CANARY, World, plain_url, use
from tests.support.upstream import Seen, Upstream, answer, chunked_answer

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "egress.md").read_text(encoding="utf-8")

Encoder = Callable[[str], str | bytes]


def _percent(keep: str, *, upper: bool, plus: bool = False) -> Encoder:
    """Return an encoder that writes every byte outside `keep` and the unreserved ones as %XX."""
    unreserved = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._" + keep

    def encode(text: str) -> str:
        out = []
        for byte in text.encode():
            char = chr(byte)
            if char == " " and plus:
                out.append("+")
            elif char in unreserved:
                out.append(char)
            else:
                out.append(f"%{byte:02X}" if upper else f"%{byte:02x}")
        return "".join(out)

    return encode


PERCENT = [
    # who, what it keeps beside letters, digits and -._, whether a space becomes a plus
    ("unreserved", "~", False),
    ("encodeURIComponent", "~!*'()", False),
    ("encodeURI", "~!*'();,/?:@&=+$#", False),
    ("URLSearchParams", "*", True),
    ("java.net.URLEncoder", "*", True),
    ("PHP urlencode", "", True),
    ("Go PathEscape", "~$&+:=@", False),
    ("Go path of a URL", "~$&+,/:;=@", False),
    ("Go QueryEscape", "~", True),
    ("segment", "~!$&'()*+,;=:@", False),
    ("path", "~!$&'()*+,;=:@/", False),
    ("query", "~!$&'()*+,;=:@/?", False),
    ("path in a browser", "~!$%&'()*+,/:;=@[\\]|", False),
    ("query in a browser", "~!$%&()*+,/:;=?@[\\]^`{|}", False),
]
"""Percent encoders as the manuals of each product describe them."""


def _json(escape: str, *, ascii_only: bool, upper: bool = False) -> Encoder:
    """Return a JSON encoder that escapes `escape` too: a slash with a backslash, others as their number."""

    def encode(text: str) -> str:
        out = []
        for char in text:
            plain = json.dumps(char, ensure_ascii=ascii_only)[1:-1]
            if char == "/" and "/" in escape:
                out.append("\\/")
            elif char in escape or plain.startswith("\\u"):
                units = char.encode("utf-16-be").hex(" ", 2).split(" ")
                out.extend("\\u" + (unit.upper() if upper else unit) for unit in units)
            else:
                out.append(plain)
        return "".join(out)

    return encode


def _json_all(digits: str) -> Encoder:
    def encode(text: str) -> str:
        units = text.encode("utf-16-be")
        return "".join(f"\\u{int.from_bytes(units[at : at + 2], 'big'):{digits}}" for at in range(0, len(units), 2))

    return encode


def _html(double: str, single: str, more: str = "", number: str = "") -> Encoder:
    table = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': double, "'": single}
    table |= {char: f"&{number.format(ord(char))};" for char in more}
    return lambda text: "".join(table.get(char, char) for char in text)


PUBLISHED: dict[str, dict[str, Encoder]] = {
    "literal": {"as it is": lambda text: text.encode()},
    "base64": {
        "alone": lambda text: binascii.b2a_base64(text.encode(), newline=False).rstrip(b"="),
        "with its end": lambda text: base64.encodebytes(text.encode()).replace(b"\n", b""),
    },
    "base64url": {"alone": lambda text: base64.urlsafe_b64encode(text.encode()).rstrip(b"=")},
    "percent, where needed": {
        "urllib": lambda text: urllib.parse.quote(text, safe=""),
        "urllib, of a path": lambda text: urllib.parse.quote(text, safe="/"),
        "urllib, of a form": lambda text: urllib.parse.quote_plus(text),
        **{
            f"{name}, {'upper' if upper else 'lower'} case": _percent(keep, upper=upper, plus=plus)
            for (name, keep, plus), upper in itertools.product(PERCENT, (True, False))
        },
    },
    "percent, every byte": {
        "upper case": lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
        "lower case": lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
    },
    "json, where needed": {
        "ASCII": lambda text: json.dumps(text)[1:-1],
        "not only ASCII": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
        "PHP": _json("/", ascii_only=True),
        "PHP, not only ASCII": _json("/", ascii_only=False),
        "Go": _json("<>&", ascii_only=False),
        "Django": _json("<>&", ascii_only=True, upper=True),
        "Flask": _json("<>&'", ascii_only=True),
        "Gson": _json("<>&'=", ascii_only=False),
        "PHP for a page": _json("<>&'\"/", ascii_only=True, upper=True),
        ".NET": _json("<>&'\"+`", ascii_only=True, upper=True),
    },
    "json, every character": {"lower case": _json_all("04x"), "upper case": _json_all("04X")},
    "html": {
        f"{double} {single}": _html(double, single)
        for double, single in itertools.product(("&quot;", "&#34;"), ("&#x27;", "&#39;", "&#039;", "&apos;", "'"))
    }
    | {
        "Handlebars": _html("&quot;", "&#x27;", "`=", "#x{:X}"),
        "Mustache": _html("&quot;", "&#39;", "/`=", "#x{:X}"),
        "OWASP": _html("&quot;", "&#x27;", "/", "#x{:X}"),
        ".NET": _html("&quot;", "&#x27;", "+", "#x{:X}"),
    }
    | {"Python": lambda text: html.escape(text), "only what must": lambda text: html.escape(text, quote=False)},
    "html, every character": {
        "decimal": lambda text: "".join(f"&#{ord(char)};" for char in text),
        "hexadecimal": lambda text: "".join(f"&#x{ord(char):x};" for char in text),
        "hexadecimal, upper case": lambda text: "".join(f"&#X{ord(char):X};" for char in text),
    },
    "hex": {
        "lower case": lambda text: binascii.hexlify(text.encode()),
        "upper case": lambda text: binascii.hexlify(text.encode()).upper(),
        "spaced": lambda text: text.encode().hex(" "),
        "colons, upper case": lambda text: text.encode().hex(":").upper(),
    },
    "\\x, every byte": {
        "lower case": lambda text: "".join(f"\\x{byte:02x}" for byte in text.encode()),
        "upper case": lambda text: "".join(f"\\x{byte:02X}" for byte in text.encode()),
    },
    "numbers": {
        "JSON": lambda text: json.dumps(list(text.encode()))[1:-1],
        "compact": lambda text: json.dumps(list(text.encode()), separators=(",", ":"))[1:-1],
        "C": lambda text: ", ".join(f"0x{byte:02x}" for byte in text.encode()),
    },
    "base32": {
        "alone": lambda text: base64.b32encode(text.encode()).rstrip(b"="),
        "lower case": lambda text: base64.b32encode(text.encode()).rstrip(b"=").lower(),
    },
    "quoted-printable": {
        "what must": lambda text: "".join(
            chr(byte) if 32 <= byte < 127 and byte != 61 else f"={byte:02X}" for byte in text.encode()
        ),
        "every byte": lambda text: "".join(f"={byte:02X}" for byte in text.encode()),
    },
    "utf-16": {
        "little end first": lambda text: text.encode("utf-16-le"),
        "big end first": lambda text: text.encode("utf-16-be"),
    },
    "utf-32": {
        "little end first": lambda text: text.encode("utf-32-le"),
        "big end first": lambda text: text.encode("utf-32-be"),
    },
}
FORMS = [(name, kind) for name, kinds in PUBLISHED.items() for kind in kinds]

TOKEN = b"tok9fQ2hZ7xLw0VbN4sKd83"

SECRETS = st.one_of(
    st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=8, max_size=40),
    st.text("/+&<>\"'%= \\ab", min_size=8, max_size=24).filter(lambda text: text.strip() == text),
    st.text(st.characters(min_codepoint=0x20, blacklist_categories=("Cs", "Cc")), min_size=8, max_size=16),
)
AROUND = st.binary(max_size=40)
HARD = [
    CANARY.decode(),
    "ghp_0123456789abcdefXYZ",
    "p\u00e4$$w\u00f6rd/+=&<\"'>\\`~!*()",
    '\U0001f511 of the house\'s "door" & more',
]


def encoded(name: str, kind: str, secret: str) -> bytes:
    """Return one form of a secret."""
    form = PUBLISHED[name][kind](secret)
    return form if isinstance(form, bytes) else form.encode()


def scrub(parts: Iterable[bytes], needles: Needles) -> tuple[bytes, int]:
    """Scrub the parts one by one, and return the output and the number of hits."""
    scrubber = Scrubber(needles)
    return b"".join([*map(scrubber.feed, parts), scrubber.finish()]), scrubber.hits


def test_each_published_encoding_has_an_encoder_in_these_tests() -> None:
    """The encoders have the order of the page's table."""
    section = PAGE.split("### Scrubbing\n", 1)[1].split("\n#", 1)[0]
    rows = re.findall(r"^\| *([^|]*?) *\|", section, re.MULTILINE)
    assert rows[2:] == list(PUBLISHED)


@pytest.mark.abuse_case("E28")
@given(SECRETS, AROUND, AROUND, st.sampled_from(FORMS), st.lists(st.integers(0, 400), max_size=6))
def test_any_secret_in_any_published_encoding_is_masked_wherever_it_stands(
    secret: str, before: bytes, after: bytes, how: tuple[str, str], places: list[int]
) -> None:
    """The output has as many stars as the form had bytes, for any surroundings and any cuts."""
    kind, form = how[1], encoded(*how, secret)
    text, needles = before + form + after, Needles([secret.encode()])
    cuts = sorted(min(place, len(text)) for place in places)
    parts = [text[start:stop] for start, stop in itertools.pairwise([0, *cuts, len(text)])]

    masked, hits = scrub(parts, needles)
    padding = len(form) - len(form.rstrip(b"=")) if kind == "with its end" else 0
    assert masked[len(before) : len(before) + len(form) - padding] == b"*" * (len(form) - padding)
    assert (hits >= 1, len(masked)) == (True, len(text))


@pytest.mark.abuse_case("E28")
@pytest.mark.parametrize("secret", HARD)
@pytest.mark.parametrize("name", PUBLISHED)
def test_an_encoded_secret_is_masked_however_it_is_split(name: str, secret: str) -> None:
    """The splits are in two at every place, in three with ten bytes between, and into single bytes."""
    needles = Needles([secret.encode()])
    for kind in PUBLISHED[name]:
        form = encoded(name, kind, secret)
        size = len(form.rstrip(b"=")) if kind == "with its end" else len(form)
        ways = [[form[:at], form[at:]] for at in range(len(form) + 1)]
        ways += [[form[:at], form[at : at + 10], form[at + 10 :]] for at in range(len(form))]
        ways.append([form[at : at + 1] for at in range(len(form))])
        for parts in ways:
            assert scrub(parts, needles)[0][:size] == b"*" * size, (kind, parts)


@given(SECRETS, st.binary(max_size=9), st.binary(max_size=9), st.booleans())
def test_a_secret_inside_longer_base64_is_masked_except_up_to_two_characters_at_each_end(
    secret: str, before: bytes, after: bytes, url: bool
) -> None:
    """Up to two characters at either end stay, because they depend on neighbouring bytes too."""
    raw = secret.encode()
    whole = (base64.urlsafe_b64encode if url else base64.b64encode)(before + raw + after)
    masked, hits = scrub([whole], Needles([raw]))

    first, last = -(-len(before) * 8 // 6), (len(before) + len(raw)) * 8 // 6
    assert masked[first:last] == b"*" * (last - first)
    assert hits >= 1


@pytest.mark.parametrize(
    "unfound",
    [
        lambda secret: base64.b64encode(base64.b64encode(secret)),
        lambda secret: secret.hex().encode().hex().encode(),
        lambda secret: secret[::-1],
        lambda secret: base64.b85encode(secret),
        lambda secret: base64.b32hexencode(secret),
        lambda secret: "".join(f"\\{byte:03o}" for byte in secret).encode(),
        lambda secret: binascii.b2a_uu(secret),
        lambda secret: bz2.compress(secret),
        lambda secret: secret[:10] + b"x" + secret[10:],
        lambda secret: secret[:10] + b"\n" + secret[10:],
        lambda secret: b" ".join(secret[at : at + 1].ljust(60) for at in range(len(secret))),
        lambda secret: secret[:10] + "\u00a0".encode() + secret[10:],
        lambda secret: secret[:10] + "\u2013".encode() + secret[10:],
        lambda secret: "".join(f"\\u{{{byte:x}}}" for byte in secret).encode(),
        lambda secret: _rows([b" %02x" % byte for byte in secret], 16, b"0000020"),
        lambda secret: _rows([b"%d " % byte for byte in secret], 12),
        lambda secret: _rows([b"%02x" % byte for byte in secret], 10),
    ],
    ids=[
        "base64 twice", "hex twice", "reversed", "base85", "base32hex", "octal", "uuencode", "bzip2", "a letter inside",
        "on two lines", "over more than is held back", "a wide blank inside", "a dash inside", "ES6", "od with addresses",
        "rows of numbers without commas", "rows of hex under 32 digits",
    ],
)  # fmt: skip
def test_an_encoding_that_is_documented_as_not_masked_is_not_masked(unfound: Callable[[bytes], bytes]) -> None:
    """An upstream that helps the connector can always give a secret away; the list is against those that only reflect."""
    form = unfound(CANARY)
    assert scrub([form], Needles([CANARY])) == (form, 0)


def test_only_the_ascii_letters_of_a_secret_are_matched_in_both_cases() -> None:
    """The reference page documents this limit."""
    secret = "p\u00e4ssw\u00f6rd-\u00c4\u00d6".encode()
    assert scrub([secret], Needles([secret])) == (b"*" * len(secret), 1)
    for other in (secret.decode().upper().encode(), secret.decode().lower().encode()):
        assert scrub([other], Needles([secret])) == (other, 0)


LOOSE: dict[str, Callable[[bytes], bytes]] = {
    "upper case": lambda secret: secret.upper(),
    "lower case": lambda secret: secret.lower(),
    "base64 in lines of 76": lambda secret: base64.encodebytes(b"x" * 40 + secret + b"y" * 100),
    "base64 in lines of 64, CR LF": lambda secret: _wrapped(
        base64.b64encode(b"x" * 35 + secret + b"y" * 99), 64, b"\r\n"
    ),
    "base64 in lines, inside JSON": lambda secret: json.dumps(
        _wrapped(base64.b64encode(b"x" * 37 + secret + b"y" * 99), 60, b"\n").decode()
    ).encode(),
    "the same with CR LF": lambda secret: json.dumps(
        _wrapped(base64.b64encode(b"x" * 37 + secret + b"y" * 99), 60, b"\r\n").decode()
    ).encode(),
    "base64url in lines of 76": lambda secret: _wrapped(
        base64.urlsafe_b64encode(b"x" * 41 + secret + b"y" * 99), 76, b"\n"
    ),
    "hex in lines of 60, as xxd -p": lambda secret: _wrapped(
        (b"x" * 21 + secret + b"y" * 40).hex().encode(), 60, b"\n"
    ),
    "base32 in lines of 76": lambda secret: _wrapped(base64.b32encode(b"x" * 33 + secret + b"y" * 70), 76, b"\n"),
    "quoted-printable in lines": lambda secret: quopri.encodestring(b"x" * 60 + secret + b"=" * 40),
    "numbers in indented JSON": lambda secret: json.dumps(list(secret), indent=2).encode(),
    "the same, deeper, with CR LF": lambda secret: json.dumps(list(secret), indent=4).replace("\n", "\r\n").encode(),
    "a C array, 12 a line": lambda secret: _rows([b" 0x%02x," % byte for byte in secret], 12, b" "),
    "pairs of digits, 16 a line, as od -An -tx1": lambda secret: _rows([b" %02x" % byte for byte in secret], 16),
    "the same with blanks at the end": lambda secret: _rows([b"%02x " % byte for byte in secret], 16),
    "pairs with colons, 15 a line, as openssl": lambda secret: _rows([b"%02X:" % byte for byte in secret], 15, b"    "),
    "hex in groups": lambda secret: b" ".join(
        secret.hex().encode()[at : at + 4] for at in range(0, len(secret) * 2, 4)
    ),
    "in groups of four": lambda secret: b"-".join(secret[at : at + 4] for at in range(0, len(secret), 4)),
    "letter by letter": lambda secret: b" ".join(secret[at : at + 1] for at in range(len(secret))),
}
"""Encodings that are found although they are not listed: case, blanks, punctuation and wrapped lines make no difference."""


def _rows(parts: list[bytes], many: int, margin: bytes = b"") -> bytes:
    return b"\n".join(margin + b"".join(parts[at : at + many]) for at in range(0, len(parts), many))


def _wrapped(text: bytes, width: int, end: bytes) -> bytes:
    return end.join(text[at : at + width] for at in range(0, len(text), width))


@pytest.mark.abuse_case("E40")
@pytest.mark.parametrize("how", LOOSE)
def test_an_encoded_secret_is_masked_whatever_its_separators_line_wrapping_or_letter_case(how: str) -> None:
    """All letters and digits of the form are masked at every split; the surrounding text stays."""
    needles, form = Needles([TOKEN]), LOOSE[how](TOKEN)
    whole = b"before " + form + b"\nafter"
    bare, _ = scrub([_letters(form).lower()], needles)
    before, after = bare.partition(b"*")[0], bare.rpartition(b"*")[2]
    ways = [[whole[:at], whole[at:]] for at in range(len(whole) + 1)]
    for parts in [*ways, [whole[at : at + 1] for at in range(len(whole))]]:
        masked, hits = scrub(parts, needles)
        assert (hits, len(masked)) == (1, len(whole)), parts
        assert masked.startswith(b"before ") and masked.endswith(b"\nafter")  # noqa: PT018 - of one thing
        left = _letters(masked[7:-6]).lower()
        assert left.startswith(before + b"*") and left.endswith(b"*" + after)  # noqa: PT018
        assert set(left[len(before) : len(left) - len(after)]) == set(b"*")


def _letters(text: bytes) -> bytes:
    return re.sub(rb"\\[rn]|[^A-Za-z0-9*]", b"", text)


def test_the_same_encodings_of_a_text_other_than_the_secret_are_not_masked() -> None:
    """This is the control of the test above: another text of the same length in the same encodings gets no star."""
    needles = Needles([TOKEN])
    for how, encode in LOOSE.items():
        form = encode(TOKEN[::-1])
        assert scrub([form], needles) == (form, 0), how


@pytest.mark.abuse_case("E40")
@pytest.mark.parametrize("many", [1, 2, 10])
def test_many_secrets_are_found_as_reliably_as_one(many: int) -> None:
    """Above some number of secrets another search is used, which finds the same: each form of each, wherever it begins."""
    secrets = [b"%d-%s" % (at * 7919, hashlib.sha256(b"%d" % at).hexdigest()[:20].encode()) for at in range(many)]
    needles = Needles(secrets)
    for number, secret in enumerate(secrets):
        for name, kinds in PUBLISHED.items():
            kind = sorted(kinds)[number % len(kinds)]
            form = encoded(name, kind, secret.decode())
            masked, hits = scrub([b"\t" + b"z" * (number % 17), form, b"\tz"], needles)
            assert hits >= 1, (name, kind)
            assert b"*" * (len(form.rstrip(b"=")) - 4) in masked, (name, kind)


# --- through the engine ---------------------------------------------------------------------------------------------

KEY = "canary-/7Gq+Zw9tK0=~&<'\""
"""A secret with a character for every encoder, all of which a header can carry."""
PLACES = ("body", "chunks", "a field", "Location", "Set-Cookie", "the name of a field", "a trailer", "gzip", "deflate")


@pytest.mark.abuse_case("E27")
@pytest.mark.anyio
@pytest.mark.parametrize("place", PLACES)
async def test_no_encoding_of_the_secret_reaches_the_connector_in_any_part_of_a_response(
    world: World, place: str
) -> None:
    """Each form of each encoder is reflected wherever a server has room for it; the response itself arrives."""
    world.vault.secret = KEY.encode()
    forms = [(name, kind, encoded(name, kind, KEY)) for name, kind in FORMS]

    def reflect(seen: Seen) -> bytes | Iterable[bytes]:
        form = forms[int(seen.target[1:])][2]
        text = form.decode("latin-1")
        match place:
            case "body":
                return answer(b"<" + form + b">")
            case "chunks":
                return chunked_answer([form[at : at + 5] for at in range(0, len(form), 5)])
            case "a field":
                return answer(b"ok", f"X-Echo: <{text}>")
            case "Location":
                return answer(b"ok", f"Location: https://api.example.test/?key={text}&x=1", status="302 Found")
            case "Set-Cookie":
                return answer(b"ok", f"Set-Cookie: session={text}; Path=/; HttpOnly")
            case "the name of a field":
                return answer(b"ok", f"X-{text}: 1") if re.fullmatch(r"[\w%.~*-]+", text) else answer(b"ok")
            case "a trailer":
                return [*list(chunked_answer([b"ok"]))[:-1], b"0\r\nX-Echo: " + form + b"\r\n\r\n"]
            case "gzip":
                return answer(gzip.compress(b"<" + form + b">"), "Content-Encoding: gzip")
            case _:
                return answer(zlib.compress(form), "Content-Encoding: deflate")

    with Upstream(reflect) as upstream:
        grant = world.grant_for(upstream, credential=use(), plain=True)
        for number, (name, kind, form) in enumerate(forms):
            in_head = place not in {"body", "chunks", "gzip", "deflate"}
            if in_head and b"\0" in form:
                continue  # no field can hold it
            got = await world.ask(upstream, url=plain_url(upstream, f"/{number}"), credential="api_key", grant=grant)
            heard = got.body + "\n".join(f"{field}: {value}" for field, value in got.headers).encode("latin-1")
            core = form.rstrip(b"=")
            assert core not in heard, (name, kind)
            if place not in {"a trailer", "the name of a field"}:
                assert b"*" * len(core) in heard, (name, kind)
                assert got.scrubbed >= 1
