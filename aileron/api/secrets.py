"""The vault: its state, and the names of its secrets. No response contains the value of a secret.

Source: docs/reference/http-api.md, docs/reference/vault-format.md.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from aileron.api.body import SecretBody
from aileron.model.secret_reference import Elsewhere

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
    """A key that is stored in the system's keyring. `id` has 32 hexadecimal digits. `key_base64` is 32 bytes in base64."""

    id: str
    key_base64: str


class InitVault(SecretBody, frozen=True, kw_only=True):
    """Request body of `POST /v1/vault/init`. With `recovery_codes`, the vault gets recovery codes."""

    passphrase: str
    recovery_codes: bool = False
    keyring: KeyringKeyBody | None = None


class UnlockVault(SecretBody, frozen=True, kw_only=True):
    """Request body of `POST /v1/vault/unlock`: exactly one of the two fields. `passphrase` can also be a recovery
    code.
    """

    passphrase: str | None = None
    keyring_key_base64: str | None = None


class RotateVault(SecretBody, frozen=True, kw_only=True):
    """Request body of `POST /v1/vault/rotate`. `passphrase` can also be a recovery code."""

    passphrase: str
    new_passphrase: str
    recovery_codes: bool = False
    keyring: KeyringKeyBody | None = None


class BackUpVault(SecretBody, frozen=True, kw_only=True):
    """Request body of `POST /v1/vault/backup`. `file` is the absolute path for the backup. `passphrase` is the vault's,
    and is required while the vault is locked. With `replace`, an existing file is replaced.
    """

    file: str
    passphrase: str | None = None
    replace: bool = False


class RestoreVault(SecretBody, frozen=True, kw_only=True):
    """Request body of `POST /v1/vault/restore`. `file` is the absolute path of a backup of the vault, and `passphrase`
    opens that backup.
    """

    file: str
    passphrase: str


class SetSecret(SecretBody, frozen=True, kw_only=True):
    """Request body of `PUT /v1/secrets/{name}`: either the value, in base64, or a `reference` to the place where the
    secret is stored outside the vault. The value at that place is fetched now, and becomes the approved value. `token`
    is the name of the stored secret that authenticates at that place.
    """

    value_base64: str | None = None
    reference: str | None = None
    token: str | None = None


class VaultState(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): whether the vault exists, whether it is locked, and how much it contains. `recovery_codes`
    is the number of codes that are left. `keyring` is the name of the vault's key in the system's keyring, or null.
    `format` and `generation` are null if there is no vault. `lock_after_s` is the idle time in seconds after which the
    vault locks itself, or null. `locks_at` (UTC) is when the vault locks itself; null if it does not, or if it is
    locked. If the vault cannot be read, `/v1/status` has only `exists`, `locked` and `problem`.
    """

    exists: bool
    locked: bool
    secrets: int | UnsetType = UNSET
    bindings: int | UnsetType = UNSET
    format: int | UnsetType | None = UNSET
    generation: int | UnsetType | None = UNSET
    recovery_codes: int | UnsetType = UNSET
    keyring: str | UnsetType | None = UNSET
    lock_after_s: int | float | UnsetType | None = UNSET
    locks_at: str | UnsetType | None = UNSET
    problem: str | UnsetType = UNSET


class NewVault(VaultState, frozen=True, kw_only=True):
    """Response body (200): the state of the vault, and its recovery codes, which are returned only once."""

    codes: list[str]


class VaultBackup(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): the path of the backup that was written, and the generation of the vault in it."""

    file: str
    generation: int


class RestoredVault(VaultState, frozen=True, kw_only=True):
    """Response body (200): the state of the vault, and `file`, the backup that was restored. `aside` is the path that
    the previous vault file was moved to, or null.
    """

    file: str
    aside: str | None


class SecretEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The name of one secret, and when it was created and last changed (UTC). `elsewhere` is the place of a secret that is
    stored outside the vault; it is absent if the vault has the value.
    """

    name: str
    created_at: str
    updated_at: str
    elsewhere: Elsewhere | UnsetType = UNSET


class SecretList(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): the names and times of all secrets, never a value."""

    secrets: list[SecretEntry]


class SecretStored(msgspec.Struct, frozen=True, kw_only=True):
    """Response body (200): the secret is stored."""

    name: str
