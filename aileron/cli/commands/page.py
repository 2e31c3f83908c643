"""`aileron open`: opens the list of open questions, or one question, in the person's browser."""

from __future__ import annotations

from typing import Annotated

from aileron.api.daemon import Status
from aileron.cli import output
from aileron.cli.commands.completion import approval_ids
from aileron.cli.decision_dialogue import find
from aileron.cli.declared import Argument, Option
from aileron.cli.prompts import can_ask
from aileron.cli.signin import browser, open_page
from aileron.cli.supervisor import Supervisor, path_of
from aileron.model.visible import visible

__all__ = ["approval", "approvals"]

Print = Annotated[bool, Option("--print", help="Print the address without opening a browser.")]


def approvals(only_print: Print = False) -> None:
    """Open all waiting approvals in your browser.

    Without a terminal or a browser, only the address is printed.
    """
    _show(f"{_web(Supervisor())}/approvals", only_print=only_print)


def approval(
    approval: Annotated[
        str, Argument(metavar="ID", help="Id of the approval, or the end of it.", autocompletion=approval_ids)
    ],
    only_print: Print = False,
) -> None:
    """Open an approval in your browser.

    Without a terminal or a browser, only the address is printed.
    """
    supervisor = Supervisor()
    name = find(supervisor, approval).approval_id
    _show(f"{_web(supervisor)}/approvals/{name}", only_print=only_print)


def _web(supervisor: Supervisor) -> str:
    return supervisor.fetch(Status, "GET", path_of("v1", "status")).web


def _show(address: str, *, only_print: bool) -> None:
    """Print the address of a page on standard output, so that a person can open the page manually; also open a browser
    if possible.
    """
    output.write(visible(address))
    is_ours = address.startswith("http://localhost:")  # a process that answers as the daemon can open nothing else
    opener = browser() if is_ours and not only_print and can_ask() else None
    if opener is not None:
        open_page(opener, address)
        output.note("opening your browser")
