"""The result of a run, and the words for its status, which are the same on every surface."""

from __future__ import annotations

import enum
from typing import Any, Literal

import msgspec

from aileron.model.failure import Failure

__all__ = ["Failed", "Outcome", "Pending", "RunStatus", "Running", "Succeeded"]


class RunStatus(enum.StrEnum):
    """The state of a run. Its legal transitions are in runs/states.py."""

    PENDING_APPROVAL = "pending_approval"
    APPROVED = "approved"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    DENIED = "denied"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"

    @property
    def is_final(self) -> bool:
        """True if no transition leaves this state."""
        return self not in {RunStatus.PENDING_APPROVAL, RunStatus.APPROVED, RunStatus.RUNNING}


class Succeeded(msgspec.Struct, frozen=True, kw_only=True, tag="succeeded"):
    """Result of an action whose steps all succeeded; `result` is the output of its last step, as JSON values."""

    run_id: str
    result: Any


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """Result of an action that stopped at its first failure, which is `failure`."""

    run_id: str
    failure: Failure


Outcome = Succeeded | Failed


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a run that waits for a person's decision.

    The frozen plan is in the ledger under `approval_id`; nothing has run.
    """

    run_id: str
    approval_id: str
    expires_at: float
    """Time at which the approval request expires, in seconds since the epoch, UTC."""


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a run that has not ended; it continues even if no caller waits for it.

    Status `approved` means that a person approved the run and it has not begun.
    """

    run_id: str
    status: Literal[RunStatus.RUNNING, RunStatus.APPROVED] = RunStatus.RUNNING
    approval_id: str | None = None
    """Id of the approval with which the run will begin; set while its status is `approved`."""
