"""The progress of runs: the latest report of each run, for all watchers.

Runs in the daemon's event loop. Reports are a connector's unverified claims: they are shown, but no decision depends on
them, and they are not recorded. Reports cannot contain a secret, because no secret enters a jail
(docs/reference/egress.md#scrubbing).

Rules
- Only the latest report is kept: watchers do not see every report, and endless reports cost only their frames.
- A watcher receives at most one report per PERIOD_S.
- Holds one entry for each run that is in progress or watched, and nothing for other runs.

Source: docs/reference/http-api.md, "States". Not here: the frame (aileron_sandbox.frames), what an agent sees (mcp/).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import anyio

from aileron.api.runs import Progress
from aileron.model.visible import visible

__all__ = ["MAX_AMOUNT", "MAX_MESSAGE", "PERIOD_S", "Board", "Reported"]

PERIOD_S: Final = 0.1
"""Minimum seconds between two progress reports to one watcher: faster than a person reads, slow enough for a terminal
and an agent's log.
"""
MAX_MESSAGE: Final = 200
"""Maximum number of characters in the message of a connector's progress report: one line of a terminal."""
MAX_AMOUNT: Final = 2**53
"""Maximum of the amounts in a progress report (done and total): the largest integer that every JSON reader supports
(RFC 8259 section 6).
"""


class Reported:
    """The latest progress report of one run. `number` counts the run's reports from 1; 0 means that there is none yet."""

    def __init__(self) -> None:
        self.number = 0
        self.holders = 0
        self._changed: anyio.Event | None = None
        self._said: tuple[int | float, int | float | None, str | None] = (0, None, None)

    def note(self, done: int | float, total: int | float | None, message: str | None) -> None:
        """Store a progress report of the run's connector as the latest.

        A report whose `done` is not a usable number (_is_amount), such as NaN, is ignored. Cheap, as there may be many.
        """
        if not _is_amount(done):
            return
        self.number += 1
        total = total if total is not None and _is_amount(total) else None
        self._said = (done, total, None if message is None else message[:MAX_MESSAGE])
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def latest(self) -> Progress | None:
        """Return the latest progress report; None before the first report."""
        if not self.number:
            return None
        done, total, message = self._said
        words = None if message is None else visible(message)
        return Progress(number=self.number, done=done, total=total, message=words)

    async def newer(self, seen: int) -> None:
        """Wait at least PERIOD_S, and until the latest progress report has a higher number than `seen`.

        The caller must set a deadline, because this may never return.
        """
        at_the_earliest = anyio.current_time() + PERIOD_S
        while self.number <= seen:
            self._changed = self._changed or anyio.Event()
            await self._changed.wait()
        await anyio.sleep_until(at_the_earliest)


def _is_amount(value: int | float) -> bool:
    """Return whether every JSON reader supports this number, and a sum of a few such numbers is still finite. False for NaN."""
    return -MAX_AMOUNT <= value <= MAX_AMOUNT


class Board:
    """The latest progress reports of all runs in progress. Each daemon has one board."""

    def __init__(self) -> None:
        self._runs: dict[str, Reported] = {}

    @contextlib.contextmanager
    def on(self, run_id: str) -> Iterator[Reported]:
        """Return a context manager that keeps a run's latest progress report until the end of its block. The run and
        each watcher enter a context of their own.
        """
        reported = self._runs.setdefault(run_id, Reported())
        reported.holders += 1
        try:
            yield reported
        finally:
            reported.holders -= 1
            if not reported.holders:
                del self._runs[run_id]
