"""The id of a line that is not a valid message: found however the line is cut, and whatever its members contain."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from aileron.mcp.unreadable import IdScanner, id_in

TEXTS = st.text(alphabet='ab"\\{}[]:,é\n', max_size=20)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=30,
)
MEMBERS = st.dictionaries(TEXTS.filter(lambda name: name not in ("result", "error")), VALUES, max_size=4)
IDS = st.integers() | TEXTS


@given(before=MEMBERS, after=MEMBERS, request_id=IDS, sizes=st.lists(st.integers(1, 9), min_size=1))
def test_the_id_of_an_invalid_message_is_found_however_its_bytes_are_split(
    before: dict[str, Any], after: dict[str, Any], request_id: int | str, sizes: list[int]
) -> None:
    """A nested "id" is not mistaken for the message's, and brackets and quotes in strings are not structure."""
    line = json.dumps({**before, "params": {"id": "inside", **after}, "id": request_id}).encode()
    scanner, rest, cut = IdScanner(), line, 0
    while rest:
        size = sizes[cut % len(sizes)]
        scanner.feed(rest[:size])
        rest, cut = rest[size:], cut + 1

    assert scanner.found() == id_in(line) == request_id


@given(st.binary(max_size=200))
def test_the_id_scanner_accepts_any_bytes_without_an_exception(line: bytes) -> None:
    """The scanner never raises an exception."""
    assert type(id_in(line)) in (int, str, type(None))
