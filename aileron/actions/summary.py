"""The `summary` of an action file: what a call does, in a sentence with places for its values.

Pure. Words are the author's. A place in braces is filled with what the preview found under that label, or with the argument
of that name; a part in brackets is left out where one of its places has nothing. Values are never looked at again, so that none
can add a place; who fills them in puts them in quotes, so that none can pass for the author's words.

    Delete {title}[, {starts}]        Delete “Dentist”, “Tue 24 Nov, 10:00”

Source: docs/reference/action-file.md (The summary). Not here: filling it (review/).

>>> template_of("Delete {title}")
(Words(text='Delete ', group=None), Place(name='title', group=None))
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, TypeAlias

__all__ = ["MAX_SUMMARY", "Part", "Place", "Words", "as_compared", "is_same_name", "template_of"]

MAX_SUMMARY: Final = 120
"""Characters: with its values it is read at a glance."""
_TOKEN: Final = re.compile(r"\{(?P<name>[^{}\[\]]{1,64})\}|(?P<sign>[{}\[\]])|(?P<words>[^{}\[\]]+)")
_QUOTES: Final = frozenset('"“”„«»')


class Words(NamedTuple):
    """The author's, as they stand. `group`: which bracket they stand in; None: in none."""

    text: str
    group: int | None


class Place(NamedTuple):
    """Where a value comes in."""

    name: str
    group: int | None

    @property
    def is_optional(self) -> bool:
        """Whether it may have nothing."""
        return self.group is not None


Part: TypeAlias = Words | Place


def template_of(text: str) -> tuple[Part, ...]:
    """Its parts in order. ValueError for one that is too long or has a quote; for an open, nested or empty brace or bracket."""
    if len(text) > MAX_SUMMARY:
        raise ValueError(f"{len(text)} characters, not 1 to {MAX_SUMMARY}")
    if quotes := sorted(_QUOTES & set(text)):
        raise ValueError(f"{quotes[0]} is not allowed in a summary: values are quoted automatically")
    parts: list[Part] = []
    group, groups = None, 0
    for token in _TOKEN.finditer(text):
        if token["sign"] is None:
            parts.append(Place(token["name"].strip(), group) if token["name"] else Words(token["words"], group))
        elif token["sign"] == "[" and group is None:
            group = groups = groups + 1
        elif token["sign"] == "]" and group is not None:
            _check_group(parts, group)
            group = None
        else:
            raise ValueError(
                f"unmatched {token['sign']!r} at character {token.start() + 1}; use {{NAME}} and […] in pairs"
            )
    if group is not None:
        raise ValueError("'[' without ']'")
    return tuple(parts)


def _check_group(parts: list[Part], group: int) -> None:
    if not any(isinstance(part, Place) and part.group == group for part in parts):
        raise ValueError("'[…]' without a {NAME} is never left out: write it without brackets")


def as_compared(name: str) -> str:
    """A name as it is compared: case, and whether words are joined by spaces, `_` or `-`, does not count."""
    return " ".join(name.casefold().replace("_", " ").replace("-", " ").split())


def is_same_name(one: str, other: str) -> bool:
    """Whether a place, an argument or a label mean the same."""
    return as_compared(one) == as_compared(other)
