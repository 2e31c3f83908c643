"""The vault service: create, unlock, lock, rotate, back up and restore the vault. Each of these is recorded.

Runs in the daemon, one per daemon. Calls with a passphrase derive a key in a worker thread; the home's one lock serialises the
changes. The record has the vault's generation, so that an older file in the vault's place is detected when it is opened, even
by a daemon that has just started. An idle vault locks itself if the settings say so.

Rules
- Every attempt to open the vault, or to prove the passphrase, is recorded, but never the typed text.
- A vault that was opened counts as locked until the record confirms that it is the newest.
- With an approver, no copy is restored that would bring back earlier consents.
- The vault's generation is recorded in the background soon after each change; several changes at once are one event. If the
  daemon is killed in between, the record is one change behind, and so a vault file that is one change behind would be accepted.
- Idle time is measured by a clock that counts suspend time.

Source: docs/reference/vault-format.md, docs/how-to/back-up-the-vault.md. Not here: secrets
(secret_store.py), bindings (credentials.py), authorization (http/).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from aileron.api.secrets import RestoredVault, VaultBackup, VaultState
from aileron.audit import events
from aileron.audit.checkpoints import VaultCheckpoint, vault_checkpoints
from aileron.audit.log import Audit
from aileron.audit.rollback import rolled_back
from aileron.config import LiveSettings
from aileron.daemon.consent_service.approver import ApproverState
from aileron.ledger.sqlite import Ledger
from aileron.model.consent import Consents
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.secret import Secret
from aileron.model.timestamp import utc
from aileron.vault.copies import read_copy, write_copy
from aileron.vault.slots import KeyringKey, Way
from aileron.vault.vault import Restored, Vault, VaultCopy

__all__ = ["Opening", "VaultService"]

LOOK_S: Final = 60.0
"""Maximum number of seconds between two checks whether the vault has been idle for too long, because the deadline may have passed
while the machine was suspended.
"""
_AGAIN_S: Final = 5.0
"""Seconds until the next attempt to record a change that could not be written to the ledger: a full disk is unlikely to
have space again sooner.
"""
_log = logging.getLogger(__name__)


class Opening(msgspec.Struct, frozen=True):
    """A secret that a person gave to open the vault: a typed passphrase or recovery code, or a key from a keyring."""

    secret: Secret
    is_from_keyring: bool = False


class VaultService:
    """Service that opens, locks, rotates, backs up and restores the vault of a home. `changing` is the lock held during every
    change to this home. `locked` is called after the vault was locked.
    """

    def __init__(
        self,
        vault: Vault,
        *,
        ledger: Ledger,
        audit: Audit,
        approver: ApproverState,
        changing: anyio.Lock,
        settings: LiveSettings,
        locked: Callable[[], None] = lambda: None,
    ) -> None:
        self._vault = vault
        self._ledger = ledger
        self._audit = audit
        self._approver = approver
        self._changing = changing
        self._settings = settings
        self._locked = locked
        self._opened = anyio.Event()
        self._changed = anyio.Event()
        self._noted: VaultCheckpoint | None = None
        self._taken_back: dict[str, float] = {}
        """Signed approvals that were withdrawn while the vault was locked, by the question's id, each with the time until which
        it could be used. There are at most as many as there may be questions. If the daemon ends before the vault is opened,
        only the ledger has them.
        """

    def status(self) -> VaultState:
        """Return whether the vault exists, whether it is locked, how much it contains, and when it locks itself."""
        ends, lock_after_s = None, self._settings.now.vault_lock_after_s
        if lock_after_s is not None and not self._vault.is_locked:
            ends = utc(time.time() + self._idle_left_s())
        facts = self._vault.status()
        return VaultState(
            exists=facts.exists,
            locked=facts.locked,
            secrets=facts.secrets,
            bindings=facts.bindings,
            format=facts.format,
            generation=facts.generation,
            recovery_codes=facts.recovery_codes,
            keyring=facts.keyring,
            lock_after_s=lock_after_s,
            locks_at=ends,
        )

    async def create(
        self, passphrase: Secret, *, recovery_codes: bool, keyring: KeyringKey | None
    ) -> tuple[Secret, ...]:
        """Create the vault and leave it unlocked. Return its recovery codes, which cannot be shown again.

        Raises AileronError as Vault.create does.
        """
        async with self._changing:
            codes = await anyio.to_thread.run_sync(
                lambda: self._vault.create(passphrase, recovery_codes=recovery_codes, keyring=keyring)
            )
            mark = self._at()
            await self._audit.note(events.VaultCreated(vault=mark.vault, generation=mark.generation))
            self._is_open(mark)
            return codes

    async def unlock(self, opening: Opening) -> None:
        """Unlock the vault; each attempt is recorded. Raises AileronError (hash_mismatch) if the record names a newer vault, or
        if the vault is open and another file is in its place.
        """
        async with self._changing:
            await self._unlock(opening)

    async def _unlock(self, opening: Opening) -> None:
        async with self._recording_failure():
            if self._vault.is_locked:
                with self._approver.in_doubt():
                    way = await self._newly_opened(opening)
            else:  # only checked: a vault in use is never replaced by another
                way = await anyio.to_thread.run_sync(lambda: self._looked_at(opening))
        mark = self._at()
        await self._audit.note(events.VaultUnlocked(way=way, vault=mark.vault, generation=mark.generation))
        self._is_open(mark)

    async def lock(self, reason: str = "asked") -> None:
        """Lock the vault by forgetting its key."""
        async with self._changing:
            await self._lock(reason)

    async def _lock(self, reason: str) -> None:
        self._vault.lock()
        self._locked()
        await self._audit.note(events.VaultLocked(reason=reason))

    async def rotate(
        self, typed: Secret, passphrase: Secret, *, recovery_codes: bool, keyring: KeyringKey | None
    ) -> tuple[Secret, ...]:
        """Replace the vault's passphrase and key. Return the new recovery codes. The vault is unlocked afterwards. Raises
        AileronError as Vault.rotate and `unlock` do; after an error, the vault is locked or unlocked as before.
        """
        async with self._changing:
            was_locked = self._vault.is_locked
            if was_locked:
                await self._unlock(Opening(typed))
            try:
                async with self._recording_failure():
                    rotated = await anyio.to_thread.run_sync(
                        lambda: self._vault.rotate(typed, passphrase, recovery_codes=recovery_codes, keyring=keyring)
                    )
            except BaseException:
                if was_locked:
                    self._vault.lock()
                raise
            mark = self._at()
            await self._audit.note(events.VaultRotated(vault=mark.vault, generation=mark.generation, way=rotated.way))
            self._is_open(mark)
            return rotated.codes

    async def backup(self, file: str, typed: Secret | None, *, replace: bool) -> VaultBackup:
        """Write a verified copy of the encrypted vault file to `file`. While the vault is locked, this requires the vault's
        passphrase. Raises AileronError as Vault.backup and the functions of vault/copies.py do.
        """
        path = Path(file)
        async with self._changing:
            if typed is None:
                self._vault.check_unlocked()
            async with self._recording_failure():
                copy = await anyio.to_thread.run_sync(lambda: self._vault.backup(typed))
            await self._check_on_record(copy.mark.vault, copy.mark.generation)
            await anyio.to_thread.run_sync(lambda: write_copy(path, copy.data, replace=replace, vault=self._vault.path))
            await self._audit.note(
                events.VaultBackedUp(vault=copy.mark.vault, generation=copy.mark.generation, file=str(path))
            )
            return VaultBackup(file=str(path), generation=copy.mark.generation)

    async def restore(self, file: str, typed: Secret) -> RestoredVault:
        """Replace the vault file with a copy, after checking that the copy is complete, and lock the vault. The earlier file is
        kept in the same directory.

        Raises AileronError as Vault.copy and `put_back` do, and (consent_required) for a copy that would bring back earlier
        consents.
        """
        path = Path(file)
        data = await anyio.to_thread.run_sync(read_copy, path)  # as slow as the disk that a person named
        async with self._changing:
            async with self._recording_failure():
                copy = await anyio.to_thread.run_sync(lambda: self._vault.copy(data, typed, str(path)))
            try:
                await self._check_restorable(copy)
                found = await self._put_back(copy, str(path))
            finally:
                copy.wipe()
            aside = None if found.aside is None else str(found.aside)
            return RestoredVault(**msgspec.structs.asdict(self.status()), file=str(path), aside=aside)

    async def _put_back(self, copy: VaultCopy, file: str) -> Restored:
        known = await vault_checkpoints(self._ledger)
        above = max((mark.generation for mark in known), default=0)
        intent = VaultCheckpoint(copy.mark.vault, max(above, copy.mark.generation) + 1)
        await self._audit.note(events.VaultRestoring(vault=intent.vault, generation=intent.generation, file=file))
        was_locked = self._vault.is_locked
        found = await anyio.to_thread.run_sync(lambda: self._vault.put_back(copy, above))
        self._noted = VaultCheckpoint(found.vault, found.generation)
        await self._audit.note(
            events.VaultRestored(
                vault=found.vault,
                generation=found.generation,
                file=file,
                aside=None if found.aside is None else str(found.aside),
            )
        )
        self._locked()
        if not was_locked:
            await self._audit.note(events.VaultLocked(reason="restored"))
        return found

    async def take_back(self, approval_id: str, until: float) -> None:
        """Invalidate the signed decision about the question `approval_id`, which could be used until `until`. While the
        vault is locked, remember this until the vault can be written.
        """
        if self._vault.is_locked:
            self._taken_back[approval_id] = until
        else:
            await self._approver.spend_decision(approval_id, until)

    async def serve(self) -> None:
        """Record the vault's generation after changes, and lock the vault when it is idle. Runs until cancelled."""
        loop = asyncio.get_running_loop()

        def changed() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended: its owner notes the rest
                loop.call_soon_threadsafe(self._wake)

        self._vault.tell_changes(changed)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._note_on_change)
            tasks.start_soon(self._lock_when_idle)

    async def note_change(self) -> None:
        """Record the vault's generation in the ledger, unless it is already recorded. Raises AileronError if the ledger
        cannot be written.
        """
        seen = self._vault.seen
        if seen is None:
            return
        mark = VaultCheckpoint(seen.vault, seen.generation)
        if self._noted is None or mark.vault != self._noted.vault or mark.generation > self._noted.generation:
            await self._audit.note(events.VaultChanged(vault=mark.vault, generation=mark.generation))
            self._noted = mark

    # Internals

    def _wake(self) -> None:
        self._changed.set()

    async def _note_on_change(self) -> None:
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            try:
                async with self._changing:  # a change may record an event of its own
                    await self.note_change()
            except AileronError as error:
                _log.warning("how far the vault has come could not be put on record: %s", error)
                self._changed.set()
                await anyio.sleep(_AGAIN_S)

    async def _lock_when_idle(self) -> None:
        while True:
            await self._opened.wait()
            while not self._vault.is_locked:
                if (left_s := self._idle_left_s()) > 0:
                    await anyio.sleep(min(left_s, LOOK_S))
                    continue
                async with self._changing:
                    if not self._vault.is_locked and self._idle_left_s() <= 0:
                        try:
                            await self._lock("idle")
                        except AileronError as error:  # it is locked, but not on record
                            _log.warning("the vault was locked, and that could not be put on record: %s", error)
            self._opened = anyio.Event()

    def _idle_left_s(self) -> float:
        lock_after_s = self._settings.now.vault_lock_after_s
        return math.inf if lock_after_s is None else lock_after_s - self._vault.idle_s

    def _is_open(self, mark: VaultCheckpoint) -> None:
        self._noted = mark
        self._opened.set()

    def _at(self) -> VaultCheckpoint:
        seen = self._vault.seen
        assert seen is not None, "the vault was opened"
        return VaultCheckpoint(seen.vault, seen.generation)

    def _looked_at(self, opening: Opening) -> Way:
        if opening.is_from_keyring:
            self._vault.check_opens_with_keyring(opening.secret)
            return "keyring"
        return self._vault.check_opens(opening.secret)

    def _open(self, opening: Opening) -> Way:
        if opening.is_from_keyring:
            self._vault.unlock_with_keyring(opening.secret)
            return "keyring"
        return self._vault.unlock(opening.secret)

    async def _newly_opened(self, opening: Opening) -> Way:
        way = await anyio.to_thread.run_sync(lambda: self._open(opening))
        try:
            await self._check_newest()
        except BaseException:
            self._vault.lock()
            raise
        while self._taken_back:  # before any approved run begins
            await self._spend(*self._taken_back.popitem())
        return way

    async def _spend(self, approval_id: str, until: float) -> None:
        with contextlib.suppress(AileronError):  # used or withdrawn before
            await self._approver.spend_decision(approval_id, until)

    async def _check_newest(self) -> None:
        consents, mark = self._vault.consents(), self._at()
        if consents is not None and (how := await rolled_back(self._ledger, consents)) is not None:
            raise AileronError(
                FailureClass.HASH_MISMATCH,
                f"this home's vault was replaced by an older one: {how}. Restore the newest; if there is none, "
                "move ledger.db away with it, and a new record begins",
                boundary=Boundary.USER,
            )
        await self._check_on_record(mark.vault, mark.generation)

    async def _check_on_record(self, vault: str, generation: int) -> None:
        marks = await vault_checkpoints(self._ledger)
        if not marks or any(mark.allows(vault, generation) for mark in marks):
            return
        path, known = self._vault.path, marks[0]
        if known.vault == vault:
            what = (
                f"{path} was replaced by an older copy (generation {generation}; the record knows {known.generation})"
            )
        else:
            what = f"{path} is another vault than the one on record"
        raise AileronError(
            FailureClass.HASH_MISMATCH,
            f"{what}: restore the newest one; if you want this one, run `aileron vault restore {path}`",
            boundary=Boundary.USER,
            details={"file": str(path)},
        )

    async def _check_restorable(self, copy: VaultCopy) -> None:
        """Check that a copy is not older than the recorded consents, because an older copy would make revoked permissions valid
        again.
        """
        consents: Consents | None = copy.consents
        if consents is not None:
            how = await rolled_back(self._ledger, consents)
        elif await self._audit.has_approver():
            how = "it names no approver, but the record names one"
        else:
            how = None
        if how is not None:
            raise AileronError(
                FailureClass.CONSENT_REQUIRED,
                f"nothing was replaced: this copy would undo later approvals ({how}). Restore a newer one; if "
                "there is none, stop the daemon, move ledger.db away and restore this one: a new record then "
                "begins",
                boundary=Boundary.USER,
            )

    @contextlib.asynccontextmanager
    async def _recording_failure(self) -> AsyncIterator[None]:
        """Record the failure class if the block, an attempt to open the vault or to prove the passphrase, fails."""
        try:
            yield
        except AileronError as error:
            # A new passphrase that is too short is no attempt.
            if error.failure.failure_class is not FailureClass.BAD_INPUT:
                await self._audit.note(events.VaultUnlockFailed(failure_class=error.failure.failure_class))
            raise
