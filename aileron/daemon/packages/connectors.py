"""The connectors in the store: listed, installed from this machine, removed. Each change is made and recorded, or a person is
asked first.

Runs in the daemon, behind the operator's socket. Not here: fetching published ones (fetch.py), finding newer, unused or damaged
versions (updates.py).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from aileron.api.approvals import ConsentAnswer
from aileron.api.connectors import ConnectorEntry, InstalledConnector
from aileron.audit import events
from aileron.audit.log import Audit
from aileron.daemon.consent_service.consents import ConsentService
from aileron.daemon.consent_service.handlers.connector_consent import ConnectorHandler
from aileron.daemon.installed.install import FoundConnector, Installer
from aileron.daemon.installed.verify import ArtifactVerifier
from aileron.daemon.views import connector_facts
from aileron.model.failure import AileronError, FailureClass
from aileron.model.names import OnConflict
from aileron.model.plan import ConnectorPin
from aileron.registry.artifact import Artifact, connector_of
from aileron.registry.consent import connector_consent
from aileron.registry.content import ContentStore
from aileron.registry.install import check_installable, read_archive

__all__ = ["ConnectorService"]

_MAX_PATH: Final = 4096  # PATH_MAX, limits.h


class ConnectorService:
    """Service that lists, installs and removes connectors. One instance per daemon. `changing` is the lock held during every
    change to this home.
    """

    def __init__(
        self,
        *,
        connectors: ContentStore,
        consents: ConsentService,
        approved: ConnectorHandler,
        finding: ArtifactVerifier,
        installing: Installer,
        audit: Audit,
        changing: anyio.Lock,
    ) -> None:
        self._connectors = connectors
        self._consents = consents
        self._approved = approved
        self._finding = finding
        self._installing = installing
        self._audit = audit
        self._changing = changing

    async def listed(self) -> list[ConnectorEntry]:
        """Return the installed connectors; damaged connectors have the field `problem`."""
        return [
            connector_facts(entry.pin, entry.manifest)
            if entry.pin is not None and entry.manifest is not None
            else ConnectorEntry(hash=entry.hash, problem=entry.problem)
            for entry in await anyio.to_thread.run_sync(self._connectors.list_connectors)
        ]

    async def install(self, path: str, on_conflict: OnConflict) -> InstalledConnector | ConsentAnswer:
        """Install a connector from a directory, which is built first, or from an archive; or ask a person to approve that
        first.
        """
        source = Path(path)
        if not source.is_absolute() or len(os.fsencode(path)) > _MAX_PATH:
            raise AileronError(FailureClass.INVALID_REQUEST, "path is not an absolute path on this machine")
        archive = await anyio.to_thread.run_sync(read_archive, source)  # as slow as the disk that a person named
        async with self._changing:
            artifact = await anyio.to_thread.run_sync(self._installable, archive, source.name, on_conflict)
            installed = await anyio.to_thread.run_sync(self._finding.installed, artifact.manifest.name)
            answer = await self._consents.maybe_ask(
                lambda: connector_consent(artifact, str(source), on_conflict, installed=installed)
            )
            if answer is not None:
                return answer
            return await self._installing.put_connector(FoundConnector(artifact, str(source), on_conflict))

    def _installable(self, archive: bytes, file: str, on_conflict: OnConflict) -> Artifact:
        artifact = connector_of(archive, self._finding.trust(), file=file)
        self._installing.check_runs_here(artifact)
        check_installable(artifact, self._connectors, on_conflict=on_conflict)
        return artifact

    async def remove(self, pin_hash: str) -> None:
        """Remove a connector by its hash."""
        async with self._changing:
            found = [
                entry.pin or ConnectorPin("", "", entry.hash)  # a damaged one has lost its name
                for entry in await anyio.to_thread.run_sync(self._connectors.list_connectors)
                if entry.hash == pin_hash
            ]
            if not found:
                raise AileronError(
                    FailureClass.NOT_FOUND, f"no connector {pin_hash[:80]!r} is installed; see `aileron connector list`"
                )
            pin = found[0]
            await anyio.to_thread.run_sync(self._connectors.remove, pin)
            await self._audit.note(events.ConnectorRemoved(connector=pin.name, version=pin.version, hash=pin.hash))
            await self._approved.end(pin)
