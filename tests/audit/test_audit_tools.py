"""Changed tools in the record, and which records count: the events are the state, and the vault has the last word."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from aileron.approvals.tool_change import ToolReport
from aileron.audit.events import ToolSuspended, facts_of
from aileron.audit.log import Audit
from aileron.audit.verify import verify
from aileron.daemon.consent_service.suspended_tools import MAX_OF_CONNECTOR, MAX_SUSPENDED, SuspendedTools
from aileron.ledger import Ledger, Transaction
from aileron.model.canonical import sha256_digest
from aileron.model.consent import Consent, ConsentKind, Consents, tool_consent_name
from aileron.model.failure import AileronError
from aileron.model.plan import ConnectorPin
from tests.audit.conftest import a_plan

pytestmark = pytest.mark.anyio

STEP = a_plan().steps[0]
FIRST = ToolReport("changed", '{"a":1}', '{"a":2}')
SECOND = ToolReport("changed", '{"a":1}', '{"a":3}')


class Signing:
    """The source of a vault's consents; None means that nobody signs."""

    def __init__(self, agreed: Consents | None = None) -> None:
        self.agreed = agreed

    def consents(self) -> Consents | None:
        """Return the consents as they are."""
        return self.agreed


async def loaded(audit: Audit, approver: Signing) -> SuspendedTools:
    """Return the state of a daemon that starts now."""
    tools = SuspendedTools(audit, approver)
    await tools.load()
    return tools


def signed(digest: str) -> Consents:
    """Return consents of an approver who accepted this change of the step's operation."""
    name = tool_consent_name(STEP.connector.hash, STEP.op)
    consent = Consent(kind=ConsentKind.TOOL_CHANGE, name=name, digest=digest, approval="act-1")
    return Consents(key_id="k", public_key="00" * 32, created_ms=0, agreed=(consent,))


async def accepted_first(audit: Audit) -> str:
    """Record that the first change was accepted, and return its digest."""
    tools = await loaded(audit, Signing())
    state = await tools.suspend(STEP, "run-1", "send-email", FIRST)
    assert state is not None
    subject = tools.question(state)
    assert subject is not None
    await tools.accept(subject, "act-1")
    return subject.digest


async def test_a_restarted_daemon_knows_suspended_and_accepted_tools(audit: Audit, path: Path) -> None:
    """The daemon restores the state from the ledger's events alone."""
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
    assert [(change.before, change.after) for change in subject.changes] == [("2", "3")], (
        "compared with what was accepted"
    )

    await again.lift(state)
    lifted = await loaded(audit, Signing())
    lifted.check(STEP, "send-email")
    assert lifted.accepted(STEP.connector, STEP.op) == digest
    assert await lifted.remove(STEP.connector) == [STEP.op]
    assert (await loaded(audit, Signing())).accepted(STEP.connector, STEP.op) is None
    assert verify(path).is_whole


async def test_approving_a_tools_first_change_does_not_accept_a_second_change(audit: Audit) -> None:
    """A person reviews a change, a run finds a second change, and then the approval of the first arrives."""
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


async def test_an_accepted_tool_change_must_be_in_the_vault_if_decisions_are_signed(audit: Audit) -> None:
    """An attacker can write the ledger's file, so the vault must name the accepted change too."""
    digest = await accepted_first(audit)
    nobody = Consents(key_id="k", public_key="00" * 32, created_ms=0)

    async def counts(agreed: Consents) -> str | None:
        return (await loaded(audit, Signing(agreed))).accepted(STEP.connector, STEP.op)

    assert await counts(nobody) is None
    assert await counts(signed("sha256:" + "00" * 32)) is None
    assert await counts(signed(digest)) == digest


async def known(audit: Audit, ledger: Ledger, count: int, connectors: int) -> SuspendedTools:
    """Return the state of a daemon that knows this number of missing operations, of this number of connectors."""

    def write(tx: Transaction) -> None:
        for number in range(count):
            name = f"c{number % connectors}"
            event = ToolSuspended(
                connector=name, version="1", hash=name, op=f"op{number}", run="r", action="a", how="gone"
            )
            tx.append(facts_of(event))

    await ledger.commit(write)
    return await loaded(audit, Signing())


async def test_the_number_of_suspended_operations_is_bounded(audit: Audit, ledger: Ledger) -> None:
    """An operation beyond the bound is not suspended, but a known one can be suspended again."""
    tools = await known(audit, ledger, MAX_SUSPENDED - 1, connectors=4)
    other = msgspec.structs.replace(STEP, op="another")

    assert await tools.suspend(STEP, "run-1", "send-email", FIRST) is not None
    assert await tools.suspend(other, "run-2", "send-email", FIRST) is None
    assert await tools.suspend(STEP, "run-3", "send-email", SECOND) is not None
    tools.check(other, "send-email")


async def test_a_connector_can_suspend_no_more_operations_than_its_share(audit: Audit, ledger: Ledger) -> None:
    """All its reports and versions share it, so there is room for the changed tools of other connectors."""
    tools = await known(audit, ledger, MAX_OF_CONNECTOR, connectors=1)
    full = msgspec.structs.replace(STEP, connector=ConnectorPin("c0", "2", "another hash"))

    assert await tools.suspend(full, "run-1", "send-email", FIRST) is None
    assert await tools.suspend(STEP, "run-2", "send-email", FIRST) is not None
