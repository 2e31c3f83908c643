"""Connectors and actions put in their places and on record: all of what belongs together, or nothing of it.

Runs in the daemon. An action that comes with connectors is written last, by one rename; what it needs lies in the store before.
What is under way stands in `store/installing.json` meanwhile, so that a daemon that was killed in between leaves nothing behind
that the next one does not take back.

    installing.json written → connectors, one rename each → action file, one rename → installing.json gone

Rules
- What the action file says decides: is it in its place, everything is, and else the connectors that came for it go again.
- A connector that was there before, or that another action is pinned to, never goes.

Source: docs/reference/forges.md. Not here: whether a person agreed (consents.py), fetching (fetching.py).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import anyio
import anyio.to_thread
import msgspec

from aileron import files
from aileron.actions.store import ActionStore
from aileron.audit import events
from aileron.audit.log import Audit
from aileron.config import Home
from aileron.daemon.shown import connector_facts
from aileron.model.canonical import sha256_digest
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.plan import ConnectorPin
from aileron.registry.artifact import Artifact
from aileron.registry.consent import signature_words
from aileron.registry.content import ContentStore
from aileron.registry.install import InstallResult, OnConflict, install
from aileron.registry.program import program_kind
from aileron.registry.staging import PublishedTexts
from aileron_sandbox.elf import ElfRuntime
from aileron_sandbox.ending import JailUnavailable

__all__ = ["ActionText", "Found", "Installing", "check_runs_here"]

_MAX_JOURNAL_BYTES: Final = 1 << 20
_log = logging.getLogger(__name__)


class Found(NamedTuple):
    """A checked connector, and where it was found: a path, or NAME@VERSION."""

    artifact: Artifact
    source: str
    on_conflict: OnConflict = "refuse"


class ActionText(NamedTuple):
    """An action file to be put in its place; of a fetched one also what was published, and as what."""

    text: str
    replace: bool
    fetched: str | None = None
    published: str | None = None


class _Journal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is being installed: the action's name and the digest of its text; the pins that come for it, and were not there."""

    action: str
    digest: str
    connectors: tuple[ConnectorPin, ...]


class Installing:
    """One for each daemon. Its holder sees that one change is made at a time."""

    def __init__(
        self, home: Home, *, actions: ActionStore, connectors: ContentStore, published: PublishedTexts, audit: Audit
    ) -> None:
        self._actions = actions
        self._connectors = connectors
        self._published = published
        self._audit = audit
        self._journal: Final = home.installing

    async def put_action(self, action: ActionText) -> dict[str, Any]:
        """Install an action file's text. AileronError as ActionStore.add."""
        before = {entry.name for entry in await anyio.to_thread.run_sync(self._actions.list_actions)}
        put = await anyio.to_thread.run_sync(lambda: self._actions.add(action.text, replace=action.replace))
        digest = None if action.published is None else sha256_digest(action.published.encode())
        await self._audit.note(
            events.ActionAdded(
                action=put.name, version=put.version, digest=put.digest, source=put.source, published=digest
            )
        )
        if action.fetched is not None and action.published is not None:
            await anyio.to_thread.run_sync(self._published.put, action.fetched, action.published)
        return {"name": put.name, "replaced": put.name in before}

    async def put_connector(self, found: Found) -> dict[str, Any]:
        """Install a connector. AileronError as registry.install."""
        result = await anyio.to_thread.run_sync(
            lambda: install(found.artifact, self._connectors, on_conflict=found.on_conflict)
        )
        if result.new:
            await self._audit.note(_installed(result, found))
        for gone in result.replaced:
            await self._note_removed(gone)
        replaced = [gone.hash for gone in result.replaced]
        facts = {**connector_facts(result.pin, result.manifest), "new": result.new, "replaced": replaced}
        return {**facts, "signature": signature_words(found.artifact.signed)}

    async def put_together(self, connectors: Sequence[Found], action: ActionText) -> dict[str, Any]:
        """Install an action with the connectors that come for it, or nothing. AileronError as the two above."""
        with anyio.CancelScope(shield=True):  # a daemon that is told to stop waits: it is milliseconds
            new = await anyio.to_thread.run_sync(self._begin, connectors, action)
            try:
                put = [await self.put_connector(found) for found in connectors]
                result = await self.put_action(action)
            except AileronError:
                await self._undo(new)
                raise
            await anyio.to_thread.run_sync(self._end)
        return {"connectors": put, "action": result}

    async def recover(self) -> None:
        """After a daemon that was killed: take back what came for an action that is not in its place."""
        journal = await anyio.to_thread.run_sync(self._maybe_journal)
        if journal is None:
            return
        if await anyio.to_thread.run_sync(self._is_in_place, journal):
            await anyio.to_thread.run_sync(self._end)
            return
        _log.warning("the installation of %s was cut short: what came for it is taken back", journal.action)
        await self._undo(journal.connectors)

    def _begin(self, connectors: Sequence[Found], action: ActionText) -> tuple[ConnectorPin, ...]:
        there = {entry.pin for entry in self._connectors.list_connectors()}
        new = tuple(found.artifact.pin for found in connectors if found.artifact.pin not in there)
        name = self._actions.check_addable(action.text, replace=action.replace).name
        journal = _Journal(name, sha256_digest(action.text.encode()), new)
        files.make_directory(self._journal.parent)
        with files.open_directory(self._journal.parent, files.OTHERS_MAY_WRITE) as directory:
            files.replace(directory, self._journal, msgspec.json.encode(journal))
        return new

    def _end(self) -> None:
        with files.translated(self._journal, "cannot be removed"):
            self._journal.unlink(missing_ok=True)

    def _maybe_journal(self) -> _Journal | None:
        try:
            with files.open_directory(self._journal.parent, files.OTHERS_MAY_WRITE) as directory:
                data = files.read(directory, self._journal, _MAX_JOURNAL_BYTES)
            return msgspec.json.decode(data, type=_Journal)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:  # written by one rename: nobody but somebody else makes it so
            _log.error("%s is not as it was written (%s): nothing is taken back", self._journal, error)
            return None

    def _is_in_place(self, journal: _Journal) -> bool:
        return any(
            entry.action is not None and entry.action.digest == journal.digest
            for entry in self._actions.list_actions()
            if entry.name == journal.action
        )

    async def _undo(self, pins: Sequence[ConnectorPin]) -> None:
        """Those of `pins` that nothing needs go; then nothing is under way any more."""
        for pin in await anyio.to_thread.run_sync(self._unneeded, pins):
            await anyio.to_thread.run_sync(self._connectors.remove, pin)
            await self._note_removed(pin)
        await anyio.to_thread.run_sync(self._end)

    def _unneeded(self, pins: Sequence[ConnectorPin]) -> list[ConnectorPin]:
        needed = {one.hash for entry in self._actions.list_actions() if entry.action for one in entry.action.connectors}
        there = {entry.hash for entry in self._connectors.list_connectors()}
        return [pin for pin in pins if pin.hash in there and pin.hash not in needed]

    async def _note_removed(self, pin: ConnectorPin) -> None:
        await self._audit.note(events.ConnectorRemoved(connector=pin.name, version=pin.version, hash=pin.hash))


def _installed(result: InstallResult, found: Found) -> events.ConnectorInstalled:
    pin, manifest = result.pin, result.manifest
    return events.ConnectorInstalled(
        connector=pin.name,
        version=pin.version,
        hash=pin.hash,
        source=found.source,
        signature=signature_words(found.artifact.signed),
        hosts=list(map(str, manifest.hosts)),
        credential=None if manifest.credential is None else manifest.credential.kind,
    )


def check_runs_here(artifact: Artifact) -> None:
    """AileronError(sandbox_unavailable) for a compiled program of another machine, or in want of a library: said now, not at
    the first run. Nothing of it is run.
    """
    if program_kind(artifact.connector) != "elf":
        return
    with open(os.memfd_create("connector", os.MFD_CLOEXEC), "w+b") as file:
        file.write(artifact.connector)
        file.flush()
        try:
            ElfRuntime.of_program(file.fileno())
        except JailUnavailable as error:
            raise AileronError(
                FailureClass.SANDBOX_UNAVAILABLE, f"{artifact.pin}: {error}", boundary=Boundary.SANDBOX
            ) from error
