"""One request to a token endpoint at a time for each binding, and everybody who needs it meanwhile waits for that one.

Runs in the daemon, in its event loop. What a job asks for is its owner's: a renewal (renew.py), or a token that nobody signs in
for (minting.py).

Rules
- A job belongs to nobody who waits for it: they may go away, and it goes on. It has a deadline of its own, and another one when
  the daemon stops.
- Whatever becomes of it, whoever waits is told, with a value: each raises an exception of its own.
- An endpoint that fails is left alone for a while, longer each time.
- What happened goes on record; where it cannot, it has happened all the same.
- Nothing secret is in a message, a log line or a cause.

Source: docs/reference/sign-in.md. Not here: when a job is begun, what is done with its answer (renew.py, minting.py).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, Protocol, TypeVar

import anyio
import anyio.abc
import msgspec

from aileron.model.failure import AileronError, Boundary, Failure, FailureClass
from aileron.model.names import BindingName
from aileron.oauth.endpoint import EXCHANGE_S

__all__ = ["Job", "JobJournal", "JobTiming", "Jobs", "Series", "make_room"]

MAX_STATES: Final = 1000  # as many bindings as a vault holds
_log = logging.getLogger(__name__)
_S = TypeVar("_S", bound="Series")


class JobJournal(Protocol):
    """The audit trail, as seen from here."""

    async def renewing(self, binding: BindingName, host: str) -> None:
        """Durable when it returns. What it raises stops the job."""
        ...

    async def renewed(self, binding: BindingName) -> None:
        """It went well."""
        ...

    async def failed(self, binding: BindingName, code: str) -> None:
        """It did not: the provider's error code, or ours (problems.py)."""
        ...


class JobTiming(msgspec.Struct, frozen=True):
    """How long and how often, in seconds; tests that play an outage make it shorter."""

    exchange_s: float = EXCHANGE_S
    """For the provider's answer."""
    patience_s: float = 5.0
    """A request waits so long for another token while the one there is still counts."""
    fresh_s: float = 30.0
    """So young a token is not replaced for a 401: there is another reason, and a service that always says so costs no more."""
    least_s: float = 1.0
    """Nor for its end: a provider whose tokens end at once is asked no more often."""
    first_pause_s: float = 5.0
    """A provider that failed is left alone, twice as long after each failure …"""
    longest_pause_s: float = 300.0
    """… up to this: once it works again, nobody waits longer."""
    write_again_s: float = 10.0
    """Between two tries to write what could not be written."""
    last_s: float = 5.0
    """For what is under way when the daemon stops: an answer that is on its way is there by then."""


class Job:
    """One request under way. Shielded: whoever began it does not end it."""

    def __init__(self, deadline: float) -> None:
        self.done: Final = anyio.Event()
        self.scope: Final = anyio.CancelScope(shield=True, deadline=deadline)
        self.failure: Failure | None = None


class Series:
    """What is remembered of one binding's jobs, in this process. Times as in `anyio.current_time()`."""

    def __init__(self) -> None:
        self.job: Job | None = None
        self.failures = 0
        self.problem: Failure | None = None
        self.pause_until = 0.0

    def went_well(self) -> None:
        """The next failure is the first again."""
        self.failures, self.problem = 0, None

    def maybe_paused(self) -> Failure | None:
        """Why the endpoint is left alone now; None: it may be asked."""
        left_s = self.pause_until - anyio.current_time()
        if self.problem is None or left_s <= 0:
            return None
        message = f"{self.problem.message} (next attempt in {max(1, round(left_s))} s)"
        return msgspec.structs.replace(self.problem, message=message)


def make_room(states: dict[BindingName, _S], is_idle: Callable[[_S], bool]) -> None:
    """For one more: the oldest that are idle go where there are MAX_STATES."""
    for name in [name for name, state in states.items() if is_idle(state)]:
        if len(states) >= MAX_STATES:
            del states[name]


class Jobs:
    """All jobs of one owner. They run while it is `served`."""

    def __init__(self, journal: JobJournal, pace: JobTiming, *, does: str, around_s: float) -> None:
        """`does`: what a job does, in words before a binding's name; `around_s`: what it may take beside the exchange."""
        self._journal: Final = journal
        self._pace: Final = pace
        self._does: Final = does
        self._around_s: Final = around_s
        self._running: Final = set[Job]()
        self._tasks: anyio.abc.TaskGroup | None = None

    @contextlib.asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        """Carry jobs out; left only when all of them have an end."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                yield
            finally:
                self._tasks = None
                last = anyio.current_time() + self._pace.last_s
                for job in self._running:
                    job.scope.deadline = min(job.scope.deadline, last)

    async def outcome(
        self,
        name: BindingName,
        series: Series,
        work: Callable[[], Awaitable[None]],
        problem: Callable[[str], Failure],
        deadline: float,
    ) -> Failure | None:
        """Wait for the job under way, or begin one with `work`; what it failed with. `problem`: one of our own, by its code."""
        job = series.job
        if job is None:
            if self._tasks is None:
                return problem("stopping")
            job = series.job = Job(anyio.current_time() + self._pace.exchange_s + self._around_s)
            self._running.add(job)
            self._tasks.start_soon(self._carry_out, name, series, job, work, problem)
        with anyio.CancelScope(deadline=deadline):
            await job.done.wait()
            return job.failure
        return problem("too_slow")

    async def refused(self, name: BindingName, series: Series, error: AileronError, code: str) -> AileronError:
        """`error`, after it was put down; for a while the endpoint is left alone."""
        pause_s = min(self._pace.longest_pause_s, self._pace.first_pause_s * 2 ** min(series.failures, 30))
        series.failures += 1
        series.problem, series.pause_until = error.failure, anyio.current_time() + pause_s
        _log.warning("%s %s failed (%s): %s", self._does, name, code, error)
        await self.noted(name, self._journal.failed(name, code))
        return error

    async def noted(self, name: BindingName, note: Awaitable[None]) -> None:
        """Put down what happened, if that is possible."""
        try:
            await note
        except AileronError as error:
            _log.error("could not record the outcome of %s %s: %s", self._does, name, error)

    async def _carry_out(
        self,
        name: BindingName,
        series: Series,
        job: Job,
        work: Callable[[], Awaitable[None]],
        problem: Callable[[str], Failure],
    ) -> None:
        """The end of a task: whatever happens, whoever waits is told."""
        try:
            with job.scope:
                job.failure = await self._attempt(name, work)
            if job.scope.cancelled_caught:
                job.failure = problem("stopping" if self._tasks is None else "too_slow")
        finally:
            series.job = None
            self._running.discard(job)
            job.done.set()

    async def _attempt(self, name: BindingName, work: Callable[[], Awaitable[None]]) -> Failure | None:
        try:
            await work()
        except AileronError as error:
            return error.failure
        except Exception as error:  # noqa: BLE001 - the end of a task. Its words and its trace may hold a secret: only the kind
            _log.error("unexpected error while %s %s (%s)", self._does, name, type(error).__name__)
            return Failure(
                failure_class=FailureClass.INTERNAL_ERROR,
                message=f"unexpected error while {self._does} {name}: this is a bug, please report it with `aileron daemon logs`",
                boundary=Boundary.RUNTIME,
            )
        return None
