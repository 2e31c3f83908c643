"""`aileron audit`: the events of the audit trail.

Not here: `verify`, which needs no daemon (audit_verify.py).
"""

from __future__ import annotations

import datetime
import enum
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec
from msgspec.structs import replace

from aileron.api.audit import EventList, RecordOfRun
from aileron.api.runs import RunState
from aileron.cli import output
from aileron.cli.commands.completion import run_ids
from aileron.cli.commands.options import AsJson
from aileron.cli.declared import Argument, Option
from aileron.cli.ids import run_meant, session_meant
from aileron.cli.problem import FAILED, UNREACHABLE, Problem
from aileron.cli.supervisor import Supervisor, path_of
from aileron.model.json_value import JSON, JSONObject, checked_int
from aileron.model.visible import as_fact, visible_json

__all__ = ["export", "list_", "show", "tail"]

_PAGE = 1000
"""Maximum number of events in one response."""
_FOLLOW_S = 0.5
"""Seconds between two requests for new events, short enough for a person; a request takes a millisecond."""
_PATIENCE = 20
"""Number of consecutive failures after which `tail` ends: ten seconds of a busy daemon.

A failure to reach the daemon counts as ten, because the daemon may be stopping. Any other failure ends `tail` at
once.
"""
_FAILS = {"busy": 1, "internal_error": 1, "daemon_unreachable": _PATIENCE // 2}
_DURATION = re.compile(r"(?a:(\d{1,6})([smhdw]))")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_COLUMNS = frozenset({"seq", "at", "type", "run", "hash"})
_TOLD = {
    "run.requested": ("args",),
    "run.refused": ("action", "class", "message"),
    "run.started": ("connector", "op"),
    "run.retried": ("class", "message"),
    "run.finished": ("status", "class", "message"),
    "run.unknown": ("message",),
    "egress.sending": ("method", "host", "path", "credential"),
    "egress.finished": ("status", "class", "bytes_down", "scrubbed"),
    "egress.denied": ("reason", "method", "destination"),
    "egress.effects": ("digest",),
    "egress.envelope": ("sender", "recipients", "size"),
    "egress.submitted": ("code", "size"),
    "connector.audit": ("event", "fields"),
    "approval.requested": ("approval",),
    "approval.edited": ("args",),
    "approval.previewed": ("class", "digest"),
    "approval.asked": ("text",),
    "approval.answered": ("text",),
    "approval.decided": ("decision", "reason", "approval"),
    "approval.refused": ("decision", "reason", "approval", "count"),
    "approver.set": ("key_id", "replaces"),
    "consent.agreed": ("kind", "name"),
    "consent.ended": ("kind", "name", "reason"),
    "grant.used": ("grant", "use", "of"),
    "tool.suspended": ("how", "op", "connector", "version"),
    "tool.resumed": ("reason", "op", "connector", "version"),
    "caller.refused": ("scope", "route", "count"),
    "tunnel.opened": ("host", "port", "may_hide"),
    "tunnel.closed": ("host", "reason", "bytes_up", "bytes_down", "ms"),
    "tunnel.refused": ("reason", "destination", "count"),
}
"""Facts that a line of the list shows, by event type. Events of other types show all facts. `audit show` prints the rest."""
_NAMED = frozenset({"bytes_down", "bytes_up", "may_hide", "ms", "scrubbed", "size", "count", "use", "of", "replaces"})
"""Names of facts that are printed with their name, because the value alone has no meaning."""


_Run = Annotated[str | None, Option("--run", metavar="ID", help="Show only the run with this id or its end.")]
_Action = Annotated[str | None, Option("--action", metavar="NAME", help="Show only this action.")]
_Connector = Annotated[str | None, Option("--connector", metavar="NAME", help="Show only this connector.")]
_Type = Annotated[str | None, Option("--type", metavar="TYPE", help="Show only this event type, such as run.finished.")]
_Class = Annotated[
    str | None,
    Option("--class", metavar="CLASS", help="Show only failures of this class, such as network_error."),
]
_Session = Annotated[
    str | None, Option("--session", metavar="ID", help="Show only the session with this id or its end.")
]
_Since = Annotated[
    str | None, Option("--since", metavar="TIME", help="Show events since TIME: 15m, 2h, 7d, or RFC 3339.")
]
_Until = Annotated[str | None, Option("--until", metavar="TIME", help="Show events before TIME.")]


class _Query(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A query of the audit trail. Its fields have the names of the daemon's filters (api/audit.py, AUDIT_FILTERS)."""

    run: str | None = None
    action: str | None = None
    connector: str | None = None
    kind: str | None = msgspec.field(name="type", default=None)
    failure: str | None = msgspec.field(name="class", default=None)
    session: str | None = None
    since: str | None = None
    until: str | None = None
    form: str | None = None
    order: str | None = None
    limit: int | None = None
    before: int | None = None
    after: int | None = None

    @property
    def address(self) -> str:
        """Path and query string of the request to the daemon for this query."""
        return f"/v1/audit?{urlencode(msgspec.to_builtins(self))}"

    def held(self) -> _Query:
        """Return the query with relative times converted to fixed times, so that "two hours ago" is the same moment for all
        pages.
        """
        return replace(self, since=_moment(self.since), until=_moment(self.until))


class _Format(enum.StrEnum):
    JSONL = "jsonl"
    CSV = "csv"


def list_(
    run: _Run = None,
    action: _Action = None,
    connector: _Connector = None,
    kind: _Type = None,
    failure: _Class = None,
    session: _Session = None,
    since: _Since = None,
    until: _Until = None,
    after: Annotated[int | None, Option("--after", metavar="SEQ", help="Show only rows after this number.")] = None,
    limit: Annotated[int, Option("--limit", metavar="N", help="Number of events to show.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List events, newest first."""
    asked = _asked(run, action, connector, kind, failure, session, since, until)
    events = _page(Supervisor(), replace(asked, after=after, limit=limit))
    if as_json:
        output.print_json({"events": events})
        return
    if not events:
        output.print_table((), (), empty="no matching events")
    _Printer(as_json=False).show(events)


def tail(
    follow: Annotated[bool, Option("-f", "--follow", help="Keep printing new events until interrupted.")] = False,
    lines: Annotated[
        int, Option("-n", "--lines", metavar="N", min=0, max=_PAGE, help="Number of events to show.")
    ] = 10,
    run: _Run = None,
    action: _Action = None,
    connector: _Connector = None,
    kind: _Type = None,
    failure: _Class = None,
    session: _Session = None,
    since: _Since = None,
    until: _Until = None,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Print the newest events in chronological order.

    With --follow, exit code 69 means that the daemon has stopped.
    """
    asked = _asked(run, action, connector, kind, failure, session, since, until).held()
    supervisor, printer = Supervisor(), _Printer(as_json=as_json)
    shown = _page(supervisor, replace(asked, limit=max(lines, 1)))[:lines][::-1]
    last = checked_int(shown[-1]["seq"]) if shown else 0
    if not lines:
        last = _newest(supervisor)
    printer.show(shown)
    if follow:
        _follow(supervisor, asked, last, printer)
    elif lines and not shown and not as_json:
        output.print_table((), (), empty="no matching events")


def export(
    style: Annotated[
        _Format, Option("--format", help="Output format: jsonl (verifiable records) or csv (for a spreadsheet).")
    ] = _Format.JSONL,
    file: Annotated[
        Path | None, Option("-o", "--output", metavar="FILE", help="Write to FILE instead of standard output.")
    ] = None,
    run: _Run = None,
    action: _Action = None,
    connector: _Connector = None,
    kind: _Type = None,
    failure: _Class = None,
    session: _Session = None,
    since: _Since = None,
    until: _Until = None,
) -> None:
    """Export all matching events, oldest first.

    Events that are recorded during the export are left out. FILE appears only when it is complete.
    """
    from aileron.cli.export import new_file

    asked = _asked(run, action, connector, kind, failure, session, since, until).held()
    pages = _all_pages(Supervisor(), asked, "record" if style is _Format.JSONL else "facts")
    if file is None:
        for data, _ in _written(pages, style, is_shown=output.is_terminal()):
            output.write_bytes(data)
            if not output.is_read():
                return
        return
    count = 0
    try:
        with new_file(file) as target:
            for data, rows in _written(pages, style, is_shown=False):
                target.write(data)
                count += rows
    except OSError as error:
        raise Problem(
            f"cannot write {file}: {error.strerror}",
            exit_code=FAILED,
            name="internal_error",
            why="the partial file was removed",
        ) from None
    output.note(f"{count} events written to {file}")


def show(
    run: Annotated[str, Argument(metavar="ID", help="Audit id of the run, or the end of it.", autocompletion=run_ids)],
    as_json: AsJson = False,
) -> None:
    """Show a run: its result and all its events."""
    supervisor = Supervisor()
    run = run_meant(supervisor, run)
    record = supervisor.fetch(RecordOfRun, "GET", path_of("v1", "audit", run))
    outcome = _outcome(supervisor, run) if record.status else {}
    if as_json:
        output.print_json({**msgspec.to_builtins(record), **outcome})
        return
    output.print_facts([("run", record.audit_id), ("status", record.status or "refused")])
    for event in map(_Event, record.events):
        output.write("")
        output.write(event.title)
        output.print_facts([(f"  {name}", _fact(value)) for name, value in event.facts.items()])
    if record.truncated:
        output.note("only part of the events is shown; for the rest: aileron audit list --run ID --after SEQ")
    if "result" in outcome:
        output.write("")
        output.print_facts([("result", None if outcome["result"] is None else "")])
        output.print_result(outcome["result"])


def _outcome(supervisor: Supervisor, run: str) -> JSONObject:
    """Return the run's `result` or `error` under that name; empty if the run has neither."""
    state = msgspec.to_builtins(supervisor.fetch(RunState, "GET", path_of("v1", "runs", run)))
    return {name: state[name] for name in ("result", "error") if name in state}


def _fact(value: Any) -> Any:
    """Return a fact's value for printing: a list of texts on one line, an object with one line for each of its names."""
    if isinstance(value, dict):
        return [f"{name} {output.as_text(_fact(entry))}" for name, entry in value.items()] or "none"
    if isinstance(value, list):
        if all(isinstance(entry, str) for entry in value):
            return ", ".join(value) or "none"
        if all(isinstance(entry, dict) for entry in value):
            return [line for entry in value for line in _fact(entry)]
    return value


class _Event:
    """An audit event for printing. Its type determines which facts it has (docs/reference/audit-events.md)."""

    def __init__(self, said: JSONObject) -> None:
        self.seq, self.at, self.kind, self.run = said["seq"], said["at"], said["type"], said.get("run")
        self.facts = {name: value for name, value in said.items() if name not in _COLUMNS}

    @property
    def title(self) -> str:
        """The line above the event's facts."""
        seq, kind = output.as_text(self.seq), output.as_text(self.kind)
        if not output.is_terminal():
            return f"{seq}\t{output.as_text(self.at)}\t{kind}"
        when = f"{output.local_time(self.at)}  row {seq}"
        return f"{output.styled(kind, 'bold')}  {output.styled(when, 'dim')}"

    @property
    def told(self) -> str:
        """The event's most important facts for a person, in one line."""
        names = _TOLD.get(str(self.kind)) or self.facts
        told = [(name, output.as_text(self.facts[name])) for name in names if name in self.facts]
        return "  ".join(f"{name} {text}" if name in _NAMED else text for name, text in told)


class _Printer:
    """A printer of events, one line each, as they arrive.

    For a person, events are printed below the id of their run; in a pipe, every fact has its name.
    """

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._day = ""
        self._run: JSON = None

    def show(self, events: list[JSONObject]) -> None:
        """Print the next events. All lines have been written when this method returns."""
        for said in events:
            if self._as_json:
                output.write(json.dumps(said))
                continue
            event = _Event(said)
            if output.is_terminal():
                self._show_under_run(event)
            else:
                facts = " ".join(f"{name}={as_fact(value)}" for name, value in event.facts.items())
                output.print_table((), [(event.seq, event.at, event.kind, event.run, facts)], empty="")

    def _show_under_run(self, event: _Event) -> None:
        day, _, time = output.local_time(event.at).partition(" ")
        run = event.run
        if (day, run) != (self._day, self._run):
            self._day, self._run = day, run
            name = output.as_text(event.facts["action"]) if run and "action" in event.facts else ""
            title = f"{day}  {output.short_id(run) if run else ''}  {name}".rstrip()
            output.write(output.styled(output.fitted(title), "dim"))
        facts = output.WHOLE_ID.sub(lambda found: output.short_id(found[0]), event.told)
        told = f"{output.as_text(event.seq):>6}  {time}  {output.as_text(event.kind):<18} {facts}"
        output.write(output.fitted(told))


# Pages


def _asked(
    run: str | None,
    action: str | None,
    connector: str | None,
    kind: str | None,
    failure: str | None,
    session: str | None,
    since: str | None,
    until: str | None,
) -> _Query:
    """Return the query for the conditions that all commands share. Runs and sessions are given by an id or its end."""
    supervisor = Supervisor()
    return _Query(
        run=None if run is None else run_meant(supervisor, run),
        action=action,
        connector=connector,
        kind=kind,
        failure=failure,
        session=None if session is None else session_meant(supervisor, session),
        since=since,
        until=until,
    )


def _moment(text: str | None) -> str | None:
    """Convert a duration to the time that long ago. Any other text is returned unchanged, and the daemon parses it."""
    if text is None or (match := _DURATION.fullmatch(text)) is None:
        return text
    ago = datetime.timedelta(**{_UNITS[match[2]]: int(match[1])})
    try:
        return (datetime.datetime.now(datetime.UTC) - ago).isoformat()
    except OverflowError:  # before the year 1: before everything
        return "0001-01-01T00:00:00Z"


def _page(supervisor: Supervisor, asked: _Query) -> list[JSONObject]:
    return supervisor.fetch(EventList, "GET", asked.address).events


def _newest(supervisor: Supervisor) -> int:
    (newest,) = _page(supervisor, _Query(limit=1))  # a ledger always has its first row
    return checked_int(newest["seq"])


def _all_pages(supervisor: Supervisor, asked: _Query, form: str) -> Iterator[list[JSONObject]]:
    """Yield all pages of a query's events, up to the row that is the newest now. Row numbers never change, so pages
    neither overlap nor leave gaps.
    """
    whole = replace(asked, form=form, order="oldest", limit=_PAGE, before=_newest(supervisor) + 1)
    last = 0
    while page := _page(supervisor, replace(whole, after=last)):
        yield page
        last = checked_int(page[-1]["seq"])


def _written(pages: Iterator[list[JSONObject]], style: _Format, *, is_shown: bool) -> Iterator[tuple[bytes, int]]:
    """Yield each page of events as CSV or JSON lines, in bytes, with its number of rows.

    For a terminal, control characters are spelled out in a way that keeps JSON valid.
    """
    from aileron.cli.export import line, table

    if style is _Format.CSV:
        yield table((), with_titles=True).encode(), 0
    for page in pages:
        text = table(page, with_titles=False) if style is _Format.CSV else "".join(f"{line(row)}\n" for row in page)
        yield (visible_json(text) if is_shown else text).encode(), len(page)


def _follow(supervisor: Supervisor, asked: _Query, last: int, printer: _Printer) -> None:
    """Print the events after row `last` as they are recorded, until the reader of the output disconnects or the daemon
    stops.

    Events are requested by row number, so that none is missed or repeated.
    """
    failed = 0
    while output.is_read(_FOLLOW_S):
        while True:
            try:
                new = replace(asked, order="oldest", limit=_PAGE, after=last).address
                answer = supervisor.maybe_fetch(EventList, new)
            except Problem as problem:
                failed += _FAILS.get(problem.name, _PATIENCE)
                if failed >= _PATIENCE:
                    raise
                break
            if answer is None:
                raise Problem(
                    "the daemon stopped",
                    exit_code=UNREACHABLE,
                    name="daemon_unreachable",
                    why=f"rows after {last} will be available when it runs again",
                    fix="aileron audit tail --follow",
                )
            failed = 0
            if not answer.events:
                break
            printer.show(answer.events)
            last = checked_int(answer.events[-1]["seq"])
