"""A question of the queue: what it is called, who asks, what a list says of it, and what differs from a call approved before.

Pure. A question is the daemon's answer to `GET /v1/action-approvals/{id}`, with words of agents and strangers in it. A digest
covers a plan, a subject and a preview; what is said beside them (who asks, what was approved before, what the agent says) is the
daemon's or the agent's word and is not part of what is signed.

Rules
- A preview that failed is shown as failed, with its reason.

Not here: the plan itself (plan.py), what a consent is about (subject.py), how it is decided (decision_flow.py).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from aileron.review.changes import change_lines

if TYPE_CHECKING:
    from aileron.api.approvals import ApprovalEntry, Question
    from aileron.model.consent import Change

__all__ = [
    "EXPIRED",
    "KINDS",
    "agent_of",
    "asker_of",
    "closed_words",
    "difference_lines",
    "edit_lines",
    "is_run",
    "name_of",
    "session_of",
    "state_words",
    "tags_of",
    "title_of",
    "unread_text",
    "waits",
]

EXPIRED: Final = "expired: nothing ran, and it can no longer be decided"
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
    "tool_change": "changed tool",
    "host": "host",
}
"""What each kind of row is called."""
_ASKED_BACK: Final = {"waiting": "no answer yet", "answered": "answered"}
_STATES: Final = {
    "pending_approval": "waiting for you",
    "approved": "approved",
    "running": "running",
    "completed": "done",
    "failed": "failed",
    "denied": "denied",
    "expired": "expired",
    "cancelled": "withdrawn",
    "unknown": "outcome unknown",
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


def tags_of(entries: Sequence[ApprovalEntry]) -> dict[str, str]:
    """By id, in words of ours, what a list says of those it is about: asked back, asked twice, of a group. Most have none."""
    listed = [entry for entry in entries if waits(entry)]
    same = Counter((entry.kind, entry.digest) for entry in listed)
    together = Counter(entry.group for entry in listed if entry.group)
    seen: Counter[str] = Counter()
    found: dict[str, str] = {}
    for entry in listed:
        tags = [_ASKED_BACK[entry.asked_back]] if entry.asked_back else []
        if same[entry.kind, entry.digest] > 1:
            tags.append(f"{same[entry.kind, entry.digest]} identical")
        if entry.group and together[entry.group] > 1:
            seen[entry.group] += 1
            tags.append(f"{seen[entry.group]} of {together[entry.group]}")
        if tags:
            found[entry.approval_id] = ", ".join(tags)
    return found


def session_of(entry: ApprovalEntry) -> str | None:
    """The agent's session that asks; None where it is a command of this machine."""
    return entry.session if entry.session and entry.session != "local" else None


def agent_of(entry: ApprovalEntry) -> str:
    """Who asks, in a column of a list: the agent, its session where no more is known, or `a command`."""
    return entry.agent or session_of(entry) or "a command"


def asker_of(entry: ApprovalEntry) -> str:
    """Who asks, for a person: `claude in /home/you/work`, its session where no more is known, or a local command."""
    if entry.agent:
        return f"{entry.agent} in {entry.folder}" if entry.folder else entry.agent
    session = session_of(entry)
    return f"session {session}" if session else "local command, no agent"


def unread_text(question: Question) -> str:
    """What it is about, where that is of no type that is known here: the JSON as it came."""
    return json.dumps(question.plan or question.subject or {}, ensure_ascii=False)


def difference_lines(
    question: Question, edited: Sequence[Change], more: str | None, when: Callable[[str | None], str]
) -> list[str] | str | None:
    """What differs from the most similar approved call, where the question says; `when` spells a moment.

    `edited`: what the person changed of it since, which no difference counts.
    """
    found = question.difference
    if found is UNSET:
        return None
    if found is None:
        return "first time for this action"
    at = when(found.decided_at)
    if found.problem:
        return f"not comparable with the call approved {at}: {found.problem}"
    if edited:
        at += " (your edit not counted)"
    changes = change_lines(found.changes, more)
    if not changes:
        return f"same as the call approved {at}"
    return [f"differs from the most similar call, approved {at}:", *changes]


def edit_lines(edits: Iterable[tuple[str, Iterable[Change]]], more: str | None) -> list[str] | None:
    """Edited arguments that nobody decided about yet: by digest, what each would change."""
    lines: list[str] = []
    for number, (digest, changes) in enumerate(edits, start=1):
        lines += [f"{number}, not decided: {digest}", *(f"  {line}" for line in change_lines(changes, more))]
    return lines or None
