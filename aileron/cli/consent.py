"""One question at a terminal, before it is decided: a run or a consent, whole, what matters most first.

Runs in commands. All of it was written by somebody else: agents, authors of actions and connectors, services, and whatever
answered for the daemon.

Rules
- What a preview says stands first.
- What the agent says is in a box of its own, and never stands as a fact.

Source: docs/reference/cli.md. Not here: what is said (review/), asking and signing (decision_dialogue.py, signing.py).
"""

from __future__ import annotations

from msgspec import UNSET

from aileron.api.approvals import Question
from aileron.cli import output
from aileron.cli.plan import COLUMN, print_steps
from aileron.model.consent import Subject
from aileron.model.plan import Plan
from aileron.model.preview import Preview
from aileron.review.changes import change_lines
from aileron.review.decision_flow import Review
from aileron.review.plan import FactRow, cut, missing_lines, plan_facts, text_lines, unknown_of
from aileron.review.preview_mismatch import alarms
from aileron.review.question import difference_lines, edit_lines, preview_lines, unread_text
from aileron.review.subject import subject_facts

__all__ = ["show_question", "show_subject"]

_MAX_WORDS = 6
"""Turns of a conversation that are shown, the newest; all of them with --full."""


def show_question(review: Review, stream: str = "stderr", *, more: str | None = None) -> None:
    """All of one question; `more` is the command that shows what is too long for a terminal, None shows everything.

    Says nothing of its state: whoever asks knows that it waits.
    """
    content, asked = review.content, _asked_facts(review, stream)
    if isinstance(content, Plan):
        _show_run(review, content, stream, more)
    elif content is not None:
        output.print_facts([*subject_facts(content, more, _when), *asked], stream, column=COLUMN)
    else:
        output.print_facts([*_unreadable_facts(review.question, more), *asked], stream, column=COLUMN)
    _print_conversation(review.question, stream, more)


def show_subject(subject: Subject, stream: str = "stderr", *, more: str | None = None) -> None:
    """What would be agreed to, before there is a question about it."""
    output.print_facts(subject_facts(subject, more, _when), stream, column=COLUMN)


def _unreadable_facts(question: Question, more: str | None) -> list[FactRow]:
    """What another version asked, as it came."""
    return [("kind", question.kind), ("as it came", cut("", unread_text(question), more))]


def _show_run(review: Review, plan: Plan, stream: str, more: str | None) -> None:
    question = review.question
    facts = [
        ("action", f"{plan.action} {plan.action_version}"),
        ("look", _alarms(plan, review.preview)),
        ("preview", preview_lines(review.preview, more) if review.has_preview else None),
        ("you edited", change_lines(review.edited, more) or None),
        *plan_facts(plan, more),
        *_asked_facts(review, stream),
        ("differs", difference_lines(question, review.edited, more, _when)),
        ("edits", edit_lines(review.edits, more)),
    ]
    output.print_facts(facts, stream, column=COLUMN)
    print_steps(plan, stream, more=more)


def _alarms(plan: Plan, preview: Preview | None) -> list[str] | None:
    """Where what is there now is not what the agent says, and what nobody can know. What was not read stands elsewhere."""
    read = [] if preview is None or preview.fields is None else [*alarms(plan, preview)]
    return [f"! {text}" for text in (*read, *unknown_of(plan))] or None


def _asked_facts(review: Review, stream: str) -> list[FactRow]:
    question, is_terminal = review.question, output.is_terminal(stream)
    return [
        ("asked by", review.asker if is_terminal else question.session or None),
        ("session", (question.session or None) if question.agent and is_terminal else None),
        ("expires", output.time_left(question.expires_at, stream)),
    ]


def _when(moment: str | None) -> str:
    return output.local_time(moment, "stderr")


def _print_conversation(question: Question, stream: str, more: str | None) -> None:
    turns = question.conversation or []
    if not turns:
        return
    output.write("", stream)
    shown = turns if more is None else turns[-_MAX_WORDS:]
    if len(shown) < len(turns):
        output.write("\n".join(missing_lines(len(turns) - len(shown), "questions, earlier", str(more))), stream)
    for turn in shown:
        _print_box("you asked", turn.question, stream, more)
        if turn.answer is UNSET:
            output.write("the agent has not answered yet", stream)
        else:
            _print_box("the agent says (not verified)", turn.answer, stream, more)


def _print_box(title: str, text: str, stream: str, more: str | None) -> None:
    output.write(output.styled(title, "dim", stream), stream)
    for line in text_lines(text, more):
        for part in output.folded(line.removeprefix("│ "), len(output.GUTTER)):
            output.write(output.GUTTER + part, stream)
