"""`aileron sync`: installs the connectors that action files are pinned to; with --bind-all, also binds the connectors'
credentials.
"""

from __future__ import annotations

from typing import Annotated

from aileron.api.actions import ActionList
from aileron.api.connectors import ConnectorList
from aileron.api.fetches import FetchRequest
from aileron.cli import output
from aileron.cli.bind import BindOptions, bind, bind_request_of
from aileron.cli.commands.options import AsJson, PassphraseFile, Yes
from aileron.cli.declared import Exit, Option
from aileron.cli.problem import OK, Problem, report
from aileron.cli.prompts import passphrase_from
from aileron.cli.published import bound_connectors, exit_of, fetched, given_up, installed
from aileron.cli.supervisor import Supervisor
from aileron.model.visible import visible

__all__ = ["sync"]

_MISSING = 3
_UNBOUND = 4


def sync(
    bind_all: Annotated[
        bool, Option("--bind-all", help="Also bind the credentials that are missing. Needs a terminal.")
    ] = False,
    yes: Yes = False,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Install the connectors that your actions are pinned to.

    Use it for a home that came with its action files alone. Action files and versions do not change.
    """
    supervisor = Supervisor(passphrase=passphrase_from(passphrase_file))
    job = fetched(supervisor, FetchRequest(what="sync"))
    problems = job.problems or []
    codes = [OK]
    if job.consent is not None:
        codes.append(installed(supervisor, job, again="aileron sync", yes=yes, as_json=as_json))
    else:
        given_up(supervisor, job)
    for problem in problems:
        output.note(f"not installed: {visible(problem.name)}: {visible(problem.problem)}")
        codes.append(_MISSING)
    unbound = _unbound(supervisor)
    for connector in unbound:
        codes.append(_bound(supervisor, connector, yes=yes) if bind_all else OK)
        if not bind_all:
            output.note(f"{visible(connector)} has no credential\n  next: aileron binding setup {visible(connector)}")
    if as_json and job.consent is None:
        output.print_json({"connectors": [], "problems": problems, "unbound": unbound})
    elif codes == [OK] and not unbound:
        output.note(
            f"all {job.needed} connectors are installed" if job.needed else "no action is pinned to a connector"
        )
    raise Exit(exit_of(codes))


def _unbound(supervisor: Supervisor) -> list[str]:
    """Return all connectors that an action uses, that need a credential, and that have none bound."""
    actions = supervisor.fetch(ActionList, "GET", "/v1/actions").actions
    used = {reference.rpartition("@")[0] for action in actions for reference in action.connectors or []}
    connectors = supervisor.fetch(ConnectorList, "GET", "/v1/connectors").connectors
    needy = {
        connector.name for connector in connectors if connector.name and connector.credential and connector.name in used
    }
    return sorted(needy - bound_connectors(supervisor))


def _bound(supervisor: Supervisor, connector: str, *, yes: bool) -> int:
    """Bind a connector's credential at this terminal, and return the exit code. A failure is reported, not raised, so
    that the other connectors are bound too.
    """
    output.note(f"\n{visible(connector)}")
    try:
        return bind(supervisor, bind_request_of(supervisor, connector), BindOptions(yes=yes))
    except Problem as problem:
        return report(problem, as_json=False) or _UNBOUND
