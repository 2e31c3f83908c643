"""A server's `WWW-Authenticate` header: what follows the grammar is read, and nothing else."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.importing.challenges import Bearer, UnreadableChallengeError, maybe_bearer

META = "https://a.example/m"
READ: list[tuple[list[str], Bearer | None]] = [
    ([], None),
    ([""], None),
    (['Basic realm="x"', "Negotiate YII="], None),
    (["Bearer"], Bearer()),
    (["bearer, Basic"], Bearer()),
    ([f'Bearer resource_metadata="{META}"'], Bearer(resource_metadata=META)),
    ([f'BEARER Resource_Metadata = "{META}" ,, scope="a  b"'], Bearer(resource_metadata=META, scopes=("a", "b"))),
    (['Basic realm="a, Bearer scope=x", Bearer scope=y'], Bearer(scopes=("y",))),
    (['Negotiate YII=, Bearer error="insufficient_scope"'], Bearer(error="insufficient_scope")),
    (['Bearer realm="a\\"b", scope="z"'], Bearer(scopes=("z",))),
    (['DPoP algs="ES256"', "Bearer scope=x"], Bearer(scopes=("x",))),
]
UNREADABLE = [
    'Bearer realm="x',
    'Bearer realm="x" scope="a"',
    "Bearer scope=a, scope=b",
    'Bearer scope="a", Scope="b"',
    'Bearer scope="é ☃"',
    'Bearer scope="a\\\\b"',
    "=x",
    "Bearer scope=a; b",
    f'Bearer scope="{" ".join(f"s{n}" for n in range(65))}"',
    "Bearer " + "x" * 9000,
]


@pytest.mark.parametrize(("lines", "found"), READ)
def test_the_first_bearer_challenge_is_read(lines: list[str], found: Bearer | None) -> None:
    """Other challenges and quoted strings may stand around it."""
    assert maybe_bearer(lines) == found


@pytest.mark.abuse_case("O22")
@pytest.mark.parametrize("line", UNREADABLE)
def test_an_ambiguous_challenge_is_ignored(line: str) -> None:
    """Two parsers could read it differently, so no part of it is used."""
    with pytest.raises(UnreadableChallengeError):
        maybe_bearer([line])


@given(
    st.lists(
        st.one_of(st.text(max_size=60), st.text(st.sampled_from('Bearer scope="a,= \\\t'), max_size=60)), max_size=3
    )
)
def test_any_header_text_is_read_or_refused(lines: list[str]) -> None:
    """The parser raises UnreadableChallengeError and no other exception."""
    with contextlib.suppress(UnreadableChallengeError):
        maybe_bearer(lines)
