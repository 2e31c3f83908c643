"""The accounts that are connected, each with its connector, its bindings and its actions; and their removal.

Runs in the daemon, behind the operator's socket. Nothing is stored about an account but what it consists of: what belongs
together is found by the names of connectors and bindings.

Rules
- An account is a connector with the bindings of one identity. A connector without a binding is an account too, so that what was
  added by half is seen and can be removed.
- An action belongs to an account if it is pinned to the connector and names the identity. If the connector has one account, an
  action without an identity belongs to it too.
- Removing an account removes its actions first, so that nothing runs with a part of it. Repeating a removal that was interrupted
  removes the rest.

Source: docs/reference/http-api.md#services. Not here: adding (services.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import anyio.to_thread
import msgspec

from aileron.actions.store import ActionStore
from aileron.api.bindings import BindingEntry
from aileron.api.connectors import ConnectorEntry
from aileron.api.services import RemovedService, ServiceEntry, ServiceState
from aileron.catalogue.preparing import FIRST, label
from aileron.catalogue.service import Service, services
from aileron.daemon.packages.actions import ActionService
from aileron.daemon.packages.connectors import ConnectorService
from aileron.daemon.secrets.credentials import Credentials
from aileron.daemon.secrets.secret_store import SecretStore
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.manifest import ActionFile
from aileron.model.names import BindingName
from aileron.model.near import did_you_mean
from aileron.model.plan import ConnectorPin

__all__ = ["ConnectedAccount", "ConnectedServices"]

_STATES: Final[dict[str, ServiceState]] = {
    "ok": "ready",
    "suspended": "suspended",
    "expired": "expired",
    "failed": "failed",
    "unknown": "locked",
}
"""States of an account by that of its worst binding."""
_WORST_FIRST: Final = ("failed", "expired", "suspended", "unknown", "ok")


class ConnectedAccount(msgspec.Struct, frozen=True, kw_only=True):
    """An account: its connector's name and installed versions, its bindings, and its actions."""

    connector: str
    identity: str
    service: Service | None
    versions: tuple[ConnectorEntry, ...]
    bindings: tuple[BindingEntry, ...]
    actions: tuple[ActionFile, ...]

    @property
    def pins(self) -> tuple[ConnectorPin, ...]:
        """Pins of the installed versions of its connector."""
        named = ((entry.version, entry.hash) for entry in self.versions)
        return tuple(ConnectorPin(self.connector, version, pin) for version, pin in named if isinstance(version, str))

    @property
    def name(self) -> str:
        """Name of the account, with which its actions begin."""
        of = self.service.name if self.service is not None else _service_of(self.bindings) or _last_part(self.connector)
        return label(of, self.identity)


class ConnectedServices:
    """Service that lists and removes accounts. One instance per daemon."""

    def __init__(
        self,
        *,
        actions: ActionService,
        store: ActionStore,
        connectors: ConnectorService,
        credentials: Credentials,
        secrets: SecretStore,
    ) -> None:
        self._actions = actions
        self._store = store
        self._connectors = connectors
        self._credentials = credentials
        self._secrets = secrets

    async def listed(self) -> list[ServiceEntry]:
        """Return the accounts that are connected, sorted by name."""
        return sorted([await self._entry(account) for account in await self._accounts()], key=lambda entry: entry.name)

    async def account(self, name: str) -> ConnectedAccount:
        """Return the account with this name. Raises AileronError(not_found)."""
        return _named(await self._accounts(), name)

    async def remove(self, name: str) -> RemovedService:
        """Remove an account: its actions, its bindings with their secrets, and its connector, if nothing else needs them.

        Raises AileronError (not_found), or as the removal of a part does; then the rest is still there.
        """
        account = await self.account(name)
        for action in account.actions:
            await self._actions.remove(action.name)
        said = [await self._credentials.unbind(binding.name) for binding in account.bindings]
        others = await self._credentials.listed()
        used = {binding.secret for binding in others}
        kept = {entry.name for entry in self._secrets.listed()}
        secrets = sorted({binding.secret for binding in account.bindings} & kept - used)
        for secret in secrets:
            await self._secrets.remove(secret)
        pinned = {needed.hash for file in await anyio.to_thread.run_sync(self._files) for needed in file.connectors}
        is_bound = any(binding.connector == account.connector for binding in others)
        connectors = [] if is_bound else [entry for entry in account.versions if entry.hash not in pinned]
        for entry in connectors:
            await self._connectors.remove(entry.hash)
        return RemovedService(
            removed=name,
            actions=[action.name for action in account.actions],
            bindings=[binding.name for binding in account.bindings],
            secrets=secrets,
            connectors=[f"{entry.name}@{entry.version}" for entry in connectors],
            at_provider=[revoked.at_provider for revoked in said if revoked.at_provider is not None],
        )

    async def _entry(self, account: ConnectedAccount) -> ServiceEntry:
        used = [await self._credentials.last_used(account.connector, binding.name) for binding in account.bindings]
        newest = account.versions[-1] if account.versions else None
        needs = any(entry.credential for entry in account.versions)
        state, problem, fix = _state(account, needs_credential=needs)
        return ServiceEntry(
            name=account.name,
            service=None if account.service is None else account.service.name,
            identity=account.identity,
            connector=account.connector if newest is None else f"{account.connector}@{newest.version}",
            hosts=sorted({host for entry in account.versions for host in entry.hosts or []}),
            bindings=[binding.name for binding in account.bindings],
            account=next((binding.account for binding in account.bindings if binding.account), None),
            actions=[action.name for action in account.actions],
            last_used_at=max((at for at in used if at is not None), default=None),
            state=state,
            problem=problem,
            fix=fix,
            newer=_is_newer(account),
        )

    async def _accounts(self) -> list[ConnectedAccount]:
        bindings = await self._credentials.listed()
        files = await anyio.to_thread.run_sync(self._files)
        versions: dict[str, list[ConnectorEntry]] = {}
        for entry in await self._connectors.listed():
            if entry.name:
                versions.setdefault(entry.name, []).append(entry)
        return list(_joined(versions, bindings, files))

    def _files(self) -> list[ActionFile]:
        return [entry.action for entry in self._store.list_actions() if entry.action is not None]


def _joined(
    versions: dict[str, list[ConnectorEntry]], bindings: Iterable[BindingEntry], files: Sequence[ActionFile]
) -> Iterator[ConnectedAccount]:
    """Yield the accounts that connectors, bindings and actions make up."""
    identities: dict[str, dict[str, list[BindingEntry]]] = {name: {} for name in versions}
    for binding in bindings:
        of = identities.setdefault(binding.connector, {})
        of.setdefault(BindingName.parse(binding.name).identity, []).append(binding)
    for connector, accounts in identities.items():
        service, own = _maybe_service(connector)
        for identity, bound in (accounts or {own: []}).items():
            yield ConnectedAccount(
                connector=connector,
                identity=identity,
                service=service,
                versions=tuple(versions.get(connector, ())),
                bindings=tuple(bound),
                actions=tuple(file for file in files if _belongs(file, connector, identity, only=len(accounts) < 2)),
            )


def _belongs(file: ActionFile, connector: str, identity: str, *, only: bool) -> bool:
    return any(
        str(needed.name) == connector and (needed.identity == identity or (needed.identity is None and only))
        for needed in file.connectors
    )


def _maybe_service(connector: str) -> tuple[Service | None, str]:
    """Return the service of the catalogue that a connector's name belongs to, or None, and the identity in that name."""
    for service in services():
        if connector == service.connector:
            return service, FIRST
        if connector.startswith(f"{service.connector}/"):
            return service, connector.removeprefix(f"{service.connector}/")
    return None, FIRST


def _named(accounts: Sequence[ConnectedAccount], name: str) -> ConnectedAccount:
    for account in accounts:
        if account.name == name:
            return account
    hint = did_you_mean(name, [account.name for account in accounts], "`aileron services` lists them")
    raise AileronError(FailureClass.NOT_FOUND, f"no service {name[:80]!r} is connected: {hint}", boundary=Boundary.USER)


def _state(account: ConnectedAccount, *, needs_credential: bool) -> tuple[ServiceState, str | None, str | None]:
    """Return an account's state, the problem in words, and the command that mends it."""
    if not account.versions:
        return "failed", "its connector is not installed", f"aileron remove {account.name}"
    if not account.bindings:
        if not needs_credential:
            return "ready", None, None
        setup = f"aileron binding setup {account.connector}"
        return "no_credential", "it needs a credential and has none", setup
    worst = min(account.bindings, key=lambda binding: _WORST_FIRST.index(binding.state))
    state = _STATES[worst.state]
    match worst.state:
        case "suspended":
            return state, "its connector asks for more than you approved", f"aileron binding rebind {worst.name}"
        case "expired" | "failed":
            return state, "the service refuses its credential, or it has expired", _fix_of(worst)
        case _:
            return state, None, None


def _fix_of(binding: BindingEntry) -> str:
    if binding.kind == "oauth2":
        return f"aileron binding reauthorize {binding.name}"
    return f"aileron secret set {binding.secret}"


def _is_newer(account: ConnectedAccount) -> bool:
    """Return whether Aileron came with another version of the connector than the account's actions use."""
    if account.service is None:
        return False
    used = {
        needed.version
        for action in account.actions
        for needed in action.connectors
        if str(needed.name) == account.connector
    }
    return not used <= {account.service.version}


def _service_of(bindings: Sequence[BindingEntry]) -> str | None:
    return BindingName.parse(bindings[0].name).service if bindings else None


def _last_part(connector: str) -> str:
    return connector.rpartition("/")[2].removeprefix("connector-")
