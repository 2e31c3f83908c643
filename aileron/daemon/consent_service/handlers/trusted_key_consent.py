"""Handles consents to publishers' keys, and the keys that are trusted.

Runs in the daemon. The keyring is a file that other processes can write. Its keys are listed by authority, which is a publisher
such as `github://OWNER`. With an approver, a key is trusted only if the keys of its authority are exactly the approved ones.

Source: docs/reference/signatures.md. Not here: the keys that publishers announce (packages/keyring.py), the file
(registry/keyring.py).
"""

from __future__ import annotations

from pathlib import Path

import anyio.to_thread
import msgspec

from aileron.api.publishers import RevokedKeys, TrustedKeys
from aileron.audit import events
from aileron.audit.log import Audit
from aileron.daemon.consent_service.consent_checks import ConsentChecks
from aileron.daemon.consent_service.consent_store import ConsentStore
from aileron.daemon.consent_service.handlers.handler import ConsentHandler
from aileron.ledger.rows import ApprovalRow
from aileron.model.consent import ConsentKind, TrustedKeyConsent
from aileron.model.failure import AileronError, FailureClass
from aileron.registry.artifact import Trust
from aileron.registry.keyring import Authority, Keyring, KeyringFile, trust_digest
from aileron.registry.signatures import PublicKey
from aileron.registry.sigstore import public_forges

__all__ = ["TrustedKeyHandler"]


class TrustedKeyHandler(ConsentHandler[TrustedKeyConsent]):
    """Handler of consents to publishers' keys. `keyring` is the path of the file with the keys."""

    def __init__(self, store: ConsentStore, consent_checks: ConsentChecks, audit: Audit, keyring: Path) -> None:
        self._store = store
        self._consent_checks = consent_checks
        self._audit = audit
        self._keyring = KeyringFile(keyring)

    def is_so(self, subject: TrustedKeyConsent) -> bool:
        """Return whether trusting the new key now would give its authority exactly the keys that the question lists."""
        return self.key_consent(subject.authority, _newest(subject), subject.source) == subject

    async def carry_out(self, subject: TrustedKeyConsent, row: ApprovalRow) -> TrustedKeys:
        """Store the consent to the authority's keys, and write them to the keyring."""
        keys = [PublicKey.parse(text) for text in subject.keys]
        digest = trust_digest(Authority.parse(subject.authority), keys)
        await self._store.put(ConsentKind.TRUSTED_KEY, subject.authority, digest, row.id)
        return await self.put(subject)

    def keyring(self) -> Keyring:
        """Return the trusted keys. Reads a file. Raises AileronError (vault_locked, hash_mismatch), or (invalid_request) for a
        broken file.
        """
        consents = self._store.consents()
        kept = self._keyring.read()
        if consents is None:
            return kept
        return kept.agreed(lambda authority: consents.consent_digest(ConsentKind.TRUSTED_KEY, authority))

    def trust(self) -> Trust:
        """Return the keys that are trusted now, and whether a signature is required. Raises AileronError as `keyring` does."""
        required = self._consent_checks.in_force["connectors.require_signature"]
        public = public_forges(self._consent_checks.in_force)
        return Trust(keyring=self.keyring(), require_signature=bool(required), public_forges=public)

    def key_consent(self, authority: str, key: PublicKey, source: str) -> TrustedKeyConsent:
        """Return the consent that `key` needs to be trusted. Raises AileronError as `keyring` does, and if there are too many
        keys.
        """
        whose = Authority.parse(authority)
        before = self.keyring()
        after = before.trusting(whose, key)
        return TrustedKeyConsent(
            authority=str(whose),
            new=key.fingerprint,
            keys=tuple(sorted(trusted_key.to_base64() for trusted_key in after.of(whose))),
            before=tuple(trusted_key.fingerprint for trusted_key in before.of(whose)),
            source=source,
        )

    async def put(self, subject: TrustedKeyConsent) -> TrustedKeys:
        """Trust exactly the keys that the subject lists for its authority from now on."""
        whose = Authority.parse(subject.authority)
        keys = [PublicKey.parse(text) for text in subject.keys]
        write = lambda: self._keyring.write(self._keyring.read().replacing(whose, keys))  # noqa: E731 - two words, used once
        await anyio.to_thread.run_sync(write)
        await self._audit.note(events.KeyTrusted(authority=subject.authority, key=subject.new, source=subject.source))
        return TrustedKeys(authority=subject.authority, key=subject.new, keys=[key.fingerprint for key in keys])

    async def revoke(self, whose: Authority, fingerprint: str | None) -> RevokedKeys:
        """Revoke the key of authority `whose` with this fingerprint; all of its keys if `fingerprint` is None. Raises
        AileronError (not_found), or (vault_locked) if there is an approver.
        """
        agreed, found = self.keyring(), self._keyring.read()
        gone = set(found.of(whose)) - set(found.without(whose, fingerprint).of(whose))
        left = [key for key in agreed.of(whose) if key not in gone]
        kept = self._store.latest(ConsentKind.TRUSTED_KEY, str(whose))
        if kept is not None and left:  # the rest stays as it was approved
            narrower = msgspec.structs.replace(kept, digest=trust_digest(whose, left))
            await self._store.change(lambda now: now.with_consent(narrower))
        elif kept is not None:
            await self._store.change(lambda now: now.without_consent(ConsentKind.TRUSTED_KEY, str(whose)))
        await anyio.to_thread.run_sync(lambda: self._keyring.write(found.replacing(whose, left)))
        revoked = sorted(public_key.fingerprint for public_key in gone)
        for key in revoked:
            await self._audit.note(events.KeyRevoked(authority=str(whose), key=key))
        return RevokedKeys(authority=str(whose), revoked=revoked)


def _newest(subject: TrustedKeyConsent) -> PublicKey:
    """Return the new key that the question asks to trust. Raises AileronError (hash_mismatch) if that key is not
    among the question's keys.
    """
    for text in subject.keys:
        if (key := PublicKey.parse(text)).fingerprint == subject.new:
            return key
    raise AileronError(FailureClass.HASH_MISMATCH, f"{subject.new} is none of the keys of its own question")
