"""What a standing grant leaves open: who may get it without a limit, and for how long; and that a narrow one has no alarm."""

from __future__ import annotations

from typing import Any

import pytest

from aileron.model.canonical import sha256_digest
from aileron.model.consent import Constraint, GrantConsent
from aileron.review.card import Card, Line, Tone
from tests.cli.questions import subject_question
from tests.review.test_alarms import labelled
from tests.review.test_card import card
from tests.support.hostile_text import EVERYTHING, as_in_a_file, assert_harmless

FILE = labelled(to="To", extra="Text")
OPEN = Constraint(argument="extra", operator="prefix", value="[ci] ")
CLOSED = Constraint(argument="to", operator="equals", value="ann@example.com")
ALWAYS = "! NO LIMIT: any arguments, whoever gets it"


def granted(*limits: Constraint, text: str | None = FILE, until: str = "2026-12-20T04:00:00Z", **more: Any) -> Card:
    """A grant of the action of `text`, asked for on 21 November 2026."""
    subject = GrantConsent(
        action="send-mail",
        action_digest=sha256_digest((text or FILE).encode()),
        credentials=("basic/mail/home",),
        constraints=limits,
        uses=10,
        until=until,
    )
    sent = {} if text is None else {"granted_text": text}
    return card(subject_question(subject, **{**sent, **more}))


def alarms(one: Card) -> list[str]:
    """Above what scrolls."""
    return [line.text for line in one.alarms]


def left_open(one: Card) -> list[Line]:
    """As it stands among what would be allowed."""
    (section, *_) = one.sections
    return [line for fact in section.facts if fact.name == "left open" for line in fact.lines]


def test_who_gets_it_without_a_limit_is_an_alarm_and_any_other_argument_is_told() -> None:
    """A recipient that is limited leaves only a text open, which is none."""
    assert alarms(granted(OPEN)) == ["! no limit on To"]
    assert alarms(granted(CLOSED)) == []
    assert left_open(granted(CLOSED)) == [Line("any value of Text", Tone.PLAIN)]
    assert alarms(granted(CLOSED, OPEN)) == []
    assert left_open(granted(CLOSED, OPEN)) == []


def test_an_argument_that_must_not_be_given_is_limited() -> None:
    """As the console asks for it where just this call is to run again."""
    none = Constraint(argument="to", operator="absent", value=None)
    one = granted(none, OPEN)

    assert alarms(one) == []
    assert left_open(one) == []
    assert "without to" in {line.text for fact in one.sections[0].facts for line in fact.lines}


@pytest.mark.parametrize("label", ["Bcc", "Blind copy", "Cc", "Recipient", "Invited", "IBAN"])
def test_a_recipient_goes_by_its_label_too(label: str) -> None:
    """Also one that may be left out: a later call may have it."""
    assert alarms(granted(CLOSED, text=labelled(extra=label))) == [f"! no limit on {label}"]


def test_a_grant_without_any_limit_says_so_once() -> None:
    """That it is for every call says all."""
    assert alarms(granted()) == [ALWAYS]


@pytest.mark.parametrize("other", [None, FILE + "\n"], ids=["none", "another file"])
def test_what_a_grant_leaves_open_is_not_known_without_the_very_file_that_it_names(other: str | None) -> None:
    """Nobody can hush the alarm by sending a file with fewer arguments; of what is over it is not asked any more."""
    unknown = ["! no limit on other arguments: the action file is not known here"]
    sent = {} if other is None else {"granted_text": other}

    assert alarms(granted(OPEN, text=None, **sent)) == unknown
    assert alarms(granted(OPEN, text=None, status="denied", **sent)) == []


@pytest.mark.parametrize(
    ("until", "alarm"),
    [
        ("2026-11-21T05:00:00Z", None),
        ("2026-12-20T04:00:00Z", None),
        ("2027-11-21T04:00:00Z", None),
        ("2027-12-21T12:00:00Z", "! until 21 Dec 2027: 1 year"),
        ("2099-12-30T12:00:00Z", "! until 30 Dec 2099: 73 years"),
        ("for ever", "! until for ever: how long that is cannot be told"),
    ],
)
def test_an_end_more_than_a_year_away_is_an_alarm(until: str, alarm: str | None) -> None:
    """From when it was asked."""
    assert alarms(granted(CLOSED, until=until)) == ([] if alarm is None else [alarm])


@pytest.mark.parametrize(("effect", "is_heavy"), [("read", False), ("send", True)])
def test_a_grant_to_read_is_no_alarm_where_its_file_is_known(effect: str, is_heavy: bool) -> None:
    """By what the author says of each step."""
    text = FILE.replace('op = "send_mail"', f'op = "send_mail"\neffect = "{effect}"')

    assert (granted(CLOSED, text=text).verdict.tone is Tone.ALARM) == is_heavy
    assert granted(CLOSED, text=text).word == "allow"
    assert granted(CLOSED, text=None, granted_text=text).verdict.tone is Tone.ALARM


def test_a_hostile_end_is_harmless_and_on_one_line() -> None:
    """A label is, by what a file may hold."""
    one = granted(OPEN, until=as_in_a_file(EVERYTHING))

    assert [line.text.split()[1] for line in one.alarms] == ["no", "until"]
    for line in (*one.alarms, *left_open(one)):
        assert_harmless(line.text)
        assert "\n" not in line.text


def test_a_grant_of_what_asks_although_it_reads_is_no_lighter_for_it() -> None:
    """The name may be all that says it reads, as of an imported POST. What runs alone is lighter: its author says it reads."""
    alone = FILE.replace("[execute.inputs]", 'effect = "read"\n[execute.inputs]')
    asks = alone.replace("[[execute]]", "[approval]\nrequired = true\n[[execute]]")

    assert granted(CLOSED, text=asks).verdict.text == "! LASTING PERMISSION"
    assert granted(CLOSED, text=alone).verdict.text == "~ lasting permission"
