"""`aileron approve`, `deny` and `approval`: what waits for a person, and what they decide."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from aileron.cli import deciding, output
from aileron.cli.commands.options import AsJson, PassphraseFile
from aileron.cli.plan import COLUMN, print_plan
from aileron.cli.problem import INTERRUPTED, OK, UNFINISHED, Problem
from aileron.cli.prompts import can_ask, passphrase_from
from aileron.cli.run import DEFAULT_WAIT, seconds, tell
from aileron.cli.supervisor import Supervisor
from aileron.cli.visible import visible

__all__ = ["approve", "cancel", "deny", "list_", "show"]

Id = Annotated[str, typer.Argument(metavar="ID", help="The approval, or the end of its id.")]


def approve(
    approval: Id,
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why, for the record.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not show it and ask first.")] = False,
    wait: Annotated[
        str, typer.Option("--wait", metavar="DURATION", help="How long to wait for the outcome: 500ms, 90s, 5m.")
    ] = DEFAULT_WAIT,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Approve what waits: it is shown, asked about, and carried out.

    Then the result as `aileron run` prints it, and its exit code. Without a terminal nothing is asked.
    """
    wait_s = seconds(wait)
    supervisor = Supervisor(passphrase=passphrase_from(passphrase_file))
    question = deciding.find(supervisor, approval)
    deciding.check_waits(question)
    name = str(question["approval_id"])
    if not yes and can_ask():
        deciding.show(question)
        if not deciding.ask_yes():
            output.note(f"nothing is decided: it still waits\n  deny: aileron deny {visible(name)}")
            raise typer.Exit(UNFINISHED)
    elif name != approval:
        raise Problem.usage(
            "where nothing is asked, the whole id is needed", fix=f"aileron approve {name}{' --yes' if yes else ''}"
        )
    can_begin = deciding.open_vault(supervisor, question)
    deciding.decide(supervisor, question, "approve", reason)
    output.note(f"approved {visible(name)}")
    raise typer.Exit(_outcome(supervisor, question, wait_s if can_begin else 0.0, as_json=as_json))


def deny(
    approval: Id,
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why not; the agent reads it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Deny what waits: it never runs."""
    supervisor = Supervisor()
    question = deciding.find(supervisor, approval)
    deciding.check_waits(question)
    if reason is None and not as_json and can_ask():
        reason = deciding.ask_reason()
    _tell_settled(deciding.decide(supervisor, question, "deny", reason), as_json=as_json)


def cancel(approval: Id, as_json: AsJson = False) -> None:
    """Take a question back, or an approval that has not begun."""
    supervisor = Supervisor()
    _tell_settled(deciding.cancel(supervisor, deciding.find(supervisor, approval)), as_json=as_json)


def list_(as_json: AsJson = False) -> None:
    """List what waits for a person, the first to expire first."""
    approvals = Supervisor().ask("GET", "/v1/action-approvals")["approvals"]
    if as_json:
        output.print_json({"approvals": approvals})
        return
    output.print_table(
        ("ID", "EXPIRES", "ASKED BY", "ACTION"),
        [_row(entry) for entry in approvals],
        empty="nothing waits for a person",
    )
    if approvals and output.is_terminal("stderr"):
        output.note("\ndecide: aileron approve ID (it shows what would be done and asks), or aileron deny ID")


def show(approval: Id, as_json: AsJson = False) -> None:
    """Show one of them: exactly what would be done, and what was decided."""
    entry = deciding.find(Supervisor(), approval)
    if as_json:
        output.print_json(entry)
        return
    plan: dict[str, Any] = entry.get("plan") or {}
    output.print_facts(
        [
            ("approval", entry.get("approval_id", approval)),
            ("status", entry.get("status")),
            ("decided", _moment(entry.get("decided_at"))),
            ("through", entry.get("surface")),
            ("reason", entry.get("reason")),
            ("action", f"{plan.get('action', entry.get('action'))} {plan.get('action_version', '')}".strip()),
            ("asked by", entry.get("session")),
            ("asked", _moment(entry.get("created_at"))),
            ("expires", _moment(entry.get("expires_at"))),
            ("digest", entry.get("digest")),
            ("record", entry.get("audit_id")),
        ],
        column=COLUMN,
    )
    print_plan(plan)


def _row(entry: dict[str, Any]) -> tuple[Any, ...]:
    """In a pipe with the status; at a terminal only where it is not that it waits."""
    action, status = str(entry.get("action") or entry.get("kind")), entry.get("status")
    facts = (entry.get("approval_id"), output.time_left(entry.get("expires_at")), entry.get("session"))
    if not output.is_terminal():
        return (*facts, action, status)
    return (*facts, action if status in (None, "pending_approval") else f"{action} ({status})")


def _moment(value: Any) -> str | None:
    return None if value is None else output.local_time(value)


def _tell_settled(settled: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        output.print_json(settled)
    else:
        output.note(f"{visible(str(settled.get('status')))} {visible(str(settled.get('approval_id')))}")


def _outcome(supervisor: Supervisor, question: dict[str, Any], wait_s: float, *, as_json: bool) -> int:
    """Show what came of an approved run; the exit code. The decision is recorded whatever it is."""
    try:
        answer = deciding.follow(supervisor, str(question["approval_id"]), wait_s)
    except KeyboardInterrupt:
        look = f"aileron audit show {visible(str(question.get('audit_id')))}"
        output.note(f"\ninterrupted; it is approved and goes on\n  look: {look}")
        return INTERRUPTED
    status = answer.get("status")
    problem = None if status in ("completed", *deciding.UNDER_WAY) else Problem.of_state(answer)
    if as_json:
        output.print_json(answer if problem is None else {**answer, **problem.to_json()})
    elif status == "completed":
        output.print_result(answer.get("result"))
    if problem is not None:
        return tell(problem)
    if status != "completed":
        deciding.note_under_way(answer, wait_s)
    return OK
