"""The `summary` of an action file: a sentence that says what a call does, with places for its values.

Pure. Words are the author's. A place in braces is filled with what the preview found under that label, or with the argument
of that name; a part in brackets is left out if one of its places has no value. Values are never scanned again, so that none can
add a place. The code that fills them in must quote them, so that none can pass for the author's words.

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
"""Characters of a summary: with its values it is read at a glance."""
_TOKEN: Final = re.compile(r"\{(?P<name>[^{}\[\]]{1,64})\}|(?P<sign>[{}\[\]])|(?P<words>[^{}\[\]]+)")
_QUOTES: Final = frozenset('"“”„«»')


class Words(NamedTuple):
    """Words of the author, unchanged. `group` is the number of the bracket that they stand in; None outside brackets."""

    text: str
    group: int | None


class Place(NamedTuple):
    """A place for a value. `group` is as for words."""

    name: str
    group: int | None

    @property
    def is_optional(self) -> bool:
        """True if the place can be without a value."""
        return self.group is not None


Part: TypeAlias = Words | Place


def template_of(text: str) -> tuple[Part, ...]:
    """Return the parts of a summary in order.

    ValueError for a text that is too long or has a quote, and for an open, nested or empty brace or bracket.
    """
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
    """Return a name in the form that is compared: without case, and with spaces for `_` and `-`."""
    return " ".join(name.casefold().replace("_", " ").replace("-", " ").split())


def is_same_name(one: str, other: str) -> bool:
    """Return whether two names of a place, an argument or a label mean the same."""
    return as_compared(one) == as_compared(other)
