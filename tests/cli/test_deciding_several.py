"""`aileron approve ID ID` and `aileron deny ID ID`: one card and one answer for requests that are alike, and a decision for each.

A person uses a real terminal, and the daemon checks nothing: the tests check the requests that it gets.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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
    """Make these questions pending, and their runs complete at once after approval. Return their ids."""
    fake.approvals = list(asked)
    for question in asked:
        name = question["approval_id"]
        path = f"/v1/action-approvals/{name}"
        facts = {"approval_id": name, "audit_id": question.get("audit_id")}
        fake.script("GET", path, (200, question))
        fake.script("POST", f"{path}/decide", partial(_obeyed, facts))
        fake.script("POST", f"{path}/cancel", (200, {"status": "cancelled", **facts}))
        fake.script("GET", f"{path}/result", (200, {"status": "completed", **facts, "result": {"sent": name[-1]}}))
    return [question["approval_id"] for question in asked]


def _obeyed(facts: dict[str, Any], seen: Seen) -> Reply:
    return 200, {"status": "approved" if seen.body["decision"] == "approve" else "denied", **facts}


def sent(fake: FakeDaemon, end: str = "decide") -> list[tuple[str, dict[str, Any]]]:
    """Return the ids of the requests that were sent, in order, with their bodies."""
    return [(seen.path.split("/")[3], seen.body) for seen in fake.asked("POST") if seen.path.endswith(f"/{end}")]


@pytest.fixture
def fake(fake: FakeDaemon) -> FakeDaemon:
    """The fake daemon with an open vault."""
    fake.passphrase, fake.is_locked = "x", False
    return fake


@pytest.fixture
def approver(home: Path, fake: FakeDaemon) -> Approver:
    """The approver's key: decisions in this home are signed."""
    return Approver(home, fake)


def assert_signed(approver: Approver, name: str, body: dict[str, Any], digest: str) -> None:
    """Check that the signature is the approver's, over this digest of this request."""
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


def test_three_requests_that_are_alike_take_one_card_one_answer_and_one_passphrase(
    fake: FakeDaemon, aileron: Command, approver: Approver
) -> None:
    """Each decision is signed over its own digest, and each result has its own line."""
    asked = [mail(number) for number in (1, 2, 3)]
    names = waits(fake, *asked)
    said = at_terminal(aileron, "approve", *names, answers=[(ALL_3, "y"), SIGN]).exits(0)
    assert [name for name, _ in sent(fake)] == names
    for (name, body), question in zip(sent(fake), asked, strict=True):
        assert_signed(approver, name, body, question["digest"])
    assert said.out.count(PASSPHRASE) == 1
    assert said.out.index("what differs") < said.out.index("the same in all") < said.out.index(ALL_3)
    assert said.out.partition("the same in all")[2].count("lunch is at noon.") == 1
    for number, name in enumerate(names, start=1):
        assert f"{number}  {number}@example.com" in said.out
        assert f'{name} done {{"sent": "{number}"}}' in flat(said)


def test_a_script_can_approve_several_requests_in_a_home_without_an_approver(
    fake: FakeDaemon, aileron: Command
) -> None:
    """Whole ids are needed; only the results are on standard output, one line each."""
    names = waits(fake, mail(1), mail(2))
    said = aileron("approve", *names, "--reason", "fine").exits(0)
    assert said.out == "".join(f'{name}\tcompleted\t{{"sent": "{name[-1]}"}}\n' for name in names)
    assert [(name, body["reason"]) for name, body in sent(fake)] == [(name, "fine") for name in names]


def test_approving_several_requests_with_json_prints_one_object(fake: FakeDaemon, aileron: Command) -> None:
    """The object has the result of each request."""
    names = waits(fake, mail(1), mail(2))
    found = aileron("approve", *names, "--json").json["approvals"]

    assert [(approval["approval_id"], approval["status"], approval["result"]["sent"]) for approval in found] == [
        (name, "completed", name[-1]) for name in names
    ]


def test_several_requests_stay_pending_unless_the_answer_at_their_prompt_is_yes(
    fake: FakeDaemon, aileron: Command, approver: Approver
) -> None:
    """The exit code is 75, no passphrase is asked for, and nothing is sent. Positive control: the first test."""
    names = waits(fake, mail(1), mail(2))
    said = at_terminal(aileron, "approve", *names, answers=[(ALL_2, "")])

    assert (said.code, sent(fake)) == (75, [])
    assert PASSPHRASE not in said.out
    assert f"deny: aileron deny {' '.join(names)}" in flat(said)


def test_several_irreversible_requests_need_the_whole_word_yes_typed_once(
    fake: FakeDaemon, aileron: Command, approver: Approver
) -> None:
    """A `y` is not enough; the word approves all of the requests."""
    names = waits(fake, *(mail(number, rule=ApprovalRule(required=True)) for number in (1, 2)))
    word = "Type yes to approve all 2: "
    refused = at_terminal(aileron, "approve", *names, answers=[(word, "y")])

    assert (refused.code, sent(fake)) == (75, [])
    said = at_terminal(aileron, "approve", *names, answers=[(word, "yes"), SIGN])
    assert (said.code, len(sent(fake))) == (0, 2), said


def test_parts_of_approval_ids_are_enough_if_the_card_is_shown(fake: FakeDaemon, aileron: Command) -> None:
    """A script has to give the whole ids."""
    names = waits(fake, mail(1), mail(2))
    said = aileron("approve", *(name[-6:] for name in names))

    assert (said.code, sent(fake)) == (2, [])
    assert f"fix: aileron approve {' '.join(names)}" in said.err
    said = at_terminal(aileron, "approve", *(name[-6:] for name in names), answers=[(ALL_2, "y")])
    assert [name for name, _ in sent(fake)] == names


def test_approving_several_requests_with_a_repeated_id_is_refused(fake: FakeDaemon, aileron: Command) -> None:
    """The person probably meant another id, so nothing is prompted for or sent."""
    names = waits(fake, mail(1), mail(2))
    for command in ("approve", "deny"):
        said = aileron(command, *names, names[0])

        assert (said.code, sent(fake), sent(fake, "cancel")) == (2, [], [])
        assert said.err.startswith(f"error: {names[0]} is named twice\n")


@pytest.mark.parametrize(("asked", "why"), APART)
@pytest.mark.parametrize("is_signed", [True, False])
def test_requests_that_are_not_alike_cannot_be_approved_together(
    fake: FakeDaemon,
    home: Path,
    aileron: Command,
    asked: Callable[[], list[dict[str, Any]]],
    why: str,
    is_signed: bool,
) -> None:
    """The error says which and why, with the command for each; --yes changes nothing. Positive controls: the tests above."""
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
    """Make mails to Ann and to Bob wait whose previews say that `found` are the recipients. Return their ids."""
    asked = ann_and_bob()
    names = waits(fake, *asked)
    for question, to in zip(asked, found, strict=True):
        fields = [{"label": "To", "value": to, "multiline": False}]
        path = f"/v1/action-approvals/{question['approval_id']}/preview"
        fake.script("POST", path, sealed_preview(approver, question["digest"], fields))
    return names


def test_the_previews_of_several_requests_are_loaded_before_the_card_and_covered_by_signatures(
    fake: FakeDaemon, aileron: Command, approver: Approver
) -> None:
    """The passphrase is asked for once, before the card; each signed digest covers the preview."""
    names = finds(fake, approver, "ann@example.com", "bob@example.com")
    said = at_terminal(aileron, "approve", *names, answers=[SIGN, (ALL_2, "y")]).exits(0)
    assert said.out.count(PASSPHRASE) == 1
    assert said.out.index(PASSPHRASE) < said.out.index("current state of 2") < said.out.index(ALL_2)
    digests = {body["digest"] for _, body in sent(fake)}
    assert len(digests) == 2
    assert not digests & {approval["digest"] for approval in fake.approvals}


def test_a_preview_that_contradicts_one_request_blocks_the_approval_of_all_requests(
    fake: FakeDaemon, aileron: Command, approver: Approver
) -> None:
    """This differs from the test above in one recipient: nothing is asked, and nothing is sent."""
    names = finds(fake, approver, "ann@example.com", "mallory@evil.example")
    said = at_terminal(aileron, "approve", *names, answers=[SIGN])

    assert (said.code, sent(fake)) == (2, []), said
    assert "the service has “mallory@evil.example”" in flat(said)
    assert "Approve all" not in said.out


def test_several_requests_are_refused_without_a_passphrase_prompt_if_one_had_a_conversation(
    fake: FakeDaemon, aileron: Command, approver: Approver
) -> None:
    """Loading the previews takes the passphrase, and no preview could change the refusal."""
    names = finds(fake, approver, "ann@example.com", "bob@example.com")
    asked = {**fake.approvals[0], "conversation": [{"question": "why?", "answer": "The user agreed."}]}
    fake.script("GET", f"/v1/action-approvals/{names[0]}", (200, asked))
    said = at_terminal(aileron, "approve", *names)

    assert (said.code, sent(fake)) == (2, []), said
    assert "you asked the agent about it" in flat(said)
    assert PASSPHRASE not in said.out


def test_the_first_refused_decision_stops_the_remaining_decisions(
    fake: FakeDaemon, aileron: Command, approver: Approver
) -> None:
    """Approved requests run; the command lists those that it did not send, and exits with the refusal's code."""
    names = waits(fake, *(mail(number) for number in (1, 2, 3)))
    decided = error("already_decided", 409, "decided", details={"status": "denied"})
    fake.script("POST", f"/v1/action-approvals/{names[1]}/decide", decided)
    said = at_terminal(aileron, "approve", *names, answers=[(ALL_3, "y"), SIGN]).exits(6)
    assert [name for name, _ in sent(fake)] == names[:2]
    assert f"error: {names[1]} is already denied" in flat(said)
    assert f"1 of 3 approved not decided, still waiting approve: aileron approve {names[2]} " in flat(said)
    assert f'{names[0]} done {{"sent": "1"}}' in flat(said)


def test_the_json_of_several_approvals_includes_a_refused_decision(fake: FakeDaemon, aileron: Command) -> None:
    """The object also has the runs that completed and the requests that still wait."""
    names = waits(fake, *(mail(number) for number in (1, 2, 3)))
    decided = error("already_decided", 409, "decided", details={"status": "denied"})
    fake.script("POST", f"/v1/action-approvals/{names[1]}/decide", decided)
    said = aileron("approve", *names, "--json")
    first, second, third = said.json["approvals"]

    assert (said.code, first["status"], third["status"]) == (6, "completed", "pending_approval")
    assert second["error"]["class"] == "already_decided"


def test_approving_several_requests_exits_with_the_code_of_the_worst_result(fake: FakeDaemon, aileron: Command) -> None:
    """The highest code wins, whatever follows; each failure says why and where to look."""
    names = waits(fake, *(mail(number) for number in (1, 2, 3)))
    for name, kind in ((names[0], "outcome_unknown"), (names[1], "network_error")):
        body = error(kind, 500, "it did not work", audit_id=f"run-{name[-1]}")[1]
        status = "unknown" if kind == "outcome_unknown" else "failed"
        facts = {"status": status, "approval_id": name, "audit_id": f"run-{name[-1]}", **body}
        fake.script("GET", f"/v1/action-approvals/{name}/result", (200, facts))
    said = aileron("approve", *names).exits(8)
    assert [line.split("\t")[1] for line in said.out.splitlines()] == ["unknown", "failed", "completed"]
    assert "aileron audit show run-1" in said.err
    assert "aileron audit show run-2" in said.err


def test_runs_continue_after_the_wait_for_several_requests_ends(fake: FakeDaemon, aileron: Command) -> None:
    """The wait covers all requests together; the exit code is 0, as for a single request."""
    names = waits(fake, mail(1), mail(2))
    running = {"status": "running", "audit_id": "run-2", "approval_id": names[1]}
    fake.script("GET", f"/v1/action-approvals/{names[1]}/result", (200, running))
    said = aileron("approve", *names, "--wait", "300ms").exits(0)
    assert "still running after 0.3 s, and continues\n  look: aileron audit show run-2\n" in said.err


def test_the_card_of_several_requests_truncates_no_value(fake: FakeDaemon, aileron: Command) -> None:
    """The card of a single request does; here the difference between two requests could be in the hidden part."""
    long = "\n".join(f"line {line}" for line in range(40))
    names = waits(fake, *(mail(number, note=long) for number in (1, 2)))
    said = at_terminal(aileron, "approve", *names, answers=[(ALL_2, "n")])

    assert all(f"line {line}\n" in said.out for line in range(40))
    assert "more characters" not in said.out
    alone = at_terminal(aileron, "approve", names[0], answers=[("Approve? [y/N] ", "n")])
    assert "more characters" in alone.out


def test_hostile_text_of_several_requests_is_escaped(fake: FakeDaemon, aileron: Command) -> None:
    """Hostile values make requests unlike each other; hostile agent names and results do not."""
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


def test_several_requests_are_denied_with_one_reason_and_one_passphrase(
    fake: FakeDaemon, aileron: Command, approver: Approver
) -> None:
    """The requests need not be alike; each denial is signed, and each request is named before the prompt."""
    asked = [mail(1), subject_question(SUBJECTS["grant"], approval_id=id_of(2))]
    names = waits(fake, *asked)
    said = at_terminal(aileron, "deny", *names, answers=[(WHY, "not today"), SIGN]).exits(0)
    assert said.out.count(PASSPHRASE) == 1
    assert [name for name, _ in sent(fake)] == names
    for (name, body), question in zip(sent(fake), asked, strict=True):
        assert body["reason"] == "not today"
        assert_signed(approver, name, body, question["digest"])
    assert said.out.index("denying: Send mail: to “1@example.com”") < said.out.index(WHY)
    assert [line for line in said.out.splitlines() if line.startswith("denied ")] == [
        f"denied {name}" for name in names
    ]


@pytest.mark.parametrize("how", ["at a terminal", "in a script", "as JSON"])
def test_denying_several_requests_without_a_reason_withdraws_them(
    fake: FakeDaemon, aileron: Command, approver: Approver, how: str
) -> None:
    """This needs no passphrase and no terminal."""
    names = waits(fake, mail(1), mail(2))
    match how:
        case "at a terminal":
            said = at_terminal(aileron, "deny", *names, answers=[(WHY, "")])
        case "in a script":
            said = aileron("deny", *names)
        case _:
            said = aileron("deny", *names, "--json")
            assert [approval["status"] for approval in said.json["approvals"]] == ["cancelled", "cancelled"]

    assert said.code == 0, said
    assert PASSPHRASE not in said.out
    assert sent(fake) == []
    assert [name for name, _ in sent(fake, "cancel")] == names


def test_a_script_cannot_deny_with_a_reason_if_decisions_are_signed(
    fake: FakeDaemon, aileron: Command, approver: Approver
) -> None:
    """The reason would be signed in the person's name. Without an approver it is sent with each denial."""
    names = waits(fake, mail(1), mail(2))
    said = aileron("deny", *names, "--reason", "no")

    assert (said.code, sent(fake), sent(fake, "cancel")) == (6, [], [])
    fake.approver = {"status": "none"}
    aileron("deny", *names, "--reason", "no").exits(0)
    assert [(name, body["reason"]) for name, body in sent(fake)] == [(name, "no") for name in names]


@pytest.mark.parametrize("is_decided_before", [True, False])
def test_an_already_decided_request_does_not_stop_the_denial_of_the_remaining_requests(
    fake: FakeDaemon, aileron: Command, is_decided_before: bool
) -> None:
    """The request was decided before the command or during it; the exit code says that one was."""
    asked = [mail(number) for number in (1, 2, 3)]
    if is_decided_before:
        asked[1] = {**asked[1], "status": "completed"}
    names = waits(fake, *asked)
    if not is_decided_before:
        decided = error("already_decided", 409, "decided", details={"status": "completed"})
        fake.script("POST", f"/v1/action-approvals/{names[1]}/decide", decided)
    said = aileron("deny", *names).exits(6)
    assert f"error: {names[1]} is already completed\n" in said.err
    assert said.err.count("\ndenied ") + said.err.startswith("denied ") == 2
    assert {names[0], names[2]} <= {name for name, _ in sent(fake)}
