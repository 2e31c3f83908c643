"""`aileron approval`: what waits for a person, for now only to be looked at."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from aileron.cli import output
from aileron.cli.commands.options import AsJson
from aileron.cli.plan import print_plan
from aileron.cli.supervisor import Supervisor, path_of

__all__ = ["list_", "show"]


def list_(as_json: AsJson = False) -> None:
    """List what waits for a person."""
    approvals = Supervisor().ask("GET", "/v1/action-approvals")["approvals"]
    if as_json:
        output.print_json({"approvals": approvals})
        return
    output.print_table(
        ("ID", "EXPIRES", "ASKED BY", "ACTION"),
        [
            (
                entry.get("approval_id"),
                output.time_left(entry.get("expires_at")),
                entry.get("session"),
                entry.get("action") or entry.get("kind"),
            )
            for entry in approvals
        ],
        empty="nothing waits for a person",
    )


def show(
    approval: Annotated[str, typer.Argument(metavar="ID", help="The approval.")],
    as_json: AsJson = False,
) -> None:
    """Show one of them: exactly what would be done."""
    entry = Supervisor().ask("GET", path_of("v1", "action-approvals", approval))
    if as_json:
        output.print_json(entry)
        return
    plan: dict[str, Any] = entry.get("plan") or {}
    output.print_facts(
        [
            ("approval", entry.get("approval_id", approval)),
            ("status", entry.get("status")),
            ("action", f"{plan.get('action', entry.get('action'))} {plan.get('action_version', '')}".strip()),
            ("asked by", entry.get("session")),
            ("asked", output.local_time(entry.get("created_at"))),
            ("expires", output.local_time(entry.get("expires_at"))),
            ("digest", entry.get("digest")),
            ("record", entry.get("audit_id")),
        ]
    )
    print_plan(plan)
