"""The headline: one sentence that says what would happen. It is a card's first line and a list row's title.

Pure. The sentence's words are from the action's author (actions/summary.py), or from Aileron if the file has no summary. Its
values are untrusted, and each states its source: the service, if the preview was read, or the agent. A text value is always
quoted, and cannot close the quotes, so that no value can continue the sentence.

    Delete “Dentist”, Tue 24 Nov 2026, 10:00 CET

Rules
- If the preview found a value under a placeholder's name, that value is shown, and never the agent's.
- Without a summary, the sentence is the operation, then the arguments that tell this call from others; never an id or date first.
- In a list, all values are the agent's, because no preview was read for the list, and nothing in it is signed.

Source: docs/reference/action-file.md (The summary). Not here: the facts to decide by (card.py), how the sentence looks.
"""

from __future__ import annotations

import enum
import functools
import json
import os.path
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from aileron.actions.summary import Part, Words, as_compared, template_of
from aileron.cards.amounts import spoken_number, without_points
from aileron.cards.letters import with_codes
from aileron.cards.several import several
from aileron.model.failure import AileronError
from aileron.model.json_value import JSON, JSONObject
from aileron.model.timestamp import spoken_time
from aileron.model.visible import visible, without_gaps

if TYPE_CHECKING:
    from aileron.model.manifest import ActionFile
    from aileron.model.plan import Plan
    from aileron.model.preview import Preview

__all__ = ["Origin", "Span", "action_in", "cut_to_row", "headline_of", "quoted", "rows_of", "source_of", "spelled_out"]

_MAX_VALUE: Final = 60
"""Maximum number of characters of one value in a sentence: a title, an address, or the beginning of a text."""
_MAX_LOOKED: Final = 8192
"""Maximum number of characters that are read to find the beginning of a padded value. Reading them takes about 0.1 ms."""
_MAX_ROW_VALUE: Final = 32
_MAX_ROW: Final = 160
"""Maximum number of characters of a list's row; no list is wider."""
_MOST: Final = 3
"""Maximum number of arguments in the headline of an action without a summary."""
_BEFORE: Final = 6
"""Number of characters shown before the first character in which two values of a list differ."""
_TITLES: Final = ("title", "subject", "name", "summary", "to", "recipient", "recipients", "channel", "text", "query")
_IS_ID: Final = re.compile(r"(.*_)?(id|uid|uuid|guid|key|hash|etag|href)", re.IGNORECASE)
_CLOSING: Final = str.maketrans(dict.fromkeys('"“”„‟«»〝〞＂❝❞', "'"))


class Origin(enum.StrEnum):
    """The source of a part of a headline."""

    WORDS = "words"
    """Source: the author of the action, or this program."""
    SAID = "said"
    """Source: the agent, in an argument that was not verified."""
    FOUND = "found"
    """Source: the service, when the preview was read."""
    MISSING = "missing"
    """The value is missing: it is known to be empty, or it is only in the preview, which was not read."""


class Span(msgspec.Struct, frozen=True):
    """A part of a headline, safe to print. `name` is set only if the part is a value."""

    text: str
    origin: Origin = Origin.WORDS
    name: str = ""


def headline_of(plan: Plan, preview: Preview | None) -> tuple[Span, ...]:
    """Return the headline for a plan. If the preview was read, its values fill placeholders of the action's summary."""
    action = action_in(plan.action_text)
    fields = () if preview is None else preview.fields or ()
    values = _Values(plan.args, {as_compared(field.label): field.value for field in fields}, _labels_in(action))
    if action is not None and action.summary is not None:
        return tuple(_filled(template_of(action.summary), values))
    ops = [step.op for step in plan.steps]
    return tuple(_made_up(ops, values, _by_weight(plan.args)[:_MOST]))


def source_of(spans: Iterable[Span], *, is_edited: bool = False) -> str:
    """Return words for the sources of a sentence's values; empty if it has no values.

    `is_edited` means that the person changed the request.
    """
    by_origin: dict[Origin, list[str]] = {}
    for span in spans:
        if span.name:
            by_origin.setdefault(span.origin, []).append(span.name)
    said, found, missing = (by_origin.get(origin, []) for origin in (Origin.SAID, Origin.FOUND, Origin.MISSING))
    parts = []
    if found:
        parts.append("from the service" if not said else f"from the service: {', '.join(found)}")
    if said:
        agent = "from the agent, with your edit" if is_edited else "from the agent"
        parts.append(f"the rest {agent}" if found else f"{agent}, not checked")
    if missing:
        parts.append(f"not loaded: {', '.join(missing)}")
    return " · ".join(parts)


def spelled_out(spans: Iterable[Span]) -> str:
    """Return the parts of a headline joined to one text."""
    return "".join(span.text for span in spans)


@functools.lru_cache(maxsize=64)  # files of at most 256 KiB; a list has many questions about few actions
def action_in(text: str) -> ActionFile | None:
    """Return the action in the text of an action file, installed or not.

    None if the text cannot be parsed, for example because it is for another version of Aileron.
    """
    from aileron.actions.manifest import parse_action  # TOML and patterns, 8 ms

    try:
        return parse_action(text, file="the action", allow_placeholder=True)
    except AileronError:
        return None


def _labels_in(action: ActionFile | None) -> dict[str, str]:
    """Return each argument's label by the argument's name: the author's label or, if there is none, the name itself."""
    return {} if action is None else {spec.name: spec.label or spec.name for spec in action.inputs}


class _Values(msgspec.Struct, frozen=True):
    """Values for the placeholders of an action's summary.

    `found` has the preview's values by normalised label (`as_compared`); `labels` has labels by argument.
    """

    args: Mapping[str, JSON]
    found: Mapping[str, str | None]
    labels: Mapping[str, str]

    def span(self, name: str, most: int = _MAX_VALUE) -> Span | None:
        """Return the value that fills the placeholder `name`, with its source; None if it is known to be empty."""
        argument = self._argument(name)
        for known in (name, *(() if argument is None else (argument, self.labels.get(argument, argument)))):
            if as_compared(known) in self.found:
                value = self.found[as_compared(known)]
                return None if value is None else Span(quoted(value, most), Origin.FOUND, visible(name))
        if argument is not None and argument in self.args:
            said = self.args[argument]
            return None if said is None else Span(quoted(said, most, argument), Origin.SAID, visible(name))
        is_unread = not self.found and argument is None
        return Span(f"({visible(name)} not loaded)", Origin.MISSING, visible(name)) if is_unread else None

    def _argument(self, name: str) -> str | None:
        """Return the name of the argument that a placeholder refers to: the one with exactly this name or, if there is
        none, one with an equivalent name.

        None if there is no such argument.
        """
        known = {*self.args, *self.labels}
        return (
            name
            if name in known
            else next((argument for argument in sorted(known) if as_compared(argument) == as_compared(name)), None)
        )


def _filled(template: Sequence[Part], values: _Values, most: int = _MAX_VALUE) -> Iterator[Span]:
    spans = {part: values.span(part.name, most) for part in template if not isinstance(part, Words)}
    empty = {part.group for part, span in spans.items() if span is None or span.origin is Origin.MISSING}
    for part in template:
        if part.group is not None and part.group in empty:
            continue
        if isinstance(part, Words):
            yield Span(visible(part.text))
        else:
            yield spans[part] or Span("(nothing)", Origin.MISSING, visible(part.name))


def _made_up(ops: Iterable[str], values: _Values, names: Iterable[str], most: int = _MAX_VALUE) -> Iterator[Span]:
    """Yield the parts of a headline for an action without a summary, made from its operations `ops` and the arguments
    `names`.

    The parts are the operations' names, and the arguments that distinguish this call from others.
    """
    said = ", then ".join(visible(op.replace("_", " ")) for op in ops)
    yield Span(said[:1].upper() + said[1:])
    before = ": "
    for name in names:
        span = values.span(name, most)
        if span is not None:
            yield Span(f"{before}{visible(name)} ")
            yield span
            before = ", "


def _by_weight(args: Mapping[str, JSON], telling: Iterable[str] = ()) -> list[str]:
    """Return the arguments' names; first those whose values show what the call is about: titles, then short values that
    differ between calls (`telling`).

    Ids and dates come last.
    """
    telling = set(telling)

    def rank(name: str) -> tuple[bool, int, bool, bool, str]:
        value = args[name]
        title = _TITLES.index(name) if name in _TITLES else len(_TITLES)
        is_poor = _IS_ID.fullmatch(name) is not None or spoken_time(value) is not None
        return is_poor, title, name not in telling, len(str(value)) > _MAX_VALUE, name

    return sorted((name for name, value in args.items() if value is not None), key=rank)


def quoted(value: Any, most: int = _MAX_VALUE, name: str = "") -> str:
    """Format one value safely: a text in quotes that it cannot close, a time in the person's own zone, an amount, or else JSON.

    For several values, return the first and the number of others. `name` is the name of the argument.
    """
    if (moment := spoken_time(value)) is not None:
        return moment
    if (found := several(value)) is not None:
        return f"{quoted(found.parts[0], most)} and {len(found.parts) - 1:,} more"
    if (number := spoken_number(value, name)) is not None:
        return number
    if not isinstance(value, str):
        return _beginning(_json(without_points(value)), most)
    return f"“{_beginning(value, most).translate(_CLOSING)}”"


def _beginning(text: str, most: int) -> str:
    """Return at most `most` escaped characters of a text. A cut is visible, and no padding can hide the text after it."""
    line = without_gaps(text[:_MAX_LOOKED].replace("\n", " ").strip())
    shown = visible(with_codes(line[: most + 1])) + ("…" if text[_MAX_LOOKED:].strip() else "")
    return _cut(shown, most)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))  # also with half a surrogate pair in it


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


class _Asked(msgspec.Struct):
    """The fields of a stored plan that are needed for its row in a list."""

    args: JSONObject = {}
    action_text: str = ""
    steps: list[_AskedStep] = []


class _AskedStep(msgspec.Struct):
    """The fields of a stored step that are needed for a row: the operation's name."""

    op: str = ""


def rows_of(asked: Iterable[tuple[str, str, bytes | None]]) -> dict[str, str]:
    """Return a dict from each question's id to its sentence with the agent's arguments, at most 160 characters long.

    `asked` has the id, action and stored plan of each question. Rows about one action that would have the same text also get
    the arguments that tell them apart. Questions without a plan have no row.
    """
    plans = {name: (action, plan) for name, action, stored in asked if (plan := _plan_in(stored)) is not None}
    by_action: dict[str, list[Mapping[str, JSON]]] = {}
    for action, plan in plans.values():
        by_action.setdefault(action, []).append(plan.args)
    telling = {action: _telling(calls) for action, calls in by_action.items()}
    rows = {name: _row(plan, telling[action]) for name, (action, plan) in plans.items()}
    alike = _alike(rows)
    for name in alike:
        action, plan = plans[name]
        rows[name] = _told_apart(rows[name], plan.args, telling[action])
    return {name: cut_to_row(row) for name, row in rows.items()}


def cut_to_row(sentence: str) -> str:
    """Return a sentence cut to at most 160 characters."""
    return _cut(sentence, _MAX_ROW)


def _plan_in(stored: bytes | None) -> _Asked | None:
    try:
        return None if stored is None else msgspec.json.decode(stored, type=_Asked)
    except msgspec.DecodeError:
        return None


def _row(plan: _Asked, telling: Mapping[str, int]) -> str:
    action = action_in(plan.action_text)
    values = _Values(plan.args, {}, _labels_in(action))
    if action is not None and action.summary is not None:
        return spelled_out(_filled(template_of(action.summary), values, _MAX_ROW_VALUE))
    names = _by_weight(plan.args, telling)[:_MOST]
    return spelled_out(_made_up([step.op for step in plan.steps], values, names, _MAX_ROW_VALUE))


def _alike(rows: Mapping[str, str]) -> list[str]:
    """Return the ids of the rows whose text equals that of another row."""
    by_text: dict[str, list[str]] = {}
    for name, row in rows.items():
        by_text.setdefault(row, []).append(name)
    return [name for names in by_text.values() if len(names) > 1 for name in names]


def _told_apart(row: str, args: Mapping[str, JSON], telling: Mapping[str, int]) -> str:
    more = [
        f"{visible(name)} {_from(args[name], telling[name], name)}"
        for name in _by_weight(args, telling)
        if name in telling
    ]
    return f"{row} · {', '.join(more)}" if more else row


def _from(value: Any, at: int, name: str) -> str:
    """Return the part of a value around the character at index `at`, the first that differs between the rows of a list."""
    if (number := spoken_number(value, name)) is not None:
        return number
    text = value if isinstance(value, str) else _json(value)
    begin = 0 if at < _MAX_ROW_VALUE - 1 or at >= len(text) else at - _BEFORE
    return quoted(("…" if begin else "") + text[begin:], _MAX_ROW_VALUE)


def _telling(calls: Sequence[Mapping[str, JSON]]) -> dict[str, int]:
    """Return the names of the arguments that are not the same in all calls, each with the index of the first character
    in which its values differ.
    """
    spelled = [
        {name: value if isinstance(value, str) else _json(value) for name, value in args.items()} for args in calls
    ]
    names = {name for args in spelled for name in args}
    values = {name: {args[name] for args in spelled if name in args} for name in names}
    return {
        name: len(os.path.commonprefix(list(some)))  # noqa: RUF071 - character by character
        for name, some in values.items()
        if len(some) > 1 or any(name not in args for args in spelled)
    }
