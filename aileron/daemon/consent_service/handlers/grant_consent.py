"""Handles consents to standing grants.

Runs in the daemon. Source: docs/reference/consents.md. Not here: which grants are possible (approvals/grants.py), listing and
revoking them (standing_grants.py).
"""

from __future__ import annotations

import time

from aileron.actions.store import ActionStore
from aileron.api.approvals import GrantMade
from aileron.approvals.grants import MIN_FOR_S, check_grant
from aileron.audit.log import Audit
from aileron.daemon.consent_service.consent_store import ConsentStore
from aileron.daemon.consent_service.handlers.handler import ConsentHandler
from aileron.ledger.rows import ApprovalRow
from aileron.model.consent import ConsentKind, GrantConsent, StandingGrant, subject_digest
from aileron.model.decision import parse_moment

__all__ = ["GrantHandler"]


class GrantHandler(ConsentHandler[GrantConsent]):
    """Handler of consents to standing grants."""

    def __init__(self, store: ConsentStore, actions: ActionStore, audit: Audit) -> None:
        self._store = store
        self._actions = actions
        self._audit = audit

    def is_so(self, subject: GrantConsent) -> bool:
        """Return whether the action's file is still the one that the grant is bound to. Raises AileronError if the action
        no longer permits such a grant.
        """
        action = self._actions.load(subject.action)
        left_s = max(MIN_FOR_S, int(parse_moment(subject.until) - time.time()))
        check_grant(action, subject.constraints, subject.uses, left_s)
        return action.digest == subject.action_digest

    async def carry_out(self, subject: GrantConsent, row: ApprovalRow) -> GrantMade:
        """Store the grant in the vault. The grant has the same id as its approval."""
        grant = StandingGrant(
            id=row.id,
            action=subject.action,
            action_digest=subject.action_digest,
            credentials=subject.credentials,
            constraints=subject.constraints,
            uses=subject.uses,
            until=int(parse_moment(subject.until)),
        )
        await self._store.change(lambda consents: consents.with_grant(grant))
        await self._audit.agreed(ConsentKind.GRANT, subject.action, subject_digest(subject), row.id)
        return GrantMade(id=row.id, action=subject.action, uses=subject.uses, until=subject.until)
