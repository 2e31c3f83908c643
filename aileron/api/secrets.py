"""The vault: its state, and the names of what is in it. A value goes in, and never comes out.

Source: docs/reference/http-api.md, docs/reference/vault-format.md.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from aileron.api.body import SecretBody

__all__ = [
    "BackUpVault",
    "InitVault",
    "KeyringKeyBody",
    "NewVault",
    "RestoreVault",
    "RestoredVault",
    "RotateVault",
    "SecretEntry",
    "SecretList",
    "SecretStored",
    "SetSecret",
    "UnlockVault",
    "VaultBackup",
    "VaultState",
]


class KeyringKeyBody(SecretBody, frozen=True, kw_only=True):
    """A key that the system's keyring keeps: `id` has 32 hexadecimal digits, the key 32 bytes."""

    id: str
    key_base64: str


class InitVault(SecretBody, frozen=True, kw_only=True):
    """Body of `POST /v1/vault/init`."""

    passphrase: str
    recovery_codes: bool = False
    keyring: KeyringKeyBody | None = None


class UnlockVault(SecretBody, frozen=True, kw_only=True):
    """Body of `POST /v1/vault/unlock`: one of the two. The passphrase may be a recovery code."""

    passphrase: str | None = None
    keyring_key_base64: str | None = None


class RotateVault(SecretBody, frozen=True, kw_only=True):
    """Body of `POST /v1/vault/rotate`. The passphrase may be a recovery code."""

    passphrase: str
    new_passphrase: str
    recovery_codes: bool = False
    keyring: KeyringKeyBody | None = None


class BackUpVault(SecretBody, frozen=True, kw_only=True):
    """Body of `POST /v1/vault/backup`: an absolute path; the passphrase is needed while it is locked."""

    file: str
    passphrase: str | None = None
    replace: bool = False


class RestoreVault(SecretBody, frozen=True, kw_only=True):
    """Body of `POST /v1/vault/restore`: an absolute path, and the copy's passphrase."""

    file: str
    passphrase: str


class SetSecret(SecretBody, frozen=True, kw_only=True):
    """Body of `PUT /v1/secrets/{name}`."""

    value_base64: str


class VaultState(msgspec.Struct, frozen=True, kw_only=True):
    """Whether there is one, whether it is locked, and how much is in it. One that cannot be read says so in `/v1/status`."""

    exists: bool
    locked: bool
    secrets: int | UnsetType = UNSET
    bindings: int | UnsetType = UNSET
    format: int | UnsetType | None = UNSET
    generation: int | UnsetType | None = UNSET
    recovery_codes: int | UnsetType = UNSET
    """How many are left."""
    keyring: str | UnsetType | None = UNSET
    """What its key is called in the system's keyring."""
    lock_after_s: int | float | UnsetType | None = UNSET
    locks_at: str | UnsetType | None = UNSET
    """When it locks itself."""
    problem: str | UnsetType = UNSET


class NewVault(VaultState, frozen=True, kw_only=True):
    """The same, and the recovery codes, which are said this once."""

    codes: list[str]


class VaultBackup(msgspec.Struct, frozen=True, kw_only=True):
    """200: where the copy lies, and of which generation it is."""

    file: str
    generation: int


class RestoredVault(VaultState, frozen=True, kw_only=True):
    """The same, and where the file lies that was there."""

    file: str
    aside: str | None


class SecretEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One name."""

    name: str
    created_at: str
    updated_at: str


class SecretList(msgspec.Struct, frozen=True, kw_only=True):
    """Names and dates, never values."""

    secrets: list[SecretEntry]


class SecretStored(msgspec.Struct, frozen=True, kw_only=True):
    """200: it has its value."""

    name: str
