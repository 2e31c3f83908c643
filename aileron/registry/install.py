"""From a directory or an archive on this machine into the store.

    build a directory, or unpack an archive → check manifest and program → is the version taken? → store → pin

Runs no code of the artifact. Used by the daemon, after a person agreed to what the manifest asks. Nothing
reaches the store before every check has passed.

Rules
- A version that is installed with other bytes is not replaced in silence: the caller says which is meant.

Source: docs/reference/connector-manifest.md. Not here: fetching (forges/), signatures (artifact.py), the question to the person.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

import msgspec

from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.manifest import ConnectorManifest
from aileron.model.names import HostPort, OnConflict
from aileron.model.plan import ConnectorPin
from aileron.registry.artifact import Artifact, Trust, connector_of
from aileron.registry.build import build
from aileron.registry.content import ContentStore
from aileron.registry.tarball import MAX_ARCHIVE_BYTES

__all__ = ["InstallResult", "check_installable", "install", "read_archive", "read_artifact"]


class InstallResult(msgspec.Struct, frozen=True, kw_only=True):
    """What `install` did. `new` is false when the same bytes were there; `replaced` are gone."""

    pin: ConnectorPin
    manifest: ConnectorManifest
    new: bool
    replaced: tuple[ConnectorPin, ...] = ()


def read_artifact(source: Path, hosts: Sequence[HostPort] = (), trust: Trust | None = None) -> Artifact:
    """Read the connector at `source`: a directory, which is built with `hosts` and is unsigned, or an archive.

    AileronError(not_found) when nothing is there, (invalid_request) when it is not a connector, (signature_failure) when its
    signature is of nobody in `trust`, or it has none and has to.
    """
    return connector_of(read_archive(source, hosts), Trust() if trust is None else trust, file=source.name)


def read_archive(source: Path, hosts: Sequence[HostPort] = ()) -> bytes:
    """The archive at `source`, or of the directory there, not looked at yet. AileronError as `read_artifact`."""
    if source.is_dir():
        return build(source, hosts).archive
    if hosts:
        raise _refused(f"{source} is an archive; --host works only when a directory is built")
    return _archive_bytes(source)


def install(artifact: Artifact, store: ContentStore, *, on_conflict: OnConflict = "refuse") -> InstallResult:
    """Put a checked connector into the store, durably.

    AileronError(hash_mismatch) when the version is installed with other bytes and `on_conflict` is "refuse".
    """
    pin, manifest = artifact.pin, artifact.manifest
    installed = store.find(manifest.name, manifest.version)
    others = tuple(found for found in installed if found != pin)
    check_installable(artifact, store, on_conflict=on_conflict)
    store.put(artifact.connector, artifact.manifest_bytes)
    replaced = others if on_conflict == "replace" else ()
    for other in replaced:
        store.remove(other)
    return InstallResult(pin=pin, manifest=manifest, new=pin not in installed, replaced=replaced)


def check_installable(artifact: Artifact, store: ContentStore, *, on_conflict: OnConflict = "refuse") -> None:
    """Return if `install` would take it now; nothing is written. AileronError(hash_mismatch) as it says."""
    pin = artifact.pin
    installed = store.find(artifact.manifest.name, artifact.manifest.version)
    others = tuple(found for found in installed if found != pin)
    if others and on_conflict == "refuse" and pin not in installed:
        raise _taken(pin, others)


def _archive_bytes(source: Path) -> bytes:
    """The file a person named: a link is theirs to use, but it is a regular file, and bounded."""
    try:
        descriptor = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        problem = f"{source} cannot be read: {os.strerror(error.errno or 0)}"
        kind = FailureClass.NOT_FOUND if isinstance(error, FileNotFoundError) else FailureClass.INVALID_REQUEST
        raise AileronError(kind, problem, boundary=Boundary.USER) from None
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _refused(f"{source} is neither a directory nor a regular file")
        data = file.read(MAX_ARCHIVE_BYTES + 1)
    if len(data) > MAX_ARCHIVE_BYTES:
        raise _refused(f"{source} is larger than {MAX_ARCHIVE_BYTES} bytes")
    return data


def _taken(pin: ConnectorPin, others: tuple[ConnectorPin, ...]) -> AileronError:
    stored = ", ".join(other.hash for other in others)
    return AileronError(
        FailureClass.HASH_MISMATCH,
        f"{pin} is already installed with different content: new {pin.hash}, installed {stored}; a version "
        "whose content changes is not the version you approved. To continue, repeat the command with "
        "--replace or --keep-both",
        boundary=Boundary.CONNECTOR_MANIFEST,
        details={"expected": stored, "actual": pin.hash, "installed": [other.hash for other in others]},
    )


def _refused(problem: str) -> AileronError:
    return AileronError(FailureClass.INVALID_REQUEST, problem, boundary=Boundary.USER)
