"""What a preview found against what the agent gave: under one label, two different things.

Pure. An author names lines of a preview and arguments of an action with labels; where a line and an argument have the same one
(or the line has the argument's name), they say the same thing in two ways, the service's and the agent's. Case, and whether words
are joined by spaces, `_` or `-`, does not count; nor do spaces in the values.

Source: docs/reference/action-file.md (Preview). Not here: reading a preview (approvals/preview.py), where it is shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from aileron.model.visible import without_gaps
from aileron.review.plan import given_of

if TYPE_CHECKING:
    from aileron.model.plan import Plan
    from aileron.model.preview import Preview, PreviewField

__all__ = ["alarms", "compared", "spelled"]

_MAX_BRIEF: Final = 100
"""Characters of each side of a contradiction: two lines of a small terminal. All of it stands below."""


def alarms(plan: Plan, preview: Preview | None) -> Iterator[str]:
    """What a person must see before they decide about a plan that has a preview, one text each."""
    if plan.preview is None:
        return
    if preview is None:
        yield "what is there now was not read yet"
    elif preview.fields is None:
        yield f"what is there now could not be read: {preview.problem}"
    else:
        yield from _contradictions(preview.fields, plan)


def compared(label: str) -> str:
    """A label as it is compared."""
    return " ".join(label.casefold().replace("_", " ").replace("-", " ").split())


def spelled(value: Any) -> str:
    """A text as it is, unless that could be taken for something else: then, and all that is no text, as JSON."""
    if isinstance(value, str) and value == value.strip() and value and not _reads_as_json(value):
        return value
    return json.dumps(value, ensure_ascii=False)


def _contradictions(fields: list[PreviewField], plan: Plan) -> Iterator[str]:
    named = [({compared(name) for name in (one.name, one.label) if name}, one.value) for one in given_of(plan)]
    for field in fields:
        label, found = field.label, field.value
        given = [value for names, value in named if compared(label) in names]
        if not given or any(_same(value, found) for value in given):
            continue
        there = "is not there" if found is None else f"is {_brief(found)}"
        yield f"{label} {there}, and the agent says {_brief(given[0])}"


def _same(value: Any, found: str | None) -> bool:
    if found is None or value is None:
        return found is value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return " ".join(text.split()) == " ".join(found.split())


def _brief(value: Any) -> str:
    """The beginning of a value, and how much more there is."""
    text = without_gaps(spelled(value))
    return text if len(text) <= _MAX_BRIEF else f"{text[:_MAX_BRIEF]}… ({len(text) - _MAX_BRIEF:,} more characters)"


def _reads_as_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
