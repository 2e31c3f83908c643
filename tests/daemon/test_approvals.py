"""A person's decision takes effect once and as shown; without a decision nothing happens."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from aileron.client import Answer
from tests.support.home import DaemonHome, probe_action
from tests.support.probed import probed_home
from tests.support.upstream_http import CountingServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jail

ROUNDS = 12
"""Rounds of each race: each side wins some of them on one machine or another."""


def said(answer: Answer) -> tuple[int, str]:
    """Return a response's status, and the failure class or status word in its body."""
    body = answer.body
    return answer.status, body["error"]["class"] if answer.is_error else body["status"]


def together(*calls: Callable[[], Any]) -> list[Any]:
    """Make all calls at the same moment and return their results in order."""
    gate = threading.Barrier(len(calls))

    def one(call: Callable[[], Any]) -> Any:
        gate.wait(10)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(one, calls))


@pytest.fixture
def gated(home: DaemonHome) -> Iterator[str]:
    """Add a gated action with one effect."""
    name = home.add_probe_action("effect", "path:string?", name="gated", gated=True)
    yield name
    home.must("DELETE", f"/v1/actions/{name}")


@pytest.fixture
def own_home(upstream: CountingServer) -> Iterator[DaemonHome]:
    """Start a home whose daemon may be stopped, locked and killed, with the gated action `gated`."""
    with probed_home(upstream.port) as made:
        made.add_probe_action("effect", name="gated", gated=True)
        yield made


def test_an_approved_action_runs_once_and_the_caller_gets_the_result(
    home: DaemonHome, gated: str, upstream: CountingServer
) -> None:
    """The upstream sees one effect, the caller gets the result, and every step is on record in order."""
    before = upstream.effects
    question = home.asked(gated)
    assert upstream.effects == before

    decided = home.decide(question, "approve", "looks right")
    result = home.result(question)

    assert decided.body == {
        "status": "approved",
        "approval_id": question["approval_id"],
        "audit_id": question["audit_id"],
    }
    assert (result["status"], result["result"]["body"], result["reason"]) == ("completed", "done", "looks right")
    assert upstream.effects == before + 1
    assert [event["type"] for event in home.events(question["audit_id"])] == [
        "run.requested",
        "approval.requested",
        "approval.decided",
        "approval.redeemed",
        "run.started",
        "egress.sending",
        "egress.finished",
        "run.finished",
    ]
    assert question["approval_id"] not in str(home.must("GET", "/v1/action-approvals"))


def test_a_denied_action_does_not_run_and_the_caller_gets_the_reason(
    home: DaemonHome, gated: str, upstream: CountingServer
) -> None:
    """The agent that asked reads the person's words; a later approval comes too late."""
    before = upstream.effects
    question = home.asked(gated)

    home.decide(question, "deny", "not to this address")
    result = home.agent.ask("GET", f"/v1/action-approvals/{question['approval_id']}/result").body

    assert (result["status"], result["reason"]) == ("denied", "not to this address")
    assert (result["error"]["class"], result["error"]["details"]) == (
        "approval_denied",
        {"reason": "not to this address"},
    )
    late = home.decide(question, "approve")
    assert (said(late), late.body["error"]["details"]) == ((409, "already_decided"), {"status": "denied"})
    assert upstream.effects == before


def test_a_decision_wakes_a_waiting_caller(home: DaemonHome, gated: str) -> None:
    """The wait begins before the decision; the response comes with the decision, not at the end of the wait."""
    question = home.asked(gated)

    waited, _ = together(lambda: home.result(question, 60), lambda: home.decide(question, "deny"))

    assert waited["status"] == "denied"


def test_a_decision_with_another_questions_digest_is_refused(home: DaemonHome, gated: str) -> None:
    """The digest must be that of what was shown; the question stays open and accepts a decision with the right digest."""
    question = home.asked(gated)
    other = home.asked(gated, {"path": "/elsewhere"})

    wrong = home.decide({**question, "digest": other["digest"]}, "approve")

    assert said(wrong) == (400, "invalid_request")
    assert home.result(question, 0)["status"] == "pending_approval"
    assert said(home.decide(question, "deny")) == (200, "denied")
    assert said(home.decide(other, "deny")) == (200, "denied")


@pytest.mark.parametrize(
    "body",
    [
        {"decision": "perhaps", "digest": "sha256:00"},
        {"decision": "approve"},
        {"decision": "approve", "digest": "sha256:00", "signature": "ed25519:00"},
    ],
)
def test_a_malformed_decision_is_refused_and_the_question_stays_pending(
    home: DaemonHome, gated: str, body: dict[str, object]
) -> None:
    """The cases are an unknown word, a missing digest, and a signature that cannot be checked yet."""
    question = home.asked(gated)

    answer = home.ask("POST", f"/v1/action-approvals/{question['approval_id']}/decide", body)

    assert said(answer) == (400, "invalid_request")
    assert said(home.decide(question, "deny")) == (200, "denied")


def test_the_agent_socket_cannot_decide(home: DaemonHome, gated: str, upstream: CountingServer) -> None:
    """The agent socket refuses the same body that the operator socket accepts."""
    before = upstream.effects
    question = home.asked(gated)
    body = {"decision": "approve", "digest": question["digest"]}
    path = f"/v1/action-approvals/{question['approval_id']}/decide"

    refused = home.agent.ask("POST", path, body)
    looked = home.agent.ask("GET", f"/v1/action-approvals/{question['approval_id']}")

    assert (said(refused), said(looked)) == ((401, "unauthorized"), (401, "unauthorized"))
    assert upstream.effects == before
    assert said(home.ask("POST", path, body)) == (200, "approved")
    assert home.result(question)["status"] == "completed"


def test_the_agent_can_cancel_its_question_before_the_run_begins(
    home: DaemonHome, gated: str, upstream: CountingServer
) -> None:
    """The agent socket cancels the question: nothing runs and an approval comes too late."""
    before = upstream.effects
    question = home.asked(gated)

    cancelled = home.agent.ask("POST", f"/v1/action-approvals/{question['approval_id']}/cancel")
    late = home.decide(question, "approve")

    assert said(cancelled) == (200, "cancelled")
    assert (said(late), late.body["error"]["details"]) == ((409, "already_decided"), {"status": "cancelled"})
    assert home.result(question, 0)["error"]["class"] == "cancelled"
    assert upstream.effects == before


def test_a_run_that_has_begun_cannot_be_cancelled(home: DaemonHome, upstream: CountingServer) -> None:
    """The agent that tries is told that the run is in progress, and later that it is completed."""
    home.add_probe_action("fetch", "path:string", name="gated-fetch", gated=True)
    question = home.asked("gated-fetch", {"path": "/held"})
    cancel = f"/v1/action-approvals/{question['approval_id']}/cancel"
    with upstream.holding():
        home.decide(question, "approve")
        while home.result(question, 0)["status"] == "approved":
            pass
        running = home.ask("POST", cancel)

    result, over = home.result(question), home.ask("POST", cancel)

    assert (said(running), running.body["error"]["details"]) == ((409, "already_decided"), {"status": "running"})
    assert result["status"] == "completed"
    assert (said(over), over.body["error"]["details"]) == ((409, "already_decided"), {"status": "completed"})


def test_an_unanswered_question_expires(home: DaemonHome, upstream: CountingServer) -> None:
    """The question expires by the clock while a caller waits for it; a later decision is too late."""
    home.add_probe_action("effect", name="short", gated=True, expires_in="1s")
    before = upstream.effects
    question = home.asked("short")

    result = home.result(question, 30)
    late = home.decide(question, "approve")

    assert (result["status"], result["error"]["class"]) == ("expired", "approval_expired")
    assert said(late) == (410, "approval_expired")
    assert upstream.effects == before


def test_simultaneous_approvals_cause_one_effect(home: DaemonHome, gated: str, upstream: CountingServer) -> None:
    """The first approval is accepted, and the others are refused as already decided."""
    before = upstream.effects
    for _ in range(ROUNDS):
        question = home.asked(gated)
        answers = together(*(lambda question=question: home.decide(question, "approve") for _ in range(3)))

        assert sorted(said(answer) for answer in answers) == [(200, "approved"), *[(409, "already_decided")] * 2]
        assert home.result(question)["status"] == "completed"
    assert upstream.effects == before + ROUNDS


def test_simultaneous_approve_deny_and_cancel_requests_have_one_outcome(
    home: DaemonHome, gated: str, upstream: CountingServer
) -> None:
    """The first request wins; the others get that outcome, and the effect happens only if the approval won."""
    before, outcomes = upstream.effects, Counter[str]()
    for _ in range(ROUNDS):
        question = home.asked(gated)
        cancel = f"/v1/action-approvals/{question['approval_id']}/cancel"
        answers = together(
            partial(home.decide, question, "approve"),
            partial(home.decide, question, "deny"),
            partial(home.ask, "POST", cancel),
        )
        final = home.result(question)["status"]

        outcomes[final] += 1
        won = {"completed": 0, "denied": 1, "cancelled": 2}[final]
        if final == "cancelled" and said(answers[0])[0] == 200:  # approved, and cancelled before it began
            assert [said(answer)[0] for answer in answers] == [200, 409, 200]
        else:
            assert [said(answer)[0] for answer in answers] == [200 if i == won else 409 for i in range(3)]
    assert upstream.effects == before + outcomes["completed"]


def test_an_approval_at_the_moment_of_expiry_either_runs_or_is_expired(
    home: DaemonHome, upstream: CountingServer
) -> None:
    """A response must never say `approved` for a run without an effect, or `expired` for a run with one."""
    home.add_probe_action("effect", name="last-moment", gated=True, expires_in="1s")
    before = upstream.effects
    questions = [home.asked("last-moment") for _ in range(ROUNDS)]

    def decide(question: dict[str, Any]) -> tuple[Answer, dict[str, Any]]:
        home.result(question, 0.95)
        return home.decide(question, "approve"), home.result(question)

    with ThreadPoolExecutor(4) as pool:
        decided = list(pool.map(decide, questions))

    for answer, result in decided:
        allowed = {"completed", "expired"} if said(answer) == (200, "approved") else {"expired"}
        assert result["status"] in allowed
    assert upstream.effects == before + sum(result["status"] == "completed" for _, result in decided)


def test_the_plan_that_was_shown_runs_even_if_its_action_file_changed(
    home: DaemonHome, gated: str, upstream: CountingServer
) -> None:
    """The file is changed to another operation, and then to invalid text, while the question is pending."""
    question = home.asked(gated, {"path": "/as-shown"})
    file = home.path / "actions" / f"{gated}.md"
    file.write_text(probe_action("fetch", name=gated, gated=True), encoding="utf-8")
    file.write_text("nonsense", encoding="utf-8")

    home.decide(question, "approve")

    assert home.result(question)["status"] == "completed"
    assert upstream.requests[-1][:2] == ("POST", "/as-shown")


def test_an_action_disabled_or_removed_after_the_question_does_not_run(
    home: DaemonHome, upstream: CountingServer
) -> None:
    """The user's later change prevails: the run fails with the class for it, and the approval is used up."""
    for name in ("off", "gone"):
        home.add_probe_action("effect", name=name, gated=True)
    before = upstream.effects
    off, gone = home.asked("off"), home.asked("gone")
    home.must("PATCH", "/v1/actions/off", {"enabled": False})
    home.must("DELETE", "/v1/actions/gone")

    decided = [home.decide(question, "approve").status for question in (off, gone)]
    results = [home.result(question) for question in (off, gone)]

    assert decided == [200, 200]
    assert [(result["status"], result["error"]["class"]) for result in results] == [
        ("failed", "action_disabled"),
        ("failed", "not_found"),
    ]
    assert upstream.effects == before
    assert said(home.decide(off, "approve")) == (409, "already_decided")


def test_a_binding_replaced_after_the_question_is_not_used(own_home: DaemonHome, upstream: CountingServer) -> None:
    """A revoked binding that was created again under the same name is not the binding that was shown."""
    before = upstream.effects
    revoked, anew = own_home.asked("gated"), own_home.asked("gated")
    own_home.must("DELETE", "/v1/bindings/basic/probe/me")

    own_home.decide(revoked, "approve")
    first = own_home.result(revoked)
    own_home.bind_probe()
    own_home.decide(anew, "approve")
    second = own_home.result(anew)

    assert (first["error"]["class"], second["error"]["class"]) == ("binding_required", "binding_failed")
    assert upstream.effects == before
    again = own_home.asked("gated")
    own_home.decide(again, "approve")
    assert own_home.result(again)["status"] == "completed"


def test_a_private_host_that_the_settings_no_longer_allow_is_not_reached_after_approval(
    own_home: DaemonHome, upstream: CountingServer
) -> None:
    """The plan was shown with a private host that config.toml allowed then and no longer allows."""
    before = upstream.effects
    question = own_home.asked("gated")
    own_home.stop()
    own_home.configure("")
    own_home.unlock()

    own_home.decide(question, "approve")
    result = own_home.result(question)

    assert result["status"] == "failed"
    assert result["error"]["class"] == "consent_required"
    assert upstream.effects == before


def test_a_run_approved_while_the_vault_is_locked_begins_when_the_vault_is_unlocked(
    own_home: DaemonHome, upstream: CountingServer
) -> None:
    """The question's status is approved until then, and its result says that it waits for the vault."""
    before = upstream.effects
    question = own_home.asked("gated")
    own_home.must("POST", "/v1/vault/lock")

    assert said(own_home.decide(question, "approve")) == (200, "approved")
    waiting = own_home.result(question, 0)
    own_home.unlock()
    result = own_home.result(question)

    assert (waiting["status"], waiting["error"]["class"]) == ("approved", "vault_locked")
    assert "aileron vault unlock" in waiting["error"]["message"]
    assert result["status"] == "completed"
    assert upstream.effects == before + 1


def test_a_pending_question_survives_a_killed_daemon(own_home: DaemonHome, upstream: CountingServer) -> None:
    """The daemon is killed with kill -9 while a question waits; the question keeps its digest and runs when approved."""
    before = upstream.effects
    question = own_home.asked("gated")
    own_home.kill()

    still = own_home.must("GET", f"/v1/action-approvals/{question['approval_id']}")
    own_home.unlock()
    own_home.decide(question, "approve")

    assert (still["status"], still["digest"]) == ("pending_approval", question["digest"])
    assert own_home.result(question)["status"] == "completed"
    assert upstream.effects == before + 1


def test_an_unused_approval_survives_a_killed_daemon(own_home: DaemonHome, upstream: CountingServer) -> None:
    """The daemon is killed with kill -9 between the decision and its use: the question stays approved, and the run
    begins only when a caller comes for it.
    """
    before = upstream.effects
    question = own_home.asked("gated")
    own_home.must("POST", "/v1/vault/lock")
    own_home.decide(question, "approve")
    own_home.kill()

    listed = own_home.must("GET", "/v1/action-approvals")["approvals"]
    assert [(entry["approval_id"], entry["status"]) for entry in listed] == [(question["approval_id"], "approved")]
    assert upstream.effects == before
    own_home.unlock()

    assert own_home.result(question)["status"] == "completed"
    assert upstream.effects == before + 1


def test_a_question_that_expired_while_no_daemon_ran_is_expired_at_the_next_start(own_home: DaemonHome) -> None:
    """The question is expired before anyone can decide it."""
    own_home.add_probe_action("effect", name="short", gated=True, expires_in="1s")
    question = own_home.asked("short")
    own_home.result(question, 0.5)
    own_home.kill()
    ends = datetime.fromisoformat(question["expires_at"])
    wait_until(lambda: datetime.now(UTC) > ends, "its time is over")

    assert said(own_home.decide(question, "approve")) == (410, "approval_expired")
    assert own_home.result(question, 0)["status"] == "expired"


def test_a_decision_during_a_daemon_restart_takes_effect_at_most_once(
    own_home: DaemonHome, upstream: CountingServer
) -> None:
    """The daemon stops between decisions: each decision with a response is on record, and no effect happens twice."""
    before = upstream.effects
    questions = [own_home.asked("gated") for _ in range(6)]

    def decide(question: dict[str, Any]) -> Answer | None:
        try:
            return own_home.decide(question, "approve")
        except Exception:  # noqa: BLE001 - whatever a client sees of a daemon that goes away
            return None

    answers = together(own_home.stop, *(lambda question=question: decide(question) for question in questions))[1:]
    own_home.unlock()
    for question, answer in zip(questions, answers, strict=True):
        status = own_home.result(question, 0)["status"]
        if answer is not None and not answer.is_error:
            assert status != "pending_approval", "an answered decision is on record"
        if status == "pending_approval":
            own_home.decide(question, "approve")
    final = [own_home.result(question)["status"] for question in questions]

    assert set(final) <= {"completed", "unknown"}
    effects = upstream.effects - before
    assert final.count("completed") <= effects <= len(questions)
    assert own_home.must("GET", "/v1/audit/verify")["ok"]


def test_the_same_idempotency_key_gives_the_same_question(
    home: DaemonHome, gated: str, upstream: CountingServer
) -> None:
    """The key is repeated while the question is pending, after its run, and after another question was cancelled."""
    before = upstream.effects
    key, other = {"Idempotency-Key": "gated-1"}, {"Idempotency-Key": "gated-2"}
    first, again = home.run(gated, headers=key), home.run(gated, headers=key)
    question = {
        **first.body,
        "digest": home.must("GET", f"/v1/action-approvals/{first.body['approval_id']}")["digest"],
    }
    home.decide(question, "approve")
    home.result(question)
    done = home.run(gated, headers=key)
    refused = home.run(gated, {"path": "/x"}, headers=other).body
    home.ask("POST", f"/v1/action-approvals/{refused['approval_id']}/cancel")

    assert again.body["approval_id"] == first.body["approval_id"]
    assert (done.status, done.body["result"]["body"]) == (200, "done")
    assert said(home.run(gated, {"path": "/x"}, headers=other)) == (409, "cancelled")
    assert upstream.effects == before + 1


def test_the_review_url_stays_the_same_after_a_restart(own_home: DaemonHome) -> None:
    """The URL has the port that is kept in the configuration."""
    first = own_home.asked("gated")["review_url"]
    port = own_home.must("GET", "/v1/status")["web"].rpartition(":")[2]
    own_home.kill()
    own_home.unlock()
    second = own_home.asked("gated")["review_url"]

    assert first.startswith(f"http://localhost:{port}/approvals/act-")
    assert second.rpartition("/")[0] == first.rpartition("/")[0]
    config = (own_home.path / "config.toml").read_text(encoding="utf-8")
    assert f"port = {port}" in config
    assert config.startswith("[egress]\nprivate_plain = "), "what the user wrote is as it was"
