"""Decisions in a home with an approver: unsigned ones do not count; a signed one counts once, and for what the approver saw."""

from __future__ import annotations

import base64
import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aileron.api.approvals import ApprovalList
from aileron.approver_key.box import Recipient
from aileron.cards.question import tags_of
from aileron.model.plan import Plan
from tests.support.approver import Approver, decided_home
from tests.support.home import PASSPHRASE, DaemonHome, probe_action
from tests.support.probed import probed_home
from tests.support.skewed_daemon import skewed_daemon
from tests.support.told import refusals, word
from tests.support.upstream_http import CountingServer

pytestmark = pytest.mark.jail

PREVIEW = """
[approval.preview]
op = "{op}"
inputs = {{ path = "/read" }}
render = {{ Status = "status", Body = "body", Missing = "nothing.here" }}
multiline = ["Body"]
"""


@pytest.fixture(scope="module")
def home(upstream: CountingServer, approver: Approver) -> Iterator[DaemonHome]:
    """Start a home with an approver, the vault open."""
    with decided_home(upstream, approver) as made:
        yield made


@pytest.fixture
def own_home(upstream: CountingServer, approver: Approver) -> Iterator[DaemonHome]:
    """Start such a home for tests that stop its daemon and write in its files."""
    with decided_home(upstream, approver) as made:
        yield made


def test_a_signed_approval_starts_the_run(home: DaemonHome, approver: Approver, upstream: CountingServer) -> None:
    """The record verifies with the signature in it."""
    before = upstream.effects
    question = home.asked("gated")

    decided = approver.decide(home, question["approval_id"], reason="looks right")

    assert (decided.status, word(decided)) == (200, "approved")
    assert home.result(question)["status"] == "completed"
    assert upstream.effects == before + 1
    (event,) = [event for event in home.events(question["audit_id"]) if event["type"] == "approval.decided"]
    assert event["key_id"] == approver.key_id
    verified = home.must("GET", "/v1/audit/verify")
    assert verified["ok"], verified


def test_only_a_correctly_signed_decision_is_accepted(
    home: DaemonHome, approver: Approver, upstream: CountingServer
) -> None:
    """Unsigned, by another key, or signed for other words, another question or time: each is refused, on record."""
    before = upstream.effects
    question, other = home.asked("gated"), home.asked("gated", {"path": "/other"})
    approval_id = question["approval_id"]
    good = approver.decision(home, approval_id)
    stranger = Approver()
    unsigned = {"decision": "approve", "digest": good["digest"]}
    tries: list[tuple[dict[str, Any], str, str]] = [
        (unsigned, "unauthorized", "unsigned"),
        (stranger.decision(home, approval_id), "unauthorized", "key"),
        ({**stranger.decision(home, approval_id), "key_id": approver.key_id}, "unauthorized", "signature"),
        (approver.decision(home, other["approval_id"]), "unauthorized", "signature"),
        ({**good, "reason": "put in its mouth"}, "unauthorized", "signature"),
        ({**good, "decision": "deny"}, "unauthorized", "signature"),
        ({**good, "head": "1:" + "0" * 64}, "unauthorized", "signature"),
        (approver.decision(home, approval_id, at=time.time() - 300), "unauthorized", "time"),
        (approver.decision(home, approval_id, at=time.time() + 300), "unauthorized", "time"),
        (approver.decision(home, approval_id, digest="sha256:" + "0" * 64), "invalid_request", "digest"),
    ]

    answers = [home.ask("POST", f"/v1/action-approvals/{approval_id}/decide", body) for body, _, _ in tries]

    assert [word(answer) for answer in answers] == [told for _, told, _ in tries]
    assert refusals(home, approval_id) == [why for _, _, why in tries]
    assert home.result(question, wait=0)["status"] == "pending_approval"
    assert upstream.effects == before
    assert word(home.ask("POST", f"/v1/action-approvals/{approval_id}/decide", good)) == "approved"  # the control
    assert home.result(question)["status"] == "completed"
    assert word(home.ask("POST", f"/v1/action-approvals/{approval_id}/decide", good)) == "already_decided"
    assert upstream.effects == before + 1


def test_a_denial_must_be_signed_too(home: DaemonHome, approver: Approver) -> None:
    """Other programs must not deny in the person's name; the signed reason reaches the caller."""
    question = home.asked("gated")
    unsigned = home.decide({**question}, "deny", "no")
    signed = approver.decide(home, question["approval_id"], "deny", reason="not today")

    assert (word(unsigned), word(signed)) == ("unauthorized", "denied")
    assert home.result(question)["reason"] == "not today"


def test_nothing_is_decided_or_run_while_the_vault_is_locked(own_home: DaemonHome, approver: Approver) -> None:
    """The vault holds the approver's public key, so no signature can be checked."""
    question = own_home.asked("gated")
    good = approver.decision(own_home, question["approval_id"])
    own_home.must("POST", "/v1/vault/lock")

    locked = own_home.ask("POST", f"/v1/action-approvals/{question['approval_id']}/decide", good)
    ran = own_home.run("free")
    own_home.unlock()
    decided = own_home.ask("POST", f"/v1/action-approvals/{question['approval_id']}/decide", good)

    assert (word(locked), word(ran), word(decided)) == ("vault_locked", "vault_locked", "approved")
    assert own_home.run("free").status == 200


def test_replacing_the_approvers_key_needs_the_old_keys_signature(own_home: DaemonHome, approver: Approver) -> None:
    """A stranger with the vault's passphrase is refused; with the old key's signature the new key is enrolled and
    alone decides.
    """
    stranger, successor = Approver(), Approver()
    bold = own_home.ask("POST", "/v1/approver", stranger.appointment(own_home))
    forged = own_home.ask(
        "POST", "/v1/approver", {**stranger.appointment(own_home, stranger), "replaces": approver.key_id}
    )
    wrong = own_home.ask(
        "POST", "/v1/approver", successor.appointment(own_home, approver, passphrase="not the vault's")
    )
    successor.appoint(own_home, approver)
    question = own_home.asked("gated")

    assert [word(answer) for answer in (bold, forged, wrong)] == ["unauthorized"] * 3
    assert own_home.must("GET", "/v1/approver")["key_id"] == successor.key_id
    assert word(approver.decide(own_home, question["approval_id"])) == "unauthorized"
    assert word(successor.decide(own_home, question["approval_id"])) == "approved"
    assert own_home.must("GET", "/v1/audit/verify")["ok"]


def test_enrolling_an_approver_fails_if_the_inventory_changed_meanwhile(bare_home: DaemonHome) -> None:
    """The test adds an action between the list that is shown and the signature."""
    bare_home.install_probe()
    bare_home.unlock()
    approver = Approver()
    body = approver.appointment(bare_home)
    bare_home.add_probe_action("effect", name="slipped-in")

    late = bare_home.ask("POST", "/v1/approver", body)
    approver.appoint(bare_home)

    assert word(late) == "invalid_request"
    assert bare_home.must("GET", "/v1/approver")["status"] == "ready"


def rewrite(home: DaemonHome, *statements: str) -> None:
    """Execute statements on the ledger, as any program of the same user can."""
    with sqlite3.connect(home.path / "ledger.db") as ledger:
        for statement in statements:
            ledger.execute(statement)
    ledger.close()


def test_an_approval_forged_in_the_ledger_starts_no_run(
    own_home: DaemonHome, approver: Approver, upstream: CountingServer
) -> None:
    """The state `approved` is written while the daemon is stopped: the run fails once it is read, whoever unlocks the vault."""
    before = upstream.effects
    question = own_home.asked("gated")
    own_home.stop()
    rewrite(
        own_home,
        f"UPDATE approvals SET state = 'approved', decided_us = created_us WHERE id = '{question['approval_id']}'",
        f"UPDATE runs SET status = 'approved' WHERE id = '{question['audit_id']}'",
    )

    own_home.unlock()
    result = own_home.result(question)

    assert (result["status"], result["error"]["class"]) == ("failed", "unauthorized")
    assert upstream.effects == before
    assert not own_home.must("GET", "/v1/audit/verify")["ok"]
    assert own_home.must("POST", "/v1/actions/free/run", {"args": {}})  # the control: the home works
    assert upstream.effects == before + 1


def test_restoring_an_older_vault_file_does_not_remove_the_approver(upstream: CountingServer) -> None:
    """A file from before the enrollment is put back while the daemon is stopped: it does not open."""
    approver = Approver()
    with probed_home(upstream.port) as home:
        home.add_probe_action("effect", name="gated", gated=True)
        older = (home.path / "vault.json").read_bytes()
        approver.appoint(home)
        newest = (home.path / "vault.json").read_bytes()
        question = home.asked("gated")
        home.stop()

        (home.path / "vault.json").write_bytes(older)
        opened = home.ask("POST", "/v1/vault/unlock", {"passphrase": PASSPHRASE})
        answers = [home.decide(question, "approve"), home.run("gated")]
        home.stop()
        (home.path / "vault.json").write_bytes(newest)
        home.unlock()

        assert [word(answer) for answer in (opened, *answers)] == ["hash_mismatch", "vault_locked", "vault_locked"]
        assert word(approver.decide(home, question["approval_id"])) == "approved"


def test_arguments_edited_by_the_approver_are_the_ones_that_run(
    home: DaemonHome, approver: Approver, upstream: CountingServer
) -> None:
    """Other arguments give another digest, which the approver signs; the result tells the agent what ran."""
    question = home.asked("gated", {"path": "/asked"})
    approval_id = question["approval_id"]
    edited = home.must("POST", f"/v1/action-approvals/{approval_id}/edit", {"args": {"path": "/edited"}})
    wrong = home.ask("POST", f"/v1/action-approvals/{approval_id}/edit", {"args": {"path": 1}})

    decided = approver.decide(home, approval_id, digest=Plan.from_json(edited["plan"]).digest)
    result = home.result(question)

    assert word(wrong) == "bad_input"
    assert [change["where"].split()[0] for change in edited["changes"]] == ["args.path"]
    assert (word(decided), result["status"]) == ("approved", "completed")
    assert result["executed_arguments"] == {"path": "/edited"}
    assert upstream.requests[-1][1] == "/edited"


def test_an_agent_can_answer_the_persons_question_once(home: DaemonHome, approver: Approver) -> None:
    """The agent finds the question when it polls; the person sees the answer marked as the agent's."""
    question = home.asked("gated")
    route = f"/v1/action-approvals/{question['approval_id']}"
    early = home.agent.request("POST", f"{route}/answer", {"answer": "nobody asked"})
    home.must("POST", f"{route}/ask", {"question": "whose invoice is it?"})

    polled = home.agent.request("GET", f"{route}/result")
    answered = home.agent.request("POST", f"{route}/answer", {"answer": "Mira's"})
    again = home.agent.request("POST", f"{route}/answer", {"answer": "and mine"})
    shown = approver.shown(home, question["approval_id"])

    assert (word(early), polled.body["question"], answered.status) == ("invalid_request", "whose invoice is it?", 200)
    assert word(again) == "invalid_request"
    assert shown["conversation"] == [{"question": "whose invoice is it?", "answer": "Mira's"}]
    assert "question" not in home.result(question, wait=0)
    assert word(approver.decide(home, question["approval_id"], "deny")) == "denied"


def test_a_question_is_compared_with_the_last_approved_call(home: DaemonHome, approver: Approver) -> None:
    """The difference shows an argument's other value; denied calls are not compared with."""
    first = home.asked("gated", {"path": "/one"})
    approver.decide(home, first["approval_id"])
    assert home.result(first)["status"] == "completed"
    denied = home.asked("gated", {"path": "/two"})
    approver.decide(home, denied["approval_id"], "deny")

    same = approver.shown(home, home.asked("gated", {"path": "/one"})["approval_id"])["difference"]
    other = approver.shown(home, home.asked("gated", {"path": "/three"})["approval_id"])["difference"]

    assert (same["approval_id"], same["changes"]) == (first["approval_id"], [])
    assert [(change["before"], change["after"]) for change in other["changes"]] == [("/one", "/three")]
    assert (same["problem"], other["problem"]) == (None, None)


def test_a_question_is_compared_with_the_most_similar_signed_call(own_home: DaemonHome, approver: Approver) -> None:
    """The newest call does not take precedence; one whose signature does not verify is not used."""
    home = own_home
    asked = [home.asked("gated", {"path": path}) for path in ("/one", "/two")]
    for each in asked:
        approver.decide(home, each["approval_id"])
        assert home.result(each)["status"] == "completed"
    waits = home.asked("gated", {"path": "/one"})["approval_id"]

    same = approver.shown(home, waits)["difference"]
    with sqlite3.connect(home.path / "ledger.db") as ledger:
        ledger.execute("UPDATE approvals SET reason = 'forged' WHERE id = ?", (asked[0]["approval_id"],))
    other = approver.shown(home, waits)["difference"]

    assert (same["approval_id"], same["changes"], same["problem"]) == (asked[0]["approval_id"], [], None)
    assert (other["approval_id"], other["problem"]) == (asked[1]["approval_id"], None)
    assert [(change["before"], change["after"]) for change in other["changes"]] == [("/two", "/one")]


def test_a_comparison_with_an_approval_without_a_signature_says_so(own_home: DaemonHome, approver: Approver) -> None:
    """The text says "that approval", because its reader is deciding another one, with a signature."""
    home = own_home
    first = home.asked("gated", {"path": "/one"})
    approver.decide(home, first["approval_id"])
    assert home.result(first)["status"] == "completed"
    with sqlite3.connect(home.path / "ledger.db") as ledger:
        ledger.execute("UPDATE approvals SET key_id = NULL, signature = NULL, signed_at = NULL")
    found = approver.shown(home, home.asked("gated", {"path": "/one"})["approval_id"])["difference"]

    assert (found["approval_id"], found["problem"]) == (first["approval_id"], "that approval was not signed")


def test_the_approval_list_shows_conversations_and_identical_calls(own_home: DaemonHome, approver: Approver) -> None:
    """The person asks the agent about one of two identical calls, and the agent answers."""
    home = own_home
    first, second = (home.asked("gated", {"path": "/same"})["approval_id"] for _ in range(2))

    def listed() -> dict[str, str]:
        answer = home.must("GET", "/v1/action-approvals")
        return tags_of(msgspec.convert(answer, ApprovalList).approvals)

    before = listed()
    home.must("POST", f"/v1/action-approvals/{first}/ask", {"question": "why twice?"})
    asked = listed()
    home.agent.request("POST", f"/v1/action-approvals/{first}/answer", {"answer": "by mistake"})

    assert before == {first: "2 identical", second: "2 identical"}
    assert asked == {first: "no answer yet, 2 identical", second: "2 identical"}
    assert listed() == {first: "answered, 2 identical", second: "2 identical"}


def test_a_comparison_that_is_impossible_is_reported(home: DaemonHome, approver: Approver) -> None:
    """The vault is locked, so no signature can be checked; the question must not claim to be the first call."""
    first = home.asked("gated", {"path": "/one"})
    approver.decide(home, first["approval_id"])
    assert home.result(first)["status"] == "completed"
    waits = home.asked("gated", {"path": "/three"})["approval_id"]

    home.must("POST", "/v1/vault/lock", {})
    locked = approver.shown(home, waits)["difference"]
    home.unlock()

    assert (locked["approval_id"], locked["changes"]) == (first["approval_id"], [])
    assert "locked" in locked["problem"]
    assert approver.shown(home, waits)["difference"]["problem"] is None


def previewing(home: DaemonHome, approver: Approver, op: str, step: str = "effect") -> str:
    """Add a gated action that does `step` and whose preview runs `op`, and return its name."""
    text = probe_action(step, name=f"{step}-after-{op}", gated=True)
    text = text.replace(f'capabilities = ["{step}"]', f'capabilities = ["{step}", "{op}"]')
    head, fence, body = text.rpartition("+++")
    answer = home.ask(
        "POST", "/v1/actions", {"text": head + PREVIEW.format(op=op) + fence + body, "file": "a test", "replace": True}
    )
    if answer.status == 200:  # the same file was approved before
        return str(answer.body["name"])
    settled = approver.agree(home, answer)
    assert settled["status"] == "completed", settled
    return str(settled["result"]["name"])


def test_a_preview_is_for_the_approver_only_and_is_signed_with_the_plan(
    home: DaemonHome, approver: Approver, upstream: CountingServer
) -> None:
    """The preview is in no file of the home, and the decision covers what was shown."""
    question = home.asked(previewing(home, approver, "fetch"))
    effects = upstream.effects
    upstream.page = "the draft that only the person reads"

    preview = approver.preview(home, question["approval_id"])

    fields = {line["label"]: line["value"] for line in preview["fields"]}
    assert (fields["Status"], fields["Missing"]) == ("200", None)
    assert upstream.effects == effects
    assert fields["Body"] == upstream.page
    for file in Path(home.path).rglob("*"):
        assert not file.is_file() or upstream.page.encode() not in file.read_bytes(), file
    assert word(approver.decide(home, question["approval_id"], digest=preview["digest"])) == "approved"
    assert home.result(question)["status"] == "completed"
    assert home.must("GET", "/v1/audit/verify")["problem"] is None


@pytest.mark.abuse_case("D41")
def test_an_approval_of_an_outdated_preview_is_refused(
    home: DaemonHome, approver: Approver, upstream: CountingServer
) -> None:
    """The newest preview's digest is needed. A denial counts, and so does an older preview whose content is current
    again.
    """
    asked = [home.asked(previewing(home, approver, "fetch"))["approval_id"] for _ in range(2)]
    upstream.page = "as it was"
    before = [approver.preview(home, approval_id)["digest"] for approval_id in asked]
    upstream.page = "has changed: load it again"
    now = [approver.preview(home, approval_id)["digest"] for approval_id in asked]

    refused = approver.decide(home, asked[0], digest=before[0])

    assert (refused.status, "was loaded again" in refused.body["error"]["message"]) == (400, True)
    assert word(approver.decide(home, asked[1], "deny", digest=before[1])) == "denied"
    upstream.page = "as it was"
    assert approver.preview(home, asked[0])["digest"] == before[0] != now[0]
    assert word(approver.decide(home, asked[0], digest=before[0])) == "approved"


def test_a_preview_that_would_write_is_refused_by_egress(
    home: DaemonHome, approver: Approver, upstream: CountingServer
) -> None:
    """Egress refuses a preview that would write; the person learns that it failed, and can decide without it."""
    question = home.asked(previewing(home, approver, "effect", step="fetch"))
    effects = upstream.effects

    preview = approver.preview(home, question["approval_id"])

    assert preview["fields"] is None
    assert "read" in preview["problem"]
    assert upstream.effects == effects
    assert word(approver.decide(home, question["approval_id"])) == "approved"


def test_a_preview_forged_in_the_ledger_sends_no_request(
    own_home: DaemonHome, approver: Approver, upstream: CountingServer
) -> None:
    """The forged preview would carry out the effect itself. Its digest matches, but an unsigned plan must be what the
    approved file gives.
    """
    name = previewing(own_home, approver, "fetch")
    question, untouched = own_home.asked(name), own_home.asked(name)
    before, effects = upstream.requests[:], upstream.effects
    plan = Plan.from_json(approver.shown(own_home, question["approval_id"])["plan"])
    assert plan.preview is not None
    step = msgspec.structs.replace(plan.steps[0], grant=msgspec.structs.replace(plan.steps[0].grant, read_only=False))
    forged = msgspec.structs.replace(plan, preview=msgspec.structs.replace(plan.preview, step=step))
    own_home.stop()
    with contextlib.closing(sqlite3.connect(own_home.path / "ledger.db")) as ledger, ledger:
        ledger.execute(
            "UPDATE approvals SET subject = ?, digest = ? WHERE id = ?",
            (msgspec.json.encode(forged.to_json(), order="sorted"), forged.digest, question["approval_id"]),
        )

    own_home.unlock()
    statement = approver.preview_statement(question["approval_id"], Recipient().public)
    route = f"/v1/action-approvals/{question['approval_id']}/preview"
    answer = own_home.ask("POST", route, approver.preview_body(statement))

    assert word(answer) == "hash_mismatch"
    assert (upstream.requests, upstream.effects) == (before, effects)
    assert approver.preview(own_home, untouched["approval_id"])["fields"]  # the control


def test_only_the_approver_gets_a_preview(home: DaemonHome, approver: Approver) -> None:
    """A foreign key, a wrong signature, another time and the agent socket are refused. The approver's request works."""
    question = home.asked(previewing(home, approver, "fetch"))
    route = f"/v1/action-approvals/{question['approval_id']}/preview"
    statement = approver.preview_statement(question["approval_id"], "0" * 64)
    body = approver.preview_body(statement)
    stranger = Approver()
    foreign = stranger.preview_body(stranger.preview_statement(question["approval_id"], "0" * 64))

    answers = [
        home.ask("POST", route, foreign),
        home.ask("POST", route, {**body, "signature": base64.b64encode(bytes(64)).decode()}),
        home.ask("POST", route, {**body, "at": "2020-01-01T00:00:00.000Z"}),
        home.agent.request("POST", route, body),
    ]

    assert [word(answer) for answer in answers] == ["unauthorized"] * 4
    assert refusals(home, question["approval_id"]) == ["key", "signature", "signature"]
    assert approver.preview(home, question["approval_id"])["fields"]  # the control


def test_a_request_for_a_preview_is_answered_once(home: DaemonHome, approver: Approver) -> None:
    """Another program could capture the signed request and repeat it, and gets nothing."""
    question = home.asked(previewing(home, approver, "fetch"))
    route = f"/v1/action-approvals/{question['approval_id']}/preview"
    body = approver.preview_body(approver.preview_statement(question["approval_id"], Recipient().public))
    first, second = home.ask("POST", route, body), home.ask("POST", route, body)

    assert (first.status, word(second)) == (200, "unauthorized")


def add_held(home: DaemonHome, approver: Approver, name: str, window_s: int) -> None:
    """Add an action with an effect that can be cancelled for `window_s` seconds after its approval."""
    text = probe_action("effect", name=name, gated=True)
    text = text.replace("[approval]\n", f"[approval]\nundo_window_s = {window_s}\n")
    approver.agree(home, home.ask("POST", "/v1/actions", {"text": text, "file": "a test"}))


def test_a_run_in_its_undo_window_can_be_cancelled_and_otherwise_begins(
    home: DaemonHome, approver: Approver, upstream: CountingServer
) -> None:
    """`undo_window_s` delays an approved run, and `held_until` says until when."""
    add_held(home, approver, "held", 600)
    add_held(home, approver, "soon", 1)
    before = upstream.effects
    taken_back, kept = home.asked("held"), home.asked("soon")

    decided = [approver.decide(home, question["approval_id"]) for question in (taken_back, kept)]
    cancelled = home.agent.request("POST", f"/v1/action-approvals/{taken_back['approval_id']}/cancel")

    assert all(answer.body["held_until"] for answer in decided)
    assert word(cancelled) == "cancelled"
    assert home.result(kept, wait=30)["status"] == "completed"
    assert upstream.effects == before + 1
    assert home.result(taken_back)["status"] == "cancelled"


def test_a_run_in_its_undo_window_survives_a_killed_daemon(
    own_home: DaemonHome, approver: Approver, upstream: CountingServer
) -> None:
    """The daemon is killed before the window ends: once the vault is open again, the run begins once."""
    add_held(own_home, approver, "held", 600)
    before = upstream.effects
    question = own_home.asked("held")
    held = approver.decide(own_home, question["approval_id"]).body["held_until"]
    said = own_home.must("GET", f"/v1/action-approvals/{question['approval_id']}/result")["held_until"]
    own_home.kill()

    with skewed_daemon(own_home.path, 597.0):  # by this daemon's clock the undo window is nearly over
        own_home.unlock()
        result = own_home.result(question, wait=30)
        (started,) = [event for event in own_home.events(question["audit_id"]) if event["type"] == "run.started"]

    assert result["status"] == "completed"
    assert upstream.effects == before + 1
    assert said[: len(held) - 1] == held[:-1]
    assert started["at"] >= held[:-1]


def test_an_agents_refused_request_to_an_operator_route_is_recorded(home: DaemonHome) -> None:
    """The record has the route. A mistake of an operator is not recorded."""
    answer = home.agent.request("POST", "/v1/action-approvals/act-1/decide", {"decision": "approve", "digest": "x"})
    mistake = home.ask("POST", "/v1/action-approvals/act-1/decide", {"decision": "approve", "digest": "x"})

    assert (word(answer), mistake.status) == ("unauthorized", 404)
    found = home.must("GET", "/v1/audit?type=caller.refused&limit=1000")["events"]
    assert "POST /v1/action-approvals/{id}/decide" in {event["route"] for event in found}
    assert {event["scope"] for event in found} == {"agent"}


def test_a_run_cancelled_while_the_vault_was_locked_stays_cancelled(
    own_home: DaemonHome, approver: Approver, upstream: CountingServer
) -> None:
    """A caller locks the vault during the undo window, and the ledger is set back to before the cancellation."""
    add_held(own_home, approver, "held", 600)
    add_held(own_home, approver, "soon", 2)
    question, other = own_home.asked("held"), own_home.asked("soon")
    before = upstream.effects
    for approval in (question, other):
        approver.decide(own_home, approval["approval_id"])
    own_home.must("POST", "/v1/vault/lock")
    own_home.must("POST", f"/v1/action-approvals/{question['approval_id']}/cancel", {})
    rewrite(
        own_home,
        f"UPDATE approvals SET state = 'approved' WHERE id = '{question['approval_id']}'",
        f"UPDATE runs SET status = 'approved', outcome = NULL WHERE id = '{question['audit_id']}'",
    )

    own_home.unlock()
    result = own_home.result(question)

    assert (result["status"], result["error"]["class"]) == ("failed", "hash_mismatch")
    assert own_home.result(other)["status"] == "completed"  # the control
    assert upstream.effects == before + 1
