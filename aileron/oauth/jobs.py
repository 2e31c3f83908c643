"""Runs at most one request to a token endpoint for each binding at a time. All callers that need the result meanwhile wait for
that request.

Runs in the daemon, in its event loop. The owner of a job determines its request: a renewal (renew.py), or a token without a
sign-in (minting.py).

Rules
- A job does not belong to the callers that wait for it: it continues if they are cancelled. A job has its own deadline, and an
  earlier deadline when the daemon stops.
- Each waiting caller gets the result of the job as a value, even if it is a failure, and raises its own exception.
- After a failure, no request is sent to the endpoint for a while, which is longer after each further failure.
- The result is recorded; if it cannot be recorded, it is valid nevertheless.
- Nothing secret is in a message, a log line or a cause.

Source: docs/reference/sign-in.md. Not here: when a job begins, and the use of its response (renew.py, minting.py).
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
    """Interface with which jobs (requests to token endpoints) are recorded in the audit trail."""

    async def renewing(self, binding: BindingName, host: str) -> None:
        """Record that a request for a new token of the binding is about to be sent to `host`, before it is sent.

        The record is durable when this method returns. If the method raises an exception, the request is not sent.
        """
        ...

    async def renewed(self, binding: BindingName) -> None:
        """Record that the request for the binding's new token succeeded."""
        ...

    async def failed(self, binding: BindingName, code: str) -> None:
        """Record that the request for the binding's new token failed, with the provider's error code or one of
        Aileron's own (problems.py).
        """
        ...


class JobTiming(msgspec.Struct, frozen=True):
    """The time limits and pauses of jobs, in seconds. Tests that simulate an outage make them shorter."""

    exchange_s: float = EXCHANGE_S
    """Longest time to wait for the provider's response."""
    patience_s: float = 5.0
    """Longest time that a request waits for a new token while the present token is still valid."""
    fresh_s: float = 30.0
    """Minimum age of a token that is replaced after a service refused it with 401. If a younger token is refused, the
    refusal must have another cause. So a service that always responds with 401 causes no further requests.
    """
    least_s: float = 1.0
    """Minimum age of a token that is replaced because it expires soon, so that a provider whose tokens expire at once is not
    asked more often.
    """
    first_pause_s: float = 5.0
    """First pause after a failure, during which no request is sent to the provider. The pause doubles with each further
    failure, up to `longest_pause_s`.
    """
    longest_pause_s: float = 300.0
    """Longest pause after a failure: once the provider has recovered, no caller waits longer than this."""
    write_again_s: float = 10.0
    """Pause before another attempt to write tokens that could not be written into the vault."""
    last_s: float = 5.0
    """Time that jobs in progress get to end when the daemon stops, so that a response that is already on its way
    arrives.
    """


class Job:
    """A job: a request in progress to a token endpoint. Cancelling the caller that began the job does not end it."""

    def __init__(self, deadline: float) -> None:
        self.done: Final = anyio.Event()
        self.scope: Final = anyio.CancelScope(shield=True, deadline=deadline)
        self.failure: Failure | None = None


class Series:
    """The state of one binding's requests to its token endpoint, in memory. Times are as in `anyio.current_time()`."""

    def __init__(self) -> None:
        self.job: Job | None = None
        self.failures = 0
        self.problem: Failure | None = None
        self.pause_until = 0.0

    def went_well(self) -> None:
        """Record that a request succeeded: reset the count of failures, so that the next failure counts as the first."""
        self.failures, self.problem = 0, None

    def maybe_paused(self) -> Failure | None:
        """Return the failure because of which no request is sent to the endpoint for now, or None if requests can be
        sent.
        """
        left_s = self.pause_until - anyio.current_time()
        if self.problem is None or left_s <= 0:
            return None
        message = f"{self.problem.message} (next attempt in {max(1, round(left_s))} s)"
        return msgspec.structs.replace(self.problem, message=message)


def make_room(states: dict[BindingName, _S], is_idle: Callable[[_S], bool]) -> None:
    """Make room for the state of one more binding: if `states` has MAX_STATES, remove the oldest that are idle."""
    for name in [name for name, state in states.items() if is_idle(state)]:
        if len(states) >= MAX_STATES:
            del states[name]


class Jobs:
    """The requests of one owner (renewals, or token requests without a sign-in) to token endpoints. They run while the
    block of `served` runs.
    """

    def __init__(self, journal: JobJournal, pace: JobTiming, *, does: str, around_s: float) -> None:
        """Create the jobs of one owner. None runs before `served` is entered.

        `does` says what a job does, as a phrase that precedes a binding's name. `around_s` is the time that a job can take
        before and after its HTTP exchange.
        """
        self._journal: Final = journal
        self._pace: Final = pace
        self._does: Final = does
        self._around_s: Final = around_s
        self._running: Final = set[Job]()
        self._tasks: anyio.abc.TaskGroup | None = None

    @contextlib.asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        """Return a context manager that runs jobs while its block runs. The block is left only when all jobs have
        ended.
        """
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
        """Wait for the binding's job in progress, or begin a job that runs `work` and wait for it. Return the job's
        failure; None if it succeeded.

        `problem` creates a failure from one of Aileron's own codes (problems.py).
        """
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
        """Record that the binding's request failed with this error and return the error. No request is sent to the
        endpoint for a while.
        """
        pause_s = min(self._pace.longest_pause_s, self._pace.first_pause_s * 2 ** min(series.failures, 30))
        series.failures += 1
        series.problem, series.pause_until = error.failure, anyio.current_time() + pause_s
        _log.warning("%s %s failed (%s): %s", self._does, name, code, error)
        await self.noted(name, self._journal.failed(name, code))
        return error

    async def noted(self, name: BindingName, note: Awaitable[None]) -> None:
        """Await `note`, which records the outcome of a job; if that fails, log the error and do not raise it."""
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
        """Run one job, and wake the callers that wait for it, whatever its result is."""
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
        except Exception as error:  # noqa: BLE001 - the end of a task. Text and trace may hold a secret: log only the type
            _log.error("unexpected error while %s %s (%s)", self._does, name, type(error).__name__)
            return Failure(
                failure_class=FailureClass.INTERNAL_ERROR,
                message=f"unexpected error while {self._does} {name}: this is a bug, please report it with `aileron daemon logs`",
                boundary=Boundary.RUNTIME,
            )
        return None
