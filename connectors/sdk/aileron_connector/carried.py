r"""Conversion of values to values that a frame can represent, so that a result is not lost because of one large number
or a lone surrogate.

    told = carried(parsed(b'{"units": 100000000000000000000, "name": "\\ud83d"}'))
    told.value          # {"units": "100000000000000000000", "name": "\ufffd"}
    told.changes        # ['.units is a number that is given as text', '.name has what …']

Runs in the jail. Bytes and values come from a service and are not trusted.

Rules
- A number that no frame can carry (an integer of more than 64 bits, 1e400, NaN) becomes the text that the service wrote.
- Half of a surrogate pair, and a byte that is not UTF-8, become U+FFFD.
- Values nested deeper than a frame allows become the text of their JSON.
- Each change is described with the path of the value, but without the value. At most _MAX_CHANGES are described; the
  others are counted.
- A value of a type that JSON does not have raises TypeError with its path.

Source: RFC 8259, sections 6, 8.2 and 9. Not here: values that do not fit a schema (check.py) or are too large (the caller).
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple, NoReturn

import msgspec

from aileron_sandbox.frames import FrameError, JSONObject, check_json
from aileron_sandbox.frames.codec import MAX_DEPTH

__all__ = [
    "MARK",
    "Carried",
    "LargeNumber",
    "carried",
    "marked",
    "parsed",
    "place_of",
    "quoted",
    "read_json",
    "recordable",
]

_MAX_CHANGES: Final = 5
_LEAST_INT: Final = -(1 << 63)
_MOST_INT: Final = (1 << 64) - 1
_MOST_RECORDED: Final = (1 << 53) - 1
"""Largest integer that the audit record can hold. The record is canonical JSON, whose numbers are doubles (RFC 8785,
section 3.2.2.3).
"""
_MAX_DIGITS: Final = 4_000
"""Maximum number of digits of a number that is read as an integer. Python refuses more than 4,300 because of the time they
take.
"""
_ROOM: Final = 2
"""Levels of nesting that a frame itself adds around a value."""
_Path = tuple[str | int, ...]
MARK: Final = "does_not_fit"
"""Key that is added to an output if the output does not fit the schema, the protocol or a frame. Its value says where
and why.
"""
_MAX_NAME: Final = 64
_MAX_PLACE: Final = 200
"""Maximum number of characters of a path in a value, in a message for people."""


class LargeNumber(float):
    """A JSON number that no finite float can represent: a float subclass (infinity or NaN) that stores the number's text."""

    def __new__(cls, text: str) -> LargeNumber:
        """Make the infinity or NaN that stands for `text`, a number as the service wrote it."""
        return super().__new__(cls, "nan" if text == "NaN" else "-inf" if text[:1] == "-" else "inf")

    def __init__(self, text: str) -> None:
        self._text: Final = text

    def __str__(self) -> str:
        return self._text

    def is_integer(self) -> bool:
        """Return whether the number may be an integer, judged by whether its text ends in a digit. True for 1e400."""
        return self._text[-1:].isdigit()


def read_json(data: bytes, kind: Any = Any) -> Any:
    """Decode the JSON in `data` as the type `kind`, such as a Struct. If that fails, replace the values that no frame
    can represent, and try again.

    Raises the errors of msgspec.json.decode: DecodeError if `data` is not JSON, ValidationError if it is not of type
    `kind`.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        value = carried(parsed(data)).value
    except ValueError:
        raise msgspec.DecodeError("not JSON") from None
    return msgspec.convert(value, kind)


class Carried(NamedTuple):
    """A value that a frame can carry, and the changes that were made to the original value so that it fits."""

    value: Any
    changes: list[str]


def parsed(data: bytes, text: str | None = None) -> Any:
    """Parse the JSON in `data`, and accept values that msgspec refuses. Pass the decoded text as `text` if its charset
    is not UTF-8. Raises ValueError if the data is not JSON.

    Returned strings may contain surrogates, which stand for halves of characters and for bytes that are not UTF-8. Returned
    numbers may be LargeNumber.
    """
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _parsed_tolerantly(
            data.decode("utf-8", "surrogateescape") if text is None else text.removeprefix("\ufeff")
        )


def _parsed_tolerantly(text: str) -> Any:
    import json  # only for what the fast decoder refuses

    decoder = json.JSONDecoder(parse_float=_float, parse_int=_int, parse_constant=LargeNumber, strict=False)
    try:
        return decoder.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _float(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else LargeNumber(text)


def _int(text: str) -> int | float:
    return int(text) if len(text) <= _MAX_DIGITS else LargeNumber(text)


def carried(value: Any) -> Carried:
    """Convert `value` to a value that a frame can carry. Raises TypeError if `value` is not a JSON value, or contains itself."""
    try:
        check_json([[value]])  # _ROOM
        msgspec.msgpack.encode(value)
    except (FrameError, TypeError, ValueError, OverflowError, RecursionError):
        changes = _Changes()
        return Carried(_Carrying(changes).of(value, ()), changes.told())
    return Carried(value, [])


def recordable(fields: JSONObject) -> JSONObject:
    """Convert `fields` to values that the audit record can hold; ids of 64 bits become text. Raises TypeError as `carried`
    does.
    """
    told: JSONObject = _Carrying(_Changes(), -_MOST_RECORDED, _MOST_RECORDED).of(fields, ())
    return told


def place_of(path: _Path) -> str:
    """Return the path of a value inside another value as text, such as `.items[3].state`; empty for the outer value itself."""
    return "".join(map(_step, path))


def quoted(name: str) -> str:
    """Return at most _MAX_NAME characters of a name, in JSON's quotation marks."""
    short = name if len(name) <= _MAX_NAME else name[:_MAX_NAME] + "…"
    return msgspec.json.encode(short.encode("utf-8", "replace").decode()).decode()


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    is_plain = len(step) <= _MAX_NAME and step.isascii() and step.isidentifier()
    return f".{step}" if is_plain else f"[{quoted(step)}]"


def marked(value: Any, words: list[str]) -> Any:
    """Return `value` with the list `words` under the key MARK. A value that is not an object is put into a new object.
    If `words` is empty, return `value` unchanged.
    """
    if not words:
        return value
    told = dict(value) if isinstance(value, dict) else {"value": value}
    key = MARK
    while key in told:
        key = f"aileron_{key}"
    return {**told, key: "; ".join(words)}


class _Changes:
    """Record of the changes that were made to a value, in order. Changes beyond _MAX_CHANGES are only counted."""

    def __init__(self) -> None:
        self._named: Final[list[str]] = []
        self._more = 0

    def note(self, path: _Path, words: str) -> None:
        if len(self._named) < _MAX_CHANGES:
            self._named.append(f"{_shown(path)} {words}")
        else:
            self._more += 1

    def told(self) -> list[str]:
        return [*self._named, f"and {self._more} more"] if self._more else self._named


class _Carrying:
    """A walk over one value that replaces everything that no frame can represent. Each instance serves for one value
    only.
    """

    def __init__(self, changes: _Changes, least: int = _LEAST_INT, most: int = _MOST_INT) -> None:
        self._changes: Final = changes
        self._least: Final = least
        self._most: Final = most

    def of(self, value: Any, path: _Path) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self._text(value, path, "has what is no character, which is given as U+FFFD")
        if isinstance(value, int):
            return int(value) if self._least <= value <= self._most else self._number(_digits(value), path)
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else self._number(str(value), path)
        if not isinstance(value, dict | list | tuple):
            _refuse(value, path)
        if len(path) >= MAX_DEPTH - _ROOM:
            return self._deep(value, path)
        if isinstance(value, dict):
            return self._object(value, path)
        return [self.of(member, (*path, number)) for number, member in enumerate(value)]

    def _object(self, value: dict[Any, Any], path: _Path) -> JSONObject:
        told: JSONObject = {}
        for name, member in value.items():
            if not isinstance(name, str):
                raise TypeError(f"{_shown(path)} has a key that is no text")
            key = self._text(name, path, "has a key with what is no character, which is given as U+FFFD")
            while key in told:
                key += "\ufffd"
            told[key] = self.of(member, (*path, key))
        return told

    def _text(self, text: str, path: _Path, words: str) -> str:
        try:
            text.encode()
        except UnicodeEncodeError:
            self._changes.note(path, words)
            return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return str(text)

    def _number(self, text: str, path: _Path) -> str:
        self._changes.note(path, "is a number that is given as text")
        return text

    def _deep(self, value: Any, path: _Path) -> str:
        import json

        try:
            text = json.dumps(value, default=lambda member: _refuse(member, path))
        except (RecursionError, ValueError):  # it contains itself, or is nested extremely deeply
            raise TypeError(f"{_shown(path)} is nested too deeply") from None
        self._changes.note(path, "is nested too deeply, and is given as the text of its JSON from some level on")
        return text


def _shown(path: _Path) -> str:
    place = place_of(path)
    return "the value" if not place else place if len(place) <= _MAX_PLACE else f"{place[:_MAX_PLACE]}…"


def _digits(value: int) -> str:
    try:
        return str(int(value))
    except ValueError:  # more digits than Python writes in decimal
        return hex(value)


def _refuse(value: Any, path: _Path) -> NoReturn:
    raise TypeError(f"{_shown(path)} is of type {type(value).__name__}, which JSON does not have")
