"""What is so now, read in SQL: runs, approvals, idempotency keys, uses of grants. Part of the SQL that is in this package alone.

Used by the writer inside a transaction and by readers in a view of one moment (sqlite.py). Trusts a file that was checked when
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
"""24 hours: longer than any agent retries, shorter than anyone reuses a key by accident."""
RUN_COLUMNS: Final = (
    "id, action, session, scope, status, plan_digest, approval, connector, created_us, changed_us, outcome"
)
_APPROVAL_NAMES: Final = ApprovalRow.__struct_fields__
APPROVAL_COLUMNS: Final = ", ".join(_APPROVAL_NAMES)
OPEN: Final = "('pending_approval', 'approved')"  # spelled as in the partial index, or SQLite would not use it


class States:
    """Reads of what is so now: runs, approvals with what belongs to them, idempotency keys, uses of grants."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection

    def run(self, run_id: str) -> RunRow | None:
        """One run, its outcome with it."""
        row = self._db.execute(f"SELECT {RUN_COLUMNS} FROM runs WHERE id = ?", (run_id,)).fetchone()  # noqa: S608 - constants
        return run_row(row) if row else None

    def runs_in(self, status: RunStatus) -> list[RunRow]:
        """The runs of a status that is not final."""
        if status.is_final:
            raise ValueError(f"runs are not listed by the final status {status}")
        rows = self._db.execute(
            f"SELECT {RUN_COLUMNS} FROM runs WHERE status = ?"  # noqa: S608 - constants
            " AND status IN ('pending_approval', 'approved', 'running') ORDER BY id",
            (status.value,),
        )
        return [run_row(row) for row in rows]

    def approval(self, approval_id: str) -> ApprovalRow | None:
        """One approval, without what it is about."""
        row = self._db.execute(
            f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE id = ?",  # noqa: S608 - constants
            (approval_id,),
        ).fetchone()
        return approval_row(row) if row else None

    def subject(self, approval_id: str, most: int = 2**31) -> bytes | None:
        """What an approval is about, as it was stored; None for one of over `most` bytes too, which is not read then."""
        row = self._db.execute(
            "SELECT subject FROM approvals WHERE id = ? AND length(subject) <= ?", (approval_id, most)
        ).fetchone()
        return row[0] if row else None

    def open_approvals(self, *, due_us: int | None = None) -> list[ApprovalRow]:
        """Pending and approved ones, the first to expire first; with `due_us`, only those whose time is over by then."""
        rows = self._db.execute(
            f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE state IN {OPEN} AND expires_us <= ? ORDER BY expires_us, id",  # noqa: S608 - constants
            (2**62 if due_us is None else due_us,),
        )
        return [approval_row(row) for row in rows]

    def first_expiry(self) -> int | None:
        """When the first open approval expires; None where none is open."""
        found = self._db.execute(f"SELECT min(expires_us) FROM approvals WHERE state IN {OPEN}")  # noqa: S608
        moment: int | None = found.fetchone()[0]
        return moment

    def count_open_approvals(self, *, consents: bool = False) -> int:
        """How many questions wait or are answered and not yet used; only consents, where that is said."""
        kinds = f" AND kind <> '{ACTION_KIND}'" if consents else ""
        count: int = self._db.execute(f"SELECT count(*) FROM approvals WHERE state IN {OPEN}{kinds}").fetchone()[0]  # noqa: S608
        return count

    def open_runs(self) -> list[str]:
        """The runs whose questions wait, or are answered and not yet used."""
        rows = self._db.execute(f"SELECT run FROM approvals WHERE state IN {OPEN} AND kind = '{ACTION_KIND}'")  # noqa: S608
        return [run for (run,) in rows]

    def open_consent(self, kind: str, name: str, digest: str) -> ApprovalRow | None:
        """The question about exactly this that is open, if there is one."""
        row = self._db.execute(
            f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE state IN {OPEN} AND kind = ? AND name = ? AND digest = ? LIMIT 1",  # noqa: S608
            (kind, name, digest),
        ).fetchone()
        return approval_row(row) if row else None

    def candidates(self, approval_id: str) -> list[CandidateRow]:
        """What may be decided beside the question itself, in the order it was made."""
        rows = self._db.execute(
            "SELECT digest, plan_digest, preview, made_us FROM candidates WHERE approval = ? ORDER BY rowid",
            (approval_id,),
        )
        return [CandidateRow(digest=row[0], plan_digest=row[1], preview=row[2], made_us=row[3]) for row in rows]

    def plan_of(self, row: ApprovalRow, digest: str) -> bytes | None:
        """The frozen plan of one of its candidates, as it was stored, by the digest of the plan itself."""
        if digest == row.asked_digest:
            return self.subject(row.id)
        found = self._db.execute(
            "SELECT subject FROM candidates WHERE approval = ? AND digest = ?", (row.id, digest)
        ).fetchone()
        return found[0] if found else None

    def conversation(self, approval_id: str) -> list[RoundRow]:
        """What a person asked back about a question, and the answers, in order."""
        rows = self._db.execute(
            "SELECT number, question, answer FROM conversation WHERE approval = ? ORDER BY number", (approval_id,)
        )
        return [RoundRow(*row) for row in rows]

    def grant_used(self, grant_id: str) -> int:
        """How often a grant was used."""
        row = self._db.execute("SELECT used FROM grant_uses WHERE id = ?", (grant_id,)).fetchone()
        return row[0] if row else 0

    def status_of(self, row: ApprovalRow) -> RunStatus:
        """The status word that callers know: that of the run which waits for it, or its own. Every surface shows this one."""
        run = self.run(row.run) if row.run is not None else None
        return row.state.status if run is None else run.status

    def already(self, row: ApprovalRow) -> AileronError:
        """That this was decided, in the status word a caller knows."""
        return already("approval", row.id, self.status_of(row).value)

    def newest(self, kind: type[E]) -> Recorded[E] | None:
        """The newest event of a type."""
        row = self._db.execute(
            "SELECT record FROM events INDEXED BY events_type WHERE type = ? ORDER BY seq DESC LIMIT 1", (tag_of(kind),)
        ).fetchone()
        return recorded(msgspec.json.decode(row[0]), kind) if row else None

    def first_of(self, kind: type[E], run_id: str) -> Recorded[E] | None:
        """The first event of a type about a run, of those that are on disk."""
        row = self._db.execute(
            "SELECT record FROM events INDEXED BY events_run WHERE run = ? AND type = ? ORDER BY seq LIMIT 1",
            (run_id, tag_of(kind)),
        ).fetchone()
        return recorded(msgspec.json.decode(row[0]), kind) if row else None

    def all_of(self, kind: type[E], after: int) -> list[Recorded[E]]:
        """Every event of a type after that row, oldest first: for types of which there are few."""
        rows = self._db.execute(
            "SELECT record FROM events INDEXED BY events_type WHERE type = ? AND seq > ? ORDER BY seq",
            (tag_of(kind), after),
        ).fetchall()
        return [recorded(msgspec.json.decode(record), kind) for (record,) in rows]

    def hash_of(self, seq: int) -> bytes | None:
        """The hash of an event that is on disk, by its number."""
        row = self._db.execute("SELECT hash FROM events WHERE seq = ?", (seq,)).fetchone()
        return row[0] if row else None

    def unsettled(self, plan_digest: str, now_us: int) -> str | None:
        """The newest run of exactly this plan that ended as unknown, within 24 hours, after it had sent something.

        None also where one was begun after that. What never sent anything did nothing: a request is on record before it leaves.

        Nothing begins after it but what was asked for knowingly (audit/log.py).
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
        # Ids begin with their second, and are the key of the table: only what was asked for since that one is looked at.
        run_id: str = row[0]
        later = self._db.execute(
            "SELECT 1 FROM runs WHERE id > ? AND plan_digest = ? AND created_us > ? LIMIT 1",
            (run_id.rpartition("-")[0], plan_digest, row[1]),
        ).fetchone()
        return run_id if later is None else None

    def claimed(self, session: str, key: str, digest: str, now_us: int) -> str | None:
        """The run that holds this key. AileronError(idempotency_conflict) if it was asked with something else."""
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


def already(what: str, name: str, status: str) -> AileronError:
    """What the loser of a race is told."""
    return AileronError(FailureClass.ALREADY_DECIDED, f"{what} {name} is already {status}", details={"status": status})


def run_row(row: tuple[Any, ...]) -> RunRow:
    """A run from `RUN_COLUMNS`."""
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
    """An approval from `APPROVAL_COLUMNS`."""
    values = dict(zip(_APPROVAL_NAMES, row, strict=True))
    return ApprovalRow(**{**values, "state": ApprovalState(values["state"])})
