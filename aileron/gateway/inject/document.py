r"""A JSON object as text, with the position of each member, so that parts can be inserted and all other text stays unchanged,
byte for byte.

A provider's prompt cache compares the text of a request with that of earlier requests. Decoding and encoding a value
could change its text, such as the form of a number or an escape, so unchanged values are never encoded again.

Rules
- Text that two programs could read differently is rejected: a name that occurs twice, `NaN`, a number that is too long.
- A value is parsed once. If a member is an array, its elements are parsed one by one.
- A text with more than MAX_PARTS members or elements, or about MAX_VALUES values, is not read, because a value takes
  many times the memory of its text.

>>> document = Document.of('{"model": "m", "tools": []}')
>>> spliced(document.text, [document.append("tools", ['{"name":"a"}'])])
'{"model": "m", "tools": [{"name":"a"}]}'

Pure. Source: RFC 8259. Not here: what a member means (anthropic_messages.py, chat.py, responses.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from json.decoder import scanstring  # type: ignore[attr-defined]  # in every release, and in no stub
from typing import Final, NamedTuple, NoReturn, Self

from aileron.model.json_value import JSON, JSONObject, dict_of

__all__ = ["MAX_PARTS", "MAX_VALUES", "Document", "Edit", "TooManyError", "Value", "encoded", "loaded", "spliced"]

MAX_PARTS: Final = 16_384
"""Maximum number of members of an object, and of elements of each array in it, whose positions are stored. A day's
conversation has a few thousand messages.
"""
MAX_VALUES: Final = 1 << 19
"""Maximum number of `[`, `{` and `,` in a JSON text, strings included; a text has about as many values at most. A value
takes 100 bytes of memory, and decoding the maximum blocks all other threads for a tenth of a second. Three megabytes of
a conversation about code have at most 200,000.
"""

_SPACE: Final = re.compile(r"[ \t\n\r]*")


class TooManyError(ValueError):
    """Error: a JSON text has too many values or parts to be read. The message is Aileron's own, without text of the
    JSON.
    """


class Edit(NamedTuple):
    """An edit of a text: the replacement of the characters from index `start` to `end` by `text`; an insertion if the
    two indices are equal.
    """

    start: int
    end: int
    text: str


class Value(NamedTuple):
    """A JSON value, and the indices of its start and end in the text. `elements` are the elements of an array."""

    start: int
    end: int
    value: JSON
    elements: tuple[Value, ...] = ()

    @property
    def members(self) -> JSONObject:
        """The members of the value if it is an object; an empty dictionary if it is not."""
        return dict_of(self.value)


class Document:
    """A JSON object: its members in their order, and the indices `start` and `end` of the object in `text`."""

    def __init__(self, text: str, start: int, end: int, members: dict[str, Value]) -> None:
        self.text: Final = text
        self.start: Final = start
        self.end: Final = end
        self._members: Final = members

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the JSON object that makes up the complete text. Raises ValueError, which does not quote the text, if
        the text is not such an object.
        """
        _check_values(text, MAX_VALUES)
        document = cls.at(text, _skip(text, 0))
        if _skip(text, document.end) != len(text):
            raise ValueError("something comes after the object")
        return document

    @classmethod
    def at(cls, text: str, start: int) -> Self:
        """Return the JSON object that begins at the index `start`. Raises ValueError if no object begins there."""
        try:
            end, members = _members(text, start)
        except TooManyError:
            raise
        except (ValueError, RecursionError, IndexError):
            raise ValueError("not a JSON object that has each name once") from None
        return cls(text, start, end, members)

    def get(self, name: str) -> JSON:
        """Return the value of the member `name`; None if there is no such member."""
        found = self._members.get(name)
        return None if found is None else found.value

    def find(self, name: str) -> Value | None:
        """Return a member's value with its start and end in the text; None if there is no such member."""
        return self._members.get(name)

    def elements(self, name: str) -> tuple[Value, ...]:
        """Return the elements of the member `name`, which should be an array; none if it is not."""
        found = self._members.get(name)
        return () if found is None else found.elements

    def put(self, name: str, text: str) -> Edit:
        """Return the edit that sets the member `name` to the JSON in `text`: it replaces the member's value, or adds
        the member at the end.
        """
        found = self._members.get(name)
        if found is not None:
            return Edit(found.start, found.end, text)
        at = self.end - 1
        return Edit(at, at, f"{',' if self._members else ''}{json.dumps(name)}:{text}")

    def append(self, name: str, elements: Sequence[str]) -> Edit:
        """Return the edit that appends elements, as JSON, to the array in the member `name`. If the member is missing
        or null, the edit creates the array.
        """
        found = self._members.get(name)
        if found is None or found.value is None:
            return self.put(name, f"[{','.join(elements)}]")
        if not isinstance(found.value, list):
            raise TypeError(f"{name} is no array")
        at = found.end - 1
        return Edit(at, at, ("," if found.elements and elements else "") + ",".join(elements))


def spliced(text: str, edits: Sequence[Edit]) -> str:
    """Return `text` with all edits applied; edits at the same place are applied in their order. Raises ValueError if
    two edits overlap.
    """
    parts: list[str] = []
    at = 0
    for edit in sorted(edits, key=lambda edit: edit[:2]):
        if edit.start < at:
            raise ValueError("two edits of the same place")
        parts += (text[at : edit.start], edit.text)
        at = edit.end
    return "".join([*parts, text[at:]])


def encoded(value: object) -> str:
    """Encode a value as compact ASCII JSON. Members keep their order, so that equal values give equal text. Raises
    ValueError for a number that JSON cannot represent.
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def loaded(text: str, most: int = MAX_VALUES) -> JSON:
    """Decode any JSON with at most `most` values. Raises json.JSONDecodeError for text that is not JSON. Raises another
    ValueError, or RecursionError, for JSON that other programs could read otherwise: NaN, too many values, a number
    that is too long, nesting that is too deep.
    """
    _check_values(text, most)
    value: JSON = _DECODER.decode(text)
    return value


def _check_values(text: str, most: int) -> None:
    if sum(map(text.count, "[{,")) > most:
        raise TooManyError(f"it has more than {most} values")


def _check_parts(number: int) -> None:
    if number >= MAX_PARTS:
        raise TooManyError(f"it has more than {MAX_PARTS} members, or elements in one of them")


def _members(text: str, start: int) -> tuple[int, dict[str, Value]]:
    members: dict[str, Value] = {}
    at = _skip(text, _expect(text, start, "{"))
    while text[at] != "}":
        if members:
            at = _skip(text, _expect(text, at, ","))
        name, at = scanstring(text, _expect(text, at, '"'), True)
        if name in members:
            raise ValueError("a name twice")
        _check_parts(len(members))
        at = _skip(text, _expect(text, _skip(text, at), ":"))
        members[name] = _value(text, at)
        at = _skip(text, members[name].end)
    return at + 1, members


def _value(text: str, start: int) -> Value:
    if text[start] != "[":
        value, end = _DECODER.raw_decode(text, start)
        return Value(start, end, value)
    elements: list[Value] = []
    at = _skip(text, start + 1)
    while text[at] != "]":
        if elements:
            at = _skip(text, _expect(text, at, ","))
        _check_parts(len(elements))
        value, end = _DECODER.raw_decode(text, at)
        elements.append(Value(at, end, value))
        at = _skip(text, end)
    return Value(start, at + 1, [element.value for element in elements], tuple(elements))


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _expect(text: str, at: int, character: str) -> int:
    if text[at] != character:
        raise ValueError(f"{character} is missing")
    return at + 1


def _refuse(_constant: str) -> NoReturn:
    raise ValueError("no number of JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse)
