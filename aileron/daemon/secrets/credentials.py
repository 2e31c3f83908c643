"""The bindings of credentials to connectors: bind, rebind, show, revoke. Each change is made and recorded, or a person is asked
first.

Runs in the daemon, behind the operator's socket. Values are returned in the forms of docs/reference/http-api.md. None contains
a secret.

Rules
- A binding covers what the installed versions of its connector request when the binding is created. The plan refuses a version
  that requests more (actions/resolve.py), until the person rebinds.
- A binding is revoked here first, and only then at its provider. Whatever the provider does, the binding stays revoked.

Source: docs/reference/bindings.md. Not here: signing in (signins.py), lending (lending.py), secrets (secret_store.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

import anyio
import anyio.to_thread
import msgspec
from msgspec import UNSET

from aileron.api.approvals import ConsentAnswer
from aileron.api.bindings import BindingDetail, BindingEntry, BindingUser, RevokedBinding
from aileron.audit import events
from aileron.audit.uses import newest_uses
from aileron.daemon.consent_service.consent_store import ConsentStore
from aileron.daemon.consent_service.consents import ConsentService
from aileron.daemon.consent_service.handlers.binding_consent import BindingHandler
from aileron.daemon.foundation import Foundation
from aileron.daemon.installed.access_summary import binding_consent, binding_reach, needing, newest_of_kind
from aileron.daemon.secrets.kept_in_stores import SecretsInStores
from aileron.daemon.secrets.lending import check_client
from aileron.daemon.views import binding_facts
from aileron.model.consent import ConsentKind
from aileron.model.credential import Reach, TokenSet
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.login import LoginDetails
from aileron.model.manifest import ConnectorManifest
from aileron.model.names import BindingName, Fqn
from aileron.model.timestamp import utc
from aileron.vault.bindings import Binding

__all__ = ["Credentials", "Revoker", "parsed"]

_T = TypeVar("_T")
_REVOKE_S: Final = 10.0
"""Seconds to wait for the provider to revoke tokens: a person waits for the result."""


class Revoker(Protocol):
    """Protocol for a client that revokes tokens at their provider (oauth/)."""

    async def revoke(self, tokens: TokenSet) -> str:
        """Revoke tokens. Return the result: `revoked`, `not offered`, `failed: …`. Never raises AileronError."""
        ...


class Credentials:
    """Service that creates, changes, shows and revokes bindings. One instance per daemon."""

    def __init__(
        self,
        base: Foundation,
        *,
        consents: ConsentService,
        consent_store: ConsentStore,
        approved: BindingHandler,
        revoker: Revoker,
        elsewhere: SecretsInStores,
    ) -> None:
        self._base = base
        self._consents = consents
        self._consent_store = consent_store
        self._approved = approved
        self._revoker = revoker
        self._elsewhere = elsewhere

    async def listed(self) -> list[BindingEntry]:
        """Return every binding, sorted by name."""
        bindings = self._base.vault.bindings()
        installed = await anyio.to_thread.run_sync(needing, self._base.connectors)
        kept_at = self._base.vault.kept_elsewhere()
        return [
            binding_facts(
                binding,
                kept_at=kept_at.get(binding.secret),
                is_suspended=any(_widened(binding, found) for found in installed.get(binding.connector, [])),
                certificate=self._base.vault.certificate(binding.name),
            )
            for binding in bindings
        ]

    async def show(self, name: str) -> BindingDetail:
        """Return one binding with all its details. Raises AileronError (not_found)."""
        binding = self._known(name)
        versions = (await anyio.to_thread.run_sync(needing, self._base.connectors)).get(binding.connector, [])
        users = await anyio.to_thread.run_sync(self._users, binding)
        widened = {found.version: _widened(binding, found) for found in versions}
        certificate = self._base.vault.certificate(binding.name)
        facts = binding_facts(
            binding,
            kept_at=self._base.vault.kept_at(binding.secret),
            is_suspended=any(widened.values()),
            certificate=certificate,
        )
        uses = await self._base.ledger.read(lambda snapshot: newest_uses(snapshot, binding.connector))
        used = uses.get(str(binding.name))
        return BindingDetail(
            **msgspec.structs.asdict(facts),
            certificate=UNSET if certificate is None else certificate.facts,
            reach=binding.reach,
            grant=binding.grant,
            suspended=sorted({words for found in widened.values() for words in found}),
            last_used_at=None if used is None else utc(used.at_us / 1_000_000),
            used_by=[
                BindingUser(
                    connector=binding.connector,
                    version=found.version,
                    suspended=list(widened[found.version]),
                    actions=users.get(found.version, []),
                )
                for found in versions
            ],
        )

    async def secret_ready(self, name: str) -> None:
        """Wait until the value of a secret that is kept elsewhere is known. Raises AileronError as SecretsInStores does."""
        await self._elsewhere.secret_ready(name)

    async def bind(
        self, connector: str, name: str, username: str | None, secret: str, details: LoginDetails | None = None
    ) -> BindingEntry | ConsentAnswer:
        """Bind a stored secret to an installed connector, or ask a person to approve the binding first."""
        fqn, binding_name = parsed(Fqn.parse, connector), parsed(BindingName.parse, name)
        await self._elsewhere.secret_ready(secret)
        async with self._base.changing:
            reach, _ = await anyio.to_thread.run_sync(lambda: self.reach_for(str(fqn), binding_name))
            binding = _made_now(binding_name, str(fqn), username, secret, reach, details)
            await anyio.to_thread.run_sync(lambda: self.check_usable(binding))
            answer = await self._consents.maybe_ask(
                lambda: binding_consent(binding, reach, self._base.vault.kept_at(binding.secret))
            )
            return await self._approved.put(binding) if answer is None else answer

    async def rebind(
        self, name: str, username: str | None, secret: str | None, details: LoginDetails | None = None
    ) -> BindingEntry | ConsentAnswer:
        """Change a binding to the reach that the installed versions of its connector request now, with another secret, user name
        or details if given. If a person must approve that first, ask the person. Raises AileronError (binding_failed) if only
        the provider can grant the newly requested access.
        """
        if secret is not None:
            await self._elsewhere.secret_ready(secret)
        async with self._base.changing:
            before = self._known(name)
            self._base.vault.check_unlocked()
            reach, _ = await anyio.to_thread.run_sync(lambda: self.reach_for(before.connector, before.name))
            if before.grant is not None:
                _check_granted(before, reach, secret)
            binding = _made_now(
                before.name,
                before.connector,
                username or before.username,
                secret or before.secret,
                reach,
                before.details if details is None else details,
            )
            if secret is None:
                binding = msgspec.structs.replace(binding, grant=before.grant)
            await anyio.to_thread.run_sync(lambda: self.check_usable(binding, replace=True))
            answer = await self._consents.maybe_ask(
                lambda: binding_consent(binding, reach, self._base.vault.kept_at(binding.secret), replaces=True)
            )
            return await self._approved.put(binding, replace=True) if answer is None else answer

    async def unbind(self, name: str) -> RevokedBinding:
        """Revoke a binding. Delete the tokens of a sign-in, and revoke them at the provider if the provider supports that."""
        binding_name = parsed(BindingName.parse, name)
        async with self._base.changing:
            tokens = await anyio.to_thread.run_sync(lambda: self._base.vault.revoke(binding_name))
            await self._consent_store.end(ConsentKind.BINDING, str(binding_name))
        self._base.note_bound()
        at_provider = None if tokens is None else "failed: the daemon stopped before it was answered"
        try:
            if tokens is not None:
                at_provider = await self._taken_back(tokens)
        finally:
            word = None if at_provider is None else at_provider.partition(":")[0]
            with anyio.CancelScope(shield=True):  # it is revoked: record that even if the daemon stops meanwhile
                await self._base.audit.note(events.BindingRevoked(binding=str(binding_name), at_provider=word))
        return RevokedBinding(revoked=True, removed=str(binding_name), at_provider=at_provider)

    def reach_for(self, connector: str, name: BindingName) -> tuple[Reach, ConnectorManifest]:
        """Return the reach that a binding of this name to `connector` gets now, and the manifest of the newest version that
        needs such a binding. Both are from the same reading of the store.

        Raises AileronError (not_found) if the connector needs no credential, (invalid_request) if it needs another kind. Reads
        files.
        """
        versions = needing(self._base.connectors).get(connector, [])
        kinds = sorted({found.credential.kind for found in versions if found.credential is not None})
        if not kinds:
            raise AileronError(
                FailureClass.NOT_FOUND,
                f"no installed connector {connector} needs a credential; see `aileron connector list`",
            )
        if name.kind not in kinds:
            raise AileronError(
                FailureClass.INVALID_REQUEST,
                f"{connector} needs a credential of kind {' or '.join(kinds)}, and {name} is {name.kind!r}",
            )
        newest = newest_of_kind(versions, connector, name.kind)
        return binding_reach(versions, connector, name.kind), newest

    def check_usable(self, binding: Binding, *, replace: bool = False) -> None:
        """Check that the binding can be stored and used. Raises AileronError as Vault.bind does, or (binding_failed)
        if no token can be obtained with the binding's secret.
        """
        self._base.vault.check_change(lambda opened, now_ms: opened.with_binding(binding, now_ms, replace=replace))
        if binding.kind == "oauth2_client":
            entry = self._base.vault.read(lambda opened: opened.secret_entry(binding.secret))
            check_client(binding, self._base.vault.reveal_secret(binding.secret), entry.stored, time.time())

    async def _taken_back(self, tokens: TokenSet) -> str:
        with anyio.move_on_after(_REVOKE_S):
            return await self._revoker.revoke(tokens)
        return f"failed: no answer within {_REVOKE_S:g} s"

    def _known(self, name: str) -> Binding:
        binding = self._base.vault.binding(parsed(BindingName.parse, name))
        if binding is None:
            raise AileronError(
                FailureClass.NOT_FOUND,
                f"no binding {name[:200]}; see `aileron binding list`",
                boundary=Boundary.USER,
            )
        return binding

    def _users(self, binding: Binding) -> dict[str, list[str]]:
        """Return the actions that are pinned to the binding's connector, by the connector's version."""
        found: dict[str, list[str]] = {}
        for entry in self._base.actions.list_actions():
            for required in () if entry.action is None else entry.action.connectors:
                if str(required.name) == binding.connector:
                    found.setdefault(required.version, []).append(entry.name)
        return found


def parsed(parse: Callable[[str], _T], text: str) -> _T:
    """Return the value that `parse` makes from a text that a caller sent, such as a name. Raises AileronError
    (invalid_request) that says what is wrong with the text.
    """
    try:
        return parse(text)
    except ValueError as error:
        raise AileronError(FailureClass.INVALID_REQUEST, str(error)) from error


def _made_now(
    name: BindingName,
    connector: str,
    username: str | None,
    secret: str,
    reach: Reach,
    details: LoginDetails | None,
) -> Binding:
    return Binding(
        name=name,
        connector=connector,
        kind=name.kind,
        username=username,
        secret=secret,
        created_at=time.time(),
        reach=reach,
        details=None if details == LoginDetails() else details,
    )


def _widened(binding: Binding, manifest: ConnectorManifest) -> tuple[str, ...]:
    """Return descriptions of the access that a connector version requests beyond the binding's reach; empty if there is none."""
    if binding.reach is None:
        return ("everything: it was bound before that was kept",)
    if manifest.credential is None or manifest.credential.kind != binding.kind:
        return ()
    return binding.reach.widened_to(Reach.of(manifest))


def _check_granted(binding: Binding, reach: Reach, secret: str | None) -> None:
    """Check that the sign-in of `binding` covers this reach, because only the provider can grant another application or
    more scopes. Raises AileronError (binding_failed) if it does not, or if `secret` names a stored secret that is to
    replace the tokens.
    """
    if secret is not None:
        raise AileronError(
            FailureClass.BINDING_FAILED,
            f"{binding.name} is a sign-in and cannot use a stored secret: aileron binding revoke "
            f"{binding.name}, then bind it again",
            boundary=Boundary.USER,
        )
    before = binding.reach or Reach()
    missing = [scope for scope in reach.scopes if scope not in before.scopes]  # all requested scopes were granted
    if not missing and before.client == reach.client:
        return
    raise AileronError(
        FailureClass.BINDING_FAILED,
        f"{binding.name} was signed in for something else: aileron binding reauthorize {binding.name}",
        boundary=Boundary.USER,
        details={"binding": str(binding.name)},
    )
