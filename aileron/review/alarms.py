"""What a person must see before they decide about a run: contradictions, what was not loaded, letters that look like others.

Pure. An author names lines of a preview and arguments of an action with labels; where a line and an argument have the same one
(or the line has the argument's name), they say the same thing in two ways, the service's and the agent's. Case, and whether words
are joined by spaces, `_` or `-`, does not count; nor do spaces in the values, nor the zone in which the same moment is written.

Rules
- An alarm says what is wrong and where; all of the value stands below it.
- Alarms are rare: what is so of every call is none.

Source: docs/reference/action-file.md (Preview). Not here: reading a preview (approvals/preview.py), hosts (plan.py).
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from aileron.actions.summary import as_compared
from aileron.model.timestamp import parse_timestamp, spoken_time
from aileron.model.visible import visible_lines, without_gaps
from aileron.review.plan import given_of, unknown_of

if TYPE_CHECKING:
    from aileron.model.plan import Plan
    from aileron.model.preview import Preview, PreviewField

__all__ = ["NOT_LOADED", "alarms", "spelled"]

NOT_LOADED: Final = "current state not loaded"
_MAX_BRIEF: Final = 100
"""Characters of each side of a contradiction: two lines of a small terminal. All of it stands below."""
_MOST_WORDS: Final = 3
"""Words of other letters in one value; one is enough to look."""
_WORD: Final = re.compile(r"[^\W\d_]+")
_ADDRESS: Final = re.compile(r"[^\s,;<>()\"'@/]+(?:[@.][^\s,;<>()\"'@/]+)+")
"""What has a dot or an @ in its middle: a mail address, a host, a file's name."""
_ALIKE: Final = frozenset({"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC"})
"""Alphabets with letters that look like those of another."""


def alarms(plan: Plan, preview: Preview | None) -> Iterator[str]:
    """One text for each, in the order in which they matter."""
    fields: list[PreviewField] = []
    if plan.preview is not None:
        if preview is None:
            yield NOT_LOADED
        elif preview.fields is None:
            yield f"current state could not be loaded: {preview.problem}"
        else:
            fields = preview.fields
            yield from _contradictions(fields, plan)
    yield from unknown_of(plan)
    for one in given_of(plan):
        yield from _letters(one.label or one.name, one.value)
    for field in fields:
        yield from _letters(field.label, field.value)


def spelled(value: Any) -> str:
    """A text as it is, unless that could be taken for something else: then, and all that is no text, as JSON."""
    if isinstance(value, str) and value == value.strip() and value and not _reads_as_json(value):
        return value
    return json.dumps(value, ensure_ascii=False)


def _contradictions(fields: list[PreviewField], plan: Plan) -> Iterator[str]:
    named = [({as_compared(name) for name in (one.name, one.label) if name}, one.value) for one in given_of(plan)]
    for field in fields:
        label, found = field.label, field.value
        given = [value for names, value in named if as_compared(label) in names]
        if not given or any(_same(value, found) for value in given):
            continue
        has = "nothing" if found is None else _brief(found)
        yield f"{label}: the agent said {_brief(given[0])}, the service has {has}"


def _same(value: Any, found: str | None) -> bool:
    if found is None or value is None:
        return found is value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return " ".join(text.split()) == " ".join(found.split()) or _is_same_moment(text, found)


def _is_same_moment(one: str, other: str) -> bool:
    if spoken_time(one) is None or spoken_time(other) is None:
        return False
    moments = parse_timestamp(one), parse_timestamp(other)
    return moments[0] is not None and moments[0] == moments[1]


def _brief(value: Any) -> str:
    """The beginning of a value, and how much more there is; a text in quotes, that it may not pass for what stands around it."""
    text = without_gaps(spelled(value))
    shown = text if len(text) <= _MAX_BRIEF else f"{text[:_MAX_BRIEF]}… ({len(text) - _MAX_BRIEF:,} more characters)"
    return f"“{shown}”" if isinstance(value, str) and not text.startswith('"') else shown


def _letters(name: str, value: Any) -> Iterator[str]:
    """Of a value, and of what is in it: characters that nobody sees, and letters that look like others."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if text.isascii() and text.isprintable():
        return
    if visible_lines(text) != text.replace("\r\n", "\n").replace("\t", "    ").split("\n"):
        yield f"{name} has hidden characters, shown below as codes"
    foreign = list(dict.fromkeys(_foreign(text)))
    if foreign:
        more = f" and {len(foreign) - _MOST_WORDS} more" if len(foreign) > _MOST_WORDS else ""
        yield f"{name} has letters that may look like others: {', '.join(foreign[:_MOST_WORDS])}{more}"


def _foreign(text: str) -> Iterator[str]:
    """Mail addresses with other letters than ASCII's; hosts, and words, in more than one alphabet. Those letters as codes."""
    addresses = list(_ADDRESS.finditer(text))
    words = (
        match
        for match in _WORD.finditer(text)
        if not any(one.start() <= match.start() < one.end() for one in addresses)
    )
    for match in (*addresses, *words):
        if not match[0].isascii() and ("@" in match[0] or _is_mixed(match[0])):
            yield _in_codes(match[0])


def _is_mixed(text: str) -> bool:
    return len({_alphabet(one) for one in text if one.isalpha()} & _ALIKE) > 1


def _in_codes(text: str) -> str:
    return "".join(one if one.isascii() else f"<U+{ord(one):04X}>" for one in text[:_MAX_BRIEF])


def _alphabet(letter: str) -> str:
    return unicodedata.name(letter, "").partition(" ")[0]


def _reads_as_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
