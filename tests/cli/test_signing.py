"""Signed decisions: what is shown is what is signed, only at a terminal, whichever program answers for the daemon."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aileron.approver_key import keyfile
from aileron.cards.question import state_words
from aileron.model.consent import subject_digest
from aileron.model.decision import (
    DecisionStatement,
    HeadStatement,
    check_signature,
    digest_with_preview,
    preview_digest,
)
from aileron.model.plan import Plan
from aileron.model.secret import Secret
from tests.cli.command import Command
from tests.cli.person import APPROVER, SIGN, at_terminal, flat
from tests.cli.questions import (
    HEAD,
    ID,
    ONE,
    SUBJECTS,
    Approver,
    asks,
    plan,
    previewed,
    question,
    rehearsed,
    sealed_preview,
    subject_question,
)
from tests.support.fake_daemon import FakeDaemon, Reply, error
from tests.support.hostile_text import EVERYTHING, as_in_a_file, assert_harmless, assert_no_line_begins, hostile

PASSPHRASE = "Approver passphrase: "
YES_OR_NO = "to approve: "
THREE_WAYS = "leave it waiting: "
WHY = "sent to the agent and signed): "
FIELDS = [
    {"label": "To", "value": "mira@example.com", "multiline": False},
    {"label": "Body", "value": "Dear Mira\nall of it", "multiline": True},
]


@pytest.fixture
def approver(home: Path, fake: FakeDaemon) -> Approver:
    """The home's approver, with an open vault and one run that waits."""
    fake.passphrase, fake.is_locked = "x", False
    asks(fake, question())
    return Approver(home, fake)


def sent(fake: FakeDaemon) -> list[dict[str, Any]]:
    """Return the decisions that were sent."""
    return [seen.body for seen in fake.asked("POST", f"{ONE}/decide")]


def assert_signed(approver: Approver, body: dict[str, Any], digest: str, decision: str) -> None:
    """Check that the approver signed this decision over this digest, and the newest row of the ledger."""
    statement = DecisionStatement(
        approval_id=ID,
        digest=digest,
        decision=decision,  # type: ignore[arg-type]
        reason=body.get("reason"),
        at=body["at"],
        key_id=approver.key_id,
    )
    head = HeadStatement(head=HEAD, at=body["at"], key_id=approver.key_id)

    assert (body["decision"], body["digest"], body["key_id"], body["head"]) == (decision, digest, approver.key_id, HEAD)
    check_signature(approver.public_key, statement, body["signature"])
    check_signature(approver.public_key, head, body["head_signature"])


# One decision


def test_approve_signs_the_shown_run_after_the_answer_yes(
    fake: FakeDaemon, aileron: Command, approver: Approver
) -> None:
    """The command computes the digest itself, and signs the ledger's head as well. The passphrase comes last."""
    said = at_terminal(aileron, "approve", ID, "--reason", "fine", answers=[(YES_OR_NO, "yes"), SIGN]).exits(0)
    (body,) = sent(fake)
    assert body["reason"] == "fine"
    assert_signed(approver, body, plan().digest, "approve")
    assert said.out.index("Send mail: to “mira@example.com”") < said.out.index(YES_OR_NO) < said.out.index(PASSPHRASE)
    assert "not signed" not in said.out


def test_a_denial_is_signed_with_its_reason(fake: FakeDaemon, aileron: Command, approver: Approver) -> None:
    """The signature covers the reason."""
    at_terminal(aileron, "deny", ID, answers=[(WHY, "not to him"), SIGN]).exits(0)
    assert sent(fake)[0]["reason"] == "not to him"
    assert_signed(approver, sent(fake)[0], plan().digest, "deny")


def test_answering_no_at_the_approval_prompt_needs_no_passphrase(
    fake: FakeDaemon, aileron: Command, approver: Approver
) -> None:
    """The exit code is 75, and nothing is sent."""
    said = at_terminal(aileron, "approve", ID, answers=[(YES_OR_NO, "n")]).exits(75)
    assert PASSPHRASE not in said.out
    assert sent(fake) == []


@pytest.mark.parametrize("typed", ["deny", "deny --json", "at a terminal", "the answer of a run"])
def test_denying_without_a_reason_withdraws_the_request(
    fake: FakeDaemon, aileron: Command, approver: Approver, typed: str
) -> None:
    """The command signs nothing in the person's name and needs no passphrase; a script can do it too, since it only refuses."""
    gone = {"status": "cancelled", "approval_id": ID, "audit_id": "run-1"}
    fake.script("POST", f"{ONE}/cancel", (200, gone))
    match typed:
        case "at a terminal":
            said = at_terminal(aileron, "deny", ID, answers=[(WHY, "")])
            assert "denying: Send mail: to “mira@example.com”" in said.out
        case "the answer of a run":
            waits(fake)
            fake.script("GET", f"{ONE}/result", (200, gone))
            said = at_terminal(aileron, "run", "send-mail", answers=[(THREE_WAYS, "n"), (WHY, "")])
        case _:
            said = aileron(*typed.split(), ID)

    assert (said.code == 0) is (typed != "the answer of a run"), said
    assert PASSPHRASE not in said.out
    assert sent(fake) == []
    assert len(fake.asked("POST", f"{ONE}/cancel")) == 1
    assert ("withdrawn" in f"{said.out}{said.err}") is (typed != "deny --json")


def test_the_option_yes_skips_only_the_approval_prompt(fake: FakeDaemon, aileron: Command, approver: Approver) -> None:
    """The run is still shown, and the person still signs the decision."""
    said = at_terminal(aileron, "approve", ID, "--yes", answers=[SIGN]).exits(0)
    assert YES_OR_NO not in said.out
    assert "Send mail: to “mira@example.com”" in said.out
    assert_signed(approver, sent(fake)[0], plan().digest, "approve")


DENY = ("deny", ID, "--reason", "no")


@pytest.mark.parametrize("words", [("approve", ID), ("approve", ID, "--yes"), ("approve", ID, "--json"), DENY])
def test_a_script_cannot_sign_a_decision(
    fake: FakeDaemon, aileron: Command, approver: Approver, words: tuple[str, ...]
) -> None:
    """The exit code without a terminal is 6, whatever standard input, the environment or a file contain."""
    said = aileron(
        *words, given=f"y\n{APPROVER}\n", AILERON_VAULT_PASSPHRASE=APPROVER, AILERON_APPROVER=APPROVER
    ).exits(6)
    assert said.err.startswith("error: decisions are signed: run it at a terminal\n")
    assert sent(fake) == []


def test_piped_input_at_a_terminal_cannot_sign_a_decision(fake: FakeDaemon, home: Path, approver: Approver) -> None:
    """The command reads neither the yes nor the passphrase from a pipe."""
    script = f'printf "y\\n{APPROVER}\\n" | exec {sys.executable} -m aileron "$@"'
    Command(home, program=["sh", "-c", script, "sh"]).at_terminal("approve", ID).exits(6)
    assert sent(fake) == []


# The passphrase


def test_after_a_wrong_approver_passphrase_the_command_asks_again(
    fake: FakeDaemon, aileron: Command, approver: Approver
) -> None:
    """The passphrase can be wrong twice."""
    wrong = (PASSPHRASE, "something else")
    said = at_terminal(aileron, "approve", ID, answers=[(YES_OR_NO, "yes"), wrong, wrong, SIGN]).exits(0)
    assert "try again (1 left)" in said.out
    assert len(sent(fake)) == 1


def test_the_third_wrong_approver_passphrase_ends_the_command(
    fake: FakeDaemon, aileron: Command, approver: Approver
) -> None:
    """The exit code is 6, and nothing is sent."""
    wrong = (PASSPHRASE, "something else")
    said = at_terminal(aileron, "approve", ID, answers=[(YES_OR_NO, "yes"), wrong, wrong, wrong]).exits(6)
    assert "wrong passphrase" in said.out
    assert sent(fake) == []


def test_an_interrupt_at_the_passphrase_prompt_decides_nothing(
    fake: FakeDaemon, aileron: Command, approver: Approver
) -> None:
    """The exit code is 130."""
    at_terminal(aileron, "approve", ID, answers=[(YES_OR_NO, "yes"), (PASSPHRASE, "\x03")]).exits(130)
    assert sent(fake) == []


def test_the_vaults_passphrase_is_asked_for_separately(fake: FakeDaemon, aileron: Command, approver: Approver) -> None:
    """Each prompt names its passphrase, the vault's or the approver's, if the vault is locked."""
    fake.passphrase, fake.is_locked = "the vault's", True
    fake.approver = {"status": "locked"}
    answers = [("Its passphrase: ", "the vault's"), (YES_OR_NO, "yes"), SIGN]
    at_terminal(aileron, "approve", ID, answers=answers).exits(0)
    assert_signed(approver, sent(fake)[0], plan().digest, "approve")


def test_a_key_file_replaced_by_another_program_signs_nothing(
    fake: FakeDaemon, aileron: Command, home: Path, approver: Approver
) -> None:
    """The exit code is 9: a program that replaced the file knows its passphrase, but is not this home's approver."""
    with keyfile.create(home / "approver.json", Secret(APPROVER.encode()), replace=True):
        pass
    said = at_terminal(aileron, "approve", ID, answers=[(YES_OR_NO, "yes"), SIGN]).exits(9)
    assert f"is not that of this home's approver, {approver.key_id}" in flat(said)
    assert sent(fake) == []


# A program that answers for the daemon


def _other_arguments() -> dict[str, Any]:
    asked = question()
    asked["plan"]["args"]["to"] = "evil@example.com"
    return asked


def _other_step() -> dict[str, Any]:
    asked = question()
    asked["plan"]["steps"][0]["args"]["to"] = "evil@example.com"
    return asked


def _widened() -> dict[str, Any]:
    subject = msgspec.structs.replace(SUBJECTS["binding"], reaches=("evil.example:443",))
    return subject_question(subject, digest=subject_digest(SUBJECTS["binding"]))


def _more_than_is_known() -> dict[str, Any]:
    asked = subject_question(SUBJECTS["binding"])
    asked["subject"]["also"] = "what this command would not show"
    asked["digest"] = "sha256:" + "00" * 32
    return asked


LIES: dict[str, Callable[[], dict[str, Any]]] = {
    "another digest": lambda: question(digest=plan({"to": "evil@example.com"}).digest),
    "other arguments": _other_arguments,
    "another step": _other_step,
    "no plan": lambda: {key: value for key, value in question().items() if key != "plan"},
    "a plan that is none": lambda: {**question(), "plan": {"action": 7}},
    "a subject that is none": lambda: {**subject_question(SUBJECTS["binding"]), "subject": {"kind": "nothing"}},
    "another subject": _widened,
    "more than is known": _more_than_is_known,
    "a subject of another kind": lambda: {**subject_question(SUBJECTS["binding"]), "kind": "secret"},
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("command", ["approve", "deny"])
def test_a_question_that_does_not_match_its_digest_is_not_signed(
    fake: FakeDaemon, aileron: Command, approver: Approver, command: str, lie: str
) -> None:
    """The command exits with 9 before its prompt. Positive control: every other test here."""
    asks(fake, LIES[lie]())
    said = at_terminal(aileron, command, ID).exits(9)
    assert "nothing was signed" in said.out
    assert PASSPHRASE not in said.out
    assert sent(fake) == []


def test_nothing_is_signed_if_the_daemon_reports_a_problem_with_the_approver(
    fake: FakeDaemon, aileron: Command, approver: Approver
) -> None:
    """The vault was replaced by an older one: the exit code is 9, and the message is the daemon's."""
    fake.approver = {"status": "problem", "problem": "the record tells of an approver and this vault of none"}

    assert at_terminal(aileron, "approve", ID).code == 9
    assert sent(fake) == []


# The preview


def test_the_preview_is_shown_first_and_signed_with_the_plan(
    fake: FakeDaemon, aileron: Command, approver: Approver
) -> None:
    """The passphrase comes first, because no other program may see the preview."""
    asks(fake, question(previewed()))
    fake.script("POST", f"{ONE}/preview", sealed_preview(approver, previewed().digest, FIELDS))
    said = at_terminal(aileron, "approve", ID, answers=[SIGN, (YES_OR_NO, "yes")]).exits(0)
    digest = digest_with_preview(previewed().digest, preview_digest({"fields": FIELDS}))
    assert_signed(approver, sent(fake)[0], digest, "approve")
    assert said.out.count(PASSPHRASE) == 1
    shown = said.out.partition(YES_OR_NO)[0]
    assert "\nTo          mira@example.com\nBody        │ Dear Mira\n            │ all of it\n" in shown
    assert shown.index("current state, loaded") < shown.index("arguments from the agent")


def test_a_response_that_denies_that_there_is_a_preview_cannot_suppress_the_preview(
    fake: FakeDaemon, aileron: Command, approver: Approver
) -> None:
    """The daemon's flag says that there is no preview, but the signed plan has one, and the plan counts."""
    asks(fake, question(previewed(), has_preview=False))
    fake.script("POST", f"{ONE}/preview", sealed_preview(approver, previewed().digest, FIELDS))
    said = at_terminal(aileron, "approve", ID, answers=[SIGN, (YES_OR_NO, "n")])

    assert "\nTo          mira@example.com\n" in said.out


def test_a_failed_preview_is_shown_with_its_reason_and_the_plan_alone_is_signed(
    fake: FakeDaemon, aileron: Command, approver: Approver
) -> None:
    """The reason is shown; then the plan alone is signed."""
    asks(fake, question(previewed()))
    fake.script("POST", f"{ONE}/preview", sealed_preview(approver, previewed().digest, None, "it took \x1b[2Jlong"))
    said = at_terminal(aileron, "approve", ID, answers=[SIGN, (YES_OR_NO, "yes")])

    assert "\n! current state could not be loaded: it took \\x1b[2Jlong\n" in said.out
    assert_signed(approver, sent(fake)[0], previewed().digest, "approve")


@pytest.mark.parametrize("given", [(), ("--yes",)], ids=["asked", "said before"])
def test_a_run_limited_to_the_previewed_change_is_not_approved_without_a_preview(
    fake: FakeDaemon, aileron: Command, approver: Approver, given: tuple[str, ...]
) -> None:
    """The command gives the reason, exits with 2 and does not prompt; a preview with fields can be approved."""
    asks(fake, question(rehearsed()))
    fake.script("POST", f"{ONE}/preview", sealed_preview(approver, rehearsed().digest, None, "no such table"))
    said = at_terminal(aileron, "approve", ID, *given, answers=[SIGN]).exits(2)
    assert "what it would do could not be tried, so it cannot be approved: no such table" in flat(said)
    assert "cannot be approved as it is, and still waits" in flat(said)
    assert f"fix: aileron deny {ID}" in flat(said)
    assert (YES_OR_NO in said.out, sent(fake)) == (False, [])

    fake.script("POST", f"{ONE}/preview", sealed_preview(approver, rehearsed().digest, FIELDS))
    answers = [SIGN] if given else [SIGN, (YES_OR_NO, "yes")]
    assert at_terminal(aileron, "approve", ID, *given, answers=answers).code == 0
    assert len(sent(fake)) == 1


def test_a_preview_with_a_false_digest_is_not_signed(fake: FakeDaemon, aileron: Command, approver: Approver) -> None:
    """The exit code is 9: the daemon stored a digest of other fields than those shown."""
    asks(fake, question(previewed()))
    script = sealed_preview(approver, previewed().digest, FIELDS, digest="sha256:" + "00" * 32)
    fake.script("POST", f"{ONE}/preview", script)
    at_terminal(aileron, "approve", ID, answers=[SIGN]).exits(9)
    assert sent(fake) == []


@pytest.mark.parametrize("sealed", ["", "AAAA", base64.b64encode(b"x" * 200).decode(), 7, None])
def test_a_preview_that_is_not_sealed_to_this_command_is_refused(
    fake: FakeDaemon, aileron: Command, approver: Approver, sealed: object
) -> None:
    """The exit code is 9, and nothing is decided."""
    asks(fake, question(previewed()))
    fake.script("POST", f"{ONE}/preview", (200, {"sealed": sealed}))

    assert at_terminal(aileron, "approve", ID, answers=[SIGN]).code == 9
    assert sent(fake) == []


def test_a_preview_can_be_shown_without_deciding(fake: FakeDaemon, aileron: Command, approver: Approver) -> None:
    """`approval show --preview` needs the approver at a terminal; without the option the preview is only mentioned."""
    asks(fake, question(previewed()))
    fake.script("POST", f"{ONE}/preview", sealed_preview(approver, previewed().digest, FIELDS))
    shown = at_terminal(aileron, "approval", "show", ID, "--preview", answers=[SIGN])
    plain = at_terminal(aileron, "approval", "show", ID)

    assert (shown.code, plain.code) == (0, 0)
    assert "all of it" in shown.out
    assert "all of it" not in plain.out
    assert f"aileron approval show {ID} --preview" in plain.out
    assert aileron("approval", "show", ID, "--preview").code == 6
    assert sent(fake) == []


def test_a_denial_needs_no_preview(fake: FakeDaemon, aileron: Command, approver: Approver) -> None:
    """The denial is signed over the plan's own digest."""
    asks(fake, question(previewed()))
    at_terminal(aileron, "deny", ID, answers=[(WHY, "no"), SIGN]).exits(0)
    assert_signed(approver, sent(fake)[0], previewed().digest, "deny")


# A run that asks at its terminal


def waits(fake: FakeDaemon) -> None:
    """Make `run send-mail` wait for approval."""
    pending = {"status": "pending_approval", "approval_id": ID, "audit_id": "run-1", "message": "Ask Mira."}
    fake.script("POST", "/v1/actions/send-mail/run", (202, pending))


def test_a_run_is_signed_at_the_terminal_where_its_command_was_typed(
    fake: FakeDaemon, aileron: Command, approver: Approver
) -> None:
    """The command then ends like any run."""
    waits(fake)
    said = at_terminal(aileron, "run", "send-mail", answers=[(THREE_WAYS, "y"), SIGN]).exits(0)
    assert said.out.endswith('{\n  "sent": 1\n}\n')
    assert_signed(approver, sent(fake)[0], plan().digest, "approve")


@pytest.mark.parametrize(
    "answers", [[(THREE_WAYS, "")], [(THREE_WAYS, "\x03")], [(THREE_WAYS, "y"), (PASSPHRASE, "\x03")]]
)
def test_a_run_that_is_not_signed_in_place_stays_pending(
    fake: FakeDaemon, aileron: Command, approver: Approver, answers: Any
) -> None:
    """Enter exits with 75 and Ctrl-C with 130, with the commands that decide."""
    waits(fake)
    said = at_terminal(aileron, "run", "send-mail", answers=answers).exits(75 if answers == [(THREE_WAYS, "")] else 130)
    assert f"approve: aileron approve {ID}\n" in said.out
    assert sent(fake) == []


def test_a_gated_run_of_an_agent_waits_without_a_prompt(fake: FakeDaemon, aileron: Command, approver: Approver) -> None:
    """A pipe gets no question, and the operator socket is not used."""
    waits(fake)
    aileron("run", "send-mail", given=f"y\n{APPROVER}\n").exits(75)
    assert {seen.socket for seen in fake.seen} == {"agent"}


def test_a_persons_question_is_shown_to_the_agent_that_repeats_its_run(fake: FakeDaemon, aileron: Command) -> None:
    """An agent that runs the action again with the same key gets it as JSON or in words."""
    pending = {"status": "pending_approval", "approval_id": ID, "audit_id": "run-1", "question": "why \x1b[2Jhim?"}
    fake.script("POST", "/v1/actions/send-mail/run", (202, pending))

    assert aileron("run", "send-mail", "--json").json["question"] == "why \x1b[2Jhim?"
    assert "question from the person: why \\x1b[2Jhim?\n" in aileron("run", "send-mail").err


def test_run_reports_that_the_approver_changed_the_arguments(fake: FakeDaemon, aileron: Command) -> None:
    """The agent must not believe that its own arguments were used."""
    done = {"audit_id": "run-1", "result": 7, "executed_arguments": {"to": "other@example.com"}}
    fake.script("POST", "/v1/actions/send-mail/run", (200, done))
    said = aileron("run", "send-mail")

    assert said.out == "7\n"
    assert "a person changed the arguments" in said.err
    assert 'to = "other@example.com"' in said.err
    assert aileron("run", "send-mail", "--json").json["executed_arguments"] == {"to": "other@example.com"}


def test_a_run_in_its_undo_window_says_when_it_starts(fake: FakeDaemon, aileron: Command, approver: Approver) -> None:
    """The output also says how to cancel the run until then."""
    asks(fake, question(), answer={"held_until": "2099-11-21T04:01:00Z"})
    fake.script(
        "GET", f"{ONE}/result", (200, {"status": "approved", "held_until": "2099-11-21T04:01:00Z", "audit_id": "r"})
    )
    said = at_terminal(aileron, "approve", ID, "--wait", "0", answers=[(YES_OR_NO, "yes"), SIGN]).exits(0)
    assert f"held until 2099-11-21 04:01:00\n  cancel: aileron approval cancel {ID}\n" in said.out
    assert "held until 2099-11-21 04:01:00, then it starts\n" in said.out


# An action whose file needs consent


def needs_consent(fake: FakeDaemon, *after: Reply) -> None:
    """Make `run send-mail` fail for lack of consent, then answer with these replies."""
    refused = error("consent_required", 403, "its file is wider", details={"approval_id": ID, "action": "send-mail"})
    fake.script("POST", "/v1/actions/send-mail/run", refused, *(after or (refused,)))
    asks(
        fake,
        subject_question(SUBJECTS["action_file"]),
        answer={"status": "completed", "result": {"name": "send-mail", "digest": "sha256:0"}},
    )


def test_a_run_that_needs_consent_says_how_to_give_it(fake: FakeDaemon, aileron: Command, approver: Approver) -> None:
    """The exit code without a terminal is 6."""
    needs_consent(fake)
    said = aileron("run", "send-mail", "--json").exits(6)
    assert said.json["error"]["fix"] == f"aileron approve {ID}"
    assert said.json["error"]["details"]["approval_id"] == ID


def test_consent_can_be_given_at_the_runs_prompt_and_the_run_is_repeated_once(
    fake: FakeDaemon, aileron: Command, approver: Approver
) -> None:
    """The changes of the file are shown; then it runs as if consent had been given before."""
    needs_consent(fake, (200, {"audit_id": "run-2", "result": 7}))
    said = at_terminal(aileron, "run", "send-mail", answers=[(THREE_WAYS, "y"), SIGN]).exits(0)
    assert "ALLOWS MORE: approval.required: true → false" in said.out
    assert said.out.endswith("\n7\n")
    assert_signed(approver, sent(fake)[0], subject_digest(SUBJECTS["action_file"]), "approve")
    assert len(fake.asked("POST", "/v1/actions/send-mail/run")) == 2


@pytest.mark.parametrize(("answers", "code"), [([(THREE_WAYS, "")], 6), ([(THREE_WAYS, "n"), (WHY, "no"), SIGN], 5)])
def test_a_run_without_consent_is_not_repeated(
    fake: FakeDaemon, aileron: Command, approver: Approver, answers: Any, code: int
) -> None:
    """The person leaves the consent pending, or denies it."""
    needs_consent(fake)

    assert at_terminal(aileron, "run", "send-mail", answers=answers).code == code
    assert len(fake.asked("POST", "/v1/actions/send-mail/run")) == 1


def test_a_run_that_needs_consent_prompts_for_it_only_once(
    fake: FakeDaemon, aileron: Command, approver: Approver
) -> None:
    """The file changes again after the consent: the exit code is 6, and there is no second prompt."""
    needs_consent(fake)
    said = at_terminal(aileron, "run", "send-mail", answers=[(THREE_WAYS, "y"), SIGN]).exits(6)
    assert said.out.count(THREE_WAYS) == 1


# The cards of consents


@pytest.mark.parametrize("kind", SUBJECTS)
def test_each_kind_of_consent_is_shown_and_signed(
    fake: FakeDaemon, aileron: Command, approver: Approver, kind: str
) -> None:
    """The whole card is shown in words, then the result of the consent."""
    installed = {"hash": "sha256:ab", "new": True, "replaced": [], "signature": "unsigned"}
    bound = {"kind": "basic", "secret": "pw", "username": "mira", "account": "mira", "created_at": "c", "state": "ok"}
    results = {
        "action_file": {"name": "send-mail", "replaced": False},
        "connector": {"name": "github://example/connector-mail", "version": "1.4.0", **installed},
        "connector_update": {"name": "github://example/connector-mail", "version": "1.5.0", **installed},
        "installation": {
            "connectors": [{"name": "github://example/connector-mail", "version": "1.4.0", **installed}],
            "actions": [{"name": "mail-read", "replaced": False}, {"name": "mail-send", "replaced": True}],
            "bindings": [],
        },
        "binding": {
            "name": "basic/mail/home",
            "connector": "github://example/connector-mail",
            "expires_at": None,
            "refreshed_at": None,
            **bound,
        },
        "secret": {"name": "pw"},
        "trusted_key": {"authority": "github://acme", "key": "sha256:O0kx3R3JU/Buyr2UoNBPtY", "keys": [], "new": True},
        "grant": {"id": ID, "action": "send-mail", "uses": 10, "until": "2099-11-21T04:15:00Z"},
        "settings": {"settings": {}, "restart": True},
        "passkey": {"id": "webauthn:be45", "name": "Mira's phone", "origin": "http://localhost:24100"},
        "tool_change": {
            "connector": "github://example/connector-mail@1.4.0",
            "op": "add_note",
            "action": "notes-add-note",
            "digest": "sha256:ab",
        },
        "host": {"session": "ses-1", "host": "registry.example.com:443"},
    }
    words = {
        "action_file": [
            "allows more than you agreed to",
            "ALLOWS MORE: approval.required: true → false",
            "│ # Send a mail",
        ],
        "connector": ["from         /home/mira/connector-mail", "goes to", "mail.example:443", "unsigned", "http, log"],
        "connector_update": [
            "differs      from 1.4.0:",
            "ALLOWS MORE: reaches: new, files.example:443",
            "publisher    Example",
        ],
        "installation": [
            "Install “mail”: 1 connector, 2 actions, 1 credential",
            "! LASTING PERMISSION",
            "goes to mail.example:443",
            "connector github://example/connector-mail@1.4.0",
            "to use the secret pw",
            "cannot be read: mail-read",
        ],
        "binding": ["to use the secret pw", "user name   mira", "mail.example:443"],
        "secret": ["pw gets a new value", "used by     basic/mail/home", "approve only if you set it just now"],
        "trusted_key": [
            "and all its",
            "/home/mira/acme.pub",
            "no other keys",
            "compare     this key with what the publisher",
        ],
        "grant": [
            'to is one of "mira@example.com", "a@example.com"',
            'subject starts with "[ci] "',
            "size is at most 7",
            "10 times",
        ],
        "settings": ['egress.private: [] → ["nas.local:443"]'],
        "passkey": [
            "passkey     Mira's phone",
            "key         webauthn:a323e0d6723f28fe86de63d6f2e96cc2",
            "this key with the one on your page",
            "page        http://localhost:24100",
            "synced      yes, through the account it is kept in",
            "device      hybrid, internal",
        ],
        "tool_change": [
            "changes description: Adds a note. → Adds a note, and",
            "allows every action that uses the tool to go on",
            "undo you can disable the actions that use it",
            '"description": "Adds a note, and sends a copy."',
        ],
        "host": [
            "Let “claude” connect to “registry.example.com:443”",
            "! ANYTHING CAN BE SENT THERE until the session ends",
            "goes to registry.example.com:443",
            "agent claude in /home/mira/work",
            "until the session ends (ses-1)",
            "undo it ends with the session",
        ],
    }
    after = {
        "action_file": "send-mail\nadded\n",
        "connector": "installed, unsigned\n",
        "connector_update": "installed, unsigned\n",
        "installation": "installed github://example/connector-mail@1.4.0\nmail-read\nadded\nmail-send\n"
        "replaced the installed action of that name\n",
        "binding": "basic/mail/home\n",
        "secret": "stored pw\n",
        "trusted_key": "sha256:O0kx3R3JU/Buyr2UoNBPtY\ntrusted for github://acme\n",
        "grant": f"{ID}\nsend-mail runs without approval within these limits",
        "settings": "takes effect when the daemon restarts\n",
        "passkey": "webauthn:be45\nMira's phone can sign decisions on http://localhost:24100\n",
        "tool_change": "notes-add-note\nadd_note of github://example/connector-mail@1.4.0 runs again",
        "host": "registry.example.com:443\nthe session ses-1 can connect there until it ends\n",
    }
    subject = SUBJECTS[kind]
    asks(fake, subject_question(subject), answer={"status": "completed", "result": results[kind]})
    said = at_terminal(aileron, "approve", ID, answers=[(YES_OR_NO, "allow"), SIGN]).exits(0)
    assert_signed(approver, sent(fake)[0], subject_digest(subject), "approve")
    shown, _, then = said.out.partition(YES_OR_NO)
    assert [word for word in words[kind] if re.sub(r" +", " ", word) not in re.sub(r" +", " ", shown)] == []
    assert after[kind] in then
    assert "sandbox.mode" not in shown


@pytest.mark.parametrize(
    ("gate", "words"), [("", "RUNS WITHOUT APPROVAL"), ("[approval]\nrequired = true\n", "needs approval")]
)
def test_a_card_says_whether_runs_of_an_action_will_need_approval(
    fake: FakeDaemon, aileron: Command, approver: Approver, gate: str, words: str
) -> None:
    """The card derives this from the signed text, which is too long to be seen whole; every line fits the terminal."""
    text = f"""+++
name = "send-mail"
version = "1.0.0"

[[requires.connectors]]
name = "github://example/connector-mail"
version = "1.4.0"
hash = "sha256:{"ab" * 32}"
capabilities = ["send"]

[match]
intent = "send a mail"

[[execute]]
id = "send"
connector = "github://example/connector-mail"
op = "send"
idempotent = false

{gate}+++

# Send a mail
"""
    subject = msgspec.structs.replace(SUBJECTS["action_file"], text=text, before=None, changes=())
    asks(fake, subject_question(subject))
    said = at_terminal(aileron, "approval", "show", ID)

    assert [line for line in said.out.splitlines() if line.startswith("each run ") and words in line] != [], said.out
    assert [line for line in said.out.splitlines() if len(line) > 80] == []


def test_a_consent_that_fails_after_approval_says_why(fake: FakeDaemon, aileron: Command, approver: Approver) -> None:
    """The exit code is that of its failure."""
    failed = error("hash_mismatch", 409, "other bytes by now")[1]["error"]
    asks(fake, subject_question(SUBJECTS["connector"]), answer={"status": "failed", "error": failed})
    said = at_terminal(aileron, "approve", ID, answers=[(YES_OR_NO, "allow"), SIGN]).exits(9)
    assert "error: other bytes by now\n" in said.out


def test_a_denied_consent_exits_with_0(fake: FakeDaemon, aileron: Command, approver: Approver) -> None:
    """The command did what was requested: it denied."""
    asks(fake, subject_question(SUBJECTS["connector"]))
    at_terminal(aileron, "deny", ID, answers=[(WHY, "no"), SIGN]).exits(0)
    assert_signed(approver, sent(fake)[0], subject_digest(SUBJECTS["connector"]), "deny")


# Changes that need consent, where they are typed


def pending(kind: str) -> Reply:
    """Return the response of a route that changes nothing yet."""
    return 202, {
        "status": "pending_approval",
        "approval_id": ID,
        "kind": kind,
        "digest": subject_digest(SUBJECTS[kind]),
        "review_url": "http://l:1/a",
        "message": "ask a person",
        "expires_at": "2099-11-21T04:15:00Z",
        "poll_after_ms": 2000,
    }


@pytest.fixture
def changes(fake: FakeDaemon, approver: Approver, tmp_path: Path) -> dict[str, tuple[str, ...]]:
    """Commands that request a change, by the kind of the question that they get as response."""
    file = tmp_path / "send-mail.md"
    file.write_text("+++\n+++\n")
    fake.connectors = [
        {
            "name": "github://a/b",
            "version": "1.0.0",
            "hash": "sha256:ab",
            "credential": {"kind": "basic", "scope": "mail"},
        }
    ]
    fake.add_action("send-mail", "to:string")
    fake.script("POST", "/v1/actions", pending("action_file"))
    fake.script("POST", "/v1/connectors", pending("connector"))
    fake.script("POST", "/v1/bindings", pending("binding"))
    fake.script("PUT", "/v1/secrets/pw", pending("secret"))
    fake.script("POST", "/v1/grants", pending("grant"))
    binding = ("binding", "setup", "github://a/b", "--name", "basic/mail/home", "--username", "u", "--secret", "pw")
    return {
        "action_file": ("action", "add", str(file)),
        "connector": ("connector", "install", str(tmp_path)),
        "binding": binding,
        "secret": ("secret", "set", "pw"),
        "grant": ("grant", "add", "send-mail", "--uses", "3", "--for", "2d"),
    }


KINDS = ["action_file", "connector", "binding", "secret", "grant"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_requested_without_a_person_who_can_sign_it_stays_pending(
    fake: FakeDaemon, aileron: Command, changes: dict[str, tuple[str, ...]], kind: str
) -> None:
    """The exit code is 75, with --yes too: the id is on standard output, the command to decide on standard error."""
    asks(fake, subject_question(SUBJECTS[kind]))
    plain = aileron(*changes[kind], "--yes", given="value-value")
    as_json = aileron(*changes[kind], "--json", given="value-value")

    assert (plain.code, as_json.code) == (75, 75)
    assert plain.out == f"{ID}\n"
    assert plain.err.startswith("nothing changed yet: approval required\n")
    assert f"  approve: aileron approve {ID}\n" in plain.err
    assert as_json.json["approval_id"] == ID
    assert sent(fake) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_is_shown_and_signed_by_the_command_that_requests_it(
    fake: FakeDaemon, aileron: Command, approver: Approver, changes: dict[str, tuple[str, ...]], kind: str
) -> None:
    """The command's output is then that of a home without an approver."""
    made = {"name": "what was done", "digest": "d", "hash": "h", "new": True, "replaced": [], "signature": "unsigned"}
    granted = {"id": ID, "action": "send-mail", "uses": 3, "until": "2099-11-21T04:15:00Z"}
    bound = {"kind": "basic", "connector": "c", "secret": "s", "username": "u", "account": "u", "created_at": "c"}
    never = {"expires_at": None, "refreshed_at": None, "state": "ok"}
    done = {**made, **granted, **bound, **never} if kind != "action_file" else {"name": made["name"], "digest": "d"}
    asks(fake, subject_question(SUBJECTS[kind]), answer={"status": "completed", "result": done})
    typed = [("Value of pw: ", "value-value")] if kind == "secret" else []
    said = at_terminal(aileron, *changes[kind], answers=[*typed, (THREE_WAYS, "y"), SIGN]).exits(0)
    assert_signed(approver, sent(fake)[0], subject_digest(SUBJECTS[kind]), "approve")
    assert (ID if kind == "grant" else "what was done") in said.out.partition(PASSPHRASE)[2]


@pytest.mark.parametrize(("answers", "code"), [([(THREE_WAYS, "")], 75), ([(THREE_WAYS, "n"), (WHY, "no"), SIGN], 5)])
def test_a_requested_change_can_be_left_pending_or_denied(
    fake: FakeDaemon, aileron: Command, changes: dict[str, tuple[str, ...]], answers: Any, code: int
) -> None:
    """The command that decides is shown if the question is left; a denial exits with 5."""
    asks(fake, subject_question(SUBJECTS["action_file"]))
    said = at_terminal(aileron, *changes["action_file"], answers=answers).exits(code)
    assert (f"approve: aileron approve {ID}" in said.out) == (code == 75)


@pytest.mark.parametrize(("status", "code"), [("denied", 6), ("expired", 6), ("completed", 0)])
def test_a_decision_made_elsewhere_about_a_change_takes_precedence(
    fake: FakeDaemon, aileron: Command, changes: dict[str, tuple[str, ...]], status: str, code: int
) -> None:
    """The other decision came between the question and the signature."""
    asks(fake, subject_question(SUBJECTS["action_file"]))
    fake.script("POST", f"{ONE}/decide", error("already_decided", 409, "x", details={"status": status}))
    said = at_terminal(aileron, *changes["action_file"], answers=[(THREE_WAYS, "y"), SIGN]).exits(code)
    assert f"already decided elsewhere: {state_words(status)}" in said.out


def test_the_option_yes_does_not_sign_a_change(
    fake: FakeDaemon, aileron: Command, changes: dict[str, tuple[str, ...]]
) -> None:
    """The option skips the prompt, but the change is shown, and the passphrase is still needed."""
    asks(
        fake,
        subject_question(SUBJECTS["action_file"]),
        answer={"status": "completed", "result": {"name": "x", "digest": "sha256:0"}},
    )
    said = at_terminal(aileron, *changes["action_file"], "--yes", answers=[SIGN]).exits(0)
    assert THREE_WAYS not in said.out
    assert "ALLOWS MORE: approval.required" in said.out


@pytest.mark.parametrize(
    ("answers", "kept"),
    [([(THREE_WAYS, "")], True), ([(THREE_WAYS, "n"), (WHY, "no"), SIGN], False), ([(THREE_WAYS, "\x03")], True)],
)
def test_a_secret_typed_for_a_binding_is_kept_while_its_consent_waits(
    fake: FakeDaemon, aileron: Command, changes: dict[str, tuple[str, ...]], answers: Any, kept: bool
) -> None:
    """A denial removes it from the vault."""
    asks(fake, subject_question(SUBJECTS["binding"]))
    typed = ("Password or token: ", "value-value")
    at_terminal(aileron, *changes["binding"][:-2], answers=[typed, *answers])

    assert list(fake.secrets) == (["mail-home"] if kept else [])


# Editing


@pytest.fixture
def edits(fake: FakeDaemon, approver: Approver) -> Plan:
    """Plan that the daemon makes of the edited arguments; the question then lists the edit."""
    edited = plan({"to": "anna@example.com", "body": "Dear Mira\nthe invoice is paid."})
    change = {"where": "to", "before": "mira@example.com", "after": "anna@example.com", "widens": True}
    made = {"digest": edited.digest, "plan": edited.to_json(), "made_at": "2026-11-21T04:02:00Z"}
    asks(fake, question(edits=[made]))
    fake.script("POST", f"{ONE}/edit", (200, {"digest": edited.digest, "plan": edited.to_json(), "changes": [change]}))
    return edited


def test_edited_arguments_are_shown_and_signed(
    fake: FakeDaemon, aileron: Command, approver: Approver, edits: Plan
) -> None:
    """The change from the editor is shown, then the new plan, whose digest is signed."""
    editor = "sed -i s/mira@/anna@/"
    said = at_terminal(aileron, "approval", "edit", ID, answers=[(YES_OR_NO, "yes"), SIGN], EDITOR=editor).exits(0)
    assert [seen.body for seen in fake.asked("POST", f"{ONE}/edit")] == [{"args": edits.args}]
    assert_signed(approver, sent(fake)[0], edits.digest, "approve")
    shown = said.out.partition(YES_OR_NO)[0]
    assert shown.count("edited      ≠ to: mira@example.com → anna@example.com") == 1
    assert "Send mail: to “anna@example.com”" in shown
    assert "\nto          anna@example.com\n" in shown


def test_edited_arguments_can_come_from_a_file(fake: FakeDaemon, aileron: Command, edits: Plan, tmp_path: Path) -> None:
    """The command line can have them too; the decision is still signed at the terminal."""
    file = tmp_path / "args.json"
    file.write_text(json.dumps(edits.args))
    said = at_terminal(aileron, "approval", "edit", ID, "--args", f"@{file}", answers=[(YES_OR_NO, "yes"), SIGN])
    piped = aileron("approval", "edit", ID, "--args", json.dumps(edits.args))

    assert said.code == 0, said
    assert piped.code == 6
    assert len(sent(fake)) == 1


def test_an_edit_that_changes_no_argument_decides_nothing(fake: FakeDaemon, aileron: Command, edits: Plan) -> None:
    """The exit code is 75."""
    at_terminal(aileron, "approval", "edit", ID, EDITOR="true").exits(75)
    assert fake.asked("POST", f"{ONE}/edit") == []


def test_an_edit_that_is_not_json_can_be_corrected_or_abandoned(
    fake: FakeDaemon, aileron: Command, edits: Plan
) -> None:
    """Abandoning the edit exits with 2 and decides nothing."""
    answers = [("Edit it again? [Y/n] ", "n")]
    at_terminal(aileron, "approval", "edit", ID, answers=answers, VISUAL="sed -i s/{/[/").exits(2)
    assert sent(fake) == []


@pytest.mark.parametrize(("editor", "code"), [("", 2), ("/nowhere/editor", 2), ("false", 1)])
def test_edit_without_a_working_editor_fails(
    fake: FakeDaemon, aileron: Command, edits: Plan, editor: str, code: int
) -> None:
    """The question keeps its arguments."""
    assert at_terminal(aileron, "approval", "edit", ID, EDITOR=editor, VISUAL="").code == code
    assert aileron("approval", "edit", ID).code == 2
    assert fake.asked("POST", f"{ONE}/edit") == []


def test_an_edit_whose_plan_has_other_arguments_than_those_typed_is_not_signed(
    fake: FakeDaemon, aileron: Command, edits: Plan
) -> None:
    """The daemon makes the plan of the edit, so the command compares the two and exits with 9."""
    at_terminal(aileron, "approval", "edit", ID, "--args", '{"to": "bert@example.com"}').exits(9)
    assert sent(fake) == []


def test_approve_does_not_approve_an_edit(fake: FakeDaemon, aileron: Command, approver: Approver, edits: Plan) -> None:
    """Any process of the user can make an edit, so `approve` decides the original request, and lists the edits."""
    said = at_terminal(aileron, "approve", ID, answers=[(YES_OR_NO, "yes"), SIGN])

    assert_signed(approver, sent(fake)[0], plan().digest, "approve")
    assert f"edits 1, not decided: {edits.digest}" in flat(said)


# Questions to the agent


def test_a_person_can_ask_the_agent_a_question(fake: FakeDaemon, aileron: Command) -> None:
    """The text is an argument or typed at a terminal; an empty one sends nothing."""
    asks(fake, question())
    fake.script("POST", f"{ONE}/ask", (200, {"approval_id": ID, "question": "why him?"}))

    assert aileron("approval", "ask", "cafe", "why him?").code == 0
    assert at_terminal(aileron, "approval", "ask", ID, answers=[("Question for the agent: ", "why him?")]).code == 0
    assert aileron("approval", "ask", ID).code == 2
    assert [seen.body for seen in fake.asked("POST", f"{ONE}/ask")] == [{"question": "why him?"}] * 2


def test_the_agents_answer_is_marked_as_not_verified(fake: FakeDaemon, aileron: Command, approver: Approver) -> None:
    """The answer is boxed line by line, and cannot pass for a line of the card."""
    said = "he is a customer\ngoes to     nothing\n\x1b[1Aaccount     none"
    asks(fake, question(conversation=[{"question": "why him?", "answer": said}, {"question": "sure?"}]))
    shown = at_terminal(aileron, "approve", ID, answers=[(YES_OR_NO, "n")]).out

    assert (
        "agent says (not verified)\nyou asked\n  │ why him?\nthe agent\n  │ he is a customer\n  │ goes to     nothing\n"
        in shown
    )
    assert "you asked\n  │ sure?\nthe agent\n  │ has not answered yet\n" in shown
    assert shown.count("\ngoes to     ") == 1


# Other contents of the card


def test_differences_from_the_last_approved_call_are_shown(fake: FakeDaemon, aileron: Command) -> None:
    """The card also says if nothing differs, or if there was no such call."""
    change = {"where": "to", "before": "anna@example.com", "after": "mira@example.com"}
    found = {"approval_id": "act-1", "decided_at": "2026-11-20T10:00:00Z", "changes": [change], "problem": None}
    for difference, told in (
        (found, "≠ to: anna@example.com → mira@example.com"),
        ({**found, "changes": []}, "same as the call approved"),
        (None, "first time for this action"),
    ):
        asks(fake, question(difference=difference))
        assert told in aileron("approval", "show", ID).out
    asks(fake, question(difference=found))
    assert "to: anna@example.com → mira@example.com" in aileron("approval", "show", ID).out


@pytest.mark.parametrize("host", ["xn--pple-43d.example:443", "a.xn--p1ai:443"])
def test_a_host_in_look_alike_letters_is_marked(fake: FakeDaemon, aileron: Command, host: str) -> None:
    """The letters are shown with their code points; a plain host has no mark."""
    asks(fake, question(plan(hosts=(host, "mail.example:443"))))
    said = aileron("approval", "show", ID).out

    assert f"{host} (! not in plain letters: reads " in said
    assert "U+04" in said
    assert "mail.example:443  (!" not in said


def test_a_truncated_value_is_always_marked(fake: FakeDaemon, aileron: Command) -> None:
    """A terminal shows how much is missing and how to see it; a pipe, and --full, get the whole value."""
    text, value = "a line\n" * 300 + "the end of it", "x" * 5000 + "the end of that"
    asks(fake, question(plan({"body": text, "blob": value})))
    cut = at_terminal(aileron, "approval", "show", ID).out
    whole = at_terminal(aileron, "approval", "show", ID, "--full").out
    piped = aileron("approval", "show", ID).out

    assert "more characters:" in cut
    assert f"aileron approval show {ID} --full" in " ".join(cut.split())
    assert "the end of" not in cut
    for shown in (whole, piped):
        assert "the end of it" in shown
        assert "the end of that" in shown.replace("\n            ", "")
        assert "more characters" not in shown


def test_arguments_are_shown_with_the_labels_of_their_action_file(fake: FakeDaemon, aileron: Command) -> None:
    """Labels and order are those of the action file; if it cannot be read, the arguments' names are shown."""
    text = _ACTION.replace("TYPE", "string")
    asks(fake, question(plan({"body": "b", "to": "a"}, action_text=text)))
    labelled = aileron("approval", "show", ID).out
    asks(fake, question(plan({"body": "b", "to": "a"})))
    plain = aileron("approval", "show", ID).out

    assert "\nRecipient (to)\ta\nbody\tb\n" in labelled
    assert "\nbody\tb\nto\ta\n" in plain


_ACTION = """+++
name = "send-mail"
version = "1.2.0"
[[requires.connectors]]
name = "github://example/connector-mail"
version = "1.4.0"
hash = "sha256:cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd"
capabilities = ["send_mail"]
[match]
intent = "send a mail"
[[execute]]
id = "one"
connector = "github://example/connector-mail"
op = "send_mail"
[[inputs]]
name = "to"
type = "TYPE"
description = "Who gets it."
label = "Recipient"
[[inputs]]
name = "body"
type = "TYPE"
description = "What it says."
+++
"""


def test_a_signed_decision_is_shown_with_its_key(fake: FakeDaemon, aileron: Command) -> None:
    """A decision without a signature says so."""
    asks(fake, question(status="denied", decided_at="2026-11-21T04:01:00Z", key_id="ed25519:" + "ab" * 16))
    signed = aileron("approval", "show", ID).out
    asks(fake, question(status="denied", decided_at="2026-11-21T04:01:00Z"))

    assert f"signed\tby ed25519:{'ab' * 16}\n" in signed
    assert "signed\tno\n" in aileron("approval", "show", ID).out


# Hostile text in questions


def _with_text(value: Any, text: str) -> Any:
    """Return `value` with every string replaced, except words of a closed list."""
    if isinstance(value, dict):
        closed = ("kind", "operator", "synced")
        return {name: inner if name in closed else _with_text(inner, text) for name, inner in value.items()}
    if isinstance(value, list):
        return [_with_text(inner, text) for inner in value]
    return text if isinstance(value, str) else value


@pytest.mark.parametrize("kind", SUBJECTS)
def test_hostile_text_in_a_consent_is_escaped(
    fake: FakeDaemon, aileron: Command, approver: Approver, kind: str
) -> None:
    """The text is in an action's file, a path or a value; the consent is asked about, shown and listed."""
    subject = msgspec.convert(
        _with_text(msgspec.to_builtins(SUBJECTS[kind]), as_in_a_file(EVERYTHING)), type(SUBJECTS[kind])
    )
    asks(fake, subject_question(subject, name=EVERYTHING, session=EVERYTHING))
    for said in (
        aileron.at_terminal("approve", ID, answers=[("to approve: ", "n")]),
        aileron.at_terminal("approval", "show", ID, "--full"),
        aileron.at_terminal("approval", "list"),
    ):
        assert_harmless(said.out)
        assert_no_line_begins(said.out, "  fix: curl", "approved", "x why", "status\tapproved")


@hostile
def test_hostile_text_around_a_plan_is_escaped(
    fake: FakeDaemon, aileron: Command, approver: Approver, text: str
) -> None:
    """The text is in the preview, difference, edits, conversation and session."""
    text = as_in_a_file(text)
    change = {"where": text, "before": text, "after": text, "widens": True}
    edit = {"digest": text, "plan": plan().to_json(), "made_at": text}
    changes = [change, {**change, "before": None}]
    difference = {"approval_id": text, "decided_at": text, "changes": changes, "problem": None}
    beside = {"difference": difference, "edits": [edit], "conversation": [{"question": text, "answer": text}]}
    asks(fake, question(previewed({"to": text, "body": text + "\n" + text}), session=text, **beside))
    fields = [{"label": text, "value": text, "multiline": many} for many in (False, True)]
    digest = previewed({"to": text, "body": text + "\n" + text}).digest
    fake.script("POST", f"{ONE}/preview", sealed_preview(approver, digest, fields))
    said = aileron.at_terminal("approve", ID, answers=[SIGN, ("to approve: ", "n")]).exits(75)
    assert_harmless(said.out)
    assert_no_line_begins(said.out, "  fix: curl", "approved", "signed by")
