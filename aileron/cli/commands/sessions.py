"""`aileron sessions`: agents at work, and tokens for those that are elsewhere."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from aileron.cli import output
from aileron.cli.commands.completion import session_ids
from aileron.cli.commands.launch import folder
from aileron.cli.commands.options import AsJson
from aileron.cli.problem import Problem
from aileron.cli.run import seconds
from aileron.cli.supervisor import Supervisor, path_of
from aileron.model.visible import visible

__all__ = ["end", "list_", "new", "show"]

_LONGEST = "7d"
_LEAST_PART = 4


def list_(as_json: AsJson = False) -> None:
    """List the sessions there were, the newest first."""
    sessions = Supervisor().ask("GET", "/v1/sessions")["sessions"]
    if as_json:
        output.print_json({"sessions": sessions})
        return
    output.print_table(
        ("ID", "AGENT", "STATUS", "STARTED", "RUNS", "FOLDER"),
        [
            (
                entry.get("id"),
                entry.get("agent"),
                _status(entry),
                output.day_or_time(entry.get("started_at")),
                entry.get("runs"),
                entry.get("folder"),
            )
            for entry in sessions
        ],
        empty="no session yet: aileron launch AGENT begins one",
    )


def show(
    session: Annotated[
        str, typer.Argument(metavar="ID", help="The session, or the end of its id.", autocompletion=session_ids)
    ],
    as_json: AsJson = False,
) -> None:
    """Show one session."""
    supervisor = Supervisor()
    entry = supervisor.ask("GET", path_of("v1", "sessions", _meant(supervisor, session)))
    if as_json:
        output.print_json(entry)
        return
    _print(entry)


def new(
    duration: Annotated[
        str, typer.Option("--for", metavar="DURATION", help=f"How long: 30m, 12h, 3d; up to {_LONGEST}.")
    ],
    agent: Annotated[
        str, typer.Option("--agent", metavar="NAME", help="What it is for, in lists and records.")
    ] = "other",
    as_json: AsJson = False,
) -> None:
    """Begin a session by hand and print its token, this once.

    For an agent that `aileron launch` does not start: in a container, for instance.
    """
    for_s = int(seconds(duration, option="--for", most=_LONGEST, help_of="sessions new"))
    supervisor = Supervisor()
    made = supervisor.ask("POST", "/v1/sessions", {"agent": agent, "folder": folder(), "for_s": for_s})
    if as_json:
        output.print_json(made)
        return
    output.write(str(made["token"]))
    output.note(f"session {visible(str(made['id']))}, until {output.local_time(made.get('expires_at'), 'stderr')}")
    output.note("the token is not shown again: give it to the agent as AILERON_SESSION_TOKEN")
    if url := _url(supervisor):
        output.note(
            f"elsewhere than here also AILERON_URL={visible(url)}, and AILERON_CA_FILE if its certificate is your own"
        )
    else:
        output.note("elsewhere than here it also needs AILERON_URL: set daemon.listen first")
    output.note(f"end it: aileron sessions end {visible(str(made['id']))}")


def end(
    session: Annotated[
        str, typer.Argument(metavar="ID", help="The session, or the end of its id.", autocompletion=session_ids)
    ],
    as_json: AsJson = False,
) -> None:
    """End a session: from now on its token opens nothing."""
    supervisor = Supervisor()
    name = _meant(supervisor, session)
    entry = supervisor.ask("POST", path_of("v1", "sessions", name, "end"), {"exit_code": None})
    if as_json:
        output.print_json(entry)
        return
    output.note(f"ended {visible(name)}: what it asked for goes on")


def _url(supervisor: Supervisor) -> str | None:
    """Where agents elsewhere find the daemon, if they do."""
    listen = supervisor.ask("GET", "/v1/status").get("listen")
    return None if not listen else str(listen)


def _status(entry: dict[str, Any]) -> str:
    """`ended, 0` where the agent's exit code is known."""
    code = entry.get("exit_code")
    return str(entry.get("status")) + ("" if code is None else f", {code}")


def _print(entry: dict[str, Any]) -> None:
    output.print_facts(
        [
            ("id", entry.get("id")),
            ("agent", entry.get("agent")),
            ("folder", entry.get("folder")),
            ("status", entry.get("status")),
            ("started", output.local_time(entry.get("started_at"))),
            ("until", output.time_left(entry.get("expires_at")) if entry.get("status") == "open" else None),
            ("ended", output.local_time(entry["ended_at"]) if entry.get("ended_at") else None),
            ("because", entry.get("reason")),
            ("exit code", entry.get("exit_code")),
            ("runs", entry.get("runs")),
        ]
    )


def _meant(supervisor: Supervisor, wanted: str) -> str:
    """The one session whose id this is, or ends with this; one that is too old to be listed is meant as it is."""
    names = [str(entry.get("id")) for entry in supervisor.ask("GET", "/v1/sessions")["sessions"]]
    meant = [name for name in names if len(wanted) >= _LEAST_PART and name.endswith(wanted)]
    if wanted in names or not meant:
        return wanted
    if len(meant) > 1:
        raise Problem.usage(f"{wanted!r} could be {' or '.join(meant)}", fix="aileron sessions list")
    return meant[0]
