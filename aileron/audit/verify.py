"""The check of a ledger file by itself: without a daemon, without trust in its writer, and read-only.

Runs in the daemon or in a command of its own, on any copy of the file. Trusts nothing in it. Stops at the first fault,
because every later hash is suspect. Holds open states and no history: a million rows take no more memory.

What is checked, in this order
1  the file is a ledger of this schema, its pages are whole, its indexes match its tables, and nothing in it (a trigger, a
   view, a table that compares in another way) could change what is read or written
2  the first row is the genesis row, and names the expected home if one is given
3  each row: its number follows its predecessor's (no row was removed), the previous hash that it names is its predecessor's (no
   row was inserted or swapped), its hash is that of its record (not altered), and the columns for searches repeat the record
4  each outcome and each frozen plan or other subject, which are stored beside the chain, is the one whose digest its row names
5  each run, each approval with its candidates and conversation, each idempotency key and each use of a grant is exactly what
   the events say (replay.py), and no others are stored
6  each decision is signed by a key that the chain names by then, and so is each change of that key (signatures.py); the heads
   that were signed with decisions are in the chain
7  a head that was stored elsewhere is in the chain

`Report.cannot_prove` states the limits of the check, which the caller must show. Whoever can write the file can compute
a whole new chain, or cut off its end. Only a head that was kept elsewhere, or signed with a key that is known
elsewhere, reveals that.

Source: docs/reference/audit-events.md, docs/adr (audit chain).
Not here: the format (ledger/chain.py), the file (ledger/sqlite.py).
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from pathlib import Path
from typing import Final, get_args

import msgspec

from aileron.audit.frozen import is_frozen, subject_of
from aileron.audit.replay import Moving, OutOfOrderError, Replay, ToldApproval
from aileron.audit.signatures import Decisions, ForeignHeadError, Signatures, Signed, WrongSignatureError
from aileron.ledger import (
    ACTION_KIND,
    NO_HASH,
    Head,
    Recorded,
    RunRow,
    StoredLedger,
    StoredRow,
    claim_digest,
    columns_of,
    link,
    open_stored,
    recorded,
)
from aileron.ledger.recorded import tag_of
from aileron.model.canonical import sha256_digest
from aileron.model.failure import AileronError
from aileron.model.json_value import JSONObject, checked_text

__all__ = ["Decisions", "Finding", "Head", "Reason", "Report", "verify"]


class Reason(enum.StrEnum):
    """Kinds of fault that the check of a ledger can find, a closed list."""

    FILE = "file"
    """The file is not a complete ledger: damaged pages or indexes, or an object that Aileron never made."""
    GENESIS = "genesis"
    """The first row is not the genesis row of this home."""
    GAP = "gap"
    """A row's number does not follow its predecessor's: rows were removed, or a row was inserted."""
    PREVIOUS = "previous"
    """The previous hash in a row is not that of its predecessor: rows were swapped, replaced or inserted."""
    HASH = "hash"
    """A row's hash is not that of its record: the row was altered."""
    COLUMNS = "columns"
    """The columns that searches use do not match the row's record."""
    OUTCOME = "outcome"
    """The stored outcome of a run differs from the recorded one, or is missing."""
    STATE = "state"
    """The stored state of a run, an approval, an idempotency key or a grant does not follow from the events, or is missing."""
    PLAN = "plan"
    """The stored plan, or other subject, of an approval does not have the digest of its question, or is missing."""
    SIGNATURE = "signature"
    """A decision, or a change of the approver's key, is not signed by a key that the chain names at that point."""
    HEAD = "head"
    """A head that was stored elsewhere, or signed with a decision, is not in the chain, so the chain was cut, rolled
    back or rewritten.
    """


class Finding(msgspec.Struct, frozen=True):
    """The first fault that the check found; `seq` is the number of the affected row, if the fault is in a row."""

    reason: Reason
    seq: int | None
    message: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the check of a ledger. Its first `rows` rows are valid; `head` is the last of them and worth
    storing elsewhere.

    `decisions` counts the decisions in the valid rows; `signed_head` is the newest head that was signed with a decision.
    """

    path: str
    rows: int
    head: str | None
    signed_head: str | None
    decisions: Decisions
    finding: Finding | None
    cannot_prove: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """True if no fault was detected. The field `cannot_prove` lists what that does not prove."""
        return self.finding is None

    def to_json(self) -> dict[str, object]:
        """Return the report as JSON values, including `whole`."""
        return {"whole": self.is_whole, **msgspec.to_builtins(self)}


_ALWAYS: Final = ("that the times are correct: they come from this machine's clock",)
_WITHOUT_HEAD: Final = (
    "that no rows were removed from the end: compare with a head (SEQ:HASH) kept elsewhere",
    "that nobody with write access recomputed the whole chain: compare with a head kept elsewhere",
)


_MOVING: Final[dict[str, type[Moving]]] = {tag_of(kind): kind for kind in get_args(Moving)}
_SIGNED: Final[dict[str, type[Signed]]] = {tag_of(kind): kind for kind in get_args(Signed)}
_RECORD: Final = msgspec.json.Decoder(JSONObject)
_KEY: Final = "that {} is the person's key: compare with `aileron approver status`"
_SIGNED_HEAD: Final = "that the rows after row {}, the last signed head, were not removed or rewritten"
_UNCHECKED: Final = "who signed {} decisions: this ledger names no key, because it was started anew"


def verify(path: Path, *, known_head: Head | None = None, expected_home: Path | None = None) -> Report:
    """Check the ledger at `path` and return a report. With `known_head`, also check that this row is in the chain; with
    `expected_home`, that the genesis row names this home.

    A running daemon may continue writing, because the check reads a consistent snapshot. Raises AileronError if the file does
    not exist or cannot be read at all; every fault in it is a finding.
    """
    report, is_stale = _verify_once(path, known_head, expected_home)
    if report.finding is not None and is_stale:
        report, _ = _verify_once(path, known_head, expected_home)
    return report


def _verify_once(path: Path, known_head: Head | None, expected_home: Path | None) -> tuple[Report, bool]:
    """Return the report, and whether the file may have been read inconsistently: it was opened as a file that no daemon
    writes, but a daemon began to write to it during the check.
    """
    check = _Check(path, known_head, expected_home)
    finding: Finding | None = None
    is_stale = False
    try:
        with open_stored(path) as stored:
            try:
                check.run(stored)
            finally:
                is_stale = stored.is_stale()
    except _FoundError as found:
        finding = found.finding
    except AileronError as error:
        if error.failure.details.get("cause") in (None, "inaccessible", "locked"):
            raise
        finding = Finding(Reason.FILE, None, error.failure.message)
    return check.report(finding), is_stale


class _FoundError(Exception):
    """Exception that ends the check of a ledger at its first fault."""

    def __init__(self, reason: Reason, seq: int | None, message: str) -> None:
        super().__init__(message)
        self.finding = Finding(reason, seq, message)


class _Check:
    def __init__(self, path: Path, known_head: Head | None, expected_home: Path | None) -> None:
        self._path = path
        self._known = known_head
        self._home = expected_home
        self._last = Head(0, NO_HASH)
        self._replay = Replay()
        self._signatures = Signatures(lambda _: None)

    def run(self, stored: StoredLedger) -> None:
        self._signatures = Signatures(stored.hash_of)
        if (damage := stored.damage()) is not None:  # 1
            raise _FoundError(Reason.FILE, None, damage)
        clock = _Clock(stored)
        for row in stored.rows():
            facts = self._check_row(row)  # 3
            clock.check(row.seq, row.at_us)
            if row.seq == 1:
                self._check_genesis(facts)  # 2
            _check_beside(stored, row.seq, facts)  # 4
            kind = checked_text(facts["type"])
            if (moving := _MOVING.get(kind)) is not None:
                self._follow(stored, recorded(facts, moving))  # 5
            if (signed := _SIGNED.get(kind)) is not None:
                self._check_signatures(recorded(facts, signed))  # 6
            self._last = Head(row.seq, row.hash)
            self._check_known()  # 7
        clock.check_end()
        if self._last.seq == 0:
            raise _FoundError(Reason.GENESIS, None, "the ledger has no rows, not even the genesis row")
        if self._known is not None and self._known.seq > self._last.seq:
            raise _FoundError(
                Reason.HEAD,
                self._last.seq,
                f"the chain ends at row {self._last.seq}, but the head kept elsewhere is row {self._known.seq}: rows were removed"
                " or the file was replaced by an older copy",
            )

        self._check_states(stored)  # 5

    def _follow(self, stored: StoredLedger, told: Recorded[Moving]) -> None:
        """Apply the next event, and compare the stored rows of the runs and approvals that it ends at once, because no
        later event changes them.
        """
        try:
            over = self._replay.follow(told)
        except OutOfOrderError as error:
            raise _FoundError(Reason.STATE, told.seq, f"row {told.seq} contradicts earlier rows: {error}") from error
        for ended in over:
            _check_state(stored, told.seq, ended)

    def _check_states(self, stored: StoredLedger) -> None:
        """Check the stored rows of the runs and approvals that have not ended after the last event, and that every
        stored row follows from an event.
        """
        replay = self._replay
        for run in replay.runs.values():
            _check_state(stored, None, run)
            if stored.outcome(run.id) is not None:
                raise _FoundError(Reason.STATE, None, f"{run.id} has an outcome, but no event says that it ended")
        for approval in replay.approvals.values():
            _check_state(stored, None, approval)
        for kind, there in stored.counts().items():
            if there != replay.counts[kind]:
                raise _FoundError(
                    Reason.STATE, None, f"{there} {kind} are stored, but the events mention {replay.counts[kind]}"
                )
        _check_grants(stored, replay)
        _check_claims(stored, dict(replay.claims))

    def _check_signatures(self, told: Recorded[Signed]) -> None:
        try:
            self._signatures.follow(told)
        except WrongSignatureError as error:
            message = f"the signature check of row {told.seq} failed: {error}"
            raise _FoundError(Reason.SIGNATURE, told.seq, message) from error
        except ForeignHeadError as error:
            message = f"row {told.seq}: {error}: the chain was recomputed"
            raise _FoundError(Reason.HEAD, told.seq, message) from error

    def report(self, finding: Finding | None) -> Report:
        return Report(
            path=str(self._path),
            rows=self._last.seq,
            head=str(self._last) if self._last.seq else None,
            signed_head=None if self._signatures.head is None else str(self._signatures.head),
            decisions=self._signatures.decisions,
            finding=finding,
            cannot_prove=(*_ALWAYS, *self._unproven_signers(), *self._unproven_rows()),
        )

    def _unproven_signers(self) -> Iterator[str]:
        if self._signatures.key_id is not None:
            yield _KEY.format(self._signatures.key_id)
        if self._signatures.decisions.unchecked:
            yield _UNCHECKED.format(self._signatures.decisions.unchecked)

    def _unproven_rows(self) -> tuple[str, ...]:
        signed = self._signatures.head
        if signed is not None and (self._known is None or signed.seq > self._known.seq):
            return (_SIGNED_HEAD.format(signed.seq),)
        return _WITHOUT_HEAD if self._known is None else self._after_known()

    def _after_known(self) -> tuple[str, ...]:
        known = "" if self._known is None else f", after row {self._known.seq}"
        return tuple(f"{words.split(':')[0]}{known}" for words in _WITHOUT_HEAD)

    def _check_row(self, row: StoredRow) -> JSONObject:
        expected = self._last.seq + 1
        if row.seq != expected:
            raise _FoundError(Reason.GAP, row.seq, f"row {expected} is missing: after {self._last.seq} comes {row.seq}")
        if row.previous != self._last.hash:
            raise _FoundError(
                Reason.PREVIOUS,
                row.seq,
                f"row {row.seq} does not follow row {self._last.seq}: it names a different hash",
            )
        if link(row.previous, row.record) != row.hash:
            raise _FoundError(Reason.HASH, row.seq, f"row {row.seq} was altered: its hash does not match its record")
        return _facts_of(row)

    def _check_genesis(self, facts: JSONObject) -> None:
        if facts["type"] != "genesis":
            raise _FoundError(Reason.GENESIS, 1, f"the first row is {facts['type']!r}, not the genesis row")
        if self._home is not None and facts.get("home") != str(self._home):
            raise _FoundError(
                Reason.GENESIS, 1, f"it was made for the home {facts.get('home')!r}, not for {str(self._home)!r}"
            )

    def _check_known(self) -> None:
        if self._known is not None and self._known.seq == self._last.seq and self._known != self._last:
            raise _FoundError(
                Reason.HEAD,
                self._last.seq,
                f"row {self._last.seq} does not have the hash that was kept elsewhere: the chain was recomputed",
            )


def _facts_of(row: StoredRow) -> JSONObject:
    """Return the facts in a row's record, whose hash was already checked. Raises _FoundError if they are not valid or do not
    match the row's columns.
    """
    try:
        facts = _RECORD.decode(row.record)
    except msgspec.DecodeError as error:
        raise _FoundError(Reason.HASH, row.seq, f"row {row.seq} is not a valid record: {error}") from error
    said = (facts.get("seq"), facts.get("at_us"), *columns_of(facts))
    if said != (row.seq, row.at_us, *row.columns) or not isinstance(facts.get("type"), str):
        raise _FoundError(
            Reason.COLUMNS, row.seq, f"row {row.seq}: the columns used for searching do not match its record"
        )
    return facts


class _Clock:
    """A comparison of the rows with the stored list of rows that were made while the clock was set back.

    Searches by time rely on this list.
    """

    def __init__(self, stored: StoredLedger) -> None:
        self._listed = stored.set_back()
        self._latest_us = 0

    def check(self, seq: int, at_us: int) -> None:
        if at_us >= self._latest_us:
            self._latest_us = at_us
        elif self._listed is not None and next(self._listed, None) != (seq, at_us):
            raise _FoundError(
                Reason.COLUMNS, seq, f"row {seq} was written while the clock was behind, but is not listed as such"
            )

    def check_end(self) -> None:
        if self._listed is not None and (more := next(self._listed, None)) is not None:
            raise _FoundError(
                Reason.COLUMNS, None, f"{more[0]!r:.100} is listed as written while the clock was behind, but was not"
            )


def _check_state(stored: StoredLedger, seq: int | None, told: RunRow | ToldApproval) -> None:
    expected = told.row if isinstance(told, ToldApproval) else told
    row = stored.run(expected.id) if isinstance(expected, RunRow) else stored.approval(expected.id)
    if row is None:
        raise _FoundError(Reason.STATE, seq, f"{expected.id} is missing, although events mention it")
    for name, value in row.items():
        if value != getattr(expected, name):
            raise _FoundError(
                Reason.STATE, seq, f"{expected.id} is stored with a different {name} than in the events: {value!r:.100}"
            )
    if isinstance(told, ToldApproval):
        _check_belonging(stored, seq, told)


def _check_belonging(stored: StoredLedger, seq: int | None, told: ToldApproval) -> None:
    """Check the stored candidates of a question, and the stored conversation about it, against the events."""
    candidates = stored.candidates(told.row.id)
    subjects = [candidate.pop("subject") for candidate in candidates]
    for kind, there, expected in (
        ("candidates", candidates, told.candidates),
        ("conversation", stored.conversation(told.row.id), told.conversation),
    ):
        if there != [msgspec.structs.asdict(row) for row in expected]:
            raise _FoundError(Reason.STATE, seq, f"{told.row.id} is stored with different {kind} than in the events")
    for candidate, subject in zip(told.candidates, subjects, strict=True):
        is_edit = candidate.preview is None
        if not (isinstance(subject, bytes) and is_frozen(subject, candidate.digest) if is_edit else subject is None):
            raise _FoundError(
                Reason.PLAN, seq, f"the stored plan of an edit of {told.row.id} differs from the recorded one"
            )


def _check_grants(stored: StoredLedger, replay: Replay) -> None:
    told = {name: (grant.used, grant.revoked_us) for name, grant in replay.grants.items()}
    there = {name: (used, revoked_us) for name, used, revoked_us in stored.grant_uses()}
    for name in told.keys() | there.keys():
        if told.get(name) != there.get(name):
            raise _FoundError(
                Reason.STATE,
                None,
                f"grant {name!r:.100} is stored with a different number of uses than in the events: {there.get(name)}",
            )


def _check_claims(stored: StoredLedger, told: dict[str, tuple[int, str]]) -> None:
    """Check that each stored idempotency key belongs to its run, and that each key that an event names is stored. Old events name
    no keys.
    """
    for claim in stored.claims():
        if (claim.run_session, claim.run_created_us) != (claim.session, claim.claimed_us):
            raise _FoundError(
                Reason.STATE, None, f"the idempotency key of {claim.run!r:.100} does not belong to that run"
            )
        _, digest = told.pop(claim.run, (0, None))
        if digest is not None and claim_digest(claim.session, claim.key, claim.digest) != digest:
            raise _FoundError(Reason.STATE, None, f"the idempotency key of {claim.run} is not the one in its request")
    for run_id in told:
        raise _FoundError(Reason.STATE, None, f"the idempotency key of {run_id} is missing: the run could be repeated")


def _check_beside(stored: StoredLedger, seq: int, facts: JSONObject) -> None:
    if "outcome_digest" in facts:
        outcome = stored.outcome(str(facts.get("run")))
        if outcome is None or sha256_digest(outcome) != facts["outcome_digest"]:
            raise _FoundError(
                Reason.OUTCOME,
                seq,
                f"the stored outcome of {facts.get('run')} differs from the one recorded in row {seq}",
            )
    if facts["type"] == "approval.requested":
        name = str(facts.get("approval"))
        subject = stored.subject(name)
        digest = str(facts.get("digest"))
        if subject is None or not is_frozen(subject, digest):
            raise _FoundError(
                Reason.PLAN, seq, f"the stored subject of {name} differs from the one recorded in row {seq}"
            )
        if subject_of(subject, digest, name).get("kind", ACTION_KIND) != facts.get("kind"):  # a run's plan has no kind
            raise _FoundError(
                Reason.PLAN, seq, f"the stored subject of {name} is of a different kind than in row {seq}"
            )
