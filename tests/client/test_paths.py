"""Paths of requests: a name stays one segment, whatever it contains."""

from __future__ import annotations

from urllib.parse import quote

from hypothesis import example, given
from hypothesis import strategies as st

from aileron.client import path_of


@given(st.lists(st.text(st.characters(codec="utf-8")), min_size=1, max_size=3))
@example(["v1", "actions", "../status"])
@example(["v1", "action-approvals", "act-20261128T174400-384504e518c1e74b852e"])
def test_a_segment_of_a_url_path_is_fully_encoded(segments: list[str]) -> None:
    """A segment is quoted as the standard library quotes it, which is not imported for plain names."""
    assert path_of(*segments) == "".join(f"/{quote(segment, safe='')}" for segment in segments)
