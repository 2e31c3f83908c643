"""Reads of the record about the use of credentials: when each was last sent, whether the service refused it, and what runs found.

Runs in the daemon, in a read of the ledger. A result is hostile text, returned unchanged.

Source: docs/reference/audit-events.md. Not here: the state of a sign-in, which is stored with it (vault/).
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

from aileron.audit.events import EgressFinished, EgressSending, RunFinished
from aileron.audit.query import outcome_of
from aileron.ledger import EventFilter, Snapshot
from aileron.model.failure import FailureClass
from aileron.model.outcome import RunStatus, Succeeded

__all__ = ["Found", "Use", "newest_result", "newest_uses"]

_REQUESTS: Final = 1000
"""Maximum number of a connector's newest requests that are searched for uses of its bindings: a page of the audit trail."""
_RUNS: Final = 20
"""Maximum number of an action's newest runs that are searched for one that succeeded."""
_ENDS: Final = 100
"""Maximum number of a run's ended requests that are searched for the end of one, from that one's beginning on."""
_UNAUTHORIZED: Final = 401


class Use(NamedTuple):
    """The newest request with a binding: when it was about to be sent, in microseconds since the epoch, the run that sent it, and
    what went wrong with the credential: the service `refused` it, or a login or a signature with it `failed`, for which
    there are other reasons too, such as another host key or region.
    """

    at_us: int
    run: str
    problem: Literal["refused", "failed"] | None


class Found(NamedTuple):
    """The result of an action's newest run that succeeded, and when that run ended, in microseconds since the epoch."""

    at_us: int
    result: Any


def newest_uses(snapshot: Snapshot, connector: str) -> dict[str, Use]:
    """Return the newest use of each binding that the connector's newest requests used, by the binding's name."""
    uses: dict[str, Use] = {}
    for row in snapshot.events_of(EgressSending, EventFilter(connector=connector, limit=_REQUESTS)):
        if row.event.credential and row.event.credential not in uses:
            uses[row.event.credential] = Use(row.at_us, row.event.run, _problem(snapshot, row.seq, row.event))
    return uses


def _problem(snapshot: Snapshot, seq: int, sent: EgressSending) -> Literal["refused", "failed"] | None:
    """Return `refused` if the service answered with 401 (RFC 9110), and `failed` if a login or a signature did not succeed."""
    ended = snapshot.events_of(EgressFinished, EventFilter(run=sent.run, after=seq, oldest_first=True, limit=_ENDS))
    for row in ended:
        if (row.event.step, row.event.request) == (sent.step, sent.request):
            if row.event.status == _UNAUTHORIZED:
                return "refused"
            return "failed" if row.event.failure_class == FailureClass.BINDING_FAILED else None
    return None


def newest_result(snapshot: Snapshot, action: str) -> Found | None:
    """Return the result of the action's newest run that succeeded; None if there is none among its newest runs."""
    for row in snapshot.events_of(RunFinished, EventFilter(action=action, limit=_RUNS)):
        if row.event.status == RunStatus.COMPLETED and (run := snapshot.run(row.event.run)) is not None:
            outcome = outcome_of(run)
            return Found(row.at_us, outcome.result) if isinstance(outcome, Succeeded) else None
    return None
