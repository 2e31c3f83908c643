"""Connectors in the store: listed, installed, verified; which newer ones there are.

Source: docs/reference/http-api.md.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from aileron.api.body import Body
from aileron.model.manifest import LimitsSpec, Operation
from aileron.model.names import OnConflict

__all__ = [
    "ArtifactKind",
    "ConnectorEntry",
    "ConnectorList",
    "CredentialWanted",
    "InstallConnector",
    "InstalledConnector",
    "RemoveUnused",
    "Update",
    "UpdateList",
]

ArtifactKind = Literal["connector", "action"]
"""What is published."""


class InstallConnector(Body, frozen=True, kw_only=True):
    """Body of `POST /v1/connectors`: a directory or an archive on this machine, by its absolute path."""

    path: str
    on_conflict: OnConflict = "refuse"


class RemoveUnused(Body, frozen=True, kw_only=True):
    """Body of `POST /v1/connectors/remove-unused`."""

    dry_run: bool = False


class CredentialWanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a connector wants a credential for. The last three are of a sign-in."""

    kind: str
    scope: str | None
    scopes: list[str] | UnsetType = UNSET
    provider: str | UnsetType | None = UNSET
    """Its host."""
    device: bool | UnsetType = UNSET
    """Whether it has codes for other devices."""


class ConnectorEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One in the store. A damaged one has `hash` and `problem`."""

    name: str | UnsetType = UNSET
    version: str | UnsetType = UNSET
    hash: str
    hosts: list[str] | UnsetType = UNSET
    credential: CredentialWanted | UnsetType | None = UNSET
    imports: list[str] | UnsetType = UNSET
    limits: LimitsSpec | UnsetType = UNSET
    operations: tuple[Operation, ...] | UnsetType | None = UNSET
    """None: they are not recorded."""
    problem: str | UnsetType | None = UNSET


class ConnectorList(msgspec.Struct, frozen=True, kw_only=True):
    """Sorted by name and version."""

    connectors: list[ConnectorEntry]


class InstalledConnector(ConnectorEntry, frozen=True, kw_only=True):
    """200: it is in the store."""

    new: bool
    replaced: list[str]
    """The pins that it took the place of."""
    signature: str
    """Who signed it, in words."""


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """One published thing that is used here, and the newest there is of it."""

    kind: ArtifactKind
    name: str
    version: str
    newest: str | None
    prerelease: str | None
    """A newer one that is none yet."""
    problem: str | None
    """It could not be asked."""


class UpdateList(msgspec.Struct, frozen=True, kw_only=True):
    """One for each connector that an action is pinned to, and each action that says where it is from."""

    updates: list[Update]
