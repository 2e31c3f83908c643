"""Who waits for a change of a run, or of a consent, is woken by it: no polling of the disk, and no news of others.

Runs in the daemon's event loop. It says that something changed, never what: whoever is woken reads the record again, so a
missed or doubled wake-up can cost time and never the truth.

Rules
- Take the next change, then read, then wait for it: what changes in between is not missed.
- Holds one entry for each run that somebody watches, and nothing for the others. A consent is watched by the id of its question,
  as a run is by its own: no two of these are alike.

>>> async def until_over(watch, run_id, read):                                               # doctest: +SKIP
...     return await watch.follow(run_id, await read(), read, lambda state: state.is_final, 60)

Not here: what a state means (query.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import anyio

__all__ = ["Watch", "WatchedRun"]

T = TypeVar("T")


class WatchedRun:
    """One run, watched by one or more."""

    def __init__(self) -> None:
        self.watchers = 0
        self.next_change = anyio.Event()

    def tell(self) -> None:
        """Wake everybody who waits."""
        self.next_change.set()
        self.next_change = anyio.Event()


class Watch:
    """One for each daemon; the audit log tells it of every change."""

    def __init__(self) -> None:
        self._runs: dict[str, WatchedRun] = {}
        self.next_question = anyio.Event()
        """Set when a person is asked something that nobody asked before."""

    def changed(self, run_id: str | None) -> None:
        """The state of a run, or of a consent, is another than before, durably."""
        watched = self._runs.get(run_id) if run_id is not None else None
        if watched is not None:
            watched.tell()

    @contextlib.contextmanager
    def on(self, run_id: str) -> Iterator[WatchedRun]:
        """Watch one run for the length of the block."""
        watched = self._runs.setdefault(run_id, WatchedRun())
        watched.watchers += 1
        try:
            yield watched
        finally:
            watched.watchers -= 1
            if not watched.watchers:
                del self._runs[run_id]

    async def follow(
        self, run_id: str, seen: T, look: Callable[[], Awaitable[T]], is_over: Callable[[T], bool], wait_s: float
    ) -> T:
        """What `look` finds once it is over, or what was seen last when `wait_s` is; `seen` is what is known before."""
        with self.on(run_id) as watched, anyio.move_on_after(max(0.0, wait_s)):
            while not is_over(seen):
                changed = watched.next_change
                seen = await look()
                if not is_over(seen):
                    await changed.wait()
        return seen

    def asked(self) -> None:
        """A person was asked something new."""
        self.next_question.set()
        self.next_question = anyio.Event()
