"""Wake-ups for callers that wait for a change of a run or a consent: no polling of the disk, no wake-ups for other runs.

Runs in the daemon's event loop. It says that something changed, never what changed: a caller that is woken reads the
record again. So a missed or doubled wake-up can cost time, but never gives a wrong state.

Rules
- Get the event of the next change first, then read, then wait for the event: then no change in between is missed.
- Holds one entry for each watched run, and nothing for the others. A consent is watched by the id of its question, a
  run by its own id: ids of both kinds are unique.

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
    """A run or consent for whose changes at least one caller waits."""

    def __init__(self) -> None:
        self.watchers = 0
        self.next_change = anyio.Event()

    def tell(self) -> None:
        """Wake all callers that wait for a change of this run or consent."""
        self.next_change.set()
        self.next_change = anyio.Event()


class Watch:
    """The callers in one daemon that wait for a change of a run or consent, or for a new question. Audit reports every change
    here.
    """

    def __init__(self) -> None:
        self._runs: dict[str, WatchedRun] = {}
        self.next_question = anyio.Event()
        """Event that is set when a person is asked a new question, and then replaced by a new one."""

    def changed(self, run_id: str | None) -> None:
        """Wake the callers that watch this run or consent, whose state has durably changed."""
        watched = self._runs.get(run_id) if run_id is not None else None
        if watched is not None:
            watched.tell()

    @contextlib.contextmanager
    def on(self, run_id: str) -> Iterator[WatchedRun]:
        """Return a context manager whose block watches one run or consent for changes."""
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
        """Call `look` after each change for the run or consent, until `is_over` returns True for its result; return
        that result, or the last one after `wait_s` seconds.

        `seen` is the result that the caller already has.
        """
        with self.on(run_id) as watched, anyio.move_on_after(max(0.0, wait_s)):
            while not is_over(seen):
                changed = watched.next_change
                seen = await look()
                if not is_over(seen):
                    await changed.wait()
        return seen

    def asked(self) -> None:
        """Report that a person was asked a new question."""
        self.next_question.set()
        self.next_question = anyio.Event()
