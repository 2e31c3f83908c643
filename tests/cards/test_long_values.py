"""Cards of values of a quarter of a megabyte, each built so that a bad pattern would read it many times: all are made
in time.

A card is made where a person looks: in the console's own thread, and for the page in the daemon. A pattern that takes
the square of a value's length would block either for hours; these tests would fail by their time limit.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pytest

from aileron.api.approvals import Question
from aileron.cards.decision_flow import as_told
from aileron.model.timestamp import local_time
from aileron.tui import rendering
from tests.cards.test_alarms import labelled
from tests.cards.test_card import card, found
from tests.cli.questions import plan, previewed, question

LONG: Final = 250_000
SHAPES: Final = {
    "one word": "ä" + "a" * LONG,
    "an address that never ends": "ä@" + "a" * LONG,
    "words and addresses": "a@b.example wörd " * (LONG // 17),
    "dots": "ä" + "a." * (LONG // 2),
    "signs": "ä" + "@" * LONG,
    "a list that ends in a word": "a@b.example, " + "x" * LONG,
    "a list that ends in a bracket": "a@b.example, <" + "x" * LONG,
    "brackets": "a@b.example, " + "<" * LONG,
    "commas": "a@b," * (LONG // 4),
    "blanks": "ä" + " " * LONG + "@",
    "lines": "ä\n" * (LONG // 2),
    "digits": "1" * LONG,
    "nested": "[" * LONG,
    "an address of a page": "https://" + "ä" * LONG,
    "names": "{args.to}" * (LONG // 9),
}


@pytest.mark.computes_for(30)
@pytest.mark.parametrize("value", SHAPES.values(), ids=SHAPES.keys())
def test_a_card_of_a_long_value_is_made_in_time(value: str) -> None:
    """The value is an agent's argument and a line of a preview; the whole card is laid out, with differences."""
    changes = [{"where": f"args.{name} (new)", "before": value, "after": "x"} for name in ("to", "extra")]
    found_in = {"approval_id": "act-1", "decided_at": "2026-11-20T09:12:00Z", "changes": changes, "problem": None}
    args = {"to": value, "extra": [value, {"bcc": value}]}
    asked: dict[str, Any] = question(plan(args, action_text=labelled()), difference=found_in)
    long_card = card(asked)

    assert (
        any(len(line.text) > LONG // 2 for fact in long_card.sections[0].facts for line in fact.lines) or "\n" in value
    )
    assert rendering.essential_rows(long_card, 80)
    assert rendering.body_rows(long_card.sections, 80, is_whole=False)
    assert card(question(previewed({"to": "ann@example.com"})), found(("Goes to", value), ("Bcc", value))).alarms


def test_the_headline_of_a_long_value_is_short() -> None:
    """Lists show the headline too."""
    review = as_told(msgspec.convert(question(plan({"to": SHAPES["one word"]})), Question))
    assert len(review.card(local_time).sentence) < 500
