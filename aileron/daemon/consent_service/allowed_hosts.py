"""The hosts that a person was asked about for agents in cells, and the hosts that a session can reach because a person approved
them.

Runs in the daemon. Nothing that an agent sends grants access to a host. It can only add a host name to the known names, whose
number is bounded.

Rules
- A permission is recorded before it takes effect. A restarted daemon reads the permission back from the record.
- A permission applies to one session alone, and ends with that session.
- Other processes can write the ledger's file. So, with an approver, an approval from before this daemon started, or from before
  there was an approver, is valid only after the signature of its decision has been verified.

Source: docs/adr/0065-questions-about-hosts.md. Not here: asking and waiting (host_questions.py), the list that a session began
with (daemon/http/sessions.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from aileron.approvals.signed import NotCounted
from aileron.audit.events import HostAllowed
from aileron.audit.log import Audit
from aileron.daemon.consent_service.approver import ApproverState
from aileron.ledger import ApprovalState
from aileron.model.consent import ConsentKind, HostConsent
from aileron.model.names import HostPort

__all__ = ["AllowedHosts", "AskingCell", "KnownHost"]


class AskingCell(Protocol):
    """An open session whose agent is in a cell, with the facts that a question to the person shows."""

    @property
    def ask(self) -> bool:
        """True if a person is asked about hosts that the session does not list."""
        ...

    @property
    def folder(self) -> str:
        """Path of the folder in which the agent works."""
        ...

    @property
    def agent(self) -> str:
        """Name of the agent."""
        ...


class KnownHost(msgspec.Struct):
    """A host that a person was asked about for one session. `is_checked`: this daemon has verified the decision about it."""

    approval: str
    is_allowed: bool = False
    is_checked: bool = False


class AllowedHosts:
    """The hosts that a person was asked about, by session, and the person's answers. One instance per daemon. Call `load`
    before anything runs. `cell` returns an open cell session by its id, or None.
    """

    def __init__(self, audit: Audit, approver: ApproverState, cell: Callable[[str], AskingCell | None]) -> None:
        self._audit = audit
        self._approver = approver
        self.cell = cell
        self._known: dict[str, dict[HostPort, KnownHost]] = {}
        """Hosts that a person was asked about, by session id."""

    async def load(self) -> None:
        """Load from the ledger the hosts that a person was asked about for sessions that are still open. Raises
        AileronError (hash_mismatch).

        A decision that was marked as used but never took effect, because the daemon ended in between, is dropped. The
        person is asked about the host again.
        """
        for session, hosts in (await self._audit.hosts()).items():
            if self.cell(session) is None:
                continue
            for host, asked_host in hosts.items():
                state, _ = await self._audit.state_of(asked_host.approval)
                if asked_host.is_allowed or state is not ApprovalState.REDEEMED:
                    self._known.setdefault(session, {})[host] = KnownHost(asked_host.approval, asked_host.is_allowed)

    def of(self, session: str) -> dict[HostPort, KnownHost]:
        """Return the hosts that a person was asked about for this session, each with the state of its question."""
        return self._known.get(session, {})

    def asked(self, subject: HostConsent, approval_id: str) -> KnownHost:
        """Remember that the question `approval_id`, which is already recorded, asks a person about the host of `subject`.
        Return the new entry for this host.
        """
        known = KnownHost(approval_id)
        self._known.setdefault(subject.session, {})[HostPort(subject.host, subject.port)] = known
        return known

    def is_asked_now(self, subject: HostConsent) -> bool:
        """Return whether the question `subject` is still current, that is, its session is open and a person was asked about
        its host for that session.
        """
        is_open = self.cell(subject.session) is not None
        return is_open and HostPort(subject.host, subject.port) in self.of(subject.session)

    async def allow(self, subject: HostConsent, approval_id: str) -> None:
        """Let the session of `subject` reach its host from now on. The caller has just verified the decision `approval_id`
        and marked it as used.
        """
        await self._audit.note(
            HostAllowed(session=subject.session, host=subject.host, port=subject.port, approval=approval_id)
        )
        known = self.of(subject.session).get(HostPort(subject.host, subject.port))
        if known is None or known.approval != approval_id:
            known = self.asked(subject, approval_id)
        known.is_allowed, known.is_checked = True, self._approver.is_hinted
        self._audit.watch.changed(approval_id)

    async def counts(self, known: KnownHost) -> bool:
        """Return whether a person's permission for the host `known` is valid now. It is invalid if the home now has an
        approver who did not sign the decision.

        Raises AileronError (vault_locked) if this cannot be determined, and AileronError (not_found, hash_mismatch) if the
        ledger's row differs from what was decided.
        """
        if not self._approver.is_hinted or known.is_checked:
            return known.is_allowed
        row, _ = await self._audit.consent(known.approval)
        try:
            self._approver.check_approved(row, ConsentKind.HOST)
        except NotCounted:
            return False
        known.is_checked = True
        return known.is_allowed

    def forget(self, session: str) -> None:
        """Forget the hosts of a session that has ended."""
        self._known.pop(session, None)
