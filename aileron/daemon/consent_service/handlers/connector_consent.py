"""Handles consents to connectors, new ones and other versions of installed ones.

Runs in the daemon. Source: docs/reference/consents.md. Not here: what a question about a connector says
(registry/consent.py), reading its archive again (installed/verify.py).
"""

from __future__ import annotations

import anyio.to_thread

from aileron.api.connectors import InstalledConnector
from aileron.daemon.consent_service.consent_store import ConsentStore
from aileron.daemon.consent_service.handlers.handler import ConsentHandler
from aileron.daemon.consent_service.handlers.tool_change_consent import ToolChangeHandler
from aileron.daemon.installed.install import Installer
from aileron.daemon.installed.verify import ArtifactVerifier, is_path
from aileron.ledger.rows import ApprovalRow
from aileron.model.consent import ConnectorConsent, ConsentKind, Consents, subject_name
from aileron.model.plan import ConnectorPin

__all__ = ["ConnectorHandler"]


class ConnectorHandler(ConsentHandler[ConnectorConsent]):
    """Handler of consents to connectors, including their updates. `tools` handles the changed tools of connectors."""

    def __init__(
        self, store: ConsentStore, finding: ArtifactVerifier, installing: Installer, tools: ToolChangeHandler
    ) -> None:
        self._store = store
        self._finding = finding
        self._installing = installing
        self._tools = tools

    def is_agreed(self, consents: Consents, subject: ConnectorConsent) -> bool:
        """Return whether the approver consented to exactly the connector's bytes, under any name."""
        return consents.has_connector_consent(subject.hash)

    def staged(self, subject: ConnectorConsent) -> frozenset[str]:
        """Return the digest of the fetched archive; nothing if the connector is installed from a path on this machine."""
        return frozenset() if is_path(subject.source) else frozenset({subject.hash})

    def is_so(self, _subject: ConnectorConsent) -> bool:
        """Return True, because a connector's artifact is checked only during installation, when it is read again."""
        return True

    async def carry_out(self, subject: ConnectorConsent, row: ApprovalRow) -> InstalledConnector:
        """Check the artifact again, store the consent, and install the connector."""
        found = await anyio.to_thread.run_sync(self._finding.agreed, subject)
        await self.record(subject, row.id)
        return await self._installing.put_connector(found)

    async def record(self, subject: ConnectorConsent, approval_id: str) -> None:
        """Store the consent to install the connector. It replaces the consent to other bytes of the same version, or
        is added to it if both are kept.
        """
        kind, name = ConsentKind.CONNECTOR, subject_name(subject)
        before = self._store.latest(kind, name)
        if before is not None and before.digest != subject.hash and subject.on_conflict == "keep_both":
            await self._store.put(kind, f"{name} {before.digest}", before.digest, before.approval)
        await self._store.put(kind, name, subject.hash, approval_id)

    async def end(self, pin: ConnectorPin) -> None:
        """End the consents to the removed connector with exactly these bytes, and to its changed tools."""
        await self._tools.end(pin)
        await self._store.end_bytes(ConsentKind.CONNECTOR, pin.hash)
