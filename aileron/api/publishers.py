"""Publishers: whose signatures count, and what a Hub says it has.

Source: docs/reference/http-api.md, docs/reference/hub.md.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from aileron.api.body import Body
from aileron.api.connectors import ArtifactKind

__all__ = [
    "HubCredential",
    "HubDetail",
    "HubEntry",
    "HubFound",
    "HubSignature",
    "HubVersion",
    "KeyList",
    "LookForKey",
    "PublishedKey",
    "PublisherEntry",
    "RevokeKey",
    "RevokedKeys",
    "TrustKey",
    "TrustedKeys",
]


class LookForKey(Body, frozen=True, kw_only=True):
    """Body of `POST /v1/keyring/look`: a repository."""

    authority: str


class TrustKey(Body, frozen=True, kw_only=True):
    """Body of `POST /v1/keyring`. `key` in PEM or base64; `source` is where it is from, for people."""

    authority: str
    key: str
    source: str


class RevokeKey(Body, frozen=True, kw_only=True):
    """Body of `POST /v1/keyring/revoke`: a fingerprint, or all keys of the authority."""

    authority: str
    key: str | None = None


class PublisherEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The fingerprints that count for one authority."""

    authority: str
    keys: list[str]


class KeyList(msgspec.Struct, frozen=True, kw_only=True):
    """All that count."""

    keyring: list[PublisherEntry]


class TrustedKeys(msgspec.Struct, frozen=True, kw_only=True):
    """200: the key counts, with all the others of its authority."""

    authority: str
    key: str
    keys: list[str]
    new: bool | UnsetType = UNSET


class PublishedKey(msgspec.Struct, frozen=True, kw_only=True):
    """What a repository publishes: a claim."""

    authority: str
    key: str
    public_key: str
    """In base64."""
    trusted: bool
    others: list[str]
    """Keys that count for it and are not this one."""
    source: str


class RevokedKeys(msgspec.Struct, frozen=True, kw_only=True):
    """200: these count no more."""

    authority: str
    revoked: list[str]


class HubSignature(msgspec.Struct, frozen=True, kw_only=True):
    """By the Hub's word; `trusted`, of one artifact, by ours: `unknown` while the vault is locked, null where it is unsigned."""

    status: Literal["signed", "unsigned"]
    key: str | None
    trusted: Literal["yes", "no", "unknown"] | UnsetType | None = UNSET


class HubCredential(msgspec.Struct, frozen=True, kw_only=True):
    """What it would want a credential for."""

    kind: str
    scope: str | None


class _About(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: ArtifactKind
    version: str
    signature: HubSignature
    publisher: str | None
    description: str | None
    intents: list[str]
    hosts: list[str]
    credential: HubCredential | None
    requires: list[str]


class HubEntry(_About, frozen=True, kw_only=True):
    """One of those found. `match` is why."""

    match: str


class HubFound(msgspec.Struct, frozen=True, kw_only=True):
    """The first 50, the best first, of `total`."""

    hub: str
    as_of: str | None
    total: int
    entries: list[HubEntry]


class HubVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One that is published."""

    version: str
    hash: str
    signed_by: str | None


class HubDetail(_About, frozen=True, kw_only=True):
    """One artifact in one version."""

    newest: str
    versions: list[HubVersion]
    hash: str
    publisher_key: str | None
    """The fingerprint of the key that is published there now."""
    install: str
    """The command."""
    hub: str
    as_of: str | None
