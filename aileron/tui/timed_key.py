"""A key that stays open for a limited time. A separate thread then wipes the key, even if the console is busy.

Rules
- The key stays open for at most OPEN_S. Using the key does not extend this time.
- The key is not wiped during a signature (`in_use`) but right after it, because a signal handler can close the key in
  the thread that signs.

Any thread and any signal handler may use a TimedKey. Not here: the passphrase prompt, and the purpose of a key
(key_session.py).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, TypeVar

__all__ = ["CHECK_S", "LOOK_S", "OPEN_S", "TimedKey"]

OPEN_S: Final = 900.0
"""Seconds for which a key stays open: 15 minutes, long enough for several decisions in a row.

A console that stays open all day must not be able to decide all day.
"""
LOOK_S: Final = 3.0
"""Seconds between two checks whether another program can type at the terminal. A check reads /proc, which takes 10 ms
with some hundred processes.
"""
CHECK_S: Final = 0.5
"""Seconds between two checks of the clock. The clock includes the time in which the machine is suspended; a thread's
wait does not.
"""
_TIME_OVER: Final = "its time was over"


class Wipeable(Protocol):
    """A key that can be wiped."""

    def wipe(self) -> None:
        """Overwrite the key, so that it can sign nothing from then on."""


K = TypeVar("K", bound=Wipeable)


class TimedKey(Generic[K]):
    """A holder of at most one key, which is wiped after OPEN_S. While the key is open, `look` is called every LOOK_S,
    and may close it.
    """

    def __init__(self, clock: Callable[[], float], *, look: Callable[[], None] | None = None) -> None:
        self._clock: Final = clock
        self._look: Final = look
        self._lock: Final = threading.RLock()
        self._key: K | None = None
        self._until = 0.0
        self._closed: threading.Event | None = None
        """Event that is set when the current key is removed."""
        self._why: str | None = None
        self._uses = 0
        """Number of nested `in_use` blocks in which the thread that holds the lock is now. Only that thread reads the
        number.
        """
        self._is_closing = False

    @property
    def is_open(self) -> bool:
        """True if there is a key that has not expired."""
        return self.left_s > 0

    @property
    def left_s(self) -> float:
        """Seconds until the key closes by itself; 0 if there is no key."""
        return max(0.0, self._until - self._clock()) if self._key is not None else 0.0

    def put(self, key: K) -> None:
        """Store the key for OPEN_S, and wipe the previous key. Raises RuntimeError if the previous key is in use."""
        with self._lock:
            if self._uses:
                raise RuntimeError("another key is in use")
            self.close()
            self._key, self._until, self._why = key, self._clock() + OPEN_S, None
            self._closed = threading.Event()
            threading.Thread(target=self._watch, args=(self._closed,), daemon=True, name="approver's key").start()

    def taken(self) -> K:
        """Remove the key and return it; the caller must wipe it.

        Raises AileronError (busy) if there is no open key, for example because it was wiped just now.
        """
        with self.in_use() as key:
            self._key = None
            self._unwatch()
            return key

    def close(self, why: str | None = None) -> None:
        """Wipe the key at once, or as soon as it is no longer in use.

        `why_closed` then returns `why`: the reason to tell the person, or None if they closed the key themselves.
        """
        with self._lock:
            if self._key is not None and not self._is_closing:
                self._why = why
                self._until = 0.0
                self._is_closing = True
                self._wipe_unless_in_use()
            self._unwatch()

    def close_if_due(self) -> None:
        """Wipe the key if it has expired."""
        if self._key is not None and self.left_s <= 0:
            self.close(_TIME_OVER)

    def why_closed(self) -> str | None:
        """Return why the key was closed since the last call. None if it was not closed, or the person closed it."""
        with self._lock:
            why, self._why = self._why, None
        return why

    @contextlib.contextmanager
    def in_use(self) -> Iterator[K]:
        """Yield the key, which is not wiped within the block.

        Raises AileronError (busy) if there is no open key, for example because it was wiped just now.
        """
        with self._lock:
            if self._key is None or self._is_closing:
                from aileron.model.failure import AileronError, FailureClass  # after the first frame

                raise AileronError(FailureClass.BUSY, "the key was locked just now: try again")
            self._uses += 1
            try:
                yield self._key
            finally:
                self._uses -= 1
                self._wipe_unless_in_use()

    def _wipe_unless_in_use(self) -> None:
        if self._is_closing and not self._uses:
            self._is_closing = False
            if self._key is not None:
                self._key.wipe()
                self._key = None

    def _unwatch(self) -> None:
        if self._closed is not None:
            self._closed.set()
            self._closed = None

    def _watch(self, closed: threading.Event) -> None:
        """Close the key when it expires, and call `look` at intervals, until the key is removed."""
        looked = self._clock()
        while not closed.wait(CHECK_S):
            self.close_if_due()
            if abs(self._clock() - looked) >= LOOK_S and not closed.is_set():
                looked = self._clock()
                if self._look is not None:
                    self._look()
