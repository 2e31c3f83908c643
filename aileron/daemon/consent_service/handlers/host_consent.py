"""Handles consents to hosts that the agent in a cell may connect to.

Runs in the daemon. A host is asked about in every home, because an agent causes the question. No consent is stored: the
permission ends with the session.

Source: docs/adr/0065-questions-about-hosts.md. Not here: asking (host_questions.py), the permissions (allowed_hosts.py).
"""

from __future__ import annotations

from typing import ClassVar

from aileron.api.approvals import AllowedHost
from aileron.daemon.consent_service.allowed_hosts import AllowedHosts
from aileron.daemon.consent_service.handlers.handler import LONG_WAIT_S, ConsentHandler
from aileron.ledger.rows import ApprovalRow
from aileron.model.consent import HostConsent

__all__ = ["HostHandler"]


class HostHandler(ConsentHandler[HostConsent]):
    """Handler of consents to hosts of cells."""

    wait_s: ClassVar = LONG_WAIT_S
    is_asked_in_every_home: ClassVar = True

    def __init__(self, hosts: AllowedHosts) -> None:
        self._hosts = hosts

    def is_so(self, subject: HostConsent) -> bool:
        """Return whether the session is still open and a person was asked about the host for this session."""
        return self._hosts.is_asked_now(subject)

    async def carry_out(self, subject: HostConsent, row: ApprovalRow) -> AllowedHost:
        """Let the session reach the host until the session ends."""
        await self._hosts.allow(subject, row.id)
        return AllowedHost(session=subject.session, host=subject.destination)
