"""Lends one secret for one request, for as long as its response takes.

Egress requests a loan once all other parts of a request have been checked, and returns the loan when the response is complete.
Runs in the daemon. Does not assume that the plan is still current: since the plan was frozen, a binding may have been revoked
or created anew. So the binding is looked up at the moment of the loan.

Source: docs/explanation/threat-model.md. Not here: sending a loan, and scrubbing it from the response (egress).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec

from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.fixes import Stored
from aileron.model.login import LoginDetails
from aileron.model.pem import is_document
from aileron.model.plan import CredentialUse
from aileron.model.secret import Secret
from aileron.vault.opened import tokens_of
from aileron.vault.unchanged import check_login
from aileron.vault.vault import Vault

__all__ = ["Loan", "VaultLender"]


class Loan(msgspec.Struct, frozen=True):
    """A loan: the kind of credential, its secret, the user name, the details of a login, and the place where the secret is
    stored.
    """

    kind: str
    secret: Secret
    username: str | None
    details: LoginDetails | None
    stored: Stored


class VaultLender:
    """The lender of one vault's secrets."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    @property
    def is_locked(self) -> bool:
        """True while the vault is locked, so that no secret can be lent."""
        return self._vault.is_locked

    @contextlib.contextmanager
    def lend(self, use: CredentialUse) -> Iterator[Loan]:
        """Yield a loan of the credential that a plan specifies (`use`); it ends with the block.

        Raises AileronError: vault_locked if the vault is locked, or if the secret's value is stored outside the vault
        and was not fetched since the vault was opened; binding_required if the binding was revoked after the plan was
        made; binding_failed if the binding's kind differs from the kind that the connector declares, or if the
        binding now has another connector or another login (unchanged.py).

        For a sign-in the access token is lent, whatever its age, because the token is renewed before the loan (oauth/).

        Quick: one decryption in memory. Safe in the event loop and in any thread.
        """
        binding, secret = self._vault.reveal(use.binding)
        if binding.kind != use.need.kind:
            message = (
                f"{use.binding} is of kind {binding.kind}, but the connector needs {use.need.kind}: `aileron "
                f"binding revoke {use.binding}`, then `aileron binding setup {use.connector}`"
            )
            raise AileronError(FailureClass.BINDING_FAILED, message, boundary=Boundary.USER)
        if binding.connector != use.connector:
            message = (
                f"{use.binding} now belongs to {binding.connector}, not to {use.connector}: "
                f"`aileron binding setup {use.connector}`"
            )
            raise AileronError(FailureClass.BINDING_FAILED, message, boundary=Boundary.USER)
        check_login(binding, use)
        yield Loan(
            binding.kind,
            secret if binding.grant is None else tokens_of(binding, secret).access,
            binding.login_name if use.need.logins else binding.username,
            binding.details,
            self._vault.read(lambda opened: opened.secret_entry(binding.secret)).stored,
        )

    @contextlib.contextmanager
    def lend_secret(self, name: str) -> Iterator[Secret]:
        """Yield the value of a secret that a setting names, for requests that the daemon itself sends, not a connector.

        Raises AileronError (vault_locked) if the vault is locked, (not_found) if there is no such secret, or (binding_failed)
        if the secret's value is stored outside the vault, or is a private key or another document, whose line ends would end a
        header.
        """
        if (elsewhere := self._vault.read(lambda opened: opened.secret_entry(name)).elsewhere) is not None:
            message = (
                f"secret {name!r} is kept at {elsewhere.reference}, and only bindings can use such a secret: store the value "
                f"with `aileron secret set {name}`"
            )
            raise AileronError(FailureClass.BINDING_FAILED, message, boundary=Boundary.USER)
        secret = self._vault.reveal_secret(name)
        if is_document(secret):
            message = (
                f"secret {name!r} is a file with several lines, which no header can carry: aileron secret set {name}"
            )
            raise AileronError(FailureClass.BINDING_FAILED, message, boundary=Boundary.USER)
        yield secret
