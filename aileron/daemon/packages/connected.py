"""The accounts that are connected: listed with their state, and removed with all that came with them.

Runs in the daemon, behind the operator's socket.

Rules
- Removing an account removes its actions first, so that nothing runs with a part of it. Repeating a removal that was interrupted
  removes the rest.

Source: docs/reference/http-api.md#services. Not here: what belongs to an account (account.py), adding (services.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio.to_thread

from aileron.actions.store import ActionStore
from aileron.api.connectors import ConnectorEntry
from aileron.api.services import RemovedService, ServiceEntry
from aileron.daemon.packages.account import ConnectedAccount, joined
from aileron.daemon.packages.account_state import entry_of, use_of
from aileron.daemon.packages.actions import ActionService
from aileron.daemon.packages.connectors import ConnectorService
from aileron.daemon.secrets.credentials import Credentials
from aileron.daemon.secrets.secret_store import SecretStore
from aileron.ledger import Ledger
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.manifest import ActionFile
from aileron.model.near import did_you_mean

__all__ = ["ConnectedServices"]


class ConnectedServices:
    """Service that lists and removes accounts. One instance per daemon."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        actions: ActionService,
        store: ActionStore,
        connectors: ConnectorService,
        credentials: Credentials,
        secrets: SecretStore,
    ) -> None:
        self._ledger = ledger
        self._actions = actions
        self._store = store
        self._connectors = connectors
        self._credentials = credentials
        self._secrets = secrets

    async def listed(self) -> list[ServiceEntry]:
        """Return the accounts that are connected, sorted by name."""
        accounts = await self._accounts()
        changed = {entry.name: entry.updated_at for entry in self._secrets.listed()}
        known = await self._ledger.read(lambda snapshot: [use_of(snapshot, account, changed) for account in accounts])
        entries = [entry_of(account, use) for account, use in zip(accounts, known, strict=True)]
        return sorted(entries, key=lambda entry: entry.name)

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

    async def _accounts(self) -> list[ConnectedAccount]:
        bindings = await self._credentials.listed()
        files = await anyio.to_thread.run_sync(self._files)
        versions: dict[str, list[ConnectorEntry]] = {}
        for entry in await self._connectors.listed():
            if entry.name:
                versions.setdefault(entry.name, []).append(entry)
        return list(joined(versions, bindings, files))

    def _files(self) -> list[ActionFile]:
        return [entry.action for entry in self._store.list_actions() if entry.action is not None]


def _named(accounts: Sequence[ConnectedAccount], name: str) -> ConnectedAccount:
    for account in accounts:
        if account.name == name:
            return account
    hint = did_you_mean(name, [account.name for account in accounts], "`aileron services` lists them")
    raise AileronError(FailureClass.NOT_FOUND, f"no service {name[:80]!r} is connected: {hint}", boundary=Boundary.USER)
