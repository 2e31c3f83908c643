"""Routes of the vault and its secrets, with the types of their bodies.

Source: docs/reference/http-api.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from starlette.requests import Request

from aileron.api.approvals import ConsentAnswer
from aileron.api.daemon import Removed
from aileron.api.secrets import (
    BackUpVault,
    InitVault,
    KeyringKeyBody,
    NewVault,
    RestoredVault,
    RestoreVault,
    RotateVault,
    SecretList,
    SecretStored,
    SetSecret,
    UnlockVault,
    VaultBackup,
    VaultState,
)
from aileron.daemon.consent_service.after_unlock import AfterUnlock
from aileron.daemon.http.api.requests import from_base64
from aileron.daemon.secrets.secret_store import SecretStore
from aileron.daemon.secrets.vault import Opening, VaultService
from aileron.model.failure import AileronError, FailureClass
from aileron.model.secret import Secret
from aileron.vault.slots import KeyringKey

__all__ = ["VaultRoutes"]


class VaultRoutes:
    """HTTP request handlers for the vault and its secrets. One instance per daemon."""

    def __init__(self, *, vaults: VaultService, secrets: SecretStore, after_unlock: AfterUnlock) -> None:
        self._vaults = vaults
        self._secrets = secrets
        self._after_unlock = after_unlock

    async def vault_status(self, _request: Request) -> VaultState:
        """Return whether there is a vault and whether it is locked."""
        return self._vaults.status()

    async def vault_init(self, _request: Request, asked: InitVault) -> NewVault:
        """Create the vault and leave it unlocked; its recovery codes are returned only once."""
        codes = await self._vaults.create(
            Secret(asked.passphrase.encode()), recovery_codes=asked.recovery_codes, keyring=_keyring_key(asked.keyring)
        )
        return self._with_codes(codes)

    def _with_codes(self, codes: Sequence[Secret]) -> NewVault:
        return NewVault(
            **msgspec.structs.asdict(self._vaults.status()), codes=[code.reveal().decode() for code in codes]
        )

    async def vault_unlock(self, _request: Request, asked: UnlockVault) -> VaultState:
        """Unlock the vault until the daemon ends, a person locks the vault, or the vault has been idle for too long."""
        if (asked.passphrase is None) == (asked.keyring_key_base64 is None):
            raise AileronError(FailureClass.INVALID_REQUEST, "one of passphrase and keyring_key_base64 is expected")
        if asked.passphrase is not None:
            opening = Opening(Secret(asked.passphrase.encode()))
        else:
            opening = Opening(from_base64("keyring_key_base64", asked.keyring_key_base64 or ""), is_from_keyring=True)
        await self._vaults.unlock(opening)
        await self._after_unlock.catch_up()
        return self._vaults.status()

    async def vault_lock(self, _request: Request) -> VaultState:
        """Lock the vault and forget its key."""
        await self._vaults.lock()
        return self._vaults.status()

    async def vault_rotate(self, _request: Request, asked: RotateVault) -> NewVault:
        """Replace the vault's passphrase and encryption key; the new recovery codes are returned only once."""
        codes = await self._vaults.rotate(
            Secret(asked.passphrase.encode()),
            Secret(asked.new_passphrase.encode()),
            recovery_codes=asked.recovery_codes,
            keyring=_keyring_key(asked.keyring),
        )
        await self._after_unlock.catch_up()
        return self._with_codes(codes)

    async def vault_backup(self, _request: Request, asked: BackUpVault) -> VaultBackup:
        """Write a copy of the encrypted vault file."""
        typed = None if asked.passphrase is None else Secret(asked.passphrase.encode())
        return await self._vaults.backup(asked.file, typed, replace=asked.replace)

    async def vault_restore(self, _request: Request, asked: RestoreVault) -> RestoredVault:
        """Replace the vault with a backup copy, and leave it locked."""
        return await self._vaults.restore(asked.file, Secret(asked.passphrase.encode()))

    async def list_secrets(self, _request: Request) -> SecretList:
        """List the secrets' names and dates, never values."""
        return SecretList(secrets=self._secrets.listed())

    async def set_secret(self, request: Request, asked: SetSecret) -> SecretStored | ConsentAnswer:
        """Store a secret under a name."""
        name: str = request.path_params["name"]
        if (asked.value_base64 is None) == (asked.reference is None):
            raise AileronError(FailureClass.INVALID_REQUEST, "give either value_base64 or reference")
        if asked.reference is not None:
            return await self._secrets.set_reference(name, asked.reference, asked.token)
        if asked.token is not None:
            raise AileronError(FailureClass.INVALID_REQUEST, "token belongs to a reference; leave it out")
        return await self._secrets.set(name, from_base64("value_base64", asked.value_base64 or ""))

    async def remove_secret(self, request: Request) -> Removed:
        """Remove a secret."""
        await self._secrets.remove(request.path_params["name"])
        return Removed(removed=request.path_params["name"])


def _keyring_key(asked: KeyringKeyBody | None) -> KeyringKey | None:
    return None if asked is None else KeyringKey(asked.id, from_base64("key_base64", asked.key_base64))
