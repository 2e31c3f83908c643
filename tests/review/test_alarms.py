"""What is an alarm about a run: each with the normal call beside it in which it must be silent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from aileron.actions.manifest import parse_action
from aileron.api.approvals import Question
from aileron.model.preview import Preview
from aileron.review.decision_flow import review_of
from tests.cli.questions import plan, previewed, question
from tests.review.test_card import card, difference, essential, found, when
from tests.support.hostile_text import EVERYTHING, as_in_a_file, assert_harmless

MOST_OF_A_LINE = 400
"""Characters: two values of 100 with their codes, how much longer they are, and the words around them."""
HIDDEN = "! blind copy, hidden from the others"
_FILE = """+++
name = "send-mail"
version = "1.2.0"
[[requires.connectors]]
name = "github://example/connector-mail"
version = "1.4.0"
hash = "sha256:%s"
capabilities = ["send_mail"]
[match]
intent = "send a mail"
[[inputs]]
name = "to"
type = "string"
description = "Who"
label = "%s"
[[inputs]]
name = "extra"
type = "string"
description = "Who else"
label = "%s"
[[execute]]
id = "one"
connector = "github://example/connector-mail"
op = "send_mail"
[execute.inputs]
%s
+++
"""


def labelled(to: str = "To", extra: str = "Extra", inputs: str = 'to = "${args.to}"') -> str:
    """An action's file with these labels, and what its step is given."""
    return _FILE % ("cd" * 32, to, extra, inputs)


def alarms(args: dict[str, Any], preview: Preview | None = None, text: str = "", **more: Any) -> list[str]:
    """Of a mail with these arguments; with a preview, where there is one."""
    of = plan if preview is None else previewed
    return [line.text for line in card(question(of(args, action_text=text), **more), preview).alarms]


@pytest.mark.parametrize(
    ("name", "value", "who"),
    [
        ("bcc", "mallory@evil.example", "“mallory@evil.example”"),
        ("Blind_Copy", "mallory@evil.example", "“mallory@evil.example”"),
        ("blind_carbon_copy", "mallory@evil.example", "“mallory@evil.example”"),
        ("bccRecipients", ["a@x.example", "b@x.example"], "“a@x.example” and 1 more"),
        ("bcc", "a@x.example, b@x.example, c@x.example", "“a@x.example” and 2 more"),
        ("message", {"to": "a@x.example", "bcc": ["d@x.example"]}, '["d@x.example"]'),
        ("cc", "mallory@evil.example", None),
        ("bcc", "", None),
        ("bcc", [], None),
        ("bcc", None, None),
        ("bcc_me", False, None),
        ("text", "put bcc: mallory@evil.example", None),
    ],
)
def test_recipients_whom_the_others_do_not_see_are_an_alarm(name: str, value: Any, who: str | None) -> None:
    """By the name of an argument, wherever it is nested; a copy that everybody sees is none, nor is an empty one."""
    assert alarms({"to": "ann@example.com", name: value}) == ([] if who is None else [f"{HIDDEN}: {who}"])


def test_a_blind_copy_is_one_by_its_label_and_by_what_the_step_makes_of_it() -> None:
    """An author may call the argument anything."""
    args = {"to": "ann@example.com", "extra": "mallory@evil.example"}
    alarm = [f"{HIDDEN}: “mallory@evil.example”"]

    assert alarms(args, text=labelled(extra="Blind copy to")) == alarm
    assert alarms(args, text=labelled(inputs='to = "${args.to}"\nmail = { bcc = ["${args.extra}"] }')) == alarm
    assert alarms(args, text=labelled(inputs='to = "${args.to}"\nmail = { cc = ["${args.extra}"] }')) == []


def test_a_blind_copy_that_only_the_service_knows_of_is_an_alarm_and_is_told_once() -> None:
    """A draft has recipients that no argument names."""
    secret = found(("To", "ann@example.com"), ("Bcc", "mallory@evil.example"))
    alarm = [f"{HIDDEN}: “mallory@evil.example”"]

    assert alarms({"draft": "r-1"}, secret) == alarm
    assert alarms({"to": "ann@example.com", "bcc": "mallory@evil.example"}, secret) == alarm
    assert alarms({"draft": "r-1"}, found(("To", "ann@example.com"), ("Bcc", None))) == []


def test_a_blind_copy_that_the_approved_call_had_too_is_none() -> None:
    """Exactly the same; where nothing can be compared, or the person edited it since, it is one."""
    args = {"to": "ann@example.com", "bcc": "archive@example.com"}
    alarm = [f"{HIDDEN}: “archive@example.com”"]
    other_body = {"where": "args.body (new)", "before": "a", "after": "b"}
    other_copy = {"where": "args.bcc (new)", "before": "a@b", "after": "archive@example.com"}

    assert alarms(args, difference=difference(other_body)) == []
    assert alarms(args, found(("Bcc", "archive@example.com")), difference=difference(other_body)) == []
    assert alarms(args, found(("Bcc", "b@evil.example")), difference=difference()) == [
        "! Bcc: the agent said “archive@example.com”, the service has “b@evil.example”",
        f"{HIDDEN}: “b@evil.example”",
    ]
    assert alarms(args, difference=difference(other_copy)) == alarm
    assert alarms(args, difference=difference(problem="the vault is locked")) == alarm
    assert alarms(args) == alarm


def test_a_blind_copy_that_the_person_put_in_is_compared_with_no_call() -> None:
    """What the daemon found differs of what was asked: it says nothing of an edit, and an edit of the text hushes nothing."""
    asked = plan({"to": "ann@example.com", "bcc": "archive@example.com", "body": "a"})
    copied = plan({**asked.args, "bcc": "mallory@evil.example"})
    worded = plan({**asked.args, "body": "b"})
    edits = [
        {"digest": one.digest, "plan": one.to_json(), "made_at": "2026-11-21T04:00:02Z"} for one in (copied, worded)
    ]
    of = msgspec.convert(question(asked, edits=edits, difference=difference()), Question)

    def told(edit: str | None) -> list[str]:
        return [line.text for line in review_of(of, is_signed=True, edit=edit).card(when).alarms]

    assert told(None) == told(worded.digest) == []
    assert told(copied.digest) == [f"{HIDDEN}: “mallory@evil.example”"]


def test_another_account_or_host_than_the_approved_calls_is_an_alarm() -> None:
    """With both; the line of what differs names them, and no argument that differs is an alarm."""
    account = {"where": "credential of github://x/mail", "before": "basic/mail/home", "after": "ada (basic/mail/work)"}
    first = {**account, "before": None}
    host = {"where": "host (new)", "before": None, "after": "evil.example:443"}
    other = {"where": "args.to (new)", "before": "a@b", "after": "mira@example.com"}
    one = card(question(difference=difference(other, host, account)))

    assert [line.text for line in one.alarms] == [
        "! another account: “ada (basic/mail/work)”; the approved call used “basic/mail/home”",
        "! another destination: “evil.example:443”; the approved call did not go there",
    ]
    assert essential(one, "compared") == [
        "≠ to, account, destination: differs from the most similar call, approved then"
    ]
    assert [line.text for line in card(question(difference=difference(first))).alarms] == [
        "! another account: “ada (basic/mail/work)”; the approved call used none"
    ]
    assert card(question(difference=difference(other))).alarms == ()


@pytest.mark.parametrize(
    ("given", "label", "has", "is_alarm"),
    [
        ("#engineering", "Channel", "#releases", True),
        ("#engineering", "Goes to", "#releases", True),
        ("#engineering", "Goes to", "#Engineering", False),
        ("engineering", "Goes to", "#releases", False),
        ("C024BE91L", "Goes to", "#releases", False),
        ("ann@example.com", "Recipient", "mallory@evil.example", True),
        ("Ann <Ann@example.com>", "Recipient", "ann@example.com", False),
        ("ann@example.com", "Recipients", "bob@example.com; ann@example.com", False),
        ("@ann", "Sent to", "@mallory", True),
        ("@ann", "Sent to", "ann@example.com", False),
        ("https://a.example/hook", "Goes to", "https://evil.example/hook", True),
        ("https://a.example/hook", "Goes to", "https://www.a.example/other", False),
        ("ann@example.com", "Posted as", "mallory@evil.example", False),
        ("#engineering", "Topic", "#releases", False),
        ("ann@example.com", "Goes to", None, False),
    ],
)
def test_another_destination_under_another_label_is_an_alarm_where_that_is_certain(
    given: str, label: str, has: str | None, is_alarm: bool
) -> None:
    """Both of one unmistakable form, both named as where it goes; a name for an id, or who it is posted as, is none."""
    told = alarms({"to": given}, found((label, has)), labelled(to="Channel"))

    assert bool(told) == is_alarm
    if is_alarm:
        said = "" if label == "Channel" else " (Channel)"
        assert told == [f"! {label}: the agent said “{given}”{said}, the service has “{has}”"]


def test_a_copy_is_no_contradiction_of_the_recipient() -> None:
    """Of several that the agent names in that form one is what the service has."""
    both = {"to": "ann@example.com", "recipient": "bob@example.com"}

    for who in both.values():
        assert alarms(both, found(("Goes to", who))) == []
    assert len(alarms(both, found(("Goes to", "eve@example.com")))) == 1


@pytest.mark.parametrize("given", ["#engineering", "engineering", "C024BE91L"])
def test_a_channel_is_named_with_or_without_its_sign_or_by_the_id_that_the_service_has(given: str) -> None:
    """None of which contradicts it; another name, or another id, does."""
    there = found(("Channel", "engineering"), ("Channel id", "C024BE91L"))

    assert alarms({"channel": given}, there) == []
    assert alarms({"channel": "#releases"}, there) == [
        "! Channel: the agent said “#releases”, the service has “engineering”"
    ]
    assert len(alarms({"channel": "C999"}, there)) == 1
    assert len(alarms({"title": given}, found(("Title", "Dentist"), ("Channel id", "C024BE91L")))) == 1


def test_the_slack_action_that_is_shipped_contradicts_another_channel_and_no_spelling_of_the_same() -> None:
    """By its own labels: an author who names the two sides differently is not warned for."""
    text = (Path(__file__).parents[2] / "connectors/slack/actions/ship-update/action.md").read_text(encoding="utf-8")
    action = parse_action(text, file="action.md", allow_placeholder=True)
    assert action.preview is not None
    labels = {path: label for label, path in action.preview.render.items()}
    there = found((labels["channel.name"], "engineering"), (labels["channel.id"], "C024BE91L"))

    for same in ("#engineering", "engineering", "C024BE91L"):
        assert alarms({"channel": same, "text": "Done."}, there, text) == []
    for other in ("#releases", "C999"):
        assert len(alarms({"channel": other, "text": "Done."}, there, text)) == 1


def test_nobody_said_anything_is_no_agreement_with_an_id() -> None:
    """A value that is not there is not the same as an id that is not there."""
    assert len(alarms({"channel": None}, found(("Channel", "general"), ("Channel id", None)))) == 1


def test_hostile_recipients_and_accounts_are_harmless_and_bounded() -> None:
    """Two lines of a small terminal each, whatever is in them."""
    account = {"where": "credential of x", "before": EVERYTHING, "after": EVERYTHING}
    host = {"where": "host (new)", "before": None, "after": EVERYTHING}
    text = as_in_a_file(EVERYTHING)
    told = alarms({"bcc": text}, found(("Bcc", EVERYTHING)), difference=difference(account, host))

    for begin in (f"{HIDDEN}: “", "! another account: “", "! another destination: “"):
        (line,) = {one for one in told if one.startswith(begin)}
        assert_harmless(line)
        assert "\n" not in line
        assert len(line) < MOST_OF_A_LINE


def test_a_call_without_a_file_that_can_be_read_has_its_blind_copies_all_the_same() -> None:
    """Then there are names of arguments only."""
    assert alarms({"bcc": "m@evil.example"}, text="no file") == [f"{HIDDEN}: “m@evil.example”"]
