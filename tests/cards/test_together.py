"""The card of several requests, without a console: common facts, separate ones, and that the card of each is made once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aileron.api.approvals import Question
from aileron.cards import card, decision_flow
from aileron.cards.apart import why_apart_unread
from aileron.cards.card import Card
from aileron.cards.decision_flow import as_told, review_of
from aileron.cards.together import Apart, card_of_several
from aileron.model.preview import Preview, PreviewField
from tests.cards.test_card import when
from tests.cli.questions import plan, question, rehearsed


def asked(number: int, **more: Any) -> decision_flow.Review:
    """Return one of several mails with the same text, as a surface has it."""
    return by(number, {}, **more)


def by(number: int, asker: dict[str, str], **more: Any) -> decision_flow.Review:
    """Return a mail requested by this asker."""
    of = plan({"to": f"{number}@example.com", "body": "Hello", **more})
    return as_told(msgspec.convert(question(of, **asker), Question))


def test_making_the_card_of_several_requests_makes_each_single_card_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card parses a file and compares a whole preview, so making ten of them twice would be slow."""
    made: list[str] = []
    real = card.card_of

    def counted(of: Question, *others: Any) -> Card:
        made.append(of.digest)
        return real(of, *others)

    monkeypatch.setattr(card, "card_of", counted)
    reviews = [asked(number) for number in (1, 2, 3)]
    assert why_apart_unread(reviews, when) is None  # as before a passphrase is asked for
    combined = card_of_several(reviews, when)

    assert isinstance(combined, Card)
    assert combined.sentence == "3 requests of the action “send-mail”"
    assert made == [review.digest for review in reviews]


def test_a_request_with_a_blind_copy_recipient_shares_no_card_with_other_requests() -> None:
    """Every alarm has that effect; without the blind copy the requests share a card."""
    apart = card_of_several([asked(1), asked(2, bcc="mallory@evil.example")], when)

    assert isinstance(apart, Apart)
    assert apart.why.startswith("decide 2 of 2 by itself (Send mail: to “2@example.com”")
    assert apart.why.endswith(": ! blind copy, hidden from the others: “mallory@evil.example”")
    assert isinstance(card_of_several([asked(1), asked(2)], when), Card)


@pytest.mark.parametrize("fields", [None, [PreviewField("Changes", "1 row", multiline=True)]], ids=["failed", "shown"])
def test_runs_limited_to_their_previewed_changes_share_no_card_if_a_preview_failed(
    fields: list[PreviewField] | None,
) -> None:
    """A failed preview separates the requests and says so on each card; one that is not loaded yet does not."""
    reviews = [
        review_of(
            msgspec.convert(question(rehearsed({"to": f"{number}@b", "body": "Hello"})), Question), is_signed=True
        )
        for number in (1, 2)
    ]
    assert [review.why_no_yes for review in reviews] == [
        "only what a preview showed is changed, and it is not loaded: load the current state first"
    ] * 2
    assert why_apart_unread(reviews, when) is None
    read = [review.with_preview(Preview(fields, None if fields else "no such table", None)) for review in reviews]
    assert (read[0].why_no_yes is None) is (fields is not None)
    assert isinstance(card_of_several(read, when), Card) is (fields is not None)


def test_different_requesters_of_several_requests_are_each_named_on_the_card() -> None:
    """A common asker is named once; two agents are two lines on the card, and neither is left out."""
    claude, codex = ({"agent": name, "folder": f"/home/{name}"} for name in ("claude", "codex"))
    apart = card_of_several([by(1, claude), by(2, codex)], when)
    alike = card_of_several([by(1, claude), by(2, claude)], when)

    assert isinstance(apart, Card)
    assert isinstance(alike, Card)
    assert "asked by" not in {fact.name for fact in apart.essentials}
    each = apart.sections[0].facts
    assert [[line.text for line in fact.lines if "asked by" in line.text] for fact in each] == [
        ["asked by claude in /home/claude"],
        ["asked by codex in /home/codex"],
    ]
    assert "asked by" in {fact.name for fact in alike.essentials}
    assert not [line for fact in alike.sections[0].facts for line in fact.lines if "asked by" in line.text]
