"""Fixtures for an audit on a real ledger, with a clock that only the test moves, and a plan to run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aileron.audit.log import Audit
from aileron.audit.verify import Reason, Report
from aileron.egress.journal import RequestIntent
from aileron.ledger import EventFilter, Ledger
from aileron.model.consent import Constraint, GrantConsent
from aileron.model.invocation import Invocation, Scope
from aileron.model.manifest import ApprovalRule, CredentialNeed, LimitsSpec
from aileron.model.names import BindingName, HostPort
from aileron.model.outcome import Pending
from aileron.model.plan import ConnectorPin, CredentialUse, Grant, Plan, Step
from aileron.runs.journal import LedgerJournal

START_S = 1_800_000_000.0


class Clock:
    """A clock in microseconds since the epoch; each reading is one microsecond later, so that order can be seen."""

    def __init__(self) -> None:
        self.now_us = int(START_S * 1_000_000)

    def __call__(self) -> int:
        self.now_us += 1
        return self.now_us

    def advance(self, seconds: float) -> None:
        """Let this number of seconds pass."""
        self.now_us += int(seconds * 1_000_000)


def a_step(name: str = "send") -> Step:
    """Return a step that may reach one host with one credential."""
    host = HostPort("api.example.com", 443)
    need = CredentialNeed(kind="basic", scope="send mail")
    return Step(
        id=name,
        connector=ConnectorPin("github://acme/mail", "1.2.0", "sha256:" + "ab" * 32),
        op="send_email",
        args={"to": "a@example.com", "ratio": 1e17},
        idempotent=False,
        grant=Grant(
            hosts=(host,),
            credential=CredentialUse(
                connector="github://a/b", binding=BindingName("basic", "mail", "office"), need=need
            ),
        ),
        limits=LimitsSpec(),
    )


def a_plan(*steps: str) -> Plan:
    """Return a plan of these steps."""
    return Plan(
        action="send-email",
        action_version="1.2.0",
        action_digest="sha256:" + "cd" * 32,
        action_text="+++\n+++\nSends it.",
        args={"to": "a@example.com"},
        steps=tuple(a_step(name) for name in steps or ("send",)),
        approval=ApprovalRule(required=True),
    )


def a_grant(most: Any = 50) -> GrantConsent:
    """Return the consent for a grant with this maximum."""
    return GrantConsent(
        action="send-email",
        action_digest="sha256:" + "cd" * 32,
        credentials=("basic/mail/office",),
        constraints=(Constraint(argument="amount", operator="at_most", value=most),),
        uses=2,
        until="2027-01-16T09:00:00Z",
    )


def an_invocation(**changes: Any) -> Invocation:
    """Return an invocation of the plan's action."""
    asked = Invocation(action="send-email", args={"to": "a@example.com"}, scope=Scope.AGENT)
    return msgspec.structs.replace(asked, **changes)


def reason_of(report: Report) -> Reason | None:
    """Return the reason of the report's finding, or None if it has found nothing."""
    return None if report.finding is None else report.finding.reason


async def cut_short(audit: Audit, run_id: str, plan: Plan) -> None:
    """Interrupt a run that had sent something when its daemon ended."""
    intent = RequestIntent(1, "POST", HostPort("api.example.com", 443), "/v1/send", None)
    await LedgerJournal(audit, run_id).of_step(plan.steps[0]).sending(intent)
    await audit.interrupted(run_id)


@pytest.fixture
def clock() -> Clock:
    """Return a clock that moves only by a microsecond a reading."""
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of the ledger."""
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path, clock: Clock) -> Iterator[Ledger]:
    """Yield an open ledger with its genesis row."""
    with Ledger.open(path, path.parent, "0.1.0", clock=clock) as opened:
        yield opened


@pytest.fixture
def audit(ledger: Ledger) -> Audit:
    """Return the audit's verbs on the ledger."""
    return Audit(ledger)


@pytest.fixture
def plan() -> Plan:
    """Return a plan of one step."""
    return a_plan()


@pytest.fixture
def asked() -> Invocation:
    """Return an invocation of the plan's action."""
    return an_invocation()


@pytest.fixture
async def pending(audit: Audit, plan: Plan, asked: Invocation) -> Pending:
    """Return a run that waits for a person, for fifteen minutes."""
    return await audit.pending(plan, asked, START_S + 900)


@pytest.fixture
def facts(ledger: Ledger) -> Callable[..., list[dict[str, Any]]]:
    """Return a function that reads everything recorded of a run, without the fields that every row has."""

    def read(run: str | None = None) -> list[dict[str, Any]]:
        rows = ledger.read_now(lambda snapshot: snapshot.events(EventFilter(run=run, oldest_first=True, limit=1000)))
        return [{key: value for key, value in row.facts.items() if key not in ("seq", "at_us")} for row in rows]

    return read


@pytest.fixture
def types(facts: Callable[..., list[dict[str, Any]]]) -> Callable[..., list[str]]:
    """Return a function that reads the types of the events recorded of a run, in order."""
    return lambda run=None: [str(row["type"]) for row in facts(run)]
