"""Standing grants: listed, requested, revoked.

Runs in the daemon, behind the operator's socket. A grant is signed like every decision, so a home without an approver has no
grants.

Source: docs/reference/consents.md. Not here: the terms of a grant (approvals/grants.py), how a grant lets a run through
(gate.py).
"""

from __future__ import annotations

import time

import anyio
import anyio.to_thread

from aileron.actions.fitting import seen_steps
from aileron.actions.resolve import used_credentials
from aileron.api.approvals import ConsentAnswer
from aileron.api.grants import GrantEntry
from aileron.approvals.grants import check_grant
from aileron.daemon.consent_service.approver import ApproverState
from aileron.daemon.consent_service.consent_checks import ConsentChecks
from aileron.daemon.consent_service.consents import ConsentService
from aileron.daemon.foundation import Foundation
from aileron.model.consent import Constraint, GrantConsent
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.manifest import ActionFile
from aileron.model.plan import ConnectorPin
from aileron.model.timestamp import utc

__all__ = ["GrantService"]


class GrantService:
    """Service for standing grants. One instance per daemon."""

    def __init__(
        self,
        base: Foundation,
        approver: ApproverState,
        *,
        consent_checks: ConsentChecks,
        consents: ConsentService,
    ) -> None:
        self._base = base
        self._approver = approver
        self._consent_checks = consent_checks
        self._consents = consents

    async def listed(self) -> list[GrantEntry]:
        """Return the grants in force, each with its number of uses. Raises AileronError (vault_locked)."""
        consents = self._approver.consents()
        grants = () if consents is None else consents.grants
        used = await self._base.audit.grant_used([grant.id for grant in grants])
        return [
            GrantEntry(
                id=grant.id,
                action=grant.action,
                action_digest=grant.action_digest,
                credentials=grant.credentials,
                constraints=grant.constraints,
                uses=grant.uses,
                used=used.get(grant.id, 0),
                until=utc(grant.until),
                over=grant.until <= time.time() or used.get(grant.id, 0) >= grant.uses,
            )
            for grant in grants
        ]

    async def add(
        self, action_name: str, constraints: tuple[Constraint, ...], uses: int, for_s: int, binding: str | None
    ) -> ConsentAnswer:
        """Ask the approver for a standing grant of `uses` runs of the action within `for_s` seconds. Raises AileronError as
        described in approvals/grants.py, and (consent_required) if the home has no approver.
        """
        async with self._base.changing:
            action = await anyio.to_thread.run_sync(self._base.actions.load, action_name)
            check_grant(action, constraints, uses, for_s)
            await anyio.to_thread.run_sync(self._check_needs_no_look, action)
            if (missing := await anyio.to_thread.run_sync(self._consent_checks.missing, action)) is not None:
                raise AileronError(
                    FailureClass.CONSENT_REQUIRED,
                    f"the file of action {missing.name!r} is not the one you approved: run it once, and decide that "
                    "first",
                    boundary=Boundary.USER,
                )
            subject = GrantConsent(
                action=action.name,
                action_digest=action.digest,
                credentials=await anyio.to_thread.run_sync(
                    lambda: used_credentials(
                        action, connectors=self._base.connectors, bindings=self._base.vault, binding=binding
                    )
                ),
                constraints=constraints,
                uses=uses,
                until=utc(int(time.time()) + for_s),
            )
            if (answer := await self._consents.maybe_ask(lambda: subject)) is None:
                raise AileronError(
                    FailureClass.CONSENT_REQUIRED,
                    "a standing grant must be signed, and this home has no approver: aileron approver init",
                    boundary=Boundary.USER,
                )
            return answer

    def _check_needs_no_look(self, action: ActionFile) -> None:
        """Check that the action has no step that requires a person to have seen its preview. Raises AileronError
        (invalid_request) if it has such a step.
        """
        pins = {
            connector.name: ConnectorPin(str(connector.name), connector.version, connector.hash)
            for connector in action.connectors
        }
        found = seen_steps(action, {name: self._base.connectors.maybe_manifest(pin) for name, pin in pins.items()})
        if found:
            raise AileronError(
                FailureClass.INVALID_REQUEST,
                f"action {action.name!r} changes only what its preview showed ({found[0].op}), so each run is approved with its "
                "preview: a grant would let it through, and it would change nothing",
                boundary=Boundary.ACTION,
            )

    async def revoke(self, grant_id: str) -> None:
        """End a grant. Raises AileronError (not_found, vault_locked)."""
        async with self._base.changing:
            consents = self._approver.consents()
            if consents is None or all(grant.id != grant_id for grant in consents.grants):
                raise AileronError(FailureClass.NOT_FOUND, f"no grant {grant_id[:80]!r}; see `aileron grant list`")
            await anyio.to_thread.run_sync(self._base.vault.change_consents, lambda now: now.without_grant(grant_id))
            await self._base.audit.grant_revoked(grant_id)
