"""Handles consents to action files.

Runs in the daemon. A fetched file is read again from staging, which other processes can write, and its signature is checked
again.

Source: docs/reference/consents.md. Not here: which difference widens a consent (actions/widening.py), actions that are installed
together with their connectors (installation_consent.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import anyio.to_thread
import msgspec

from aileron.actions.manifest import parse_action
from aileron.api.actions import AddedAction
from aileron.api.approvals import ApprovedFile
from aileron.daemon.consent_service.consent_checks import ConsentChecks
from aileron.daemon.consent_service.consent_store import ConsentStore
from aileron.daemon.consent_service.handlers.handler import ConsentHandler
from aileron.daemon.foundation import Foundation
from aileron.daemon.installed.install import ActionText, Installer
from aileron.daemon.installed.verify import ArtifactVerifier
from aileron.ledger.rows import ApprovalRow
from aileron.model.canonical import sha256_digest
from aileron.model.consent import ActionFileConsent, ConsentKind, Consents
from aileron.model.manifest import ConnectorManifest
from aileron.model.plan import ConnectorPin
from aileron.registry.artifact import ArtifactRequest
from aileron.registry.consent import text_signature_words

__all__ = ["ActionFileHandler"]

_NONE_COMING: Final[Mapping[ConnectorPin, ConnectorManifest]] = MappingProxyType({})


class ActionFileHandler(ConsentHandler[ActionFileConsent]):
    """Handler of consents to action files."""

    def __init__(
        self,
        base: Foundation,
        store: ConsentStore,
        *,
        consent_checks: ConsentChecks,
        finding: ArtifactVerifier,
        installing: Installer,
    ) -> None:
        self._base = base
        self._store = store
        self._consent_checks = consent_checks
        self._finding = finding
        self._installing = installing

    def is_agreed(self, consents: Consents, subject: ActionFileConsent) -> bool:
        """Return whether the last consent under the file's name is to exactly the text in `subject`."""
        digest = consents.consent_digest(ConsentKind.ACTION_FILE, subject.name)
        return digest == sha256_digest(subject.text.encode())

    def staged(self, subject: ActionFileConsent) -> frozenset[str]:
        """Return the digest of the published file; nothing if the file was written on this machine."""
        return frozenset() if subject.published is None else frozenset({subject.published})

    def is_so(
        self, subject: ActionFileConsent, coming: Mapping[ConnectorPin, ConnectorManifest] = _NONE_COMING
    ) -> bool:
        """Return whether the same question would be asked now. `coming` are the connectors that are installed together with the
        file.
        """
        action = parse_action(subject.text, file=f"{subject.name}.md")
        is_compared = subject.fetched is not None or bool(coming)  # with the installed file, as the question was
        here = self._base.actions.maybe_load(subject.name) if is_compared else None
        now = self._consent_checks.consent_to(
            action, install=subject.install, replace=subject.replace, before=here, coming=coming
        )
        if subject.fetched is not None and subject.published is not None:
            fetched = self._finding.action(ArtifactRequest.parse(subject.fetched), subject.published)
            now = msgspec.structs.replace(
                now,
                fetched=subject.fetched,
                published=subject.published,
                signature=text_signature_words(fetched.signed, subject.text, subject.published),
            )
        return now == subject

    async def carry_out(self, subject: ActionFileConsent, row: ApprovalRow) -> ApprovedFile | AddedAction:
        """Store the consent to the file, and install the file if it is not in the actions folder yet."""
        digest = await self.record(subject, row.id)
        if not subject.install:
            return ApprovedFile(name=subject.name, digest=digest)
        action = await anyio.to_thread.run_sync(self.action_text, subject)
        return await self._installing.put_action(action)

    def action_text(self, subject: ActionFileConsent) -> ActionText:
        """Return the file's text to install, with the published text if it was fetched. Reads files. Raises AileronError as
        ArtifactVerifier.action does.
        """
        if subject.fetched is None or subject.published is None:
            return ActionText(subject.text, subject.replace)
        fetched = self._finding.action(ArtifactRequest.parse(subject.fetched), subject.published)
        return ActionText(subject.text, subject.replace, subject.fetched, fetched.action.text)

    async def record(self, subject: ActionFileConsent, approval_id: str) -> str:
        """Store the consent to the action file, so that it can run from now on. Return the file's digest."""
        digest = sha256_digest(subject.text.encode())
        await anyio.to_thread.run_sync(self._base.texts.put, subject.text)
        await self._store.put(ConsentKind.ACTION_FILE, subject.name, digest, approval_id)
        return digest
