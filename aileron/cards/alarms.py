"""Alarms that a person must see before deciding about a run, such as contradictions, other accounts and blind copies.

Pure. An author gives labels to the lines of a preview and to the arguments of an action. If a line and an argument have the
same label (or the line's label is the argument's name), both state the same fact: the line with the service's value, the
argument with the agent's. Comparison ignores case, spaces versus `_` or `-`, spaces in the values, the zone in which a time is
written, and the `#` before a channel's name. If the service has a name and an id (`Channel`, `Channel id`), the agent may give
either.

Under different labels, two values contradict each other only if that is certain: both labels name a destination, both values
have the same unmistakable form (recipients.py), and no value that the agent gives in that form equals the service's. So a list
that the service expands, a copy in addition to the recipient, a name for an id, or a link in the text are not contradictions.

Rules
- An alarm says what is wrong and where; the card shows the complete value below the alarm.
- Alarms are rare: a fact that is true of every call is not an alarm.
- A blind copy that the approved call also had is not an alarm. Only the daemon vouches for that; the copy is shown on the card.

Source: docs/reference/action-file.md (Preview). Not here: reading a preview (approvals/preview.py), letters of hosts (plan.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aileron.actions.references import Argument, pieces
from aileron.actions.summary import as_compared
from aileron.cards.amounts import spoken_number, without_points
from aileron.cards.headline import action_in, quoted
from aileron.cards.letters import look_alikes, with_codes
from aileron.cards.plan import given_of, unknown_of
from aileron.cards.recipients import blind_copies, destinations, is_destination
from aileron.model.json_value import JSON
from aileron.model.timestamp import parse_timestamp, spoken_time
from aileron.model.visible import visible_lines, without_gaps

if TYPE_CHECKING:
    from aileron.cards.compared import Compared
    from aileron.cards.plan import LabelledArgument
    from aileron.model.plan import Plan
    from aileron.model.preview import Preview, PreviewField

__all__ = ["NOT_LOADED", "Alarm", "alarms", "letter_alarms", "spelled"]

_MAX_BRIEF: Final = 100
"""Maximum number of characters of each of two values that contradict each other: two lines of a small terminal. The card shows
the full value."""
_NO_STATE: Final = "current state could not be loaded"
_CANNOT: Final = "what it would do could not be tried, so it cannot be approved"
_MOST_WORDS: Final = 3
"""Maximum number of look-alike words that an alarm lists for one value; one is enough to make a person look."""


class Alarm(NamedTuple):
    """A warning that says what is wrong and where; `brief` is the short form for a row of a list."""

    text: str
    brief: str


NOT_LOADED: Final = Alarm("current state not loaded", "")
"""The alarm that the preview, which shows the current state, has not been loaded yet. Every run with a preview has it,
so rows of a list omit it.
"""


def alarms(plan: Plan, preview: Preview | None, than: Compared) -> Iterator[Alarm]:
    """Yield the alarms of a run's card, the most important first. `than` has the differences from the most similar approved
    call.
    """
    fields: list[PreviewField] = []
    if plan.preview is not None:
        if preview is None:
            yield NOT_LOADED
        elif preview.fields is None:
            yield Alarm(f"{_CANNOT if plan.changes_only_seen else _NO_STATE}: {preview.problem}", "not loaded")
        else:
            fields = preview.fields
            yield from (Alarm(text, "contradiction") for text in _contradictions(fields, plan))
    yield from _another_place(than)
    yield from (Alarm(text, "blind copy") for text in dict.fromkeys(_blind_copies(fields, plan, than)))
    yield from (Alarm(text, "unknown value") for text in unknown_of(plan))
    for argument in given_of(plan):
        yield from letter_alarms(argument.label or argument.name, argument.value)
    for field in fields:
        yield from letter_alarms(field.label, field.value)


def spelled(value: Any) -> str:
    """Return a value as text: a string unchanged, any other value as JSON.

    A string is also returned as JSON if it is empty, has blanks at its ends, or could be taken for another kind of value. A
    float becomes a number with grouped thousands, unless it is too large, too small or not finite for that.
    """
    if isinstance(value, str) and value == value.strip() and value and not _reads_as_json(value):
        return value
    return spoken_number(value) or json.dumps(without_points(value), ensure_ascii=False)


def _contradictions(fields: list[PreviewField], plan: Plan) -> Iterator[str]:
    given = given_of(plan)
    found = {as_compared(field.label): field.value for field in fields if field.value is not None}
    for field in fields:
        label = as_compared(field.label)
        said = [argument for argument in given if label in _names_of(argument)]
        known = [field.value, *([found[f"{label} id"]] if f"{label} id" in found else [])]
        if not said:
            yield from _elsewhere(field, given)
        elif not any(_same(argument.value, value) for argument in said for value in known):
            yield f"{field.label}: the agent said {_brief(said[0].value)}, the service has {_or_nothing(field.value)}"


def _elsewhere(field: PreviewField, given: Iterable[LabelledArgument]) -> Iterator[str]:
    """Yield the text of an alarm if a preview's field names a destination that certainly differs from every destination
    that the agent gave, whatever the arguments' labels are.
    """
    there = destinations(field.value) if is_destination(field.label) else None
    if there is None:
        return
    form, found = there
    told = [
        (argument, destinations(argument.value)) for argument in given if any(map(is_destination, _names_of(argument)))
    ]
    named = [(argument, where[1]) for argument, where in told if where is not None and where[0] == form]
    if named and not any(found & parts for _, parts in named):
        argument = named[0][0]
        said = f"{_brief(argument.value)} ({argument.label or argument.name})"
        yield f"{field.label}: the agent said {said}, the service has {_or_nothing(field.value)}"


def _names_of(argument: LabelledArgument) -> set[str]:
    return {as_compared(name) for name in (argument.name, argument.label) if name}


def _another_place(than: Compared) -> Iterator[Alarm]:
    """Yield an alarm for each account and host that a call uses, but that the most similar approved call did not.
    `than` has their differences.
    """
    for change in than.accounts:
        used = "none" if change.before is None else _brief(change.before)
        yield Alarm(f"another account: {_brief(change.after)}; the approved call used {used}", "another account")
    for change in than.hosts:
        text = f"another destination: {_brief(change.after)}; the approved call did not go there"
        yield Alarm(text, "another destination")


def _blind_copies(fields: Iterable[PreviewField], plan: Plan, than: Compared) -> Iterator[str]:
    """Yield the text of an alarm for each recipient of a blind copy in the arguments and the preview, except those that
    the most similar approved call had.
    """
    handed_on = _handed_on_blind(plan)
    approved: list[JSON] = []
    for argument in given_of(plan):
        names = (argument.name, argument.label or "", *(["bcc"] if argument.name in handed_on else []))
        copies = next((found for name in names if (found := list(blind_copies(name, argument.value)))), [])
        if than.had(argument.name):
            approved += copies
        else:
            yield from map(_blind_copy, copies)
    for field in fields:
        for copy in blind_copies(field.label, field.value):
            if not any(_same(value, copy) for value in approved):
                yield _blind_copy(copy)


def _handed_on_blind(plan: Plan) -> set[str]:
    """Return the names of the call's arguments that a step uses as recipients of blind copies, whatever the arguments
    are called.
    """
    action = action_in(plan.action_text)
    steps = () if action is None else action.steps
    said = (text for step in steps for value in blind_copies("", step.inputs) for text in _texts(value))
    return {piece.name for text in said for piece in pieces(text) if isinstance(piece, Argument)}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for child in value.values() if isinstance(value, dict) else value:
            yield from _texts(child)


def _blind_copy(value: Any) -> str:
    return f"blind copy, hidden from the others: {quoted(value)}"


def _same(value: Any, found: str | None) -> bool:
    if found is None or value is None:
        return found is value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    words, other = " ".join(text.split()), " ".join(found.split())
    return words == other or _is_same_channel(words, other) or _is_same_moment(text, found)


def _is_same_channel(channel: str, other: str) -> bool:
    return f"#{channel}" == other or channel == f"#{other}"


def _is_same_moment(text: str, other: str) -> bool:
    if spoken_time(text) is None or spoken_time(other) is None:
        return False
    moments = parse_timestamp(text), parse_timestamp(other)
    return moments[0] is not None and moments[0] == moments[1]


def _or_nothing(found: str | None) -> str:
    return "nothing" if found is None else _brief(found)


def _brief(value: Any) -> str:
    """Return the beginning of a value as text, and the number of further characters.

    A string is quoted, so that it cannot be taken for the words around it.
    """
    text = with_codes(without_gaps(spelled(value)))
    shown = text if len(text) <= _MAX_BRIEF else f"{text[:_MAX_BRIEF]}… ({len(text) - _MAX_BRIEF:,} more characters)"
    return f"“{shown}”" if isinstance(value, str) and not text.startswith('"') else shown


def letter_alarms(name: str, value: Any) -> Iterator[Alarm]:
    """Yield alarms for look-alike letters and hidden characters in a value or nested in it."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if text.isascii() and text.isprintable():
        return
    if visible_lines(text) != text.replace("\r\n", "\n").replace("\t", "    ").split("\n"):
        yield Alarm(f"“{name}” contains hidden characters, shown below as codes", "hidden characters")
    foreign = list(dict.fromkeys(look_alikes(text)))
    if foreign:
        more = f" and {len(foreign) - _MOST_WORDS} more" if len(foreign) > _MOST_WORDS else ""
        words = f"{', '.join(foreign[:_MOST_WORDS])}{more}"
        yield Alarm(f"“{name}” contains look-alike letters: {words}", "look-alike letters")


def _reads_as_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
