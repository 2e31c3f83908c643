"""`aileron approve`, `deny` and `approval`: what waits for a person, and what they decide."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET

from aileron.api.approvals import ApprovalEntry, ApprovalList, AskBack, Asked, Edited, EditRequest, Question
from aileron.cli import decision_dialogue, output
from aileron.cli.arguments import from_json
from aileron.cli.card import names_in_proof, show_card
from aileron.cli.commands.completion import approval_ids
from aileron.cli.commands.done import tell_done
from aileron.cli.commands.options import AsJson, PassphraseFile
from aileron.cli.declared import Argument, Exit, Option
from aileron.cli.plan import COLUMN
from aileron.cli.problem import INTERRUPTED, OK, UNFINISHED, Problem, tell
from aileron.cli.prompts import NO, YES, ask_now, can_ask, choose, edit_text, passphrase_from
from aileron.cli.run import DEFAULT_WAIT, note_edited, seconds
from aileron.cli.several_decisions import ApprovingSeveral, DenyingSeveral
from aileron.cli.signing import approver_status
from aileron.cli.status_line import StatusLine
from aileron.cli.supervisor import Supervisor, path_of
from aileron.model.visible import visible
from aileron.review.decision_flow import as_told
from aileron.review.question import KINDS, name_of, state_words, waits
from aileron.review.row import Row, common_asker, rows_for

__all__ = ["approve", "ask", "cancel", "deny", "edit", "list_", "show"]

Id = Annotated[str, Argument(metavar="ID", help="ID of the request, or the end of it.", autocompletion=approval_ids)]
_IDS_HELP: Final = "ID of the request, or the end of it; several to decide them together."
Ids = Annotated[list[str], Argument(metavar="ID...", help=_IDS_HELP, autocompletion=approval_ids)]
Yes = Annotated[bool, Option("--yes", "-y", help="Approve without asking. A signature is still asked for.")]
Wait = Annotated[str, Option("--wait", metavar="DURATION", help="Time to wait for the outcome: 500ms, 90s, 5m.")]


def approve(
    approvals: Ids,
    reason: Annotated[str | None, Option("--reason", metavar="TEXT", help="Reason, for the record.")] = None,
    yes: Yes = False,
    wait: Wait = DEFAULT_WAIT,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Approve a request after reading it, and carry it out.

    Prints the result and ends as `aileron run` does. Where an approver exists the decision is signed, which needs a terminal.
    With several IDs, two to ten requests that are alike are approved together: one card shows what differs, and each is signed.
    """
    wait_s = seconds(wait, help_of="approve")
    supervisor = Supervisor(passphrase=passphrase_from(passphrase_file))
    questions = _named(supervisor, approvals)
    for question in questions:
        decision_dialogue.check_waits(question)
    names = [question.approval_id for question in questions]
    if (yes or not can_ask()) and names != approvals:
        raise Problem.usage(
            "without a question the full id is needed",
            fix=f"aileron approve {' '.join(names)}{' --yes' if yes else ''}",
        )
    if len(names) > 1:
        several = ApprovingSeveral(supervisor, names, yes=yes, reason=reason, as_json=as_json)
        raise Exit(several.approve(wait_s))
    dialogue = decision_dialogue.Dialogue(supervisor, names[0], yes=yes, reason=reason, as_json=as_json, tell=tell_done)
    raise Exit(_end(supervisor, questions[0], dialogue, dialogue.approve(), wait_s, as_json=as_json))


def deny(
    approvals: Ids,
    reason: Annotated[str | None, Option("--reason", metavar="TEXT", help="Send the agent this reason.")] = None,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Deny a request, so that it never runs.

    Without a reason it takes no passphrase: the request is withdrawn. Where an approver exists, a reason is signed at a terminal.
    With several IDs, each is denied.
    """
    supervisor = Supervisor(passphrase=passphrase_from(passphrase_file))
    questions = _named(supervisor, approvals)
    names = [question.approval_id for question in questions]
    if len(names) > 1:
        raise Exit(DenyingSeveral(supervisor, names, reason=reason, as_json=as_json).deny())
    decision_dialogue.check_waits(questions[0])
    raise Exit(decision_dialogue.Dialogue(supervisor, names[0], reason=reason, as_json=as_json).deny())


def edit(
    approval: Id,
    args: Annotated[
        str | None,
        Option("--args", metavar="JSON|@FILE|-", help="Use these arguments and open no editor."),
    ] = None,
    reason: Annotated[str | None, Option("--reason", metavar="TEXT", help="Reason, for the record.")] = None,
    yes: Yes = False,
    wait: Wait = DEFAULT_WAIT,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Change the arguments of a waiting run, and approve it.

    Opens them in $VISUAL or $EDITOR, and shows what changed before you decide. The agent is told.
    """
    wait_s = seconds(wait, help_of="approval edit")
    supervisor = Supervisor(passphrase=passphrase_from(passphrase_file))
    question = _waiting(supervisor, approval)
    name = question.approval_id
    if not question.plan:
        raise Problem.usage(f"{name} is not a run: only runs have arguments to edit", fix=f"aileron approve {name}")
    before = question.plan["args"]
    wanted = _edited(before) if args is None else from_json(args)
    if wanted == before:
        output.note(f"no changes: not decided, still waiting\n  approve: aileron approve {visible(name)}")
        raise Exit(UNFINISHED)
    made = supervisor.fetch(Edited, "POST", path_of("v1", "action-approvals", name, "edit"), EditRequest(args=wanted))
    if made.plan.get("args") != wanted:
        raise Problem(
            "the daemon changed the arguments to something else",
            exit_code=9,
            name="hash_mismatch",
            fix="aileron daemon status",
        )
    dialogue = decision_dialogue.Dialogue(
        supervisor, name, yes=yes, reason=reason, as_json=as_json, edit=made.digest, tell=tell_done
    )
    raise Exit(_end(supervisor, question, dialogue, dialogue.approve(), wait_s, as_json=as_json))


def ask(
    approval: Id,
    question: Annotated[str | None, Argument(metavar="QUESTION", help="Question for the agent.")] = None,
    as_json: AsJson = False,
) -> None:
    """Ask the agent a question before you decide.

    Delivered at its next check. It may answer once; `aileron approval show` has the answer.
    """
    supervisor = Supervisor()
    name = _waiting(supervisor, approval).approval_id
    if question is None and can_ask():
        question = ask_now("Question for the agent: ")
    if not question:
        raise Problem.usage("there is no question", fix=f'aileron approval ask {name} "QUESTION"')
    path = path_of("v1", "action-approvals", name, "ask")
    answer = supervisor.fetch(Asked, "POST", path, AskBack(question=question))
    if as_json:
        output.print_json(answer)
    else:
        output.note(f"asked; delivered at the agent's next check\n  answer: aileron approval show {visible(name)}")


def cancel(approval: Id, as_json: AsJson = False) -> None:
    """Withdraw a request, or an approval that has not begun."""
    supervisor = Supervisor()
    settled = decision_dialogue.cancel(supervisor, decision_dialogue.find(supervisor, approval))
    if as_json:
        output.print_json(settled)
    else:
        output.note(f"{state_words(settled.status)} {visible(settled.approval_id)}")


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
    supervisor = Supervisor(passphrase=passphrase_from(passphrase_file))
    entry = decision_dialogue.find(supervisor, approval)
    name = entry.approval_id
    if as_json:
        output.print_json(entry)
        return
    if preview:
        raise Exit(_with_preview(supervisor, entry))
    review = as_told(entry)
    more = None if full or not output.is_terminal() else decision_dialogue.more_of(name)
    below = names_in_proof(review) if more is None else set()
    output.print_facts(
        [
            ("approval", name),
            ("kind", KINDS.get(entry.kind, entry.kind)),
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


def _waiting(supervisor: Supervisor, approval: str) -> Question:
    question = decision_dialogue.find(supervisor, approval)
    decision_dialogue.check_waits(question)
    return question


def _named(supervisor: Supervisor, approvals: list[str]) -> list[Question]:
    """Each that was named, in that order. Problem for one that is named twice: another was meant, and nobody knows which."""
    questions = [decision_dialogue.find(supervisor, approval) for approval in approvals]
    names = [question.approval_id for question in questions]
    twice = next((name for number, name in enumerate(names) if name in names[:number]), None)
    if twice is not None:
        raise Problem.usage(f"{twice} is named twice", fix="aileron approval list")
    return questions


def _with_preview(supervisor: Supervisor, entry: Question) -> int:
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


def _edited(args: dict[str, Any]) -> dict[str, Any]:
    """The arguments as a person left them in their editor; asked again while they are not JSON."""
    import json

    text = json.dumps(args, indent=2, ensure_ascii=True) + "\n"
    while True:
        text = edit_text(text, suffix=".json", instead="--args JSON")
        try:
            return from_json(text)
        except Problem as problem:
            output.note("\n".join(problem.lines()[:1]))
            if choose("Edit it again? [Y/n] ", YES + NO) not in ("", *YES):
                raise


def _print_list(rows: dict[str, Row], entries: dict[str, ApprovalEntry]) -> None:
    """Print the table for a terminal. Name an agent that asks for all of them once, so that the requests have the room."""
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
    """Return the cells of a row: name, verdict, title with its alarm, and times; a status only if it no longer waits."""
    what = "  ".join(part for part in (row.marks, row.title) if part)
    what = what if waits(entry) else f"{what} ({state_words(entry.status)})"
    times = (output.time_since(entry.created_at), output.time_left(entry.expires_at))
    return (name, row.verdict, what, *((row.asker,) if has_agent else ()), *times)


def _signature(entry: Question) -> str | None:
    """Of a decided one: whose, as the daemon keeps it; `aileron audit verify` checks it."""
    if not entry.decided_at:
        return None
    return f"by {entry.key_id}" if entry.key_id else "no"


def _end(
    supervisor: Supervisor,
    question: Question,
    dialogue: decision_dialogue.Dialogue,
    code: int,
    wait_s: float,
    *,
    as_json: bool,
) -> int:
    """After the dialogue: what comes of an approved run; the exit code."""
    if code != OK or question.kind != "action":
        return code
    return _outcome(supervisor, question, wait_s if dialogue.can_begin else 0.0, as_json=as_json)


def _outcome(supervisor: Supervisor, question: Question, wait_s: float, *, as_json: bool) -> int:
    """Show what came of an approved run; the exit code. The decision is recorded whatever it is."""
    try:
        with StatusLine(str(question.action), wanted=not as_json) as waiting:
            state = decision_dialogue.follow(supervisor, question.approval_id, wait_s, waiting)
    except KeyboardInterrupt:
        look = f"aileron audit show {visible(str(question.audit_id))}"
        output.note(f"\ninterrupted; the run is approved and continues\n  look: {look}")
        return INTERRUPTED
    status, answer = state.status, msgspec.to_builtins(state)
    problem = None if status in ("completed", *decision_dialogue.UNDER_WAY) else Problem.of_state(answer)
    if as_json:
        output.print_json(answer if problem is None else {**answer, **problem.to_json()})
    elif status == "completed":
        output.print_result(answer.get("result"))
        note_edited(answer)
    if problem is not None:
        return tell(problem)
    if status != "completed":
        decision_dialogue.note_under_way(state, wait_s)
    return OK
