"""The scrubber masks every published form, at every cut, and nothing else; a naive reference checks it."""

from __future__ import annotations

import base64
import hashlib
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


KEPT = set(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789\t\x7f")
KEPT |= {*range(1, 0x20), *range(0x80, 0x100)} - {10, 13}
ENCODED = set(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/=_-")


def folded(data: bytes) -> bytes:
    """Return the bytes of a form that count where its case and separators may differ."""
    return bytes(byte for byte in data if byte in KEPT).lower()


def is_end(data: bytes, at: int, crossed: set[int]) -> bool:
    """Return whether no occurrence crosses this byte."""
    if data[at] in crossed or not 0 < data[at] < 0x20:
        return False
    if data[at] not in b"\r\n":
        return True
    before = data[: at - 1] if at and data[at - 1 : at] == b"\r" else data[:at]
    return not any(ends_in_a_row(part) for part in (before, data[:at]))


def ends_in_a_row(part: bytes) -> bool:
    """Return whether the part ends in a row of wrapped text, which goes on after the line end."""
    threes = [part[-24:][at : at + 3] for at in range(0, 24, 3)]
    return (
        part[-1:] == b"="
        or is_encoded(part[-32:], 32)
        or (part[-1:] == b"," and part[-2:-1].isdigit())
        or (part[-5:-3] == b"0x" and is_pair(part[-3:-1]) and part[-1:] == b",")
        or all(three[:1] == b" " and is_pair(three[1:]) for three in threes)
        or any(all(three[2:] == by and is_pair(three[:2]) for three in threes) for by in (b" ", b":"))
    )


def is_pair(digits: bytes) -> bool:
    """Return whether these are two hexadecimal digits."""
    return len(digits) == 2 and set(digits) <= set(b"0123456789abcdefABCDEF")


def is_encoded(part: bytes, size: int) -> bool:
    """Return whether the part is that many bytes of an encoded text."""
    return len(part) == size and ENCODED.issuperset(part)


def wraps_in_json(data: bytes) -> set[int]:
    """Return the places of the escaped line ends of wrapped texts."""
    found = set[int]()
    for wrap in (b"\\r\\n", b"\\n"):
        for at in range(len(data)):
            if data.startswith(wrap, at) and is_encoded(data[max(0, at - 16) : at], 16):
                found.update(range(at, at + len(wrap)))
    return found


def masked(data: bytes, needles: Needles) -> bytes:
    """Mask by the definition: a byte is a star if and only if it is part of an occurrence."""
    stars = bytearray(data)
    forms = {form: len(folded(form)) >= 8 for form in needles.all}
    crossed = {byte for form in forms for byte in form}
    ends = {at for at in range(len(data)) if is_end(data, at, crossed)}
    loose = {folded(form) for form, is_long in forms.items() if is_long}
    for start in range(len(data)):
        for form in forms:
            if data.startswith(form, start):
                stars[start : start + len(form)] = b"*" * len(form)
        for dropped in (set[int](), wraps_in_json(data)):
            if data[start] in KEPT and start not in dropped:
                text = [at for at in range(start, min(start + needles.reach, len(data))) if at not in dropped]
                text = [at for at in itertools.takewhile(lambda at: at not in ends, text) if data[at] in KEPT]
                rest = bytes(data[at] for at in text).lower()
                for form in loose:
                    if rest.startswith(form):
                        stop = text[len(form) - 1] + 1
                        stars[start:stop] = b"*" * (stop - start)
    return bytes(stars)


def scrub(parts: list[bytes], needles: Needles) -> tuple[bytes, int]:
    """Scrub the parts one by one, and return the output and the number of hits."""
    scrubber = Scrubber(needles)
    return b"".join([*map(scrubber.feed, parts), scrubber.finish()]), scrubber.hits


def cut(data: bytes, at: list[int]) -> list[bytes]:
    """Cut the data at these places."""
    edges = [0, *sorted({min(place, len(data)) for place in at}), len(data)]
    return [data[start:stop] for start, stop in itertools.pairwise(edges)]


def encoded_by_others(secret: bytes) -> dict[str, bytes]:
    """Return the forms that real encoders make of a secret, each independent of scrub.py."""
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
def test_a_secret_encoded_by_real_encoders_is_masked(secret: bytes) -> None:
    """The standard library writes them: plain, percent-encoded, JSON, HTML, hex, base64 and UTF-16."""
    needles = Needles([secret])
    for name, form in encoded_by_others(secret).items():
        body, hits = scrub([b'{"x": "' + form + b'"}'], needles)
        assert body == b'{"x": "' + b"*" * len(form) + b'"}', name
        assert hits >= 1, name


@pytest.mark.parametrize("secret", CANARIES)
@pytest.mark.parametrize("before", range(7))
def test_a_secret_inside_a_longer_base64_text_is_masked_at_every_alignment(secret: bytes, before: int) -> None:
    """All characters that the secret alone determines are masked; at most two at each end are shared with neighbours."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        text = encode(b"x" * before + secret + b"yyyy")
        body, hits = scrub([text], Needles([secret]))

        first, last = -(-before * 8 // 6), (before + len(secret)) * 8 // 6
        assert body[first:last] == b"*" * (last - first)
        assert hits == 1


@pytest.mark.parametrize("name", [name for name, _forms in ENCODINGS])
def test_a_secret_split_at_every_byte_is_masked(name: str) -> None:
    """Each published form, cut in two at each of its offsets, becomes stars and counts as one occurrence."""
    needles = Needles([CANARY])
    for form in dict(ENCODINGS)[name](CANARY):
        for at in range(len(form) + 1):
            assert scrub([b"<" + form[:at], form[at:] + b">"], needles) == (b"<" + b"*" * len(form) + b">", 1)


def test_complete_lines_of_a_stream_are_not_delayed_by_the_scrubber() -> None:
    """Text up to a line end comes out at once; an unfinished line waits for its end or for the end of the stream."""
    scrubber = Scrubber(Needles([b"secret-0123456789"]))

    assert scrubber.feed(b"data: hello\n\n") == b"data: hello\n\n"
    assert scrubber.feed(b"data: the sec") == b""
    assert scrubber.feed(b"ond\n\nsecret-01234") == b"data: the second\n\n"
    assert scrubber.feed(b"56789!\r\n") == b"*" * 17 + b"!\r\n"
    assert scrubber.feed(b"se") == b""
    assert scrubber.finish() == b"se"
    assert scrubber.hits == 1


def test_the_scrubber_holds_back_no_more_bytes_than_a_form_of_its_secrets_can_have() -> None:
    """The reach is an upper bound for the length of a secret's forms. A body without line ends is released too."""
    needles = Needles([b"secret-0123456789"])

    assert needles.reach == 1024
    assert len(Scrubber(needles).feed(b"x" * 65536)) == 65536 - 1024
    assert Needles([b"x" * 2000]).reach == 16384


@pytest.mark.abuse_case("E41")
@pytest.mark.parametrize("size", [40, 1500])
@pytest.mark.parametrize(
    "text", [b"x", b"x" * 6 + b"\n", b"A" * 63 + b"\n", b"=\n"], ids=["one line", "lines", "wrapped", "="]
)
def test_the_scrubber_s_work_depends_on_the_bytes_and_not_on_how_they_are_split(
    monkeypatch: pytest.MonkeyPatch, size: int, text: bytes
) -> None:
    """Fed byte by byte, no byte is searched more than about six times, for any length of the secret and any lines."""
    searched = []
    search = Needles.may_be_in

    def counting(self: Needles, data: bytes) -> bool:
        searched.append(len(data))
        return search(self, data)

    monkeypatch.setattr(Needles, "may_be_in", counting)
    needles = Needles([b"k" * size])
    scrubber, whole = Scrubber(needles), text * (3 * needles.reach // len(text))
    given_out = held = 0
    for at in range(len(whole)):
        given_out += len(scrubber.feed(whole[at : at + 1]))
        held = max(held, at + 1 - given_out)

    assert held <= needles.reach * 5 // 4
    ends = whole.count(b"\n") if text[-2:] == b"x\n" else 0
    assert sum(searched) <= 6 * len(whole) + 33 * ends
    assert len(searched) <= ends + 12


@pytest.mark.abuse_case("E31")
@given(st.lists(st.binary(max_size=40), max_size=5), st.data())
def test_the_sizes_of_the_output_pieces_say_nothing_about_the_secret(parts: list[bytes], data: st.DataObject) -> None:
    """Otherwise a piece could show that the text so far ends with the first bytes of the secret."""
    secret, other = b"Xsecret-0123456789", b"Yanother-01234567"
    for beginning in (b"", secret[: data.draw(st.integers(1, 17))]):
        sizes = []
        for needles in (Needles([secret]), Needles([other])):
            scrubber = Scrubber(needles)
            sizes.append([*(len(scrubber.feed(part + beginning)) for part in parts), len(scrubber.finish())])
        assert sizes[0] == sizes[1]


_SECRETS = st.lists(st.binary(min_size=8, max_size=12), min_size=1, max_size=2)
_FEW_BYTES = st.lists(st.text("ab", min_size=8, max_size=9).map(str.encode), min_size=1, max_size=2)


@pytest.mark.abuse_case("E28")
@given(st.data(), st.one_of(_SECRETS, _FEW_BYTES))
@settings(deadline=None)
def test_any_split_of_the_input_gives_the_output_of_a_naive_reference_scrubber(
    data: st.DataObject, secrets: list[bytes]
) -> None:
    """Exactly the occurrences become stars, overlapping ones included; the split changes neither output nor count."""
    needles = Needles(secrets)
    if data.draw(st.booleans()):
        needles.reach = len(needles.all[0]) + 4  # so that what comes out meanwhile begins in the middle of a line
    fragments = st.one_of(
        st.binary(max_size=5),
        st.sampled_from(
            [
                b"\n",
                b"=\n",
                b"=\r\n",
                b"\r\n",
                b"\\n",
                b"\\r\\n",
                b"A" * 16,
                b"a" * 32,
                b", 0x",
                b" ",
                b"\t",
                b"%",
                b"7,\n",
                b"0x4a,\r\n",
                b" 61" * 8 + b"\n",
                b"61 " * 8 + b"\n",
                b"61:" * 8 + b"\r\n",
                b"61:" * 7 + b"\n",
                b"61:" * 8,
            ]
        ),
        st.text("ab", max_size=12).map(str.encode),
        st.sampled_from(needles.all),
        st.tuples(st.sampled_from(needles.all), st.integers(0, 30)).map(lambda pair: pair[0][: pair[1]]),
        st.tuples(st.sampled_from(needles.all), st.integers(0, 30)).map(lambda pair: pair[0][pair[1] :]),
        st.tuples(st.sampled_from(needles.all), st.sampled_from([b" ", b"\0", b":", b"=\n"])).map(
            lambda pair: pair[1].join(pair[0][at : at + 2] for at in range(0, len(pair[0]), 2))
        ),
    )
    text = b"".join(data.draw(st.lists(fragments, max_size=8)))
    parts = cut(text, data.draw(st.lists(st.integers(0, len(text)), max_size=8)))

    whole = scrub([text], needles)
    assert whole[0] == masked(text, needles)
    assert scrub(parts, needles) == whole
    assert scrub([text[i : i + 1] for i in range(len(text))], needles) == whole


@given(st.binary(max_size=40), st.binary(max_size=40))
@example(b"", b"")
@example(CANARY[:-1], CANARY[1:])
@settings(deadline=None, max_examples=20)
def test_no_form_of_a_secret_remains_in_the_output_whatever_surrounds_it(before: bytes, after: bytes) -> None:
    """The surrounding bytes make no difference: the output has no form of the secret, and keeps its length."""
    needles = Needles([CANARY])
    for form in needles.all:
        body, _hits = scrub([before, form, after], needles)
        assert not any(needle in body for needle in needles.all)
        assert len(body) == len(before) + len(form) + len(after)


def test_the_repr_of_the_scrubber_s_needles_does_not_contain_the_secret() -> None:
    """A traceback that prints local variables does not show it either."""
    needles = Needles([CANARY])

    assert repr(needles) == "<needles>"
    assert b"canary" not in repr(Scrubber(needles)).encode()


def test_a_secret_too_short_to_scrub_is_an_error() -> None:
    """Eight bytes are the minimum; seven would be masked where they occur by chance."""
    assert b"12345678" in Needles([b"12345678"]).all
    with pytest.raises(ValueError, match="8 bytes"):
        Needles([b"1234567"])


@pytest.mark.parametrize("bound", [0, 1, 3, 30], ids=["none", "one", "some", "many"])
def test_the_scrubber_finds_the_signature_of_a_request_beside_the_host_s_other_secrets(bound: int) -> None:
    """Each form of the signature is found at any split. The shared needles do not change."""
    others = [f"another-secret-{number:02}-of-this-host".encode() for number in range(bound)]
    signature = hashlib.sha256(b"a request").hexdigest().encode()
    needles = Needles(others)
    with_it = needles.and_once([signature])
    for form in (
        signature,
        signature.upper(),
        signature.hex().encode(),
        base64.b64encode(b"x" + signature + b"y"),
        signature.decode().encode("utf-16-le"),
        b" ".join(signature[at : at + 4] for at in range(0, 64, 4)),
    ):
        text = b'{"said": "' + form + b'"}'
        scrubber = Scrubber(with_it)
        pieces = [scrubber.feed(text[at : at + 7]) for at in range(0, len(text), 7)]
        masked = b"".join(pieces) + scrubber.finish()
        assert scrubber.hits == 1, form
        assert len(masked) == len(text)
        assert masked.count(b"*") >= len(form) - 4
        assert Scrubber(needles).scrub_whole(text) == (text, 0)
    for other in others:
        assert Scrubber(with_it).scrub_whole(b"x=" + other) == (b"x=" + b"*" * len(other), 1)
    assert set(needles.all) <= set(with_it.all)


@pytest.mark.parametrize("sent", [b"another-secret-of-this-host", b"short"], ids=["a secret already", "too short"])
def test_a_secret_sent_by_one_request_is_not_added_to_the_search_if_it_is_known_or_too_short(sent: bytes) -> None:
    """A known secret is still masked. A value of a few letters would be masked where it occurs by chance."""
    needles = Needles([b"another-secret-of-this-host"])

    assert Scrubber(needles.and_once([sent])).scrub_whole(b"x=another-secret-of-this-host&y=short") == (
        b"x=" + b"*" * 27 + b"&y=short",
        1,
    )


@pytest.mark.parametrize("encoding", ["percent, where needed", "json, where needed", "html", "base64url"])
def test_a_base64_signature_is_masked_where_its_plus_slash_and_equals_signs_are_escaped(encoding: str) -> None:
    """Each form of a secret counts: a URL or a page that shows the signature again escapes `+`, `/` and `=`."""
    signature = b"napcf88voDKymaHYPcHZ6R4IDVWOv/+imOhbWMR38WM="
    needles = Needles([b"another-secret-of-this-host"]).and_once([signature])
    (forms,) = (encode(signature) for name, encode in ENCODINGS if name == encoding)
    for form in set(forms):
        masked, hits = Scrubber(needles).scrub_whole(b'<a href="?s=' + form + b'&t=1">')
        assert hits == 1, form
        assert form.strip(b"=")[:40] not in masked, form
