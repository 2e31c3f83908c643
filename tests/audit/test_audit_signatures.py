"""Forged chains: a program that can write the file can chain any events, but signs for no other key, and is found."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from aileron.audit.log import Audit, GrantUse
from aileron.audit.verify import Reason, Report, verify
from aileron.ledger import Head, Ledger
from aileron.ledger.chain import NO_HASH, columns_of, link, make_record
from aileron.model.decision import DecisionStatement, HeadStatement, moment
from tests.audit.conftest import START_S, a_plan, an_invocation, reason_of
from tests.audit.signer import Signer
from tests.cli.command import Command
from tests.support.shaped import shaped

Facts = dict[str, Any]
Forge = Callable[[list[Facts]], list[Facts]]

PERSON, NEXT, THIEF = Signer(), Signer(), Signer()
PLAN = a_plan()
EDITED = msgspec.structs.replace(PLAN, args={"to": "b@example.com"})


async def _history(audit: Audit, ledger: Ledger) -> None:
    """Record an unsigned decision, a key, two signed decisions of which the second has a head, and another key."""

    async def ask() -> str:
        return (await audit.pending(PLAN, an_invocation(), START_S * 2)).approval_id

    early = await ask()
    await audit.decide(early, "approve", digest=PLAN.digest, surface="operator")
    await PERSON.appoint(audit)
    first = await ask()
    await audit.add_edit(first, EDITED)
    signed = PERSON.signed(first, PLAN.digest, reason="fine")
    await audit.decide(first, "approve", digest=PLAN.digest, surface="operator", reason="fine", signed=signed)
    second = await ask()
    head = str(ledger.read_now(lambda snapshot: snapshot.head()))
    signed = PERSON.signed(second, PLAN.digest, head=head)
    await audit.decide(second, "approve", digest=PLAN.digest, surface="operator", signed=signed)
    await NEXT.appoint(audit, replaces=PERSON)
    await audit.requested(PLAN, an_invocation(), grant=GrantUse("act-grant", 1))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a closed ledger in which a person signs."""
    path = tmp_path_factory.mktemp("signed") / "ledger.db"
    with Ledger.open(path, path.parent, "0.1.0") as ledger:
        anyio.run(_history, Audit(ledger), ledger)
    return path


def forged(original: Path, path: Path, forge: Forge, *statements: str) -> Report:
    """Recompute the whole chain over the events that `forge` returns, with states to match, and verify it."""
    shutil.copy(original, path)
    connection = sqlite3.connect(path, isolation_level=None)
    records = [
        msgspec.json.decode(record) for (record,) in connection.execute("SELECT record FROM events ORDER BY seq")
    ]
    connection.execute("DELETE FROM events")
    previous = NO_HASH
    for seq, facts in enumerate(forge(records), 1):
        at_us = facts.get("at_us", records[-1]["at_us"])
        record = make_record(seq, at_us, facts)
        facts = {**facts, "seq": seq, "at_us": at_us}
        digest = link(previous, record)
        connection.execute(
            "INSERT INTO events VALUES (?,?,?,?,?,?,?,?,?,?,?)",
            (seq, at_us, *columns_of(facts), record.decode(), previous, digest),
        )
        previous = digest
    for statement in statements:
        connection.execute(statement)
    connection.close()
    return verify(path)


def of_type(events: list[Facts], kind: str) -> list[Facts]:
    """Return the events of a type, in order."""
    return [facts for facts in events if facts["type"] == kind]


def changed(number: int, **changes: Any) -> Forge:
    """Return a forge that changes facts of the decision of that number; None removes a fact."""

    def forge(events: list[Facts]) -> list[Facts]:
        decided = of_type(events, "approval.decided")[number]
        decided.update(changes)
        for name in [name for name, value in changes.items() if value is None]:
            del decided[name]
        return events

    return forge


def appended(*more: Facts) -> Forge:
    """Return a forge that appends these events."""
    return lambda events: [*events, *more]


def test_signed_decisions_are_counted_and_the_report_says_what_they_prove(original: Path) -> None:
    """The report counts decisions by kind, names the last row that a signature covers, and says to compare the key."""
    report = verify(original)

    assert report.finding is None
    assert msgspec.to_builtins(report.decisions) == {"signed": 2, "unsigned": 1, "unchecked": 0}
    assert report.signed_head is not None
    signed = Head.parse(report.signed_head)
    assert any(f"row {signed.seq}" in words for words in report.cannot_prove)
    assert any(NEXT.key_id in words and "approver status" in words for words in report.cannot_prove)
    assert shaped(report.to_json())["decisions"]["signed"] == 2
    known = verify(original, known_head=Head.parse(str(report.head)))
    assert not any("the last signed head" in words for words in known.cannot_prove), "one kept outside is newer"


def test_the_verify_command_reports_signed_decisions(original: Path, tmp_path: Path) -> None:
    """The command works on a copy and without a daemon, in words and as JSON, and says what is wrong with a forged ledger."""
    aileron = Command(tmp_path / "home")
    said = aileron("audit", "verify", "--file", str(original))
    shown = dict(line.split("\t", 1) for line in said.out.splitlines())

    assert said.code == 0, said
    assert (shown["decisions"], shown["signed head"]) == ("2 signed, 1 unsigned", verify(original).signed_head)
    assert NEXT.key_id in said.err
    found = aileron("audit", "verify", "--file", str(original), "--json").json
    assert found["decisions"] == {"signed": 2, "unsigned": 1, "unchecked": 0}
    forged(original, tmp_path / "forged.db", _stripped(1))
    wrong = aileron("audit", "verify", "--file", str(tmp_path / "forged.db")).exits(9)
    assert "not signed" in wrong.err


def test_a_hash_chain_recomputed_from_the_same_events_is_the_same(original: Path, tmp_path: Path) -> None:
    """This is the positive control of all that follows: each finding below is due to its forgery."""
    report = forged(original, tmp_path / "ledger.db", lambda events: events)

    assert report.finding is None
    assert report.head == verify(original).head


def _stripped(number: int) -> Forge:
    return changed(number, key_id=None, signed_at=None, signature=None)


def _signed_by(signer: Signer, key_id: str) -> Forge:
    """Return a forge that has another key sign the first signed decision, under this key id."""

    def forge(events: list[Facts]) -> list[Facts]:
        decided = of_type(events, "approval.decided")[1]
        statement = DecisionStatement(
            approval_id=decided["approval"],
            digest=decided["digest"],
            decision="approve",
            reason=decided["reason"],
            at=decided["signed_at"],
            key_id=key_id,
        )
        decided.update(key_id=key_id, signature=signer.sign(statement))
        return events

    return forge


def _of_another(events: list[Facts]) -> list[Facts]:
    """Put the signature of one question under another."""
    _, first, second = of_type(events, "approval.decided")
    second.update(signature=first["signature"], signed_at=first["signed_at"])
    return events


def _edited_instead(events: list[Facts]) -> list[Facts]:
    """Put the undecided edit in place of the decided plan."""
    of_type(events, "approval.decided")[1]["digest"] = EDITED.digest
    return events


def _damaged(kind: str, /, **changes: Any) -> Forge:
    """Return a forge that changes facts of the last event of a type; a value of `...` removes a fact."""

    def forge(events: list[Facts]) -> list[Facts]:
        facts = of_type(events, kind)[-1]
        facts.update(changes)
        for name in [name for name, value in changes.items() if value is ...]:
            del facts[name]
        return events

    return forge


_NOTHING = None
"""Marker for malformed events that affect no state: an old one, or one of a newer version."""


@pytest.mark.parametrize(
    ("forge", "reason", "words"),
    [
        (_damaged("run.requested", steps=..., args=..., action_version=...), _NOTHING, ""),
        (
            _damaged("run.requested", scope="somebody"),
            Reason.STATE,
            "is stored with a different scope than in the events",
        ),
        (_damaged("run.requested", plan_digest=5), Reason.STATE, "is stored with a different plan_digest than"),
        (_damaged("run.requested", type="run.wished"), Reason.STATE, "row 15 contradicts earlier rows: 'run-"),
        (_damaged("approval.requested", expires_at_us="late"), Reason.HEAD, "^row 12: the signed head"),
        (_damaged("approval.requested", approval=["x"]), Reason.PLAN, "subject of .'x'. differs from the one recorded"),
        (_damaged("approval.edited", args="none"), Reason.HEAD, "^row 12: the signed head"),
        (_damaged("approval.decided", decision="maybe"), Reason.STATE, "with a different state than in the events"),
        (_damaged("approval.decided", kind=5), Reason.STATE, "has a decision about another kind"),
        (
            _damaged("approval.decided", until_us="x"),
            Reason.SIGNATURE,
            "not a valid approval.decided: Expected `int . null`, got",
        ),
        (_damaged("approval.decided", surface=...), Reason.SIGNATURE, "missing required field `surface`"),
        (
            _damaged("approver.set", inventory=7),
            Reason.SIGNATURE,
            "it is not a valid approver.set: Expected `str`, got `int`",
        ),
        (_damaged("grant.used", of=...), Reason.STATE, "grant 'act-grant' is used more often than it allows"),
        (_damaged("grant.used", use="1"), Reason.STATE, "grant 'act-grant' is used more often than it allows"),
    ],
)
def test_a_malformed_event_is_judged_by_the_facts_it_has(
    original: Path, tmp_path: Path, forge: Forge, reason: Reason | None, words: str
) -> None:
    """The chain is intact, so states are compared as usual; only events that need a signature must be complete."""
    report = forged(original, tmp_path / "ledger.db", forge)

    assert (report.finding and report.finding.reason) is reason, report.finding
    assert report.finding is None or re.search(words, report.finding.message), report.finding.message


@pytest.mark.parametrize(
    "forge",
    [
        _stripped(1),
        changed(1, signature=None),
        changed(1, signature="AAAA"),
        changed(1, signature="\u00e9"),
        changed(1, signature=5),
        changed(1, reason="finer"),
        changed(1, reason=None),
        changed(1, signed_at=moment(START_S + 1)),
        _signed_by(THIEF, THIEF.key_id),
        _signed_by(THIEF, PERSON.key_id),
        _signed_by(NEXT, NEXT.key_id),
        _of_another,
        _edited_instead,
        changed(0, key_id=PERSON.key_id),
        changed(2, head=None),
        changed(2, head_signature=None),
        changed(
            2, head_signature=PERSON.sign(HeadStatement(head="1:" + "00" * 32, at=moment(0), key_id=PERSON.key_id))
        ),
        changed(2, head="12"),
    ],
)
def test_verification_finds_a_decision_that_was_not_signed_by_its_key(
    original: Path, tmp_path: Path, forge: Forge
) -> None:
    """The signature is missing, altered, from another question, or by a key that was not the approver's then."""
    report = forged(original, tmp_path / "ledger.db", forge)

    assert reason_of(report) is Reason.SIGNATURE


def test_verification_finds_a_signed_denial_turned_into_an_approval(original: Path, tmp_path: Path) -> None:
    """The forgery turns a signed denial into an approval, with matching states."""
    denied = tmp_path / "denied.db"
    shutil.copy(original, denied)

    async def deny(audit: Audit) -> str:
        asked = await audit.pending(PLAN, an_invocation(), START_S * 2)
        signed = NEXT.signed(asked.approval_id, PLAN.digest, "deny")
        await audit.decide(asked.approval_id, "deny", digest=PLAN.digest, surface="operator", signed=signed)
        return asked.approval_id

    with Ledger.open(denied, denied.parent, "0.1.0") as ledger:
        approval_id = anyio.run(deny, Audit(ledger))
    assert verify(denied).decisions.signed == 3

    def forge(events: list[Facts]) -> list[Facts]:
        decided = of_type(events, "approval.decided")[-1]
        decided["decision"] = "approve"
        return [facts for facts in events if facts["type"] != "run.finished"]

    report = forged(
        denied,
        tmp_path / "ledger.db",
        forge,
        f"UPDATE approvals SET state = 'approved' WHERE id = '{approval_id}'",
        "UPDATE runs SET status = 'approved', outcome = NULL WHERE status = 'denied'",
    )
    assert reason_of(report) is Reason.SIGNATURE


def _thief_row(**changes: Any) -> Facts:
    """Return the row that names the thief's key, as a daemon would record it."""
    statement = THIEF.statement(replaces=NEXT)
    facts: Facts = {
        "type": "approver.set",
        "key_id": THIEF.key_id,
        "public_key": THIEF.public_key.hex(),
        "inventory": statement.inventory,
        "signed_at": statement.at,
        "signature": THIEF.sign(statement),
        "replaces": NEXT.key_id,
        "old_signature": NEXT.sign(statement),
    }
    facts.update(changes)
    return {name: value for name, value in facts.items() if value is not None}


_ALONE = THIEF.statement()


@pytest.mark.parametrize(
    ("named", "is_good"),
    [
        (_thief_row(), True),
        (_thief_row(old_signature=None), False),
        (_thief_row(old_signature=THIEF.sign(THIEF.statement(replaces=NEXT))), False),
        (_thief_row(replaces=None, old_signature=None, signature=THIEF.sign(_ALONE)), False),
        (_thief_row(replaces=PERSON.key_id), False),
        (_thief_row(signature=NEXT.sign(THIEF.statement(replaces=NEXT))), False),
        (_thief_row(inventory="sha256:" + "11" * 32), False),
        (_thief_row(public_key=PERSON.public_key.hex()), False),
        (_thief_row(public_key="zz"), False),
        (_thief_row(public_key=None), False),
        (_thief_row(key_id=PERSON.key_id), False),
    ],
)
def test_only_the_current_approvers_key_can_name_its_successor(
    original: Path, tmp_path: Path, named: Facts, is_good: bool
) -> None:
    """The first case is the control, signed by both keys; each other case lacks one signature or fact."""
    report = forged(original, tmp_path / "ledger.db", appended(named))

    assert reason_of(report) is (None if is_good else Reason.SIGNATURE)


def test_no_unsigned_decision_is_valid_once_there_is_a_key(original: Path, tmp_path: Path) -> None:
    """Unsigned decisions before the first key are valid; the same decision with a signature is the control."""
    path = tmp_path / "waiting.db"
    shutil.copy(original, path)
    with Ledger.open(path, path.parent, "0.1.0") as ledger:
        asked = anyio.run(Audit(ledger).pending, PLAN, an_invocation(), START_S * 2)
    signed = NEXT.signed(asked.approval_id, PLAN.digest)
    decided = {"type": "approval.decided", "approval": asked.approval_id, "run": asked.run_id, "decision": "approve"}
    decided |= {"digest": PLAN.digest, "kind": "action", "surface": "operator"}
    for facts, found in (
        ({"key_id": signed.key_id, "signed_at": signed.at, "signature": signed.signature}, None),
        ({}, Reason.SIGNATURE),
    ):
        columns = ", ".join(f"{name} = '{value}'" for name, value in facts.items())
        report = forged(
            path,
            tmp_path / "ledger.db",
            appended({**decided, **facts}),
            f"UPDATE approvals SET state = 'approved', surface = 'operator'{columns and ', ' + columns},"
            " decided_us = (SELECT max(at_us) FROM events) WHERE state = 'pending_approval'",
            "UPDATE runs SET status = 'approved', changed_us = (SELECT max(at_us) FROM events)"
            " WHERE status = 'pending_approval'",
        )
        assert (report.finding and report.finding.reason) is found, report.finding


def test_verification_finds_a_first_key_without_a_signature_by_that_key(original: Path, tmp_path: Path) -> None:
    """Naming a key requires its private half, even for the first approver."""

    def forge(events: list[Facts]) -> list[Facts]:
        of_type(events, "approver.set")[0]["signature"] = NEXT.sign(PERSON.statement())
        return events

    report = forged(original, tmp_path / "ledger.db", forge)
    assert reason_of(report) is Reason.SIGNATURE


def test_verification_finds_rewritten_rows_before_a_signed_head(original: Path, tmp_path: Path) -> None:
    """The rewritten chain is consistent and every decision signed, but the head that a decision signed is missing."""

    def forge(events: list[Facts]) -> list[Facts]:
        of_type(events, "genesis")[0]["version"] = "0.1.1"
        return events

    report = forged(original, tmp_path / "ledger.db", forge)
    assert reason_of(report) is Reason.HEAD


def test_cutting_rows_after_the_last_signed_head_is_reported_as_possible(original: Path, tmp_path: Path) -> None:
    """The verification cannot notice such a cut, so its report names the row from which one is possible."""
    whole = verify(original)
    cut = forged(
        original,
        tmp_path / "ledger.db",
        lambda events: [facts for facts in events if facts["type"] != "grant.used"],
        "DELETE FROM grant_uses",
    )

    assert cut.finding is None
    assert cut.signed_head == whole.signed_head
    assert cut.cannot_prove == whole.cannot_prove


def test_a_ledger_without_any_approver_key_is_reported_as_unverifiable(original: Path, tmp_path: Path) -> None:
    """The ledger was started anew, or the row with the key was removed."""
    report = forged(
        original,
        tmp_path / "ledger.db",
        lambda events: [facts for facts in events if facts["type"] != "approver.set"],
    )

    assert report.finding is None
    assert msgspec.to_builtins(report.decisions) == {"signed": 0, "unsigned": 1, "unchecked": 2}
    assert report.signed_head is None
    assert any("names no key" in words for words in report.cannot_prove)


@pytest.mark.parametrize(
    ("use", "is_good"),
    [
        ({"grant": "act-new", "use": 1, "of": 1}, True),
        ({"grant": "act-new", "use": 2, "of": 2}, False),
        ({"grant": "act-new", "use": 1, "of": 0}, False),
        ({"grant": "act-grant", "use": 2, "of": 1}, False),
        ({"grant": "act-grant", "use": 1, "of": 1}, False),
        ({"grant": "act-new", "use": 1, "of": None}, False),
    ],
)
def test_verification_finds_more_uses_of_a_standing_grant_than_were_granted(
    original: Path, tmp_path: Path, use: Facts, is_good: bool
) -> None:
    """The first case is the control; the others skip a use, exceed the last one, or repeat one."""

    def forge(events: list[Facts]) -> list[Facts]:
        run = of_type(events, "grant.used")[0]["run"]
        return [*events, {"type": "grant.used", "run": run, **use}]

    report = forged(original, tmp_path / "ledger.db", forge, "INSERT INTO grant_uses VALUES ('act-new', 1, NULL)")
    assert reason_of(report) is (None if is_good else Reason.STATE)


@pytest.mark.parametrize(
    "more",
    [
        {"type": "run.started", "connector": "c"},
        {"type": "approval.redeemed", "digest": PLAN.digest},
        {"type": "run.finished", "status": "completed"},
        {"type": "run.finished", "status": ["failed"]},
        {"type": "run.unknown"},
        {"type": "approval.decided", "decision": "approve", "digest": EDITED.digest, "kind": "action", "surface": "x"},
        {"type": "approval.answered", "number": 1, "text": "x"},
        {"type": "approval.asked", "number": 2, "text": "x"},
        {"type": "approval.edited", "digest": PLAN.digest, "args": {}},
        {"type": "approval.previewed", "plan_digest": EDITED.digest},
        {"type": "approval.previewed", "plan_digest": PLAN.digest, "preview": "sha256:1", "digest": "sha256:2"},
        {"type": "approval.requested", "kind": "action", "digest": PLAN.digest, "expires_at_us": 1},
    ],
)
def test_verification_finds_an_event_that_lacks_the_decision_it_needs(
    original: Path, tmp_path: Path, more: Facts
) -> None:
    """Examples are a run that begins while its question is pending, and a decision about a plan never shown."""
    path = tmp_path / "waiting.db"
    shutil.copy(original, path)
    with Ledger.open(path, path.parent, "0.1.0") as ledger:
        asked = anyio.run(Audit(ledger).pending, PLAN, an_invocation(), START_S * 2)
    assert forged(path, tmp_path / "control.db", lambda events: events).finding is None

    facts = {"approval": asked.approval_id, "run": asked.run_id, **more}
    report = forged(path, tmp_path / "ledger.db", appended(facts))

    assert reason_of(report) is Reason.STATE


def test_a_decision_recorded_twice_is_found(original: Path, tmp_path: Path) -> None:
    """The second row is an exact copy, signature included."""

    def forge(events: list[Facts]) -> list[Facts]:
        again = {name: value for name, value in of_type(events, "approval.decided")[2].items() if name != "at_us"}
        return [*events, again]

    report = forged(original, tmp_path / "ledger.db", forge)
    assert reason_of(report) is Reason.STATE
