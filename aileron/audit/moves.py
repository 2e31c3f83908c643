"""Steps that change or end a run, as parts of transactions. Each writes the run's state, outcome and event together.

Runs in the writer's thread of the daemon, inside the verbs of log.py and questions.py. Untrusted text is shortened to its limit
here, and otherwise stored unchanged.

Rules
- A run's status changes only as the table MOVES allows, by compare-and-set: the loser of a race gets an error with the
  current state.
- An outcome can always be recorded: for one that has no JSON form, or is too large, a failure that says so is recorded
  instead.

Not here: the verbs (log.py, questions.py), which transitions are legal (runs/states.py).
"""

from __future__ import annotations

import datetime
import os
from typing import Any, Final

import msgspec

from aileron.audit.events import RunFinished, RunUnknown, facts_of
from aileron.ledger import RunRow, Transaction
from aileron.model.canonical import canonical_json, sha256_digest
from aileron.model.failure import MAX_MESSAGE, Boundary, Failure, FailureClass
from aileron.model.json_value import JSONMembers
from aileron.model.outcome import Failed, Outcome, RunStatus, Succeeded

__all__ = [
    "MAX_DESTINATION_CHARACTERS",
    "MAX_DETAILS_BYTES",
    "MAX_MESSAGE_CHARACTERS",
    "MAX_NAME_CHARACTERS",
    "MAX_OUTCOME_BYTES",
    "MOVES",
    "bounded",
    "end",
    "end_unstarted",
    "lose",
    "mark_interrupted",
    "move",
    "new_id",
    "recordable",
    "storable",
    "unfit",
]

MAX_NAME_CHARACTERS: Final = 200
"""Maximum number of characters that are recorded of an unchecked name: the name of a missing action or of a connector's
event. Action names have at most 64.
"""
MAX_DESTINATION_CHARACTERS: Final = 300
"""Maximum number of characters in a refused request's destination: a host name has at most 253, and a port six."""
MAX_MESSAGE_CHARACTERS: Final = MAX_MESSAGE
"""Maximum number of characters in a person's reason, or in a failure message (MAX_MESSAGE)."""
MAX_DETAILS_BYTES: Final = 16 << 10
"""16 KiB: maximum size, as JSON, of a failure's details or of the fields of a connector's event.

They are facts, not documents.
"""
MAX_OUTCOME_BYTES: Final = 16 << 20
"""16 MiB: maximum size of a stored outcome as JSON.

It is more than an agent can read, and a commit still takes a fraction of a second.
"""

_PENDING = RunStatus.PENDING_APPROVAL
_APPROVED = RunStatus.APPROVED
_RUNNING = RunStatus.RUNNING
MOVES: Final[dict[str, tuple[frozenset[RunStatus], frozenset[RunStatus]]]] = {
    "start": (frozenset({_APPROVED, _RUNNING}), frozenset({_RUNNING})),
    "redeem": (frozenset({_APPROVED}), frozenset({_RUNNING})),
    "complete": (frozenset({_RUNNING}), frozenset({RunStatus.COMPLETED})),
    "fail": (frozenset({_APPROVED, _RUNNING}), frozenset({RunStatus.FAILED})),
    "lose": (frozenset({_RUNNING}), frozenset({RunStatus.UNKNOWN})),
    "approve": (frozenset({_PENDING}), frozenset({_APPROVED})),
    "deny": (frozenset({_PENDING}), frozenset({RunStatus.DENIED})),
    "expire": (frozenset({_PENDING, _APPROVED}), frozenset({RunStatus.EXPIRED})),
    "cancel": (frozenset({_PENDING, _APPROVED}), frozenset({RunStatus.CANCELLED})),
}
"""The possible changes of a run's status (moves), by name: the statuses from which each can start, and the statuses in
which it can end.

`start` is also used for each later step of a running run.
"""


def move(tx: Transaction, how: str, run_id: str, new: RunStatus, **changes: Any) -> RunRow:
    """Change a run's status to `new` by the move `how` of MOVES, if the run is in one of the statuses from which that
    move can start. Raises AileronError as `Transaction.move_run` does.
    """
    expected, reached = MOVES[how]
    assert new in reached
    return tx.move_run(run_id, expected, new, **changes)


def end(
    tx: Transaction,
    how: str,
    run_id: str,
    status: RunStatus,
    failure: Failure | None,
    stored: bytes,
    ms: int | None,
) -> None:
    """End a run by the move `how`, with this status and stored outcome, `ms` milliseconds after the run began. Record
    the event.
    """
    row = move(tx, how, run_id, status, outcome=stored)
    ended = RunFinished(
        run=run_id,
        session=row.session,
        action=row.action,
        status=status,
        connector=row.connector,
        failure_class=None if failure is None else failure.failure_class,
        message=None if failure is None else failure.message,
        boundary=None if failure is None else failure.boundary,
        details=None if failure is None or not failure.details else recordable(failure.details),
        ms=ms,
        outcome_digest=sha256_digest(stored),
    )
    tx.append(facts_of(ended))


def end_unstarted(tx: Transaction, how: str, run_id: str, status: RunStatus, failure: Failure) -> None:
    """End a run that was never started, with `failure` as its outcome."""
    end(tx, how, run_id, status, failure, storable(Failed(run_id=run_id, failure=failure))[1], None)


def lose(tx: Transaction, run_id: str, failure: Failure, stored: bytes, ms: int | None) -> None:
    """End a run as `unknown`: it was interrupted, and may have taken effect."""
    row = move(tx, "lose", run_id, RunStatus.UNKNOWN, outcome=stored)
    lost = RunUnknown(
        run=run_id,
        session=row.session,
        action=row.action,
        connector=row.connector,
        message=failure.message,
        ms=ms,
        outcome_digest=sha256_digest(stored),
    )
    tx.append(facts_of(lost))


def mark_interrupted(tx: Transaction, run_id: str, why: str) -> None:
    """End an interrupted run with the status `unknown`, and the reason `why` in its failure."""
    failure = Failure(
        failure_class=FailureClass.OUTCOME_UNKNOWN,
        message=f"{why}: it may have taken effect; check before you request it again",
        boundary=Boundary.RUNTIME,
    )
    lose(tx, run_id, failure, storable(Failed(run_id=run_id, failure=failure))[1], None)


def new_id(prefix: str, now_us: int) -> str:
    """Return an id such as `run-20261121T035800-…`, which sorts by time and has 80 random bits that make it unguessable."""
    moment = datetime.datetime.fromtimestamp(now_us // 1_000_000, datetime.UTC)
    return f"{prefix}-{moment:%Y%m%dT%H%M%S}-{os.urandom(10).hex()}"


def storable(outcome: Outcome) -> tuple[Outcome, bytes]:
    """Return an outcome that can be stored, and its bytes: the given outcome, or a failure that says why the given one
    cannot be.
    """
    outcome = _with_bounded_message(outcome)
    try:
        stored = msgspec.json.encode(outcome)
    except (TypeError, ValueError, RecursionError) as error:
        return storable(_replaced(outcome, FailureClass.CONNECTOR_RUNTIME_ERROR, f"is not JSON: {error}", {}))
    if len(stored) > MAX_OUTCOME_BYTES:
        problem = f"has {len(stored)} bytes; at most {MAX_OUTCOME_BYTES} can be stored"
        return storable(_replaced(outcome, FailureClass.RESOURCE_LIMIT_EXCEEDED, problem, {"limit": "output"}))
    return outcome, stored


def _with_bounded_message(outcome: Outcome) -> Outcome:
    if isinstance(outcome, Succeeded):
        return outcome
    message = bounded(outcome.failure.message, MAX_MESSAGE_CHARACTERS)
    if message == outcome.failure.message:
        return outcome
    return Failed(run_id=outcome.run_id, failure=msgspec.structs.replace(outcome.failure, message=message))


def _replaced(outcome: Outcome, failure_class: FailureClass, problem: str, details: JSONMembers) -> Failed:
    """Return a failure in place of an outcome that cannot be stored: the same failure with its details omitted, or, in
    place of a result, a failure of `failure_class` with `details`.
    """
    if isinstance(outcome, Failed):
        failure = msgspec.structs.replace(outcome.failure, details={"omitted": bounded(problem, MAX_NAME_CHARACTERS)})
    else:
        failure = Failure(
            failure_class=failure_class,
            message=f"the action succeeded, but its result {problem}",
            boundary=Boundary.SANDBOX,
            details=details,
        )
    return Failed(run_id=outcome.run_id, failure=failure)


def recordable(details: JSONMembers) -> JSONMembers:
    """Return a failure's `details`, or, if they cannot be recorded, only the reason why, under `omitted`."""
    problem = unfit(details)
    return details if problem is None else {"omitted": problem}


def unfit(fields: JSONMembers) -> str | None:
    """Return the reason why `fields`, the details of a failure or the fields of an event, cannot be recorded; None if
    they can.
    """
    try:
        size = len(canonical_json(fields))
    except ValueError as error:
        return bounded(str(error), MAX_NAME_CHARACTERS)
    return None if size <= MAX_DETAILS_BYTES else f"{size} bytes; at most {MAX_DETAILS_BYTES} fit"


def bounded(text: str, characters: int) -> str:
    """Return at most the first `characters` characters of a text. Lone surrogates, which UTF-8 cannot encode, are
    replaced.
    """
    return text[:characters].encode("utf-8", "replace").decode("utf-8")
