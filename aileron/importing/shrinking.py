"""A rule made smaller: what an action has no room for is cut, and each cut is named.

Pure. Every byte of a rule is in the context of a model with each request, so an action has 16 KiB of them. In this order, until
it fits: descriptions are shortened; long lists of choices become a value whose description says so; descriptions go; optional
properties go, those that no example of the document has before the others, the deepest first.

A list of choices that is cut makes the rule wider than the document: the connector checks an argument against the whole list
before anything is sent (docs/adr/0069-the-documents-own-example.md).

Not here: which rule a schema becomes (rules.py), how much room an input has (inputs.py).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from aileron.importing.rules import Lost, Rule, Taken, size_of
from aileron.importing.words import line

__all__ = ["NO_ROOM", "shrunk"]

_FEW_WORDS: Final = 40
"""Characters of a description when room is short."""
_LONG: Final = 160
"""Bytes of a list of choices from which it is worth cutting: its replacement has about 60."""
_NESTING: Final = frozenset({"properties", "items", "additionalProperties"})
_NAMED: Final = 3
"""Choices that are named in the place of the list."""
NO_ROOM: Final = "an action has no room for it"


def shrunk(taken: Taken, most_bytes: int, used: Sequence[Any] = (), *, keeps_used: bool = False) -> Taken:
    """Return the rule in at most `most_bytes`, or as few as possible. `used`: the document's examples of the value."""
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
    """A rule within the rule, and its place."""

    rule: Rule
    at: str
    used: Sequence[Any]
    depth: int


def _nodes(rule: Rule, used: Sequence[Any]) -> Iterator[_Node]:
    """Yield the rule and all rules within it, the outermost first."""
    waiting = [_Node(rule, "", used, 0)]
    for node in waiting:
        yield node
        below = node.depth + 1
        for name, inner in node.rule.get("properties", {}).items():
            values = [value[name] for value in node.used if isinstance(value, dict) and name in value]
            waiting.append(_Node(inner, f"{node.at}.{name}", values, below))
        if "items" in node.rule:
            values = [member for value in node.used if isinstance(value, list) for member in value]
            waiting.append(_Node(node.rule["items"], f"{node.at}[]", values, below))
        if isinstance(more := node.rule.get("additionalProperties"), dict):
            values = [inner for value in node.used if isinstance(value, dict) for inner in value.values()]
            waiting.append(_Node(more, f"{node.at}.*", values, below))


def _shorten(rule: Rule, characters: int) -> None:
    """Cut descriptions to `characters`; those that stand for choices stay."""
    for node in _nodes(rule, ()):
        words = node.rule.get("description")
        if words is None or words.startswith("One of "):
            continue
        if characters:
            node.rule["description"] = line(words, characters)
        else:
            del node.rule["description"]


def _cut_choices(rule: Rule, most_bytes: int) -> Iterator[Lost]:
    """Cut long lists of choices, the longest first, and yield each."""
    long = [node for node in _nodes(rule, ()) if size_of(node.rule.get("enum", [])) > _LONG]
    for node in sorted(long, key=lambda node: -size_of(node.rule["enum"])):
        if size_of(rule) <= most_bytes:
            return
        values = node.rule.pop("enum")
        named = ", ".join(line(str(value), 40) for value in values[:_NAMED])
        node.rule["description"] = f"One of {len(values)} values, such as {named}"
        yield Lost(node.at, f"its {len(values)} values are not listed: {NO_ROOM.replace('it', 'them')}")


def _cut_properties(rule: Rule, most_bytes: int, used: Sequence[Any], *, keeps_used: bool) -> list[Lost]:
    """Cut optional properties: first those in no example, of these the deepest, then those with objects and lists, then the last.

    Each object keeps one.
    """
    optional = [
        (not any(isinstance(value, dict) and name in value for value in node.used), node, name)
        for node in _nodes(rule, used)
        for name in node.rule.get("properties", {})
        if name not in node.rule.get("required", ())
    ]
    optional.reverse()
    optional.sort(key=lambda one: (not one[0], -one[1].depth, not _NESTING & one[1].rule["properties"][one[2]].keys()))
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
    """Return the places that are in none of the others."""
    every = set(places)
    return [at for at in places if not any(at[:end] in every for end, sign in enumerate(at) if sign in ".[")]
