"""Runs that outlive their callers: a client that goes away never cancels a started run.

Runs in the daemon. Each invocation is a task of the daemon's own task group; a caller waits for it, at most as long as it
asked for, and gets the run id when that is over first. At most MAX_RUNS are under way; one more is told `busy`.
"""

from __future__ import annotations

import logging
from typing import Final

import anyio
from anyio.abc import TaskGroup

from aileron.model.failure import AileronError, FailureClass
from aileron.model.invocation import Invocation
from aileron.model.outcome import Outcome, Pending, Running
from aileron.runs.perform import Spine

__all__ = ["MAX_RUNS", "Runner"]

MAX_RUNS: Final = 64
"""Under way at once: as many jails as a template may have."""
_log = logging.getLogger(__name__)


class _Entry:
    def __init__(self) -> None:
        self.run_id: str | None = None
        self.recorded = anyio.Event()
        self.done = anyio.Event()
        self.answer: Outcome | Pending | Running | None = None
        self.error: AileronError | None = None

    def announce(self, run_id: str) -> None:
        self.run_id = run_id
        self.recorded.set()


class Runner:
    """Submits invocations to the spine. `tasks` must outlive every caller."""

    def __init__(self, spine: Spine, tasks: TaskGroup) -> None:
        self._spine = spine
        self._tasks = tasks
        self._under_way: dict[str, _Entry] = {}
        self._count = 0

    async def submit(self, invocation: Invocation, wait_s: float) -> Outcome | Pending | Running:
        """Begin; wait until it ends, or waits for a person, or `wait_s` is over. AileronError busy past MAX_RUNS."""
        if self._count >= MAX_RUNS:
            raise AileronError(
                FailureClass.BUSY, f"{MAX_RUNS} runs are under way: try again when one has ended", retriable=True
            )
        entry = _Entry()
        self._count += 1
        self._tasks.start_soon(self._run, invocation, entry)
        with anyio.move_on_after(wait_s):
            await entry.done.wait()
        await entry.recorded.wait()  # never long: it is one commit away
        return self._answer(entry)

    async def wait(self, run_id: str, wait_s: float) -> bool:
        """Wait for a run that is under way here, at most `wait_s`; whether it is over (True too for one unknown here)."""
        entry = self._under_way.get(run_id)
        if entry is None:
            return True
        with anyio.move_on_after(wait_s):
            await entry.done.wait()
        return entry.done.is_set()

    async def _run(self, invocation: Invocation, entry: _Entry) -> None:
        def announce(run_id: str) -> None:
            entry.announce(run_id)
            self._under_way[run_id] = entry

        try:
            entry.answer = await self._spine.request(invocation, announce)
        except AileronError as error:  # the ledger said no: nothing was done
            entry.error = error
        except Exception:  # noqa: BLE001 - the end of a task: whoever waits must hear of it
            _log.exception("a run ended in a way nobody foresaw")
            message = "this is a bug in aileron; `aileron daemon logs` has the details, please report them"
            entry.error = AileronError(FailureClass.INTERNAL_ERROR, message)
        finally:
            self._count -= 1
            if entry.run_id is not None:
                self._under_way.pop(entry.run_id, None)
            entry.recorded.set()
            entry.done.set()

    @staticmethod
    def _answer(entry: _Entry) -> Outcome | Pending | Running:
        if entry.error is not None:
            raise entry.error
        if entry.answer is not None:
            return entry.answer
        if entry.run_id is None:
            raise AileronError(FailureClass.INTERNAL_ERROR, "the daemon is stopping: the run did not begin")
        return Running(run_id=entry.run_id)
