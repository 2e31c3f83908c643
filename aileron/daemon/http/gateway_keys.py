"""What the gateway may ask of the vault and of the sessions.

Runs in the daemon. Source: docs/reference/gateway.md; aileron/gateway/proxy.py says what each method owes.
"""

from __future__ import annotations

from aileron.daemon.decisions.agreements import Agreements
from aileron.daemon.http.sessions import Sessions
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.secret import Secret
from aileron.vault.lend import VaultLender
from aileron.vault.vault import Vault

__all__ = ["GatewayKeys"]


class GatewayKeys:
    """One for each daemon."""

    def __init__(self, vault: Vault, sessions: Sessions, agreements: Agreements) -> None:
        self._vault = vault
        self._lender = VaultLender(vault)
        self._sessions = sessions
        self._agreements = agreements

    def check_settings(self) -> None:
        """Return if the settings in force are as a person agreed to them. AileronError(consent_required), (vault_locked) where
        that cannot be known.
        """
        self._agreements.check_settings()

    def vault_is_locked(self) -> bool:
        """Whether there is a vault, and it waits for its passphrase. AileronError(consent_required) where it is open, and nobody
        agreed to the settings in force: they say where requests go.
        """
        if self._vault.exists and self._vault.is_locked:
            return True
        self._agreements.check_settings()
        return False

    async def upstream_key(self, secret: str) -> Secret:
        """The key that the settings name. AileronError(vault_locked), (binding_required) where there is none of that name."""
        try:
            with self._lender.lend_secret(secret) as key:
                return key
        except AileronError as error:
            if error.failure.failure_class is not FailureClass.NOT_FOUND:
                raise
            raise AileronError(
                FailureClass.BINDING_REQUIRED,
                f"the gateway's settings name the secret {secret!r}, which is not in the vault: aileron secret set "
                f"{secret}",
                boundary=Boundary.USER,
            ) from None

    async def check_token(self, token: str) -> None:
        """Return if it is an open session's. AileronError(unauthorized)."""
        self._sessions.session_of(token)
