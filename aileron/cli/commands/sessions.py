"""`aileron sessions`: agents at work, and tokens for agents elsewhere."""

from __future__ import annotations

from typing import Annotated

from aileron.api.sessions import (
    CellConnections,
    EndSession,
    HostReached,
    NewSession,
    OpenSession,
    Session,
    SessionDetails,
    SessionList,
)
from aileron.cli import output
from aileron.cli.commands.completion import session_ids
from aileron.cli.commands.options import AsJson, Inject, Only
from aileron.cli.declared import Argument, Option
from aileron.cli.ids import session_meant
from aileron.cli.supervisor import Supervisor, path_of
from aileron.model.visible import visible

__all__ = ["end", "list_", "new", "show"]

_LONGEST = "7d"
_LISTED_HOSTS = 2
"""Maximum number of a cell's hosts in the list, because the folder is on the same line."""


def list_(as_json: AsJson = False) -> None:
    """List sessions, newest first."""
    found = Supervisor().fetch(SessionList, "GET", "/v1/sessions")
    output.print_list(
        found,
        ("ID", "AGENT", "STATUS", "STARTED", "RUNS", "FOLDER"),
        (
            (
                output.short_id(session.id),
                session.agent,
                _status(session),
                output.day_or_time(session.started_at),
                session.runs,
                *_place(session),
            )
            for session in found.sessions
        ),
        as_json=as_json,
        empty="no sessions yet; to start one: aileron launch AGENT",
    )


def show(
    session: Annotated[
        str, Argument(metavar="ID", help="Id of the session, or the end of it.", autocompletion=session_ids)
    ],
    as_json: AsJson = False,
) -> None:
    """Show a session; for a cell also the hosts it reached."""
    supervisor = Supervisor()
    entry = supervisor.fetch(SessionDetails, "GET", path_of("v1", "sessions", session_meant(supervisor, session)))
    output.print_object(entry, _facts(entry), as_json=as_json)


def new(
    duration: Annotated[
        str,
        Option("--for", metavar="DURATION", help=f"How long the session lasts: 30m, 12h, 3d; at most {_LONGEST}."),
    ],
    agent: Annotated[str, Option("--agent", metavar="NAME", help="Agent name to show in lists and records.")] = "other",
    only: Only = None,
    inject: Inject = False,
    as_json: AsJson = False,
) -> None:
    """Start a session manually and print its token.

    Use it for an agent that `aileron launch` cannot start, such as one in a container. The token is shown only once.
    """
    from aileron.api.daemon import Status
    from aileron.cli.commands.launch import folder, selectors
    from aileron.cli.duration import seconds

    for_s = int(seconds(duration, option="--for", most=_LONGEST, command="sessions new"))
    selected = selectors(only, help_of="sessions new")
    supervisor = Supervisor()
    asked = OpenSession(agent=agent, folder=folder(), for_s=for_s, only=selected, inject=inject)
    made = supervisor.fetch(NewSession, "POST", "/v1/sessions", asked)
    if as_json:
        output.print_json(made)
        return
    output.write(made.token)
    output.note(
        f"session {visible(output.short_id(made.id, 'stderr'))}, until {output.local_time(made.expires_at, 'stderr')}"
    )
    if made.inject_path is not None:
        web = supervisor.fetch(Status, "GET", "/v1/status").web
        output.note(
            f"base URL of the model's API, not shown again: {visible(web + made.inject_path)} (OpenAI: with /v1)"
        )
    output.note("the token is not shown again: pass it to the agent as AILERON_SESSION_TOKEN")
    if url := _url(supervisor):
        output.note(
            f"on another machine, also set AILERON_URL={visible(url)}, and AILERON_CA_FILE if you use your own "
            "certificate"
        )
    else:
        output.note("on another machine, also set AILERON_URL, which needs daemon.listen in your settings")
    output.note(f"to end it: aileron sessions end {visible(made.id)}")


def end(
    session: Annotated[
        str, Argument(metavar="ID", help="Id of the session, or the end of it.", autocompletion=session_ids)
    ],
    as_json: AsJson = False,
) -> None:
    """End a session: its token stops working at once."""
    supervisor = Supervisor()
    name = session_meant(supervisor, session)
    entry = supervisor.fetch(Session, "POST", path_of("v1", "sessions", name, "end"), EndSession())
    words = f"ended {visible(output.short_id(name, 'stderr'))}; its runs and approvals continue"
    output.print_done(entry, words, as_json=as_json)


def _url(supervisor: Supervisor) -> str | None:
    """Return the URL of `daemon.listen`, at which agents elsewhere, such as in containers, reach the daemon; None if it
    is not set.
    """
    from aileron.api.daemon import Status

    return supervisor.fetch(Status, "GET", "/v1/status").listen or None


def _status(entry: Session) -> str:
    """Return the status, with the agent's exit code if it is known: `ended, 0`."""
    return entry.status + ("" if entry.exit_code is None else f", {entry.exit_code}")


def _agent(entry: Session) -> str:
    """Return the agent, and whether it is in a cell: `claude, in a cell`."""
    return entry.agent + ("" if entry.cell is None else ", in a cell")


def _place(entry: Session) -> tuple[str, ...]:
    """Return the folder of a session and, if the agent is in a cell, the hosts that the cell can reach, as fields of a row.

    A cell and its hosts stand before the folder; in a pipe they are a separate field after it.
    """
    if entry.cell is None:
        return (entry.folder,)
    hosts = entry.cell.hosts[:_LISTED_HOSTS]
    more = len(entry.cell.hosts) - len(hosts)
    cell = f"cell: {', '.join(hosts) or 'no hosts'}" + (f" and {more} more" if more else "")
    return (f"[{cell}] {entry.folder}",) if output.is_terminal() else (entry.folder, cell)


def _limit(entry: Session) -> str:
    """Return the limits of the session: its own selection of actions and, while it is open, that of its folder.

    Empty if there is no limit.
    """
    of_folder = entry.folder_only if entry.status == "open" else []
    return " and ".join(", ".join(selectors) for selectors in (entry.only, of_folder) if selectors)


def _cell(entry: Session) -> list[tuple[str, str | list[str]]]:
    """Return labeled facts about the hosts that a cell's agent can reach; empty for other sessions."""
    if entry.cell is None:
        return []
    return [("hosts", entry.cell.hosts or "none"), ("other hosts", "you are asked" if entry.cell.ask else "refused")]


def _connections(found: CellConnections | None) -> list[tuple[str, list[str]]]:
    """Return labeled facts about the hosts that a cell's agent reached, and those that it was refused, one host per
    line; empty for other sessions.
    """
    if found is None:
        return []
    reached = [_reached(destination) for destination in found.reached] + _more(found.reached_more)
    refused = [f"{destination.host}: {destination.count} ({destination.reason})" for destination in found.refused]
    partly = [] if found.is_whole else ["older connections are not counted; see `aileron audit list`"]
    return [
        ("reached", [*reached, *partly] or ["none"]),
        ("refused", [*refused, *_more(found.refused_more)] or ["none"]),
    ]


def _reached(destination: HostReached) -> str:
    """Return a host with its connections, such as `pypi.org:443: 3 connections, 12.0 KiB up, 3.4 MiB down`."""
    open_ = f", {destination.not_ended} without an end" if destination.not_ended else ""
    many = "1 connection" if destination.connections == 1 else f"{destination.connections} connections"
    return f"{destination.host}: {many}{open_}, {_size(destination.bytes_up)} up, {_size(destination.bytes_down)} down"


def _more(count: int) -> list[str]:
    return [f"… and {count} more"] if count else []


def _size(count: int) -> str:
    """Return a size in the largest unit in which its value is at least 1."""
    size, units = float(count), ["KiB", "MiB", "GiB", "TiB"]
    if count < 1024:
        return f"{count} B"
    unit = ""
    while size >= 1024 and units:
        size, unit = size / 1024, units.pop(0)
    return f"{size:.1f} {unit}"


def _facts(entry: SessionDetails) -> list[tuple[str, object]]:
    return [
        ("id", entry.id),
        ("agent", _agent(entry)),
        ("folder", entry.folder),
        ("status", entry.status),
        ("started", output.local_time(entry.started_at)),
        ("until", output.time_left(entry.expires_at) if entry.status == "open" else None),
        ("ended", output.local_time(entry.ended_at) if entry.ended_at else None),
        ("because", entry.reason),
        ("exit code", entry.exit_code),
        ("runs", entry.runs),
        ("only", _limit(entry) or None),
        *_cell(entry),
        *_connections(entry.connections),
    ]
