"""The action files of this home: shown, installed, enabled, disabled, removed. Each change is made and recorded, or a person is
asked first.

Runs in the daemon, behind the operator's socket. File work runs in worker threads.

Not here: running them (runs/spine.py), fetching published ones (fetch.py), the tools of agents (http/agents.py).
"""

from __future__ import annotations

from typing import Final

import anyio
import anyio.to_thread
import msgspec

from aileron.actions.fitting import check_action
from aileron.actions.manifest import bind_placeholders, input_schema
from aileron.actions.resolve import grant_of, used_credentials
from aileron.api.actions import ActionDetail, ActionEntry, AddedAction
from aileron.api.approvals import ConsentAnswer
from aileron.audit import events
from aileron.daemon.consent_service.consent_checks import ConsentChecks
from aileron.daemon.consent_service.consent_store import ConsentStore
from aileron.daemon.consent_service.consents import ConsentService
from aileron.daemon.consent_service.suspended_tools import SuspendedTools, uses_of
from aileron.daemon.foundation import Foundation
from aileron.daemon.installed.access_summary import action_reach
from aileron.daemon.installed.install import ActionText, Installer
from aileron.daemon.views import action_facts, listed_facts
from aileron.egress.foreseen import check_somewhere_to_go
from aileron.model.consent import ConsentKind
from aileron.model.failure import AileronError
from aileron.model.manifest import ActionFile
from aileron.model.names import Fqn
from aileron.model.plan import ConnectorPin

__all__ = ["ActionService"]

_MAX_FILE: Final = 4096  # PATH_MAX, limits.h


class ActionService:
    """Service that lists, installs, enables and removes action files. One instance per daemon."""

    def __init__(
        self,
        base: Foundation,
        *,
        consent_checks: ConsentChecks,
        consents: ConsentService,
        consent_store: ConsentStore,
        tools: SuspendedTools,
        installing: Installer,
    ) -> None:
        self._base = base
        self._consent_checks = consent_checks
        self._consents = consents
        self._consent_store = consent_store
        self._tools = tools
        self._installing = installing

    async def listed(self) -> list[ActionEntry]:
        """Return every action file, sorted by name."""
        found = await anyio.to_thread.run_sync(self._base.actions.list_actions)
        return [listed_facts(entry, self._suspended(entry.action)) for entry in found]

    async def show(self, name: str) -> ActionDetail:
        """Return one action with all its details."""
        return await anyio.to_thread.run_sync(self._facts, name)

    def _facts(self, name: str) -> ActionDetail:
        action = self._base.actions.load(name)
        return ActionDetail(
            **msgspec.structs.asdict(
                action_facts(action, self._base.actions.is_enabled(name), self._suspended(action))
            ),
            text=action.text,
            body=action.body,
            digest=action.digest,
            input_schema=input_schema(action),
            steps=msgspec.to_builtins(action.steps),
            hosts=action_reach(self._base.connectors, action),
        )

    def _suspended(self, action: ActionFile | None) -> list[str]:
        return [] if action is None else [state.op for state in self._tools.suspended(uses_of(action))]

    async def add(self, text: str, file: str, *, replace: bool) -> AddedAction | ConsentAnswer:
        """Install an action file's text, or ask a person to approve that first. Replace each placeholder in the text with the
        pin of the only installed connector that matches it.
        """
        async with self._base.changing:
            action, bound = await anyio.to_thread.run_sync(
                lambda: self._addable(text, file[:_MAX_FILE], replace=replace)
            )
            answer = await self._consents.maybe_ask(
                lambda: self._consent_checks.consent_to(action, install=True, replace=replace)
            )
            if answer is not None:
                return answer
            put = await self._installing.put_action(ActionText(action.text, replace))
            needs = await anyio.to_thread.run_sync(self._needs, action)
            return msgspec.structs.replace(put, bound=bound, needs=needs)

    def _addable(self, text: str, file: str, *, replace: bool) -> tuple[ActionFile, dict[str, str]]:
        """Return the checked action, and the hash that replaced each of its placeholders."""
        bound: dict[str, str] = {}

        def pins(name: Fqn, version: str) -> list[str]:
            found = [pin.hash for pin in self._base.connectors.find(name, version)]
            if len(found) == 1:
                bound[f"{name}@{version}"] = found[0]
            return found

        action = self._base.actions.check_addable(bind_placeholders(text, file=file, pins=pins), replace=replace)
        check_action(action, self._base.connectors.maybe_manifest, file=file)
        return action, bound

    def _needs(self, action: ActionFile) -> list[str]:
        """Return what a person must still do before a run can work, such as bind a credential or allow a destination, each with
        its command.
        """
        found: list[str] = []
        try:
            used_credentials(action, connectors=self._base.connectors, bindings=self._base.vault)
        except AileronError as error:
            if "setup" in error.failure.details:
                found.append(error.failure.message)
        for needed in action.connectors:
            used = [step.op for step in action.steps if step.connector == needed.name]
            pin = ConnectorPin(str(needed.name), needed.version, needed.hash)
            manifest = self._base.connectors.maybe_manifest(pin)
            if manifest is not None and any(manifest.operation(op).network for op in used):
                try:
                    check_somewhere_to_go(grant_of(manifest, None, self._base.settings.now))
                except AileronError as error:
                    found.append(error.failure.message)
        return found

    async def enable(self, name: str, enabled: bool) -> None:
        """Enable or disable an action."""
        async with self._base.changing:
            await anyio.to_thread.run_sync(self._base.actions.load, name)
            await anyio.to_thread.run_sync(self._base.actions.set_enabled, name, enabled)
            await self._base.audit.note(
                events.ActionEnabled(action=name) if enabled else events.ActionDisabled(action=name)
            )

    async def remove(self, name: str) -> None:
        """Delete an action file."""
        async with self._base.changing:
            await anyio.to_thread.run_sync(self._base.actions.remove, name)
            await self._base.audit.note(events.ActionRemoved(action=name))
            await self._consent_store.end(ConsentKind.ACTION_FILE, name)
