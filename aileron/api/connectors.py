"""Connectors in the store: list, install, verify and remove them, and find newer versions.

Source: docs/reference/http-api.md.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from aileron.api.body import Body
from aileron.model.manifest import LimitsSpec, Operation
from aileron.model.names import OnConflict
from aileron.model.request_signing import StoredAs

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
"""The kinds of artifacts that can be published."""


class InstallConnector(Body, frozen=True, kw_only=True):
    """Request body of `POST /v1/connectors`. `path` is the absolute path of a directory or an archive on this machine.
    `on_conflict` says what to do if this version is already installed with other bytes.
    """

    path: str
    on_conflict: OnConflict = "refuse"


class RemoveUnused(Body, frozen=True, kw_only=True):
    """Request body of `POST /v1/connectors/remove-unused`. With `dry_run`, no connector is removed; the response lists the
    connectors that would be removed.
    """

    dry_run: bool = False


class CredentialWanted(msgspec.Struct, frozen=True, kw_only=True):
    """The credential that a connector needs. A sign-in, or a client that gets tokens, has `scopes` and `provider` (the host that
    issues the tokens). A sign-in also has `device` (whether the provider supports device codes); a client that gets tokens has
    `stores` (what its secret is). A credential that logs in has `logins` (`PROTOCOL+ENCRYPTION://HOST:PORT`), `commands` (which
    `ssh` may execute) and `read_only` (whether an operation needs a role that cannot write). Any other credential has `sent_as`:
    how it is sent in requests, in words.
    """

    kind: str
    scope: str | None
    scopes: list[str] | UnsetType = UNSET
    provider: str | UnsetType | None = UNSET
    device: bool | UnsetType = UNSET
    logins: list[str] | UnsetType = UNSET
    commands: list[str] | UnsetType = UNSET
    read_only: bool | UnsetType = UNSET
    sent_as: str | UnsetType = UNSET
    stores: StoredAs | UnsetType = UNSET


class ConnectorEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An installed connector. `hash` is its pin, and `hosts` are `host:port`. A damaged connector has only `hash` and
    `problem`. `credential` is null if the connector needs none. `operations` is null if they are not recorded.
    `problem` is absent or null if no problem was found.
    """

    name: str | UnsetType = UNSET
    version: str | UnsetType = UNSET
    hash: str
    hosts: list[str] | UnsetType = UNSET
    credential: CredentialWanted | UnsetType | None = UNSET
    imports: list[str] | UnsetType = UNSET
    limits: LimitsSpec | UnsetType = UNSET
    operations: tuple[Operation, ...] | UnsetType | None = UNSET
    problem: str | UnsetType | None = UNSET


class ConnectorList(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): connectors, sorted by name and version."""

    connectors: list[ConnectorEntry]


class InstalledConnector(ConnectorEntry, frozen=True, kw_only=True):
    """Response body (200): the installed connector. `new` is false if the same bytes were already installed. `replaced`
    lists the pins of the connectors that it replaced. `signature` says in words who signed it, or that it is unsigned.
    """

    new: bool
    replaced: list[str]
    signature: str


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """A published connector or action that is in use here, in the installed `version`. `newest` is the newest published
    version, or null if none is newer. `prerelease` is a still newer pre-release, or null. `problem` says why the check
    failed, or is null.
    """

    kind: ArtifactKind
    name: str
    version: str
    newest: str | None
    prerelease: str | None
    problem: str | None


class UpdateList(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): one entry for each connector that an action is pinned to, and for each action that names its
    source.
    """

    updates: list[Update]
