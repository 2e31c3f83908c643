"""The vault's loans in the type egress asks for, kept fresh by oauth/: the rooms do not know each other.

Runs in the daemon. Source: docs/explanation/oauth.md. Not here: what a loan is (vault/lend.py), when one is renewed
(oauth/renew.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from aileron.audit import events
from aileron.audit.log import Audit
from aileron.egress.inject import LentCredential
from aileron.model.names import BindingName
from aileron.model.plan import CredentialUse
from aileron.model.secret import Secret
from aileron.oauth.renew import Renewals
from aileron.vault.lend import VaultLender
from aileron.vault.vault import Vault

__all__ = ["Lending", "RenewalsOnRecord"]


class Lending:
    """What egress borrows from. `renewals` go out through egress themselves, so they are told of once there is one."""

    def __init__(self, vault: Vault) -> None:
        self._lender = VaultLender(vault)
        self.renewals: Renewals | None = None

    async def ready(self, use: CredentialUse, deadline: float) -> None:
        """Renew first what is about to end. AileronError as Renewals.ready."""
        if (renewals := self._renewals_of(use)) is not None:
            await renewals.ready(use.binding, deadline)

    @contextlib.contextmanager
    def lend(self, use: CredentialUse) -> Iterator[LentCredential]:
        """AileronError as VaultLender.lend."""
        with self._lender.lend(use) as loan:
            renewals = self._renewals_of(use)
            secret = loan.secret if renewals is None else renewals.newest(use.binding, loan.secret)
            yield LentCredential(loan.kind, secret, loan.username)

    async def renew(self, use: CredentialUse, refused: Secret, deadline: float) -> bool:
        """Whether there is another than the one that was refused. AileronError as Renewals.renew."""
        renewals = self._renewals_of(use)
        return renewals is not None and await renewals.renew(use.binding, refused, deadline)

    def _renewals_of(self, use: CredentialUse) -> Renewals | None:
        return self.renewals if use.need.kind == "oauth2" else None


class RenewalsOnRecord:
    """What oauth/ writes down."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    async def renewing(self, binding: BindingName, host: str) -> None:
        """Durable when this returns."""
        await self._audit.note(events.BindingRenewing(binding=str(binding), host=host))

    async def renewed(self, binding: BindingName) -> None:
        """The provider gave another; the vault has it, or will as soon as it can be written (oauth/renew.py)."""
        await self._audit.note(events.BindingRenewed(binding=str(binding)))

    async def failed(self, binding: BindingName, code: str) -> None:
        """The provider's code, or a word of ours."""
        await self._audit.note(events.BindingRenewalFailed(binding=str(binding), code=code))
