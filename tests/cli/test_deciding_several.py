"""`aileron approve ID ID` and `aileron deny ID ID`: one card and one answer for what is alike, and a decision for each.

Commands of a person at a real terminal, with a daemon that checks nothing: what is sent to it is checked here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aileron.model.decision import DecisionStatement, check_signature
from aileron.model.manifest import ApprovalRule
from tests.cli.alike import APART, ann_and_bob, id_of, mail
from tests.cli.command import Command
from tests.cli.person import SIGN, at_terminal, flat
from tests.cli.questions import SUBJECTS, Approver, sealed_preview, subject_question
from tests.support.fake_daemon import FakeDaemon, Reply, Seen, error
from tests.support.hostile_text import EVERYTHING, as_in_a_file, assert_harmless

PASSPHRASE = "Approver passphrase: "
ALL_3 = "Approve all 3? [y/N] "
ALL_2 = "Approve all 2? [y/N] "
WHY = "sent to the agent and signed): "


def waits(fake: FakeDaemon, *asked: dict[str, Any]) -> list[str]:
    """These wait, and run as soon as they are approved; their ids."""
    fake.approvals = list(asked)
    for one in asked:
        name = one["approval_id"]
        path = f"/v1/action-approvals/{name}"
        facts = {"approval_id": name, "audit_id": one.get("audit_id")}
        fake.script("GET", path, (200, one))
        fake.script("POST", f"{path}/decide", lambda seen, facts=facts: _obeyed(seen, facts))
        fake.script("POST", f"{path}/cancel", (200, {"status": "cancelled", **facts}))
        fake.script("GET", f"{path}/result", (200, {"status": "completed", **facts, "result": {"sent": name[-1]}}))
    return [one["approval_id"] for one in asked]


def _obeyed(seen: Seen, facts: dict[str, Any]) -> Reply:
    return 200, {"status": "approved" if seen.body["decision"] == "approve" else "denied", **facts}


def sent(fake: FakeDaemon, end: str = "decide") -> list[tuple[str, dict[str, Any]]]:
    """The ids that were decided about, in order, and with what."""
    return [(seen.path.split("/")[3], seen.body) for seen in fake.asked("POST") if seen.path.endswith(f"/{end}")]


@pytest.fixture
def fake(fake: FakeDaemon) -> FakeDaemon:
    """Its vault is open."""
    fake.passphrase, fake.is_locked = "x", False
    return fake


@pytest.fixture
def approver(home: Path, fake: FakeDaemon) -> Approver:
    """Decisions are signed."""
    return Approver(home, fake)


def assert_signed(approver: Approver, name: str, body: dict[str, Any], digest: str) -> None:
    """The signature is the approver's, over this digest of this request."""
    statement = DecisionStatement(
        approval_id=name,
        digest=digest,
        decision=body["decision"],
        reason=body.get("reason"),
        at=body["at"],
        key_id=approver.key_id,
    )
    assert body["digest"] == digest
    check_signature(approver.public_key, statement, body["signature"])


# Approving


def test_three_alike_take_one_card_one_answer_and_one_passphrase(
    fake: FakeDaemon, aileron: Command, approver: Approver
):
    """Each is signed by its own digest; what came of each is a line on its own."""
    asked = [mail(number) for number in (1, 2, 3)]
    names = waits(fake, *asked)
    said = at_terminal(aileron, "approve", *names, answers=[(ALL_3, "y"), SIGN])

    assert said.code == 0, said
    assert [name for name, _ in sent(fake)] == names
    for (name, body), one in zip(sent(fake), asked, strict=True):
        assert_signed(approver, name, body, one["digest"])
    assert said.out.count(PASSPHRASE) == 1
    assert said.out.index("what differs") < said.out.index("the same in all") < said.out.index(ALL_3)
    assert said.out.partition("the same in all")[2].count("lunch is at noon.") == 1
    for number, name in enumerate(names, start=1):
        assert f"{number}  {number}@example.com" in said.out
        assert f'{name} done {{"sent": "{number}"}}' in flat(said)


def test_a_script_approves_several_where_nobody_signs(fake: FakeDaemon, aileron: Command):
    """By their whole ids; the results alone are on standard output, a line for each."""
    names = waits(fake, mail(1), mail(2))
    said = aileron("approve", *names, "--reason", "fine")

    assert said.code == 0, said
    assert said.out == "".join(f'{name}\tcompleted\t{{"sent": "{name[-1]}"}}\n' for name in names)
    assert [(name, body["reason"]) for name, body in sent(fake)] == [(name, "fine") for name in names]


def test_several_as_json_are_one_object(fake: FakeDaemon, aileron: Command):
    """With what became of each."""
    names = waits(fake, mail(1), mail(2))
    found = aileron("approve", *names, "--json").json["approvals"]

    assert [(one["approval_id"], one["status"], one["result"]["sent"]) for one in found] == [
        (name, "completed", name[-1]) for name in names
    ]


def test_anything_but_a_yes_leaves_all_of_them_waiting(fake: FakeDaemon, aileron: Command, approver: Approver):
    """75, no passphrase, nothing sent. The control is the first test."""
    names = waits(fake, mail(1), mail(2))
    said = at_terminal(aileron, "approve", *names, answers=[(ALL_2, "")])

    assert (said.code, sent(fake)) == (75, [])
    assert PASSPHRASE not in said.out
    assert f"deny: aileron deny {' '.join(names)}" in flat(said)


def test_what_takes_a_word_takes_it_once_for_all(fake: FakeDaemon, aileron: Command, approver: Approver):
    """A `y` is none; the word approves each of them."""
    names = waits(fake, *(mail(number, rule=ApprovalRule(required=True)) for number in (1, 2)))
    word = "Type yes to approve all 2: "
    refused = at_terminal(aileron, "approve", *names, answers=[(word, "y")])

    assert (refused.code, sent(fake)) == (75, [])
    said = at_terminal(aileron, "approve", *names, answers=[(word, "yes"), SIGN])
    assert (said.code, len(sent(fake))) == (0, 2), said


def test_parts_of_ids_are_enough_where_the_card_is_shown(fake: FakeDaemon, aileron: Command):
    """And only there: a script has to name the whole ids."""
    names = waits(fake, mail(1), mail(2))
    said = aileron("approve", *(name[-6:] for name in names))

    assert (said.code, sent(fake)) == (2, [])
    assert f"fix: aileron approve {' '.join(names)}" in said.err
    said = at_terminal(aileron, "approve", *(name[-6:] for name in names), answers=[(ALL_2, "y")])
    assert [name for name, _ in sent(fake)] == names


def test_one_that_is_named_twice_is_a_slip(fake: FakeDaemon, aileron: Command):
    """Another one was meant: nothing is asked, and nothing sent."""
    names = waits(fake, mail(1), mail(2))
    for command in ("approve", "deny"):
        said = aileron(command, *names, names[0])

        assert (said.code, sent(fake), sent(fake, "cancel")) == (2, [], [])
        assert said.err.startswith(f"error: {names[0]} is named twice\n")


@pytest.mark.parametrize(("asked", "why"), APART)
@pytest.mark.parametrize("is_signed", [True, False])
def test_what_asks_for_a_look_of_its_own_is_refused_before_anything_is_asked(
    fake: FakeDaemon,
    home: Path,
    aileron: Command,
    asked: Callable[[], list[dict[str, Any]]],
    why: str,
    is_signed: bool,
):
    """Which and why, with the command for each; also with `--yes`. The controls are the tests above."""
    if is_signed:
        Approver(home, fake)
    names = waits(fake, *asked())
    for more in ((), ("--yes",)):
        said = at_terminal(aileron, "approve", *names, *more)

        assert (said.code, sent(fake)) == (2, []), said
        assert why in flat(said)
        for name in names:
            assert f"approve: aileron approve {name}\n" in said.out


def finds(fake: FakeDaemon, approver: Approver, *found: str) -> list[str]:
    """Mails to Ann and to Bob, by what their agents say; `found` is what the service has. Their ids."""
    asked = ann_and_bob()
    names = waits(fake, *asked)
    for one, to in zip(asked, found, strict=True):
        fields = [{"label": "To", "value": to, "multiline": False}]
        path = f"/v1/action-approvals/{one['approval_id']}/preview"
        fake.script("POST", path, sealed_preview(approver, one["digest"], fields))
    return names


def test_the_current_state_of_each_is_loaded_first_and_signed(fake: FakeDaemon, aileron: Command, approver: Approver):
    """One passphrase, before the card; what was found is part of each digest."""
    names = finds(fake, approver, "ann@example.com", "bob@example.com")
    said = at_terminal(aileron, "approve", *names, answers=[SIGN, (ALL_2, "y")])

    assert said.code == 0, said
    assert said.out.count(PASSPHRASE) == 1
    assert said.out.index(PASSPHRASE) < said.out.index("current state of 2") < said.out.index(ALL_2)
    digests = {body["digest"] for _, body in sent(fake)}
    assert len(digests) == 2
    assert not digests & {one["digest"] for one in fake.approvals}


def test_one_whose_agent_is_contradicted_keeps_all_of_them_back(fake: FakeDaemon, aileron: Command, approver: Approver):
    """The pair of the test above: nothing is asked about, and nothing sent."""
    names = finds(fake, approver, "ann@example.com", "mallory@evil.example")
    said = at_terminal(aileron, "approve", *names, answers=[SIGN])

    assert (said.code, sent(fake)) == (2, []), said
    assert "the service has “mallory@evil.example”" in flat(said)
    assert "Approve all" not in said.out


def test_a_refusal_that_needs_no_current_state_comes_before_the_passphrase(
    fake: FakeDaemon, aileron: Command, approver: Approver
):
    """Of requests with a preview too, whatever it would say."""
    names = finds(fake, approver, "ann@example.com", "bob@example.com")
    asked = {**fake.approvals[0], "conversation": [{"question": "why?", "answer": "The user agreed."}]}
    fake.script("GET", f"/v1/action-approvals/{names[0]}", (200, asked))
    said = at_terminal(aileron, "approve", *names)

    assert (said.code, sent(fake)) == (2, []), said
    assert "you asked the agent about it" in flat(said)
    assert PASSPHRASE not in said.out


def test_the_first_that_is_not_taken_ends_it(fake: FakeDaemon, aileron: Command, approver: Approver):
    """What was approved by then runs; the rest is not sent, and it is said which. Its code is the command's."""
    names = waits(fake, *(mail(number) for number in (1, 2, 3)))
    decided = error("already_decided", 409, "decided", details={"status": "denied"})
    fake.script("POST", f"/v1/action-approvals/{names[1]}/decide", decided)
    said = at_terminal(aileron, "approve", *names, answers=[(ALL_3, "y"), SIGN])

    assert said.code == 6, said
    assert [name for name, _ in sent(fake)] == names[:2]
    assert f"error: {names[1]} is already denied" in flat(said)
    assert f"1 of 3 approved not decided, still waiting approve: aileron approve {names[2]} " in flat(said)
    assert f'{names[0]} done {{"sent": "1"}}' in flat(said)


def test_the_first_that_is_not_taken_is_in_the_json(fake: FakeDaemon, aileron: Command):
    """Beside what ran and what still waits."""
    names = waits(fake, *(mail(number) for number in (1, 2, 3)))
    decided = error("already_decided", 409, "decided", details={"status": "denied"})
    fake.script("POST", f"/v1/action-approvals/{names[1]}/decide", decided)
    said = aileron("approve", *names, "--json")
    first, second, third = said.json["approvals"]

    assert (said.code, first["status"], third["status"]) == (6, "completed", "pending_approval")
    assert second["error"]["class"] == "already_decided"


def test_the_code_is_that_of_the_worst(fake: FakeDaemon, aileron: Command):
    """The highest, whatever comes after it; each that failed says why and where to look."""
    names = waits(fake, *(mail(number) for number in (1, 2, 3)))
    for name, kind in ((names[0], "outcome_unknown"), (names[1], "network_error")):
        body = error(kind, 500, "it did not work", audit_id=f"run-{name[-1]}")[1]
        status = "unknown" if kind == "outcome_unknown" else "failed"
        facts = {"status": status, "approval_id": name, "audit_id": f"run-{name[-1]}", **body}
        fake.script("GET", f"/v1/action-approvals/{name}/result", (200, facts))
    said = aileron("approve", *names)

    assert said.code == 8, said
    assert [line.split("\t")[1] for line in said.out.splitlines()] == ["unknown", "failed", "completed"]
    assert "aileron audit show run-1" in said.err
    assert "aileron audit show run-2" in said.err


def test_what_is_still_running_after_the_wait_goes_on(fake: FakeDaemon, aileron: Command):
    """The wait is for all of them together; 0, as for one."""
    names = waits(fake, mail(1), mail(2))
    running = {"status": "running", "audit_id": "run-2", "approval_id": names[1]}
    fake.script("GET", f"/v1/action-approvals/{names[1]}/result", (200, running))
    said = aileron("approve", *names, "--wait", "300ms")

    assert said.code == 0, said
    assert "still running after 0.3 s, and continues\n  look: aileron audit show run-2\n" in said.err


def test_their_card_is_printed_whole(fake: FakeDaemon, aileron: Command):
    """No value is cut, where the card of one would be: something may hide behind it."""
    long = "\n".join(f"line {line}" for line in range(40))
    names = waits(fake, *(mail(number, note=long) for number in (1, 2)))
    said = at_terminal(aileron, "approve", *names, answers=[(ALL_2, "n")])

    assert all(f"line {line}\n" in said.out for line in range(40))
    assert "more characters" not in said.out
    alone = at_terminal(aileron, "approve", names[0], answers=[("Approve? [y/N] ", "n")])
    assert "more characters" in alone.out


def test_hostile_text_of_several_is_harmless(fake: FakeDaemon, aileron: Command):
    """In values, which keeps them apart; in names of agents and in results, which does not."""
    names = waits(fake, mail(1), mail(2, to=as_in_a_file(EVERYTHING)))
    refused = at_terminal(aileron, "approve", *names)
    asked = [{**mail(number), "agent": as_in_a_file(EVERYTHING)} for number in (1, 2)]
    waits(fake, *asked)
    for name in names:
        done = {"status": "completed", "audit_id": "run-1", "approval_id": name, "result": as_in_a_file(EVERYTHING)}
        fake.script("GET", f"/v1/action-approvals/{name}/result", (200, done))
    said = at_terminal(aileron, "approve", *names, answers=[(ALL_2, "y")])

    assert (refused.code, said.code, len(sent(fake))) == (2, 0, 2), (refused, said)
    assert_harmless(refused.out)
    assert_harmless(said.out)


# Denying


def test_several_are_denied_with_one_reason_and_one_passphrase(fake: FakeDaemon, aileron: Command, approver: Approver):
    """Alike or not; each is signed, and each is named before the reason is asked for."""
    asked = [mail(1), subject_question(SUBJECTS["grant"], approval_id=id_of(2))]
    names = waits(fake, *asked)
    said = at_terminal(aileron, "deny", *names, answers=[(WHY, "not today"), SIGN])

    assert said.code == 0, said
    assert said.out.count(PASSPHRASE) == 1
    assert [name for name, _ in sent(fake)] == names
    for (name, body), one in zip(sent(fake), asked, strict=True):
        assert body["reason"] == "not today"
        assert_signed(approver, name, body, one["digest"])
    assert said.out.index("denying: Send mail: to “1@example.com”") < said.out.index(WHY)
    assert [line for line in said.out.splitlines() if line.startswith("denied ")] == [f"denied {one}" for one in names]


@pytest.mark.parametrize("how", ["at a terminal", "in a script", "as JSON"])
def test_without_a_reason_each_is_withdrawn(fake: FakeDaemon, aileron: Command, approver: Approver, how: str):
    """No passphrase, and no terminal either."""
    names = waits(fake, mail(1), mail(2))
    match how:
        case "at a terminal":
            said = at_terminal(aileron, "deny", *names, answers=[(WHY, "")])
        case "in a script":
            said = aileron("deny", *names)
        case _:
            said = aileron("deny", *names, "--json")
            assert [one["status"] for one in said.json["approvals"]] == ["cancelled", "cancelled"]

    assert said.code == 0, said
    assert PASSPHRASE not in said.out
    assert sent(fake) == []
    assert [name for name, _ in sent(fake, "cancel")] == names


def test_a_reason_in_a_script_is_refused_where_somebody_signs(fake: FakeDaemon, aileron: Command, approver: Approver):
    """It would be said in the person's name. Where nobody signs it is sent to each."""
    names = waits(fake, mail(1), mail(2))
    said = aileron("deny", *names, "--reason", "no")

    assert (said.code, sent(fake), sent(fake, "cancel")) == (6, [], [])
    fake.approver = {"status": "none"}
    said = aileron("deny", *names, "--reason", "no")
    assert said.code == 0, said
    assert [(name, body["reason"]) for name, body in sent(fake)] == [(name, "no") for name in names]


@pytest.mark.parametrize("is_decided_before", [True, False])
def test_one_that_is_over_keeps_no_other_from_being_denied(fake: FakeDaemon, aileron: Command, is_decided_before: bool):
    """Before it is asked about, and between; the code says that one was."""
    asked = [mail(number) for number in (1, 2, 3)]
    if is_decided_before:
        asked[1] = {**asked[1], "status": "completed"}
    names = waits(fake, *asked)
    if not is_decided_before:
        decided = error("already_decided", 409, "decided", details={"status": "completed"})
        fake.script("POST", f"/v1/action-approvals/{names[1]}/decide", decided)
    said = aileron("deny", *names)

    assert said.code == 6, said
    assert f"error: {names[1]} is already completed\n" in said.err
    assert said.err.count("\ndenied ") + said.err.startswith("denied ") == 2
    assert {names[0], names[2]} <= {name for name, _ in sent(fake)}
