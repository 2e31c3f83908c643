"""Updates of services: their connectors become those that came with this version of Aileron.

Runs in the daemon, behind the operator's socket. The connector is built for the hosts that the installed one has.

Rules
- One question covers the connector and all actions of the account, as when the service was added.
- The person's action files stay as they are, apart from the pin: what they wrote, such as an approval, is never lost.
- Bindings stay. A binding is suspended if the new connector asks for more than the binding was approved for.

Source: docs/reference/http-api.md#services. Not here: updates of what publishers release (updates.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio.to_thread

from aileron.actions.fitting import check_action
from aileron.actions.manifest import parse_action
from aileron.api.approvals import ConsentAnswer
from aileron.api.fetches import Installed
from aileron.catalogue.preparing import built, hosts_of, repinned
from aileron.daemon.consent_service.consent_checks import ConsentChecks
from aileron.daemon.consent_service.consents import ConsentService
from aileron.daemon.consent_service.handlers.installation_consent import InstallationHandler
from aileron.daemon.foundation import Foundation
from aileron.daemon.installed.install import Installer
from aileron.daemon.installed.verify import ArtifactVerifier, bundled_source
from aileron.daemon.packages.account import ConnectedAccount
from aileron.daemon.packages.connected import ConnectedServices
from aileron.model.consent import ActionFileConsent, InstallationConsent
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.manifest import ActionFile
from aileron.model.plan import ConnectorPin
from aileron.registry.artifact import Artifact
from aileron.registry.consent import connector_consent

__all__ = ["ServiceUpdates"]

_NOTHING = Installed(connectors=[], actions=[], bindings=[])


class ServiceUpdates:
    """Service that updates accounts of services that came with Aileron. One instance per daemon."""

    def __init__(
        self,
        base: Foundation,
        *,
        connected: ConnectedServices,
        consent_checks: ConsentChecks,
        consents: ConsentService,
        approved: InstallationHandler,
        finding: ArtifactVerifier,
        installing: Installer,
    ) -> None:
        self._base = base
        self._connected = connected
        self._consent_checks = consent_checks
        self._consents = consents
        self._approved = approved
        self._finding = finding
        self._installing = installing

    async def update(self, name: str) -> Installed | ConsentAnswer:
        """Update an account, or ask a person to approve that first. The response is empty if it is up to date.

        Raises AileronError (not_found) for an unknown account, and (invalid_request) for one whose connector did not come with
        Aileron, is not installed, or no longer has what an action uses.
        """
        account = await self._connected.account(name)
        archive = await anyio.to_thread.run_sync(self._archive, account)
        assert account.service is not None
        async with self._base.changing:
            artifact = await anyio.to_thread.run_sync(self._finding.bundled, account.service.name, archive)
            if all(needed.hash == artifact.pin.hash for needed in _needed(account)) and _is_there(
                account, artifact.pin
            ):
                return _NOTHING
            subject = await anyio.to_thread.run_sync(self._described, account, artifact)
            await anyio.to_thread.run_sync(self._base.staging.put, artifact.pin.hash, archive)
            if (answer := await self._consents.maybe_ask_about(subject)) is not None:
                return answer
            try:
                return await self._approved.put(subject)
            finally:
                await anyio.to_thread.run_sync(self._base.staging.drop, artifact.pin.hash)

    def _archive(self, account: ConnectedAccount) -> bytes:
        if account.service is None or not account.pins:
            why = "its connector did not come with Aileron" if account.pins else "its connector is not installed"
            message = f"{account.name} cannot be updated: {why}"
            raise AileronError(FailureClass.INVALID_REQUEST, message, boundary=Boundary.USER)
        manifest = self._base.connectors.manifest(account.pins[-1])
        return built(account.service, account.identity, hosts_of(account.service, manifest)).archive

    def _described(self, account: ConnectedAccount, artifact: Artifact) -> InstallationConsent:
        """Return the question about an update. Reads files. Raises AileronError as `update` does."""
        assert account.service is not None
        self._installing.check_runs_here(artifact)
        installed = self._finding.installed(artifact.manifest.name)
        is_same_version = any(pin.version == artifact.pin.version for pin in account.pins)
        on_conflict = "keep_both" if is_same_version else "refuse"  # other accounts may be pinned to it
        source = bundled_source(account.service.name)
        connector = connector_consent(artifact, source, on_conflict, installed=installed)
        return InstallationConsent(
            name=account.name,
            connectors=(connector,),
            actions=tuple(self._action(action, account, artifact) for action in account.actions),
            bindings=(),
        )

    def _action(self, action: ActionFile, account: ConnectedAccount, artifact: Artifact) -> ActionFileConsent:
        coming = {artifact.pin: artifact.manifest}
        now = parse_action(repinned(action.text, account.pins, artifact.pin), file=action.name)
        check_action(now, coming.get, file=action.name)
        return self._consent_checks.consent_to(now, install=True, replace=True, before=action, coming=coming)


def _needed(account: ConnectedAccount) -> Sequence[ConnectorPin]:
    return [
        ConnectorPin(account.connector, needed.version, needed.hash)
        for action in account.actions
        for needed in action.connectors
        if str(needed.name) == account.connector
    ]


def _is_there(account: ConnectedAccount, pin: ConnectorPin) -> bool:
    return pin in account.pins
