"""A question of the queue: what it is called, who asks, what its preview says, and what differs from the call approved last.

Pure. A question is the daemon's answer to `GET /v1/action-approvals/{id}`, with words of agents and strangers in it. A digest
covers a plan, a subject and a preview; what is said beside them (who asks, what was approved before, what the agent says) is the
daemon's or the agent's word and is not part of what is signed.

Rules
- A preview that failed is shown as failed, with its reason.

Not here: the plan itself (plan.py), what a consent is about (subject.py), how it is decided (decision_flow.py).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from aileron.model.visible import visible
from aileron.review.changes import change_lines
from aileron.review.plan import cut, text_lines

if TYPE_CHECKING:
    from aileron.api.approvals import ApprovalEntry, Question
    from aileron.model.consent import Change
    from aileron.model.preview import Preview, PreviewField

__all__ = [
    "EXPIRED",
    "KINDS",
    "agent_of",
    "asker_of",
    "closed_words",
    "difference_lines",
    "edit_lines",
    "glance_of",
    "is_run",
    "name_of",
    "preview_lines",
    "session_of",
    "state_words",
    "title_of",
    "unread_text",
    "waits",
]

EXPIRED: Final = "its time is over: nothing ran, and nothing can be decided"
KINDS: Final = {
    "action": "run",
    "action_file": "action file",
    "connector": "connector",
    "connector_update": "connector update",
    "trusted_key": "trusted key",
    "binding": "binding",
    "secret": "secret",
    "grant": "grant",
    "settings": "settings",
    "passkey": "passkey",
}
"""What each kind of row is called."""
_STATES: Final = {
    "pending_approval": "waits for you",
    "approved": "approved",
    "running": "approved, running",
    "completed": "approved, done",
    "failed": "approved, failed",
    "denied": "denied",
    "expired": "expired",
    "cancelled": "taken back",
    "unknown": "approved, outcome unknown",
}
"""What each status (model/outcome.py RunStatus) is called."""


def is_run(entry: ApprovalEntry) -> bool:
    """It is about a gated run, and no consent."""
    return entry.kind == "action"


def waits(entry: ApprovalEntry) -> bool:
    """Whether it can still be decided, but for its time."""
    return entry.status == "pending_approval"


def name_of(entry: ApprovalEntry) -> str:
    """What it is about: the action of a run, the name of what a consent changes."""
    return entry.action or entry.name or entry.kind


def title_of(entry: ApprovalEntry) -> str:
    """Kind and name, as lists and confirmations say it: `send-mail`, `binding basic/mail/home`."""
    name = name_of(entry)
    return name if is_run(entry) or name == entry.kind else f"{KINDS.get(entry.kind, entry.kind)} {name}"


def state_words(status: str) -> str:
    """A status in words; one that nobody knows as it is."""
    return _STATES.get(status, status)


def closed_words(question: Question) -> str | None:
    """Why it cannot be decided any more; None: it can."""
    if waits(question):
        return None
    if question.status == "expired":
        return EXPIRED
    return state_words(question.status) + (f" ({question.reason})" if question.reason else "")


def glance_of(entry: ApprovalEntry) -> str:
    """Of a row of a list, a line of what it was asked with, harmless; empty where there is none."""
    return visible(entry.glance or "")


def session_of(entry: ApprovalEntry) -> str | None:
    """The agent's session that asks; None where it is a command of this machine."""
    return entry.session if entry.session and entry.session != "local" else None


def agent_of(entry: ApprovalEntry) -> str:
    """Who asks, in a column of a list: the agent, its session where no more is known, or `a command`."""
    return entry.agent or session_of(entry) or "a command"


def asker_of(entry: ApprovalEntry) -> str:
    """Who asks, for a person: `claude in /home/you/work`, its session where no more is known, or a command of this machine."""
    if entry.agent:
        return f"{entry.agent} in {entry.folder}" if entry.folder else entry.agent
    session = session_of(entry)
    return f"session {session}" if session else "a command on this machine, of no agent's session"


def unread_text(question: Question) -> str:
    """What it is about, where that is of no type that is known here: the JSON as it came."""
    return json.dumps(question.plan or question.subject or {}, ensure_ascii=False)


def preview_lines(preview: Preview | None, more: str | None) -> list[str] | str:
    """What is there now, as the preview of an action that has one found it."""
    if preview is None:
        return "there is one, for whoever signs the decision"
    if preview.fields is None:
        return [f"FAILED, nothing is shown: {preview.problem}"]
    lines: list[str] = []
    for label, value, is_multiline in _together(preview.fields):
        if value is not None and (is_multiline or "\n" in value):
            lines += [f"{label}:", *text_lines(value, more)]
        else:
            lines += cut(f"{label}: ", "n/a" if value is None else value, more)
    return lines or "it says nothing"


def _together(fields: Iterable[PreviewField]) -> Iterator[tuple[str, str | None, bool]]:
    """Label, value and whether it has many lines; neighbours that found nothing as one, so that the rest stays on the screen."""
    for is_nothing, some in itertools.groupby(fields, lambda field: field.value is None):
        group = list(some)
        if is_nothing:
            yield ", ".join(field.label for field in group), None, False
        else:
            yield from ((field.label, field.value, field.multiline) for field in group)


def difference_lines(
    question: Question, edited: Sequence[Change], more: str | None, when: Callable[[str | None], str]
) -> list[str] | str | None:
    """What differs from the call approved last, where the question says; `when` spells a moment.

    `edited`: what the person changed of it since, which no difference counts.
    """
    found = question.difference
    if found is UNSET:
        return None
    if found is None:
        return "there is no approved call of this action to compare it with"
    at = when(found.decided_at)
    if found.problem:
        return f"it cannot be compared with the call approved last ({at}): {found.problem}"
    if edited:
        at += "; your edit not counted"
    changes = change_lines(found.changes, more)
    if not changes:
        return f"in nothing from the call approved last ({at})"
    return [f"from the call approved last ({at}):", *changes]


def edit_lines(edits: Iterable[tuple[str, Iterable[Change]]], more: str | None) -> list[str] | None:
    """Edited arguments that nobody decided about yet: by digest, what each would change."""
    lines: list[str] = []
    for number, (digest, changes) in enumerate(edits, start=1):
        lines += [f"{number}, not decided: {digest}", *(f"  {line}" for line in change_lines(changes, more))]
    return lines or None
