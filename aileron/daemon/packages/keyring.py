"""The publishers' keys that are trusted, and the forges that publish keys.

Runs in the daemon. A key that a repository publishes is a claim; a person compares its fingerprint with what they know from
elsewhere, and only then trusts it. With an approver, the key is trusted once the approver has signed a consent to it.

Source: docs/reference/signatures.md. Not here: questions and storage (consent_service/), the checking of signatures
(registry/keyring.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from aileron.api.approvals import ConsentAnswer
from aileron.api.publishers import PublishedKey, PublisherEntry, RevokedKeys, TrustedKeys
from aileron.config import LiveSettings
from aileron.daemon.consent_service.consents import ConsentService
from aileron.daemon.consent_service.handlers.trusted_key_consent import TrustedKeyHandler
from aileron.daemon.packages.forge_web import ForgeWeb
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.secret import Secret
from aileron.registry.forges.forge import KEY_PATH, Forge
from aileron.registry.forges.github import GitHub
from aileron.registry.forges.gitlab import GitLab
from aileron.registry.forges.hub import Hub
from aileron.registry.keyring import Authority
from aileron.registry.signatures import FINGERPRINT, PublicKey
from aileron.vault.lend import VaultLender
from aileron.vault.vault import Vault

__all__ = ["Forges", "PublisherKeys"]

_MAX_SEEN: Final = 256
"""Maximum number of repositories whose published key is remembered: a person looks at one key, and trusts it."""
_MAX_SAID: Final = 300


class Forges:
    """The clients of the forges (GitHub, GitLab) and of the Hub, at the addresses from the settings. One instance per daemon."""

    def __init__(self, web: ForgeWeb, settings: LiveSettings, vault: Vault) -> None:
        self._web = web
        self._lender = VaultLender(vault)
        self._settings = settings

    def hub(self) -> Hub:
        """Return the client of the Hub, which needs no token."""
        return Hub(self._web, self._settings.now.forges.hub)

    @contextlib.asynccontextmanager
    async def of(self, scheme: str) -> AsyncIterator[Forge]:
        """Yield the client of the forge that has this scheme. The forge's token, if any, is lent from the vault during the block.
        Raises AileronError (vault_locked, not_found).
        """
        forges = self._settings.now.forges
        github, gitlab = forges.github, forges.gitlab
        token = {"github": github.token, "gitlab": gitlab.token}.get(scheme)
        with contextlib.ExitStack() as stack:
            lent: Secret | None = None if token is None else stack.enter_context(self._lender.lend_secret(token))
            match scheme:
                case "github":
                    yield GitHub(self._web, github, lent)
                case "gitlab":
                    yield GitLab(self._web, gitlab, lent)
                case "hub":
                    yield self.hub()
                case _:
                    raise AileronError(FailureClass.INTERNAL_ERROR, f"no forge is known for {scheme[:20]!r}")


class PublisherKeys:
    """Service that looks up, trusts and revokes publishers' keys. One instance per daemon. `changing` is the lock held during
    every change to this home.
    """

    def __init__(
        self, *, forges: Forges, consents: ConsentService, trusted: TrustedKeyHandler, changing: anyio.Lock
    ) -> None:
        self._forges = forges
        self._consents = consents
        self._trusted = trusted
        self._changing = changing
        self._published: dict[str, str] = {}
        """Fingerprint of the key that the daemon last saw each repository publish."""

    async def listed(self) -> list[PublisherEntry]:
        """Return the trusted keys, by authority. Raises AileronError (vault_locked) if the home has an approver and the vault
        is locked.
        """
        keyring = await anyio.to_thread.run_sync(self._trusted.keyring)
        return [
            PublisherEntry(authority=str(authority), keys=[key.fingerprint for key in keys])
            for authority, keys in keyring.keys.items()
        ]

    async def look(self, authority: str) -> PublishedKey:
        """Return the key that the repository of `authority` publishes, and whether it is trusted already. Raises
        AileronError as Forge.publisher_key does.
        """
        whose = _authority(authority)
        if whose.is_owner:
            raise _which_repository(whose)
        async with self._forges.of(whose.scheme) as forge:
            key = await forge.publisher_key(whose)
        self._published.pop(str(whose), None)
        self._published[str(whose)] = key.fingerprint
        if len(self._published) > _MAX_SEEN:
            del self._published[next(iter(self._published))]
        keyring = await anyio.to_thread.run_sync(self._trusted.keyring)
        return PublishedKey(
            authority=str(whose),
            key=key.fingerprint,
            public_key=key.to_base64(),
            trusted=any(trusted_key == key for _, trusted_key in keyring.speaking_for_authority(whose)),
            others=sorted(
                {
                    trusted_key.fingerprint
                    for _, trusted_key in keyring.speaking_for_authority(whose)
                    if trusted_key != key
                }
            ),
            source=_published_by(whose),
        )

    async def trust_key(self, authority: str, key: str, source: str) -> TrustedKeys | ConsentAnswer:
        """Trust a key of `authority`, or ask a person to approve that first. Raises AileronError (invalid_request) for an
        invalid key or authority.
        """
        whose = _authority(authority)
        try:
            public = PublicKey.parse(key)
        except ValueError as error:
            raise AileronError(FailureClass.INVALID_REQUEST, f"key: {error}", boundary=Boundary.USER) from None
        async with self._changing:
            subject = await anyio.to_thread.run_sync(
                lambda: self._trusted.key_consent(str(whose), public, self._source(whose, public, source))
            )
            if public.fingerprint in subject.before:
                return TrustedKeys(authority=str(whose), key=public.fingerprint, keys=list(subject.before), new=False)
            if (answer := await self._consents.maybe_ask(lambda: subject)) is not None:
                return answer
            return msgspec.structs.replace(await self._trusted.put(subject), new=True)

    def _source(self, whose: Authority, key: PublicKey, said: str) -> str:
        """Return the source of a key for display: a fact if the daemon saw the key published in the repository; otherwise the
        caller's claim `said`, marked as a claim.
        """
        if said == _published_by(whose) and self._published.get(str(whose)) == key.fingerprint:
            return said
        return f"handed in, said to be from {said[:_MAX_SAID]}"

    async def revoke(self, authority: str, fingerprint: str | None) -> RevokedKeys:
        """Stop trusting a key, or all keys of an authority. Raises AileronError (not_found)."""
        if fingerprint is not None and not FINGERPRINT.fullmatch(fingerprint):
            raise AileronError(
                FailureClass.INVALID_REQUEST,
                "key is not a fingerprint, as `aileron keyring list` has it",
                boundary=Boundary.USER,
            )
        async with self._changing:
            return await self._trusted.revoke(_authority(authority), fingerprint)


def _published_by(repository: Authority) -> str:
    return f"{KEY_PATH} of {repository}"


def _authority(text: str) -> Authority:
    try:
        return Authority.parse(text)
    except ValueError as error:
        raise AileronError(FailureClass.INVALID_REQUEST, str(error), boundary=Boundary.USER) from None


def _which_repository(owner: Authority) -> AileronError:
    return AileronError(
        FailureClass.INVALID_REQUEST,
        f"{owner} is an owner, and only repositories publish keys: name one of them, or give the key with --key FILE",
        boundary=Boundary.USER,
    )
