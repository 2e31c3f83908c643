"""The vault in the daemon: one object for one file. The vault is locked or open.

Runs in the daemon, one for each home; the daemon alone writes the file. All information that may be shown without a passphrase
(names, dates, bindings) is also available while the vault is locked. It then comes from the unverified file. While the vault
is open, it comes from verified memory, whatever happens to the file.

Rules
- A call that needs the key while the vault is locked raises `vault_locked` with the command that opens the vault.
- A file that cannot be verified causes `hash_mismatch`, like any other bytes that differ from those that were written. (The
  exit code is 9 and not 6, because a wrong passphrase can be typed again, but a damaged vault needs its backup.) A wrong
  passphrase causes `unauthorized`, and a change in the slot itself cannot be distinguished from a wrong passphrase.
- A file that is older than one that this process has seen is refused, whether the vault is open or locked. After a restart
  of the daemon, the vault alone cannot detect an older file. A caller that stores `seen` can (daemon/secrets/vault.py).
- A change is on disk, flushed, before it is in memory and before the call returns.
- A copy that replaces the complete vault (`put_back`) was completely verified first, and gets a later generation than
  every earlier file. The replaced file remains in the same directory under another name.

Threads: every method may be called from any thread. Methods with a passphrase take at least a tenth of a second, and every
change waits for the disk, so these methods must be called in a worker thread. All other methods are quick and never wait for
them, so they can be called in the event loop. There are two locks, which are always acquired in this order. `_changing` is
held during derivations and I/O, so that only one of these runs at a time (memory for one Argon2, not for forty). `_using` is
held only during the cryptography, so that no key is wiped while it is in use. That takes microseconds, or a tenth of a second
for a change to a vault of maximum size.

Source: docs/reference/vault-format.md, docs/adr/0005-vault-format.md. Not here: lending for a request (lend.py).

>>> vault = Vault(Path("/nonexistent/vault.json"))
>>> vault.status().exists, vault.is_locked, vault.candidates("github://o/r", "basic")
(False, True, [])
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, NoReturn, TypeVar

import msgspec

from aileron.model.client_certificate import CertificateError, ClientCertificate
from aileron.model.clock import since_boot
from aileron.model.consent import Consents
from aileron.model.credential import Candidate, OAuthGrant, TokenSet
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.names import BindingName
from aileron.model.plan import CredentialUse
from aileron.model.secret import Secret
from aileron.model.secret_reference import Elsewhere
from aileron.vault import opened
from aileron.vault.bindings import Binding, candidates
from aileron.vault.contents import (
    MAX_GENERATION,
    Contents,
    ContentsError,
    SecretEntry,
    SecretInfo,
    UnknownFormatError,
    decode,
    encode,
)
from aileron.vault.envelope import KEY_BYTES, EnvelopeError
from aileron.vault.file import LockedFile, VaultFile
from aileron.vault.opened import Mark, Opened
from aileron.vault.recovery import MistypedError, generate
from aileron.vault.sendable import KEPT_S, Bound, Own, Replaced, Sendables, could_reach, newest, replaced
from aileron.vault.slots import MAX_OTHERS, KeyringKey, KeyringSlot, PassphraseSlot, RecoverySlot, Unlockers, Way
from aileron.vault.unchanged import check_still_bound

__all__ = ["RECOVERY_CODES", "Restored", "Rotated", "SealedCopy", "Vault", "VaultCopy", "VaultFacts"]

RECOVERY_CODES: Final = 4  # for two or three places, and one to lose; more papers would not be found again
assert RECOVERY_CODES < MAX_OTHERS

_MOST_UNSEEN: Final = 1_000_000  # changes without a record up to which the generation that a file states is believed
_MOST_HOSTS: Final = 256  # hosts for which it is cached whether something is bound for them; the same as in opened.py
_NOTHING_SENT: Final = Sendables(())
_ID: Final = re.compile(r"[0-9a-f]{32}")
_T = TypeVar("_T")
MIN_PASSPHRASE_BYTES: Final = 8  # NIST SP 800-63B asks for this much; against offline guessing only length helps
MAX_PASSPHRASE_BYTES: Final = 1024  # a line, not a file given by mistake


class VaultCopy:
    """A completely verified copy of a vault, with the copy's key. The owner of this object must call `wipe`."""

    def __init__(self, opened: Opened) -> None:
        self._opened: Final = opened

    @property
    def mark(self) -> Mark:
        """The id of the vault that was copied, and the generation and seal that it had when it was copied."""
        return self._opened.mark

    @property
    def consents(self) -> Consents | None:
        """The approver and their consents in the copy; None if it has no approver."""
        return self._opened.contents.consents

    def at_generation(self, generation: int) -> Opened:
        """Return the copy's contents with this generation, to replace the vault. Raises AileronError(invalid_request) for a
        generation that no file can have.
        """
        if generation > MAX_GENERATION:
            message = "the record knows of more changes than a vault can have: move ledger.db away, and it begins anew"
            raise AileronError(FailureClass.INVALID_REQUEST, message, boundary=Boundary.USER)
        return self._opened.at_generation(generation)

    def wipe(self) -> None:
        """Overwrite the data key of this copy of a vault in memory, so that the copy cannot be used any longer."""
        self._opened.wipe()


class VaultFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a vault that are known without opening it. `format` and `generation` are None if there is no file.

    `keyring` is the name of the vault's key in the system's keyring, or None if the keyring has no key for the vault.
    """

    exists: bool
    locked: bool
    secrets: int
    bindings: int
    format: int | None
    generation: int | None
    recovery_codes: int
    keyring: str | None


class SealedCopy(msgspec.Struct, frozen=True):
    """A copy of a vault as the encrypted bytes of its file, and the state of the vault in it."""

    data: bytes
    mark: Mark


class Rotated(msgspec.Struct, frozen=True):
    """The result of a rotation of the vault's key: the way (passphrase or recovery code) that authorized it, and the
    new recovery codes.
    """

    way: Way
    codes: tuple[Secret, ...]


class Restored(msgspec.Struct, frozen=True):
    """The result of a restore: the vault's id, its generation, and the path of the file that was replaced."""

    vault: str
    generation: int
    aside: Path | None


class _Reached(NamedTuple):
    """Cache of `Vault.may_be_bound`: for each host, whether the secret of a binding in `now` or `last` could have been
    sent to it.
    """

    now: tuple[Binding, ...]
    last: tuple[Bound, ...]
    hosts: dict[str, bool]


class Vault:
    """The vault at `path`. Creating this object reads nothing. The vault is locked at first, and its file need not exist yet."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._file: Final = VaultFile(path)
        self._clock: Final = clock
        self._changing: Final = threading.Lock()
        self._using: Final = threading.Lock()
        # Replaced as one reference and never changed in place: readers need no lock, only users of the key do.
        self._opened: Opened | None = None
        self._seen: Mark | None = None
        self._changed: Callable[[], None] = _nobody
        self._forget: Callable[[], None] = _nobody
        self._used_at = since_boot()
        self._times_locked = 0
        self._before: tuple[Replaced, ...] = ()
        """Records of bindings that ended or changed recently. To set it, hold the lock `_using`."""
        self._bound_last: tuple[Bound, ...] = ()
        """The bindings of the vault when it was last open, and the bindings in vault files that were replaced since
        then.

        No binding is removed from this list because of an unverified file, or because another vault replaced the file.
        """
        self._reached = _Reached((), (), {})
        self._own: tuple[Binding, ...] = ()
        self._said_last: tuple[tuple[int, int, int], tuple[Binding, ...], tuple[Binding, ...]] | None = None
        """Cache of `_said`: inode, modification time and size of the locked vault's file, `_own`, and the bindings in
        the file and in `_own`.
        """

    def tell_changes(self, changed: Callable[[], None]) -> None:
        """Set a function that is called after each change of the vault from now on, in the thread that made the change."""
        self._changed = changed

    def tell_ends(self, forget: Callable[[], None]) -> None:
        """Set a function that is called each time after the vault was locked or changed, in the thread that locked or
        changed it.

        `forget` is for callers that store data derived from a secret. It must be quick, and raise nothing.
        """
        self._forget = forget

    @property
    def path(self) -> Path:
        """Path of the vault's file, even if it does not exist."""
        return self._file.path

    @property
    def idle_s(self) -> float:
        """Seconds since the latest of these events: a secret was lent, the vault was changed, the vault was opened.
        Time in suspend counts.
        """
        return since_boot() - self._used_at

    @property
    def seen(self) -> Mark | None:
        """The state of the vault that this process verified last, or None if the vault was never open."""
        return self._seen

    @property
    def exists(self) -> bool:
        """True if the vault's file exists."""
        return self._file.exists

    @property
    def is_locked(self) -> bool:
        """True while the vault's key is not in memory."""
        return self._opened is None

    @property
    def times_locked(self) -> int:
        """Number of times that the key was removed from memory, for callers that hold data which they must drop
        together with the key.
        """
        return self._times_locked

    def status(self) -> VaultFacts:
        """Return the facts about the vault that are known without opening it."""
        contents = self._contents()
        slots = contents.slots if contents else ()
        return VaultFacts(
            exists=self.exists,
            locked=self.is_locked,
            secrets=len(contents.secrets) if contents else 0,
            bindings=len(contents.bindings) if contents else 0,
            format=contents.format if contents else None,
            generation=contents.generation if contents else None,
            recovery_codes=sum(isinstance(slot, RecoverySlot) for slot in slots),
            keyring=next((slot.id for slot in slots if isinstance(slot, KeyringSlot)), None),
        )

    def create(
        self, passphrase: Secret, *, recovery_codes: bool = False, keyring: KeyringKey | None = None
    ) -> tuple[Secret, ...]:
        """Create an empty vault and leave it open. Return the recovery codes, if requested. Raises AileronError (bad_input)
        for an unsuitable passphrase or keyring key, (invalid_request) if a vault already exists.

        The directory is created if it is missing, with mode 0700. Takes as long as `unlock`.
        """
        ways = _ways(passphrase, recovery_codes=recovery_codes, keyring=keyring)
        with self._changing:
            self._file.make_directory()
            with self._changed_file() as change:
                if change.maybe_read() is not None:
                    message = f"{self._file.path} already exists; open it with `aileron vault unlock`"
                    raise AileronError(FailureClass.INVALID_REQUEST, message, boundary=Boundary.USER)
                with _wiped_on_failure(opened.create(ways)) as new:
                    change.replace(encode(new.contents))
            self._keep(new)
        return ways.recovery

    def unlock(self, typed: Secret) -> Way:
        """Open the vault with its passphrase or a recovery code (`typed`), until `lock` is called. Return which of the
        two was used.

        Raises AileronError(unauthorized) if `typed` is neither; the vault then stays as it was.

        If the vault is already open, `typed` is checked nevertheless, and the file is read again.
        """
        with self._changing:
            new, way = self._unlocked(self._required_file(), typed)
            self._opened_anew(new)
            return way

    def unlock_with_keyring(self, key: Secret) -> None:
        """Open the vault with the key from a keyring, until `lock` is called. Raises the same errors as `unlock`, and
        AileronError(invalid_request) if the vault has no keyring slot.
        """
        with self._changing:
            self._opened_anew(self._unlocked_with_keyring(self._required_file(), key))

    def rotate(
        self, typed: Secret, passphrase: Secret, *, recovery_codes: bool = False, keyring: KeyringKey | None = None
    ) -> Rotated:
        """Give the open vault a new passphrase and a new data key, with which every secret is encrypted anew. `typed`
        is its present passphrase or a recovery code.

        Returns the new recovery codes, if requested. A keyring's key is not accepted as `typed`. The former passphrase,
        recovery codes and keyring key no longer open the vault.

        Raises AileronError (unauthorized) if `typed` is wrong, (vault_locked) if the vault is locked, (bad_input) if the new
        passphrase is unsuitable, (hash_mismatch) as for `check_passphrase`. The rotation is done completely or not at all, and
        takes as long as two unlocks.
        """
        ways = _ways(passphrase, recovery_codes=recovery_codes, keyring=keyring)
        with self._changing:
            self.check_unlocked()
            with self._changed_file() as change:
                unverified = self._written(change)
                other, way = self._unlocked(unverified, typed)
                with self._translated(), _wiped(other):
                    with self._using:
                        known = self._required()
                        known.verified(unverified)
                    self._check_not_older(other.mark)
                    after = other.rotated(ways)
                    before = other.handed_to(after, self._before)
                failed = self._replace_key(change, known, after)
                with self._using:
                    self._remember(before)
        self._changed()
        if failed is not None:
            raise failed
        return Rotated(way, ways.recovery)

    def backup(self, typed: Secret | None = None) -> SealedCopy:
        """Return the bytes of the vault's file, after verifying it completely. While the vault is locked, this requires
        its passphrase or a recovery code, and the vault stays locked. Raises AileronError (vault_locked) if the vault
        is locked and `typed` is missing, or if there is no file, (unauthorized) if `typed` is wrong, (hash_mismatch) if
        the file cannot be verified.
        """
        with self._changing:
            data = self._file.maybe_read()
            if data is None:
                raise self._locked()
            with self._translated():
                unverified = decode(data)
                if typed is None:
                    with self._using:
                        current = self._required().verified(unverified)
                        current.check_whole()
                else:
                    with _wiped(self._unlocked(unverified, typed)[0]) as current:
                        current.check_whole()
            self._check_not_older(current.mark)
            return SealedCopy(data, current.mark)

    def copy(self, data: bytes, typed: Secret, name: str) -> VaultCopy:
        """Open the copy of a vault in `data`, and verify it completely. `typed` is that copy's passphrase or one of its
        recovery codes.

        `name` is the copy's name in messages. Raises AileronError as for `unlock`. The vault does not change.
        """
        with self._changing, self._translated(name):
            found, _ = self._unlocked(decode(data), typed, name)
            with _wiped_on_failure(found):
                found.check_whole()
            return VaultCopy(found)

    def put_back(self, copy: VaultCopy, above: int) -> Restored:
        """Replace the vault by a verified copy, and lock the vault. The replaced file remains in the same directory
        under another name.

        The copy gets a generation above `above`, above its own and above every other known generation, so that no earlier
        file is ever considered newer.

        The copy is put back completely or not at all. Raises AileronError if the disk fails.
        """
        with self._changing:
            self._file.make_directory()
            with self._changed_file() as change:
                said = _maybe_said(change)
                claimed = 0 if said is None else said.generation
                known = max(above, copy.mark.generation, self._seen.generation if self._seen else 0)
                after = copy.at_generation(max(known, min(claimed, known + _MOST_UNSEEN)) + 1)
                aside = change.keep_aside(time.gmtime(self._clock()))
                data, bound = encode(after.contents), _bound_by(said, self._own)
                with self._using:
                    if self._opened is None:  # store it in memory before the disk no longer has it
                        self._bound_last = tuple(dict.fromkeys((*self._bound_last, *bound)))
                try:
                    change.replace(data)
                except AileronError:
                    if change.maybe_read() == data:  # the new file is there, and a power cut may bring the old one back
                        self._make_way_for(after)
                    raise
            self._make_way_for(after)
            self._seen = after.mark
        return Restored(after.mark.vault, after.mark.generation, aside)

    def lock(self) -> None:
        """Remove the key from memory immediately, even if other operations are in progress. A secret that is lent stays
        usable until the response to its request is complete.
        """
        with self._using:
            was, self._opened = self._opened, None
            self._times_locked += 1
            if was is not None:
                self._bound_last = was.bound_with(self._own)
                was.wipe()
        self._forget()

    def _make_way_for(self, after: Opened) -> None:
        """Lock the open vault because the vault `after` replaces it. Remember its bindings, whose secrets may have been
        sent.

        Their secrets are sealed under the key of `after` if they can be decrypted now.
        """
        with self._using:
            was, self._opened = self._opened, None
            self._times_locked += 1
            if was is not None:
                self._bound_last = tuple(was.handed_to(after, was.bound_with(self._own)))
                self._before = tuple(was.handed_to(after, self._before))
                was.wipe()
        self._forget()

    def check_unlocked(self) -> None:
        """Raise AileronError(vault_locked) if the vault is locked, with the command that opens or creates the vault."""
        if self.is_locked:
            raise self._locked()

    def read(self, look: Callable[[Opened], _T]) -> _T:
        """Return the result of `look`, which gets the open vault. Raises AileronError(vault_locked) if the vault is locked, and
        the errors of `look`.

        `look` is called while the lock of the key is held, so it must be quick, and must not call the vault. It must
        not keep or return the open vault, because the next change replaces that object and `lock` wipes the object's
        key. For the same reason, no method returns the open vault. `look` must not decrypt a value either: `reveal`,
        `reveal_secret` and `tokens` do that.
        """
        with self._using, self._translated():
            return look(self._required())

    def check_change(self, edit: Callable[[Opened, int], Opened]) -> None:
        """Check that a change would succeed now, without writing. `edit` makes the change: it gets the open vault and
        the time in milliseconds since the epoch, and must keep the rules for `look` in `read`. Raises AileronError as
        `edit` does, and (vault_locked).
        """
        with self._using, self._translated():
            edit(self._required(), self._now_ms())

    def secrets(self) -> tuple[SecretInfo, ...]:
        """Return the stored secrets by name, without values. This also works while the vault is locked."""
        contents = self._contents()
        return tuple(entry.info() for entry in contents.secrets) if contents else ()

    def kept_elsewhere(self) -> dict[str, Elsewhere]:
        """Return the secrets whose value is stored outside the vault, by name, each with the place of its value. This
        also works while the vault is locked.
        """
        return {info.name: info.elsewhere for info in self.secrets() if info.elsewhere is not None}

    def kept_at(self, secret: str) -> Elsewhere | None:
        """Return the place of this secret's value if it is stored outside the vault, or None. This also works while the vault
        is locked.
        """
        return self.kept_elsewhere().get(secret)

    def set_secret(self, name: str, value: Secret) -> None:
        """Store a value under a name, as a new secret or in place of the old value. Raises AileronError (bad_input) if
        the value cannot be stored, with the reason, (invalid_request) if the vault is full.
        """
        self._change(lambda current: current.with_secret(name, value, self._now_ms()))

    def set_reference(self, name: str, elsewhere: Elsewhere, value: Secret) -> None:
        """Store the place of a secret instead of a value, and a pin of `value`, which was just fetched from that place
        and approved.

        Raises AileronError (bad_input) for an invalid place or value, with the reason. Raises AileronError
        (invalid_request) if the vault is full, or if the secret has a sign-in's tokens or is itself the token with
        which another secret is fetched. The same error is raised if the token with which the value is fetched is not
        another secret, with its value in this vault.
        """
        self._change(lambda current: current.with_reference(name, elsewhere, value, self._now_ms()))
        with contextlib.suppress(AileronError):  # locked or replaced meanwhile: the value is fetched again
            self.keep_fetched(self.read(lambda current: current.secret_entry(name)), value)

    def to_fetch(self, binding: BindingName | None, host: str, max_age_s: float) -> tuple[str, ...]:
        """Return the names of the secrets to fetch from outside the vault before a request to `host` (HOST:PORT).

        These are the binding's own secret, if it was not fetched within the last `max_age_s` seconds, and the secrets that
        could have been sent to the host and were not fetched yet. The result is empty while the vault is locked. The method
        is quick, because it is called before each request.
        """
        with self._using:
            known = self._opened
            if known is None or not known.has_references:
                return ()
            names = known.unknown(host)
            bound = None if binding is None else known.binding(binding)
            if bound is None or bound.secret in names or not known.is_stale(bound.secret, since_boot() - max_age_s):
                return names
            return (bound.secret, *names)

    def keep_fetched(self, entry: SecretEntry, value: Secret) -> None:
        """Store the value that was just fetched for this entry of a secret, encrypted and in memory only, until the
        vault is locked or the entry changes.

        Raises AileronError (binding_failed) if `value` is not the approved value, (vault_locked) if the vault is locked.
        """
        self.read(lambda current: current.keep_fetched(entry, value, since_boot(), self._now_ms()))

    def remove_secret(self, name: str) -> None:
        """Remove a secret. Raises AileronError (not_found) if there is no such secret, (invalid_request) while a
        binding uses it, or another secret is fetched with it.

        The secret is removed from the file, but not from its backups, which the passphrase still opens. So a person
        should also revoke the secret where it was issued.
        """
        self._change(lambda current: current.without_secret(name))

    def bindings(self) -> tuple[Binding, ...]:
        """Return every binding, sorted by name. This also works while the vault is locked."""
        known = self._opened
        if known is not None:
            return known.bindings
        unverified = self._read()
        return tuple(entry.binding() for entry in unverified.bindings) if unverified else ()

    def binding(self, name: BindingName) -> Binding | None:
        """Return the binding with this name, or None. This also works while the vault is locked."""
        return next((binding for binding in self.bindings() if binding.name == name), None)

    def may_be_bound(self, host: str) -> bool:
        """Return whether any known secret could have been sent to `host` (HOST:PORT), even one that can no longer be decrypted.

        While the vault is locked, this method uses the file, and the bindings that were known when the vault was open. Raises
        AileronError(hash_mismatch) for an unreadable file.

        Quick, because this method is called for each piece of a stream: the bindings are searched only once per host until
        they change.
        """
        now = () if self._opened is not None else self._said()  # while open, `_bound_last` has the bindings
        last, reached = self._bound_last, self._reached
        if reached.now is not now or reached.last is not last:
            reached = self._reached = _Reached(now, last, {})
        is_reached = reached.hosts.get(host)
        if is_reached is None:
            if len(reached.hosts) >= _MOST_HOSTS:
                reached.hosts.clear()
            known = itertools.chain(now, (bound.binding for bound in last))
            is_reached = reached.hosts[host] = any(could_reach(binding, host) for binding in known)
        since = since_boot() - KEPT_S
        return is_reached or any(record.at_s > since and could_reach(record.binding, host) for record in self._before)

    def send_also(self, own: Iterable[Own]) -> None:
        """Set the secrets that the supervisor sends for itself from now on, with their hosts; `sendables` includes them.

        Secrets that an earlier call set count as replaced. Quick, like every read of an open vault.
        """
        with self._using:
            known, was, self._own = self._opened, self._own, tuple(secret.binding() for secret in own)
            if known is not None:  # otherwise the secrets are replaced when the vault is opened
                now = known.bound_with(self._own)
                self._remember([*self._before, *replaced(known.bound_with(was), now, since_boot())])
                self._bound_last = now

    def _said(self) -> tuple[Binding, ...]:
        """Return the bindings in the file of the locked vault, unverified, and those in `_own`.

        The file is read again only if it was changed, because this method is called for each piece of a response.
        """
        try:
            found = os.stat(self.path)
            mark = (found.st_ino, found.st_mtime_ns, found.st_size)
        except OSError:
            return _bindings_by(self._read(), self._own)
        last, own = self._said_last, self._own
        if last is None or last[0] != mark or last[1] is not own:
            last = self._said_last = mark, own, _bindings_by(self._read(), own)
        return last[2]

    def sendables(self, host: str) -> Sendables:
        """Return every secret that could have been sent to `host` (HOST:PORT), for any connector, including secrets
        that were recently replaced (sendable.py).

        Raises AileronError(vault_locked) while the vault is locked and there may be such secrets, and while the value
        of one is stored outside the vault and was not fetched since the vault was opened.

        Quick, because the secrets are decrypted only once after each change to the vault, and the same object is
        returned until the next change.
        """
        with self._using, self._translated():
            known = self._opened
            if known is not None:
                if self._before and since_boot() - self._before[0].at_s >= KEPT_S:
                    self._remember(self._before)
                return known.sendables(host, self._own, self._before)
        if self.may_be_bound(host):
            error = self._locked().failure
            message = f"{error.message}: a secret is bound for {host}, and its answers cannot be searched for it now"
            raise AileronError(FailureClass.VAULT_LOCKED, message, boundary=Boundary.USER)
        return _NOTHING_SENT

    def remember_token(self, name: BindingName, token: Secret) -> None:
        """Remember a token that was issued with this binding's secret. For a day the token is part of `sendables`; it is
        sealed in memory and not in any file.

        Raises AileronError (vault_locked) if the vault is locked, (binding_required) if there is no such binding. Quick.
        """
        with self._using, self._translated():
            now_s = since_boot()
            self._remember([*self._before, self._required().got_with(name, token, now_s)])

    def candidates(self, connector: str, kind: str) -> list[Candidate]:
        """Return the bindings of `kind` for exactly this connector, sorted by name. This also works while the vault is locked."""
        return candidates(self.bindings(), connector, kind)

    def check_unchanged(self, use: CredentialUse, since: float) -> None:
        """Check that a plan's binding is still the one that existed when the plan was resolved, at `since` (s since the epoch).

        Raises the same errors as unchanged.check_still_bound. This also works while the vault is locked.
        """
        check_still_bound(
            next((binding for binding in self.bindings() if binding.name == use.binding), None), use, since
        )

    def bind(self, binding: Binding, *, replace: bool = False) -> None:
        """Store a binding, with which a stored secret serves a connector.

        Raises AileronError (bad_input) for an invalid binding or a secret that does not fit it, (not_found) if its
        secret is not stored, (invalid_request) if the name is taken and `replace` is not set, if the vault is full, or
        if a sign-in's tokens would serve two bindings.

        The tokens of an earlier sign-in under this name are removed, unless they are the binding's secret.
        """
        self._change(lambda current: current.with_binding(binding, self._now_ms(), replace=replace))

    def bind_sign_in(self, binding: Binding, tokens: Secret, *, replace: bool = False) -> None:
        """Store the tokens that a provider issued as the binding's secret, and store the binding, in one write, so that
        a binding's grant always describes the stored tokens.

        Raises AileronError as for `bind`, and (invalid_request) for a secret that has another use.
        """
        now_ms = self._now_ms()
        self._change(lambda current: current.with_sign_in(binding, tokens, now_ms, replace=replace))

    def revoke(self, name: BindingName) -> TokenSet | None:
        """Remove a binding. Its secret stays, except that the tokens of a sign-in are removed and returned.

        The tokens are returned as last renewed, so that the caller can revoke them at their provider; None if there are
        none. Raises AileronError(not_found) if there is no such binding.
        """
        ended: list[TokenSet | None] = []

        def without(current: Opened) -> Opened:
            after = current.without_binding(name)
            ended.append(current.maybe_tokens(name))
            return after

        self._change(without)
        return ended[-1]

    def tokens(self, name: BindingName) -> TokenSet:
        """Return the tokens of the sign-in that is bound under this name.

        Raises AileronError (vault_locked) if the vault is locked, (binding_required) if there is no such binding,
        (binding_failed) if the binding has no sign-in, or its secret was overwritten.
        """
        return self.read(lambda current: current.tokens(name))

    def certificate(self, name: BindingName) -> ClientCertificate | None:
        """Return the client certificate that is bound under this name, or None if there is no certificate, if it cannot be
        used, or if the vault is locked.

        The certificate is for display, so a call of this method does not count as a use, which would delay the automatic lock.
        """
        with self._using, contextlib.suppress(AileronError, CertificateError), self._translated():
            known = self._required()
            if (binding := known.binding(name)) is not None and binding.kind == "mtls":
                return ClientCertificate(known.reveal_secret(binding.secret).reveal())
        return None

    def put_tokens(self, name: BindingName, tokens: TokenSet, grant: OAuthGrant) -> None:
        """Store the renewed tokens of this binding's sign-in and their grant, in one write; the binding's `created_at`
        and `reach` do not change.

        Raises AileronError(binding_failed) if `grant` belongs to another sign-in, that is, if its `obtained_ms` differs from
        the binding's because of a new sign-in. Otherwise raises the same errors as `tokens`, and (bad_input) for an invalid
        grant.
        """
        self._change(lambda current: current.with_tokens(name, tokens, grant, self._now_ms()))

    def note_renewal(self, name: BindingName, at_ms: int) -> None:
        """Record that a renewal request for this binding's sign-in is about to be sent to the provider. Raises
        AileronError as `tokens` does.
        """
        self._change(lambda current: current.with_renewal(name, at_ms))

    def note_refused(self, name: BindingName, code: str) -> None:
        """Record that the provider no longer renews this binding's sign-in, with the provider's error code. Raises
        AileronError as `tokens` does, and (bad_input) for an invalid code.
        """
        self._change(lambda current: current.with_refusal(name, code))

    @property
    def says_consents(self) -> bool:
        """True if the vault has an approver. While the vault is open this comes from verified memory, otherwise from the
        unverified file.

        False if there is no file. Raises AileronError (hash_mismatch, or invalid_request for a later format) if the file is
        not a valid vault.
        """
        contents = self._contents()
        return contents is not None and contents.consents is not None

    def consents(self) -> Consents | None:
        """Return the approver and their consents, verified, or None if decisions are not signed. Raises
        AileronError(vault_locked) if the vault is locked.
        """
        known = self._opened  # read once: the vault may be locked meanwhile
        if known is None:
            raise self._locked()
        return known.contents.consents

    def set_approver(self, consents: Consents) -> None:
        """Set the approver and their consents. Raises AileronError(bad_input) if the consents are invalid.

        The caller must have checked the vault's passphrase, and that the former approver agrees.
        """
        self._change(lambda current: current.with_approver(consents))

    def change_consents(self, edit: Callable[[Consents], Consents]) -> None:
        """Replace the approver's consents by those that `edit` returns; the approver stays the same. Raises
        AileronError (not_found) if there is no approver, (bad_input) if the result is invalid.

        `edit` gets the file's present consents, verified. It is called while the lock of the key is held, so it must be quick,
        and must not call the vault. If it raises an exception, nothing changes, and the caller gets the exception.
        """
        self._change(lambda current: current.with_consents(edit))

    def check_opens(self, typed: Secret) -> Way:
        """Check that `typed`, a passphrase or a recovery code, opens this vault, which is open and stays open. Return
        which of the two it is. Raises AileronError as `check_passphrase` does.
        """
        with self._changing:
            return self._check_opens(lambda unverified: self._unlocked(unverified, typed))

    def check_opens_with_keyring(self, key: Secret) -> None:
        """Check that the key from a keyring opens this vault. Raises AileronError as `check_passphrase` does, and
        (invalid_request) if the vault has no keyring slot.
        """
        with self._changing:
            self._check_opens(lambda unverified: (self._unlocked_with_keyring(unverified, key), "keyring"))

    def check_passphrase(self, passphrase: Secret) -> None:
        """Check that this passphrase opens this vault, which is open and stays open. No recovery code and no keyring key is
        accepted.

        Raises AileronError (unauthorized) if the passphrase is wrong, (vault_locked) if the vault is locked.

        If an attacker replaced the file by another vault, the attacker's passphrase would open that vault. So the file must
        also be verified with the key in memory (otherwise hash_mismatch), and that is why the vault must be open. Takes as
        long as `unlock`.
        """
        with self._changing:
            self._check_opens(lambda unverified: (self._unlocked_with_passphrase(unverified, passphrase), "passphrase"))

    def reveal(self, name: BindingName) -> tuple[Binding, Secret]:
        """Return the present binding with this name and the value of its secret. Raises AileronError (binding_required)
        if there is no such binding, (vault_locked) if the vault is locked, or if the secret's value is stored outside
        the vault and was not fetched since the vault was opened.

        Only lend.py and daemon/secrets may call this method; no other code needs a value.
        """
        with self._using, self._translated():
            self._used_at = since_boot()
            return self._required().reveal(name)

    def reveal_secret(self, name: str) -> Secret:
        """Return a secret that the daemon itself uses, by its name. Raises AileronError (not_found) if there is no such
        secret, (vault_locked) if the vault is locked, or if the secret's value is stored outside the vault and was not
        fetched since the vault was opened.

        Only lend.py and daemon/secrets may call this method.
        """
        with self._using, self._translated():
            self._used_at = since_boot()
            return self._required().reveal_secret(name)

    # implementation

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)

    def _change(self, edit: Callable[[Opened], Opened]) -> None:
        """Verify the file's present contents, apply `edit` to them, and write the result. If an exception is raised,
        the vault does not change.
        """
        with self._changing:
            self.check_unlocked()
            with self._changed_file() as change:
                unverified = self._written(change)
                with self._using, self._translated():
                    known = self._required()
                    current = known.verified(unverified)
                    self._check_not_older(current.mark)
                    after = edit(current)
                change.replace(encode(after.contents))
            with self._using:
                self._seen = after.mark
                self._used_at = since_boot()
                was, now = current.bound_with(self._own), after.bound_with(self._own)
                self._remember([*self._before, *replaced(was, now, self._used_at)])
                self._bound_last = now
                if self._opened is known:  # otherwise the vault was locked meanwhile; the change stays on disk
                    self._opened = after
        self._forget()
        self._changed()

    def _remember(self, before: Iterable[Replaced]) -> None:
        """Set the records of former bindings to those in `before` that are still recent. The caller must hold `_using`."""
        self._before = newest(before, since_boot())
        if self._opened is not None:
            self._opened.forget_sendables()

    def _written(self, change: LockedFile) -> Contents:
        data = change.maybe_read()
        if data is None:
            raise self._damaged("it is gone")
        with self._translated():
            return decode(data)

    def _replace_key(self, change: LockedFile, known: Opened, after: Opened) -> AileronError | None:
        """Write `after`, the vault with its new data key, to the file, and use that key from now on.

        Return the disk's error if the disk failed after the new file was in place. The old passphrase then no longer opens the
        vault.
        """
        data, failed = encode(after.contents), None
        with _wiped_on_failure(after):
            try:
                change.replace(data)
            except AileronError as error:
                if change.maybe_read() != data:
                    raise
                message = (
                    f"{error.failure.message}; the vault has its new passphrase, and a power cut may bring the old one back: "
                    "once the disk works, run `aileron vault rotate` again"
                )
                failed = AileronError(error.failure.failure_class, message, details=error.failure.details)
        self._go_on_with(known, after)
        return failed

    def _go_on_with(self, known: Opened, after: Opened) -> None:
        with self._using:
            self._seen = after.mark
            self._used_at = since_boot()
            if self._opened is known:
                self._opened = after
            else:  # the vault was locked meanwhile
                after.wipe()
            known.wipe()

    def _opened_anew(self, new: Opened) -> None:
        with _wiped_on_failure(new):
            self._check_not_older(new.mark)
        self._keep(new)

    def _check_opens(self, unlock: Callable[[Contents], tuple[Opened, Way]]) -> Way:
        self.check_unlocked()
        unverified = self._read()
        if unverified is None:
            raise self._damaged("it is gone")
        other, way = unlock(unverified)
        with self._translated(), _wiped(other):
            with self._using:
                self._required().verified(unverified)
            self._check_not_older(other.mark)
        return way

    def _unlocked(self, unverified: Contents, typed: Secret, name: str | None = None) -> tuple[Opened, Way]:
        has_codes = any(isinstance(slot, RecoverySlot) for slot in unverified.slots)
        forgotten = "; if you forgot it, use a recovery code" if has_codes else ""
        with self._unlocking(unverified, typed, name, forgotten=forgotten):
            return opened.unlock(unverified, typed)

    def _unlocked_with_passphrase(self, unverified: Contents, passphrase: Secret) -> Opened:
        with self._unlocking(unverified, passphrase):
            return opened.unlock_with_passphrase(unverified, passphrase)

    def _unlocked_with_keyring(self, unverified: Contents, key: Secret) -> Opened:
        if not any(isinstance(slot, KeyringSlot) for slot in unverified.slots):
            message = "this vault has no key in the keyring; `aileron vault rotate --keyring` creates one"
            raise AileronError(FailureClass.INVALID_REQUEST, message, boundary=Boundary.USER)
        with self._unlocking(unverified, key, what="the keyring's key does not belong to"):
            return opened.unlock_with_keyring(unverified, key)

    @contextlib.contextmanager
    def _unlocking(
        self,
        unverified: Contents,
        typed: Secret,
        name: str | None = None,
        what: str = "wrong passphrase for",
        forgotten: str = "",
    ) -> Iterator[None]:
        """Turn the errors of a block into an AileronError. The block opens the vault, or the copy `name`, with `typed`,
        and verifies it. `what` and `forgotten` are the beginning and the end of the message for a wrong `typed`.
        """
        file = name or self._file.path
        wrong = f"{what} {file} (or its slot was changed)"
        if len(typed) > MAX_PASSPHRASE_BYTES:
            raise AileronError(FailureClass.UNAUTHORIZED, wrong + forgotten, boundary=Boundary.USER)
        try:
            with self._translated(name):
                yield
        except EnvelopeError:
            raise AileronError(FailureClass.UNAUTHORIZED, wrong + forgotten, boundary=Boundary.USER) from None
        except MistypedError as error:
            raise AileronError(FailureClass.UNAUTHORIZED, f"{wrong}: {error}", boundary=Boundary.USER) from None
        except MemoryError:
            slot = unverified.slots[0]
            assert isinstance(slot, PassphraseSlot)
            needed = slot.argon2id.memory_kib >> 10
            message = f"not enough memory to derive the vault's key ({needed} MiB at once); free some and try again"
            raise AileronError(FailureClass.INTERNAL_ERROR, message, retriable=True) from None

    def _required_file(self) -> Contents:
        unverified = self._read()
        if unverified is None:
            raise self._locked()
        return unverified

    def _keep(self, new: Opened) -> None:
        with self._using:
            was, now, self._used_at = self._opened, new.bound_with(self._own), since_boot()
            until_now = self._bound_last if was is None else was.bound_with(self._own)
            before = newest([*self._before, *replaced(until_now, now, self._used_at)], self._used_at)
            self._before = tuple((was or new).handed_to(new, before))
            self._bound_last = now
            self._opened, self._seen = new, new.mark  # last, so that readers without the lock find all else updated
            if was is not None:
                was.wipe()
        self._forget()

    def _contents(self) -> Contents | None:
        """Return the vault's contents: from verified memory while it is open, from the unverified file while it is
        locked. None if there is no file.
        """
        known = self._opened
        return self._read() if known is None else known.contents

    def _read(self) -> Contents | None:
        data = self._file.maybe_read()
        if data is None:
            return None
        with self._translated():
            return decode(data)

    def _required(self) -> Opened:
        if self._opened is None:
            raise self._locked()
        return self._opened

    def _check_not_older(self, mark: Mark) -> None:
        if self._seen is not None and not self._seen.allows(mark):
            found, known = mark.generation, self._seen.generation
            message = (
                f"{self._file.path} was replaced by an older copy (generation {found}; this daemon has seen "
                f"{known}); if you want that copy, run `aileron vault restore {self._file.path}`"
            )
            raise AileronError(FailureClass.HASH_MISMATCH, message, details={"file": str(self._file.path)})

    @contextlib.contextmanager
    def _changed_file(self) -> Iterator[LockedFile]:
        try:
            with self._file.changing() as change:
                yield change
        except FileNotFoundError:
            raise self._damaged("it is gone, and its directory with it") from None

    @contextlib.contextmanager
    def _translated(self, name: str | None = None) -> Iterator[None]:
        """Turn a block's errors about invalid contents into an AileronError that names the vault's file, or the copy
        `name` if it is given.
        """
        try:
            yield
        except ContentsError as error:
            if name is None:
                raise self._damaged(str(error)) from None
            message = f"{name} is not a valid backup of a vault: {error}; try another: `aileron vault restore FILE`"
            raise AileronError(FailureClass.HASH_MISMATCH, message, details={"file": name}) from None
        except UnknownFormatError as error:
            message = f"{name or self._file.path} has {error}; upgrade aileron"
            raise AileronError(FailureClass.INVALID_REQUEST, message, boundary=Boundary.USER) from None

    def _damaged(self, how: str) -> AileronError:
        message = (
            f"{self._file.path} is damaged or was changed: {how}; restore a backup with `aileron vault restore "
            "FILE`, or move the file away and start over with `aileron vault init`"
        )
        return AileronError(FailureClass.HASH_MISMATCH, message, details={"file": str(self._file.path)})

    def _locked(self) -> AileronError:
        if self.exists:
            message = "the vault is locked; run `aileron vault unlock`"
        else:
            message = "there is no vault yet; run `aileron vault init`"
        return AileronError(FailureClass.VAULT_LOCKED, message, boundary=Boundary.USER)


@contextlib.contextmanager
def _wiped_on_failure(new: Opened) -> Iterator[Opened]:
    """Yield `new`, and wipe its key if the block fails, because a key without an owner must not stay in memory."""
    try:
        yield new
    except BaseException:
        new.wipe()
        raise


@contextlib.contextmanager
def _wiped(new: Opened) -> Iterator[Opened]:
    try:
        yield new
    finally:
        new.wipe()


def _maybe_said(change: LockedFile) -> Contents | None:
    """Return the contents of the vault's present file, unverified, or None if the file is unreadable."""
    try:
        data = change.maybe_read()
        return None if data is None else decode(data)
    except (AileronError, ContentsError, UnknownFormatError):
        return None


def _bound_by(unverified: Contents | None, own: Iterable[Binding]) -> list[Bound]:
    """Return the bindings in unverified contents of a vault and those in `own`, each with the entry of its secret."""
    if unverified is None:
        return []
    secrets = {entry.name: entry for entry in unverified.secrets}
    bound = [Bound(entry.binding(), secrets[entry.secret]) for entry in unverified.bindings]
    return bound + [Bound(binding, secrets[binding.secret]) for binding in own if binding.secret in secrets]


def _bindings_by(unverified: Contents | None, own: Iterable[Binding]) -> tuple[Binding, ...]:
    return tuple(bound.binding for bound in _bound_by(unverified, own))


def _nobody() -> None:
    """Do nothing. This is the default of the functions that `tell_changes` and `tell_ends` set."""


def _ways(passphrase: Secret, *, recovery_codes: bool, keyring: KeyringKey | None) -> Unlockers:
    """Return the unlockers for a new data key, with new recovery codes if requested.

    Raises AileronError(bad_input) for an unsuitable passphrase or keyring key.
    """
    _check_passphrase(passphrase)
    if keyring is not None and (len(keyring.key) != KEY_BYTES or not _ID.fullmatch(keyring.id)):
        _refuse(f"a keyring's key has {KEY_BYTES} bytes, and a name of 32 hex digits")
    return Unlockers(passphrase, tuple(generate() for _ in range(RECOVERY_CODES if recovery_codes else 0)), keyring)


def _check_passphrase(passphrase: Secret) -> None:
    if len(passphrase) < MIN_PASSPHRASE_BYTES:
        reason = "short ones can be guessed by anyone who copies the file"
        _refuse(f"the passphrase has {len(passphrase)} bytes; at least {MIN_PASSPHRASE_BYTES} are required ({reason})")
    if len(passphrase) > MAX_PASSPHRASE_BYTES:
        _refuse(f"the passphrase has {len(passphrase)} bytes; at most {MAX_PASSPHRASE_BYTES} are allowed")


def _refuse(message: str) -> NoReturn:
    raise AileronError(FailureClass.BAD_INPUT, message, boundary=Boundary.USER)
