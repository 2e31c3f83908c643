"""Who decides: the approver's key, passkeys, and standing grants.

Source: docs/reference/signed-decisions.md.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from aileron.api.body import Body, SecretBody
from aileron.model.consent import Constraint

__all__ = [
    "AddGrant",
    "Appointment",
    "ApproverFacts",
    "ApproverInventory",
    "ApproverNamed",
    "Challenge",
    "GrantEntry",
    "GrantList",
    "Inventory",
    "InventoryAction",
    "InventoryConnector",
    "InventoryKeys",
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
    """Body of `POST /v1/approver`: the fields of model/decision.py `ApproverStatement`, signed with the new key and the old one.

    `passphrase` is the vault's.
    """

    passphrase: str
    public_key: str
    inventory: str
    at: str
    signature: str
    replaces: str | None = None
    old_signature: str | None = None


class MakePasskey(Body, frozen=True, kw_only=True):
    """Body of `POST /v1/passkeys/options`."""

    name: str


class PasskeyMade(Body, frozen=True, kw_only=True):
    """Body of `POST /v1/passkeys`: what a browser made for the options it was given, in base64url without padding.

    Of `navigator.credentials.create(…)`: `response.clientDataJSON`, `response.attestationObject`, `response.getTransports()`.
    """

    client_data: str
    attestation: str
    transports: tuple[str, ...] = ()


class PageUnlock(Body, frozen=True, kw_only=True):
    """Whoever decides is at the page: the fields of model/decision.py `PageStatement`, and its signature, of a passkey or the
    approver's key.
    """

    nonce: str
    at: str
    key_id: str
    signature: str


class AddGrant(Body, frozen=True, kw_only=True):
    """Body of `POST /v1/grants`."""

    action: str
    constraints: tuple[Constraint, ...] = ()
    uses: int
    for_s: int
    binding: str | None = None


class ApproverFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Whether decisions are signed. From `key_id` on once it is `ready`; `problem` where it is `locked` or a `problem`."""

    status: Literal["none", "locked", "ready", "problem"]
    problem: str | UnsetType = UNSET
    key_id: str | UnsetType = UNSET
    public_key: str | UnsetType = UNSET
    created_at: str | UnsetType = UNSET
    passkeys: int | UnsetType = UNSET
    """How many decide too."""


class ApproverNamed(msgspec.Struct, frozen=True, kw_only=True):
    """200: this key decides from now on."""

    key_id: str


class InventoryAction(msgspec.Struct, frozen=True, kw_only=True):
    """An action file that would be agreed to."""

    name: str
    version: str
    digest: str
    gated: bool
    reaches: list[str]


class InventoryConnector(msgspec.Struct, frozen=True, kw_only=True):
    """A connector that would be agreed to."""

    name: str
    version: str
    hash: str
    reaches: list[str]


class InventoryKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of one authority that would be agreed to, by their fingerprints."""

    name: str
    keys: list[str]


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """All that exists, and would be agreed to with a key. Its digest is of its canonical JSON."""

    actions: list[InventoryAction]
    bindings: list[dict[str, Any]]
    """As docs/reference/consents.md has a binding."""
    connectors: list[InventoryConnector]
    keys: list[InventoryKeys]
    settings: dict[str, Any]
    """By their names in `config.toml`."""


class ApproverInventory(msgspec.Struct, frozen=True, kw_only=True):
    """What a new approver agrees to."""

    inventory: Inventory
    digest: str


class PasskeyEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One that decides. `usable`: its origin is that of this home's page now."""

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
    """Those that decide."""

    passkeys: list[PasskeyEntry]


class PasskeyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a page hands to `navigator.credentials.create`: WebAuthn level 3, PublicKeyCredentialCreationOptionsJSON."""

    public_key: dict[str, Any] = msgspec.field(name="publicKey")


class PasskeyStatement(msgspec.Struct, frozen=True, kw_only=True):
    """What one passkey has to sign: WebAuthn level 3, PublicKeyCredentialRequestOptionsJSON."""

    key_id: str
    name: str
    public_key: dict[str, Any] = msgspec.field(name="publicKey")


class Challenge(msgspec.Struct, frozen=True, kw_only=True):
    """What each passkey that can be asked here has to sign for a decision, which is sent with this very `at`."""

    approval_id: str
    digest: str
    decision: Literal["approve", "deny"]
    reason: str | None
    at: str
    statements: list[PasskeyStatement]


class UnlockChallenge(msgspec.Struct, frozen=True, kw_only=True):
    """What each of them has to sign so that a page is unlocked, once."""

    nonce: str
    at: str
    statements: list[PasskeyStatement]


class GrantEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One standing grant. `over`: its time or its uses are."""

    id: str
    action: str
    action_digest: str
    credentials: tuple[str, ...]
    constraints: tuple[Constraint, ...]
    uses: int
    used: int
    until: str
    over: bool


class GrantList(msgspec.Struct, frozen=True, kw_only=True):
    """Those in force."""

    grants: list[GrantEntry]
