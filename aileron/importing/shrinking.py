"""Shrinking of a rule that is too large for an action. Each cut is reported.

Pure. Every byte of a rule is in the context of a model with each request, so an action has at most 16 KiB of rules. These steps
are applied in order until the rule fits: descriptions are shortened; long enums are replaced by a value whose description names
some choices; descriptions are removed; optional properties are removed, first those that are in no example, the deepest first.

Without its enum, the rule is wider than the document, but the connector checks an argument against the complete list
before anything is sent (docs/adr/0069-the-documents-own-example.md).

Not here: converting a schema to a rule (rules.py), how much room an input has (inputs.py).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from aileron.importing.rules import Lost, Rule, Taken, inner_rule, size_of
from aileron.importing.words import line

__all__ = ["NO_ROOM", "shrunk"]

_FEW_WORDS: Final = 40
"""Maximum number of characters of a description in a rule that is too large."""
_LONG: Final = 160
"""Minimum size in bytes of an enum that a description replaces; the description has about 60."""
_NESTING: Final = frozenset({"properties", "items", "additionalProperties"})
_NAMED: Final = 3
"""Number of choices that are named in the description that replaces an enum."""
NO_ROOM: Final = "an action has no room for it"


def shrunk(taken: Taken, most_bytes: int, used: Sequence[Any] = (), *, keeps_used: bool = False) -> Taken:
    """Return the rule with at most `most_bytes`, or as few bytes as possible, and everything that was cut from it.

    `used` has the document's examples of the value.
    """
    size = size_of(taken.rule)
    if size <= most_bytes:
        return taken
    rule = copy.deepcopy(taken.rule)
    _shorten(rule, _FEW_WORDS)
    lost = [*taken.lost]
    lost += _cut_choices(rule, most_bytes)
    if size_of(rule) > most_bytes:
        _shorten(rule, 0)
    lost += _cut_properties(rule, most_bytes, used, keeps_used=keeps_used)
    return Taken(rule, tuple(lost))


class _Node(NamedTuple):
    """A rule nested in another, with its path there, its examples and its depth."""

    rule: Rule
    at: str
    used: Sequence[Any]
    depth: int


def _nodes(rule: Rule, used: Sequence[Any]) -> Iterator[_Node]:
    """Yield the rule and all rules nested in it, the outermost first."""
    waiting = [_Node(rule, "", used, 0)]
    for node in waiting:
        yield node
        below = node.depth + 1
        for name, inner in node.rule.get("properties", {}).items():
            values = [value[name] for value in node.used if isinstance(value, dict) and name in value]
            waiting.append(_Node(inner_rule(inner), f"{node.at}.{name}", values, below))
        if "items" in node.rule:
            values = [member for value in node.used if isinstance(value, list) for member in value]
            waiting.append(_Node(inner_rule(node.rule["items"]), f"{node.at}[]", values, below))
        if isinstance(more := node.rule.get("additionalProperties"), dict):
            values = [inner for value in node.used if isinstance(value, dict) for inner in value.values()]
            waiting.append(_Node(more, f"{node.at}.*", values, below))


def _shorten(rule: Rule, characters: int) -> None:
    """Cut the descriptions in a rule to `characters`, except those that replace an enum."""
    for node in _nodes(rule, ()):
        words = node.rule.get("description")
        if words is None or words.startswith("One of "):
            continue
        if characters:
            node.rule["description"] = line(words, characters)
        else:
            del node.rule["description"]


def _cut_choices(rule: Rule, most_bytes: int) -> Iterator[Lost]:
    """Replace long enums by a description, the longest first, until the rule has at most `most_bytes`.

    Yield a Lost for each enum that was replaced.
    """
    long = [node for node in _nodes(rule, ()) if size_of(node.rule.get("enum", [])) > _LONG]
    for node in sorted(long, key=lambda node: -size_of(node.rule["enum"])):
        if size_of(rule) <= most_bytes:
            return
        values = node.rule.pop("enum")
        named = ", ".join(line(str(value), 40) for value in values[:_NAMED])
        node.rule["description"] = f"One of {len(values)} values, such as {named}"
        yield Lost(node.at, f"its {len(values)} values are not listed: {NO_ROOM.replace('it', 'them')}")


def _cut_properties(rule: Rule, most_bytes: int, used: Sequence[Any], *, keeps_used: bool) -> list[Lost]:
    """Remove optional properties from a rule while it has more than `most_bytes`, and return what was removed.
    Properties that occur in no example in `used` go first; with `keeps_used`, only they go. Among equals: deeper before
    shallower, then objects and lists before other types, then later before earlier.

    Each object keeps at least one property.
    """
    optional = [
        (not any(isinstance(value, dict) and name in value for value in node.used), node, name)
        for node in _nodes(rule, used)
        for name in node.rule.get("properties", {})
        if name not in node.rule.get("required", ())
    ]
    optional.reverse()
    optional.sort(
        key=lambda candidate: (
            not candidate[0],
            -candidate[1].depth,
            not _NESTING & inner_rule(candidate[1].rule["properties"][candidate[2]]).keys(),
        )
    )
    size = size_of(rule)
    gone: list[str] = []
    for is_unused, node, name in optional:
        if size <= most_bytes or (keeps_used and not is_unused):
            break
        properties = node.rule["properties"]
        if len(properties) > 1:
            size -= size_of({name: properties.pop(name)}) - 1
            gone.append(f"{node.at}.{name}")
    return [Lost(at, NO_ROOM) for at in _outermost(gone)]


def _outermost(places: Sequence[str]) -> list[str]:
    """Return the places that are not inside any other of the places."""
    every = set(places)
    return [at for at in places if not any(at[:end] in every for end, sign in enumerate(at) if sign in ".[")]
