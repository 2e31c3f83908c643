"""What the record says of changed tools, and what of it counts: the events are the state, and the vault has the last word."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from aileron.approvals.tool_change import ToolReport
from aileron.audit.events import ToolSuspended, facts_of
from aileron.audit.log import Audit
from aileron.audit.verify import verify
from aileron.daemon.decisions.suspended_tools import MAX_OF_CONNECTOR, MAX_SUSPENDED, SuspendedTools
from aileron.ledger import Ledger, Transaction
from aileron.model.canonical import sha256_digest
from aileron.model.consent import Agreement, ConsentKind, Consents, tool_agreement
from aileron.model.failure import AileronError
from aileron.model.plan import ConnectorPin
from tests.audit.conftest import a_plan

pytestmark = pytest.mark.anyio

STEP = a_plan().steps[0]
FIRST = ToolReport("changed", '{"a":1}', '{"a":2}')
SECOND = ToolReport("changed", '{"a":1}', '{"a":3}')


class Signing:
    """Whose agreements are these; None: nobody signs."""

    def __init__(self, agreed: Consents | None = None) -> None:
        self.agreed = agreed

    def consents(self) -> Consents | None:
        """As they are."""
        return self.agreed


async def loaded(audit: Audit, approver: Signing) -> SuspendedTools:
    """What a daemon knows that starts now."""
    tools = SuspendedTools(audit, approver)
    await tools.load()
    return tools


def signed(digest: str) -> Consents:
    """Somebody signs, and agreed to this of the step's operation."""
    name = tool_agreement(STEP.connector.hash, STEP.op)
    agreement = Agreement(kind=ConsentKind.TOOL_CHANGE, name=name, digest=digest, approval="act-1")
    return Consents(key_id="k", public_key="00" * 32, created_ms=0, agreed=(agreement,))


async def accepted_first(audit: Audit) -> str:
    """The first change was accepted: the digest of it."""
    tools = await loaded(audit, Signing())
    state = await tools.suspend(STEP, "run-1", "send-email", FIRST)
    assert state is not None
    subject = tools.question(state)
    assert subject is not None
    await tools.accept(subject, "act-1")
    return subject.digest


async def test_a_daemon_that_starts_again_knows_what_was_suspended_and_accepted(audit: Audit, path: Path) -> None:
    """From the events alone: suspended, accepted, suspended, lifted, removed."""
    digest = await accepted_first(audit)
    tools = await loaded(audit, Signing())
    assert (tools.is_used("act-1"), tools.is_used("act-2")) == (True, False)
    assert (digest, tools.accepted(STEP.connector, STEP.op)) == (sha256_digest(b'{"a":2}'),) * 2
    tools.check(STEP, "send-email")

    state = await tools.suspend(STEP, "run-2", "send-email", SECOND)
    assert state is not None
    again = await loaded(audit, Signing())
    with pytest.raises(AileronError, match="suspended"):
        again.check(STEP, "send-email")
    subject = again.question(state)
    assert subject is not None
    assert [(one.before, one.after) for one in subject.changes] == [("2", "3")], "compared with what was accepted"

    await again.lift(state)
    lifted = await loaded(audit, Signing())
    lifted.check(STEP, "send-email")
    assert lifted.accepted(STEP.connector, STEP.op) == digest
    assert await lifted.remove(STEP.connector) == [STEP.op]
    assert (await loaded(audit, Signing())).accepted(STEP.connector, STEP.op) is None
    assert verify(path).is_whole


async def test_what_changed_again_before_a_yes_took_effect_is_not_accepted_with_it(audit: Audit) -> None:
    """1 a person sees a change · 2 a run that was under way finds another · 3 the yes arrives."""
    tools = await loaded(audit, Signing())
    state = await tools.suspend(STEP, "run-1", "send-email", FIRST)
    assert state is not None
    subject = tools.question(state)
    assert subject is not None
    await tools.suspend(STEP, "run-2", "send-email", SECOND)

    assert not tools.is_asked_now(subject)
    with pytest.raises(AileronError, match="changed again"):
        await tools.accept(subject, "act-1")
    with pytest.raises(AileronError, match="suspended"):
        tools.check(STEP, "send-email")
    assert tools.accepted(STEP.connector, STEP.op) is None


async def test_where_decisions_are_signed_the_record_alone_accepts_nothing(audit: Audit) -> None:
    """Whoever writes the ledger's file accepts nothing; what the vault names, and the record has the text of, counts."""
    digest = await accepted_first(audit)
    nobody = Consents(key_id="k", public_key="00" * 32, created_ms=0)

    async def counts(agreed: Consents) -> str | None:
        return (await loaded(audit, Signing(agreed))).accepted(STEP.connector, STEP.op)

    assert await counts(nobody) is None
    assert await counts(signed("sha256:" + "00" * 32)) is None
    assert await counts(signed(digest)) == digest


async def known(audit: Audit, ledger: Ledger, count: int, connectors: int) -> SuspendedTools:
    """A daemon that knows so many operations that are gone, of so many connectors."""

    def write(tx: Transaction) -> None:
        for number in range(count):
            name = f"c{number % connectors}"
            event = ToolSuspended(
                connector=name, version="1", hash=name, op=f"op{number}", run="r", action="a", how="gone"
            )
            tx.append(facts_of(event))

    await ledger.commit(write)
    return await loaded(audit, Signing())


async def test_so_many_operations_are_suspended_and_no_more(audit: Audit, ledger: Ledger) -> None:
    """One more is not; one that is known is, again."""
    tools = await known(audit, ledger, MAX_SUSPENDED - 1, connectors=4)
    other = msgspec.structs.replace(STEP, op="another")

    assert await tools.suspend(STEP, "run-1", "send-email", FIRST) is not None
    assert await tools.suspend(other, "run-2", "send-email", FIRST) is None
    assert await tools.suspend(STEP, "run-3", "send-email", SECOND) is not None
    tools.check(other, "send-email")


async def test_one_connector_takes_no_more_than_its_share(audit: Audit, ledger: Ledger) -> None:
    """By whatever it reports, in whatever versions: there is room for the changed tools of another."""
    tools = await known(audit, ledger, MAX_OF_CONNECTOR, connectors=1)
    full = msgspec.structs.replace(STEP, connector=ConnectorPin("c0", "2", "another hash"))

    assert await tools.suspend(full, "run-1", "send-email", FIRST) is None
    assert await tools.suspend(STEP, "run-2", "send-email", FIRST) is not None
