"""Handles consents to connectors and actions that are installed together, and to the credentials that are bound to them.

Runs in the daemon. One question covers all of it, so a person signs once. Its parts are subjects of their own kinds: their
handlers check them, and each part becomes a consent of its own, with the same approval.

Rules
- Every part is checked against the question before the first is installed.
- The parts see each other: an action can be pinned to a connector that is installed with it, and a binding can be made for it.
- The bindings come last. If the daemon ends before them, the actions are installed and their runs say what to bind.

Source: docs/reference/consents.md. Not here: the parts (action_file_consent.py, connector_consent.py, binding_consent.py), the
journal of an installation (installed/install.py).
"""

from __future__ import annotations

import anyio.to_thread
import msgspec

from aileron.api.fetches import Installed
from aileron.daemon.consent_service.handlers.action_file_consent import ActionFileHandler
from aileron.daemon.consent_service.handlers.binding_consent import BindingHandler
from aileron.daemon.consent_service.handlers.connector_consent import ConnectorHandler
from aileron.daemon.consent_service.handlers.handler import ConsentHandler, out_of_date
from aileron.daemon.installed.install import ActionText, FoundConnector, Installer
from aileron.daemon.installed.verify import ArtifactVerifier
from aileron.ledger.rows import ApprovalRow
from aileron.model.consent import Consents, InstallationConsent, subject_digest

__all__ = ["InstallationHandler"]


class InstallationHandler(ConsentHandler[InstallationConsent]):
    """Handler of consents to installations. `action_files`, `connectors` and `bindings` handle their parts."""

    def __init__(
        self,
        *,
        action_files: ActionFileHandler,
        connectors: ConnectorHandler,
        bindings: BindingHandler,
        finding: ArtifactVerifier,
        installing: Installer,
    ) -> None:
        self._action_files = action_files
        self._connectors = connectors
        self._bindings = bindings
        self._finding = finding
        self._installing = installing

    def is_agreed(self, consents: Consents, subject: InstallationConsent) -> bool:
        """Return whether every part was approved before. A binding never was: it is made now."""
        return (
            not subject.bindings
            and all(self._connectors.is_agreed(consents, connector) for connector in subject.connectors)
            and all(self._action_files.is_agreed(consents, action) for action in subject.actions)
        )

    def asked(self, subject: InstallationConsent, digest: str) -> None:
        """Bind the tokens that sign-ins hold in memory for the bindings, if any, to the question with this digest."""
        for binding in subject.bindings:
            self._bindings.asked(binding, digest)

    def staged(self, subject: InstallationConsent) -> frozenset[str]:
        """Return the digests of the fetched connectors and action files."""
        connectors = (self._connectors.staged(connector) for connector in subject.connectors)
        return frozenset().union(*connectors, *(self._action_files.staged(action) for action in subject.actions))

    def is_so(self, _subject: InstallationConsent) -> bool:
        """Return True: the parts are compared with the question when the change is made, once the connectors have been read."""
        return True

    async def carry_out(self, subject: InstallationConsent, row: ApprovalRow) -> Installed:
        """Check every part, store the consents to them, install the connectors and actions, and then make the bindings.

        Raises AileronError (hash_mismatch) if a part is no longer as it was approved; then nothing is installed.
        """
        found, actions = await anyio.to_thread.run_sync(self._as_approved, subject)
        for connector in subject.connectors:
            await self._connectors.record(connector, row.id)
        for action in subject.actions:
            await self._action_files.record(action, row.id)
        installed = await self._installing.put_together(found, actions)
        bound = [await self._bindings.carry_out(binding, row) for binding in subject.bindings]
        return msgspec.structs.replace(installed, bindings=bound)

    async def put(self, subject: InstallationConsent) -> Installed:
        """Install everything and make the bindings, in a home whose changes need no approval. Raises AileronError as `carry_out`
        does.
        """
        found, actions = await anyio.to_thread.run_sync(self._as_approved, subject)
        digest = subject_digest(subject)
        self.asked(subject, digest)
        installed = await self._installing.put_together(found, actions)
        bound = [await self._bindings.put_new(binding, digest) for binding in subject.bindings]
        return msgspec.structs.replace(installed, bindings=bound)

    def _as_approved(self, subject: InstallationConsent) -> tuple[list[FoundConnector], list[ActionText]]:
        """Return the connectors, and the texts of the actions, after reading fetched files again and comparing every part
        with the question. Raises AileronError (hash_mismatch) for a difference.
        """
        found = [self._finding.agreed(connector) for connector in subject.connectors]
        coming = {connector.artifact.pin: connector.artifact.manifest for connector in found}
        for action in subject.actions:
            if not self._action_files.is_so(action, coming):
                raise out_of_date(action.name)
        for binding in subject.bindings:
            if not self._bindings.is_so(binding, list(coming.values())):
                raise out_of_date(binding.name)
        return found, [self._action_files.action_text(action) for action in subject.actions]
