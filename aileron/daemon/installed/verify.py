"""Checks an archive once more before installation: reads the archive that a question is about, and compares it with the
question's description.

Runs in the daemon. A question names a connector by its pin and where it was found: a path on this machine, or NAME@VERSION,
whose fetched archive is in staging. Neither place is trusted: signature, name, version and pin are checked again, and
the question's description is derived again.

Source: docs/reference/consents.md. Not here: asking (consent_service/consents.py), fetching (packages/fetch.py).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from aileron.actions.manifest import parse_action
from aileron.catalogue.service import service_named
from aileron.daemon.installed.install import FoundConnector
from aileron.model.canonical import sha256_digest
from aileron.model.consent import ConnectorConsent, ConnectorUpdateConsent
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.manifest import ConnectorManifest
from aileron.model.names import Fqn, OnConflict
from aileron.model.plan import ConnectorPin
from aileron.registry.artifact import ActionArtifact, Artifact, ArtifactRequest, Trust, action_of, connector_of
from aileron.registry.consent import connector_consent
from aileron.registry.content import ContentStore
from aileron.registry.install import read_artifact
from aileron.registry.keyring import Signed
from aileron.registry.staging import Staging

__all__ = ["ArtifactVerifier", "bundled_service", "bundled_source", "is_path"]

_CATALOGUE: Final = "catalogue:"


class ArtifactVerifier:
    """Service that checks that artifacts are as the questions about them describe. One instance per daemon. `trust` returns
    the publishers' keys that are trusted now, `is_installed` whether a person approved an installed connector.
    """

    def __init__(
        self,
        connectors: ContentStore,
        staging: Staging,
        trust: Callable[[], Trust],
        is_installed: Callable[[ConnectorPin], bool],
    ) -> None:
        self._connectors = connectors
        self._staging = staging
        self.trust: Final = trust
        self.is_installed: Final = is_installed

    def action(self, wanted: ArtifactRequest, digest: str) -> ActionArtifact:
        """Return the fetched action with this digest, after checking it again. Raises AileronError as registry.artifact does,
        (hash_mismatch) for another digest, or (not_found) if the action is no longer in staging.
        """
        archive = self._staging.take(digest, str(wanted))
        artifact = action_of(archive, self.trust(), wanted=wanted, parse=parse_action)
        if artifact.digest != digest:
            raise _other_bytes(str(wanted), artifact.digest, digest)
        return artifact

    def connector(self, wanted: ArtifactRequest, pin_hash: str, on_conflict: OnConflict = "refuse") -> FoundConnector:
        """Return the fetched connector with this hash, after checking it again. Raises AileronError as `action` does."""
        artifact = connector_of(self._staging.take(pin_hash, str(wanted)), self.trust(), wanted=wanted)
        if artifact.pin.hash != pin_hash:
            raise _other_bytes(str(wanted), artifact.pin.hash, pin_hash)
        return FoundConnector(artifact, str(wanted), on_conflict)

    def bundled(self, service: str, archive: bytes) -> Artifact:
        """Return the connector of a service that came with Aileron, built for the person's hosts. Its program must be the one
        that the catalogue pins, so it needs no signature. Raises AileronError (not_found, hash_mismatch, invalid_request).
        """
        artifact, program = connector_of(archive, Trust(), file=service), service_named(service).program
        if (found := sha256_digest(artifact.connector)) != program:
            raise _other_bytes(bundled_source(service), found, program)
        return msgspec.structs.replace(artifact, signed=Signed(status="bundled"))

    def agreed(self, subject: ConnectorConsent) -> FoundConnector:
        """Return the connector that the question `subject` is about, after reading and checking its archive again. Raises
        AileronError (hash_mismatch) if the connector differs from the question's description.
        """
        on_conflict = msgspec.convert(subject.on_conflict, OnConflict)
        if is_path(subject.source):
            found = FoundConnector(read_artifact(Path(subject.source), trust=self.trust()), subject.source, on_conflict)
            if found.artifact.pin.hash != subject.hash:
                raise _other_bytes(subject.source, found.artifact.pin.hash, subject.hash)
        elif (service := bundled_service(subject.source)) is not None:
            artifact = self.bundled(service, self._staging.take(subject.hash, subject.source))
            if artifact.pin.hash != subject.hash:
                raise _other_bytes(subject.source, artifact.pin.hash, subject.hash)
            found = FoundConnector(artifact, subject.source, on_conflict)
        else:
            found = self.connector(ArtifactRequest.parse(subject.source), subject.hash, on_conflict)
        if not self._is_described(subject, found):
            raise AileronError(
                FailureClass.HASH_MISMATCH,
                f"{found.artifact.pin} is not as described; nothing was installed, request it again",
                boundary=Boundary.USER,
            )
        return found

    def installed(self, name: Fqn) -> list[ConnectorManifest]:
        """Return the manifests of a connector's installed and approved versions, with which a question compares a new version."""
        return [
            entry.manifest
            for entry in self._connectors.list_connectors()
            if entry.manifest is not None and entry.manifest.name == name and entry.pin and self.is_installed(entry.pin)
        ]

    def _is_described(self, subject: ConnectorConsent, found: FoundConnector) -> bool:
        """Return whether a new question about the artifact would equal `subject`, the question that was asked."""
        before: list[ConnectorManifest | None] = [None]
        if isinstance(subject, ConnectorUpdateConsent):
            before = [
                manifest for manifest in self.installed(Fqn.parse(subject.name)) if manifest.version == subject.before
            ]
        return any(
            connector_consent(
                found.artifact,
                found.source,
                found.on_conflict,
                installed=[] if manifest is None else [manifest],
            )
            == subject
            for manifest in before
        )


def is_path(source: str) -> bool:
    """Return whether a connector's source is a path on this machine, and not NAME@VERSION or a service of the catalogue."""
    return source.startswith("/")


def bundled_source(service: str) -> str:
    """Return the source of a connector that came with Aileron as part of this service.

    >>> bundled_source("mail"), bundled_service("catalogue:mail"), bundled_service("github://acme/mail@1.0.0")
    ('catalogue:mail', 'mail', None)
    """
    return f"{_CATALOGUE}{service}"


def bundled_service(source: str) -> str | None:
    """Return the service of the catalogue that a source names; None for any other source."""
    return source.removeprefix(_CATALOGUE) if source.startswith(_CATALOGUE) else None


def _other_bytes(source: str, found: str, agreed: str) -> AileronError:
    return AileronError(
        FailureClass.HASH_MISMATCH,
        f"{source} now contains {found}, but {agreed} was approved: install it again",
        boundary=Boundary.USER,
    )
