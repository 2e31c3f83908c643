"""`aileron approval`: the questions that wait for a person, and decided ones."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET

from aileron.api.approvals import ApprovalEntry, ApprovalList, Question
from aileron.cards.question import kind_words, name_of, state_words, waits
from aileron.cards.row import Row, common_asker, rows_for
from aileron.cli import output
from aileron.cli.commands.completion import approval_ids
from aileron.cli.commands.options import AsJson, PassphraseFile
from aileron.cli.declared import Argument, Exit, Option
from aileron.cli.problem import Problem
from aileron.cli.prompts import passphrase_from
from aileron.cli.supervisor import Supervisor
from aileron.model.visible import visible

__all__ = ["Id", "cancel", "list_", "show"]

Id = Annotated[str, Argument(metavar="ID", help="ID of the request, or the end of it.", autocompletion=approval_ids)]


def cancel(approval: Id, as_json: AsJson = False) -> None:
    """Withdraw a request, or an approved run that has not begun."""
    from aileron.cli import decision_dialogue

    supervisor = Supervisor()
    settled = decision_dialogue.cancel(supervisor, decision_dialogue.find(supervisor, approval))
    output.print_done(settled, f"{state_words(settled.status)} {visible(settled.approval_id)}", as_json=as_json)


def list_(as_json: AsJson = False) -> None:
    """List what is waiting for approval, the first to expire first."""
    supervisor = Supervisor()
    found = supervisor.fetch(ApprovalList, "GET", "/v1/action-approvals")
    if as_json:
        output.print_json(found)
        return
    rows, entries = rows_for(found.approvals), {entry.approval_id: entry for entry in found.approvals}
    if output.is_terminal():
        _print_list(rows, entries)
    else:
        output.print_table((), [_row(entries[name], row) for name, row in rows.items()], empty="")
    if found.approvals and output.is_terminal() and output.is_terminal("stderr"):
        from aileron.cli import decision_dialogue
        from aileron.cli.signing import approver_status

        output.note("\napprove: aileron approve ID\ndeny: aileron deny ID")
        decision_dialogue.note_unsigned(approver_status(supervisor))


def show(
    approval: Id,
    full: Annotated[bool, Option("--full", help="Show full values without truncation.")] = False,
    preview: Annotated[
        bool, Option("--preview", help="Load the current state too, which only the approver may see.")
    ] = False,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Show a request in full, and what was decided."""
    from aileron.cli import decision_dialogue

    supervisor = Supervisor(passphrase=passphrase_from(passphrase_file))
    entry = decision_dialogue.find(supervisor, approval)
    name = entry.approval_id
    if as_json:
        output.print_json(entry)
        return
    if preview:
        raise Exit(_with_preview(supervisor, entry))
    from aileron.cards.decision_flow import as_told
    from aileron.cli.card import names_in_proof, show_card
    from aileron.cli.plan import COLUMN

    review = as_told(entry)
    more = None if full or not output.is_terminal() else decision_dialogue.more_of(name)
    below = names_in_proof(review) if more is None else set()
    output.print_facts(
        [
            ("approval", name),
            ("kind", kind_words(entry.kind)),
            ("status", entry.status),
            ("decided", output.local_time(entry.decided_at) if entry.decided_at else None),
            ("signed", _signature(entry)),
            ("through", entry.surface or None),
            ("reason", None if entry.reason is UNSET else entry.reason),
            ("asked", None if "asked" in below else output.local_time(entry.created_at)),
            ("digest", None if "digest" in below else entry.digest),
            ("record", None if "record" in below else entry.audit_id or None),
        ],
        column=COLUMN,
    )
    output.write("")
    show_card(review, "stdout", more=more)
    if entry.has_preview and output.is_terminal("stderr"):
        output.note(f"\nload the current state:\n  aileron approval show {visible(name)} --preview")


def _with_preview(supervisor: Supervisor, entry: Question) -> int:
    from aileron.cli import decision_dialogue
    from aileron.cli.signing import approver_status

    name = entry.approval_id
    if not entry.has_preview:
        raise Problem.missing(
            f"{name} has no preview: its action loads no current state", fix=f"aileron approval show {name}"
        )
    standing = approver_status(supervisor)
    if not standing.is_signed:
        raise Problem(
            "only an approver can load the current state, and there is none yet",
            exit_code=6,
            name="consent_required",
            fix="aileron approver init",
        )
    return decision_dialogue.Dialogue(supervisor, name, standing=standing).preview()


def _print_list(rows: dict[str, Row], entries: dict[str, ApprovalEntry]) -> None:
    """Print the table of requests for a terminal.

    If all requests have the same agent, it is named once, so that the requests have more room.
    """
    asker = common_asker(rows.values()) if len(rows) > 1 else None
    names = output.short_ids(list(rows))
    short = [_short_row(entries[name], row, names[name], has_agent=asker is None) for name, row in rows.items()]
    titles = ("ID", "DOES", "REQUEST", *(("AGENT",) if asker is None else ()), "AGE", "EXPIRES")
    output.print_table(titles, short, empty="nothing is waiting", folds=("REQUEST",))
    if asker is not None and output.is_terminal("stderr"):
        output.note(f"\nall asked by {asker}")


def _row(entry: ApprovalEntry, row: Row) -> tuple[str | None, ...]:
    return (
        entry.approval_id,
        output.time_left(entry.expires_at),
        entry.session or None,
        entry.kind,
        name_of(entry),
        entry.status,
        row.verdict,
        row.alarm or None,
        row.title,
    )


def _short_row(entry: ApprovalEntry, row: Row, name: str, *, has_agent: bool) -> tuple[str, ...]:
    """Return the cells of a row: name, verdict, title with its alarm, and times.

    The status is included only for a request that no longer waits.
    """
    what = "  ".join(part for part in (row.marks, row.title) if part)
    what = what if waits(entry) else f"{what} ({state_words(entry.status)})"
    times = (output.time_since(entry.created_at), output.time_left(entry.expires_at))
    return (name, row.verdict, what, *((row.asker,) if has_agent else ()), *times)


def _signature(entry: Question) -> str | None:
    """Return the signer of a decided question, as recorded by the daemon. `aileron audit verify` checks the signature."""
    if not entry.decided_at:
        return None
    return f"by {entry.key_id}" if entry.key_id else "no"
