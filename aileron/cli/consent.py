"""One question at a terminal, before it is decided: a run or a consent, whole, what matters most first.

Runs in commands. All of it was written by somebody else: agents, authors of actions and connectors, services, and whatever
answered for the daemon.

Rules
- What a preview says stands first.
- What the agent says is in a box of its own, and never stands as a fact.

Source: docs/reference/cli.md. Not here: what is said (review/), asking and signing (deciding.py, signing.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aileron.cli import output
from aileron.cli.plan import COLUMN, print_steps
from aileron.model.preview import Preview
from aileron.review.changes import change_lines
from aileron.review.plan import missing_lines, plan_facts, text_lines, unknown_of
from aileron.review.preview_mismatch import alarms
from aileron.review.question import asker_of, difference_lines, edit_lines, kind_of, preview_lines
from aileron.review.subject import subject_facts

__all__ = ["show_question", "show_subject"]

_MAX_WORDS = 6
"""Turns of a conversation that are shown, the newest; all of them with --full."""


def show_question(
    question: dict[str, Any], stream: str = "stderr", *, more: str | None = None, preview: Preview | None = None
) -> None:
    """All of one question; `more` is the command that shows what is too long for a terminal, None shows everything.

    Says nothing of its state: whoever asks knows that it waits.
    """
    if kind_of(question) == "action":
        _show_run(question, stream, more, preview)
    else:
        output.print_facts(
            [*subject_facts(question, more, _when), *_asked_facts(question, stream)], stream, column=COLUMN
        )
    _print_conversation(question, stream, more)


def show_subject(kind: str, subject: Mapping[str, Any], stream: str = "stderr", *, more: str | None = None) -> None:
    """What would be agreed to, before there is a question about it."""
    question = {"kind": kind, "subject": dict(subject)}
    output.print_facts([*subject_facts(question, more, _when)], stream, column=COLUMN)


def _show_run(question: dict[str, Any], stream: str, more: str | None, preview: Preview | None) -> None:
    plan = question.get("plan") or {}
    facts = [
        ("action", f"{plan.get('action', question.get('action'))} {plan.get('action_version', '')}".strip()),
        ("look", _alarms(plan, preview)),
        ("preview", preview_lines(plan, preview, more)),
        ("you edited", change_lines(question.get("changes") or [], more) or None),
        *plan_facts(plan, more),
        *_asked_facts(question, stream),
        ("differs", difference_lines(question, more, _when)),
        ("edits", edit_lines(question, more)),
    ]
    output.print_facts(facts, stream, column=COLUMN)
    print_steps(plan, stream, more=more)


def _alarms(plan: dict[str, Any], preview: Preview | None) -> list[str] | None:
    """Where what is there now is not what the agent says, and what nobody can know. What was not read stands elsewhere."""
    read = [] if preview is None or preview.fields is None else [*alarms(plan, preview)]
    return [f"! {text}" for text in (*read, *unknown_of(plan))] or None


def _asked_facts(question: dict[str, Any], stream: str) -> list[tuple[str, Any]]:
    return [
        ("asked by", asker_of(question) if output.is_terminal(stream) else question.get("session")),
        ("session", question.get("session") if question.get("agent") and output.is_terminal(stream) else None),
        ("expires", output.time_left(question.get("expires_at"), stream)),
    ]


def _when(moment: Any) -> str:
    return output.local_time(moment, "stderr")


def _print_conversation(question: dict[str, Any], stream: str, more: str | None) -> None:
    turns = question.get("conversation") or []
    if not turns:
        return
    output.write("", stream)
    shown = turns if more is None else turns[-_MAX_WORDS:]
    if len(shown) < len(turns):
        output.write("\n".join(missing_lines(len(turns) - len(shown), "questions, earlier", str(more))), stream)
    for turn in shown:
        _print_box("you asked", str(turn.get("question")), stream, more)
        answer = turn.get("answer")
        if answer is None:
            output.write("the agent has not answered yet", stream)
        else:
            _print_box("the agent says (not verified)", str(answer), stream, more)


def _print_box(title: str, text: str, stream: str, more: str | None) -> None:
    output.write(output.styled(title, "dim", stream), stream)
    for line in text_lines(text, more):
        for part in output.folded(line.removeprefix("│ "), len(output.GUTTER)):
            output.write(output.GUTTER + part, stream)
