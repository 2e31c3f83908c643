"""The response of `GET /v1/status`: version, process, start time, and the settings in force.

Runs in the daemon. Source: docs/reference/http-api.md.
"""

from __future__ import annotations

import os

import anyio.to_thread

from aileron import __version__
from aileron.api.daemon import Jail, Status
from aileron.api.secrets import VaultState
from aileron.audit import query
from aileron.daemon.consent_service.approver import ApproverState
from aileron.daemon.consent_service.consent_checks import ConsentChecks
from aileron.daemon.consent_service.settings import SettingsInForce
from aileron.daemon.foundation import Foundation
from aileron.daemon.secrets.vault import VaultService
from aileron.daemon.views import gateway_facts, launch_facts
from aileron.model.failure import AileronError
from aileron.model.timestamp import utc

__all__ = ["DaemonStatus"]


class DaemonStatus:
    """State of the daemon for `GET /v1/status`. One instance per daemon."""

    def __init__(
        self,
        base: Foundation,
        *,
        vaults: VaultService,
        approver: ApproverState,
        consent_checks: ConsentChecks,
        in_force: SettingsInForce,
    ) -> None:
        self._base = base
        self._vaults = vaults
        self._approver = approver
        self._consent_checks = consent_checks
        self._in_force = in_force

    async def facts(self) -> Status:
        """Return the complete current status."""
        await self._in_force.look()
        now = self._base.settings.now
        return Status(
            version=__version__,
            pid=os.getpid(),
            home=str(self._base.home.path),
            started_at=utc(self._base.started_at),
            vault=self._vault_facts(),
            web=self._base.review,
            listen=None if now.daemon_listen is None else f"https://{now.daemon_listen}",
            gateway=gateway_facts(now.gateway),
            jail=Jail(layers=list(self._base.layers)),
            actions=len(await anyio.to_thread.run_sync(self._base.actions.list_actions)),
            connectors=len(await anyio.to_thread.run_sync(self._base.connectors.list_connectors)),
            pending=len(await query.open_approvals(self._base.ledger)),
            approver=self._approver.facts(),
            settings_waiting=self._consent_checks.settings_waiting,
            settings_at_start=self._in_force.at_start,
            settings_problem=self._in_force.problem,
            launch=launch_facts(*self._in_force.launch()),
        )

    def _vault_facts(self) -> VaultState:
        """Return the vault's state. If the vault cannot be read, the state contains the problem, and the rest of the status is
        still returned.
        """
        try:
            return self._vaults.status()
        except AileronError as error:
            return VaultState(exists=True, locked=True, problem=error.failure.message)
