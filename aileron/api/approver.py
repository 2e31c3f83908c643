"""The approver, who decides: key and passkeys.

Source: docs/reference/signed-decisions.md.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from aileron.api.body import Body, SecretBody
from aileron.model.json_value import JSONObject

__all__ = [
    "Appointment",
    "ApproverFacts",
    "ApproverInventory",
    "ApproverNamed",
    "Challenge",
    "Inventory",
    "InventoryAction",
    "InventoryConnector",
    "InventoryKeys",
    "InventoryReference",
    "MakePasskey",
    "PageUnlock",
    "PasskeyEntry",
    "PasskeyList",
    "PasskeyMade",
    "PasskeyOptions",
    "PasskeyStatement",
    "UnlockChallenge",
]


class Appointment(SecretBody, frozen=True, kw_only=True):
    """Request body of `POST /v1/approver`: the fields of `ApproverStatement` (model/decision.py), signed with the new
    key and, if it replaces another key, also with the old one. `passphrase` is the vault's, `public_key` is 32 bytes in
    lower-case hexadecimal, and `inventory` is the digest that `GET /v1/approver/inventory` returns.
    """

    passphrase: str
    public_key: str
    inventory: str
    at: str
    signature: str
    replaces: str | None = None
    old_signature: str | None = None


class MakePasskey(Body, frozen=True, kw_only=True):
    """Request body of `POST /v1/passkeys/options`: the name of the new passkey."""

    name: str


class PasskeyMade(Body, frozen=True, kw_only=True):
    """Request body of `POST /v1/passkeys`: what the browser returned from `navigator.credentials.create(…)`.
    `client_data` is `response.clientDataJSON` and `attestation` is `response.attestationObject`, both in base64url
    without padding. `transports` is the result of `response.getTransports()`.
    """

    client_data: str
    attestation: str
    transports: tuple[str, ...] = ()


class PageUnlock(Body, frozen=True, kw_only=True):
    """Proof that the approver is at the page; it unlocks the page. It has the fields of `PageStatement`
    (model/decision.py), signed with a passkey or with the approver's key.
    """

    nonce: str
    at: str
    key_id: str
    signature: str


class ApproverFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): whether decisions are signed in this home. The fields from `key_id` on are present if
    `status` is `ready`. `problem` is present if it is `locked` or `problem`. `created_at` is in UTC, and `passkeys` is
    the number of passkeys that can decide.
    """

    status: Literal["none", "locked", "ready", "problem"]
    problem: str | UnsetType = UNSET
    key_id: str | UnsetType = UNSET
    public_key: str | UnsetType = UNSET
    created_at: str | UnsetType = UNSET
    passkeys: int | UnsetType = UNSET


class ApproverNamed(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): the key with the id `key_id` is now the approver's, and signs decisions from now on."""

    key_id: str


class InventoryAction(msgspec.Struct, frozen=True, kw_only=True):
    """An action file that the new approver would approve. `reaches` lists `host:port`."""

    name: str
    version: str
    digest: str
    gated: bool
    reaches: list[str]


class InventoryConnector(msgspec.Struct, frozen=True, kw_only=True):
    """A connector that the new approver would approve. `hash` is its pin, and `reaches` lists `host:port`."""

    name: str
    version: str
    hash: str
    reaches: list[str]


class InventoryKeys(msgspec.Struct, frozen=True, kw_only=True):
    """Fingerprints of the keys of one publisher that the new approver would trust. `name` is the publisher as the keyring
    names it: `scheme://owner`, or `scheme://owner/repository`.
    """

    name: str
    keys: list[str]


class InventoryReference(msgspec.Struct, frozen=True, kw_only=True):
    """A secret that is stored outside the vault. `kept_at` says in words where it is, and with which program and token it is
    read.
    """

    name: str
    kept_at: str


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """Inventory of all that exists and that the new approver would approve by signing. Its digest is over its canonical JSON.
    `bindings` have the fields of their subject (docs/reference/consents.md). `settings` are keyed by their names in
    `config.toml`.
    """

    actions: list[InventoryAction]
    bindings: list[JSONObject]
    connectors: list[InventoryConnector]
    keys: list[InventoryKeys]
    references: list[InventoryReference]
    settings: JSONObject


class ApproverInventory(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): what a new approver would approve by signing, and its sha256 digest."""

    inventory: Inventory
    digest: str


class PasskeyEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A passkey that can decide. `usable` says whether its origin is the current origin of this home's page. `synced`
    (`no`, `possible`, `yes`) says whether the passkey is copied to other devices. `aaguid` is the model that its
    authenticator claims to be, or null. `credential_id` is in base64url, and `public_key` is a COSE key in hexadecimal.
    `enrolled_at` is in UTC.
    """

    id: str
    name: str
    origin: str
    usable: bool
    algorithm: str
    synced: str
    aaguid: str | None
    transports: list[str]
    credential_id: str
    public_key: str
    approval_id: str
    enrolled_at: str


class PasskeyList(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): the passkeys that can decide."""

    passkeys: list[PasskeyEntry]


class PasskeyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): what a page passes to `navigator.credentials.create`, a
    PublicKeyCredentialCreationOptionsJSON of WebAuthn level 3.
    """

    public_key: JSONObject = msgspec.field(name="publicKey")


class PasskeyStatement(msgspec.Struct, frozen=True, kw_only=True):
    """The statement that a passkey must sign. `publicKey` is a PublicKeyCredentialRequestOptionsJSON of WebAuthn level 3."""

    key_id: str
    name: str
    public_key: JSONObject = msgspec.field(name="publicKey")


class Challenge(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): what each passkey that can be used here must sign for a decision. Send the decision with
    exactly this `at` (UTC).
    """

    approval_id: str
    digest: str
    decision: Literal["approve", "deny"]
    reason: str | None
    at: str
    statements: list[PasskeyStatement]


class UnlockChallenge(msgspec.Struct, frozen=True, kw_only=True):
    """The statements for the passkeys that can be used here: each unlocks a page if signed. Valid for one use. `at` is in UTC."""

    nonce: str
    at: str
    statements: list[PasskeyStatement]
