"""The table of legal transitions between the states of a run. Pure.

    (new) ──► pending_approval ──► approved ──► running ──► completed
      │               │               │            ├──────► failed
      ├──► approved   ├──► denied     ├──► failed  └──────► unknown
      └──► running    ├──► expired    ├──► expired
                      └──► cancelled  └──► cancelled

Rules
- No transition leads away from a final state, and nothing runs that was not approved by a person or by the rules.
- `approved` means that the run may start and has not started: a run in this state after a crash has had no effect. A run
  that is refused at the last moment (its action was disabled, its connector's bytes changed) fails from this state.
- No transition leads from `running` to `expired` or `cancelled`: once a jail may have acted, the outcome is what it did, or
  `unknown`.

Type checkers cannot check the following: the ledger changes states by compare-and-set (ledger/sqlite.py), and
audit/moves.py has the states that each method of the audit log expects. A test compares both with this table.

>>> check_transition(RunStatus.APPROVED, RunStatus.RUNNING)
"""

from __future__ import annotations

from typing import Final

from aileron.model.failure import AileronError, FailureClass
from aileron.model.outcome import RunStatus

__all__ = ["INITIAL", "TRANSITIONS", "check_transition"]

INITIAL: Final = frozenset({RunStatus.PENDING_APPROVAL, RunStatus.APPROVED, RunStatus.RUNNING})
"""Statuses in which a run can begin: `pending_approval` (a person is asked), `approved` (the rules admit the run), or
`running` (admitted and started in one commit).
"""

TRANSITIONS: Final[dict[RunStatus, frozenset[RunStatus]]] = {
    RunStatus.PENDING_APPROVAL: frozenset(
        {RunStatus.APPROVED, RunStatus.DENIED, RunStatus.EXPIRED, RunStatus.CANCELLED}
    ),
    RunStatus.APPROVED: frozenset({RunStatus.RUNNING, RunStatus.FAILED, RunStatus.EXPIRED, RunStatus.CANCELLED}),
    RunStatus.RUNNING: frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.UNKNOWN}),
    RunStatus.COMPLETED: frozenset(),
    RunStatus.FAILED: frozenset(),
    RunStatus.DENIED: frozenset(),
    RunStatus.EXPIRED: frozenset(),
    RunStatus.CANCELLED: frozenset(),
    RunStatus.UNKNOWN: frozenset(),
}


def check_transition(current: RunStatus, new: RunStatus) -> None:
    """Check that a run's status can change from `current` to `new`.

    Raises AileronError(already_decided) with `details.status` if `current` is final; for any other forbidden transition,
    which is a bug of the caller, AileronError(internal_error).
    """
    if new in TRANSITIONS[current]:
        return
    if current.is_final:
        raise AileronError(
            FailureClass.ALREADY_DECIDED, f"the run is already {current}", details={"status": current.value}
        )
    raise AileronError(FailureClass.INTERNAL_ERROR, f"a run cannot go from {current} to {new}")
