"""Hostile text in questions and around them: consents, conversations, differences, edits, grants, keys."""

from __future__ import annotations

from typing import Any

import pytest

from aileron.model.canonical import canonical_json, sha256_digest
from tests.cli.command import Command
from tests.support.fake_daemon import FakeDaemon
from tests.support.hostile_text import (
    EVERYTHING,
    MEGABYTE,
    as_in_a_file,
    assert_harmless,
    assert_no_line_begins,
)

pytestmark = pytest.mark.abuse_case("T2")

OURS = ("  fix: curl", "Approve? [y/N] yes", "Approver's passphrase", "signed by", "ALLOWS MORE: ")
"""Starts of lines that none of these texts may produce."""
LATER = "2036-11-21T04:00:00.000Z"


def subjects(text: str) -> dict[str, dict[str, Any]]:
    """Return a consent of each kind, with this text in every place that another party can write."""
    change = {"where": text, "before": text, "after": text, "widens": True}
    connector: dict[str, Any] = {
        **dict.fromkeys(("name", "version", "hash", "source", "signature", "credential", "publisher"), text),
        "on_conflict": "replace",
        "reaches": [text],
        "imports": [text],
        "limits": {text: text},
    }
    action_file: dict[str, Any] = {
        "name": text,
        "text": f"{text}\n{text}",
        "before": "sha256:" + "0" * 64,
        "changes": [change, {**change, "before": None}, {**change, "after": None}],
        "reaches": [text],
        "credentials": [text],
        "install": True,
        "replace": True,
        "fetched": text,
        "published": text,
        "signature": text,
    }
    binding: dict[str, Any] = {
        **dict.fromkeys(("name", "connector", "secret", "username", "wire", "client", "account", "commitment"), text),
        "reaches": [text],
        "scopes": [text],
    }
    return {
        "action_file": action_file,
        "connector": connector,
        "connector_update": {**connector, "before": text, "changes": [change]},
        "binding": binding,
        "installation": {
            "name": text,
            "connectors": [
                {"kind": "connector", **connector},
                {"kind": "connector_update", **connector, "before": text, "changes": [change]},
            ],
            "actions": [{"kind": "action_file", **action_file}, {"kind": "action_file", **action_file}],
            "bindings": [{"kind": "binding", **binding}],
        },
        "secret": {"name": text, "bindings": [text], "commitment": text},
        "trusted_key": {"authority": text, "new": text, "keys": [text], "before": [text], "source": text},
        "grant": {
            "action": text,
            "action_digest": text,
            "credentials": [text],
            "constraints": [
                {"argument": text, "operator": operator, "value": value}
                for operator, value in (("equals", text), ("one_of", [text]), ("prefix", text), ("at_most", text))
            ],
            "uses": 1,
            "until": LATER,
        },
        "passkey": {
            **dict.fromkeys(
                ("name", "credential_id", "public_key", "rp_id", "origin", "key_id", "algorithm", "aaguid"), text
            ),
            "synced": "yes",
            "transports": [text],
        },
        "settings": {"before": {text: [text], "sandbox.mode": text}, "after": {text: text, text + "2": None}},
        text: {text: text},
    }


def question(kind: str, subject: dict[str, Any], text: str) -> dict[str, Any]:
    """Return the question about this subject as the daemon shows it."""
    return {
        "approval_id": "a",
        "kind": kind,
        "name": text,
        "subject": {"kind": kind, **subject},
        "digest": text,
        "session": text,
        "status": "pending_approval",
        "created_at": text,
        "expires_at": LATER,
        "head": text,
    }


def run_question(text: str) -> dict[str, Any]:
    """Return a question about a run, with everything that can accompany its plan."""
    change = {"where": text, "before": text, "after": text, "widens": False}
    credential = {
        "connector": text,
        "binding": {"kind": text, "service": text, "identity": text},
        "account": text,
        "need": {"kind": "basic", "scope": text},
    }
    step = {
        "id": text,
        "op": text,
        "connector": {"name": text, "version": text, "hash": text},
        "args": {text: text},
        "idempotent": False,
        "grant": {"hosts": [{"host": text, "port": 443}], "credential": credential},
        "limits": {},
    }
    plan = {
        "action": text,
        "action_version": text,
        "action_digest": text,
        "action_text": text,
        "args": {text: text, "body": f"{text}\n{text}"},
        "steps": [step],
        "approval": {"required": True},
    }
    return {
        "approval_id": "a",
        "kind": "action",
        "action": text,
        "session": text,
        "status": "pending_approval",
        "digest": text,
        "created_at": text,
        "expires_at": LATER,
        "head": text,
        "plan": {**plan, "preview": {"step": step, "render": [[text, text]]}},
        "difference": {"approval_id": text, "decided_at": text, "changes": [change], "problem": None},
        "edits": [{"digest": text, "plan": plan, "made_at": text}],
        "conversation": [{"question": text, "answer": text}, {"question": f"{text}\n{text}"}],
    }


def test_hostile_text_in_every_kind_of_question_is_escaped(fake: FakeDaemon, aileron: Command) -> None:
    """Each question is shown, shown in full, prompted for, and printed in a pipe."""
    text = EVERYTHING
    for kind, subject in subjects(text).items():
        fake.script("GET", "/v1/action-approvals/a", (200, question(kind, subject, text)))
        for shown in (
            aileron.at_terminal("approval", "show", "a"),
            aileron.at_terminal("approval", "show", "a", "--full"),
            aileron.at_terminal("approve", "a", answers=[("to approve: ", "n")]),
        ):
            assert shown.code in (0, 75) or (kind == text and shown.code == 9), (
                shown
            )  # a question of an unknown kind cannot be decided
            assert_harmless(shown.out)
            assert_no_line_begins(shown.out, *OURS)
        assert_harmless(aileron("approval", "show", "a").out.replace("\t", ""))


@pytest.mark.abuse_case("T5")
def test_hostile_text_around_a_runs_plan_is_escaped(fake: FakeDaemon, aileron: Command) -> None:
    """Conversation, difference, edits and preview must not look like output of Aileron or the person's own words."""
    text = EVERYTHING
    fake.script("GET", "/v1/action-approvals/a", (200, run_question(text)))
    for words, answers in (
        (("approval", "show", "a"), []),
        (("approval", "show", "a", "--full"), []),
        (("approve", "a"), [("to approve: ", "n")]),
        (("deny", "a"), [("sent to the agent): ", "")]),
    ):
        fake.script(
            "POST", "/v1/action-approvals/a/decide", (200, {"status": "denied", "approval_id": text, "audit_id": text})
        )
        shown = aileron.at_terminal(*words, answers=answers)

        assert shown.code in (0, 75), shown
        assert_harmless(shown.out)
        assert_no_line_begins(shown.out, *OURS)


def test_hostile_text_in_conversations_and_edits_is_escaped(fake: FakeDaemon, aileron: Command) -> None:
    """The daemon repeats both in the question and in the list of changes."""
    text = EVERYTHING
    fake.script("GET", "/v1/action-approvals/a", (200, run_question(text)))
    fake.script("POST", "/v1/action-approvals/a/ask", (200, {"approval_id": text, "question": text}))
    change = {"where": text, "before": text, "after": text, "widens": True}
    plan = {**run_question(text)["plan"], "args": {"x": 1}}
    fake.script("POST", "/v1/action-approvals/a/edit", (200, {"digest": "d", "plan": plan, "changes": [change]}))
    for shown in (
        aileron.at_terminal("approval", "ask", "a", "why"),
        aileron.at_terminal("approval", "edit", "a", "--args", '{"x": 1}'),
    ):
        assert_harmless(shown.out)
        assert_no_line_begins(shown.out, *OURS)


def test_hostile_text_in_lists_of_consents_and_standing_grants_is_escaped(fake: FakeDaemon, aileron: Command) -> None:
    """Lists are tables at a terminal; in a pipe, no value can break a line."""
    text = EVERYTHING
    fake.approvals = [{**question(kind, {}, text), "approval_id": text, "expires_at": text} for kind in subjects(text)]
    fake.grants = [
        {
            "id": text,
            "action": text,
            "action_digest": text,
            "over": False,
            "constraints": subjects(text)["grant"]["constraints"],
            "uses": 1,
            "used": 0,
            "until": text,
            "credentials": [text],
        }
    ]
    for words in (("approval", "list"), ("grant", "list")):
        assert_harmless(aileron.at_terminal(*words).out)
        piped = aileron(*words)
        assert_harmless(piped.out.replace("\t", ""))
        assert len({line.count("\t") for line in piped.out.splitlines()}) == 1
        assert aileron(*words, "--json").out.isascii()


def test_hostile_text_in_the_approvers_inventory_is_escaped(fake: FakeDaemon, aileron: Command) -> None:
    """A person reads the inventory before they sign it with a new key."""
    text = as_in_a_file(EVERYTHING)
    inventory = {
        "actions": [{"name": text, "version": text, "digest": text, "gated": True, "reaches": [text]}],
        "bindings": [{"name": text, "connector": text, "secret": text, "username": text}],
        "connectors": [{"name": text, "version": text, "hash": text, "reaches": [text]}],
        "settings": {text: [text], "sandbox.mode": text},
        text: {text: text},
    }
    fake.passphrase, fake.is_locked = "correct horse battery", False
    answer = {"inventory": inventory, "digest": sha256_digest(canonical_json(inventory))}
    fake.script("GET", "/v1/approver/inventory", (200, answer))
    shown = aileron.at_terminal("approver", "init", answers=[("approver's key? [y/N] ", "n")])

    assert "installed and configured now" in shown.out, shown
    assert_harmless(shown.out)
    assert_no_line_begins(shown.out, *OURS)
    fake.approver = {"status": "ready", "key_id": text, "public_key": text, "created_at": text}
    assert_harmless(aileron.at_terminal("approver", "status").out)
    fake.approver = {"status": "problem", "problem": text}
    assert_harmless(aileron.at_terminal("approver", "status").out)


def test_hostile_text_in_the_audit_trail_of_decisions_is_escaped(fake: FakeDaemon, aileron: Command) -> None:
    """Refused decisions, conversations and consents appear in `audit list`, in `audit show`, and as JSON."""
    text = EVERYTHING
    facts = dict.fromkeys(("at", "run", "approval", "text", "reason", "key_id", "name", "route", "session"), text)
    kinds = ("approval.refused", "approval.answered", "approval.edited", "caller.refused", "consent.agreed", text)
    events = [{"seq": 1, "type": kind, **facts} for kind in kinds]
    fake.events = events
    fake.script("GET", "/v1/audit/r", (200, {"audit_id": text, "status": text, "events": events}))
    for words in (("audit", "list"), ("audit", "show", "r")):
        assert_harmless(aileron.at_terminal(*words).out)
        assert_harmless(aileron(*words).out.replace("\t", ""))
        assert aileron(*words, "--json").out.isascii()


def test_a_megabyte_of_text_does_not_push_the_prompt_off_the_screen(fake: FakeDaemon, aileron: Command) -> None:
    """The hosts and the question stay within a few screens; the output says how much is missing and how to see it."""
    asked = run_question("ok")
    asked["plan"]["args"] = {"body": MEGABYTE, "lines": "\n" * 500_000, "many": [MEGABYTE]}
    asked["plan"]["steps"][0]["args"] = asked["plan"]["args"]
    credential = asked["plan"]["steps"][0]["grant"]["credential"]
    binding = {"kind": "basic", "service": MEGABYTE, "identity": MEGABYTE}
    credential |= {"binding": binding, "account": MEGABYTE, "need": {"kind": "basic", "scope": MEGABYTE}}
    long = [MEGABYTE, *[MEGABYTE[:5000]] * 199]  # one that is very long, and many that are too long
    asked["conversation"] = [{"question": "why", "answer": text} for text in long[:20]]
    asked["difference"]["changes"] = [
        {"where": "args.body", "before": text, "after": text, "widens": False} for text in long
    ]
    fake.script("GET", "/v1/action-approvals/a", (200, asked))
    shown = aileron.at_terminal("approve", "a", answers=[("to approve: ", "n")])

    assert_harmless(shown.out)
    assert len(shown.out.splitlines()) < 400
    assert "more characters" in shown.out
    assert "approval show a --full" in shown.out


@pytest.mark.parametrize("host", ["g\u043e\u043egle.com", "xn--ggle-55da.com"])
def test_a_host_in_look_alike_letters_is_marked(fake: FakeDaemon, aileron: Command, host: str) -> None:
    """A homograph contains no hidden character, so only a mark reveals it."""
    asked = run_question("ok")
    asked["plan"]["steps"][0]["grant"]["hosts"] = [{"host": host, "port": 443}]
    fake.script("GET", "/v1/action-approvals/a", (200, asked))

    assert "not in plain letters" in aileron.at_terminal("approval", "show", "a").out
