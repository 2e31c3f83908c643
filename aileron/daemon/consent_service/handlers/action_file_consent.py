"""Handles consents to action files: each alone, or with the connectors that are installed together with it.

Runs in the daemon.

Rules
- A fetched file is read again from staging, which other processes can write, and its signature is checked again.
- An action and its new connectors form one group: all of them are checked and have consent before the first is installed.

Source: docs/reference/consents.md. Not here: which difference widens a consent (actions/widening.py), which questions form a
group (consents.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import anyio.to_thread
import msgspec

from aileron.actions.manifest import parse_action
from aileron.api.actions import AddedAction
from aileron.api.approvals import ApprovedFile
from aileron.api.fetches import InstalledTogether
from aileron.daemon.consent_service.consent_checks import ConsentChecks
from aileron.daemon.consent_service.consent_store import ConsentStore
from aileron.daemon.consent_service.handlers.connector_consent import ConnectorHandler
from aileron.daemon.consent_service.handlers.handler import ConsentHandler, out_of_date
from aileron.daemon.foundation import Foundation
from aileron.daemon.installed.install import ActionText, FoundConnector, Installer
from aileron.daemon.installed.verify import ArtifactVerifier
from aileron.ledger.rows import ApprovalRow
from aileron.model.canonical import sha256_digest
from aileron.model.consent import ActionFileConsent, ConnectorConsent, ConsentKind, Consents
from aileron.model.manifest import ConnectorManifest
from aileron.model.plan import ConnectorPin
from aileron.registry.artifact import ArtifactRequest
from aileron.registry.consent import text_signature_words

__all__ = ["ActionFileHandler"]

_NONE_COMING: Final[Mapping[ConnectorPin, ConnectorManifest]] = MappingProxyType({})


class ActionFileHandler(ConsentHandler[ActionFileConsent]):
    """Handler of consents to action files. `connectors` handles connectors that are installed together with an action."""

    def __init__(
        self,
        base: Foundation,
        store: ConsentStore,
        *,
        consent_checks: ConsentChecks,
        finding: ArtifactVerifier,
        installing: Installer,
        connectors: ConnectorHandler,
    ) -> None:
        self._base = base
        self._store = store
        self._consent_checks = consent_checks
        self._finding = finding
        self._installing = installing
        self._connectors = connectors

    def is_agreed(self, consents: Consents, subject: ActionFileConsent) -> bool:
        """Return whether the last consent under the file's name is to exactly the text in `subject`."""
        digest = consents.consent_digest(ConsentKind.ACTION_FILE, subject.name)
        return digest == sha256_digest(subject.text.encode())

    def fetched(self, subject: ActionFileConsent) -> str | None:
        """Return the digest of the published file; None if the file was written on this machine."""
        return subject.published

    def is_so(
        self, subject: ActionFileConsent, coming: Mapping[ConnectorPin, ConnectorManifest] = _NONE_COMING
    ) -> bool:
        """Return whether the same question would be asked now. `coming` are the connectors that are installed together with the
        file.
        """
        action = parse_action(subject.text, file=f"{subject.name}.md")
        here = None if subject.fetched is None else self._base.actions.maybe_load(subject.name)
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
                group=subject.group,
                installs=subject.installs,
            )
        return now == subject

    async def carry_out(self, subject: ActionFileConsent, row: ApprovalRow) -> ApprovedFile | AddedAction:
        """Store the consent to the file, and install the file if it is not in the actions folder yet."""
        digest = await self._record(subject, row.id)
        if not subject.install:
            return ApprovedFile(name=subject.name, digest=digest)
        action = await anyio.to_thread.run_sync(lambda: self._action_text(subject))
        return await self._installing.put_action(action)

    async def carry_out_group(
        self, head: tuple[ApprovalRow, ActionFileConsent], connectors: Sequence[tuple[ApprovalRow, ConnectorConsent]]
    ) -> InstalledTogether:
        """Install an action together with its new connectors. Each is given with its question, whose decision is marked as
        used. Raises AileronError (hash_mismatch) if a file is no longer as it was approved.
        """
        row, subject = head
        found, action = await anyio.to_thread.run_sync(
            self._as_agreed, [connector for _, connector in connectors], subject
        )
        for asked, connector in connectors:
            await self._connectors.record(connector, asked.id)
        await self._record(subject, row.id)
        return await self._installing.put_together(found, action)

    def _as_agreed(
        self, connectors: Sequence[ConnectorConsent], head: ActionFileConsent
    ) -> tuple[list[FoundConnector], ActionText]:
        """Return the group's connectors and the text of its action `head`, after reading the fetched files again and
        comparing them with the questions. Raises AileronError (hash_mismatch) if they differ.
        """
        found = [self._finding.agreed(consent) for consent in connectors]
        coming = {connector.artifact.pin: connector.artifact.manifest for connector in found}
        if not self.is_so(head, coming):
            raise out_of_date(head.name)
        return found, self._action_text(head)

    def _action_text(self, subject: ActionFileConsent) -> ActionText:
        if subject.fetched is None or subject.published is None:
            return ActionText(subject.text, subject.replace)
        fetched = self._finding.action(ArtifactRequest.parse(subject.fetched), subject.published)
        return ActionText(subject.text, subject.replace, subject.fetched, fetched.action.text)

    async def _record(self, subject: ActionFileConsent, approval_id: str) -> str:
        """Store the consent to the action file, so that it can run from now on. Return the file's digest."""
        digest = sha256_digest(subject.text.encode())
        await anyio.to_thread.run_sync(self._base.texts.put, subject.text)
        await self._store.put(ConsentKind.ACTION_FILE, subject.name, digest, approval_id)
        return digest
