"""Handles consents to bindings: a stored secret, or the tokens of a sign-in, for a connector.

Runs in the daemon. Source: docs/reference/bindings.md. Not here: making and changing bindings (secrets/credentials.py), getting
tokens (secrets/signins.py).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import anyio.to_thread

from aileron.api.bindings import BindingEntry
from aileron.audit import events
from aileron.daemon.consent_service.consent_store import ConsentStore
from aileron.daemon.consent_service.handlers.handler import ConsentHandler
from aileron.daemon.consent_service.held_values import HeldValues
from aileron.daemon.foundation import Foundation
from aileron.daemon.installed.access_summary import binding_reach, needing
from aileron.daemon.views import binding_facts
from aileron.ledger.rows import ApprovalRow
from aileron.model.consent import BindingConsent, ConsentKind, subject_digest
from aileron.model.credential import OAuthGrant, Reach
from aileron.model.manifest import ConnectorManifest
from aileron.model.names import BindingName
from aileron.model.secret import Secret
from aileron.vault.bindings import Binding

__all__ = ["BindingHandler"]


class BindingHandler(ConsentHandler[BindingConsent]):
    """Handler of consents to bindings."""

    def __init__(
        self,
        base: Foundation,
        store: ConsentStore,
        *,
        held: HeldValues,
    ) -> None:
        self._base = base
        self._store = store
        self._held = held

    def asked(self, subject: BindingConsent, digest: str) -> None:
        """Bind the tokens that a sign-in holds in memory for this binding, if any, to the question with this digest."""
        self._held.bind(subject.commitment, digest)

    def is_so(self, subject: BindingConsent, coming: Sequence[ConnectorManifest] = ()) -> bool:
        """Return whether the home still matches the question. The change must replace the same binding, or none, for
        the same connector, and the installed versions of the connector must ask for no more than the question says. Without new
        tokens, the question must also name the account of the stored sign-in, and the place where the secret is kept. `coming`
        are the manifests of connectors that are installed together with the binding.
        """
        name = BindingName.parse(subject.name)
        before = self._base.vault.binding(name)
        if subject.replaces != (before is not None) or (before is not None and before.connector != subject.connector):
            return False
        if subject.commitment is None:
            grant = before.grant if before is not None and before.secret == subject.secret else None
            if subject.account != (None if grant is None else grant.account):
                return False
            kept_at = self._base.vault.kept_at(subject.secret)
            if (subject.reference or None) != (None if kept_at is None else kept_at.words):
                return False
        versions = needing(self._base.connectors, coming).get(subject.connector, [])
        return not _reach_of(subject).widened_to(binding_reach(versions, subject.connector, name.kind))

    async def carry_out(self, subject: BindingConsent, row: ApprovalRow) -> BindingEntry:
        """Store the binding, with the held tokens of a sign-in, and then the consent to it."""
        tokens, grant = self._released(subject, row.digest)
        known = self._base.vault.binding(BindingName.parse(subject.name)) if subject.replaces else None
        if subject.commitment is None and known is not None:
            grant = known.grant if known.secret == subject.secret else None
        result = await self.put(_binding_of(subject, grant), replace=subject.replaces, tokens=tokens)
        await self._store.put(ConsentKind.BINDING, subject.name, subject_digest(subject), row.id)
        return result

    async def put_new(self, subject: BindingConsent, digest: str) -> BindingEntry:
        """Make a new binding, of a stored secret or of the tokens that are held for the question with this digest. Raises
        AileronError as `put` does.
        """
        tokens, grant = self._released(subject, digest)
        return await self.put(_binding_of(subject, grant), tokens=tokens)

    def _released(self, subject: BindingConsent, digest: str) -> tuple[Secret | None, OAuthGrant | None]:
        """Return the tokens of a sign-in that are held for the question with this digest, and its grant; None for a stored
        secret. Raises AileronError(invalid_request) if they are no longer held.
        """
        if subject.commitment is None:
            return None, None
        again = f"aileron binding setup {subject.connector} --name {subject.name}"
        held = self._held.release(subject.commitment, digest, "what the provider gave at sign-in", again)
        return held.value, held.grant

    async def put(self, binding: Binding, *, replace: bool = False, tokens: Secret | None = None) -> BindingEntry:
        """Store a binding, and `tokens` as its secret in the same write. Raises AileronError as Vault.bind and `bind_sign_in`
        do.
        """
        if tokens is None:
            await anyio.to_thread.run_sync(lambda: self._base.vault.bind(binding, replace=replace))
        else:
            await anyio.to_thread.run_sync(lambda: self._base.vault.bind_sign_in(binding, tokens, replace=replace))
            await self._base.audit.note(events.SecretSet(name=binding.secret))
        await self._base.audit.note(
            events.BindingCreated(
                binding=str(binding.name),
                connector=binding.connector,
                secret=binding.secret,
                account=binding.username if binding.grant is None else binding.grant.account,
                hosts=[] if binding.reach is None else list(binding.reach.hosts),
                scopes=[] if binding.grant is None else list(binding.grant.scopes),
            )
        )
        self._base.note_bound()
        return binding_facts(
            binding,
            kept_at=self._base.vault.kept_at(binding.secret),
            certificate=self._base.vault.certificate(binding.name),
        )


def _binding_of(subject: BindingConsent, grant: OAuthGrant | None) -> Binding:
    """Return the binding that the question is about, with the current time as its creation time."""
    name = BindingName.parse(subject.name)
    return Binding(
        name=name,
        connector=subject.connector,
        kind=name.kind,
        username=subject.username,
        secret=subject.secret,
        created_at=time.time(),
        reach=_reach_of(subject),
        grant=grant,
        details=subject.details or None,
    )


def _reach_of(subject: BindingConsent) -> Reach:
    return Reach(hosts=subject.reaches, scopes=subject.scopes, wire=subject.wire, client=subject.client)
