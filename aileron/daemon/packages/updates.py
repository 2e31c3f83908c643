"""Maintenance of installed versions: newer versions, damaged bytes, and connectors that nothing needs any longer.

Runs in the daemon, behind the operator's socket. Checking changes nothing; nothing is updated by itself.

Rules
- A forge that cannot be reached is reported as one line of the result; the other forges are reported nevertheless.
- A connector is unused if no action file, no waiting question and no run in progress is pinned to it. If an action file cannot
  be read, its connectors are unknown, and no connector is removed.

Source: docs/tutorial/publish-and-update.md, docs/reference/http-api.md. Not here: fetching (fetch.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from aileron.actions.manifest import parse_action
from aileron.actions.store import Listed
from aileron.api.connectors import ArtifactKind, ConnectorEntry, Update
from aileron.audit import events
from aileron.daemon.foundation import Foundation
from aileron.daemon.packages.keyring import Forges
from aileron.daemon.views import connector_facts
from aileron.ledger.rows import ACTION_KIND, EventFilter
from aileron.ledger.sqlite import Snapshot
from aileron.model.consent import ActionFileConsent
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.manifest import ActionFile
from aileron.model.names import Fqn, precedence
from aileron.model.outcome import RunStatus
from aileron.model.plan import ConnectorPin, Plan
from aileron.registry.artifact import ArtifactRequest
from aileron.registry.content import Installed
from aileron.registry.forges.forge import newest

__all__ = ["Updates"]

_ASKED_AT_ONCE: Final = 4
"""Maximum number of concurrent requests for lists of versions."""
_ALL_S: Final = 50.0
"""Seconds to wait for all lists of versions: a forge that has not responded by then is reported as a problem. A client waits
for 60 seconds.
"""


class Updates:
    """Service that finds newer versions, verifies installed connectors and removes unused ones. One instance per daemon."""

    def __init__(
        self,
        base: Foundation,
        *,
        forges: Forges,
    ) -> None:
        self._base = base
        self._forges = forges

    async def updates(self, *, prerelease: bool) -> list[Update]:
        """Return a row for each installed action that has a source, and for each connector that an installed action is
        pinned to. A row has the version in use and the newest published version.
        """
        listed = await anyio.to_thread.run_sync(self._base.actions.list_actions)
        used = sorted(set(_used(listed)))
        found: dict[Fqn, tuple[str, ...] | AileronError] = {}
        slots = anyio.CapacityLimiter(_ASKED_AT_ONCE)

        async def look(name: Fqn) -> None:
            async with slots:
                try:
                    async with self._forges.of(name.scheme) as forge:
                        found[name] = await forge.versions(name)
                except AileronError as error:
                    found[name] = error

        with anyio.move_on_after(_ALL_S):
            async with anyio.create_task_group() as tasks:
                for name in dict.fromkeys(wanted.name for _, wanted in used):
                    tasks.start_soon(look, name)
        return [_update(kind, wanted, found.get(wanted.name), prerelease=prerelease) for kind, wanted in used]

    async def verify(self) -> list[ConnectorEntry]:
        """Return all installed connectors, after hashing every byte again. A connector that does not match its pin has a
        `problem`.
        """
        return [_facts(entry) for entry in await anyio.to_thread.run_sync(self._base.connectors.verify)]

    async def remove_unused(self, *, dry_run: bool) -> list[ConnectorEntry]:
        """Remove the connectors that no action file, question or run is pinned to, and return them. With `dry_run`, only
        return them.

        Raises AileronError (invalid_request) if an action file is broken.
        """
        async with self._base.changing:
            listed = await anyio.to_thread.run_sync(self._base.actions.list_actions)
            broken = [entry.name for entry in listed if entry.action is None]
            if broken:
                raise AileronError(
                    FailureClass.INVALID_REQUEST,
                    f"what {', '.join(broken)} needs is unknown, because the file cannot be read: fix it, or remove it",
                    boundary=Boundary.ACTION,
                )
            needed = {pin for entry in listed if entry.action is not None for pin in _pins(entry.action)}
            needed |= await self._waited_for()
            unused = [
                entry
                for entry in await anyio.to_thread.run_sync(self._base.connectors.list_connectors)
                if entry.hash not in needed
            ]
            for entry in [] if dry_run else unused:
                await self._remove(entry)
            return [_facts(entry) for entry in unused]

    async def _remove(self, entry: Installed) -> None:
        pin = entry.pin or ConnectorPin("", "", entry.hash)
        await anyio.to_thread.run_sync(self._base.connectors.remove, pin)
        await self._base.audit.note(events.ConnectorRemoved(connector=pin.name, version=pin.version, hash=pin.hash))

    async def _waited_for(self) -> set[str]:
        """Return the connector pins of every plan that is running or waiting for a person, and of every action file in
        a question.
        """

        def look(snapshot: Snapshot) -> tuple[list[str], set[str]]:
            waiting = [row.id for row in snapshot.open_approvals() if row.kind == ACTION_KIND]
            return waiting, {
                pin for run in snapshot.runs_in(RunStatus.RUNNING) for pin in _pins_of_run(snapshot, run.id)
            }

        waiting, needed = await self._base.ledger.read(look)
        for approval_id in waiting:
            plan = (await self._base.audit.frozen(approval_id)).plan
            needed |= set(_pins_of_plan(plan))
        for _, subject in await self._base.audit.open_consents():
            if isinstance(subject, ActionFileConsent):
                needed |= set(_pins(parse_action(subject.text, file=subject.name)))
        return needed


def _used(listed: tuple[Listed, ...]) -> Iterator[tuple[ArtifactKind, ArtifactRequest]]:
    for entry in listed:
        if entry.action is None:
            continue
        for needed in entry.action.connectors:
            yield "connector", ArtifactRequest(needed.name, needed.version)
        if entry.action.source is not None:
            yield "action", ArtifactRequest.parse(entry.action.source)


def _update(
    kind: ArtifactKind, wanted: ArtifactRequest, found: tuple[str, ...] | AileronError | None, *, prerelease: bool
) -> Update:
    told = Update(kind=kind, name=str(wanted.name), version=wanted.version, newest=None, prerelease=None, problem=None)
    if found is None or isinstance(found, AileronError):
        problem = "no answer in time" if found is None else found.failure.message
        return msgspec.structs.replace(told, problem=problem)
    recommended = _newer(newest(found, prerelease=prerelease), wanted.version)
    early = _newer(newest(found, prerelease=True), recommended or wanted.version)
    return msgspec.structs.replace(told, newest=recommended, prerelease=early)


def _newer(version: str | None, than: str) -> str | None:
    return version if version is not None and precedence(version) > precedence(than) else None


def _facts(entry: Installed) -> ConnectorEntry:
    if entry.pin is None or entry.manifest is None:
        return ConnectorEntry(hash=entry.hash, problem=entry.problem)
    return msgspec.structs.replace(connector_facts(entry.pin, entry.manifest), problem=None)


def _pins(action: ActionFile) -> list[str]:
    return [needed.hash for needed in action.connectors]


def _pins_of_plan(plan: Plan) -> list[str]:
    steps = [*plan.steps, *([plan.preview.step] if plan.preview is not None else [])]
    return [step.connector.hash for step in steps]


def _pins_of_run(snapshot: Snapshot, run_id: str) -> list[str]:
    """Return the connector pins that a run in progress may still need, that is, all pins of its plan."""
    requested = snapshot.events_of(events.RunRequested, EventFilter(run=run_id, limit=1))
    return [step.hash for row in requested for step in row.event.steps]
