"""Publishers: whose signatures are trusted, and what a Hub offers.

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
    """Request body of `POST /v1/keyring/look`: the repository whose published key is wanted. `authority` names the repository."""

    authority: str


class TrustKey(Body, frozen=True, kw_only=True):
    """Request body of `POST /v1/keyring`. `key` is in PEM or base64. `source` says where it comes from, for people."""

    authority: str
    key: str
    source: str


class RevokeKey(Body, frozen=True, kw_only=True):
    """Request body of `POST /v1/keyring/revoke`. `key` is a fingerprint. Without it, all keys of the authority are
    revoked.
    """

    authority: str
    key: str | None = None


class PublisherEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The fingerprints of the keys that are trusted for one authority: an owner (`scheme://owner`) or a repository
    (`scheme://owner/repository`).
    """

    authority: str
    keys: list[str]


class KeyList(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): all trusted keys."""

    keyring: list[PublisherEntry]


class TrustedKeys(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): the key is trusted. `key` is its fingerprint, and `keys` are the fingerprints of all trusted
    keys of its authority. `new` is false if the key was already trusted; it is absent in the result of an approval.
    """

    authority: str
    key: str
    keys: list[str]
    new: bool | UnsetType = UNSET


class PublishedKey(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): the key that a repository publishes, which is only a claim: compare its fingerprint with one
    from another source before you trust it. `key` is its fingerprint, and `public_key` is in base64. `others` are the
    fingerprints of other keys that are trusted for this repository.
    """

    authority: str
    key: str
    public_key: str
    trusted: bool
    others: list[str]
    source: str


class RevokedKeys(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): the fingerprints of the keys that are no longer trusted."""

    authority: str
    revoked: list[str]


class HubSignature(msgspec.Struct, frozen=True, kw_only=True):
    """The Hub's statement about the signature. `key` is a fingerprint; null if the artifact is unsigned. `trusted` does
    not come from the Hub: it says whether this home trusts the key. It is present only for a single artifact; `unknown`
    while the vault is locked, null if the artifact is unsigned.
    """

    status: Literal["signed", "unsigned"]
    key: str | None
    trusted: Literal["yes", "no", "unknown"] | UnsetType | None = UNSET


class HubCredential(msgspec.Struct, frozen=True, kw_only=True):
    """The credential that a connector or action on the Hub would need."""

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
    """An artifact on the Hub that a search found, in its newest version. `match` says why the search found it:
    `intent`, `name`, `words`, or `all` if no words were given.
    """

    match: str


class HubFound(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): the first 50 of `total` results, best first. `hub` is the address of the Hub. `as_of` says
    when its index was written, or is null.
    """

    hub: str
    as_of: str | None
    total: int
    entries: list[HubEntry]


class HubVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A published version. `signed_by` is the fingerprint of the key that signed it; null if it is unsigned."""

    version: str
    hash: str
    signed_by: str | None


class HubDetail(_About, frozen=True, kw_only=True):
    """Response body (200): one version of one artifact on the Hub. `hash` is the pin of a connector, or the digest of
    an action's file. `publisher_key` is the fingerprint of the key that the artifact's repository publishes now, or
    null. `install` is the command that installs this version. `hub` is the address of the Hub. `as_of` says when the
    Hub's index was written, or is null.
    """

    newest: str
    versions: list[HubVersion]
    hash: str
    publisher_key: str | None
    install: str
    hub: str
    as_of: str | None
