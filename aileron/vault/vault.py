"""The vault as the daemon holds it: one object over one file, locked or open.

Runs in the daemon, one for each home; the daemon alone writes the file. Everything that may be seen without a passphrase
(names, dates, bindings) is answered while it is locked too, from a file that nobody can verify then; while it is open all
answers come from verified memory, whatever happens to the file.

Rules
- Whoever would use a key while there is none gets `vault_locked` with the command that gives it one.
- A file that does not verify is `hash_mismatch`, as for any other bytes that are not those that were written (exit 9, and
  not 6: a wrong passphrase can be typed again, a damaged vault needs its backup). A wrong passphrase is `unauthorized`;
  what was changed in the slot itself cannot be told from one.
- An older file than this process has seen is refused, open or locked. Across a restart the vault cannot know; `generation`
  in `status()` is for whoever keeps a record.
- A change is on disk, flushed, before it is in memory and before the call returns.

Threads: every method may be called from any thread. `create` and `unlock` take at least a tenth of a second, and every
change waits for the disk: call those in a worker thread. All else is quick and never waits for them, so it may be called
in the event loop. Two locks, always taken in this order: `_changing` is held over derivations and I/O, so that these come
one at a time (memory for one Argon2, not for forty); `_using` is held over the cryptography alone, so that no key is wiped
while it is in use: microseconds, or a tenth of a second for a change to a vault of the greatest size.

Source: docs/reference/vault-format.md, docs/adr/0005-vault-format.md. Not here: lending for a request (lend.py).

>>> vault = Vault(Path("/nonexistent/vault.json"))
>>> vault.status()["exists"], vault.is_locked, vault.candidates("github://o/r", "basic")
(False, True, [])
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NoReturn

from aileron.model.consent import Consents
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.names import BindingName
from aileron.model.plan import CredentialUse
from aileron.model.secret import Secret
from aileron.vault import opened
from aileron.vault.bindings import Binding, candidates
from aileron.vault.contents import Contents, ContentsError, SecretInfo, UnknownFormatError, decode, encode
from aileron.vault.envelope import EnvelopeError
from aileron.vault.file import Change, VaultFile
from aileron.vault.opened import Mark, Opened

__all__ = ["Vault"]

MIN_PASSPHRASE_BYTES: Final = 8  # NIST SP 800-63B asks for this much; against offline guessing only length helps
MAX_PASSPHRASE_BYTES: Final = 1024  # a line, not a file given by mistake


class Vault:
    """The vault at `path`. Making one reads nothing; it starts locked, and there may be no file yet."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._file: Final = VaultFile(path)
        self._clock: Final = clock
        self._changing: Final = threading.Lock()
        self._using: Final = threading.Lock()
        # Replaced as one reference and never changed in place: readers need no lock, only users of the key do.
        self._opened: Opened | None = None
        self._seen: Mark | None = None

    @property
    def exists(self) -> bool:
        """Whether there is a file."""
        return self._file.exists

    @property
    def is_locked(self) -> bool:
        """Whether there is no key in memory."""
        return self._opened is None

    def status(self) -> dict[str, bool | int | None]:
        """`exists`, `locked`, the numbers of `secrets` and `bindings`, and `format` and `generation` (None without a file)."""
        contents = self._contents()
        return {
            "exists": self.exists,
            "locked": self.is_locked,
            "secrets": len(contents.secrets) if contents else 0,
            "bindings": len(contents.bindings) if contents else 0,
            "format": contents.format if contents else None,
            "generation": contents.generation if contents else None,
        }

    def create(self, passphrase: Secret) -> None:
        """Make an empty vault and leave it open. AileronError(bad_input) for the passphrase, (invalid_request) if there is one.

        The directory is made if need be, 0700. Takes as long as `unlock`.
        """
        _check_passphrase(passphrase)
        with self._changing:
            self._file.make_directory()
            with self._changed_file() as change:
                if change.maybe_read() is not None:
                    message = f"{self._file.path} is there already; open it with `aileron vault unlock`"
                    raise AileronError(FailureClass.INVALID_REQUEST, message, boundary=Boundary.USER)
                with _wiped_on_failure(opened.create(passphrase)) as new:
                    change.replace(encode(new.contents))
            self._keep(new)

    def unlock(self, passphrase: Secret) -> None:
        """Open it until `lock()`. AileronError(unauthorized) for a wrong passphrase, which leaves it as it was.

        Open already, the passphrase is checked all the same, and the file read anew.
        """
        with self._changing:
            unverified = self._read()
            if unverified is None:
                raise self._locked()
            with self._translated(), _wiped_on_failure(self._unlocked(unverified, passphrase)) as new:
                self._check_not_older(new.mark)
            self._keep(new)

    def lock(self) -> None:
        """Forget the key, at once, whatever else is going on. What was lent stays lent until its response is over."""
        with self._using:
            was, self._opened = self._opened, None
            if was is not None:
                was.wipe()

    def check_unlocked(self) -> None:
        """AileronError(vault_locked) with the command that opens it, or makes it."""
        if self.is_locked:
            raise self._locked()

    def secrets(self) -> tuple[SecretInfo, ...]:
        """What is stored, by name and without values; also while it is locked."""
        contents = self._contents()
        return tuple(entry.info() for entry in contents.secrets) if contents else ()

    def set_secret(self, name: str, value: Secret) -> None:
        """Store a value under a name, new or in place of the one there is. AileronError(bad_input) says why not."""
        self._change(lambda current: current.with_secret(name, value, int(self._clock() * 1000)))

    def remove_secret(self, name: str) -> None:
        """Forget a secret. AileronError(not_found), or (invalid_request) while a binding uses it.

        Gone from the file, not from its backups, which the passphrase still opens: revoke it where it was issued.
        """
        self._change(lambda current: current.without_secret(name))

    def bindings(self) -> tuple[Binding, ...]:
        """Every binding, sorted by name; also while it is locked."""
        known = self._opened
        if known is not None:
            return known.bindings
        unverified = self._read()
        return tuple(entry.binding() for entry in unverified.bindings) if unverified else ()

    def candidates(self, connector: str, kind: str) -> list[BindingName]:
        """The names of the bindings of `kind` made for exactly this connector; also while it is locked."""
        return candidates(self.bindings(), connector, kind)

    def check_unchanged(self, use: CredentialUse, since: float) -> None:
        """For a plan resolved at `since` (s since the epoch): the binding it names is the one that was there then.

        AileronError(binding_required) if it is gone, (binding_failed) if it was made anew. Also while it is locked.
        """
        found = next((binding for binding in self.bindings() if binding.name == use.binding), None)
        if found is None:
            message = f"{use.binding} was revoked meanwhile: `aileron binding setup {use.connector}`, then ask again"
            raise AileronError(FailureClass.BINDING_REQUIRED, message, boundary=Boundary.USER)
        # Kept to the millisecond, so one made in the very millisecond of the question is not later than it.
        if found.connector != use.connector or found.created_at > since + 0.001:
            message = f"{use.binding} is another binding than the one that was shown: ask again"
            raise AileronError(FailureClass.BINDING_FAILED, message, boundary=Boundary.USER)

    def bind(self, binding: Binding, *, replace: bool = False) -> None:
        """Let a stored secret serve a connector. AileronError(bad_input) for what is not a binding, (not_found) for its
        secret, (invalid_request) if the name is taken and `replace` is not set.
        """
        self._change(lambda current: current.with_binding(binding, replace=replace))

    def check_bindable(self, binding: Binding) -> None:
        """Return if `bind` would take it now; nothing is written. AileronError as `bind` says."""
        self.check_unlocked()
        with self._using, self._translated():
            self._required().with_binding(binding, replace=False)

    def revoke(self, name: BindingName) -> None:
        """End a binding; its secret stays. AileronError(not_found)."""
        self._change(lambda current: current.without_binding(name))

    @property
    def says_consents(self) -> bool:
        """Whether there is an approver: verified from memory while it is open, else what the file says, unverified.

        False without a file. AileronError(hash_mismatch) and the like for a file that is not a vault's.
        """
        contents = self._contents()
        return contents is not None and contents.consents is not None

    def consents(self) -> Consents | None:
        """Who decides and what they agreed to, verified; None: nobody signs. AileronError(vault_locked)."""
        known = self._opened  # once: it may be locked meanwhile
        if known is None:
            raise self._locked()
        return known.contents.consents

    def set_approver(self, consents: Consents) -> None:
        """Say who decides from now on, and what they agreed to. AileronError(bad_input) for what is not that.

        The caller has checked the vault's passphrase, and that the approver there was agrees.
        """
        self._change(lambda current: current.with_approver(consents))

    def change_consents(self, edit: Callable[[Consents], Consents]) -> None:
        """Change what the approver agreed to; who they are stays. AileronError(not_found) without one, (bad_input).

        `edit` is given what the file says now, verified. It is called while the key is held: it has to be quick, and must not
        ask the vault anything. What it raises passes, and nothing is changed.
        """
        self._change(lambda current: current.with_consents(edit))

    def check_passphrase(self, passphrase: Secret) -> None:
        """Return if this passphrase opens this vault, which is open and stays so. AileronError(unauthorized), (vault_locked).

        Another vault, put in the file's place with a passphrase of its maker's, opens with that one, and is not this: what the
        file holds must verify under the key in memory too (hash_mismatch). That is why a locked vault cannot be asked. Takes as
        long as `unlock`.
        """
        with self._changing:
            self.check_unlocked()
            unverified = self._read()
            if unverified is None:
                raise self._damaged("it is gone")
            with self._translated(), _wiped(self._unlocked(unverified, passphrase)) as other:
                with self._using:
                    self._required().verified(unverified)
                self._check_not_older(other.mark)

    def reveal(self, name: BindingName) -> tuple[Binding, Secret]:
        """A binding as it is now and its secret's value. AileronError(binding_required) or (vault_locked).

        For lend.py; nobody else has a use for a value.
        """
        with self._using, self._translated():
            return self._required().reveal(name)

    def reveal_secret(self, name: str) -> Secret:
        """A secret that the daemon itself uses, by its name. AileronError(not_found) or (vault_locked). For lend.py."""
        with self._using, self._translated():
            return self._required().reveal_secret(name)

    # how it is done

    def _change(self, edit: Callable[[Opened], Opened]) -> None:
        """Apply `edit` to what the file says now, which must verify, and write. Nothing happens if anything raises."""
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
                if self._opened is known:  # else it was locked meanwhile; the change is on disk and stays there
                    self._opened = after

    def _written(self, change: Change) -> Contents:
        data = change.maybe_read()
        if data is None:
            raise self._damaged("it is gone")
        with self._translated():
            return decode(data)

    def _unlocked(self, unverified: Contents, passphrase: Secret) -> Opened:
        wrong = f"wrong passphrase for {self._file.path} (or its slot was changed)"
        if len(passphrase) > MAX_PASSPHRASE_BYTES:
            raise AileronError(FailureClass.UNAUTHORIZED, wrong, boundary=Boundary.USER)
        try:
            return opened.unlock(unverified, passphrase)
        except EnvelopeError:
            raise AileronError(FailureClass.UNAUTHORIZED, wrong, boundary=Boundary.USER) from None
        except MemoryError:
            needed = unverified.slots[0].argon2id.memory_kib >> 10
            message = f"not enough memory to derive the vault's key ({needed} MiB at once); free some and try again"
            raise AileronError(FailureClass.INTERNAL_ERROR, message, retriable=True) from None

    def _keep(self, new: Opened) -> None:
        with self._using:
            was, self._opened, self._seen = self._opened, new, new.mark
            if was is not None:
                was.wipe()

    def _contents(self) -> Contents | None:
        """Verified from memory while it is open, unverified from the file while it is not."""
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
                f"{self._file.path} was replaced by an older copy (generation {found}; this daemon has seen {known}); "
                "if you restored it on purpose, restart the daemon: aileron daemon stop"
            )
            raise AileronError(FailureClass.HASH_MISMATCH, message, details={"file": str(self._file.path)})

    @contextlib.contextmanager
    def _changed_file(self) -> Iterator[Change]:
        try:
            with self._file.changing() as change:
                yield change
        except FileNotFoundError:
            raise self._damaged("it is gone, and its directory with it") from None

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn what the file's bytes can be wrong with into an AileronError that names the file."""
        try:
            yield
        except ContentsError as error:
            raise self._damaged(str(error)) from None
        except UnknownFormatError as error:
            message = f"{self._file.path} has {error}; upgrade aileron"
            raise AileronError(FailureClass.INVALID_REQUEST, message, boundary=Boundary.USER) from None

    def _damaged(self, how: str) -> AileronError:
        message = (
            f"{self._file.path} is not as aileron wrote it: {how}; put a backup in its place, "
            "or move it away and begin anew with `aileron vault init`"
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
    """A key that nobody came to hold must not stay in memory."""
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


def _check_passphrase(passphrase: Secret) -> None:
    if len(passphrase) < MIN_PASSPHRASE_BYTES:
        reason = "whoever copies the file can try shorter ones one by one"
        _refuse(f"the passphrase has {len(passphrase)} bytes; at least {MIN_PASSPHRASE_BYTES} are needed ({reason})")
    if len(passphrase) > MAX_PASSPHRASE_BYTES:
        _refuse(f"the passphrase has {len(passphrase)} bytes; at most {MAX_PASSPHRASE_BYTES} are read")


def _refuse(message: str) -> NoReturn:
    raise AileronError(FailureClass.BAD_INPUT, message, boundary=Boundary.USER)
