"""Lends the vault's secrets in the type that egress needs. oauth/ renews tokens and secret_stores/ fetches secrets;
this module connects these packages, which do not import each other.

Runs in the daemon. For `oauth2_client`, the lent secret is a token that was obtained with the stored secret (oauth/minting.py),
for the grant that the binding was approved for.

Source: docs/explanation/oauth.md. Not here: loans (vault/lend.py), the time of renewals (oauth/renew.py).
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Final

from msgspec import UNSET

from aileron.audit import events
from aileron.audit.log import Audit
from aileron.config import Settings
from aileron.daemon.secrets.kept_in_stores import SecretsInStores
from aileron.egress.inject import LentCredential, needles_for
from aileron.egress.refusal import RefusedError
from aileron.egress.scrub import Needles
from aileron.egress.url import parse_url
from aileron.gateway.upstreams import destinations
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.fixes import Stored
from aileron.model.names import BindingName, HostPort
from aileron.model.plan import CredentialUse
from aileron.model.secret import Secret
from aileron.oauth.minting import Minting, check_usable
from aileron.oauth.renew import Renewals
from aileron.oauth.token_request import ClientCredential, sent_parts
from aileron.vault.bindings import Binding
from aileron.vault.lend import VaultLender
from aileron.vault.sendable import Own, Sendable, Sendables, could_reach
from aileron.vault.vault import Vault

__all__ = ["Lending", "RenewalsOnRecord", "check_client"]


class Lending:
    """Service that lends secrets to egress. `renewals`, `minting` and some fetches of `elsewhere` themselves need egress,
    so they are functions that are called only when a secret is lent.
    """

    def __init__(
        self,
        vault: Vault,
        renewals: Callable[[], Renewals | None] = lambda: None,
        minting: Callable[[], Minting | None] = lambda: None,
        elsewhere: Callable[[], SecretsInStores | None] = lambda: None,
    ) -> None:
        self._vault = vault
        self._lender = VaultLender(vault)
        self._needles: Final = weakref.WeakKeyDictionary[Sendables, tuple[tuple[Secret, ...], Needles]]()
        """Search patterns (needles) for secrets, created once for each host and change of the vault. They disappear when the
        vault is locked, because only the vault holds the keys of this weak dictionary.
        """
        self._renewals = renewals
        self._minting = minting
        self._elsewhere = elsewhere
        vault.tell_ends(self._forget)

    def send_own(self, settings: Settings) -> None:
        """Tell the vault which secrets the daemon itself sends with these settings, and where. Call this when the settings
        change, not when a secret is lent, because the vault records until when each former secret could be sent.
        """
        self._vault.send_also(_own(settings))

    def is_ready(self, use: CredentialUse | None, destination: HostPort) -> bool:
        """Return whether a request can be sent without calling `ready` first, as egress.inject.Lender describes."""
        elsewhere = self._elsewhere()
        if elsewhere is not None and not elsewhere.is_ready(use, destination):
            return False
        if use is None:
            return True
        if (minting := self._minting_of(use)) is not None:
            try:
                return minting.is_ready(self._credential(use))
            except AileronError:  # `ready` says why
                return False
        return self._renewals_of(use) is None

    async def ready(self, use: CredentialUse | None, destination: HostPort, deadline: float) -> None:
        """Fetch the secrets that are stored outside the vault, and renew tokens that are about to expire. Raises AileronError as
        SecretsInStores.ready, Renewals.ready and Minting.ready do.
        """
        if (elsewhere := self._elsewhere()) is not None:
            await elsewhere.ready(use, destination, deadline)
        if use is not None and (minting := self._minting_of(use)) is not None:
            await minting.ready(self._credential(use), deadline)
        if use is not None and (renewals := self._renewals_of(use)) is not None:
            await renewals.ready(use.binding, deadline)

    @contextlib.contextmanager
    def lend(self, use: CredentialUse) -> Iterator[LentCredential]:
        """Lend the credential of a binding for one request. Raises AileronError as VaultLender.lend and Minting.token do."""
        if (minting := self._minting_of(use)) is not None:
            credential = self._credential(use)
            yield LentCredential(use.need.kind, minting.token(credential), stored=credential.stored)
            return
        with self._lender.lend(use) as loan:
            renewals = self._renewals_of(use)
            secret = loan.secret if renewals is None else renewals.newest(use.binding, loan.secret)
            yield LentCredential(loan.kind, secret, loan.username, loan.details, stored=loan.stored)

    def needles(self, destination: HostPort) -> Needles:
        """Return search patterns of the secrets that a host's responses are searched for, as egress.inject.Lender
        describes. Renewed access tokens that are not in the vault yet are searched for in the responses of every host.
        """
        known = self._vault.sendables(str(destination))
        renewals = self._renewals()
        unwritten = (() if renewals is None else renewals.unwritten(destination)) + self._minted(destination)
        before, needles = self._needles.get(known, ((), None))
        if needles is None or before != unwritten:
            lent = [credential for sendable in known.known for credential in _lent_of(sendable)]
            lent += [LentCredential("oauth2", token) for token in unwritten]
            needles = needles_for(lent, destination)
            self._needles[known] = unwritten, needles
        return needles

    def may_be_bound(self, destination: HostPort) -> bool:
        """Return whether a binding may exist for this destination, as egress.inject.Lender describes."""
        return self._vault.may_be_bound(str(destination))

    async def renew(self, use: CredentialUse, refused: Secret, deadline: float) -> bool:
        """Obtain another token after a service refused the token `refused`. Return whether there is another one now. Raises
        AileronError as Renewals.renew and Minting.renew do.
        """
        if (minting := self._minting_of(use)) is not None:
            return await minting.renew(self._credential(use), refused, deadline)
        renewals = self._renewals_of(use)
        return renewals is not None and await renewals.renew(use.binding, refused, deadline)

    def _renewals_of(self, use: CredentialUse) -> Renewals | None:
        return self._renewals() if use.need.kind == "oauth2" else None

    def _minting_of(self, use: CredentialUse) -> Minting | None:
        return self._minting() if use.need.kind == "oauth2_client" else None

    def _credential(self, use: CredentialUse) -> ClientCredential:
        """Return the credential with which tokens for an `oauth2_client` binding are requested. Raises AileronError as
        VaultLender.lend does, and (binding_failed) if the binding was approved for other tokens.
        """
        with self._lender.lend(use) as loan:
            binding = self._vault.binding(use.binding)
            credential = None if binding is None else _maybe_client(binding, loan.secret, loan.stored)
        if credential is None or use.need.token is UNSET or not credential.grant.serves(use.need.token):
            message = (
                f"{use.binding} was agreed to for tokens of another kind or from elsewhere: "
                f"`aileron binding rebind {use.binding}`"
            )
            raise AileronError(FailureClass.BINDING_FAILED, message, boundary=Boundary.USER)
        return credential

    def _minted(self, destination: HostPort) -> tuple[Secret, ...]:
        """Return the tokens in use of `oauth2_client` bindings that could have been sent to this host. The vault also remembers
        such tokens, up to a maximum number.
        """
        minting = self._minting()
        tokens = () if minting is None else minting.tokens()
        if not tokens:
            return ()
        reached = {binding.name for binding in self._vault.bindings() if could_reach(binding, str(destination))}
        return tuple(token for name, token in tokens if name in reached)

    def _forget(self) -> None:
        """Forget obtained tokens: all of them if the vault is locked, otherwise those whose binding has ended or changed.
        Can be called in any thread.
        """
        minting = self._minting()
        if minting is None:
            return
        if self._vault.is_locked:
            minting.forget()
        else:
            minting.keep_only(self._client_now)

    def _client_now(self, name: BindingName) -> ClientCredential | None:
        try:
            binding, secret = self._vault.reveal(name)
            entry = self._vault.read(lambda opened: opened.secret_entry(binding.secret))
            return _maybe_client(binding, secret, entry.stored)
        except AileronError:
            return None


def check_client(binding: Binding, secret: Secret, stored: Stored, now: float) -> None:
    """Check that tokens can be obtained with this secret, if the binding needs tokens. Raises AileronError
    (binding_failed).
    """
    if (credential := _maybe_client(binding, secret, stored)) is not None:
        check_usable(credential, now)


def _maybe_client(binding: Binding, secret: Secret, stored: Stored) -> ClientCredential | None:
    grant = None if binding.reach is None else binding.reach.token_grant
    if binding.kind != "oauth2_client" or grant is None:
        return None
    return ClientCredential(binding.name, grant, binding.username, secret, stored)


def _lent_of(sendable: Sendable) -> tuple[LentCredential, ...]:
    """Return all forms in which the bytes of a stored secret are sent, each as a credential; an `oauth2_client` secret is
    sent in parts.
    """
    if sendable.kind != "oauth2_client":
        return (LentCredential(sendable.kind, sendable.secret, sendable.username),)
    return tuple(LentCredential(sendable.kind, part) for part in sent_parts(sendable.secret, sendable.username))


def _own(settings: Settings) -> list[Own]:
    """Return the secrets that the daemon sends for the gateway and to the forges. A webhook gets only a signature, and no
    secret.
    """
    upstreams, forges = destinations(settings.gateway).values(), settings.forges
    own = [Own(to.provider, to.secret, f"{to.host.decode()}:{to.port}") for to in upstreams if to.secret is not None]
    for of, token, url in (
        ("github", forges.github.token, forges.github.api),
        ("gitlab", forges.gitlab.token, forges.gitlab.url),
    ):
        if token is not None:
            with contextlib.suppress(RefusedError):  # its requests are parsed the same way, so none is sent
                own.append(Own(of, token, str(parse_url(f"{url}/").destination)))
    return own


class RenewalsOnRecord:
    """Writer of audit events about the token renewals that oauth/ makes."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    async def renewing(self, binding: BindingName, host: str) -> None:
        """Record that a renewal begins. The record is on disk when this returns."""
        await self._audit.note(events.BindingRenewing(binding=str(binding), host=host))

    async def renewed(self, binding: BindingName) -> None:
        """Record that a token was renewed. The vault has the new token, or will get it as soon as the vault can be written
        (oauth/renew.py).
        """
        await self._audit.note(events.BindingRenewed(binding=str(binding)))

    async def failed(self, binding: BindingName, code: str) -> None:
        """Record that a renewal failed, with the provider's error code or one of Aileron's."""
        await self._audit.note(events.BindingRenewalFailed(binding=str(binding), code=code))
