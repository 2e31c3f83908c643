"""Alarms about a run: each beside a normal call in which it must be silent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from aileron.actions.manifest import parse_action
from aileron.api.approvals import Question
from aileron.cards.decision_flow import review_of
from aileron.model.preview import Preview
from tests.cards.test_card import card, difference, essential, found, when
from tests.cli.questions import plan, previewed, question
from tests.support.hostile_text import EVERYTHING, as_in_a_file, assert_harmless

MOST_OF_A_LINE = 400
"""Most characters of an alarm: two values of 100 with their codes, the counts of what is left out, and the words around them."""
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
    """Return an action's file with these labels and these inputs of its step."""
    return _FILE % ("cd" * 32, to, extra, inputs)


def alarms(args: dict[str, Any], preview: Preview | None = None, text: str = "", **more: Any) -> list[str]:
    """Return the alarms of a mail with these arguments, and with a preview if one is given."""
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
def test_blind_copy_recipients_are_an_alarm(name: str, value: Any, who: str | None) -> None:
    """The argument's name decides at any depth; a visible copy is no alarm, nor is an empty blind copy."""
    assert alarms({"to": "ann@example.com", name: value}) == ([] if who is None else [f"{HIDDEN}: {who}"])


def test_a_blind_copy_is_recognized_by_its_label_or_the_steps_input_name() -> None:
    """The argument itself may have any name."""
    args = {"to": "ann@example.com", "extra": "mallory@evil.example"}
    alarm = [f"{HIDDEN}: “mallory@evil.example”"]

    assert alarms(args, text=labelled(extra="Blind copy to")) == alarm
    assert alarms(args, text=labelled(inputs='to = "${args.to}"\nmail = { bcc = ["${args.extra}"] }')) == alarm
    assert alarms(args, text=labelled(inputs='to = "${args.to}"\nmail = { cc = ["${args.extra}"] }')) == []


def test_a_blind_copy_recipient_that_only_the_preview_shows_is_an_alarm() -> None:
    """A stored draft may have recipients that no argument names."""
    secret = found(("To", "ann@example.com"), ("Bcc", "mallory@evil.example"))
    alarm = [f"{HIDDEN}: “mallory@evil.example”"]

    assert alarms({"draft": "r-1"}, secret) == alarm
    assert alarms({"to": "ann@example.com", "bcc": "mallory@evil.example"}, secret) == alarm
    assert alarms({"draft": "r-1"}, found(("To", "ann@example.com"), ("Bcc", None))) == []


def test_a_blind_copy_recipient_that_the_last_approved_call_also_had_is_no_alarm() -> None:
    """The copy must be exactly equal; a different value, or no call to compare with, is an alarm."""
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


def test_a_blind_copy_recipient_that_an_edit_changed_is_an_alarm() -> None:
    """The daemon compared only the original with the approved call; an edit of the text alone raises no alarm."""
    asked = plan({"to": "ann@example.com", "bcc": "archive@example.com", "body": "a"})
    copied = plan({**asked.args, "bcc": "mallory@evil.example"})
    worded = plan({**asked.args, "body": "b"})
    edits = [
        {"digest": edited.digest, "plan": edited.to_json(), "made_at": "2026-11-21T04:00:02Z"}
        for edited in (copied, worded)
    ]
    of = msgspec.convert(question(asked, edits=edits, difference=difference()), Question)

    def told(edit: str | None) -> list[str]:
        return [line.text for line in review_of(of, is_signed=True, edit=edit).card(when).alarms]

    assert told(None) == told(worded.digest) == []
    assert told(copied.digest) == [f"{HIDDEN}: “mallory@evil.example”"]


def test_an_account_or_host_that_differs_from_the_approved_call_is_an_alarm() -> None:
    """The alarm names both values; an argument that differs is no alarm."""
    account = {"where": "credential of github://x/mail", "before": "basic/mail/home", "after": "ada (basic/mail/work)"}
    first = {**account, "before": None}
    host = {"where": "host (new)", "before": None, "after": "evil.example:443"}
    other = {"where": "args.to (new)", "before": "a@b", "after": "mira@example.com"}
    run_card = card(question(difference=difference(other, host, account)))

    assert [line.text for line in run_card.alarms] == [
        "! another account: “ada (basic/mail/work)”; the approved call used “basic/mail/home”",
        "! another destination: “evil.example:443”; the approved call did not go there",
    ]
    assert essential(run_card, "compared") == [
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
def test_a_destination_that_differs_under_another_label_is_an_alarm_only_if_unambiguous(
    given: str, label: str, has: str | None, is_alarm: bool
) -> None:
    """Both values need one clear form and a destination's label; a name beside an id is no alarm, nor a sender."""
    told = alarms({"to": given}, found((label, has)), labelled(to="Channel"))

    assert bool(told) == is_alarm
    if is_alarm:
        said = "" if label == "Channel" else " (Channel)"
        assert told == [f"! {label}: the agent said “{given}”{said}, the service has “{has}”"]


def test_a_preview_recipient_that_is_among_the_agents_recipients_is_no_contradiction() -> None:
    """The agent also names a copy; the service's value must only be one of the named ones."""
    both = {"to": "ann@example.com", "recipient": "bob@example.com"}

    for who in both.values():
        assert alarms(both, found(("Goes to", who))) == []
    assert len(alarms(both, found(("Goes to", "eve@example.com")))) == 1


@pytest.mark.parametrize("given", ["#engineering", "engineering", "C024BE91L"])
def test_a_channels_name_with_or_without_hash_sign_and_its_id_are_treated_as_the_same_channel(given: str) -> None:
    """All three spellings agree with the service; another name, or another id, does not."""
    there = found(("Channel", "engineering"), ("Channel id", "C024BE91L"))

    assert alarms({"channel": given}, there) == []
    assert alarms({"channel": "#releases"}, there) == [
        "! Channel: the agent said “#releases”, the service has “engineering”"
    ]
    assert len(alarms({"channel": "C999"}, there)) == 1
    assert len(alarms({"title": given}, found(("Title", "Dentist"), ("Channel id", "C024BE91L")))) == 1


def test_the_shipped_slack_action_raises_an_alarm_only_for_a_different_channel() -> None:
    """The labels are the action's own: if its two sides had different ones, there would be no warning."""
    text = (Path(__file__).parents[2] / "connectors/slack/actions/slack-ship-update/action.md").read_text(
        encoding="utf-8"
    )
    action = parse_action(text, file="action.md", allow_placeholder=True)
    assert action.preview is not None
    labels = {path: label for label, path in action.preview.render.items()}
    there = found((labels["channel.name"], "engineering"), (labels["channel.id"], "C024BE91L"))

    for same in ("#engineering", "engineering", "C024BE91L"):
        assert alarms({"channel": same, "text": "Done."}, there, text) == []
    for other in ("#releases", "C999"):
        assert len(alarms({"channel": other, "text": "Done."}, there, text)) == 1


def test_a_missing_argument_and_a_missing_id_are_not_treated_as_equal() -> None:
    """Two missing values must not count as equal."""
    assert len(alarms({"channel": None}, found(("Channel", "general"), ("Channel id", None)))) == 1


def test_hostile_recipients_and_accounts_in_alarms_are_escaped_and_bounded() -> None:
    """Each alarm has at most two lines of a small terminal, whatever the values contain."""
    account = {"where": "credential of x", "before": EVERYTHING, "after": EVERYTHING}
    host = {"where": "host (new)", "before": None, "after": EVERYTHING}
    text = as_in_a_file(EVERYTHING)
    told = alarms({"bcc": text}, found(("Bcc", EVERYTHING)), difference=difference(account, host))

    for begin in (f"{HIDDEN}: “", "! another account: “", "! another destination: “"):
        (line,) = {alarm for alarm in told if alarm.startswith(begin)}
        assert_harmless(line)
        assert "\n" not in line
        assert len(line) < MOST_OF_A_LINE


def test_a_blind_copy_is_an_alarm_even_if_the_action_file_is_unreadable() -> None:
    """The arguments' names are enough; labels are unknown then."""
    assert alarms({"bcc": "m@evil.example"}, text="no file") == [f"{HIDDEN}: “m@evil.example”"]
