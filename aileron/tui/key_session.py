"""The approver's key in the console: how long the key stays open, and what it may be used for.

Runs in the console's own process, which no other process of the user can inspect. The passphrase is typed at the terminal itself
(approver_key/isolation.py); there is no other way to enter it.

Rules
- The key stays open for at most 15 minutes after the passphrase was typed (timed_key.py).
- If another program could press keys at this terminal (approver_key/terminal.py), the key is not kept open: each
  decision prompts for the passphrase. This is checked before each use, and every LOOK_S while the key is open. If the
  passphrase was typed for a preview, a key stays open that can only read previews (docs/adr/0047-fewer-keys.md).
- A key that does not belong to this home's approver is wiped.
- If the key is not open, the prompt also offers a plugged-in security key (`signer`): Enter alone selects it. The
  security key does not open the approver's key; each of its signatures needs a PIN or fingerprint, and a touch.
- For REST_S after a prompt was interrupted, only a prompt for the same purpose is shown: a process that can press keys
  here could otherwise replace the prompt while a person types. Any process of the user can interrupt a prompt
  (kill(2)). Keys that are typed next may be the rest of a passphrase, so they are dropped (`no_echo`).

Not here: what is signed (approver_key/signing.py), when a key press may decide (guard.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from aileron.model.clock import since_boot
from aileron.tui.timed_key import TimedKey

if TYPE_CHECKING:  # cryptography: 30 ms, at the first passphrase
    from aileron.approver_key.hidraw import Port
    from aileron.approver_key.keyfile import ApproverKey
    from aileron.approver_key.security_key import Person, SecurityKeys
    from aileron.approver_key.signing import ReadingKey
    from aileron.model.passkey import PasskeyKey
    from aileron.model.secret import Secret

    Reader: TypeAlias = ApproverKey | SecurityKeys | ReadingKey

__all__ = ["REST_S", "KeySession", "SecurityKeyHooks"]

REST_S: Final = 3.0
"""Seconds after which a person who was typing a passphrase has noticed that its prompt was interrupted."""
_TRIES: Final = 3
_TO_READ: Final = "to load previews for 15 minutes"


@dataclasses.dataclass(frozen=True)
class SecurityKeyHooks:
    """The functions that a console needs so that a security key can sign."""

    is_plugged_in: Callable[[], bool]
    ports: Callable[[], Sequence[Port]]
    offer: Callable[[str], Secret]
    """Prompt for a passphrase; Enter alone means that the security key signs."""
    person: Callable[[], contextlib.AbstractContextManager[Person]]
    """Function that returns a context for the person who uses a security key at this terminal."""


class _BrokenError(Exception):
    """A prompt failed because of the terminal, and not because another process interrupted it."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error: Final = error


class KeySession:
    """The approver's key in one console.

    `ask` prompts a person for a passphrase; `who_else` says why a key press may come from another process, or returns
    None. What is typed in a block of `no_echo`, or right after such a block failed, reaches no other part of the
    console. Any thread may use a session.
    """

    def __init__(
        self,
        file: Path,
        *,
        ask: Callable[[str], Secret],
        who_else: Callable[[], str | None],
        no_echo: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
        security_keys: SecurityKeyHooks | None = None,
        clock: Callable[[], float] = since_boot,
    ) -> None:
        self._file: Final = file
        self._security_keys: Final = security_keys
        self._no_echo: Final = no_echo
        self._ask: Final = ask
        self._clock: Final = clock
        self._who_else: Final = who_else
        self.not_kept: str | None = None
        """Reason why the approver's key may not stay open at this terminal, from the last check. None if it may stay
        open, and before the first check.
        """
        self.key_id: str | None = None
        """Id of the approver's key, as reported by the daemon; None if this home has no approver, and before the report."""
        self._deciding: Final[TimedKey[ApproverKey]] = TimedKey(clock, look=self.look)
        self._reading: Final[TimedKey[ReadingKey]] = TimedKey(clock)
        """Key that signs only requests for previews, used if the key for decisions may not stay open."""
        self._broken_off: tuple[str, float] | None = None
        """Subject of the last prompt that was interrupted, and the time of the interruption."""

    @property
    def is_open(self) -> bool:
        """True while the key for decisions is open, so that no passphrase is needed."""
        return self._deciding.is_open

    @property
    def may_read(self) -> bool:
        """True if a preview can be loaded without a passphrase."""
        return self._deciding.is_open or self._reading.is_open

    @property
    def left_s(self) -> float:
        """Seconds until the open key closes by itself."""
        return self._deciding.left_s or self._reading.left_s

    def close(self, why: str | None = None) -> None:
        """Wipe the approver's key, both for decisions and for previews. If the key for decisions was open, `why_locked`
        then returns `why`: the reason to tell the person, or None if the person locked the key.
        """
        self._deciding.close(why)
        self._reading.close()

    def why_locked(self) -> str | None:
        """Return why a key was closed since the last call. None if no key was closed, or the person closed the key."""
        self._close_if_due()
        whys = (self._deciding.why_closed(), self._reading.why_closed())
        return next((why for why in whys if why is not None), None)

    def look(self) -> None:
        """Check whether another process can type at this terminal now; if so, close the key that decides."""
        self.not_kept = self._who_else()
        if self.not_kept is not None:
            self._deciding.close(self.not_kept)

    def _close_if_due(self) -> None:
        self._deciding.close_if_due()
        self._reading.close_if_due()

    @contextlib.contextmanager
    def key(self, purpose: str, about: str = "") -> Iterator[ApproverKey]:
        """Yield the approver's key, and prompt for its passphrase if the key is not open. `purpose` says what the key
        is used for, and `about` distinguishes this use from others with the same purpose. Raises AileronError as `open`
        does.

        If the key is not kept open, it is wiped at the end of the block.
        """
        self._look_and_close()
        if not self._deciding.is_open:
            self.open(purpose, about)
        with self._in_use() as key:
            yield key

    def _look_and_close(self) -> None:
        """Close keys that have expired, and the key for decisions if another process can type at this terminal."""
        self.look()
        self._close_if_due()

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[ApproverKey]:
        """Yield the approver's key for decisions, which the caller has just checked or opened.

        The key is not wiped within the block. It is wiped at the end of the block if no key may stay open.
        """
        with self._deciding.in_use() as key:
            try:
                yield key
            finally:
                if self.not_kept is not None:
                    self._deciding.close()

    @property
    def may_offer(self) -> bool:
        """True if a security key can be offered: it is plugged in, and the next signature needs a passphrase.

        Request the passkeys from the daemon only in this case.
        """
        keys = self._security_keys
        return keys is not None and not self.is_open and keys.is_plugged_in()

    @contextlib.contextmanager
    def signer(self, purpose: str, about: str, passkeys: Sequence[PasskeyKey]) -> Iterator[ApproverKey | SecurityKeys]:
        """Yield the approver's key, as `key` does, or the security key if the person chooses it.

        A security key is offered if one is plugged in and `passkeys` is not empty.
        """
        self._look_and_close()
        keys = self._security_keys if passkeys else None
        if self._deciding.is_open or self._is_opened(purpose, about, keys) or keys is None:
            with self._in_use() as key:
                yield key
            return
        from aileron.approver_key.security_key import SecurityKeys

        with self.asking(f"{purpose}\n{about}"), keys.person() as person:
            by = SecurityKeys(passkeys, person, plugged_in=keys.ports)
            try:
                yield by
            finally:
                by.wipe()

    @contextlib.contextmanager
    def reader(self, purpose: str, about: str, passkeys: Sequence[PasskeyKey]) -> Iterator[Reader]:
        """Yield a key that signs a request for a preview, chosen as `signer` does.

        If no key for decisions may stay open, the passphrase opens a key for previews for 15 minutes, and the prompt says so.
        """
        self._look_and_close()
        if self._reading.is_open:
            with self._reading.in_use() as key:
                yield key
            return
        is_for_all = self.not_kept is not None
        with self.signer(_TO_READ if is_for_all else purpose, about, passkeys) as by:
            yield self._kept_to_read() if is_for_all and self._deciding.is_open else by

    def _kept_to_read(self) -> ReadingKey:
        """Replace the key for decisions, which may not stay open, by a key for previews only, and return the new key."""
        from aileron.approver_key.signing import ReadingKey

        key = ReadingKey(self._deciding.taken())
        self._reading.put(key)
        return key

    def open(self, purpose: str, about: str = "") -> None:
        """Prompt for the passphrase of the approver's key, at most _TRIES times, and open the key.

        Raises AileronError: unauthorized after the last wrong passphrase, hash_mismatch if the file has another approver's key,
        not_found if there is no key file, busy as `asking` does, invalid_request if the terminal fails. Raises KeyboardInterrupt
        if the prompt is interrupted.
        """
        self._is_opened(purpose, about, None)

    def _is_opened(self, purpose: str, about: str, offered: SecurityKeyHooks | None) -> bool:
        """Open the approver's key as `open` does, and return True. Return False if a security key was `offered` and the
        person chose it by pressing Enter alone.
        """
        from aileron.model.failure import AileronError, Boundary, FailureClass

        key, file = self._asked(purpose, about, offered)
        if key is None:
            return False
        if self.key_id is not None and key.key_id != self.key_id:
            key.wipe()
            raise AileronError(
                FailureClass.HASH_MISMATCH,
                f"the key in {file} is not that of this home's approver, {self.key_id}: aileron approver status",
                boundary=Boundary.USER,
            )
        self.not_kept = self._who_else()  # another program may have come while it was typed
        self._deciding.put(key)
        return True

    def _asked(self, purpose: str, about: str, offered: SecurityKeyHooks | None) -> tuple[ApproverKey | None, Path]:
        from aileron.approver_key import keyfile
        from aileron.model.failure import AileronError, Boundary, FailureClass

        file = keyfile.file_of(self._file, self.key_id)
        try:
            with self.asking(f"{purpose}\n{about}"):
                return self._opened(file, purpose, offered), file
        except _BrokenError as broken:
            raise AileronError(
                FailureClass.INVALID_REQUEST,
                f"the passphrase cannot be asked for at this terminal ({type(broken.error).__name__})",
                boundary=Boundary.USER,
            ) from broken.error

    def _opened(self, file: Path, purpose: str, offered: SecurityKeyHooks | None) -> ApproverKey | None:
        from aileron.approver_key import keyfile
        from aileron.model.failure import AileronError, FailureClass

        question = f"Approver passphrase, {purpose}"
        left = _TRIES
        while True:
            typed = self._typed(question, self._ask if offered is None else offered.offer)
            if offered is not None and not len(typed):
                return None
            left -= 1
            try:
                return keyfile.open_key(file, typed)
            except AileronError as error:
                if error.failure.failure_class is not FailureClass.UNAUTHORIZED or not left:
                    raise
                question = f"Wrong passphrase, {left} left. Approver passphrase, {purpose}"

    @contextlib.contextmanager
    def asking(self, about: str) -> Iterator[None]:
        """Wrap a block that prompts for a passphrase at this terminal. `about` identifies the subject of the prompt.

        Raises AileronError (busy) if a prompt about something else was interrupted less than REST_S ago.
        """
        from aileron.model.failure import AileronError, FailureClass

        if self._broken_off is not None and self._broken_off[0] != about and self._rests():
            raise AileronError(
                FailureClass.BUSY,
                f"another passphrase prompt was open just now: wait {REST_S:.0f} s, then check what this one is for",
            )
        try:
            with self._no_echo():
                yield
        except (AileronError, KeyboardInterrupt):
            self._broken_off = (about, self._clock())
            raise

    def _rests(self) -> bool:
        return self._broken_off is not None and self._clock() - self._broken_off[1] < REST_S

    def _typed(self, question: str, ask: Callable[[str], Secret]) -> Secret:
        """Prompt the person with `question` by calling `ask`, and return the typed text.

        Raises _BrokenError if the terminal fails, for example because it was closed.
        """
        from aileron.model.failure import AileronError

        try:
            return ask(question)
        except AileronError:
            raise
        except Exception as error:  # not a closed set: termios.error, OSError, errors of drivers
            raise _BrokenError(error) from error
