"""The gateway's access to the vault and to the sessions.

Runs in the daemon. Source: docs/reference/gateway.md; aileron/gateway/proxy.py says what each method must do.
"""

from __future__ import annotations

from aileron.daemon.consent_service.consent_checks import ConsentChecks
from aileron.daemon.http.sessions import Sessions
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.secret import Secret
from aileron.vault.lend import VaultLender
from aileron.vault.vault import Vault

__all__ = ["GatewayKeys"]


class GatewayKeys:
    """The gateway's access to the vault, to the sessions, and to the check that the settings were approved. One instance per
    daemon.
    """

    def __init__(self, vault: Vault, sessions: Sessions, consent_checks: ConsentChecks) -> None:
        self._vault = vault
        self._lender = VaultLender(vault)
        self._sessions = sessions
        self._consent_checks = consent_checks

    def check_settings(self) -> None:
        """Check that a person approved the settings in force. Raises AileronError (consent_required) if not, or (vault_locked)
        if this cannot be determined.
        """
        self._consent_checks.check_settings()

    def vault_is_locked(self) -> bool:
        """Return whether a vault exists and is locked. Raises AileronError (consent_required) if the vault is open and the
        settings in force were not approved, because these settings determine where requests are sent.
        """
        if self._vault.exists and self._vault.is_locked:
            return True
        self._consent_checks.check_settings()
        return False

    async def upstream_key(self, secret: str) -> Secret:
        """Return the model provider's API key, which is the secret of this name in the vault. Raises AileronError (vault_locked),
        or (binding_required) if the vault does not have the secret.
        """
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
        """Check that the token belongs to an open session. Raises AileronError (unauthorized)."""
        self._sessions.session_of(token)
