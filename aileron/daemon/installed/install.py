"""Installs and records connectors and actions: everything that belongs together, or nothing.

Runs in the daemon. Actions that are installed together with connectors are written last, by one rename each, after their
connectors are in the store. An installation in progress is described in the journal `store/installing.json`, so that the next
daemon can complete or undo it if this daemon is killed in between.

    installing.json written → connectors, one rename each → action files, one rename each → installing.json gone

Rules
- The action files decide: if all of them are in place, the installation is complete; otherwise the files that they replaced are
  put back, new ones are removed, and so are the connectors that were installed for them.
- A connector that was installed before, or that another action is pinned to, is never removed. Neither is an action file that
  was changed since.
- The journal contains the events to record. The next daemon records the events that a killed daemon did not record.

Source: docs/reference/forges.md. Not here: consents (consent_service/consents.py), fetching (fetch.py).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import anyio
import anyio.to_thread
import msgspec

from aileron import files
from aileron.api.actions import AddedAction
from aileron.api.connectors import InstalledConnector
from aileron.api.fetches import Installed
from aileron.audit import events
from aileron.daemon.foundation import Foundation
from aileron.daemon.views import connector_facts
from aileron.model.canonical import sha256_digest
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.manifest import ActionFile
from aileron.model.names import OnConflict
from aileron.model.plan import ConnectorPin
from aileron.registry.artifact import Artifact
from aileron.registry.consent import signature_words
from aileron.registry.install import install
from aileron.registry.program import program_kind
from aileron_sandbox.elf import ElfRuntime
from aileron_sandbox.jail import check_possible
from aileron_sandbox.policy import Profile
from aileron_sandbox.unavailable import JailUnavailable

__all__ = ["ActionText", "FoundConnector", "Installer"]

_MAX_JOURNAL_BYTES: Final = 32 << 20
"""32 MiB: a journal has the replaced action files, of at most 256 KiB each, and the largest service known has 32."""
_log = logging.getLogger(__name__)


class FoundConnector(NamedTuple):
    """A checked connector that is about to be installed, and its source: a path, or NAME@VERSION."""

    artifact: Artifact
    source: str
    on_conflict: OnConflict = "refuse"


class ActionText(NamedTuple):
    """The text of an action file to install. For a fetched action, `fetched` is its source NAME@VERSION, and `published` the text
    that was published.
    """

    text: str
    replace: bool
    fetched: str | None = None
    published: str | None = None


_Noted = events.ConnectorInstalled | events.ConnectorRemoved | events.ActionAdded


class _Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An action file that an installation writes: its name, the digest of its text, and the text that it replaces, or None."""

    name: str
    digest: str
    before: str | None


class _Journal(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The journal of an installation: the action files, in the order in which they are written; the pins that are new; and the
    events to record. `at` is in seconds since the epoch.
    """

    at: float
    actions: tuple[_Written, ...]
    connectors: tuple[ConnectorPin, ...]
    noted: tuple[_Noted, ...]


class Installer:
    """Service that installs connectors and actions. One instance per daemon. The caller ensures that only one change is
    made at a time.
    """

    def __init__(self, base: Foundation) -> None:
        self._base = base
        self._mode: Final = base.settings.now.sandbox_mode
        self._journal: Final = base.home.installing

    async def put_action(self, action: ActionText) -> AddedAction:
        """Install an action file's text. Raises AileronError as ActionStore.add does."""
        return (await self.put_together([], [action])).actions[0]

    async def put_connector(self, found: FoundConnector) -> InstalledConnector:
        """Install a connector. Raises AileronError as registry.install does."""
        return (await self.put_together([found], [])).connectors[0]

    async def put_together(self, connectors: Sequence[FoundConnector], actions: Sequence[ActionText]) -> Installed:
        """Install connectors, and actions that are pinned to them; if anything fails, install nothing. Raises AileronError as
        `put_action`, `put_connector` do.
        """
        with anyio.CancelScope(shield=True):  # a daemon that is told to stop waits: it is milliseconds
            before = {entry.name for entry in await anyio.to_thread.run_sync(self._base.actions.list_actions)}
            journal = await anyio.to_thread.run_sync(self._begin, connectors, actions)
            try:
                put = [await anyio.to_thread.run_sync(self._put_connector, found) for found in connectors]
                for action in actions:
                    await anyio.to_thread.run_sync(self._put_action, action)
                for event in journal.noted:
                    await self._base.audit.note(event)
            except AileronError:
                await self._undo(journal)
                raise
            await anyio.to_thread.run_sync(self._end)
        added = [AddedAction(name=written.name, replaced=written.name in before) for written in journal.actions]
        return Installed(connectors=put, actions=added, bindings=[])

    def check_runs_here(self, artifact: Artifact) -> None:
        """Check that this daemon's jails can run the connector; for a compiled connector, also its machine and libraries. The
        check does not run the connector. Raises AileronError (sandbox_unavailable), so that installation fails and not the
        first run.
        """
        kind = program_kind(artifact.connector)
        profile: Profile = "elf-subprocess" if artifact.manifest.limits.subprocess else kind
        try:
            check_possible(profile, self._mode, is_compiled=kind == "elf")
            if kind == "elf":
                _check_compiled(artifact.connector)
        except JailUnavailable as error:
            raise AileronError(
                FailureClass.SANDBOX_UNAVAILABLE, f"{artifact.pin}: {error}", boundary=Boundary.SANDBOX
            ) from error

    def _put_connector(self, found: FoundConnector) -> InstalledConnector:
        result = install(found.artifact, self._base.connectors, on_conflict=found.on_conflict)
        return InstalledConnector(
            **msgspec.structs.asdict(connector_facts(result.pin, result.manifest)),
            new=result.new,
            replaced=[gone.hash for gone in result.replaced],
            signature=signature_words(found.artifact.signed),
        )

    def _put_action(self, action: ActionText) -> None:
        self._base.actions.add(action.text, replace=action.replace)
        if action.fetched is not None and action.published is not None:
            self._base.published.put(action.fetched, action.published)

    async def recover(self) -> None:
        """Complete or undo the installation that a killed daemon left unfinished. If its action files are in place, record
        the installation; otherwise undo it.
        """
        journal = await anyio.to_thread.run_sync(self._maybe_journal)
        if journal is None:
            return
        if not await anyio.to_thread.run_sync(self._is_in_place, journal):
            names = ", ".join(written.name for written in journal.actions)
            _log.warning("the installation of %s was interrupted; rolling it back", names)
            await self._undo(journal)
            return
        there = {entry.hash for entry in await anyio.to_thread.run_sync(self._base.connectors.list_connectors)}
        for event in journal.noted:
            if _has_happened(event, there) and not await self._base.audit.is_noted(event, journal.at):
                await self._base.audit.note(event)
        await anyio.to_thread.run_sync(self._end)

    def _begin(self, connectors: Sequence[FoundConnector], actions: Sequence[ActionText]) -> _Journal:
        """Write the journal of an installation that is about to begin, and return it. Raises AileronError if the journal cannot
        be written, or an action or a connector cannot be installed.
        """
        there = {entry.pin for entry in self._base.connectors.list_connectors()}
        new = [found for found in connectors if found.artifact.pin not in there]
        gone = [
            events.ConnectorRemoved(connector=pin.name, version=pin.version, hash=pin.hash)
            for found in connectors
            if found.on_conflict == "replace"
            for pin in self._base.connectors.find(found.artifact.manifest.name, found.artifact.pin.version)
            if pin != found.artifact.pin
        ]
        parsed = [self._base.actions.check_addable(action.text, replace=action.replace) for action in actions]
        journal = _Journal(
            at=time.time(),
            actions=tuple(map(self._written, parsed)),
            connectors=tuple(found.artifact.pin for found in new),
            noted=(*map(_installed, new), *gone, *map(_added, parsed, actions)),
        )
        data = msgspec.json.encode(journal)
        if len(data) > _MAX_JOURNAL_BYTES:
            raise AileronError(
                FailureClass.INVALID_REQUEST,
                f"the actions to install and those that they replace have more than {_MAX_JOURNAL_BYTES >> 20} MiB: install "
                "some of them first",
                boundary=Boundary.ACTION,
            )
        files.make_directory(self._journal.parent)
        with files.open_directory(self._journal.parent, files.OTHERS_MAY_WRITE) as directory:
            files.replace(directory, self._journal, data)
        return journal

    def _written(self, action: ActionFile) -> _Written:
        here = self._base.actions.maybe_load(action.name)
        return _Written(name=action.name, digest=action.digest, before=None if here is None else here.text)

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
        except msgspec.MsgspecError as error:  # written by one rename: only another program damages it
            _log.error("%s was changed (%s): nothing is rolled back", self._journal, error)
            return None

    def _is_in_place(self, journal: _Journal) -> bool:
        return all(self._is_written(action) for action in journal.actions)

    def _is_written(self, written: _Written) -> bool:
        here = self._base.actions.maybe_load(written.name)
        return here is not None and here.digest == written.digest

    async def _undo(self, journal: _Journal) -> None:
        """Undo the action files in the journal, and remove its new connectors that no action is pinned to. Then remove the
        journal.
        """
        await anyio.to_thread.run_sync(self._undo_actions, journal.actions)
        for pin in await anyio.to_thread.run_sync(self._unneeded, journal.connectors):
            await anyio.to_thread.run_sync(self._base.connectors.remove, pin)
            await self._base.audit.note(events.ConnectorRemoved(connector=pin.name, version=pin.version, hash=pin.hash))
        await anyio.to_thread.run_sync(self._end)

    def _undo_actions(self, actions: Sequence[_Written]) -> None:
        """Put back the texts that these action files replaced, and remove the new files. A file that was never written, or
        that was changed since, stays as it is.
        """
        for written in actions:
            if not self._is_written(written):
                continue
            if written.before is None:
                self._base.actions.remove(written.name)
            else:
                self._base.actions.add(written.before, replace=True)

    def _unneeded(self, pins: Sequence[ConnectorPin]) -> list[ConnectorPin]:
        needed = {
            connector.hash
            for entry in self._base.actions.list_actions()
            if entry.action
            for connector in entry.action.connectors
        }
        there = {entry.hash for entry in self._base.connectors.list_connectors()}
        return [pin for pin in pins if pin.hash in there and pin.hash not in needed]


def _has_happened(event: _Noted, there: Collection[str]) -> bool:
    """Return whether the change that a connector event describes has happened; `there` are the hashes of the connectors in
    the store. Return True for other events, because the caller has already checked the action file.
    """
    match event:
        case events.ConnectorInstalled():
            return event.hash in there
        case events.ConnectorRemoved():
            return event.hash not in there
        case _:
            return True


def _added(parsed: ActionFile, action: ActionText) -> events.ActionAdded:
    published = None if action.published is None else sha256_digest(action.published.encode())
    return events.ActionAdded(
        action=parsed.name, version=parsed.version, digest=parsed.digest, source=parsed.source, published=published
    )


def _installed(found: FoundConnector) -> events.ConnectorInstalled:
    pin, manifest = found.artifact.pin, found.artifact.manifest
    return events.ConnectorInstalled(
        connector=pin.name,
        version=pin.version,
        hash=pin.hash,
        source=found.source,
        signature=signature_words(found.artifact.signed),
        hosts=list(map(str, manifest.hosts)),
        credential=None if manifest.credential is None else manifest.credential.kind,
    )


def _check_compiled(program: bytes) -> None:
    with open(os.memfd_create("connector", os.MFD_CLOEXEC), "w+b") as file:
        file.write(program)
        file.flush()
        ElfRuntime.of_program(file.fileno())
