"""`aileron audit`: what happened.

`verify` reads the ledger's file itself and asks no daemon: who checks a record should not have to trust what wrote it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from aileron.cli import output
from aileron.cli.commands.options import AsJson
from aileron.cli.problem import INTEGRITY, Problem, local_work
from aileron.cli.supervisor import Supervisor, path_of
from aileron.cli.visible import visible

__all__ = ["list_", "show", "verify"]

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
    "connector.audit": ("event", "fields"),
    "approval.requested": ("approval",),
    "approval.decided": ("decision", "reason", "approval"),
}
"""What a line of the list tells of each type; of the others, everything. `audit show` has the rest."""
_NAMED = frozenset({"bytes_down", "scrubbed"})
"""Facts that mean nothing without their name."""


def list_(
    run: Annotated[str | None, typer.Option(metavar="ID", help="Of one run.")] = None,
    action: Annotated[str | None, typer.Option(metavar="NAME", help="Of one action.")] = None,
    connector: Annotated[str | None, typer.Option(metavar="NAME", help="Of one connector.")] = None,
    kind: Annotated[str | None, typer.Option("--type", metavar="TYPE", help="Of one type: run.finished, …")] = None,
    failure: Annotated[
        str | None, typer.Option("--class", metavar="CLASS", help="Failures of one class: network_error, …")
    ] = None,
    session: Annotated[str | None, typer.Option(metavar="ID", help="Of one agent session.")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Not before: 15m, 2h, 7d, or RFC 3339.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Not after.")] = None,
    after: Annotated[int | None, typer.Option(metavar="SEQ", help="Only later rows than this.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", help="At most so many.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List events, the newest first."""
    asked = {
        "run": run,
        "action": action,
        "connector": connector,
        "type": kind,
        "class": failure,
        "session": session,
        "since": since,
        "until": until,
        "after": after,
        "limit": limit,
    }
    query = urlencode({name: value for name, value in asked.items() if value is not None})
    events = Supervisor().ask("GET", f"/v1/audit?{query}")["events"]
    if as_json:
        output.print_json({"events": events})
        return
    if output.is_terminal():
        _print_by_run(events)
    else:
        rows = [(event["seq"], event["at"], event["type"], event.get("run"), _facts(event)) for event in events]
        output.print_table((), rows, empty="")


def show(
    run: Annotated[str, typer.Argument(metavar="ID", help="A run's audit id.")],
    as_json: AsJson = False,
) -> None:
    """Show one run: how it ended, and every event of it."""
    supervisor = Supervisor()
    record = supervisor.ask("GET", path_of("v1", "audit", run))
    outcome = _outcome(supervisor, run) if record.get("status") else {}
    if as_json:
        output.print_json({**record, **outcome})
        return
    output.print_facts([("run", record.get("audit_id", run)), ("status", record.get("status") or "refused")])
    for event in record["events"]:
        output.write("")
        output.write(_title(event))
        output.print_facts([(f"  {name}", _fact(value)) for name, value in event.items() if name not in _COLUMNS])
    if record.get("truncated"):
        output.note("there are more events than are shown: aileron audit list --run ID --after SEQ")
    if "result" in outcome:
        output.write("")
        output.print_facts([("result", None if outcome["result"] is None else "")])
        output.print_result(outcome["result"])


def verify(
    file: Annotated[Path | None, typer.Option(metavar="LEDGER", help="A copy, in place of the home's.")] = None,
    head: Annotated[
        str | None, typer.Option(metavar="SEQ:HASH", help="A head that was kept elsewhere: it must be in the chain.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check the whole chain, without the daemon.

    Says what that does not prove; exit code 9 if the chain does not hold.
    """
    from aileron.audit.verify import verify as verified
    from aileron.config import Home

    home = Home.from_environment()
    path = file or home.ledger
    if not os.path.isfile(path):  # and not Path.is_file, which raises where a directory above may not be searched
        raise Problem.missing(f"{path}: there is no ledger")
    known_head = _head(head)
    with local_work():
        report = verified(path, known_head=known_head, expected_home=home.path if file is None else None)
    if as_json:
        found = report.to_json()
        problem = found.pop("finding")
        output.print_json({"ok": found.pop("whole"), **found, "problem": problem})
    else:
        output.print_facts([("ledger", str(path)), ("rows", report.rows), ("head", report.head)])
    finding = report.finding
    if finding is not None:
        raise Problem(
            f"the chain does not hold: {finding.message}",
            exit_code=INTEGRITY,
            name="hash_mismatch",
            why=f"{report.rows} rows before it are good",
        )
    if not as_json:
        output.note("every row is as it was written. This does not prove:")
        for words in report.cannot_prove:
            first, *rest = output.folded(visible(words), 4)
            output.note("\n".join([f"  - {first}", *(f"    {line}" for line in rest)]))


def _head(text: str | None) -> Any:
    if text is None:
        return None
    from aileron.audit.verify import Head

    try:
        return Head.parse(text)
    except ValueError as error:
        raise Problem.usage(f"--head {error}") from None


def _outcome(supervisor: Supervisor, run: str) -> dict[str, Any]:
    state = supervisor.ask("GET", path_of("v1", "runs", run))
    return {name: state[name] for name in ("result", "error") if name in state}


def _fact(value: Any) -> Any:
    """Words of a list on one line, names of an object on one each."""
    if isinstance(value, dict):
        return [f"{name} {output.as_text(_fact(entry))}" for name, entry in value.items()] or "none"
    if isinstance(value, list):
        if all(isinstance(entry, str) for entry in value):
            return ", ".join(value) or "none"
        if all(isinstance(entry, dict) for entry in value):
            return [line for entry in value for line in _fact(entry)]
    return value


def _title(event: dict[str, Any]) -> str:
    seq, kind = output.as_text(event["seq"]), output.as_text(event["type"])
    if not output.is_terminal():
        return f"{seq}\t{output.as_text(event['at'])}\t{kind}"
    when = f"{output.local_time(event['at'])}  row {seq}"
    return f"{output.styled(kind, 'bold')}  {output.styled(when, 'dim')}"


def _facts(event: dict[str, Any]) -> str:
    return " ".join(f"{name}={output.as_text(value)}" for name, value in event.items() if name not in _COLUMNS)


def _print_by_run(events: list[dict[str, Any]]) -> None:
    """For a person: the events of one run under its id, one line each."""
    if not events:
        output.note("nothing is on record that matches")
    day, run = "", None
    for event in events:
        date, _, time = output.local_time(event["at"]).partition(" ")
        if (date, event.get("run")) != (day, run):
            day, run = date, event.get("run")
            name = output.as_text(event["action"]) if run and "action" in event else ""
            output.write(
                output.styled(output.fitted(f"{day}  {output.as_text(run) if run else ''}  {name}".rstrip()), "dim")
            )
        line = f"{output.as_text(event['seq']):>6}  {time}  {output.as_text(event['type']):<18} {_told(event)}"
        output.write(output.fitted(line))


def _told(event: dict[str, Any]) -> str:
    names = _TOLD.get(str(event["type"])) or [name for name in event if name not in _COLUMNS]
    told = [(name, output.as_text(event[name])) for name in names if name in event]
    return "  ".join(f"{name} {text}" if name in _NAMED else text for name, text in told)
