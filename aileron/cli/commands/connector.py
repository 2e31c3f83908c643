"""`aileron connector`: the programs that each know one service.

`build` runs here, on the author's files, without a daemon; the other commands send requests to the daemon.
"""

from __future__ import annotations

from typing import Annotated

from aileron.api.connectors import (
    ConnectorEntry,
    ConnectorList,
    RemoveUnused,
)
from aileron.api.daemon import Removed
from aileron.cli import output
from aileron.cli.commands.completion import connector_names
from aileron.cli.commands.options import AsJson
from aileron.cli.declared import Argument, Option
from aileron.cli.problem import Problem
from aileron.cli.prompts import can_ask, is_yes
from aileron.cli.supervisor import Supervisor, path_of
from aileron.model.visible import visible

__all__ = ["called", "list_", "remove", "show"]

_LEAST_DIGITS = 6
"""Minimum number of digits of a hash on the command line; fewer are a typing mistake."""

Which = Annotated[
    str,
    Argument(
        metavar="CONNECTOR",
        help="Full name, name@version, or hash (the first digits are enough).",
        autocompletion=connector_names,
    ),
]


def list_(as_json: AsJson = False) -> None:
    """List installed connectors."""
    found = Supervisor().fetch(ConnectorList, "GET", "/v1/connectors")
    output.print_list(
        found,
        ("NAME", "VERSION", "HASH", "REACHES", "CREDENTIAL"),
        (
            (
                entry.name or "broken",
                entry.version or None,
                output.short_hash(entry.hash),
                ", ".join(entry.hosts or []) or entry.problem or "nothing",
                entry.credential.kind if entry.credential else "none",
            )
            for entry in found.connectors
        ),
        folds=("NAME", "REACHES"),
        as_json=as_json,
        empty="no connectors installed\n  fix: aileron connector install NAME@VERSION",
    )


def show(connector: Which, as_json: AsJson = False) -> None:
    """Show a connector: its hosts, credential and limits."""
    from aileron.cli.commands.done import print_connector

    entry = _only(Supervisor(), connector)
    if as_json:
        output.print_json(entry)
    else:
        print_connector(entry)


def remove(
    connector: Annotated[
        str | None,
        Argument(
            metavar="CONNECTOR",
            help="Full name, name@version, or hash (the first digits are enough).",
            autocompletion=connector_names,
        ),
    ] = None,
    unused: Annotated[bool, Option("--unused", help="Remove all connectors that nothing is pinned to.")] = False,
    yes: Annotated[bool, Option("--yes", "-y", help="With --unused, do not ask for confirmation.")] = False,
) -> None:
    """Remove a connector, or all unused connectors.

    Actions that are pinned to a removed connector stop working. A connector is in use if an action, a waiting approval or a run
    is pinned to it.
    """
    if (connector is None) == (not unused):
        raise Problem.usage("name a connector, or give --unused", fix="aileron connector remove --help")
    supervisor = Supervisor()
    if connector is None:
        _remove_unused(supervisor, yes=yes)
        return
    entry = _only(supervisor, connector)
    supervisor.fetch(Removed, "DELETE", path_of("v1", "connectors", entry.hash))
    output.note(f"removed {visible(called(entry))}")


def _remove_unused(supervisor: Supervisor, *, yes: bool) -> None:
    route = "/v1/connectors/remove-unused"
    would = supervisor.fetch(ConnectorList, "POST", route, RemoveUnused(dry_run=True)).connectors
    if not would:
        output.note("no unused connectors")
        return
    for entry in would:
        output.note(f"unused: {visible(called(entry))}  {output.short_hash(entry.hash)}")
    if not yes and not can_ask():
        raise Problem.usage("no terminal to confirm at", fix="aileron connector remove --unused --yes")
    if not yes and not is_yes("Remove? [y/N] "):
        raise Problem("nothing removed", exit_code=6, name="cancelled")
    for entry in supervisor.fetch(ConnectorList, "POST", route, RemoveUnused()).connectors:
        output.note(f"removed {visible(called(entry))}")


def _only(supervisor: Supervisor, wanted: str) -> ConnectorEntry:
    """Return the installed connector that `wanted` specifies. Raises Problem if none or several match."""
    installed = supervisor.fetch(ConnectorList, "GET", "/v1/connectors").connectors
    found = [entry for entry in installed if _is_meant(wanted, entry)]
    if len(found) == 1:
        return found[0]
    if not found:
        from aileron.cli.near import did_you_mean

        why, fix = did_you_mean(wanted, [str(entry.name) for entry in installed]) or (None, None)
        raise Problem.missing(f"connector {wanted!r} is not installed", why=why, fix=fix or "aileron connector list")
    raise Problem.usage(
        f"{wanted!r} matches {len(found)} connectors; give the hash",
        why=", ".join(f"{called(entry)} is {entry.hash}" for entry in found),
    )


def _is_meant(wanted: str, entry: ConnectorEntry) -> bool:
    digits = wanted.removeprefix("sha256:")
    if len(digits) >= _LEAST_DIGITS and entry.hash.startswith(f"sha256:{digits}"):
        return True
    return wanted in (entry.name, f"{entry.name}@{entry.version}")


def called(entry: ConnectorEntry) -> str:
    """Return a connector's name and version for people, or its hash if it has no name."""
    return f"{entry.name}@{entry.version}" if entry.name else entry.hash
