"""The checks of a fetched archive against the request: its publisher, its name and version, and its pin.

    unpack → signature → manifest or action file → name and version → pin

Pure. Trusts nobody: the forge can send the wrong file, the publisher's key can be stolen, the archive can be anything. Runs no
code of an archive. A person is asked about an archive that passes.

Rules
- The signature is checked first: content that its publisher did not sign is not parsed.
- An archive that was requested by name and version must state the same name and version, or it is refused.
- A fetched action has no placeholder for a hash, and its `source` is the place that it was fetched from.

Source: docs/reference/signatures.md, docs/reference/forges.md. Not here: fetching (forges/), the store (install.py), asking.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from aileron.model.canonical import sha256_digest
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.manifest import ActionFile, ConnectorManifest
from aileron.model.names import Fqn, check_semver
from aileron.model.plan import ConnectorPin
from aileron.registry.content import content_hash
from aileron.registry.keyring import Keyring, Signed, check_signature
from aileron.registry.manifest import parse_connector_manifest
from aileron.registry.program import check_program
from aileron.registry.tarball import ACTION, CONNECTOR, MANIFEST, SIGNATURE, unpack

__all__ = [
    "ActionArtifact",
    "Artifact",
    "ArtifactRequest",
    "CheckAction",
    "ParseAction",
    "Trust",
    "action_of",
    "connector_of",
]


class ArtifactRequest(msgspec.Struct, frozen=True, order=True):
    """The requested artifact: a full name, and one version."""

    name: Fqn
    version: str

    @classmethod
    def parse(cls, text: str) -> ArtifactRequest:
        """Parse `NAME@VERSION`. Raises ValueError with a description of the error."""
        name, separator, version = text.rpartition("@")
        if not separator:
            raise ValueError(f"{text!r} has no version; expected NAME@VERSION, such as github://acme/mail@1.2.0")
        return cls(Fqn.parse(name), check_semver(version))

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


class Trust(msgspec.Struct, frozen=True, kw_only=True):
    """The publishers whose signatures are trusted, and whether a signature is required."""

    keyring: Keyring = Keyring()
    require_signature: bool = False
    public_forges: frozenset[str] = frozenset()
    """Schemes (`github`, `gitlab`) whose server is the public one, as `sigstore.public_forges` returns them: only
    workflows on public servers can sign.
    """


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """A checked connector that is not installed yet; a person must approve it first."""

    connector: bytes
    manifest_bytes: bytes
    manifest: ConnectorManifest
    pin: ConnectorPin
    signed: Signed = Signed(status="unsigned")


class ActionArtifact(msgspec.Struct, frozen=True, kw_only=True):
    """A checked action file, as published; `digest` is over its bytes."""

    action: ActionFile
    digest: str
    signed: Signed


class ParseAction(Protocol):
    """The parser of action files (actions/manifest.py), passed as an argument, since the registry must not import
    aileron.actions.
    """

    def __call__(self, text: str, *, file: str, allow_placeholder: bool = False) -> ActionFile:
        """Parse an action file. Raises AileronError(invalid_request) with file and line if the text is not valid."""
        ...


class CheckAction(Protocol):
    """The check of an action against its connectors' operations (actions/fitting.py), passed as an argument for the same reason
    as `ParseAction`.
    """

    def __call__(
        self, action: ActionFile, manifest: Callable[[ConnectorPin], ConnectorManifest | None], *, file: str
    ) -> None:
        """Check an action. Raises AileronError(unknown_op), or (invalid_request) with file, if the action does not fit."""
        ...


def connector_of(archive: bytes, trust: Trust, *, wanted: ArtifactRequest | None = None, file: str = "") -> Artifact:
    """Return the connector in `archive`; without `wanted`, any name and version are accepted. `file` is for messages.

    Raises AileronError: invalid_request if the archive is no connector or not the requested one; signature_failure if the
    archive's signature is not trusted, or if a required signature is missing.
    """
    members = unpack(archive)
    connector, manifest_bytes, signature = members[CONNECTOR], members[MANIFEST], members.get(SIGNATURE)
    signed = Signed(status="unsigned")
    if wanted is not None:
        signed = _checked(wanted.name, connector + manifest_bytes, signature, trust)
    manifest = parse_connector_manifest(manifest_bytes, file=f"{file or wanted}:{MANIFEST}")
    if wanted is None:
        signed = _checked(manifest.name, connector + manifest_bytes, signature, trust)
    elif (manifest.name, manifest.version) != (wanted.name, wanted.version):
        raise _another(wanted, f"{manifest.name}@{manifest.version}", Boundary.CONNECTOR_MANIFEST)
    try:
        check_program(connector)
    except ValueError as error:
        raise _refused(f"{file or wanted}: {error}", Boundary.CONNECTOR_MANIFEST) from None
    pin = ConnectorPin(str(manifest.name), manifest.version, content_hash(connector, manifest_bytes))
    return Artifact(connector=connector, manifest_bytes=manifest_bytes, manifest=manifest, pin=pin, signed=signed)


def action_of(archive: bytes, trust: Trust, *, wanted: ArtifactRequest, parse: ParseAction) -> ActionArtifact:
    """Return the action in `archive`. Raises AileronError as `connector_of` and `parse` do, and if a placeholder is left."""
    members = unpack(archive, "action")
    signed = _checked(wanted.name, members[ACTION], members.get(SIGNATURE), trust)
    try:
        text = members[ACTION].decode()
    except UnicodeDecodeError as error:
        raise _refused(f"{wanted}: {ACTION} is not valid UTF-8 (byte {error.start})", Boundary.ACTION) from None
    action = parse(text, file=f"{wanted}:{ACTION}")
    if action.source != str(wanted):
        raise _another(wanted, action.source or "a file that does not say where it is from (source)", Boundary.ACTION)
    if action.version != wanted.version or action.name != wanted.name.path[-1]:
        raise _another(wanted, f"the action {action.name!r} in version {action.version}", Boundary.ACTION)
    return ActionArtifact(action=action, digest=sha256_digest(members[ACTION]), signed=signed)


def _checked(name: Fqn, message: bytes, signature: bytes | None, trust: Trust) -> Signed:
    signed = check_signature(name, message, signature, trust.keyring, trust.public_forges)
    if signed.status == "unsigned" and trust.require_signature:
        raise AileronError(
            FailureClass.SIGNATURE_FAILURE,
            f"{name} is not signed, but connectors.require_signature requires it: ask its publisher to sign it",
            boundary=Boundary.CONNECTOR_MANIFEST,
        )
    return signed


def _another(wanted: ArtifactRequest, found: str, boundary: Boundary) -> AileronError:
    return _refused(
        f"what was published as {wanted} describes itself as {found}, which is not what you requested", boundary
    )


def _refused(problem: str, boundary: Boundary) -> AileronError:
    return AileronError(FailureClass.INVALID_REQUEST, problem, boundary=boundary)
