"""The last step of a run: execute the plan, and record the outcome before any caller is notified.

Runs in the daemon. The only caller of the executor.

Rules
- `_conclude` turns errors into values in one place and writes the outcome, shielded from cancellation, before it returns.
- A run that is interrupted (because the daemon stops) is `unknown`: nobody can say whether the run took effect, and
  Aileron does not guess. The same plan is refused until a caller names that run
  (docs/adr/0039-what-may-have-happened.md).
- A preview's output is only for the person: the record has its digest, and the class of a failure.

Source: docs/explanation/architecture.md. Not here: what a step does (executor/execute.py).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio

from aileron.approvals.gate import QueuedApproval
from aileron.approvals.preview import rendered
from aileron.model.consent import StandingGrant
from aileron.model.failure import AileronError, Boundary, Failure, FailureClass
from aileron.model.outcome import Failed, Outcome, Succeeded
from aileron.model.plan import ApprovedPlan, PlannedPreview
from aileron.model.preview import EFFECTS_LABEL, PreviewField, shown_digest
from aileron.runs.journal import LedgerJournal, PreviewJournal
from aileron.runs.parts import Parts

__all__ = ["CarryOut"]

_PREVIEW_S: Final = 8.0
"""Maximum seconds to wait for a preview: five for its step, which has that limit itself, and the start of a jail on a
busy machine.
"""
_RECORD_S: Final = 30.0
"""Maximum seconds to record the outcome of a run whose task is being cancelled: enough for a full queue of a slow disk."""
_log = logging.getLogger(__name__)


class CarryOut:
    """Executes approved plans and records their outcomes. Each daemon has one instance."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._unrecorded: set[str] = set()
        """Ids of the runs whose outcome was not recorded because of a full disk.

        At most the runs in progress are in this set, because no run starts on a full disk.
        """

    async def run(
        self, run_id: str, approved: ApprovedPlan, by: QueuedApproval | StandingGrant | None = None
    ) -> Outcome:
        """Execute a run that is recorded as started; `by` is the decision or grant that admitted the run, and is used
        up first.
        """

        async def work() -> Any:
            if by is not None:
                await self._parts.gate.spend(approved.plan, by)
            with self._parts.board.on(run_id) as reported:
                journal = LedgerJournal(self._parts.audit, run_id, reported.note)
                try:
                    return await self._parts.executor.execute(approved, run_id, journal)
                except AileronError as error:  # before the end is recorded and reported
                    raise AileronError.of(
                        await self._parts.tool_changed(run_id, approved.plan, error.failure)
                    ) from error

        return await self._conclude(run_id, work, _as_it_is)

    async def read(
        self, run_id: str, approved: ApprovedPlan, planned: PlannedPreview
    ) -> tuple[list[PreviewField] | None, Failure | None]:
        """Execute a preview and return its fields, or its failure. Neither is in the record of the run."""
        seen: list[PreviewField] = []

        async def read() -> dict[str, str]:
            journal = PreviewJournal(self._parts.audit, run_id)
            with anyio.fail_after(_PREVIEW_S):
                output = await self._parts.executor.execute(approved, run_id, journal)
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
        """Run `work`, which carries out a run. Record its outcome in the form that `recorded` returns, and return the
        complete outcome.

        If the ledger has another outcome instead, return that one; if recording fails, return a failure that says so.
        """
        started = time.monotonic()
        try:
            outcome: Outcome = Succeeded(run_id=run_id, result=await work())
        except AileronError as error:
            outcome = Failed(run_id=run_id, failure=self._parts.runnable.with_setting(error.failure))
        except TimeoutError:
            outcome = Failed(run_id=run_id, failure=_too_slow())
        except Exception:  # noqa: BLE001 - the end of a run: a bug of ours must still be an outcome on record
            _log.exception("unexpected error in %s", run_id)
            outcome = Failed(run_id=run_id, failure=_bug())
        except BaseException:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_RECORD_S):
                await self._parts.audit.interrupted(run_id)
            raise
        said = recorded(outcome)
        written = await self._record(run_id, said, int((time.monotonic() - started) * 1000))
        return outcome if written == said else written

    async def _record(self, run_id: str, outcome: Outcome, ms: int) -> Outcome:
        """Record the run's outcome, which took `ms` milliseconds, and return it as recorded; if recording fails, return
        a failure that says so.
        """
        try:
            with anyio.CancelScope(shield=True):
                recorded = await self._parts.audit.finished(run_id, outcome, ms)
        except AileronError as error:
            _log.error("%s ended, but its outcome could not be recorded: %s", run_id, error)
            self._unrecorded.add(run_id)
            return Failed(run_id=run_id, failure=_not_recorded(error))
        return recorded  # not in the `with`, which may swallow an exception

    async def close_unrecorded(self) -> None:
        """Record as `unknown` the outcome of each run whose outcome could not be recorded when it ended. Raises
        AileronError if this cannot be recorded either.
        """
        for run_id in tuple(self._unrecorded):
            await self._parts.audit.interrupted(run_id)
            self._unrecorded.discard(run_id)


def _effects_of(journal: PreviewJournal, planned: PlannedPreview) -> list[PreviewField]:
    """Return the effects that a login reported in a preview, as a field for the card.

    Returns an empty list unless `changes_only_seen` is set for the step. Raises AileronError unless there is exactly one report.
    """
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
    """Return the outcome with only the failure's class and boundary, without any message of the connector.

    The message could quote content that only the person may see.
    """
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
