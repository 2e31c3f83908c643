"""Installation into the store, from a directory or an archive on this machine.

    build a directory, or unpack an archive → check manifest and program → is the version taken? → store → pin

Runs no code of the artifact. Used by the daemon, after a person consented to the manifest. Nothing is stored before every check
has passed.

Rules
- If the version is installed with other bytes, the caller must choose what to do (`on_conflict`).

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
from aileron.registry.connector_build import build
from aileron.registry.content import ContentStore
from aileron.registry.tarball import MAX_ARCHIVE_BYTES

__all__ = ["InstallResult", "check_installable", "install", "read_archive", "read_artifact"]


class InstallResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `install`. `new` is false if the same bytes were already installed; `replaced`: the pins of removed entries."""

    pin: ConnectorPin
    manifest: ConnectorManifest
    new: bool
    replaced: tuple[ConnectorPin, ...] = ()


def read_artifact(source: Path, hosts: Sequence[HostPort] = (), trust: Trust | None = None) -> Artifact:
    """Read the connector at `source`: an archive, or a directory, which is built with `hosts` and is unsigned.

    Raises AileronError(not_found) if nothing is there, (invalid_request) if it is not a connector, (signature_failure) if its
    signature was not made by a signer that `trust` allows, or if a required signature is missing.
    """
    return connector_of(read_archive(source, hosts), Trust() if trust is None else trust, file=source.name)


def read_archive(source: Path, hosts: Sequence[HostPort] = ()) -> bytes:
    """Return the bytes of the archive at `source`, unparsed. If `source` is a directory, return an archive built from
    it.

    Raises AileronError as `read_artifact` does.
    """
    if source.is_dir():
        return build(source, hosts).archive
    if hosts:
        raise _refused(f"{source} is an archive; --host works only when a directory is built")
    return _archive_bytes(source)


def install(artifact: Artifact, store: ContentStore, *, on_conflict: OnConflict = "refuse") -> InstallResult:
    """Write a checked connector to the store, durably.

    Raises AileronError(hash_mismatch) if the version is installed with other bytes and `on_conflict` is "refuse".
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
    """Check that `install` would accept the artifact now.

    Writes nothing. Raises AileronError(hash_mismatch) as `install` does.
    """
    pin = artifact.pin
    installed = store.find(artifact.manifest.name, artifact.manifest.version)
    others = tuple(found for found in installed if found != pin)
    if others and on_conflict == "refuse" and pin not in installed:
        raise _taken(pin, others)


def _archive_bytes(source: Path) -> bytes:
    """Read the archive at the path that a person gave: a regular file within the size limit, or a link to one."""
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
