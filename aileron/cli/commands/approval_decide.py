"""`aileron approve`, `deny`, and commands of `approval` that answer a request. approval.py has the commands that only read."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from aileron.api.approvals import AskBack, Asked, Edited, EditRequest, Question
from aileron.cli import decision_dialogue, output
from aileron.cli.arguments import from_json
from aileron.cli.commands.approval import Id
from aileron.cli.commands.completion import approval_ids
from aileron.cli.commands.options import AsJson, PassphraseFile
from aileron.cli.declared import Argument, Exit, Option
from aileron.cli.duration import seconds
from aileron.cli.problem import INTERRUPTED, OK, UNFINISHED, Problem, tell
from aileron.cli.prompts import NO, YES, ask_now, can_ask, choose, edit_text, passphrase_from
from aileron.cli.run import DEFAULT_WAIT, note_edited
from aileron.cli.status_line import StatusLine
from aileron.cli.supervisor import Supervisor, path_of
from aileron.model.json_value import JSONObject, dict_of
from aileron.model.visible import visible

__all__ = ["approve", "ask", "deny", "edit"]


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
    wait_s = seconds(wait, command="approve")
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
        from aileron.cli.several_decisions import ApprovingSeveral

        several = ApprovingSeveral(supervisor, names, yes=yes, reason=reason, as_json=as_json)
        raise Exit(several.approve(wait_s))
    dialogue = decision_dialogue.Dialogue(
        supervisor, names[0], yes=yes, reason=reason, as_json=as_json, tell=_tell_done
    )
    raise Exit(_end(supervisor, questions[0], dialogue, dialogue.approve(), wait_s, as_json=as_json))


def deny(
    approvals: Ids,
    reason: Annotated[str | None, Option("--reason", metavar="TEXT", help="Send the agent this reason.")] = None,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Deny a request, so that it never runs.

    A denial without --reason needs no passphrase. Where decisions are signed, a denial with --reason is signed at a terminal.
    With several IDs, each is denied.
    """
    supervisor = Supervisor(passphrase=passphrase_from(passphrase_file))
    questions = _named(supervisor, approvals)
    names = [question.approval_id for question in questions]
    if len(names) > 1:
        from aileron.cli.several_decisions import DenyingSeveral

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
    wait_s = seconds(wait, command="approval edit")
    supervisor = Supervisor(passphrase=passphrase_from(passphrase_file))
    question = decision_dialogue.waiting(supervisor, approval)
    name = question.approval_id
    if not question.plan:
        raise Problem.usage(f"{name} is not a run: only runs have arguments to edit", fix=f"aileron approve {name}")
    before = dict_of(question.plan["args"])
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
        supervisor, name, yes=yes, reason=reason, as_json=as_json, edit=made.digest, tell=_tell_done
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
    name = decision_dialogue.waiting(supervisor, approval).approval_id
    if question is None and can_ask():
        question = ask_now("Question for the agent: ")
    if not question:
        raise Problem.usage("there is no question", fix=f'aileron approval ask {name} "QUESTION"')
    path = path_of("v1", "action-approvals", name, "ask")
    answer = supervisor.fetch(Asked, "POST", path, AskBack(question=question))
    words = f"asked; delivered at the agent's next check\n  answer: aileron approval show {visible(name)}"
    output.print_done(answer, words, as_json=as_json)


def _tell_done(result: Any) -> None:
    # Only for a consent; a run, which is decided more often, has its own end
    from aileron.cli.commands.done import tell_done

    tell_done(result)


def _named(supervisor: Supervisor, approvals: list[str]) -> list[Question]:
    """Return the questions with these ids, in the same order.

    Raises Problem if an id occurs twice, because another id was probably meant.
    """
    questions = [decision_dialogue.find(supervisor, approval) for approval in approvals]
    names = [question.approval_id for question in questions]
    twice = next((name for number, name in enumerate(names) if name in names[:number]), None)
    if twice is not None:
        raise Problem.usage(f"{twice} is named twice", fix="aileron approval list")
    return questions


def _edited(args: JSONObject) -> JSONObject:
    """Let the person edit the arguments until they are valid JSON, and return them."""
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


def _end(
    supervisor: Supervisor,
    question: Question,
    dialogue: decision_dialogue.Dialogue,
    code: int,
    wait_s: float,
    *,
    as_json: bool,
) -> int:
    """Return `code`, the exit code of a finished dialogue; if the dialogue approved a run, show the result of the run
    and return its exit code.
    """
    if code != OK or question.kind != "action":
        return code
    return _outcome(supervisor, question, wait_s if dialogue.can_begin else 0.0, as_json=as_json)


def _outcome(supervisor: Supervisor, question: Question, wait_s: float, *, as_json: bool) -> int:
    """Show the result of an approved run, and return the exit code. The decision is recorded already, however the run
    ends.
    """
    try:
        with StatusLine(str(question.action), wanted=not as_json) as waiting:
            state = decision_dialogue.follow(supervisor, question.approval_id, wait_s, waiting)
    except KeyboardInterrupt:
        look = f"aileron audit show {visible(str(question.audit_id))}"
        output.note(f"\ninterrupted; the run is approved and continues\n  look: {look}")
        return INTERRUPTED
    status, answer = state.status, msgspec.to_builtins(state)
    problem = decision_dialogue.problem_of(state)
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
