"""The hash chain: the form of a row of the ledger, and its link to the row before it.

A row's *record* is the canonical JSON (RFC 8785) of all facts of the row, its number and time included. Its hash is
sha256(previous hash ‖ record), so that no row can be altered, removed, inserted or moved without every later hash changing.
The first row is the genesis row; its previous hash is 32 zero bytes.

Pure; knows neither files nor SQL. Used by the writer (sqlite.py), which makes rows, and by audit/verify.py, which trusts
none of them.

Rules
- `seq` counts from 1 without gaps. `at_us` is the time of the wall clock when the row was made; the order of rows is
  that of `seq`, never of `at_us`.
- The event that begins a run names the run's idempotency key by a digest (`claim`). So the keys, which are stored
  beside the chain, are bound to it.
- The columns that queries filter on only repeat facts of the record (`columns_of`), so that a verifier can compare
  them. A value that is not in the record is not evidence.

Source: docs/reference/audit-events.md. Not here: which types of row exist (audit/events.py).

>>> record = make_record(1, 0, {"type": "genesis"})
>>> record
b'{"at_us":0,"seq":1,"type":"genesis"}'
>>> link(NO_HASH, record).hex()[:16]
'81ecb1416f6e93a1'
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from aileron.model.canonical import canonical_json, sha256_digest
from aileron.model.json_value import JSONObject
from aileron.model.sha256 import sha256

__all__ = [
    "FILTERED",
    "NO_HASH",
    "Head",
    "StoredClaim",
    "StoredRow",
    "claim_digest",
    "columns_of",
    "link",
    "make_record",
]

NO_HASH: Final = bytes(32)
"""Hash that the genesis row has as its previous hash, because no row precedes it."""
FILTERED: Final = ("type", "run", "session", "action", "connector", "class")
"""Names of an event's facts that have a column of their own, in column order."""


class Head(msgspec.Struct, frozen=True):
    """The head of the chain: the number and hash of the newest row. A head that is stored outside the ledger proves
    that no row up to it was removed or rewritten.
    """

    seq: int
    hash: bytes

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash.hex()}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """Parse a head from text of the form SEQ:HASH, as `str` writes it. Raises ValueError for any other text."""
        seq, _, digest = text.partition(":")
        if not seq.isascii() or not seq.isdigit() or len(digest) != 64:
            raise ValueError(f"{text!r} is not SEQ:HASH, a row number and 64 hex digits")
        return cls(int(seq), bytes.fromhex(digest))


class StoredRow(msgspec.Struct, frozen=True):
    """A row of an event as it is stored, not verified: any field may have any value."""

    seq: int
    at_us: Any
    columns: tuple[Any, ...]
    record: bytes
    previous: bytes
    hash: bytes


class StoredClaim(msgspec.Struct, frozen=True):
    """An idempotency key as it is stored, not verified, with the session and the time of the run that has it."""

    session: Any
    key: Any
    digest: Any
    run: Any
    claimed_us: Any
    run_session: Any
    run_created_us: Any


def claim_digest(session: str, key: str, digest: str) -> str:
    """Return the digest by which a run's record names its idempotency key. The digest covers the session, the key, and
    the `digest` of the request; it hides the key.
    """
    return sha256_digest(canonical_json([session, key, digest]))


def make_record(seq: int, at_us: int, facts: JSONObject) -> bytes:
    """Return an event's record, the canonical JSON that is hashed and stored. Raises ValueError if a fact has no
    canonical JSON form.
    """
    return canonical_json({**facts, "seq": seq, "at_us": at_us})


def link(previous: bytes, record: bytes) -> bytes:
    """Return the hash of a row, 32 bytes, from the previous row's hash and the row's record."""
    return sha256(previous + record)


def columns_of(facts: JSONObject) -> tuple[Any, ...]:
    """Return the values of the facts that queries filter on, in the order of `FILTERED`; None for each absent fact."""
    return tuple(map(facts.get, FILTERED))
