"""`approve`, `deny`, `approval`, and a run that asks at its terminal: what is shown and asked, what is sent, and the result."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aileron.cards.question import state_words
from aileron.cli.run import OPTIONS
from tests.cli.command import Command, Said
from tests.cli.questions import SUBJECTS, plan, subject_question
from tests.support.fake_daemon import FakeDaemon, Reply, Seen, error
from tests.support.listed import in_a_list

ID = "act-20261121T040000-0123456789abcdefcafe"
OTHER = "act-20261121T040001-fedcba98765432100ff5"
ONE = f"/v1/action-approvals/{ID}"
RUN = "/v1/actions/act/run"
PASSPHRASE = "correct horse battery"
YES_OR_NO = "to approve: "
THREE_WAYS = "leave it waiting: "
WHY = "sent to the agent): "
UNSIGNED = "not signed: any process of this user can decide; aileron approver init\n"
LOCKED = error("vault_locked", 423, "the vault is locked; run `aileron vault unlock`")[1]["error"]


def question(**more: Any) -> dict[str, Any]:
    """Return a question as the daemon shows it."""
    of = plan({"body": "Dear\nMira"}, action="act", action_version="1.0.0")
    (step,) = of.steps
    of = msgspec.structs.replace(of, steps=(msgspec.structs.replace(step, args={"to": "mira@example.com"}),))
    return {
        "approval_id": ID,
        "kind": "action",
        "status": "pending_approval",
        "digest": "sha256:shown",
        "audit_id": "run-1",
        "action": "act",
        "session": "local",
        "created_at": "2026-11-21T04:00:00Z",
        "expires_at": "2026-11-21T04:15:00Z",
        "head": "41:" + "ab" * 32,
        "plan": of.to_json(),
        **more,
    }


def result(status: str, **more: Any) -> Reply:
    """Return the response for the result of the approval."""
    return 200, {"status": status, "audit_id": "run-1", "action": "act", "approval_id": ID, **more}


def settled(status: str) -> Reply:
    """Return the response to a decision."""
    return 200, {"status": status, "approval_id": ID, "audit_id": "run-1"}


def failed(name: str) -> dict[str, Any]:
    """Return the failure of a run, as its result contains it."""
    found: dict[str, Any] = error(name, 500, "it did not work", audit_id="run-1")[1]["error"]
    return found


@pytest.fixture
def fake(fake: FakeDaemon) -> FakeDaemon:
    """A daemon with two open questions and an open vault: decided runs complete, and `run act` asks the first."""
    fake.passphrase, fake.is_locked = PASSPHRASE, False
    fake.approvals = [question(), question(approval_id=OTHER)]
    fake.script("GET", ONE, (200, question()))
    fake.script("GET", f"{ONE}/result", result("completed", result={"sent": 1}))
    fake.script("POST", f"{ONE}/decide", _obeyed)
    fake.script("POST", f"{ONE}/cancel", settled("cancelled"))
    pending = {"status": "pending_approval", "approval_id": ID, "audit_id": "run-1", "message": "Ask Mira."}
    fake.script("POST", RUN, (202, {**pending, "expires_at": "2026-11-21T04:15:00Z", "review_url": "http://l:1/a"}))
    return fake


def _obeyed(seen: Seen) -> Reply:
    return settled("approved" if seen.body["decision"] == "approve" else "denied")


def decisions(fake: FakeDaemon) -> list[dict[str, Any]]:
    """Return the bodies that were sent to decide."""
    assert {seen.socket for seen in fake.asked("POST", f"{ONE}/decide")} <= {"operator"}
    return [seen.body for seen in fake.asked("POST", f"{ONE}/decide")]


# Approving in a script


def test_approve_sends_the_fetched_digest_and_prints_the_result(fake: FakeDaemon, aileron: Command) -> None:
    """The digest is that of the fetched question; the result alone is on standard output, as `run` prints it."""
    said = aileron("approve", ID, "--reason", "fine")

    assert decisions(fake) == [{"decision": "approve", "digest": "sha256:shown", "reason": "fine"}]
    assert (said.code, said.out, said.err) == (0, '{"sent": 1}\n', f"{UNSIGNED}approved {ID}\n")


def test_approve_with_json_prints_the_daemons_response(fake: FakeDaemon, aileron: Command) -> None:
    """The response is printed whole."""
    assert aileron("approve", ID, "--json").json == result("completed", result={"sent": 1})[1]


@pytest.mark.parametrize(
    ("status", "more", "code"),
    [
        ("failed", {"error": failed("network_error")}, 7),
        ("failed", {"error": failed("capability_denied")}, 6),
        ("unknown", {"error": failed("outcome_unknown")}, 8),
        ("unknown", {}, 8),
        ("cancelled", {}, 6),
        ("expired", {}, 6),
        ("denied", {"reason": "no"}, 5),
    ],
)
def test_an_approved_run_that_fails_exits_with_the_code_of_its_failure(
    fake: FakeDaemon, aileron: Command, status: str, more: dict[str, Any], code: int
) -> None:
    """The decision is shown first, then the failure; as JSON both are one object that has the fix."""
    fake.script("GET", f"{ONE}/result", result(status, **more))
    plain, as_json = aileron("approve", ID), aileron("approve", ID, "--json")

    assert (plain.code, as_json.code, plain.out) == (code, code, "")
    assert plain.err.startswith(f"{UNSIGNED}approved {ID}\nerror: ")
    assert plain.err.endswith("\n  look: aileron audit show run-1\n")
    assert (as_json.json["status"], as_json.json["error"]["fix"]) == (status, "aileron audit show run-1")


def test_approve_exits_with_0_if_the_approved_run_outlasts_the_wait(fake: FakeDaemon, aileron: Command) -> None:
    """The command says where to look."""
    fake.script("GET", f"{ONE}/result", result("running"))
    said = aileron("approve", ID, "--wait", "300ms")

    assert (said.code, said.out) == (0, "")
    assert said.err.endswith("still running after 0.3 s, and continues\n  look: aileron audit show run-1\n")
    assert aileron("approve", ID, "--wait", "0", "--json").json["status"] == "running"


def test_approve_polls_until_a_long_run_ends(fake: FakeDaemon, aileron: Command) -> None:
    """The first request waits briefly, so that a run that cannot start is reported soon; the others wait as long as allowed."""
    fake.script("GET", f"{ONE}/result", result("running"), result("running"), result("completed", result=1))

    assert aileron("approve", ID, "--wait", "5m").out == "1\n"
    waits = [float(seen.query["wait"]) for seen in fake.asked("GET", f"{ONE}/result")]
    assert waits == [2.0, 60.0, 60.0]


@pytest.mark.parametrize("words", [("soon",), ("25h",), ("-1s",)])
def test_approve_with_an_invalid_wait_option_decides_nothing(
    fake: FakeDaemon, aileron: Command, words: tuple[str]
) -> None:
    """The exit code is 2, before anything is requested."""
    assert aileron("approve", ID, f"--wait={words[0]}").code == 2
    assert fake.seen == []


# Questions that can no longer be decided


@pytest.mark.parametrize("status", ["approved", "running", "completed", "failed", "denied", "cancelled", "unknown"])
@pytest.mark.parametrize("command", ["approve", "deny"])
def test_approving_a_question_that_is_already_decided_exits_with_6(
    fake: FakeDaemon, aileron: Command, command: str, status: str
) -> None:
    """The command prompts for nothing and sends nothing."""
    fake.script("GET", ONE, (200, question(status=status)))
    said = aileron(command, ID, "--json").exits(6)
    assert said.err == f"error: {ID} is already {status}\n  fix: aileron approval show {ID}\n"
    assert (said.json["error"]["class"], said.json["error"]["details"]) == ("already_decided", {"status": status})
    assert decisions(fake) == []


def test_approving_an_expired_question_exits_without_a_prompt(fake: FakeDaemon, aileron: Command) -> None:
    """The exit code is 6."""
    fake.script("GET", ONE, (200, question(status="expired")))
    said = aileron.at_terminal("approve", ID, NO_COLOR="1").exits(6)
    assert said.out.startswith(f"error: {ID} has expired")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (error("already_decided", 409, "too late", details={"status": "denied"}), f"{ID} is already denied"),
        (error("approval_expired", 410, "the time is over"), "the time is over"),
    ],
)
@pytest.mark.parametrize("command", ["approve", "deny"])
def test_a_decision_that_comes_too_late_is_reported(
    fake: FakeDaemon, aileron: Command, command: str, answer: Reply, told: str
) -> None:
    """The question changed after it was fetched: the exit code is 6, and only one decision is sent."""
    fake.script("POST", f"{ONE}/decide", answer)
    said = aileron(command, ID)

    assert (said.code, said.out) == (6, "")
    assert said.err == f"{UNSIGNED}error: {told}\n  fix: aileron approval show {ID}\n"
    assert len(decisions(fake)) == 1


def test_a_decision_that_the_daemon_refuses_for_its_digest_is_not_retried(fake: FakeDaemon, aileron: Command) -> None:
    """The exit code is 2, that of wrong usage."""
    fake.script("POST", f"{ONE}/decide", error("invalid_request", 400, "it is about other bytes"))

    assert aileron("approve", ID).code == 2
    assert len(decisions(fake)) == 1


# Selecting a question


@pytest.mark.parametrize("part", ["cafe", "89abcdefcafe", "act-20261121T040000", "act-20261121T040000-0123"])
def test_part_of_an_approval_id_is_enough_if_the_question_is_shown(
    fake: FakeDaemon, aileron: Command, part: str
) -> None:
    """The part is the end or the beginning of the id of one open question."""
    aileron.at_terminal("approve", part, answers=[(YES_OR_NO, "yes")]).exits(0)
    assert len(decisions(fake)) == 1


@pytest.mark.parametrize("words", [("approve", "cafe"), ("approve", "cafe", "--yes"), ("approve", "--json", "cafe")])
def test_approving_without_a_prompt_needs_the_whole_id(
    fake: FakeDaemon, aileron: Command, words: tuple[str, ...]
) -> None:
    """The agent may have replaced its question by another with the same end; a denial does no harm."""
    said = aileron(*words).exits(2)
    assert f"fix: aileron approve {ID}" in said.err
    assert decisions(fake) == []
    assert aileron("deny", "cafe").code == 0


def test_a_decided_question_is_found_by_the_end_of_its_id(fake: FakeDaemon, aileron: Command) -> None:
    """The command finds the question in the audit trail, because the list of open ones does not have it."""
    fake.approvals = []
    fake.events = [{"seq": 1, "at": "2026-11-21T04:00:00Z", "type": "approval.requested", "approval": ID, "hash": "00"}]

    assert aileron("approval", "show", "cafe").code == 0
    assert aileron("approval", "show", "beef").code == 3


def test_approving_with_the_option_yes_at_a_terminal_needs_the_whole_id(fake: FakeDaemon, aileron: Command) -> None:
    """The question would not be shown with --yes."""
    assert aileron.at_terminal("approve", "cafe", "--yes").code == 2
    assert aileron.at_terminal("approve", ID, "--yes").code == 0


@pytest.mark.parametrize("command", [("approve",), ("deny",), ("approval", "show"), ("approval", "cancel")])
def test_part_of_an_approval_id_that_fits_two_questions_is_refused(
    fake: FakeDaemon, aileron: Command, command: tuple[str, ...]
) -> None:
    """The error names both questions."""
    said = aileron(*command, "act-20261121").exits(2)
    assert f"could be {ID} or {OTHER}" in said.err
    assert fake.asked("POST") == []


@pytest.mark.parametrize("part", ["afe", "act-", "act-202", "nope", "CAFE", "cafe ", "é", ".."])
def test_part_of_an_approval_id_that_is_too_short_or_unknown_is_not_found(
    fake: FakeDaemon, aileron: Command, part: str
) -> None:
    """The exit code is 3, and the fix is the list."""
    said = aileron("deny", part).exits(3)
    assert "fix: aileron approval list" in said.err


@pytest.mark.parametrize("word", ["", "a/b", "../vault/lock", "/"])
def test_a_malformed_approval_id_cannot_reach_another_route(fake: FakeDaemon, aileron: Command, word: str) -> None:
    """The command exits with 2 before it sends any request."""
    assert aileron("approve", word).code == 2
    assert fake.seen == []


# At a terminal


def test_approve_shows_the_whole_card_before_its_prompt(fake: FakeDaemon, aileron: Command) -> None:
    """The card has the action, the caller, every argument, hosts and credential; a yes then approves."""
    said = aileron.at_terminal("approve", ID, answers=[(YES_OR_NO, "yes")], NO_COLOR="1")
    shown = said.out.partition(YES_OR_NO)[0].splitlines()

    assert said.code == 0, said
    assert "Act: body “Dear Mira”" in shown
    assert "action      act 1.0.0" in shown
    assert "asked by    local command, no agent" in shown
    assert shown[shown.index("body        │ Dear") :][1] == "            │ Mira"
    assert "goes to     mail.example:443" in shown
    assert "account     basic/mail/home: a mail account" in shown
    assert "! CANNOT BE UNDONE · effect not declared" in shown
    assert "to          mira@example.com" in shown
    assert said.out.endswith(f'approved {ID}\n{{\n  "sent": 1\n}}\n')


@pytest.mark.parametrize("typed", ["", "n", "no", "y", "yep", "approve", "yes yes", "\x04"])
def test_approve_leaves_the_question_pending_unless_the_answer_is_yes(
    fake: FakeDaemon, aileron: Command, typed: str
) -> None:
    """The end of input counts too: the exit code is 75, and nothing is sent."""
    said = aileron.at_terminal("approve", ID, answers=[(YES_OR_NO, typed)]).exits(75)
    assert f"deny: aileron deny {ID}" in said.out
    assert decisions(fake) == []


@pytest.mark.parametrize("typed", ["yes", " YES "])
def test_the_answer_yes_is_accepted_in_capitals_and_with_surrounding_spaces(
    fake: FakeDaemon, aileron: Command, typed: str
) -> None:
    """Both are common typing mistakes, and neither makes the answer unclear."""
    assert aileron.at_terminal("approve", ID, answers=[(YES_OR_NO, typed)]).code == 0


def test_an_interrupt_at_the_approval_prompt_decides_nothing(fake: FakeDaemon, aileron: Command) -> None:
    """The exit code is 130."""
    aileron.at_terminal("approve", ID, answers=[(YES_OR_NO, "\x03")]).exits(130)
    assert decisions(fake) == []


def test_approve_writes_only_the_result_to_standard_output(fake: FakeDaemon, home: Path, tmp_path: Path) -> None:
    """The terminal shows the plan and the question for `aileron approve ID > FILE`, and the file has the result."""
    kept = tmp_path / "result"
    script = f'exec {sys.executable} -m aileron "$@" > {kept}'
    said = (
        Command(home, program=["sh", "-c", script, "sh"])
        .at_terminal("approve", ID, answers=[(YES_OR_NO, "yes")])
        .exits(0)
    )
    assert "mail.example:443" in said.out
    assert kept.read_text() == '{"sent": 1}\n'


def test_keystrokes_before_the_approval_prompt_do_not_answer_the_prompt(aileron: Command, home: Path) -> None:
    """Earlier keys are discarded, because they were meant for something else; later ones are read."""
    script = (
        "import select, sys; from aileron.cli.prompts import ask_now; print('press', flush=True); "
        "select.select([sys.stdin], [], []); print(repr(ask_now('Sure? ')))"
    )
    early = Command(home, program=[sys.executable, "-c", script])

    assert early.at_terminal(answers=[("press", "y"), ("Sure? ", "no")]).out.endswith("'no'\n")


def test_approve_as_a_background_job_does_not_prompt(fake: FakeDaemon, home: Path) -> None:
    """Reading the terminal would stop the job, so it exits with 75. Positive control: in the foreground it prompts."""
    script = 'set -m; "$@" & wait $!'
    words = [sys.executable, "-m", "aileron"]
    background = Command(home, program=["bash", "-c", script, "bash", *words])
    foreground = Command(home, program=["bash", "-c", '"$@"; exit $?', "bash", *words])

    assert background.at_terminal("run", "act").code == 75
    assert decisions(fake) == []
    assert foreground.at_terminal("run", "act", answers=[(THREE_WAYS, "y")]).code == 0


# A locked vault


def posts(fake: FakeDaemon) -> list[str]:
    """Return the paths of POST requests, in order."""
    return [seen.path for seen in fake.asked("POST")]


def test_approve_unlocks_the_vault_with_a_given_passphrase(fake: FakeDaemon, aileron: Command, tmp_path: Path) -> None:
    """The environment or a file has the passphrase; the decision follows the unlock."""
    file = tmp_path / "passphrase"
    file.write_text(PASSPHRASE + "\n")
    for words, environment in (((), {"AILERON_VAULT_PASSPHRASE": PASSPHRASE}), (("--passphrase-file", str(file)), {})):
        fake.is_locked = True
        fake.seen.clear()

        assert aileron("approve", ID, *words, **environment).code == 0
        assert posts(fake) == ["/v1/vault/unlock", f"{ONE}/decide"]


def test_approve_prompts_for_the_passphrase_of_a_locked_vault(fake: FakeDaemon, aileron: Command) -> None:
    """The prompt comes after the yes and before the decision; the passphrase is not echoed."""
    fake.is_locked = True
    said = aileron.at_terminal("approve", ID, answers=[(YES_OR_NO, "yes"), ("Its passphrase: ", PASSPHRASE)]).exits(0)
    assert posts(fake) == ["/v1/vault/unlock", f"{ONE}/decide"]
    assert PASSPHRASE not in said.out


def test_a_wrong_vault_passphrase_decides_nothing(fake: FakeDaemon, aileron: Command) -> None:
    """The exit code is 6."""
    fake.is_locked = True

    assert aileron("approve", ID, AILERON_VAULT_PASSPHRASE="of another vault").code == 6
    assert decisions(fake) == []


def test_an_approved_run_that_cannot_start_says_what_it_waits_for(fake: FakeDaemon, aileron: Command) -> None:
    """The vault is locked and no passphrase is available: the command exits with 0 at once."""
    fake.is_locked = True
    fake.script("GET", f"{ONE}/result", result("approved", error=LOCKED))
    said = aileron("approve", ID, "--wait", "24h")

    assert (said.code, said.out) == (0, "")
    assert said.err == (
        f"{UNSIGNED}approved {ID}\n"
        "starts once the vault is unlocked\n  fix: aileron vault unlock\n  look: aileron audit show run-1\n"
    )
    assert aileron("approve", ID, "--json").json["error"]["class"] == "vault_locked"


def test_an_approved_run_that_has_not_started_says_why(fake: FakeDaemon, aileron: Command) -> None:
    """The daemon's reason is shown when the command's wait ends."""
    fake.script(
        "GET", f"{ONE}/result", result("approved", error=error("busy", 429, "64 runs are under way")[1]["error"])
    )

    assert "not started yet: 64 runs are under way\n" in aileron("approve", ID, "--wait", "0").err


def test_approving_a_run_without_a_credential_needs_no_vault(fake: FakeDaemon, aileron: Command) -> None:
    """The command does not ask for a passphrase either."""
    fake.is_locked = True
    alone = question()["plan"]
    alone["steps"][0]["grant"]["credential"] = None
    fake.script("GET", ONE, (200, question(plan=alone)))

    assert aileron.at_terminal("approve", ID, answers=[(YES_OR_NO, "yes")]).code == 0
    assert fake.asked("GET", "/v1/vault/status") == []


# Denying and cancelling


def test_deny_sends_the_given_reason(fake: FakeDaemon, aileron: Command) -> None:
    """A script shows and asks nothing; without --reason, no reason is sent."""
    said = aileron("deny", ID, "--reason", "not to him")
    assert aileron("deny", ID, "--json").json == settled("denied")[1]

    assert (said.code, said.out, said.err) == (0, "", f"{UNSIGNED}denied {ID}\n")
    assert decisions(fake) == [
        {"decision": "deny", "digest": "sha256:shown", "reason": "not to him"},
        {"decision": "deny", "digest": "sha256:shown"},
    ]


@pytest.mark.parametrize(("typed", "sent"), [("not to hïm ", {"reason": "not to hïm"}), ("", {}), ("\x04", {})])
def test_denying_at_a_terminal_asks_for_a_reason(
    fake: FakeDaemon, aileron: Command, typed: str, sent: dict[str, str]
) -> None:
    """The command asks once; an empty answer sends none."""
    aileron.at_terminal("deny", ID, answers=[(WHY, typed)]).exits(0)
    assert decisions(fake) == [{"decision": "deny", "digest": "sha256:shown", **sent}]


@pytest.mark.parametrize("words", [("--reason", "no"), ("--reason", ""), ("--json",)])
def test_a_given_reason_or_the_option_json_skips_the_prompt_for_a_reason(
    fake: FakeDaemon, aileron: Command, words: tuple[str, ...]
) -> None:
    """An empty reason counts as given, and --json never prompts."""
    assert WHY not in aileron.at_terminal("deny", ID, *words).out
    assert len(decisions(fake)) == 1


def test_a_pending_question_can_be_withdrawn_by_the_end_of_its_id(fake: FakeDaemon, aileron: Command) -> None:
    """The end of the id is enough; a withdrawal that comes too late is reported."""
    said = aileron("approval", "cancel", "cafe")
    assert aileron("approval", "cancel", ID, "--json").json == settled("cancelled")[1]

    assert (said.code, said.err) == (0, f"withdrawn {ID}\n")
    assert [seen.body for seen in fake.asked("POST", f"{ONE}/cancel")] == [{}, {}]
    fake.script("POST", f"{ONE}/cancel", error("already_decided", 409, "x", details={"status": "running"}))
    assert aileron("approval", "cancel", ID).err.startswith(f"error: {ID} is already running\n")


# Listing and showing


def test_approval_list_shows_pending_questions(fake: FakeDaemon, aileron: Command) -> None:
    """A pipe gets the status, and a terminal the command that decides."""
    fake.approvals = [question(), question(approval_id=OTHER, status="approved")]
    piped, shown = aileron("approval", "list"), aileron.at_terminal("approval", "list", NO_COLOR="1")

    assert piped.out.splitlines() == [
        f"{ID}\t2026-11-21T04:15:00Z\tlocal\taction\tact\tpending_approval\t! UNDECLARED\t-\tAct: body “Dear Mira”",
        f"{OTHER}\t2026-11-21T04:15:00Z\tlocal\taction\tact\tapproved\t! UNDECLARED\t-\tAct: body “Dear Mira”",
    ]
    assert piped.err == ""
    assert "Act: body “Dear Mira” (approved)" in " ".join(shown.out.split())
    assert "all asked by a command" in shown.out
    assert "aileron approve ID" in shown.out
    assert [ID[-6:] in shown.out, OTHER[-6:] in shown.out, ID in shown.out] == [True, True, False]
    listed = [{key: entry[key] for key in entry if key not in ("plan", "head")} for entry in in_a_list(fake.approvals)]
    assert aileron("approval", "list", "--json").json == {"approvals": listed}
    fake.approvals = []
    assert aileron.at_terminal("approval", "list").out == "nothing is waiting\n"


def test_approval_list_with_its_output_in_a_pipe_prints_no_hints(fake: FakeDaemon, aileron: Command) -> None:
    """Standard output is a pipe in `$(aileron approval list | cut -f1)`, and standard error is still the terminal."""
    fake.approvals = [question()]
    piped = Command(
        aileron.home,
        program=["bash", "-c", f'"{sys.executable}" -m aileron "$@" | cut -f1; exit "$PIPESTATUS"', "bash"],
    )

    listed = piped.at_terminal("approval", "list")
    assert (listed.code, listed.out) == (0, f"{ID}\n")
    assert "fix:" in aileron.at_terminal("approver", "status").out
    assert "fix:" not in piped.at_terminal("approver", "status").out


def test_approval_show_of_a_decided_question_includes_its_decision(fake: FakeDaemon, aileron: Command) -> None:
    """The output has the time, the surface and the reason; an open question has none of these."""
    decided = {"decided_at": "2026-11-21T04:01:00Z", "surface": "operator", "reason": "not to him"}
    waits = aileron("approval", "show", ID).out
    fake.script("GET", ONE, (200, question(status="denied", **decided)))
    said = aileron("approval", "show", ID).out

    assert said.splitlines()[:7] == [
        f"approval\t{ID}",
        "kind\trun",
        "status\tdenied",
        "decided\t2026-11-21T04:01:00Z",
        "signed\tno",
        "through\toperator",
        "reason\tnot to him",
    ]
    assert "decided" not in waits
    assert "signed" not in waits


@pytest.mark.parametrize("is_consent", [False, True], ids=["a run", "a consent"])
def test_approval_show_prints_no_line_of_its_output_twice(fake: FakeDaemon, aileron: Command, is_consent: bool) -> None:
    """A pipe always gets the proof; at a terminal the proof is folded, and the digest stands once above it."""
    asked = subject_question(SUBJECTS["connector"], approval_id=ID) if is_consent else question()
    fake.script("GET", ONE, (200, asked))
    piped = [line for line in aileron("approval", "show", ID).out.splitlines() if line]

    assert [line for line in piped if piped.count(line) > 1] == []
    for name in ("asked", "digest"):
        assert [line for line in piped if line.startswith(f"{name}\t")] != []
    assert " ".join(aileron.at_terminal("approval", "show", ID).out.split()).count(str(asked["digest"])) == 1


# Runs with a person at the terminal


def at_the_question(aileron: Command, *answers: tuple[str, str], words: tuple[str, ...] = ()) -> Said:
    """Run `aileron run act` at a terminal."""
    return aileron.at_terminal("run", "act", *words, answers=answers, NO_COLOR="1")


def test_a_gated_run_at_a_terminal_asks_the_person_in_place(fake: FakeDaemon, aileron: Command) -> None:
    """The card says what would be done; after a yes the command ends like any run."""
    said = at_the_question(aileron, (THREE_WAYS, "y")).exits(0)
    assert decisions(fake) == [{"decision": "approve", "digest": "sha256:shown"}]
    before, _, after = said.out.partition(THREE_WAYS)
    assert "goes to     mail.example:443" in before
    assert after == 'y\n{\n  "sent": 1\n}\n'
    assert {seen.socket for seen in fake.asked("POST", RUN)} == {"agent"}


def test_after_an_unclear_answer_the_runs_prompt_asks_again(fake: FakeDaemon, aileron: Command) -> None:
    """The prompt repeats until the answer is one of the three that it shows."""
    at_the_question(aileron, (THREE_WAYS, "maybe"), (THREE_WAYS, "yyy"), (THREE_WAYS, "Yes")).exits(0)
    assert len(decisions(fake)) == 1


@pytest.mark.parametrize(("typed", "sent"), [("not to him", {"reason": "not to him"}), ("", {})])
def test_answering_no_at_the_runs_prompt_denies_the_run(
    fake: FakeDaemon, aileron: Command, typed: str, sent: dict[str, str]
) -> None:
    """The exit code is 5, and the reason is sent with the denial."""
    fake.script("GET", f"{ONE}/result", result("denied", error=failed("approval_denied")))
    at_the_question(aileron, (THREE_WAYS, "n"), (WHY, typed)).exits(5)
    assert decisions(fake) == [{"decision": "deny", "digest": "sha256:shown", **sent}]


@pytest.mark.parametrize("typed", ["", "\x04"])
def test_an_empty_answer_at_the_runs_prompt_leaves_the_run_pending(
    fake: FakeDaemon, aileron: Command, typed: str
) -> None:
    """The exit code is 75, and the commands that decide are shown."""
    said = at_the_question(aileron, (THREE_WAYS, typed)).exits(75)
    for way in (f"look: aileron approval show {ID}", f"approve: aileron approve {ID}", f"deny: aileron deny {ID}"):
        assert f"  {way}\n" in said.out
    assert "  review: http://l:1/a\n" in said.out
    assert decisions(fake) == []


@pytest.mark.parametrize("answers", [[(THREE_WAYS, "\x03")], [(THREE_WAYS, "n"), (WHY, "\x03")]])
def test_an_interrupt_at_the_runs_prompt_leaves_the_run_pending(
    fake: FakeDaemon, aileron: Command, answers: list[tuple[str, str]]
) -> None:
    """The exit code is 130 at either prompt, and the commands that decide and withdraw are shown."""
    said = at_the_question(aileron, *answers).exits(130)
    assert "interrupted; not decided\n" in said.out
    assert f"approve: aileron approve {ID}\n" in said.out
    assert f"withdraw: aileron approval cancel {ID}\n" in said.out
    assert decisions(fake) == []


def test_a_run_that_fails_after_an_approval_in_place_has_the_error_and_exit_code_of_any_failed_run(
    fake: FakeDaemon, aileron: Command
) -> None:
    """Error lines and exit code are those of a run without a prompt."""
    fake.script("GET", f"{ONE}/result", result("failed", error=failed("network_error")))
    said = at_the_question(aileron, (THREE_WAYS, "y")).exits(7)
    assert said.out.endswith("error: it did not work\n  look: aileron audit show run-1\n")


@pytest.mark.parametrize(
    ("status", "more", "code", "told"),
    [("completed", {"result": 7}, 0, "\n7\n"), ("denied", {"error": failed("approval_denied")}, 5, "\nerror: ")],
)
@pytest.mark.parametrize("typed", ["y", "n"])
def test_a_run_whose_question_was_first_decided_elsewhere_reports_that_decision(
    fake: FakeDaemon, aileron: Command, typed: str, status: str, more: dict[str, Any], code: int, told: str
) -> None:
    """The person's own answer comes too late; the command continues with the other decision's result."""
    fake.script("POST", f"{ONE}/decide", error("already_decided", 409, "x", details={"status": status}))
    fake.script("GET", f"{ONE}/result", result(status, **more))
    said = at_the_question(aileron, (THREE_WAYS, typed), *([(WHY, "")] if typed == "n" else [])).exits(code)
    assert f"already decided elsewhere: {state_words(status)}\n" in said.out
    assert told in said.out.replace("\r\x1b[K", "\n"), "the line of a wait, if it was shown, is wiped"


def test_a_run_decided_before_its_prompt_does_not_prompt(fake: FakeDaemon, aileron: Command) -> None:
    """The command reports the decision and waits for the result."""
    fake.script("GET", ONE, (200, question(status="running")))
    said = at_the_question(aileron).exits(0)
    assert said.out.startswith("already decided elsewhere: running\n")
    assert decisions(fake) == []


def test_answering_the_runs_prompt_after_the_question_expired_exits_with_6(fake: FakeDaemon, aileron: Command) -> None:
    """The question expired while the person read it."""
    fake.script("POST", f"{ONE}/decide", error("approval_expired", 410, "the time to approve it is over"))
    said = at_the_question(aileron, (THREE_WAYS, "y")).exits(6)
    assert "error: the time to approve it is over\n" in said.out


def test_run_exits_with_75_if_the_run_approved_at_its_prompt_outlasts_the_wait(
    fake: FakeDaemon, aileron: Command
) -> None:
    """Every run exits so when the time of --wait has passed."""
    fake.script("GET", f"{ONE}/result", result("running"))
    said = at_the_question(aileron, (THREE_WAYS, "y"), words=("--wait", "100ms")).exits(75)
    assert "aileron audit show run-1" in said.out


def test_after_a_mistyped_vault_passphrase_the_prompt_asks_again(fake: FakeDaemon, aileron: Command) -> None:
    """The vault was locked meanwhile; nothing is decided between the tries."""
    fake.is_locked = True
    vault = "Its passphrase: "
    said = at_the_question(aileron, (THREE_WAYS, "y"), (vault, "wrong"), (vault, PASSPHRASE)).exits(0)
    assert "the passphrase is wrong; try again (2 left)\n" in said.out
    assert posts(fake) == [RUN, "/v1/vault/unlock", "/v1/vault/unlock", f"{ONE}/decide"]


def test_run_with_json_never_prompts(fake: FakeDaemon, aileron: Command) -> None:
    """The command exits with 75 at once."""
    said = at_the_question(aileron, words=("--json",)).exits(75)
    assert THREE_WAYS not in said.out


def test_a_run_whose_card_cannot_be_loaded_does_not_prompt(fake: FakeDaemon, aileron: Command) -> None:
    """The operator socket refuses: the exit code is 75, and the commands that decide are shown."""
    fake.script("GET", ONE, error("unauthorized", 401, "not here"))
    said = at_the_question(aileron).exits(75)
    assert THREE_WAYS not in said.out
    assert f"approve: aileron approve {ID}\n" in said.out


def test_a_persons_reason_never_becomes_a_suggested_fix(fake: FakeDaemon, aileron: Command) -> None:
    """A reason that looks like a fix line is shown as part of the message."""
    told = error("approval_denied", 403, "a person denied it: aileron vault lock", audit_id="run-1")
    fake.script("POST", RUN, told)

    assert aileron("run", "act").err.splitlines() == [
        "error: a person denied it: aileron vault lock",
        "  look: aileron audit show run-1",
    ]


@pytest.mark.parametrize("is_pending", [False, True])
def test_a_run_without_a_prompt_does_not_import_the_dialogue_module(
    fake: FakeDaemon, home: Path, is_pending: bool
) -> None:
    """Importing it would slow down runs of agents and runs that need no approval."""
    if not is_pending:
        fake.script("POST", RUN, (200, {"audit_id": "run-1", "result": 7}))
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "aileron", "run", "act"],
        env={"AILERON_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )

    assert "aileron.cli.run" in done.stderr
    assert "aileron.cli.decision_dialogue" not in done.stderr


def test_approve_and_run_have_the_same_default_wait() -> None:
    """The help of `run` has the default of `approve`."""
    from typer.main import get_command

    from aileron.cli.typer_app import app

    commands = get_command(app).commands  # type: ignore[attr-defined]
    (wait,) = [parameter for parameter in commands["approve"].params if parameter.name == "wait"]
    (of_run,) = [option for option in OPTIONS if option.flag == "--wait"]

    assert f"[default: {wait.default}]" in of_run.help
