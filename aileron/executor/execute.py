"""The executor of approved plans. For each step: record the start, jail the verified bytes, converse, reap, perhaps
retry.

Runs in the daemon. `Executor.execute` accepts only an ApprovedPlan, so that no plan can be executed that did not pass
the gate; its only caller is runs/carry_out.py. Steps run in order, the first failure ends the plan, and the output of
the last step is the result.

Each try has a jail of its own: a spare with this connector loaded (spares.py), or else a new jail. In both cases the
try's start is recorded before anything is sent to the jail.

The step's time (`limits.timeout_s`, shared by all its tries) begins when its first jail is requested.
"""

from __future__ import annotations

import secrets
from typing import Any, Final, NamedTuple, Protocol, get_args

import anyio

from aileron.egress.engine import Egress
from aileron.egress.meter import Meter
from aileron.executor import retry
from aileron.executor.conversation import Claims, HostConversation, StepJournal
from aileron.executor.interpolation import with_answers
from aileron.executor.jails import Jailed, Jails
from aileron.executor.programs import ConnectorStore, Kind, opened, runtime_of
from aileron.executor.spares import Spare, Spares
from aileron.model.failure import AileronError, Failure, FailureClass
from aileron.model.json_value import JSONObject
from aileron.model.plan import ApprovedPlan, Plan, Step
from aileron_sandbox.policy import Policy

__all__ = ["Executor", "RunJournal", "policy_of"]

_JITTER_STEPS: Final = 1 << 16


class RunJournal(Protocol):
    """The interface with which the steps of one run are recorded in the ledger. Each record is durable when its method
    returns.
    """

    async def started(self, step: Step, attempt: int, layers: tuple[str, ...]) -> None:
        """Record the start of a try, before anything is sent to its jail."""
        ...

    async def retried(self, step: Step, attempt: int, failure: Failure, delay_s: float) -> None:
        """Record that a try of the step failed transiently, and that another try follows after `delay_s`."""
        ...

    def of_step(self, step: Step) -> StepJournal:
        """Return the journal in which the step records its requests and audit events."""
        ...


class _Work(NamedTuple):
    """The data of one step of a run, shared by all of its tries."""

    step: Step
    run_id: str
    journal: RunJournal
    meter: Meter
    claims: Claims
    deadline: float
    """Deadline of the step, as in `anyio.current_time()`."""


class Executor:
    """The executor of approved plans. A daemon has exactly one."""

    def __init__(self, jails: Jails, egress: Egress, store: ConnectorStore, spares: Spares) -> None:
        self._jails = jails
        self._egress = egress
        self._store = store
        self._spares = spares

    def layers_ahead(self, plan: Plan) -> tuple[str, ...] | None:
        """Return the confinement layers of the plan's first jail, as they will be recorded. None if they are not known
        yet, because a template must be started first.
        """
        first = plan.steps[0] if plan.steps else None
        if first is None or self._store.known_kind(first.connector) != "python":
            return None
        try:
            return self._jails.layers_ahead(policy_of(first, "python"))
        except AileronError:  # no template can be started now: the run reports it once it is on record
            return None

    async def execute(self, approved: ApprovedPlan, run_id: str, journal: RunJournal) -> Any:
        """Run all steps of an approved plan and return the output of the last. Raises AileronError for the first step
        that fails.
        """
        answers: JSONObject = {}
        for step in approved.plan.steps:
            seen = approved.seen if step.changes_only_seen else None
            answers[step.id] = await self._step(with_answers(step, answers), run_id, journal, seen)
        return answers[approved.plan.steps[-1].id]

    async def _step(self, step: Step, run_id: str, journal: RunJournal, seen: str | None) -> Any:
        deadline = anyio.current_time() + step.limits.timeout_s
        work = _Work(step, run_id, journal, Meter(step.grant.budget, seen), Claims(), deadline)
        attempt = 0
        while True:
            try:
                return await self._try(work, attempt)
            except AileronError as error:
                delay_s = _delay(step, error.failure, attempt, deadline - anyio.current_time())
                if delay_s is None:
                    raise _final(error, step, attempt) from error
                await journal.retried(step, attempt, error.failure, delay_s)
                await anyio.sleep(delay_s)
                attempt += 1

    async def _try(self, work: _Work, attempt: int) -> Any:
        spare = self._maybe_spare(work.step)
        if spare is None:
            return await self._try_afresh(work, attempt)
        async with self._jails.ended(spare.jailed) as jailed:
            await work.journal.started(work.step, attempt, spare.layers)
            talk = self._conversation(jailed, work, was_ready=spare.said_ready)
            output = await talk.run(work.deadline)
        self._spares.want(spare.key.pin, spare.key.policy, was_spare=True)
        return output

    def _maybe_spare(self, step: Step) -> Spare | None:
        """Take a spare of the step's connector, compiled or in Python; None if there is none."""
        found = (self._spares.maybe_take(step.connector, policy_of(step, kind)) for kind in get_args(Kind))
        return next((spare for spare in found if spare is not None), None)

    async def _try_afresh(self, work: _Work, attempt: int) -> Any:
        step = work.step
        with await opened(self._store, step.connector) as program:
            runtime = await runtime_of(step.connector, program.kind, program.program_fd)
            policy = policy_of(step, program.kind)
            await self._jails.prepare(policy, runtime)
            await work.journal.started(step, attempt, self._jails.layers_of(policy, runtime))
            async with self._jails.open(program.program_fd, policy, runtime) as jailed:
                talk = self._conversation(jailed, work)
                output = await talk.run(work.deadline)
        # A compiled program is known to have loaded only if it says so.
        if policy.profile == "python" or (policy.profile == "elf" and talk.said_ready):
            self._spares.want(step.connector, policy, was_spare=False)
        return output

    def _conversation(self, jailed: Jailed, work: _Work, *, was_ready: bool = False) -> HostConversation:
        journal = work.journal.of_step(work.step)
        return HostConversation(
            jailed, self._egress, work.step, work.meter, work.claims, journal, work.run_id, was_ready=was_ready
        )


def policy_of(step: Step, kind: Kind) -> Policy:
    """Return the jail policy of a step: its limits, and the profile of its program."""
    limits = step.limits
    return Policy(
        memory_bytes=limits.memory_mb << 20,
        cpu_s=limits.timeout_s,
        profile="elf-subprocess" if limits.subprocess else kind,
    )


def _delay(step: Step, failure: Failure, retries: int, left_s: float) -> float | None:
    """Return the seconds until the next try; None if no further try follows."""
    if not step.idempotent or retries >= retry.MAX_RETRIES or not retry.is_transient(failure):
        return None
    jitter = secrets.randbelow(_JITTER_STEPS) / _JITTER_STEPS
    delay_s = retry.delay_s(retries, retry_after_s=retry.retry_after_s(failure), jitter=jitter)
    return delay_s if delay_s < left_s else None


def _final(error: AileronError, step: Step, retries: int) -> AileronError:
    """Return a step's error as the failure for the caller. It is retriable only if the step is idempotent, and states
    the number of retries.
    """
    failure = error.failure
    details = {**failure.details, "step": step.id}
    if failure.failure_class is FailureClass.CAPABILITY_DENIED:
        details.setdefault("connector", str(step.connector))
    if retries:
        details["retried"] = retries
    return AileronError(
        failure.failure_class,
        failure.message,
        boundary=failure.boundary,
        retriable=failure.retriable and step.idempotent,
        details=details,
    )
