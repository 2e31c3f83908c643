"""What a person decides happens, once, and as it was shown; what they do not decide does not happen."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

from aileron.client import Answer
from tests.support.home import DaemonHome, daemon_home, probe_action
from tests.support.upstream_http import CountingServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jail

ROUNDS = 12
"""Of each race: each side wins some of them on one machine or another."""


def said(answer: Answer) -> tuple[int, str]:
    """The status of an answer, and the word in it."""
    body = answer.body
    return answer.status, body["error"]["class"] if answer.is_error else body["status"]


def together(*calls: Callable[[], Any]) -> list[Any]:
    """All at the same moment; their answers in order."""
    gate = threading.Barrier(len(calls))

    def one(call: Callable[[], Any]) -> Any:
        gate.wait(10)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(one, calls))


@pytest.fixture
def gated(home: DaemonHome) -> Iterator[str]:
    """A gated action with one effect."""
    name = home.add_probe_action("effect", "path:string?", name="gated", gated=True)
    yield name
    home.must("DELETE", f"/v1/actions/{name}")


@pytest.fixture
def own_home(upstream: CountingServer) -> Iterator[DaemonHome]:
    """A home whose daemon may be stopped, locked and killed, with the gated action `gated`."""
    with daemon_home() as made:
        made.configure(f'[egress]\nprivate_plain = ["localhost:{upstream.port}"]\n')
        made.install_probe(f"localhost:{upstream.port}")
        made.unlock()
        made.bind_probe()
        made.add_probe_action("effect", name="gated", gated=True)
        yield made


def test_what_is_approved_happens_once_and_the_caller_hears_of_it(
    home: DaemonHome, gated: str, upstream: CountingServer
) -> None:
    """Asked, approved, carried out: one effect, the result for the caller, every step on record in order."""
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


def test_what_is_denied_does_not_happen_and_the_reason_reaches_the_caller(
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


def test_a_caller_that_waits_is_woken_by_the_decision(home: DaemonHome, gated: str) -> None:
    """Waiting began before the decision; the answer comes with it, not at the end of the wait."""
    question = home.asked(gated)

    waited, _ = together(lambda: home.result(question, 60), lambda: home.decide(question, "deny"))

    assert waited["status"] == "denied"


def test_a_decision_about_other_bytes_is_refused(home: DaemonHome, gated: str) -> None:
    """The digest is that of what was shown; the question stays open, and the right one is taken."""
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
def test_a_decision_that_is_not_understood_decides_nothing(
    home: DaemonHome, gated: str, body: dict[str, object]
) -> None:
    """Another word, no digest, a signature nobody can check yet."""
    question = home.asked(gated)

    answer = home.ask("POST", f"/v1/action-approvals/{question['approval_id']}/decide", body)

    assert said(answer) == (400, "invalid_request")
    assert said(home.decide(question, "deny")) == (200, "denied")


def test_the_agents_socket_decides_nothing(home: DaemonHome, gated: str, upstream: CountingServer) -> None:
    """The same body that the operator's socket takes."""
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


def test_whoever_asked_may_take_it_back_until_it_begins(home: DaemonHome, gated: str, upstream: CountingServer) -> None:
    """Cancelled on the agent's socket: nothing runs, and an approval comes too late."""
    before = upstream.effects
    question = home.asked(gated)

    cancelled = home.agent.ask("POST", f"/v1/action-approvals/{question['approval_id']}/cancel")
    late = home.decide(question, "approve")

    assert said(cancelled) == (200, "cancelled")
    assert (said(late), late.body["error"]["details"]) == ((409, "already_decided"), {"status": "cancelled"})
    assert home.result(question, 0)["error"]["class"] == "cancelled"
    assert upstream.effects == before


def test_what_has_begun_cannot_be_taken_back(home: DaemonHome, upstream: CountingServer) -> None:
    """It is told that it runs, and then that it is over."""
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


def test_a_question_that_nobody_answers_is_over_in_time(home: DaemonHome, upstream: CountingServer) -> None:
    """By the clock, while somebody waits for it; deciding then is too late."""
    home.add_probe_action("effect", name="short", gated=True, expires_in="1s")
    before = upstream.effects
    question = home.asked("short")

    result = home.result(question, 30)
    late = home.decide(question, "approve")

    assert (result["status"], result["error"]["class"]) == ("expired", "approval_expired")
    assert said(late) == (410, "approval_expired")
    assert upstream.effects == before


def test_two_who_approve_at_once_cause_one_effect(home: DaemonHome, gated: str, upstream: CountingServer) -> None:
    """One is taken, the other told; the effect happens once."""
    before = upstream.effects
    for _ in range(ROUNDS):
        question = home.asked(gated)
        answers = together(*(lambda question=question: home.decide(question, "approve") for _ in range(3)))

        assert sorted(said(answer) for answer in answers) == [(200, "approved"), *[(409, "already_decided")] * 2]
        assert home.result(question)["status"] == "completed"
    assert upstream.effects == before + ROUNDS


def test_approve_against_deny_against_cancel_has_one_outcome(
    home: DaemonHome, gated: str, upstream: CountingServer
) -> None:
    """Whoever is first; the others are told what is so, and an effect is there only if the approval won."""
    before, outcomes = upstream.effects, Counter[str]()
    for _ in range(ROUNDS):
        question = home.asked(gated)
        cancel = f"/v1/action-approvals/{question['approval_id']}/cancel"
        answers = together(
            lambda question=question: home.decide(question, "approve"),
            lambda question=question: home.decide(question, "deny"),
            lambda cancel=cancel: home.ask("POST", cancel),
        )
        final = home.result(question)["status"]

        outcomes[final] += 1
        won = {"completed": 0, "denied": 1, "cancelled": 2}[final]
        if final == "cancelled" and said(answers[0])[0] == 200:  # approved, and taken back before it began
            assert [said(answer)[0] for answer in answers] == [200, 409, 200]
        else:
            assert [said(answer)[0] for answer in answers] == [200 if i == won else 409 for i in range(3)]
    assert upstream.effects == before + outcomes["completed"]


def test_an_approval_in_the_last_moment_counts_or_is_too_late_and_never_both(
    home: DaemonHome, upstream: CountingServer
) -> None:
    """Deciders at the very end of the time: each answer agrees with what happened."""
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


def test_the_plan_that_was_shown_runs_whatever_the_file_says_now(
    home: DaemonHome, gated: str, upstream: CountingServer
) -> None:
    """Edited to another path while it waited, and then to nonsense."""
    question = home.asked(gated, {"path": "/as-shown"})
    file = home.path / "actions" / f"{gated}.md"
    file.write_text(probe_action("fetch", name=gated, gated=True), encoding="utf-8")
    file.write_text("nonsense", encoding="utf-8")

    home.decide(question, "approve")

    assert home.result(question)["status"] == "completed"
    assert upstream.requests[-1][:2] == ("POST", "/as-shown")


def test_an_action_switched_off_or_removed_meanwhile_is_not_carried_out(
    home: DaemonHome, upstream: CountingServer
) -> None:
    """The user's later word holds; it fails with that word, and its approval is used up."""
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


def test_a_binding_that_is_another_meanwhile_is_not_used(own_home: DaemonHome, upstream: CountingServer) -> None:
    """Revoked, or revoked and made anew under the same name: what was shown is gone."""
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


def test_an_exception_taken_back_meanwhile_is_not_used(own_home: DaemonHome, upstream: CountingServer) -> None:
    """The plan was shown with a private host; config.toml does not allow it any more."""
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


def test_what_is_approved_while_the_vault_is_locked_begins_when_it_is_opened(
    own_home: DaemonHome, upstream: CountingServer
) -> None:
    """Until then it is approved, and whoever looks is told what it waits for."""
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


def test_a_question_outlives_the_daemon(own_home: DaemonHome, upstream: CountingServer) -> None:
    """kill -9 while it waits: it waits on, with the same bytes, and is carried out when approved."""
    before = upstream.effects
    question = own_home.asked("gated")
    own_home.kill()

    still = own_home.must("GET", f"/v1/action-approvals/{question['approval_id']}")
    own_home.unlock()
    own_home.decide(question, "approve")

    assert (still["status"], still["digest"]) == ("pending_approval", question["digest"])
    assert own_home.result(question)["status"] == "completed"
    assert upstream.effects == before + 1


def test_an_approval_that_was_not_used_outlives_the_daemon(own_home: DaemonHome, upstream: CountingServer) -> None:
    """kill -9 between the decision and its use: approved still, begun by nobody but who comes for it."""
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


def test_a_question_whose_time_passed_without_a_daemon_is_over(own_home: DaemonHome) -> None:
    """Expired at the next start, before anybody can decide it."""
    own_home.add_probe_action("effect", name="short", gated=True, expires_in="1s")
    question = own_home.asked("short")
    own_home.result(question, 0.5)
    own_home.kill()
    ends = datetime.fromisoformat(question["expires_at"])
    wait_until(lambda: datetime.now(UTC) > ends, "its time is over")

    assert said(own_home.decide(question, "approve")) == (410, "approval_expired")
    assert own_home.result(question, 0)["status"] == "expired"


def test_decisions_while_the_daemon_restarts_are_taken_once_or_not_at_all(
    own_home: DaemonHome, upstream: CountingServer
) -> None:
    """A stop in the middle of deciding: what was answered is so afterwards, and nothing happens twice."""
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


def test_the_same_key_is_the_same_question(home: DaemonHome, gated: str, upstream: CountingServer) -> None:
    """Asked again while it waits, after it was carried out, and after another was denied."""
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


def test_the_review_address_is_said_and_stays_the_same(own_home: DaemonHome) -> None:
    """On the port that is kept in the configuration, after a restart too."""
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
