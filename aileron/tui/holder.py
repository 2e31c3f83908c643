"""The approver's key while the console has it open: for how long, and for what.

Runs in the console's own process, which nobody of the same user can look into. The passphrase is asked for at the terminal itself
(approver/presence.py); there is no other way to it.

Rules
- Open for OPEN_S at most, from the passphrase on; nothing that is done lengthens it.
- Where others than the person can press keys at this terminal (approver/terminal.py) it is not kept open: each use asks anew.
- It is the key of this home's approver, or it is wiped.

Not here: what is signed (approver/signing.py), when a key may decide (guard.py).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # cryptography: 30 ms, at the first passphrase
    from aileron.approver.keyfile import ApproverKey
    from aileron.model.secret import Secret

__all__ = ["OPEN_S", "Holder", "since_boot"]

OPEN_S: Final = 900.0
"""15 minutes: some decisions in a row; a console that stays open all day is not one that decides all day."""
_TRIES: Final = 3


def since_boot() -> float:
    """Seconds, those in which the machine sleeps with its lid closed among them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Holder:
    """One for each console. `ask` has a person type a passphrase after a question."""

    def __init__(
        self,
        file: Path,
        *,
        ask: Callable[[str], Secret],
        not_kept: str | None,
        clock: Callable[[], float] = since_boot,
    ) -> None:
        self._file: Final = file
        self._ask: Final = ask
        self._clock: Final = clock
        self.not_kept: Final = not_kept
        """Why no key is kept open here; None: it is."""
        self.key_id: str | None = None
        """Whose signature counts, as the daemon says; None: nobody's, or it did not say yet."""
        self._key: ApproverKey | None = None
        self._until = 0.0

    @property
    def is_open(self) -> bool:
        """Whether a key press is enough to decide."""
        return self._key is not None and self.left_s > 0

    @property
    def left_s(self) -> float:
        """Seconds until it closes by itself."""
        return max(0.0, self._until - self._clock()) if self._key is not None else 0.0

    def close(self) -> None:
        """Forget the key."""
        if self._key is not None:
            self._key.wipe()
            self._key = None

    def close_on_time(self) -> bool:
        """Close it if its time is over; whether it was."""
        if self._key is None or self.left_s > 0:
            return False
        self.close()
        return True

    @contextlib.contextmanager
    def key(self, purpose: str) -> Iterator[ApproverKey]:
        """The key, asked for where it is not open; `purpose` says for what. AileronError for what is wrong with a passphrase.

        Where it is not kept open it is wiped at the end of the block.
        """
        self.close_on_time()
        if self._key is None:
            self.open(purpose)
        key = self._key
        if key is None:
            raise AssertionError("open() gives a key, or raises")
        try:
            yield key
        finally:
            if self.not_kept is not None:
                self.close()

    def open(self, purpose: str) -> None:
        """Ask for the passphrase, some times. AileronError unauthorized, hash_mismatch, not_found; KeyboardInterrupt."""
        from aileron.approver import keyfile
        from aileron.model.failure import AileronError, Boundary, FailureClass

        file = keyfile.file_of(self._file, self.key_id)
        question = f"Approver passphrase, {purpose}"
        for left in range(_TRIES - 1, -1, -1):
            typed = self._typed(question)
            try:
                key = keyfile.open_key(file, typed)
                break
            except AileronError as error:
                if error.failure.failure_class is not FailureClass.UNAUTHORIZED or not left:
                    raise
                question = f"It is another one; try again ({left} left). Approver passphrase, {purpose}"
        if self.key_id is not None and key.key_id != self.key_id:
            key.wipe()
            raise AileronError(
                FailureClass.HASH_MISMATCH,
                f"the key in {file} is not that of this home's approver, {self.key_id}: aileron approver status",
                boundary=Boundary.USER,
            )
        self.close()
        self._key, self._until = key, self._clock() + OPEN_S

    def _typed(self, question: str) -> Secret:
        """What the person typed. AileronError also for what a terminal that is going away does to whoever asks there."""
        from aileron.model.failure import AileronError, Boundary, FailureClass

        try:
            return self._ask(question)
        except AileronError:
            raise
        except Exception as error:  # a closed set there is none: termios.error, OSError, what a driver raises
            raise AileronError(
                FailureClass.INVALID_REQUEST,
                f"the passphrase cannot be asked for at this terminal ({type(error).__name__})",
                boundary=Boundary.USER,
            ) from error
