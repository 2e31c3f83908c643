"""The table of legal transitions between the states of a run. Pure.

    (new) ──► pending_approval ──► approved ──► running ──► completed
      │               │               │            ├──────► failed
      ├──► approved   ├──► denied     ├──► failed  └──────► unknown
      └──► running    ├──► expired    ├──► expired
                      └──► cancelled  └──► cancelled

Rules
- Nothing leads away from a final state, and nothing runs that was not approved, by a person or by the rules.
- `approved` is "may run and has not begun": what stands there after a crash has had no effect. A run that is refused at the
  last moment (its action was disabled, its connector's bytes changed) fails from there.
- From `running` there is no way to `expired` or `cancelled`: once a jail may have acted, the answer is what it did, or
  `unknown`.

What no tool sees: the ledger changes states by compare-and-set (ledger/sqlite.py), and which states each verb of the audit
log expects is written there (audit/log.py); a test compares both with this table.

>>> check_transition(RunStatus.APPROVED, RunStatus.RUNNING)
"""

from __future__ import annotations

from typing import Final

from aileron.model.failure import AileronError, FailureClass
from aileron.model.outcome import RunStatus

__all__ = ["INITIAL", "TRANSITIONS", "check_transition"]

INITIAL: Final = frozenset({RunStatus.PENDING_APPROVAL, RunStatus.APPROVED, RunStatus.RUNNING})
"""Where a run may begin: a person is asked; admitted by the rules; admitted and begun in one commit."""

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
    """Return if a run may go from `current` to `new`.

    AileronError(already_decided) with `details.status` from a final state; AileronError(internal_error), a bug, otherwise.
    """
    if new in TRANSITIONS[current]:
        return
    if current.is_final:
        raise AileronError(
            FailureClass.ALREADY_DECIDED, f"the run is already {current}", details={"status": current.value}
        )
    raise AileronError(FailureClass.INTERNAL_ERROR, f"a run cannot go from {current} to {new}")
