"""Hosts that resemble a known one: a resemblance is reported, but not a host of a known domain, or one that resembles none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.cards.lookalike import looks_like
from aileron.model.consent import Change, ConnectorUpdateConsent
from tests.cards.test_card import card
from tests.cli.questions import SUBJECTS, subject_question

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
def test_a_host_that_resembles_a_known_one_is_reported(host: str) -> None:
    """The cases are joined, continued, with a digit for a letter, and with a letter added, removed or changed."""
    assert looks_like(host, ["other.example", KNOWN]) == KNOWN


@pytest.mark.parametrize(
    "host",
    ["files.acme.example", "acme.example", "a.b.acme.example", "paste.example", "api.other.example", "localhost"],
)
def test_a_host_of_a_known_domain_or_unlike_any_known_host_is_not_reported(host: str) -> None:
    """Alarms that come with every new host would not be read."""
    assert looks_like(host, [KNOWN, "localhost"]) is None


@given(LABELS, st.lists(LABELS, min_size=2, max_size=4))
def test_a_host_below_a_known_domain_is_never_reported(label: str, labels: list[str]) -> None:
    """The owner of a domain controls all names below it."""
    known = ".".join(labels)
    assert looks_like(f"{label}.{known}", [known]) is None


@given(st.text(max_size=60), st.lists(st.text(max_size=60), max_size=4))
def test_any_text_can_be_compared_with_the_known_hosts_without_error(host: str, known: list[str]) -> None:
    """This holds for any text; the result is a known host or None."""
    assert looks_like(host, known) in {None, *known}


@pytest.mark.parametrize(
    ("host", "alarm"),
    [
        ("api.acme-example.test", "! LOOKS LIKE api.acme.example: api.acme-example.test"),
        ("files.acme.example", None),
        ("hooks.other.test", None),
    ],
)
def test_an_update_that_reaches_a_look_alike_host_says_so_first(host: str, alarm: str | None) -> None:
    """The new host is an alarm anyway; the resemblance comes before it."""
    before = SUBJECTS["connector_update"]
    assert isinstance(before, ConnectorUpdateConsent)
    reaches = ("api.acme.example:443", f"{host}:443")
    new = Change(where="reaches", before=None, after=f"{host}:443")
    fields = {name: getattr(before, name) for name in before.__struct_fields__}
    update_card = card(subject_question(ConnectorUpdateConsent(**{**fields, "reaches": reaches, "changes": (new,)})))

    found = [line.text for line in update_card.alarms]
    assert [text for text in found if "LOOKS LIKE" in text] == ([] if alarm is None else [alarm])
    assert f"! ALLOWS MORE: reaches: new, {host}:443" in found
    assert alarm is None or found[0] == alarm
