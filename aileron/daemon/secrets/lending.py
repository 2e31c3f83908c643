"""The vault's loans in the type egress asks for, kept fresh by oauth/: the rooms do not know each other.

Runs in the daemon. Source: docs/explanation/oauth.md. Not here: what a loan is (vault/lend.py), when one is renewed
(oauth/renew.py).
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Final

from aileron.audit import events
from aileron.audit.log import Audit
from aileron.config import Settings
from aileron.egress.inject import LentCredential, needles_for
from aileron.egress.refusal import RefusedError
from aileron.egress.scrub import Needles
from aileron.egress.url import parse_url
from aileron.gateway.upstreams import destinations
from aileron.model.names import BindingName, HostPort
from aileron.model.plan import CredentialUse
from aileron.model.secret import Secret
from aileron.oauth.renew import Renewals
from aileron.vault.lend import VaultLender
from aileron.vault.sendable import Own, Sendables
from aileron.vault.vault import Vault

__all__ = ["Lending", "RenewalsOnRecord"]


class Lending:
    """What egress borrows from. `renewals` go out through egress themselves, so they are asked for when something is lent."""

    def __init__(self, vault: Vault, renewals: Callable[[], Renewals | None] = lambda: None) -> None:
        self._vault = vault
        self._lender = VaultLender(vault)
        self._needles: Final = weakref.WeakKeyDictionary[Sendables, tuple[tuple[Secret, ...], Needles]]()
        """Made once for each host and change of the vault, and gone when it is locked: the vault holds the keys of this."""
        self._renewals = renewals

    def adopt(self, settings: Settings) -> None:
        """These are in force from now on: they say which secrets the daemon itself sends, and where to."""
        self._vault.send_also(_own(settings))

    def is_ready(self, use: CredentialUse | None, destination: HostPort) -> bool:
        """As egress.inject.Lender."""
        return use is None or self._renewals_of(use) is None

    async def ready(self, use: CredentialUse | None, destination: HostPort, deadline: float) -> None:
        """Renew first what is about to end. AileronError as Renewals.ready."""
        if use is not None and (renewals := self._renewals_of(use)) is not None:
            await renewals.ready(use.binding, deadline)

    @contextlib.contextmanager
    def lend(self, use: CredentialUse) -> Iterator[LentCredential]:
        """AileronError as VaultLender.lend."""
        with self._lender.lend(use) as loan:
            renewals = self._renewals_of(use)
            secret = loan.secret if renewals is None else renewals.newest(use.binding, loan.secret)
            yield LentCredential(loan.kind, secret, loan.username, loan.details)

    def needles(self, destination: HostPort) -> Needles:
        """As egress.inject.Lender. Access tokens that were renewed and are in no vault are looked for everywhere."""
        known = self._vault.sendables(str(destination))
        renewals = self._renewals()
        unwritten = () if renewals is None else renewals.unwritten(destination)
        before, needles = self._needles.get(known, ((), None))
        if needles is None or before != unwritten:
            lent = [LentCredential(each.kind, each.secret, each.username) for each in known.known]
            lent += [LentCredential("oauth2", token) for token in unwritten]
            needles = needles_for(lent, destination)
            self._needles[known] = unwritten, needles
        return needles

    def may_be_bound(self, destination: HostPort) -> bool:
        """As egress.inject.Lender."""
        return self._vault.may_be_bound(str(destination))

    async def renew(self, use: CredentialUse, refused: Secret, deadline: float) -> bool:
        """Whether there is another than the one that was refused. AileronError as Renewals.renew."""
        renewals = self._renewals_of(use)
        return renewals is not None and await renewals.renew(use.binding, refused, deadline)

    def _renewals_of(self, use: CredentialUse) -> Renewals | None:
        return self._renewals() if use.need.kind == "oauth2" else None


def _own(settings: Settings) -> list[Own]:
    """What the gateway and the forges are sent. A webhook is sent a signature, and no secret."""
    upstreams, forges = destinations(settings.gateway).values(), settings.forges
    own = [Own(to.provider, to.secret, f"{to.host.decode()}:{to.port}") for to in upstreams if to.secret is not None]
    for of, token, url in (
        ("github", forges.github.token, forges.github.api),
        ("gitlab", forges.gitlab.token, forges.gitlab.url),
    ):
        if token is not None:
            with contextlib.suppress(RefusedError):  # what is asked of it is parsed in the same way, so nothing ever is
                own.append(Own(of, token, str(parse_url(f"{url}/").destination)))
    return own


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
