"""The talk of a stream in a case: how it is written, and which input does not fit it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.connector_tests.talk import Script, read_talk

TALK = (
    "S: 220 ready",
    "C: {tag} LOGIN {user} {user}",
    "S: {tag} OK {user}",
    "C: DATA {42}",
    "S: 354",
    "S: go on",
    "C: ...",
    "C: Subject: Grüße",
    "C: ...",
    "C: .",
    "S: 250 taken",
)
SAID = "a1 LOGIN me me\r\nDATA {42}\r\nDate: now\r\nSubject: Grüße\r\n\r\n..\r\n.\r\n".encode()
ANSWERS = b"a1 OK me\r\n354\r\ngo on\r\n250 taken\r\n"


def told(pieces: list[bytes]) -> bytes:
    """Return what the service says to these pieces, after its greeting."""
    script = Script(read_talk(TALK))
    assert script.begin() == b"220 ready\r\n"
    said = b"".join(map(script.hear, pieces))
    assert script.expected is None
    return said


@given(st.lists(st.integers(0, len(SAID)), max_size=8).map(sorted))
def test_a_scripted_conversation_does_not_depend_on_how_bytes_are_split(cuts: list[int]) -> None:
    """`{NAME}` keeps text for the service's lines, a number in braces is literal, and `...` skips to the next match."""
    assert told([SAID[at:to] for at, to in zip([0, *cuts], [*cuts, len(SAID)], strict=True)]) == ANSWERS


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"a1 NOOP\r\n", "'a1 NOOP'; expected '{tag} LOGIN {user} {user}'"),
        (b"a1 LOGIN me you\r\n", "expected '{tag} LOGIN {user} {user}'"),
        (b"a1 LOGIN me me \r\n", "expected '{tag} LOGIN {user} {user}'"),
        (SAID + b"QUIT\r\n", "'QUIT'; expected nothing more"),
        (b"x" * 2_000_000, "a line of more than 1048576 bytes"),
    ],
    ids=["another", "two-words-of-one-name", "a-blank-more", "too-much", "endless"],
)
def test_a_line_that_differs_from_the_conversation_is_reported_with_the_expected_line(said: bytes, words: str) -> None:
    """The message quotes the expected line as the case has it."""
    with pytest.raises(ValueError, match=re.escape(words)):
        told([said])


@pytest.mark.parametrize(
    ("talk", "words"),
    [
        ((), "0 lines; from 1 to 2000"),
        (("S: a",) * 2001, "2001 lines; from 1 to 2000"),
        (("S: a", "hello"), "line 2, 'hello', begins with neither"),
        (("S: {tag} OK",), "line 1 says {tag}, which no line of the connector before has"),
        (("C: a", "C: ..."), "the last is not 'C: ...'"),
        (("C: ...", "S: a"), "line 2 follows 'C: ...'"),
        (("C: ...", "C: ..."), "line 2 follows 'C: ...'"),
    ],
    ids=["nothing", "too-much", "nobody", "unheard", "open-end", "any-then-service", "any-then-any"],
)
def test_an_impossible_conversation_is_reported_before_it_runs(talk: tuple[str, ...], words: str) -> None:
    """The mistake is found before anything runs."""
    with pytest.raises(ValueError, match=re.escape(words)):
        read_talk(talk)
