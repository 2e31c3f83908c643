"""Masking: the secret in no output, however a service cuts it and wherever it pauses; equal elsewhere, and of the same length."""

from __future__ import annotations

import base64

from hypothesis import given
from hypothesis import strategies as st

from aileron.logins.mask import SHORTEST, SHOWN, Mask

SECRET = b"hunter2-hunter2"
few = st.sampled_from([b"a", b"b", b"c"])
small_text = st.lists(few, max_size=60).map(b"".join)
small_forms = st.lists(st.lists(few, min_size=SHORTEST, max_size=9).map(b"".join), min_size=1, max_size=3)


def pieces_of(data: st.DataObject, text: bytes) -> list[bytes]:
    """Cut anywhere."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def shortest(forms: list[bytes]) -> list[bytes]:
    """Without those that have another one in them."""
    return [one for one in forms if not any(other in one and other != one for other in forms)]


def masked(forms: list[bytes], text: bytes) -> bytes:
    """By the definition: no state, every place tried."""
    stars = set()
    for form in shortest(forms):
        for at in range(len(text) - len(form) + 1):
            if text[at : at + len(form)] == form:
                stars.update(range(at, at + len(form)))
    return bytes(ord("*") if at in stars else byte for at, byte in enumerate(text))


@given(small_forms, small_text, st.data())
def test_cut_anywhere_it_is_the_same_as_whole(forms: list[bytes], text: bytes, data: st.DataObject) -> None:
    """Nothing depends on how the bytes came."""
    mask = Mask(forms)
    out = b"".join(mask.feed(piece) for piece in pieces_of(data, text))
    rest = mask.finish()
    expected = masked(forms, text)
    assert len(out + rest) == len(text)
    assert out == expected[: len(out)]
    assert all(got in (want, ord("*")) for got, want in zip(rest, expected[len(out) :], strict=True))
    assert (mask.hits > 0) == (expected != text)


@given(small_forms, small_text, st.data())
def test_where_a_service_pauses_no_more_than_the_beginning_is_seen(
    forms: list[bytes], text: bytes, data: st.DataObject
) -> None:
    """At most three bytes of an occurrence, wherever it is cut."""
    mask = Mask(forms)
    out = b""
    for piece in pieces_of(data, text):
        out += mask.feed(piece)
        if data.draw(st.booleans()):
            out += mask.settle()
            assert not mask.is_holding
    out += mask.finish()
    assert len(out) == len(text)
    for form in forms:
        assert form not in out
    for form in shortest(forms):
        at = text.find(form)
        while at >= 0:
            assert set(out[at + SHOWN : at + len(form)]) == {ord("*")}
            at = text.find(form, at + 1)


@given(st.binary(max_size=40), st.binary(max_size=40), st.data())
def test_in_base64_at_each_place_too(before: bytes, after: bytes, data: st.DataObject) -> None:
    """As `AUTH PLAIN` has it, or within something longer."""
    mask = Mask([SECRET])
    text = base64.b64encode(before + SECRET + after)
    out = b"".join(mask.feed(piece) for piece in pieces_of(data, text)) + mask.finish()
    core = base64.b64encode(bytes(len(before) % 3) + SECRET)[4:16]
    assert len(out) == len(text)
    assert core in text
    assert core not in out


@given(st.binary(max_size=200), st.data())
def test_what_has_none_of_it_passes_as_it_is(text: bytes, data: st.DataObject) -> None:
    """Nothing else changes."""
    mask = Mask([b"\xff\xfe\xfd\xfc\xfb"])
    text = text.replace(b"\xff", b"").replace(b"//", b"")
    out = b""
    for piece in pieces_of(data, text):
        out += mask.feed(piece) + mask.settle()
    assert out == text
    assert mask.hits == 0


def test_an_answer_that_ends_like_the_secret_begins_does_not_wait_for_the_next() -> None:
    """The last byte of an answer is given out when nothing more comes."""
    mask = Mask([SECRET])
    assert mask.feed(b"Z\0\0\0\5h") == b"Z\0\0\0\5"
    assert mask.settle() == b"h"
    assert mask.feed(b"ello there") == b"ello there"


def test_a_stream_that_ends_within_the_secret_shows_only_its_beginning() -> None:
    """The rest is masked."""
    mask = Mask([SECRET])
    assert mask.feed(b"it is " + SECRET[:-1]) == b"it is "
    assert mask.finish() == b"hun" + b"*" * (len(SECRET) - 1 - SHOWN)


def test_what_is_too_short_is_not_looked_for_and_nothing_costs_nothing() -> None:
    """The documented limit; and the same object where there is nothing to look for."""
    piece = b"abc" * 100
    assert Mask([b"abc"]).feed(piece) == piece
    assert Mask([]).feed(piece) is piece


def test_occurrences_are_counted_once() -> None:
    """Across pieces, and in another form."""
    mask = Mask([SECRET])
    mask.feed(SECRET + b" " + SECRET[:5])
    mask.feed(SECRET[5:] + b" and " + base64.b64encode(SECRET))
    assert mask.hits == 3
