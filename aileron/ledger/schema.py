"""The tables of the ledger, and the migrations from each schema to the next. SQL is in this package alone.

A file has exactly these objects, as SQLite stores their SQL. `unexpected_objects` reports any missing or extra object,
because a trigger could drop rows as they are written, a view could show other rows, and a table could compare names
differently.

Rules
- A schema is never changed. A new schema succeeds it; the migration is in place, and rewrites no event.
- In earlier rows, a new column is empty, unless its value can be taken from other tables.

Source: https://www.sqlite.org/lang_altertable.html. Not here: reading and writing (states.py, sqlite.py).
"""

from __future__ import annotations

import contextlib
import functools
import sqlite3
from typing import Any, Final

__all__ = ["APPLICATION_ID", "MIGRATIONS", "SCHEMA", "SCHEMA_VERSION", "readable", "script_of", "unexpected_objects"]

SCHEMA_VERSION: Final = 4
APPLICATION_ID: Final = 0x41494C52  # "AILR": the application id in SQLite's header, which `file` shows

SCHEMA: Final = """
CREATE TABLE events (
  seq INTEGER PRIMARY KEY, at_us INTEGER NOT NULL,
  type TEXT NOT NULL, run TEXT, session TEXT, action TEXT, connector TEXT, class TEXT,
  record TEXT NOT NULL, previous BLOB NOT NULL, hash BLOB NOT NULL
) STRICT;
CREATE INDEX events_at ON events (at_us);
CREATE INDEX events_type ON events (type);
CREATE INDEX events_run ON events (run) WHERE run IS NOT NULL;
CREATE INDEX events_session ON events (session) WHERE session IS NOT NULL;
CREATE INDEX events_action ON events (action) WHERE action IS NOT NULL;
CREATE INDEX events_connector ON events (connector) WHERE connector IS NOT NULL;
CREATE INDEX events_class ON events (class) WHERE class IS NOT NULL;

CREATE TABLE runs (
  id TEXT PRIMARY KEY, action TEXT NOT NULL, session TEXT NOT NULL, scope TEXT NOT NULL, status TEXT NOT NULL,
  plan_digest TEXT NOT NULL, approval TEXT, connector TEXT,
  created_us INTEGER NOT NULL, changed_us INTEGER NOT NULL, outcome BLOB
) STRICT;
CREATE INDEX runs_open ON runs (status) WHERE status IN ('pending_approval', 'approved', 'running');

CREATE TABLE approvals (
  id TEXT PRIMARY KEY, kind TEXT NOT NULL, run TEXT, digest TEXT NOT NULL, state TEXT NOT NULL,
  created_us INTEGER NOT NULL, expires_us INTEGER NOT NULL, decided_us INTEGER, reason TEXT, surface TEXT,
  subject BLOB NOT NULL
) STRICT;
CREATE INDEX approvals_open ON approvals (expires_us) WHERE state IN ('pending_approval', 'approved');

CREATE TABLE idempotency (
  session TEXT NOT NULL, key TEXT NOT NULL, digest TEXT NOT NULL, run TEXT NOT NULL, claimed_us INTEGER NOT NULL,
  PRIMARY KEY (session, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_claimed ON idempotency (claimed_us);
"""
"""SQL statements that create the tables of the first schema."""
MIGRATIONS: Final = {
    # Joint indexes for pairs of conditions, so that a search need not read all rows of the commoner one. And the rows
    # made while the clock was behind: without them, times rise with row numbers, and an index finds a bound in time.
    2: """
CREATE INDEX events_class_action ON events (class, action) WHERE class IS NOT NULL;
CREATE INDEX events_class_connector ON events (class, connector) WHERE class IS NOT NULL;
CREATE INDEX events_action_connector ON events (action, connector) WHERE action IS NOT NULL AND connector IS NOT NULL;
CREATE TABLE set_back (seq INTEGER PRIMARY KEY, at_us INTEGER NOT NULL) STRICT;
INSERT INTO set_back SELECT seq, at_us FROM (
  SELECT seq, at_us, max(at_us) OVER (ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS latest FROM events
) WHERE at_us < latest;
""",
    # The signature of a decision and the digest it is about; the conversation before it; the number of uses of a grant.
    # `asked` is the digest of the question if another of its candidates was decided. A run's question is named after its
    # action, so that an index finds the last used approval of an action.
    3: """
ALTER TABLE approvals ADD COLUMN name TEXT;
ALTER TABLE approvals ADD COLUMN asked TEXT;
ALTER TABLE approvals ADD COLUMN preview TEXT;
ALTER TABLE approvals ADD COLUMN key_id TEXT;
ALTER TABLE approvals ADD COLUMN signed_at TEXT;
ALTER TABLE approvals ADD COLUMN signature TEXT;
ALTER TABLE approvals ADD COLUMN head TEXT;
ALTER TABLE approvals ADD COLUMN head_signature TEXT;
UPDATE approvals SET name = (SELECT action FROM runs WHERE runs.id = approvals.run);
CREATE INDEX approvals_used ON approvals (name, decided_us) WHERE state = 'redeemed' AND kind = 'action';
CREATE TABLE candidates (
  approval TEXT NOT NULL, digest TEXT NOT NULL, plan_digest TEXT NOT NULL, preview TEXT, made_us INTEGER NOT NULL,
  subject BLOB
) STRICT;
CREATE UNIQUE INDEX candidates_each ON candidates (approval, digest);
CREATE TABLE conversation (
  approval TEXT NOT NULL, number INTEGER NOT NULL, question TEXT NOT NULL, answer TEXT,
  PRIMARY KEY (approval, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE grant_uses (
  id TEXT PRIMARY KEY, used INTEGER NOT NULL, revoked_us INTEGER
) STRICT, WITHOUT ROWID;
""",
    # To count the runs that a session requested without reading each.
    4: "CREATE INDEX runs_session ON runs (session, created_us);",
}
"""SQL statements that migrate a ledger to each schema from the one before, in place and without rewriting the events."""
_OBJECTS: Final = "SELECT type, name, sql FROM sqlite_master"


def script_of(version: int) -> str:
    """Return all statements that create an empty ledger of this schema, each ended by a semicolon."""
    return SCHEMA + "".join(MIGRATIONS[newer] for newer in range(2, version + 1))


def unexpected_objects(db: sqlite3.Connection, version: int) -> str | None:
    """Return a sentence about a table or index that exists only in the file or only in its schema; None if both have
    the same ones.
    """
    found = {tuple(map(readable, row)) for row in db.execute(_OBJECTS)}
    expected = _expected_objects(version)
    for kind, name, _ in sorted(found - expected, key=str):
        return f"it holds a {kind} {name!r} that aileron never made"
    for kind, name, _ in sorted(expected - found, key=str):
        return f"the {kind} {name!r} is missing"
    return None


def readable(value: object) -> Any:
    """Return a database field for use as text: bytes are decoded, because a ledger file to verify is read as bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


@functools.cache
def _expected_objects(version: int) -> frozenset[tuple[Any, ...]]:
    """Return the objects that a ledger of this schema has, as SQLite stores them."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.executescript(script_of(version))
        return frozenset(db.execute(_OBJECTS))
