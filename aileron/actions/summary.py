"""The `summary` of an action file: a sentence that says what a call does, with placeholders for its values.

Pure. The words are the author's. A placeholder in braces is replaced by the preview's value under that label, or by the argument
of that name; a part in brackets is left out if one of its placeholders has no value. Values are never scanned again, so that no
value can add a placeholder. The code that inserts values must quote them, so that none can be taken for the author's words.

    Delete {title}[, {starts}]        Delete “Dentist”, “Tue 24 Nov, 10:00”

Source: docs/reference/action-file.md (The summary). Not here: inserting the values (cards/).

>>> template_of("Delete {title}")
(Words(text='Delete ', group=None), Place(name='title', group=None))
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, TypeAlias

__all__ = ["MAX_SUMMARY", "Part", "Place", "Words", "as_compared", "is_same_name", "template_of"]

MAX_SUMMARY: Final = 120
"""Maximum number of characters of a summary, so that a person can read it with its values at a glance."""
_TOKEN: Final = re.compile(r"\{(?P<name>[^{}\[\]]{1,64})\}|(?P<sign>[{}\[\]])|(?P<words>[^{}\[\]]+)")
_QUOTES: Final = frozenset('"“”„«»')


class Words(NamedTuple):
    """Literal text of a summary. `group` is the number of the bracketed part that it is in; None outside brackets."""

    text: str
    group: int | None


class Place(NamedTuple):
    """A placeholder for a value. `group` is the number of the bracketed part that it is in; None outside brackets."""

    name: str
    group: int | None

    @property
    def is_optional(self) -> bool:
        """True if the placeholder may remain without a value."""
        return self.group is not None


Part: TypeAlias = Words | Place


def template_of(text: str) -> tuple[Part, ...]:
    """Return the literal texts and placeholders of a summary in order.

    Raises ValueError for a text that is too long or contains a quote, and for an unclosed, nested or empty brace or bracket.
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
    """Return a name normalised for comparison: without case, and with spaces for `_` and `-`."""
    return " ".join(name.casefold().replace("_", " ").replace("-", " ").split())


def is_same_name(first: str, other: str) -> bool:
    """Return whether two names of placeholders, arguments or labels are the same when normalised."""
    return as_compared(first) == as_compared(other)
