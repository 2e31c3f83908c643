"""Carrying out: what may run is run, and its outcome is on record before anybody is told.

Runs in the daemon. The only caller of the executor.

Rules
- `conclude` turns errors into values in one place and writes the outcome, shielded from cancellation, before it answers.
- A run that is cut short (the daemon stops) is `unknown`: nobody can say whether its effect happened, and nothing is guessed.
  The same again is refused until whoever asks names that run (docs/adr/0039-what-may-have-happened.md).
- What a preview reads is for the person alone: the record has its digest, and a failure's class.

Source: docs/explanation/architecture.md. Not here: what a step does (executor/execute.py).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio

from aileron.approvals.gate import Gate, QueuedApproval
from aileron.approvals.preview import rendered
from aileron.audit.log import Audit
from aileron.executor.execute import Executor
from aileron.model.consent import StandingGrant
from aileron.model.failure import AileronError, Boundary, Failure, FailureClass
from aileron.model.outcome import Failed, Outcome, Succeeded
from aileron.model.plan import ApprovedPlan, Plan, PlannedPreview
from aileron.model.preview import EFFECTS_LABEL, PreviewField, shown_digest
from aileron.runs.journal import LedgerJournal, PreviewJournal
from aileron.runs.progress import Board

__all__ = ["CarryOut"]

_PREVIEW_S: Final = 8.0
"""For a preview: five seconds for its step, which bounds itself, and the start of a jail on a busy machine."""
_RECORD_S: Final = 30.0
"""To write down an outcome while being cancelled: a full queue of a slow disk, and no more."""
_log = logging.getLogger(__name__)


class CarryOut:
    """One for each daemon. `explained` adds to a failure what a person can set, where that would mend it. `tool_changed` sees to
    what follows where a connector reports that its server changed a tool, and gives the failure as the caller is told it.
    """

    def __init__(
        self,
        *,
        gate: Gate,
        audit: Audit,
        executor: Executor,
        board: Board,
        explained: Callable[[Failure], Failure],
        tool_changed: Callable[[str, Plan, Failure], Awaitable[Failure]],
    ) -> None:
        self._gate = gate
        self._audit = audit
        self._executor = executor
        self._board = board
        self._explained = explained
        self._tool_changed = tool_changed
        self._unrecorded: set[str] = set()
        """Runs that ended on a full disk; none begins on one, so they are at most those that were under way."""

    async def run(
        self, run_id: str, approved: ApprovedPlan, by: QueuedApproval | StandingGrant | None = None
    ) -> Outcome:
        """A run that is on record as begun; `by` is what let it, and is used up first."""

        async def work() -> Any:
            if by is not None:
                await self._gate.spend(approved.plan, by)
            with self._board.on(run_id) as reported:
                journal = LedgerJournal(self._audit, run_id, reported.note)
                try:
                    return await self._executor.execute(approved, run_id, journal)
                except AileronError as error:  # on record before the run's end is, and before anybody is told
                    raise AileronError.of(await self._tool_changed(run_id, approved.plan, error.failure)) from error

        return await self._conclude(run_id, work, _as_it_is)

    async def read(
        self, run_id: str, approved: ApprovedPlan, planned: PlannedPreview
    ) -> tuple[list[PreviewField] | None, Failure | None]:
        """What the person sees, or why not; the record of the run has neither."""
        seen: list[PreviewField] = []

        async def read() -> dict[str, str]:
            journal = PreviewJournal(self._audit, run_id)
            with anyio.fail_after(_PREVIEW_S):
                output = await self._executor.execute(approved, run_id, journal)
            seen.extend(_effects_of(journal, planned))
            seen.extend(rendered(output, planned))
            return {"preview": shown_digest(seen)}

        outcome = await self._conclude(run_id, read, _without_words)
        if isinstance(outcome, Succeeded):
            return seen, None
        return None, outcome.failure

    async def _conclude(
        self, run_id: str, work: Callable[[], Awaitable[Any]], recorded: Callable[[Outcome], Outcome]
    ) -> Outcome:
        """What came of the work, on record first, as `recorded` says it; the same is answered, but for what that leaves out."""
        started = time.monotonic()
        try:
            outcome: Outcome = Succeeded(run_id=run_id, result=await work())
        except AileronError as error:
            outcome = Failed(run_id=run_id, failure=self._explained(error.failure))
        except TimeoutError:
            outcome = Failed(run_id=run_id, failure=_too_slow())
        except Exception:  # noqa: BLE001 - the end of a run: a bug of ours must still be an outcome on record
            _log.exception("unexpected error in %s", run_id)
            outcome = Failed(run_id=run_id, failure=_bug())
        except BaseException:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_RECORD_S):
                await self._audit.interrupted(run_id)
            raise
        said = recorded(outcome)
        written = await self._record(run_id, said, int((time.monotonic() - started) * 1000))
        return outcome if written == said else written

    async def _record(self, run_id: str, outcome: Outcome, ms: int) -> Outcome:
        """The outcome as it is on record; where it cannot be recorded, nobody is told that it is so."""
        try:
            with anyio.CancelScope(shield=True):
                recorded = await self._audit.finished(run_id, outcome, ms)
        except AileronError as error:
            _log.error("%s ended, but its outcome could not be recorded: %s", run_id, error)
            self._unrecorded.add(run_id)
            return Failed(run_id=run_id, failure=_not_recorded(error))
        return recorded  # a `with` that may swallow is no place to return from

    async def close_unrecorded(self) -> None:
        """Close as `unknown` what ended without room to record it. AileronError while there is none still."""
        for run_id in tuple(self._unrecorded):
            await self._audit.interrupted(run_id)
            self._unrecorded.discard(run_id)


def _effects_of(journal: PreviewJournal, planned: PlannedPreview) -> list[PreviewField]:
    """What the supervisor itself has seen of the changes, where only that may be changed."""
    if not planned.step.changes_only_seen:
        return []
    match journal.effects:
        case [only]:
            return [PreviewField(EFFECTS_LABEL, only.text, multiline=True, effects=only.digest)]
        case several:
            raise AileronError(
                FailureClass.CONNECTOR_RUNTIME_ERROR,
                f"the connector ended {len(several)} transactions in its preview, in place of one: "
                "what would change is not known",
                boundary=Boundary.SANDBOX,
            )


def _as_it_is(outcome: Outcome) -> Outcome:
    return outcome


def _without_words(outcome: Outcome) -> Outcome:
    """A preview's failure by its class alone: what a connector says of it may quote what the person alone may see."""
    if isinstance(outcome, Succeeded):
        return outcome
    failure = Failure(
        failure_class=outcome.failure.failure_class,
        message="the preview failed; the caller was told why",
        boundary=outcome.failure.boundary,
    )
    return Failed(run_id=outcome.run_id, failure=failure)


def _too_slow() -> Failure:
    return Failure(
        failure_class=FailureClass.RESOURCE_LIMIT_EXCEEDED,
        message=f"it took longer than {_PREVIEW_S:.0f} s",
        boundary=Boundary.SANDBOX,
        details={"limit": "wall"},
    )


def _not_recorded(error: AileronError) -> Failure:
    return Failure(
        failure_class=FailureClass.OUTCOME_UNKNOWN,
        message=f"it ended, but its outcome could not be recorded ({error}): "
        "check whether it took effect before you request it again",
        boundary=Boundary.RUNTIME,
    )


def _bug() -> Failure:
    return Failure(
        failure_class=FailureClass.INTERNAL_ERROR,
        message="this is a bug in aileron: please report it with the details in `aileron daemon logs`",
        boundary=Boundary.RUNTIME,
    )
