"""Hosts that may be taken for another: what resembles a known one is told, and what is of its domain, or like none, is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.model.consent import Change, ConnectorUpdateConsent
from aileron.review.lookalike import looks_like
from tests.cli.questions import SUBJECTS, subject_question
from tests.review.test_card import card

LABELS = st.text(alphabet="abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=12)
KNOWN = "api.acme.example"


@pytest.mark.parametrize(
    "host",
    [
        "api.acme-example.test",
        "api.acme.example.evil.example",
        "acmeexample.com",
        "acme.examp1e",
        "api.acme.exmple",
        "api.acne.example",
        "api.acmee.example",
    ],
)
def test_a_name_like_a_known_one_is_told(host: str) -> None:
    """Joined, continued, with a digit for a letter, with one letter more, less or another."""
    assert looks_like(host, ["other.example", KNOWN]) == KNOWN


@pytest.mark.parametrize(
    "host",
    ["files.acme.example", "acme.example", "a.b.acme.example", "paste.example", "api.other.example", "localhost"],
)
def test_a_host_of_a_known_domain_and_one_like_none_are_not(host: str) -> None:
    """An alarm on every new host is read by nobody."""
    assert looks_like(host, [KNOWN, "localhost"]) is None


@given(LABELS, st.lists(LABELS, min_size=2, max_size=4))
def test_what_is_below_a_known_domain_is_never_told(label: str, labels: list[str]) -> None:
    """Whoever has the domain has all of it."""
    known = ".".join(labels)
    assert looks_like(f"{label}.{known}", [known]) is None


@given(st.text(max_size=60), st.lists(st.text(max_size=60), max_size=4))
def test_any_name_is_looked_at(host: str, known: list[str]) -> None:
    """What it may be taken for is one of those that are known."""
    assert looks_like(host, known) in {None, *known}


@pytest.mark.parametrize(
    ("host", "alarm"),
    [
        ("api.acme-example.test", "! LOOKS LIKE api.acme.example: api.acme-example.test"),
        ("files.acme.example", None),
        ("hooks.other.test", None),
    ],
)
def test_an_update_that_reaches_a_look_alike_says_so_first(host: str, alarm: str | None) -> None:
    """Beside the change itself, which is an alarm for every new host."""
    before = SUBJECTS["connector_update"]
    assert isinstance(before, ConnectorUpdateConsent)
    reaches = ("api.acme.example:443", f"{host}:443")
    new = Change(where="reaches", before=None, after=f"{host}:443")
    fields = {name: getattr(before, name) for name in before.__struct_fields__}
    one = card(subject_question(ConnectorUpdateConsent(**{**fields, "reaches": reaches, "changes": (new,)})))

    found = [line.text for line in one.alarms]
    assert [text for text in found if "LOOKS LIKE" in text] == ([] if alarm is None else [alarm])
    assert f"! ALLOWS MORE: reaches: new, {host}:443" in found
    assert alarm is None or found[0] == alarm
