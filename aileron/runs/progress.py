"""How far the runs that are under way say they are: the latest word of each, for whoever watches.

Runs in the daemon's event loop. What is kept are a connector's own words, which prove nothing: they are shown, never decided
by, and are in no record. No secret can be in them, since none enters a jail (docs/reference/egress.md#scrubbing).

Rules
- The latest counts: nobody is told of every frame, and a connector that reports without end costs no more than its frames.
- A watcher is answered at most every PERIOD_S.
- Holds one entry for each run that is under way or watched, and nothing for the others.

Source: docs/reference/http-api.md, "States". Not here: the frame (aileron_sandbox.frames), what an agent is told (mcp/).
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
"""Between two answers to one watcher: faster than anybody reads, and slow enough for a terminal and an agent's log."""
MAX_MESSAGE: Final = 200
"""Characters of a connector's message: one line of a terminal."""
MAX_AMOUNT: Final = 2**53
"""The largest integer that every reader of JSON has (RFC 8259 section 6)."""


class Reported:
    """What one run said last. `number` counts its reports from 1; 0: none yet."""

    def __init__(self) -> None:
        self.number = 0
        self.holders = 0
        self.changed: anyio.Event | None = None
        self._said: tuple[int | float, int | float | None, str | None] = (0, None, None)

    def note(self, done: int | float, total: int | float | None, message: str | None) -> None:
        """The connector reported. Cheap: it decides how often. What is no amount, such as NaN, is not passed on."""
        if not _is_amount(done):
            return
        self.number += 1
        total = total if total is not None and _is_amount(total) else None
        self._said = (done, total, None if message is None else message[:MAX_MESSAGE])
        if self.changed is not None:
            self.changed.set()
            self.changed = None

    def latest(self) -> Progress | None:
        """What it said last; None before the first."""
        if not self.number:
            return None
        done, total, message = self._said
        words = None if message is None else visible(message)
        return Progress(number=self.number, done=done, total=total, message=words)


def _is_amount(value: int | float) -> bool:
    """Whether JSON has it, every reader can hold it, and a sum of a few is still finite. False for NaN."""
    return -MAX_AMOUNT <= value <= MAX_AMOUNT


class Board:
    """One for each daemon."""

    def __init__(self) -> None:
        self._runs: dict[str, Reported] = {}

    @contextlib.contextmanager
    def on(self, run_id: str) -> Iterator[Reported]:
        """What this run reports, for the length of the block: for the run itself, and for who watches it."""
        reported = self._runs.setdefault(run_id, Reported())
        reported.holders += 1
        try:
            yield reported
        finally:
            reported.holders -= 1
            if not reported.holders:
                del self._runs[run_id]

    def latest(self, run_id: str) -> Progress | None:
        """As `Reported.latest`; None also for a run that is not under way."""
        reported = self._runs.get(run_id)
        return None if reported is None else reported.latest()

    async def newer(self, run_id: str, seen: int) -> None:
        """Wait for a report of a higher number than `seen`, and PERIOD_S at least. For ever, if there is none: bound it."""
        at_the_earliest = anyio.current_time() + PERIOD_S
        with self.on(run_id) as reported:
            while reported.number <= seen:
                reported.changed = reported.changed or anyio.Event()
                await reported.changed.wait()
            await anyio.sleep_until(at_the_earliest)
