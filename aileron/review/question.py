"""A question of the queue: what it is called, who asks, what its preview says, and what differs from the call approved last.

Pure. A question is the daemon's answer to `GET /v1/action-approvals/{id}`, with words of agents and strangers in it. A digest
covers a plan, a subject and a preview; what is said beside them (who asks, what was approved before, what the agent says) is the
daemon's or the agent's word and is not part of what is signed.

Rules
- A preview that failed is shown as failed, with its reason.

Not here: the plan itself (plan.py), what a consent is about (subject.py).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from aileron.model.preview import Preview, PreviewField
from aileron.model.visible import visible
from aileron.review.changes import change_lines
from aileron.review.plan import cut, text_lines

__all__ = [
    "KINDS",
    "agent_of",
    "asker_of",
    "difference_lines",
    "digest_of",
    "edit_lines",
    "glance_of",
    "has_preview",
    "is_run",
    "kind_of",
    "name_of",
    "preview_lines",
    "state_of",
    "title_of",
    "waits",
]

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


def kind_of(question: Mapping[str, Any]) -> str:
    """`action` for a run, else the kind of a consent."""
    return str(question.get("kind") or "action")


def is_run(question: Mapping[str, Any]) -> bool:
    """It is about a gated run, and no consent."""
    return kind_of(question) == "action"


def waits(question: Mapping[str, Any]) -> bool:
    """Whether it can still be decided, but for its time."""
    return question.get("status") == "pending_approval"


def has_preview(question: Mapping[str, Any]) -> bool:
    """Whether something is read for the person before they decide: the plan says so, and no flag beside it."""
    return is_run(question) and (question.get("plan") or {}).get("preview") is not None


def digest_of(question: Mapping[str, Any], preview: Preview | None) -> str:
    """What a decision about a question is about, of what is shown: itself, with the preview where one was read."""
    seen = None if preview is None else preview.digest
    return str(question.get("digest")) if seen is None else seen


def name_of(question: Mapping[str, Any]) -> str:
    """What it is about: the action of a run, the name of what a consent changes."""
    return str(question.get("action") or question.get("name") or kind_of(question))


def title_of(question: Mapping[str, Any]) -> str:
    """Kind and name, as lists and confirmations say it: `send-mail`, `binding basic/mail/home`."""
    kind, name = kind_of(question), name_of(question)
    return name if kind == "action" or name == kind else f"{KINDS.get(kind, kind)} {name}"


def state_of(question: Mapping[str, Any]) -> str:
    """Its status in words; one that nobody knows as it is."""
    status = str(question.get("status"))
    return _STATES.get(status, status)


def glance_of(question: Mapping[str, Any]) -> str:
    """Of a row of a list, a line of what it was asked with, harmless; empty where there is none."""
    return visible(str(question.get("glance") or ""))


def agent_of(question: Mapping[str, Any]) -> str:
    """Who asks, in a column of a list: the agent, its session where no more is known, or `a command`."""
    session = question.get("session")
    return str(question.get("agent") or ("a command" if session in (None, "local") else session))


def asker_of(question: Mapping[str, Any]) -> str:
    """Who asks, for a person: `claude in /home/you/work`, its session where no more is known, or a command of this machine."""
    session, agent, folder = (question.get(name) for name in ("session", "agent", "folder"))
    if agent:
        return f"{agent} in {folder}" if folder else str(agent)
    return "a command on this machine, of no agent's session" if session in (None, "local") else f"session {session}"


def preview_lines(plan: dict[str, Any], preview: Preview | None, more: str | None) -> list[str] | str | None:
    """What is there now, as the preview found it; None where the action has none."""
    if plan.get("preview") is None:
        return None
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


def difference_lines(question: dict[str, Any], more: str | None, when: Callable[[Any], str]) -> list[str] | str | None:
    """What differs from the call approved last, where the question says; `when` spells a moment."""
    if "difference" not in question:
        return None
    found = question["difference"]
    if not isinstance(found, dict):
        return "there is no approved call of this action to compare it with"
    at = when(found.get("decided_at"))
    if found.get("problem"):
        return f"it cannot be compared with the call approved last ({at}): {found['problem']}"
    if "changes" in question:
        at += "; your edit not counted"
    changes = change_lines(found.get("changes") or [], more)
    if not changes:
        return f"in nothing from the call approved last ({at})"
    return [f"from the call approved last ({at}):", *changes]


def edit_lines(question: dict[str, Any], more: str | None) -> list[str] | None:
    """Edited arguments that nobody decided about yet."""
    lines: list[str] = []
    for number, edit in enumerate(question.get("edits") or [], start=1):
        changes = change_lines(edit.get("changes") or [], more)
        lines += [f"{number}, not decided: {edit.get('digest')}", *(f"  {line}" for line in changes)]
    return lines or None


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
