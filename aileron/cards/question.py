"""Text about a question in the queue: its name, its asker, its tags in a list, and its differences from an approved call.

Pure. A question is the daemon's response to `GET /v1/action-approvals/{id}`, and contains untrusted text. A digest
covers a plan, a subject and a preview. All other parts (who asks, what was approved before, what the agent says) are only
claimed by the daemon or the agent, and are not signed.

Rules
- A preview that failed is shown as failed, with its reason.

Not here: the plan itself (plan.py), the subject of a consent (subject.py), deciding (decision_flow.py).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from aileron.cards.changes import change_lines

if TYPE_CHECKING:
    from aileron.api.approvals import ApprovalEntry, Question
    from aileron.model.consent import Change

__all__ = [
    "EXPIRED",
    "agent_of",
    "asker_of",
    "closed_words",
    "difference_lines",
    "edit_lines",
    "is_run",
    "kind_words",
    "name_of",
    "session_of",
    "state_words",
    "tags_of",
    "title_of",
    "unread_text",
    "waits",
]

EXPIRED: Final = "expired: nothing ran, and it can no longer be decided"
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
"""Displayed name of each status (model/outcome.py, RunStatus)."""


def is_run(entry: ApprovalEntry) -> bool:
    """Return whether the entry is about a gated run rather than a consent."""
    return entry.kind == "action"


def kind_words(kind: str) -> str:
    """Return the displayed name of a kind of question; an unknown kind unchanged."""
    from aileron.model.consent import ConsentKind  # 40 ms, and lists without consents do not need it

    return next((known.words for known in ConsentKind if known == kind), kind)


def waits(entry: ApprovalEntry) -> bool:
    """Return whether the entry can still be decided. Its expiry is not checked."""
    return entry.status == "pending_approval"


def name_of(entry: ApprovalEntry) -> str:
    """Return the subject's name: the action of a run, or the name of what a consent is about."""
    return entry.action or entry.name or entry.kind


def title_of(entry: ApprovalEntry) -> str:
    """Return kind and name as in lists and confirmations: `send-mail`, `binding basic/mail/home`."""
    name = name_of(entry)
    return name if is_run(entry) or name == entry.kind else f"{kind_words(entry.kind)} {name}"


def state_words(status: str) -> str:
    """Return a status in words; an unknown status unchanged."""
    return _STATES.get(status, status)


def closed_words(question: Question) -> str | None:
    """Return in words why a question can no longer be decided; None if it still can."""
    if waits(question):
        return None
    if question.status == "expired":
        return EXPIRED
    return state_words(question.status) + (f" ({question.reason})" if question.reason else "")


def tags_of(entries: Sequence[ApprovalEntry]) -> dict[str, str]:
    """Return the tags of the waiting entries by id, in Aileron's words: a question to the agent, identical requests.

    Most entries have no tag. `entries` must contain every waiting entry, because identical requests are counted among them.
    """
    listed = [entry for entry in entries if waits(entry)]
    same = Counter((entry.kind, entry.digest) for entry in listed)
    found: dict[str, str] = {}
    for entry in listed:
        tags = [_ASKED_BACK[entry.asked_back]] if entry.asked_back else []
        if same[entry.kind, entry.digest] > 1:
            tags.append(f"{same[entry.kind, entry.digest]} identical")
        if tags:
            found[entry.approval_id] = ", ".join(tags)
    return found


def session_of(entry: ApprovalEntry) -> str | None:
    """Return the session of the agent that asks; None if a command on this machine asks."""
    return entry.session if entry.session and entry.session != "local" else None


def agent_of(entry: ApprovalEntry) -> str:
    """Return the asker for a column of a list: the agent, its session if the agent is unknown, or `a command`."""
    return entry.agent or session_of(entry) or "a command"


def asker_of(entry: ApprovalEntry) -> str:
    """Return in words who asks: `claude in /home/you/work`, the session if no more is known, or a local command."""
    if entry.agent:
        return f"{entry.agent} in {entry.folder}" if entry.folder else entry.agent
    session = session_of(entry)
    return f"session {session}" if session else "local command, no agent"


def unread_text(question: Question) -> str:
    """Return the received JSON of a question whose content is of an unknown type."""
    return json.dumps(question.plan or question.subject or {}, ensure_ascii=False)


def difference_lines(
    question: Question, edited: Sequence[Change], more: str | None, when: Callable[[str | None], str]
) -> list[str] | str | None:
    """Return the differences from the most similar approved call, if the question contains them; `when` formats a time.

    `edited` has the person's changes since then, which the differences do not include.
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
    """Return lines for the edits that nobody has decided about yet: the digest of each, with its changes."""
    lines: list[str] = []
    for number, (digest, changes) in enumerate(edits, start=1):
        lines += [f"{number}, not decided: {digest}", *(f"  {line}" for line in change_lines(changes, more))]
    return lines or None
