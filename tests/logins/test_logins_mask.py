"""Masking: no output has the secret, wherever a service cuts it or pauses; the rest is unchanged, and the length stays."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.logins.mask import SHORTEST, SHOWN, Mask

SECRET = b"hunter2-hunter2"
few = st.sampled_from([b"a", b"b", b"c"])
small_text = st.lists(few, max_size=60).map(b"".join)
small_forms = st.lists(st.lists(few, min_size=SHORTEST, max_size=9).map(b"".join), min_size=1, max_size=3)


def pieces_of(data: st.DataObject, text: bytes) -> list[bytes]:
    """Cut the text anywhere."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def shortest(forms: list[bytes]) -> list[bytes]:
    """Return the forms that do not contain another one."""
    return [form for form in forms if not any(other in form and other != form for other in forms)]


def masked(forms: list[bytes], text: bytes) -> bytes:
    """Mask by the definition: without state, trying every place."""
    stars: set[int] = set()
    for form in shortest(forms):
        for at in range(len(text) - len(form) + 1):
            if text[at : at + len(form)] == form:
                stars.update(range(at, at + len(form)))
    return bytes(ord("*") if at in stars else byte for at, byte in enumerate(text))


@pytest.mark.abuse_case("LP7")
@given(small_forms, small_text, st.data())
def test_masking_does_not_depend_on_how_the_bytes_are_split(
    forms: list[bytes], text: bytes, data: st.DataObject
) -> None:
    """A naive definition without state gives the expected output."""
    mask = Mask(forms)
    out = b"".join(mask.feed(piece) for piece in pieces_of(data, text))
    rest = mask.finish()
    expected = masked(forms, text)
    assert len(out + rest) == len(text)
    assert out == expected[: len(out)]
    assert all(got in (want, ord("*")) for got, want in zip(rest, expected[len(out) :], strict=True))
    assert (mask.hits > 0) == (expected != text)


@pytest.mark.abuse_case("LP7")
@given(small_forms, small_text, st.data())
def test_a_pause_in_the_stream_reveals_at_most_three_bytes_of_a_secret(
    forms: list[bytes], text: bytes, data: st.DataObject
) -> None:
    """Bytes are passed on when no more come, so a secret that arrives in two parts shows its beginning."""
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


@pytest.mark.abuse_case("LP7")
@given(st.binary(max_size=40), st.binary(max_size=40), st.data())
def test_base64_of_the_secret_is_masked_at_each_offset(before: bytes, after: bytes, data: st.DataObject) -> None:
    """`AUTH PLAIN` sends the secret encoded in this way, or within something longer."""
    mask = Mask([SECRET])
    text = base64.b64encode(before + SECRET + after)
    out = b"".join(mask.feed(piece) for piece in pieces_of(data, text)) + mask.finish()
    core = base64.b64encode(bytes(len(before) % 3) + SECRET)[4:16]
    assert len(out) == len(text)
    assert core in text
    assert core not in out


@given(st.binary(max_size=200), st.data())
def test_text_without_the_secret_passes_unchanged(text: bytes, data: st.DataObject) -> None:
    """The text does not even contain the secret's first byte."""
    mask = Mask([b"\xff\xfe\xfd\xfc\xfb"])
    text = text.replace(b"\xff", b"").replace(b"//", b"")
    out = b""
    for piece in pieces_of(data, text):
        out += mask.feed(piece) + mask.settle()
    assert out == text
    assert mask.hits == 0


def test_an_answer_that_ends_with_the_beginning_of_the_secret_is_not_held_back_for_ever() -> None:
    """The last byte of an answer is passed on when no more bytes come: a client would wait for it."""
    mask = Mask([SECRET])
    assert mask.feed(b"Z\0\0\0\5h") == b"Z\0\0\0\5"
    assert mask.settle() == b"h"
    assert mask.feed(b"ello there") == b"ello there"


def test_a_stream_that_ends_within_the_secret_shows_only_its_beginning() -> None:
    """Three bytes are shown, and the rest is masked."""
    mask = Mask([SECRET])
    assert mask.feed(b"it is " + SECRET[:-1]) == b"it is "
    assert mask.finish() == b"hun" + b"*" * (len(SECRET) - 1 - SHOWN)


def test_a_secret_shorter_than_the_documented_minimum_is_not_masked() -> None:
    """Three bytes are too short. Without any secret, the very same object is returned."""
    piece = b"abc" * 100
    assert Mask([b"abc"]).feed(piece) == piece
    assert Mask([]).feed(piece) is piece


def test_each_occurrence_of_the_secret_is_counted_once() -> None:
    """An occurrence may be split over pieces, or be in another encoding."""
    mask = Mask([SECRET])
    mask.feed(SECRET + b" " + SECRET[:5])
    mask.feed(SECRET[5:] + b" and " + base64.b64encode(SECRET))
    assert mask.hits == 3
