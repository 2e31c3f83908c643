"""The scrubber: every published form, at every cut, and nothing else; checked against a naive reference."""

from __future__ import annotations

import base64
import html
import itertools
import json
import urllib.parse

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aileron.egress.scrub import ENCODINGS, Needles, Scrubber
from tests.egress.conftest import CANARY

CANARIES = [CANARY, b"ghp_0123456789abcdefXYZ", "pä$$wörd/+=&<\"'".encode(), b"aaaaaaaa", bytes(range(0x80, 0x90))]


def masked(data: bytes, needles: Needles) -> bytes:
    """The definition: a byte is a star if and only if it is part of an occurrence."""
    stars = bytearray(data)
    for start in range(len(data)):
        for needle in needles.all:
            if data.startswith(needle, start):
                stars[start : start + len(needle)] = b"*" * len(needle)
    return bytes(stars)


def scrub(parts: list[bytes], needles: Needles) -> tuple[bytes, int]:
    """Through the scrubber, part by part."""
    scrubber = Scrubber(needles)
    return b"".join([*map(scrubber.feed, parts), scrubber.finish()]), scrubber.hits


def cut(data: bytes, at: list[int]) -> list[bytes]:
    """The data in parts, cut at these places."""
    edges = [0, *sorted({min(place, len(data)) for place in at}), len(data)]
    return [data[start:stop] for start, stop in itertools.pairwise(edges)]


def encoded_by_others(secret: bytes) -> dict[str, bytes]:
    """What real encoders make of a secret, each independent of scrub.py."""
    try:
        text = secret.decode()
    except UnicodeDecodeError:
        text = secret.decode("latin-1")
    return {
        "plain": secret,
        "base64": base64.b64encode(secret).rstrip(b"="),
        "base64 in front of more": base64.b64encode(secret + b"tail")[: len(secret) * 4 // 3],
        "base64url": base64.urlsafe_b64encode(secret).rstrip(b"="),
        "quote": urllib.parse.quote(secret, safe="").encode(),
        "quote path": urllib.parse.quote(secret).encode(),
        "quote_plus": urllib.parse.quote_plus(secret).encode(),
        "percent all": "".join(f"%{byte:02x}" for byte in secret).encode(),
        "json": json.dumps(text)[1:-1].encode(),
        "json unicode": json.dumps(text, ensure_ascii=False)[1:-1].encode(),
        "json php": json.dumps(text)[1:-1].replace("/", "\\/").encode(),
        "html": html.escape(text).encode(),
        "hex": secret.hex().encode(),
        "HEX": secret.hex().upper().encode(),
        "utf-16-le": text.encode("utf-16-le"),
        "utf-16-be": text.encode("utf-16-be"),
    }


@pytest.mark.parametrize("secret", CANARIES)
def test_what_real_encoders_make_of_a_secret_is_masked(secret: bytes) -> None:
    """Plain, percent-encoded, JSON, HTML, hex, base64 and UTF-16, as the standard library writes them."""
    needles = Needles([secret])
    for name, form in encoded_by_others(secret).items():
        body, hits = scrub([b'{"x": "' + form + b'"}'], needles)
        assert body == b'{"x": "' + b"*" * len(form) + b'"}', name
        assert hits >= 1, name


@pytest.mark.parametrize("secret", CANARIES)
@pytest.mark.parametrize("before", range(7))
def test_a_secret_inside_a_longer_base64_text_is_masked_at_every_alignment(secret: bytes, before: int) -> None:
    """All characters that the secret alone determines; at most two at each end are shared with neighbours."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        text = encode(b"x" * before + secret + b"yyyy")
        body, hits = scrub([text], Needles([secret]))

        first, last = -(-before * 8 // 6), (before + len(secret)) * 8 // 6
        assert body[first:last] == b"*" * (last - first)
        assert hits == 1


@pytest.mark.parametrize("name", [name for name, _forms in ENCODINGS])
def test_a_secret_split_at_every_byte_is_masked(name: str) -> None:
    """Each published form, cut into two chunks at each of its offsets, comes out as stars and as one occurrence."""
    needles = Needles([CANARY])
    for form in dict(ENCODINGS)[name](CANARY):
        for at in range(len(form) + 1):
            assert scrub([b"<" + form[:at], form[at:] + b">"], needles) == (b"<" + b"*" * len(form) + b">", 1)


def test_a_stream_of_lines_is_not_delayed() -> None:
    """What ends with a line end comes out at once; an unfinished line waits for its end, or the stream's."""
    scrubber = Scrubber(Needles([b"secret-0123456789"]))

    assert scrubber.feed(b"data: hello\n\n") == b"data: hello\n\n"
    assert scrubber.feed(b"data: the sec") == b""
    assert scrubber.feed(b"ond\n\nsecret-01234") == b"data: the second\n\n"
    assert scrubber.feed(b"56789!\r\n") == b"*" * 17 + b"!\r\n"
    assert scrubber.feed(b"se") == b""
    assert scrubber.finish() == b"se"
    assert scrubber.hits == 1


def test_no_more_than_a_secret_can_reach_is_held_back() -> None:
    """A body without line ends flows too."""
    needles = Needles([b"secret-0123456789"])

    assert needles.reach == 1024
    assert len(Scrubber(needles).feed(b"x" * 65536)) == 65536 - 1024
    assert Needles([b"x" * 2000]).reach == 16384


@given(st.lists(st.binary(max_size=40), max_size=5), st.data())
def test_what_comes_out_when_says_nothing_about_the_secret(parts: list[bytes], data: st.DataObject) -> None:
    """Whether the text ends with a beginning of the secret cannot be seen from the sizes of the pieces."""
    secret, other = b"Xsecret-0123456789", b"Yanother-01234567"
    for beginning in (b"", secret[: data.draw(st.integers(1, 17))]):
        sizes = []
        for needles in (Needles([secret]), Needles([other])):
            scrubber = Scrubber(needles)
            sizes.append([*(len(scrubber.feed(part + beginning)) for part in parts), len(scrubber.finish())])
        assert sizes[0] == sizes[1]


_SECRETS = st.lists(st.binary(min_size=8, max_size=12), min_size=1, max_size=2)
_FEW_BYTES = st.lists(st.text("ab", min_size=8, max_size=9).map(str.encode), min_size=1, max_size=2)


@given(st.data(), st.one_of(_SECRETS, _FEW_BYTES))
@settings(deadline=None)
def test_any_cut_gives_what_the_definition_says(data: st.DataObject, secrets: list[bytes]) -> None:
    """Stars exactly on occurrences, overlapping ones included; neither output nor count depends on the cuts."""
    needles = Needles(secrets)
    fragments = st.one_of(
        st.binary(max_size=5),
        st.text("ab", max_size=12).map(str.encode),
        st.sampled_from(needles.all),
        st.tuples(st.sampled_from(needles.all), st.integers(0, 30)).map(lambda pair: pair[0][: pair[1]]),
        st.tuples(st.sampled_from(needles.all), st.integers(0, 30)).map(lambda pair: pair[0][pair[1] :]),
    )
    text = b"".join(data.draw(st.lists(fragments, max_size=6)))
    parts = cut(text, data.draw(st.lists(st.integers(0, len(text)), max_size=8)))

    whole = scrub([text], needles)
    assert whole[0] == masked(text, needles)
    assert scrub(parts, needles) == whole
    assert scrub([text[i : i + 1] for i in range(len(text))], needles) == whole


@given(st.binary(max_size=40), st.binary(max_size=40))
@example(b"", b"")
@example(CANARY[:-1], CANARY[1:])
def test_no_needle_survives(before: bytes, after: bytes) -> None:
    """Whatever stands around it, no form of the secret is in the output."""
    needles = Needles([CANARY])
    for form in needles.all:
        body, _hits = scrub([before, form, after], needles)
        assert not any(needle in body for needle in needles.all)
        assert len(body) == len(before) + len(form) + len(after)


def test_a_needle_says_nothing_about_itself() -> None:
    """Not even in a traceback that prints values."""
    needles = Needles([CANARY])

    assert repr(needles) == "<needles>"
    assert b"canary" not in repr(Scrubber(needles)).encode()


def test_a_secret_too_short_to_scrub_is_an_error() -> None:
    """Eight bytes are the least; seven would be masked where they stand by chance."""
    assert b"12345678" in Needles([b"12345678"]).all
    with pytest.raises(ValueError, match="8 bytes"):
        Needles([b"1234567"])
