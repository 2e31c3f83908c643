"""The facts of a row: the worst alarm, the questions that are alike, and a loud mark if a row cannot be read."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aileron.api.approvals import ApprovalEntry
from aileron.cards.listed import UNREAD, listed
from aileron.cards.row import rows_for
from aileron.model.consent import SettingsConsent
from tests.cli.alike import mail
from tests.cli.questions import SUBJECTS, plan, question, subject_question
from tests.support.listed import in_a_list
from tests.support.ten_requests import payment


def row(asked: dict[str, Any]) -> tuple[str, str, str]:
    """Return verdict, alarm and title of a row."""
    (of,) = rows_for(entries(asked)).values()
    return of.verdict, of.alarm, of.title


def entries(*asked: dict[str, Any]) -> list[ApprovalEntry]:
    """Return questions as entries, as a surface gets them."""
    known = ApprovalEntry.__struct_fields__
    rows = [{name: entry[name] for name in entry if name in known} for entry in in_a_list(asked)]
    return msgspec.convert(rows, list[ApprovalEntry])


@pytest.mark.parametrize(
    ("args", "alarm"),
    [
        ({"to": "mira@example.com"}, ""),
        ({"to": "mira@ex\u0430mple.com"}, "! look-alike letters"),
        ({"bcc": "m@evil.example"}, "! blind copy"),
        ({"bcc": "m@evil.example", "to": "m\u0456ra@example.com"}, "! look-alike letters +1"),
        ({"text": "a\u200db"}, "! hidden characters"),
        ({"text": "pay \U0001d159"}, "! hidden characters"),
        ({"text": "Lunch \U0001f468\u200d\U0001f469\u200d\U0001f467"}, ""),
    ],
    ids=str,
)
def test_a_list_row_shows_the_worst_alarm_of_its_run(args: dict[str, Any], alarm: str) -> None:
    """The number of further alarms is in the row too."""
    assert row(question(plan(args)))[1] == alarm


def test_the_list_row_of_a_consent_has_the_words_of_its_card() -> None:
    """The words are the settings, the action, or the name that looks like another."""
    settings = SettingsConsent(before={"egress.private": []}, after={"egress.private": ["10.0.0.1:443"]})
    likely = msgspec.structs.replace(SUBJECTS["secret"], name="p\u0430ssword")

    assert row(subject_question(settings)) == ("! LASTING", "", "Change the settings “egress.private”")
    assert row(subject_question(SUBJECTS["action_file"]))[:2] == ("! LASTING", "! runs without approval")
    assert row(subject_question(likely)) == (
        "! LASTING",
        "! look-alike letters",
        "Replace the value of the secret “p<U+0430>ssword”",
    )


@pytest.mark.parametrize("stored", [None, b"{}", b"no JSON", b"[]"], ids=str)
@pytest.mark.parametrize("kind", ["action", "grant", "a new kind"])
def test_an_unreadable_question_has_an_alarm_in_the_list(kind: str, stored: bytes | None) -> None:
    """The plan is missing, of another version or broken: the row says so, and no other question is alike."""
    (entry,) = entries({**question(), "kind": kind, "plan": None})
    (told,) = listed([(entry, stored, False)])

    assert (told.verdict, told.weight, told.alarm, told.alike) == ("! UNREADABLE", "heavy", UNREAD, msgspec.UNSET)


@pytest.mark.parametrize(
    ("asked", "differs"),
    [
        (lambda: [mail(1), mail(2)], ["to"]),
        (lambda: [mail(1, note="a"), mail(2, note="b")], ["note", "to"]),
        (lambda: [mail(1, note="a", sign="x"), mail(2, note="b", sign="y")], None),
        (lambda: [mail(1), mail(2, bcc="m@evil.example")], None),
        (lambda: [mail(1), mail(2, to="m\u0456ra@example.com")], None),
        (lambda: [mail(1), {**mail(2), "conversation": [{"question": "why?", "answer": "so"}]}], None),
        (lambda: [mail(1), {**mail(2), "edits": [{"digest": "x", "plan": {}, "made_at": ""}]}], None),
        (lambda: [mail(1), {**mail(2), "status": "approved"}], None),
        (lambda: [paid(1, 1249.5, "EUR"), paid(2, 10_000_000.0, "JPY")], None),
        (lambda: [paid(1, 5.0, "EUR"), paid(2, 6.0, "EUR")], None),
        (lambda: [subject_question(SUBJECTS["grant"], approval_id=f"act-{number}") for number in (1, 2)], None),
    ],
    ids=[
        *("one", "two", "three", "an alarm", "letters", "a conversation", "an edit", "approved"),
        *("currencies", "payments", "permissions"),
    ],
)
def test_questions_are_alike_if_at_most_two_arguments_differ_without_alarm(
    asked: Any, differs: list[str] | None
) -> None:
    """The console's keys `g` and `a` and the page's link follow this one rule."""
    found = [(entry.alike or None, entry.differs or None) for entry in entries(*asked())]

    assert found == ([(None, None)] * 2 if differs is None else [(asked()[0]["approval_id"], differs)] * 2)


def paid(number: int, amount: float, currency: str) -> dict[str, Any]:
    """Return a transfer."""
    return question(payment("Northwind Ltd", amount, currency), approval_id=f"act-{number}")
