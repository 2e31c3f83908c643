"""Reads of the record: events by filter, and everything about one run, as JSON-ready values for any surface.

Runs in the daemon. Only reads, from a consistent snapshot. Its results contain hostile text unchanged: each surface makes
hidden characters visible itself.

Rules
- Times are RFC 3339 in UTC, to the microsecond; `at_us`, `expires_at_us`, `until_us` and `since_us` of a record appear as `at`,
  `expires_at`, `until` and `since`.
- The contents of a preview are not here: only its digest was ever stored.
- An unknown filter is an error that lists the known filters; it is never ignored.
- A page ends early if records are large (MAX_PAGE_BYTES): to get all events, request pages until one is empty.

>>> wanted = event_filter({"class": "network_error", "since": "2h"}, now_us=7_200_000_001)
>>> wanted.failure_class, wanted.since_us, wanted.limit
('network_error', 1, 100)

Source: docs/reference/audit-events.md. Not here: writing (log.py), checking (verify.py).
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, assert_never

import msgspec
from msgspec import UNSET, UnsetType

from aileron.api.approvals import ApprovalEntry, Edit, Question, Round
from aileron.api.audit import AUDIT_FILTERS, RecordOfRun
from aileron.api.failures import ErrorBody
from aileron.api.runs import RunState
from aileron.audit.events import EVENT_TYPES
from aileron.audit.frozen import decision_of, subject_of
from aileron.audit.questions import candidates_of, plan_digest_of
from aileron.ledger import (
    ACTION_KIND,
    MAX_ROWS,
    ApprovalRow,
    ApprovalState,
    CandidateRow,
    EventFilter,
    EventRow,
    Ledger,
    RecordRow,
    RunRow,
    Snapshot,
)
from aileron.model.consent import ConsentKind
from aileron.model.decision import held_until
from aileron.model.failure import AileronError, FailureClass
from aileron.model.json_value import JSONObject, checked_int, dict_of, maybe_text
from aileron.model.near import did_you_mean
from aileron.model.outcome import Failed, Outcome, RunStatus, Succeeded
from aileron.model.timestamp import utc_of_us

__all__ = [
    "Rows",
    "approval",
    "approval_result",
    "event_filter",
    "events",
    "open_approvals",
    "outcome_of",
    "recent_approvals",
    "run_state",
    "run_with_events",
    "waiting_approval",
]

MAX_SHOWN: Final = 16_000
"""Maximum number of events of one run that are returned. Together they have at most 48 MiB.

A connector's output per step is limited, but a run can have many steps.
"""
MAX_SHOWN_BYTES: Final = 48 << 20
_MAX_PLAN_BYTES: Final = 64 << 10
"""64 KiB: maximum size of a plan or consent that is read for a row of a list. A list has up to 1,000 rows, and is read
again after every change.
"""
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION: Final = re.compile(r"(?a:(\d{1,6})([smhdw]))")
_ENDS: Final = ("approval.decided", "approval.expired", "approval.cancelled")
"""Types of the events after which a question no longer waits for a person."""
_OPEN: Final = (ApprovalState.PENDING, ApprovalState.APPROVED)
_TIMES: Final = ("expires_at_us", "until_us", "since_us")

Rows: TypeAlias = Callable[[Sequence[tuple[ApprovalEntry, bytes | None, bool]]], list[ApprovalEntry]]
"""A function that completes the entries of a list of questions. It takes each entry, its stored plan or subject (None if that is
too long), and whether a person edited the plan; it returns the entries with descriptions."""


async def events(ledger: Ledger, wanted: Mapping[str, str]) -> list[JSONObject]:
    """Return a page of the events that match a filter whose values are text (see `event_filter`), newest first by
    default.

    The form `facts` is for people and programs. The form `record` has the events as they are chained: `seq`, `record` (text),
    `previous` and `hash` (hex digits).
    """
    checked = event_filter(wanted, ledger.now_us())
    if _is_never(checked):
        return []
    if wanted.get("form") == "record":
        return [_chained(row) for row in await ledger.read(lambda snapshot: snapshot.records(checked))]
    return [_readable(row) for row in await ledger.read(lambda snapshot: snapshot.events(checked))]


async def run_with_events(ledger: Ledger, audit_id: str) -> RecordOfRun:
    """Return one run or refused request, its oldest event first.

    Raises AileronError(not_found) if nothing is recorded under the id.
    """
    run, (rows, is_cut) = await ledger.read(lambda snapshot: (snapshot.run(audit_id), _all_of(snapshot, audit_id)))
    if not rows:
        raise _not_found("record", audit_id)
    return RecordOfRun(
        audit_id=audit_id,
        events=[_readable(row) for row in rows],
        status=UNSET if run is None else run.status,
        truncated=is_cut or UNSET,
    )


async def run_state(ledger: Ledger, run_id: str, session: str | None) -> RunState:
    """Return the current state of a run, with its outcome if it has ended.

    With a `session`, raises AileronError(not_found) for other sessions' runs; None permits all runs.
    """

    def look(snapshot: Snapshot) -> RunState:
        run = snapshot.run(run_id)
        if run is None or session not in (None, run.session):
            raise _not_found("run", run_id)
        return _state(snapshot, run, None if run.approval is None else snapshot.approval(run.approval))

    return await ledger.read(look)


async def approval_result(ledger: Ledger, approval_id: str, session: str | None) -> RunState:
    """Return the result of a question to a person: the `run_state` of the run that waits for it, or the question's own
    status if no run waits.

    Raises AileronError(not_found) if there is no such question, or if a `session` is given that did not request the
    run.
    """

    def look(snapshot: Snapshot) -> RunState:
        row = snapshot.approval(approval_id)
        run = None if row is None or row.run is None else snapshot.run(row.run)
        if row is None or session not in (None, None if run is None else run.session):
            raise _not_found("approval", approval_id)
        if run is not None:
            return _state(snapshot, run, row)
        return RunState(
            status=snapshot.status_of(row),
            approval_id=row.id,
            kind=row.kind,
            name=_said(row.name),
            reason=_said(row.reason),
        )

    return await ledger.read(look)


async def open_approvals(ledger: Ledger, rows_of: Rows | None = None) -> list[ApprovalEntry]:
    """Return the questions that wait for a person, or whose decision was not used yet, the first to expire first."""

    def look(snapshot: Snapshot) -> list[ApprovalEntry]:
        return _listed(snapshot, snapshot.open_approvals(), rows_of)

    return await ledger.read(look)


async def waiting_approval(ledger: Ledger, approval_id: str, rows_of: Rows) -> ApprovalEntry | None:
    """Return one question while it waits for a person; None if the question was decided, withdrawn, has expired or does
    not exist.
    """

    def look(snapshot: Snapshot) -> ApprovalEntry | None:
        row = snapshot.approval(approval_id)
        if row is None or snapshot.status_of(row) is not RunStatus.PENDING_APPROVAL:
            return None
        return _listed(snapshot, [row], rows_of)[0]

    return await ledger.read(look)


async def recent_approvals(ledger: Ledger, limit: int, rows_of: Rows) -> list[ApprovalEntry]:
    """Return at most `limit` questions that were decided, withdrawn or expired last, the newest first."""

    def look(snapshot: Snapshot) -> list[ApprovalEntry]:
        events = [row for kind in _ENDS for row in snapshot.events(EventFilter(type=kind, limit=limit))]
        events.sort(key=lambda row: row.seq, reverse=True)
        ids = dict.fromkeys(str(row.facts.get("approval")) for row in events)
        rows = [row for name in ids if (row := snapshot.approval(name)) is not None and row.state not in _OPEN]
        return _listed(snapshot, rows[:limit], rows_of)

    return await ledger.read(look)


async def approval(ledger: Ledger, approval_id: str) -> Question:
    """Return one question to a person with exactly the subject that its digest covers, and `head`, the newest row of
    the ledger.

    The plan of a run is the decided plan, or else the requested plan; `asked_digest` is the digest of the requested
    plan if they differ. Raises AileronError(not_found), or (hash_mismatch) if a stored subject was altered.
    """
    midnight_us = _midnight_us(ledger.now_us())

    def look(snapshot: Snapshot) -> Question:
        row = snapshot.approval(approval_id)
        if row is None:
            raise _not_found("approval", approval_id)
        question = Question(**msgspec.structs.asdict(_entry(snapshot, row)), head=str(snapshot.head()))
        if question.agent:
            asked = snapshot.count_asked(str(question.session), midnight_us)
            question = msgspec.structs.replace(question, asked_today=asked)
        if row.kind == ACTION_KIND:
            return _about_run(snapshot, row, question)
        return msgspec.structs.replace(question, subject=_subject(snapshot, row, row.digest))

    return await ledger.read(look)


def _midnight_us(now_us: int) -> int:
    """Return the start of the current day in this machine's time zone, in microseconds since the epoch."""
    now = datetime.datetime.fromtimestamp(now_us / 1_000_000).astimezone()
    return int(now.replace(hour=0, minute=0, second=0, microsecond=0).timestamp() * 1_000_000)


def outcome_of(row: RunRow) -> Outcome | None:
    """Return the outcome of a run; None while the run is in progress."""
    return None if row.outcome is None else msgspec.json.decode(row.outcome, type=Outcome)


def event_filter(parameters: Mapping[str, str], now_us: int) -> EventFilter:
    """Return the filter for events that these text values, from a query string or from options, describe.

    Names: run, session, type, action, connector, class; since, until (RFC 3339, or how long before `now_us`: 90s, 15m, 2h,
    7d, 1w); after, before (row numbers); limit (1 to MAX_ROWS); order (newest, oldest); form (facts, record; not a condition,
    and read by `events`). Raises AileronError(invalid_request) for an unknown name or an invalid value.
    """
    for name in parameters:
        if name not in AUDIT_FILTERS:
            raise _invalid(f"unknown filter {name!r}{_nearest(name, AUDIT_FILTERS)}")
    kind = parameters.get("type")
    if kind is not None and kind not in EVENT_TYPES:
        raise _invalid(f"unknown event type {kind!r}{_nearest(kind, EVENT_TYPES)}")
    failure_class = parameters.get("class")
    if failure_class is not None and failure_class not in FailureClass.__members__.values():
        raise _invalid(f"unknown failure class {failure_class!r}{_nearest(failure_class, FailureClass)}")
    order = parameters.get("order", "newest")
    if order not in ("newest", "oldest"):
        raise _invalid(f"order {order[:100]!r} is neither newest nor oldest")
    form = parameters.get("form", "facts")
    if form not in ("facts", "record"):
        raise _invalid(f"form {form[:100]!r} is neither facts nor record")
    return EventFilter(
        run=parameters.get("run"),
        session=parameters.get("session"),
        type=kind,
        action=parameters.get("action"),
        connector=parameters.get("connector"),
        failure_class=failure_class,
        since_us=_moment(parameters, "since", now_us),
        until_us=_moment(parameters, "until", now_us),
        after=_number(parameters, "after", 0, 2**53),
        before=_number(parameters, "before", 0, 2**53),
        limit=_number(parameters, "limit", 1, MAX_ROWS) or EventFilter().limit,
        oldest_first=order == "oldest",
    )


def _said(text: str | None) -> str | UnsetType:
    """Return `text`, or UNSET for None, which leaves the field out of a response."""
    return UNSET if text is None else text


def _state(snapshot: Snapshot, run: RunRow, approval: ApprovalRow | None) -> RunState:
    state = RunState(status=run.status, audit_id=run.id, action=run.action)
    if approval is not None:
        state = msgspec.structs.replace(state, approval_id=approval.id, reason=_said(approval.reason))
        state = _with_said(snapshot, approval, state)
    match outcome_of(run):
        case Succeeded(result=result):
            return msgspec.structs.replace(state, result=result)
        case Failed(failure=failure):
            return msgspec.structs.replace(state, error=ErrorBody.of(failure, run.id))
        case None:
            return state
        case impossible:
            assert_never(impossible)


def _with_said(snapshot: Snapshot, approval: ApprovalRow, state: RunState) -> RunState:
    """Return `state` with what the person contributed: their question to the agent, the arguments that they changed, and the time
    until which the approved run is held.
    """
    if approval.state is ApprovalState.PENDING:
        rounds = snapshot.conversation(approval.id)
        is_asked = rounds and rounds[-1].answer is None
        return msgspec.structs.replace(state, question=rounds[-1].question) if is_asked else state
    decided = decision_of(approval)
    if decided is None or decided.decision != "approve" or approval.kind != ACTION_KIND:
        return state
    digest = plan_digest_of(snapshot, approval)
    is_edited, is_held = digest != approval.asked_digest, approval.state is ApprovalState.APPROVED
    if is_edited or is_held:
        plan = _subject(snapshot, approval, digest)
        if is_edited:
            state = msgspec.structs.replace(state, executed_arguments=plan.get("args"))
        window_s = dict_of(plan.get("approval")).get("undo_window_s", 0)
        if is_held and isinstance(window_s, int | float) and window_s:
            decided_at = (approval.decided_us or 0) / 1_000_000
            until = utc_of_us(int(held_until(decided_at, approval.signed_at, window_s) * 1_000_000))
            state = msgspec.structs.replace(state, held_until=until)
    return state


def _about_run(snapshot: Snapshot, row: ApprovalRow, question: Question) -> Question:
    digest = plan_digest_of(snapshot, row)
    plan = _subject(snapshot, row, digest)
    edits = _edits_of(snapshot, row)
    return msgspec.structs.replace(
        question,
        plan=plan,
        has_preview=plan.get("preview") is not None,
        edits=[
            Edit(digest=edit.digest, plan=_subject(snapshot, row, edit.digest), made_at=utc_of_us(edit.made_us))
            for edit in edits
        ],
        conversation=[
            Round(question=exchange.question, answer=_said(exchange.answer))
            for exchange in snapshot.conversation(row.id)
        ],
        asked_digest=UNSET if digest == row.asked_digest else _said(row.asked_digest),
    )


def _subject(snapshot: Snapshot, row: ApprovalRow, digest: str) -> JSONObject:
    """Return the plan or subject with this digest as JSON values, exactly as it was shown, even if the format of plans
    has changed since.
    """
    return subject_of(snapshot.plan_of(row, digest) or b"", digest, row.id)


def _listed(snapshot: Snapshot, rows: list[ApprovalRow], rows_of: Rows | None) -> list[ApprovalEntry]:
    """Return the entries of a list of questions to a person, completed by `rows_of` if it is given."""
    entries = [_entry(snapshot, row) for row in rows]
    if rows_of is None:
        return entries
    told = [
        msgspec.structs.replace(entry, asked_back=_asked_back(snapshot, row))
        for entry, row in zip(entries, rows, strict=True)
    ]
    return rows_of(
        [
            (entry, snapshot.subject(row.id, _MAX_PLAN_BYTES), bool(_edits_of(snapshot, row)))
            for entry, row in zip(told, rows, strict=True)
        ]
    )


def _edits_of(snapshot: Snapshot, row: ApprovalRow) -> list[CandidateRow]:
    return [candidate for candidate in candidates_of(snapshot, row)[1:] if candidate.preview is None]


def _asked_back(snapshot: Snapshot, row: ApprovalRow) -> Literal["waiting", "answered"] | UnsetType:
    rounds = snapshot.conversation(row.id) if row.kind == ACTION_KIND else ()
    if not rounds:
        return UNSET
    return "waiting" if rounds[-1].answer is None else "answered"


class _OfSession(msgspec.Struct):
    """The part of a stored consent that names its session."""

    session: str | None = None


def _host_session(snapshot: Snapshot, row: ApprovalRow) -> str | None:
    """Return the session whose agent requests a host; None for other questions. No other kind of consent is requested by an
    agent.
    """
    stored = snapshot.subject(row.id, _MAX_PLAN_BYTES) if row.kind == ConsentKind.HOST else None
    try:
        return None if stored is None else msgspec.json.decode(stored, type=_OfSession).session
    except msgspec.DecodeError:
        return None


def _entry(snapshot: Snapshot, row: ApprovalRow) -> ApprovalEntry:
    run = None if row.run is None else snapshot.run(row.run)
    session = _host_session(snapshot, row) if run is None else run.session
    agent, folder = _asker(snapshot, session)
    return ApprovalEntry(
        approval_id=row.id,
        kind=row.kind,
        name=_said(row.name),
        status=snapshot.status_of(row),
        digest=row.digest,
        created_at=utc_of_us(row.created_us),
        expires_at=utc_of_us(row.expires_us),
        decided_at=UNSET if row.decided_us is None else utc_of_us(row.decided_us),
        reason=_said(row.reason),
        surface=_said(row.surface),
        key_id=_said(row.key_id),
        signed_at=_said(row.signed_at),
        signature=_said(row.signature),
        preview=_said(row.preview),
        audit_id=_said(row.run),
        action=UNSET if run is None else run.action,
        session=_said(session),
        agent=_said(agent),
        folder=_said(folder),
    )


def _asker(snapshot: Snapshot, session: str | None) -> tuple[str | None, str | None]:
    """Return a session's agent and its folder; None for both if the session is `local`, which belongs to no agent."""
    rows = [] if session is None else snapshot.events(EventFilter(type="session.started", session=session, limit=1))
    return (maybe_text(rows[0].facts.get("agent")), maybe_text(rows[0].facts.get("folder"))) if rows else (None, None)


def _all_of(snapshot: Snapshot, run_id: str) -> tuple[list[EventRow], bool]:
    """Return the events of one run, and whether it has more events than MAX_SHOWN."""
    rows: list[EventRow] = []
    size = 0
    while len(rows) < MAX_SHOWN and size < MAX_SHOWN_BYTES:
        after = rows[-1].seq if rows else 0
        page = snapshot.records(EventFilter(run=run_id, after=after, oldest_first=True, limit=MAX_ROWS))
        if not page:
            return rows, False
        rows += [EventRow(row.seq, msgspec.json.decode(row.record), row.hash) for row in page]
        size += sum(len(row.record) for row in page)
    return rows, True


def _readable(row: EventRow) -> JSONObject:
    """Return an event's record as people and programs get it: number, time and type first, then its facts, then the
    hash.
    """
    facts = dict(row.facts)
    at = utc_of_us(checked_int(facts.pop("at_us")))
    shown: JSONObject = {"seq": row.seq, "at": at, "type": facts.pop("type")}
    facts.pop("seq")
    for name in _TIMES:
        if name in facts:
            facts[name.removesuffix("_us")] = utc_of_us(checked_int(facts.pop(name)))
    return {**shown, **facts, "hash": row.hash.hex()}


def _chained(row: RecordRow) -> JSONObject:
    return {"seq": row.seq, "record": row.record, "previous": row.previous.hex(), "hash": row.hash.hex()}


def _is_never(wanted: EventFilter) -> bool:
    """Return whether no event can match the filter, because events of the wanted type do not have a fact that the filter
    names. Then no rows need to be read.
    """
    if wanted.type is None:
        return False
    facts = {field.encode_name for field in msgspec.structs.fields(EVENT_TYPES[wanted.type])}
    asked = {"session": wanted.session, "action": wanted.action, "connector": wanted.connector}
    asked |= {"run": wanted.run, "class": wanted.failure_class}
    return any(value is not None and name not in facts for name, value in asked.items())


def _moment(parameters: Mapping[str, str], name: str, now_us: int) -> int | None:
    text = parameters.get(name)
    if text is None:
        return None
    if match := _DURATION.fullmatch(text):
        return now_us - int(match[1]) * _UNITS_S[match[2]] * 1_000_000
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise _invalid(
            f"{name} {text!r} is neither a duration (90s, 15m, 2h, 7d, 1w) nor a time with a zone (RFC 3339)"
        )
    since_epoch = moment - datetime.datetime.fromtimestamp(0, datetime.UTC)
    return since_epoch // datetime.timedelta(microseconds=1)


def _number(parameters: Mapping[str, str], name: str, least: int, most: int) -> int | None:
    text = parameters.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 16 and least <= int(text) <= most):
        raise _invalid(f"{name} {text!r} is not a number from {least} to {most}")
    return int(text)


def _nearest(word: str, known: Any) -> str:
    names = [str(name) for name in known]
    return "; " + did_you_mean(word, names, f"known are {', '.join(sorted(names))}")


def _invalid(message: str) -> AileronError:
    return AileronError(FailureClass.INVALID_REQUEST, message)


def _not_found(kind: str, name: str) -> AileronError:
    return AileronError(FailureClass.NOT_FOUND, f"no {kind} {name[:200]!r}: see `aileron audit list`")
