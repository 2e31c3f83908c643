"""The ledger: events and current states, on disk before anyone acts on them. The only package that uses SQLite.

sqlite.py the database: Ledger, Transaction, Snapshot · schema.py its tables · states.py current states · writer.py the single
writing thread and its groups · chain.py a row's form, and how rows are chained (pure) · rows.py runs, approvals, filters as
values (pure) · recorded.py an event read as its type (pure)

>>> import tempfile
>>> from pathlib import Path
>>> with tempfile.TemporaryDirectory() as home, Ledger.open(Path(home) / "ledger.db", Path(home), "0.1.0") as ledger:
...     ledger.commit_now(lambda transaction: transaction.append({"type": "daemon.started"}))
2
"""

from __future__ import annotations

from aileron.ledger.chain import FILTERED, NO_HASH, Head, StoredClaim, StoredRow, claim_digest, columns_of, link
from aileron.ledger.recorded import Recorded, recorded
from aileron.ledger.rows import (
    ACTION_KIND,
    ApprovalRow,
    ApprovalState,
    CandidateRow,
    EventFilter,
    EventRow,
    RecordRow,
    RoundRow,
    RunRow,
)
from aileron.ledger.sqlite import (
    MAX_PAGE_BYTES,
    MAX_ROWS,
    Ledger,
    Snapshot,
    StoredLedger,
    Transaction,
    open_stored,
)
from aileron.ledger.states import IDEMPOTENCY_KEPT_US

__all__ = [
    "ACTION_KIND",
    "FILTERED",
    "IDEMPOTENCY_KEPT_US",
    "MAX_PAGE_BYTES",
    "MAX_ROWS",
    "NO_HASH",
    "ApprovalRow",
    "ApprovalState",
    "CandidateRow",
    "EventFilter",
    "EventRow",
    "Head",
    "Ledger",
    "RecordRow",
    "Recorded",
    "RoundRow",
    "RunRow",
    "Snapshot",
    "StoredClaim",
    "StoredLedger",
    "StoredRow",
    "Transaction",
    "claim_digest",
    "columns_of",
    "link",
    "open_stored",
    "recorded",
]
