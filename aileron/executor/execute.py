"""One approved plan, step by step: open the verified bytes, write down the start, jail, converse, reap, perhaps again.

Runs in the daemon. `Executor.execute` takes an ApprovedPlan and nothing else, so nothing can be executed that did not pass
the gate; its only caller is the spine (runs/spine.py). Steps run in order, the first failure ends the plan, the output of
the last step is the result.

The step's deadline (`limits.timeout_s`, one for all its tries) begins when its first jail is asked for.
"""

from __future__ import annotations

import secrets
from contextlib import AbstractContextManager
from typing import Any, Final, Literal, Protocol

import anyio
import anyio.to_thread

from aileron.egress.engine import Egress
from aileron.egress.meter import Meter
from aileron.executor import retry
from aileron.executor.conversation import Claims, HostConversation, StepJournal
from aileron.executor.interpolation import with_answers
from aileron.executor.jails import Jails
from aileron.model.failure import AileronError, Boundary, Failure, FailureClass
from aileron.model.plan import ApprovedPlan, ConnectorPin, Plan, Step
from aileron_sandbox.elf import ElfRuntime
from aileron_sandbox.ending import JailUnavailable
from aileron_sandbox.policy import Policy

__all__ = ["ConnectorStore", "Executor", "Kind", "Program", "RunJournal", "policy_of", "runtime_of"]

_JITTER_STEPS: Final = 1 << 16
Kind = Literal["python", "elf"]


class Program(Protocol):
    """One connector's bytes, verified."""

    @property
    def program_fd(self) -> int:
        """A sealed descriptor of exactly the bytes that were hashed."""
        ...

    @property
    def kind(self) -> Kind:
        """`python` for a zip application, `elf` for a program."""
        ...


class ConnectorStore(Protocol):
    """Where verified connector bytes come from."""

    def open(self, pin: ConnectorPin) -> AbstractContextManager[Program]:
        """Read once, hash those bytes, seal them. AileronError hash_mismatch or not_found."""
        ...

    def known_kind(self, pin: ConnectorPin) -> Kind | None:
        """What kind of program it was when it was last verified, without reading it again; None for one not seen yet."""
        ...


class RunJournal(Protocol):
    """The ledger, as one run sees it. Each call is durable when it returns."""

    async def started(self, step: Step, attempt: int, layers: tuple[str, ...]) -> None:
        """A jail is about to exist."""
        ...

    async def retried(self, step: Step, attempt: int, failure: Failure, delay_s: float) -> None:
        """A try failed in a way that may pass, and another follows after `delay_s`."""
        ...

    def of_step(self, step: Step) -> StepJournal:
        """What the step itself writes."""
        ...


class Executor:
    """Carries approved plans out. One for each daemon."""

    def __init__(self, jails: Jails, egress: Egress, store: ConnectorStore) -> None:
        self._jails = jails
        self._egress = egress
        self._store = store

    def layers_ahead(self, plan: Plan) -> tuple[str, ...] | None:
        """The layers of the plan's first jail, as the record of its start lists them; None where they are known only when it is
        asked for, because the template of a compiled program may still have to be started.
        """
        first = plan.steps[0] if plan.steps else None
        if first is None or self._store.known_kind(first.connector) != "python":
            return None
        return self._jails.layers_of(policy_of(first, "python"), None)

    async def execute(self, approved: ApprovedPlan, run_id: str, journal: RunJournal) -> Any:
        """The output of the last step. AileronError: the first failure."""
        answers: dict[str, Any] = {}
        for step in approved.plan.steps:
            answers[step.id] = await self._step(with_answers(step, answers), run_id, journal)
        return answers[approved.plan.steps[-1].id]

    async def _step(self, step: Step, run_id: str, journal: RunJournal) -> Any:
        deadline = anyio.current_time() + step.limits.timeout_s
        meter, claims = Meter(step.grant.budget), Claims()
        attempt = 0
        while True:
            try:
                return await self._try(step, run_id, journal, meter, claims, deadline, attempt)
            except AileronError as error:
                delay_s = _delay(step, error.failure, attempt, deadline - anyio.current_time())
                if delay_s is None:
                    raise _final(error, step, attempt) from error
                await journal.retried(step, attempt, error.failure, delay_s)
                await anyio.sleep(delay_s)
                attempt += 1

    async def _try(
        self,
        step: Step,
        run_id: str,
        journal: RunJournal,
        meter: Meter,
        claims: Claims,
        deadline: float,
        attempt: int,
    ) -> Any:
        # In a thread: a connector may be 64 MiB, and hashing it must not hold up every other run.
        opened = await anyio.to_thread.run_sync(self._store.open, step.connector)
        with opened as program:
            runtime = None
            if program.kind == "elf":
                runtime = await anyio.to_thread.run_sync(runtime_of, step, program.program_fd)
            policy = policy_of(step, program.kind)
            await journal.started(step, attempt, self._jails.layers_of(policy, runtime))
            async with self._jails.open(program.program_fd, policy, runtime) as jailed:
                conversation = HostConversation(
                    jailed, self._egress, step, meter, claims, journal.of_step(step), run_id
                )
                return await conversation.run(deadline)


def runtime_of(step: Step, program: int) -> ElfRuntime:
    """What the compiled program needs to see; AileronError where this machine does not have it."""
    try:
        return ElfRuntime.of_program(program)
    except JailUnavailable as error:
        raise AileronError(
            FailureClass.SANDBOX_UNAVAILABLE, f"{step.connector}: {error}", boundary=Boundary.SANDBOX
        ) from error


def policy_of(step: Step, kind: Kind) -> Policy:
    """The jail of a step: its limits, and the profile of its program."""
    limits = step.limits
    return Policy(
        memory_bytes=limits.memory_mb << 20,
        cpu_s=limits.timeout_s,
        profile="elf-subprocess" if limits.subprocess else kind,
    )


def _delay(step: Step, failure: Failure, retries: int, left_s: float) -> float | None:
    """Seconds until the next try, or None for none."""
    if not step.idempotent or retries >= retry.MAX_RETRIES or not retry.is_transient(failure):
        return None
    jitter = secrets.randbelow(_JITTER_STEPS) / _JITTER_STEPS
    delay_s = retry.delay_s(retries, retry_after_s=retry.retry_after_s(failure), jitter=jitter)
    return delay_s if delay_s < left_s else None


def _final(error: AileronError, step: Step, retries: int) -> AileronError:
    """The failure the caller sees: what must not be repeated is not called retriable, and tries are counted."""
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
