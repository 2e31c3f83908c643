"""Lends one secret for one request, for as long as its response takes.

Egress asks for a loan once everything else about a request has been checked, and hands it back when the response is over. Runs
in the daemon. Trusts neither the plan nor the time since it was frozen, in which a binding may have been revoked or made anew:
the binding is looked up at the moment of the loan.

Source: docs/explanation/threat-model.md. Not here: sending a loan, and scrubbing it from the response (egress).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec

from aileron.model.cure import Stored
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.login import LoginDetails
from aileron.model.pem import is_document
from aileron.model.plan import CredentialUse
from aileron.model.secret import Secret
from aileron.vault.opened import tokens_of
from aileron.vault.unchanged import check_login
from aileron.vault.vault import Vault

__all__ = ["Loan", "VaultLender"]


class Loan(msgspec.Struct, frozen=True):
    """A loan: the kind of credential, its secret, the user name, the details of a login; and the place of the secret."""

    kind: str
    secret: Secret
    username: str | None
    details: LoginDetails | None
    stored: Stored


class VaultLender:
    """The lender of one vault's secrets."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    @contextlib.contextmanager
    def lend(self, use: CredentialUse) -> Iterator[Loan]:
        """Lend the credential that a plan names.

        AileronError(vault_locked), (binding_required) if it was revoked since, or (binding_failed) if its kind is not the one
        that the connector declares, or if it was bound to another connector, or with another login (unchanged.py), since.

        From a sign-in's tokens the access token is lent, whatever its age: it is renewed before (oauth/).

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
            self._vault.secret_entry(binding.secret).stored,
        )

    @contextlib.contextmanager
    def lend_secret(self, name: str) -> Iterator[Secret]:
        """Lend a secret that a setting names, for something that the daemon itself sends and no connector does.

        AileronError(vault_locked), (not_found), or (binding_failed) if the secret is kept elsewhere, or is a private key or
        another document, whose line ends would end a header.
        """
        if (elsewhere := self._vault.secret_entry(name).elsewhere) is not None:
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
