"""Reads of current states in SQL: runs, approvals, idempotency keys, uses of grants. SQL is in this package alone.

Used by the writer inside a transaction and by readers with a consistent view (sqlite.py). Trusts a file that was checked when
it was opened.

Not here: the events (sqlite.py), the tables (schema.py).
"""

from __future__ import annotations

import sqlite3
from typing import Any, Final

import msgspec

from aileron.ledger.recorded import E, Recorded, recorded, tag_of
from aileron.ledger.rows import ACTION_KIND, ApprovalRow, ApprovalState, CandidateRow, RoundRow, RunRow
from aileron.model.failure import AileronError, FailureClass
from aileron.model.invocation import Scope
from aileron.model.outcome import RunStatus

__all__ = [
    "APPROVAL_COLUMNS",
    "IDEMPOTENCY_KEPT_US",
    "OPEN",
    "RUN_COLUMNS",
    "States",
    "already",
    "approval_row",
    "run_row",
]

IDEMPOTENCY_KEPT_US: Final = 24 * 3600 * 1_000_000
"""Microseconds for which an idempotency key is kept: 24 hours, longer than any agent retries, and shorter than the time
after which a key is reused by accident.
"""
RUN_COLUMNS: Final = (
    "id, action, session, scope, status, plan_digest, approval, connector, created_us, changed_us, outcome"
)
_APPROVAL_NAMES: Final = ApprovalRow.__struct_fields__
APPROVAL_COLUMNS: Final = ", ".join(_APPROVAL_NAMES)
OPEN: Final = "('pending_approval', 'approved')"  # spelled as in the partial index, or SQLite would not use it


class States:
    """Reads of current states: runs, approvals with their candidates and conversation, idempotency keys, uses of grants."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection

    def run(self, run_id: str) -> RunRow | None:
        """Return a run with its outcome; None if there is no such run."""
        row = self._db.execute(f"SELECT {RUN_COLUMNS} FROM runs WHERE id = ?", (run_id,)).fetchone()  # noqa: S608 - constants
        return run_row(row) if row else None

    def runs_in(self, status: RunStatus) -> list[RunRow]:
        """Return the runs that have this status, which must not be final. Raises ValueError for a final status."""
        if status.is_final:
            raise ValueError(f"runs are not listed by the final status {status}")
        rows = self._db.execute(
            f"SELECT {RUN_COLUMNS} FROM runs WHERE status = ?"  # noqa: S608 - constants
            " AND status IN ('pending_approval', 'approved', 'running') ORDER BY id",
            (status.value,),
        )
        return [run_row(row) for row in rows]

    def approval(self, approval_id: str) -> ApprovalRow | None:
        """Return an approval without its subject; None if there is no such approval."""
        row = self._db.execute(
            f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE id = ?",  # noqa: S608 - constants
            (approval_id,),
        ).fetchone()
        return approval_row(row) if row else None

    def subject(self, approval_id: str, most: int = 2**31) -> bytes | None:
        """Return the stored subject of an approval; None if it is missing or exceeds `most` bytes, in which case it is
        not read.
        """
        row = self._db.execute(
            "SELECT subject FROM approvals WHERE id = ? AND length(subject) <= ?", (approval_id, most)
        ).fetchone()
        return row[0] if row else None

    def open_approvals(self, *, due_us: int | None = None) -> list[ApprovalRow]:
        """Return the questions that are pending, or approved and not yet used, the first to expire first; with
        `due_us`, only those that have expired by then.
        """
        rows = self._db.execute(
            f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE state IN {OPEN} AND expires_us <= ? ORDER BY expires_us, id",  # noqa: S608 - constants
            (2**62 if due_us is None else due_us,),
        )
        return [approval_row(row) for row in rows]

    def first_expiry(self) -> int | None:
        """Return the time at which the first of the open approvals expires, in microseconds since the epoch; None if no
        approval is open.
        """
        found = self._db.execute(f"SELECT min(expires_us) FROM approvals WHERE state IN {OPEN}")  # noqa: S608
        moment: int | None = found.fetchone()[0]
        return moment

    def count_open_approvals(self, *, consents: bool = False) -> int:
        """Return the number of questions that are pending, or approved and not yet used; with `consents`, count only consents."""
        kinds = f" AND kind <> '{ACTION_KIND}'" if consents else ""
        count: int = self._db.execute(f"SELECT count(*) FROM approvals WHERE state IN {OPEN}{kinds}").fetchone()[0]  # noqa: S608
        return count

    def open_runs(self) -> list[str]:
        """Return the ids of the runs whose questions are pending, or approved and not yet used."""
        rows = self._db.execute(f"SELECT run FROM approvals WHERE state IN {OPEN} AND kind = '{ACTION_KIND}'")  # noqa: S608
        return [run for (run,) in rows]

    def open_consent(self, kind: str, name: str, digest: str) -> ApprovalRow | None:
        """Return an open question of this kind, name and digest; None if there is none."""
        row = self._db.execute(
            f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE state IN {OPEN} AND kind = ? AND name = ? AND digest = ? LIMIT 1",  # noqa: S608
            (kind, name, digest),
        ).fetchone()
        return approval_row(row) if row else None

    def candidates(self, approval_id: str) -> list[CandidateRow]:
        """Return the candidates, which are the additional digests that a decision on this question can be about, in the
        order of insertion.
        """
        rows = self._db.execute(
            "SELECT digest, plan_digest, preview, made_us FROM candidates WHERE approval = ? ORDER BY rowid",
            (approval_id,),
        )
        return [CandidateRow(digest=row[0], plan_digest=row[1], preview=row[2], made_us=row[3]) for row in rows]

    def plan_of(self, row: ApprovalRow, digest: str) -> bytes | None:
        """Return the stored frozen plan of a candidate; `digest` is that of the plan itself."""
        if digest == row.asked_digest:
            return self.subject(row.id)
        found = self._db.execute(
            "SELECT subject FROM candidates WHERE approval = ? AND digest = ?", (row.id, digest)
        ).fetchone()
        return found[0] if found else None

    def conversation(self, approval_id: str) -> list[RoundRow]:
        """Return the person's questions to the agent about an approval, and the answers, in order."""
        rows = self._db.execute(
            "SELECT number, question, answer FROM conversation WHERE approval = ? ORDER BY number", (approval_id,)
        )
        return [RoundRow(*row) for row in rows]

    def grant_used(self, grant_id: str) -> int:
        """Return the number of times that a standing grant was used."""
        row = self._db.execute("SELECT used FROM grant_uses WHERE id = ?", (grant_id,)).fetchone()
        return row[0] if row else 0

    def status_of(self, row: ApprovalRow) -> RunStatus:
        """Return the status that every surface shows for a question: that of the run that waits for the question, or
        the question's own status if no run waits.
        """
        run = self.run(row.run) if row.run is not None else None
        return row.state.status if run is None else run.status

    def already(self, row: ApprovalRow) -> AileronError:
        """Return the error for a question that was already decided or has expired. The error names the status that
        callers see.
        """
        return already("approval", row.id, self.status_of(row).value)

    def newest(self, kind: type[E]) -> Recorded[E] | None:
        """Return the newest event of a type; None if there is none."""
        row = self._db.execute(
            "SELECT record FROM events INDEXED BY events_type WHERE type = ? ORDER BY seq DESC LIMIT 1", (tag_of(kind),)
        ).fetchone()
        return recorded(msgspec.json.decode(row[0]), kind) if row else None

    def first_of(self, kind: type[E], run_id: str) -> Recorded[E] | None:
        """Return the first event of a type about a run, considering only events on disk; None if there is none."""
        row = self._db.execute(
            "SELECT record FROM events INDEXED BY events_run WHERE run = ? AND type = ? ORDER BY seq LIMIT 1",
            (run_id, tag_of(kind)),
        ).fetchone()
        return recorded(msgspec.json.decode(row[0]), kind) if row else None

    def all_of(self, kind: type[E], after: int) -> list[Recorded[E]]:
        """Return every event of a type after row `after`, oldest first. Use it for types with few events."""
        rows = self._db.execute(
            "SELECT record FROM events INDEXED BY events_type WHERE type = ? AND seq > ? ORDER BY seq",
            (tag_of(kind), after),
        ).fetchall()
        return [recorded(msgspec.json.decode(record), kind) for (record,) in rows]

    def hash_of(self, seq: int) -> bytes | None:
        """Return the hash of an event on disk by its number; None if there is no such event."""
        row = self._db.execute("SELECT hash FROM events WHERE seq = ?", (seq,)).fetchone()
        return row[0] if row else None

    def unsettled(self, plan_digest: str, now_us: int) -> str | None:
        """Return the id of the newest run of exactly this plan that sent something and ended as unknown within the last
        24 hours; None if there is none.

        Returns None also if a run of the plan was requested after that, because its caller knew of the unknown run
        (audit/log.py). A run that sent nothing did nothing, because each request is recorded before it leaves.
        """
        row = self._db.execute(
            "SELECT r.id, e.at_us FROM events e INDEXED BY events_type CROSS JOIN runs r ON r.id = e.run"
            " WHERE e.type = 'run.unknown' AND e.at_us > ? AND r.plan_digest = ?"
            " AND EXISTS (SELECT 1 FROM events s WHERE s.run = r.id AND s.type = 'egress.sending')"
            " ORDER BY e.seq DESC LIMIT 1",
            (now_us - IDEMPOTENCY_KEPT_US, plan_digest),
        ).fetchone()
        if row is None:
            return None
        # Ids begin with the second of the request, and are the table's key, so only runs requested since then are read.
        run_id: str = row[0]
        later = self._db.execute(
            "SELECT 1 FROM runs WHERE id > ? AND plan_digest = ? AND created_us > ? LIMIT 1",
            (run_id.rpartition("-")[0], plan_digest, row[1]),
        ).fetchone()
        return run_id if later is None else None

    def claimed(self, session: str, key: str, digest: str, now_us: int) -> str | None:
        """Return the id of the run that has taken this idempotency key; None if no run has.

        Raises AileronError(idempotency_conflict) if the key was used with another request.
        """
        row = self._db.execute(
            "SELECT digest, run FROM idempotency WHERE session = ? AND key = ? AND claimed_us > ?",
            (session, key, now_us - IDEMPOTENCY_KEPT_US),
        ).fetchone()
        if row is None:
            return None
        if row[0] != digest:
            raise AileronError(
                FailureClass.IDEMPOTENCY_CONFLICT,
                "this idempotency key was used for another action or other arguments: use a new key",
                details={"run_id": row[1]},
            )
        run_id: str = row[1]
        return run_id


def already(kind: str, name: str, status: str) -> AileronError:
    """Return AileronError(already_decided) for a caller that tried to change a run or approval too late. `kind` is
    `run` or `approval`; `status` is the current status.
    """
    return AileronError(FailureClass.ALREADY_DECIDED, f"{kind} {name} is already {status}", details={"status": status})


def run_row(row: tuple[Any, ...]) -> RunRow:
    """Return the run in a database row with the columns `RUN_COLUMNS`."""
    (run_id, action, session, scope, status, plan_digest, approval, connector, created_us, changed_us, outcome) = row
    return RunRow(
        id=run_id,
        action=action,
        session=session,
        scope=Scope(scope),
        status=RunStatus(status),
        plan_digest=plan_digest,
        approval=approval,
        connector=connector,
        created_us=created_us,
        changed_us=changed_us,
        outcome=outcome,
    )


def approval_row(row: tuple[Any, ...]) -> ApprovalRow:
    """Return the approval in a database row with the columns `APPROVAL_COLUMNS`."""
    values = dict(zip(_APPROVAL_NAMES, row, strict=True))
    return ApprovalRow(**{**values, "state": ApprovalState(values["state"])})
