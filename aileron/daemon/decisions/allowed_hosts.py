"""Which hosts an agent in a cell was asked about, and which of these its session can reach because a person approved them.

Runs in the daemon. Nothing that an agent sends allows anything: it only makes a name known, and there is room for so many.

Rules
- On record first, then in force. A daemon that starts again knows the same from the record.
- What was allowed holds for its session alone, and ends with it.
- What was approved before this daemon started, or before anybody signed, counts only once its decision is found signed: the
  ledger is a file that others can write.

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
from aileron.daemon.decisions.approver import ApproverState
from aileron.ledger import ApprovalState
from aileron.model.consent import ConsentKind, HostConsent
from aileron.model.names import HostPort

__all__ = ["AllowedHosts", "AskingCell", "KnownHost"]


class AskingCell(Protocol):
    """An open session whose agent is in a cell, as much of it as a question says."""

    @property
    def ask(self) -> bool:
        """Whether a person is asked about hosts that it does not list."""
        ...

    @property
    def folder(self) -> str:
        """Where its agent works."""
        ...

    @property
    def agent(self) -> str:
        """Which agent it is."""
        ...


class KnownHost(msgspec.Struct):
    """One host that a person was asked about for one session. `is_checked`: the decision was found to count, by this daemon."""

    approval: str
    is_allowed: bool = False
    is_checked: bool = False


class AllowedHosts:
    """One for each daemon. `load` before anything runs. `cell`: the session of this id, while it is one of a cell and open."""

    def __init__(self, audit: Audit, approver: ApproverState, cell: Callable[[str], AskingCell | None]) -> None:
        self._audit = audit
        self._approver = approver
        self.cell = cell
        self._known: dict[str, dict[HostPort, KnownHost]] = {}
        """By session."""

    async def load(self) -> None:
        """What the record says of the sessions that are open. AileronError(hash_mismatch).

        A decision that was used up without its effect (the daemon ended in between) is none: it is asked about again.
        """
        for session, hosts in (await self._audit.hosts()).items():
            if self.cell(session) is None:
                continue
            for host, one in hosts.items():
                state, _ = await self._audit.state_of(one.approval)
                if one.is_allowed or state is not ApprovalState.REDEEMED:
                    self._known.setdefault(session, {})[host] = KnownHost(one.approval, one.is_allowed)

    def of(self, session: str) -> dict[HostPort, KnownHost]:
        """All that a person was asked about for this session."""
        return self._known.get(session, {})

    def asked(self, subject: HostConsent, approval_id: str) -> KnownHost:
        """It was just asked about, and that is on record."""
        known = KnownHost(approval_id)
        self._known.setdefault(subject.session, {})[HostPort(subject.host, subject.port)] = known
        return known

    def is_asked_now(self, subject: HostConsent) -> bool:
        """Whether this would be asked now: its session goes on, and asked for it."""
        is_open = self.cell(subject.session) is not None
        return is_open and HostPort(subject.host, subject.port) in self.of(subject.session)

    async def allow(self, subject: HostConsent, approval_id: str) -> None:
        """The session can reach it from now on; a person's decision was just found to count, and is used up."""
        await self._audit.note(
            HostAllowed(session=subject.session, host=subject.host, port=subject.port, approval=approval_id)
        )
        known = self.of(subject.session).get(HostPort(subject.host, subject.port))
        if known is None or known.approval != approval_id:
            known = self.asked(subject, approval_id)
        known.is_allowed, known.is_checked = True, self._approver.is_hinted
        self._audit.watch.changed(approval_id)

    async def counts(self, known: KnownHost) -> bool:
        """Whether what was allowed still is. Not where somebody signs by now, and this was not signed by who does.

        AileronError vault_locked where that cannot be known; not_found, hash_mismatch for a row that is not what was decided.
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
        """The session is over."""
        self._known.pop(session, None)
