"""Arguments, recipients and duration that a standing grant leaves open; a narrow grant has no alarm."""

from __future__ import annotations

from typing import Any

import pytest

from aileron.cards.card import Card, Line, Tone
from aileron.model.canonical import sha256_digest
from aileron.model.consent import Constraint, GrantConsent
from tests.cards.test_alarms import labelled
from tests.cards.test_card import card
from tests.cli.questions import subject_question
from tests.support.hostile_text import EVERYTHING, as_in_a_file, assert_harmless

FILE = labelled(to="To", extra="Text")
OPEN = Constraint(argument="extra", operator="prefix", value="[ci] ")
CLOSED = Constraint(argument="to", operator="equals", value="ann@example.com")
ALWAYS = "! NO LIMIT: any arguments, whoever gets it"


def granted(*limits: Constraint, text: str | None = FILE, until: str = "2026-12-20T04:00:00Z", **more: Any) -> Card:
    """Return the card of a grant for the action of `text`, requested on 21 November 2026."""
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


def alarms(grant_card: Card) -> list[str]:
    """Return the alarms, which stay above what scrolls."""
    return [line.text for line in grant_card.alarms]


def left_open(grant_card: Card) -> list[Line]:
    """Return the lines that say which arguments are left open."""
    (section, *_) = grant_card.sections
    return [line for fact in section.facts if fact.name == "left open" for line in fact.lines]


def test_a_standing_grant_for_any_recipient_is_an_alarm_and_lists_unconstrained_arguments() -> None:
    """A grant with a fixed recipient leaves only a text open, which is no alarm."""
    assert alarms(granted(OPEN)) == ["! no limit on To"]
    assert alarms(granted(CLOSED)) == []
    assert left_open(granted(CLOSED)) == [Line("any value of Text", Tone.PLAIN)]
    assert alarms(granted(CLOSED, OPEN)) == []
    assert left_open(granted(CLOSED, OPEN)) == []


def test_an_argument_that_a_standing_grant_requires_to_be_absent_is_not_unconstrained() -> None:
    """The console requests such a grant for calls with exactly the same arguments."""
    none = Constraint(argument="to", operator="absent", value=None)
    grant_card = granted(none, OPEN)

    assert alarms(grant_card) == []
    assert left_open(grant_card) == []
    assert "without to" in {line.text for fact in grant_card.sections[0].facts for line in fact.lines}


@pytest.mark.parametrize("label", ["Bcc", "Blind copy", "Cc", "Recipient", "Invited", "IBAN"])
def test_a_standing_grants_open_recipient_is_recognized_by_the_arguments_label(label: str) -> None:
    """An optional argument counts too, because a later call can have it."""
    assert alarms(granted(CLOSED, text=labelled(extra=label))) == [f"! no limit on {label}"]


def test_a_standing_grant_without_any_limit_has_a_single_alarm() -> None:
    """The alarm for a grant of every call makes the others redundant."""
    assert alarms(granted()) == [ALWAYS]


@pytest.mark.parametrize("other", [None, FILE + "\n"], ids=["none", "another file"])
def test_without_the_exact_action_file_the_unconstrained_arguments_of_a_grant_are_unknown(other: str | None) -> None:
    """A false file with fewer arguments must not silence the alarm; a decided question has no such alarm."""
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
def test_a_standing_grant_for_more_than_a_year_is_an_alarm(until: str, alarm: str | None) -> None:
    """The time counts from the request."""
    assert alarms(granted(CLOSED, until=until)) == ([] if alarm is None else [alarm])


@pytest.mark.parametrize(("effect", "is_heavy"), [("read", False), ("send", True)])
def test_a_standing_grant_of_an_ungated_action_that_only_reads_is_no_alarm_if_its_file_is_known(
    effect: str, is_heavy: bool
) -> None:
    """The author's effect of each step decides."""
    text = FILE.replace('op = "send_mail"', f'op = "send_mail"\neffect = "{effect}"')

    assert (granted(CLOSED, text=text).verdict.tone is Tone.ALARM) == is_heavy
    assert granted(CLOSED, text=text).word == "allow"
    assert granted(CLOSED, text=None, granted_text=text).verdict.tone is Tone.ALARM


def test_a_hostile_expiry_time_of_a_standing_grant_is_escaped_on_a_single_line() -> None:
    """Labels need no test, because the rules for action files exclude hostile ones."""
    grant_card = granted(OPEN, until=as_in_a_file(EVERYTHING))

    assert [line.text.split()[1] for line in grant_card.alarms] == ["no", "until"]
    for line in (*grant_card.alarms, *left_open(grant_card)):
        assert_harmless(line.text)
        assert "\n" not in line.text


def test_a_standing_grant_of_a_gated_action_that_only_reads_is_an_alarm() -> None:
    """The operation's name may be the only sign that it reads, as for an imported POST. Without a gate, the author
    states that the action reads.
    """
    alone = FILE.replace("[execute.inputs]", 'effect = "read"\n[execute.inputs]')
    asks = alone.replace("[[execute]]", "[approval]\nrequired = true\n[[execute]]")

    assert granted(CLOSED, text=asks).verdict.text == "! LASTING PERMISSION"
    assert granted(CLOSED, text=alone).verdict.text == "~ lasting permission"
