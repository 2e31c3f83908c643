"""Reader of TOML documents with a closed schema: connector manifests, the frontmatter of actions, the settings.

All three use one reader, so that all refuse the same faults: unknown keys, missing keys, wrong types, hidden
characters. The schema is data (`Field`), which the reference pages are made from (described.py). Pure; the text
is untrusted, so its size and nesting are bounded before it is parsed.

Rules
- Nothing is ignored: a key that is not in the schema is an error that names the most similar key of the schema.
- Every error names file and line, what was found and what was expected. Lines are searched for only after
  an error, because tomllib keeps no line numbers; a valid document costs nothing extra.
- Strings hold no hidden character (text.py), and no line end except in free values.

Source: TOML 1.0; docs/reference/action-file.md and connector-manifest.md. Not here: what the values mean
(actions/manifest.py, registry/manifest.py, config.py).

>>> schema = {"name": Field(Kind.STRING, required=True)}
>>> read_document('nmae = "x"', schema, file="a.toml", boundary=Boundary.ACTION)
Traceback (most recent call last):
    ...
aileron.model.failure.AileronError: a.toml:1: unknown key 'nmae'; did you mean 'name'?
"""

from __future__ import annotations

import enum
import json
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.json_value import JSON, JSONObject, dict_of
from aileron.model.near import did_you_mean
from aileron.model.text import hidden_at, spelled

__all__ = [
    "MAX_DOCUMENT_BYTES",
    "MAX_NUMBER",
    "Field",
    "Kind",
    "Row",
    "Schema",
    "Table",
    "check_text",
    "read_document",
    "read_values",
    "refusal",
    "rows",
]

MAX_DOCUMENT_BYTES: Final = 256 << 10
"""256 KiB: maximum size of a document.

The largest known published action or manifest is under 8 KiB; parsing takes about 0.1 s.
"""
MAX_NUMBER: Final = 2**53 - 1
"""Largest integer allowed. Larger ones have no exact canonical JSON form (RFC 8785), and no JavaScript client can write them."""
_MAX_NESTING: Final = 16
"""Maximum number of nested brackets, or parts of a dotted key. The schemas need 4; tomllib is quadratic in key parts."""

_T = TypeVar("_T")
_Path = tuple[str | int, ...]


class Kind(enum.Enum):
    """The type of a key's value, in the words of the reference pages."""

    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    STRINGS = "array of strings"
    VALUE = "any value"
    VALUES = "array of values"
    FREE = "table of values"
    TABLE = "table"
    TABLES = "array of tables"


class Field(msgspec.Struct, frozen=True):
    """A key of a table: its type, whether it is required, and for tables the keys inside.

    The reader checks all of this, except `pattern` and the `bounds` of a string. These two are for editors: as far as possible,
    they repeat the checks of the value's own parser, which editors do not have.
    """

    kind: Kind
    required: bool = False
    fields: Mapping[str, Field] = msgspec.field(default_factory=dict)
    says: str = ""
    """Purpose of the key, in one line of Markdown, as on its reference page."""
    choices: tuple[str, ...] = ()
    """All values that a string can have."""
    pattern: str | None = None
    """Regular expression for the whole string, or each string of an array, in syntax that Python and ECMA 262 read alike."""
    bounds: range | None = None
    """Allowed values of an integer, or allowed numbers of characters, members or keys for other types."""
    is_unique: bool = False
    """True if an array must not have the same string twice."""
    default: object = None
    """Value that applies if the key is absent."""
    example: object = None
    """Example of a valid value."""


Schema = Mapping[str, Field]


class Row(NamedTuple):
    """A key of a schema, which a reference page shows as a row. `table` is a TOML header, empty for the top level."""

    table: str
    key: str
    field: Field


def rows(schema: Schema, table: str = "", name: str = "") -> Iterator[Row]:
    """Yield every key of a schema in order; the keys of a table's subtables come after its own keys."""
    inner = [(key, field) for key, field in schema.items() if field.fields]
    for key, field in schema.items():
        if not field.fields:
            yield Row(table, key, field)
    for key, field in inner:
        path = f"{name}.{key}" if name else key
        header = f"[[{path}]]" if field.kind is Kind.TABLES else f"[{path}]"
        yield from rows(field.fields, header, path)


def read_document(
    text: str,
    schema: Schema,
    *,
    file: str,
    boundary: Boundary,
    first_line: int = 1,
    most_bytes: int = MAX_DOCUMENT_BYTES,
) -> Table:
    """Return `text` as a table that matches `schema`. Raises AileronError(invalid_request) with file and line if it does not
    match.

    `first_line` is the line of the file on which `text` begins.
    """
    check_text(text, file=file, boundary=boundary, first_line=first_line, most_bytes=most_bytes)
    source = _Source(text, file, boundary, first_line)
    source.check_nesting()
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # int() raises ValueError for too many digits, too
        raise source.refuse_syntax(error) from None
    table = Table(source, (), values, schema)
    table.check_shape()
    return table


def read_values(values: JSONObject, schema: Schema, *, file: str, boundary: Boundary) -> Table:
    """Return values that did not come from text as a table that matches `schema`.

    Raises AileronError(invalid_request), with file but without line, if they do not match.
    """
    table = Table(_Source(None, file, boundary, 1), (), values, schema)
    table.check_shape()
    return table


def check_text(
    text: str, *, file: str, boundary: Boundary, first_line: int = 1, most_bytes: int = MAX_DOCUMENT_BYTES
) -> None:
    """Raise AileronError if `text` is too large, not Unicode, or has hidden characters. Linear in its length."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise refusal(file, None, "not valid Unicode: save the file as UTF-8", boundary) from None
    if size > most_bytes:
        raise refusal(file, None, f"{size} bytes; at most {most_bytes}", boundary)
    if (found := hidden_at(text, prose=True)) is not None:
        line = first_line + text.count("\n", 0, found)
        raise refusal(file, line, f"a hidden character: {spelled(text[found])}; remove it", boundary)


def refusal(file: str, line: int | None, problem: str, boundary: Boundary) -> AileronError:
    """Return the error for `file`, at `line` if it is known: `file:line: problem`."""
    where = file if line is None else f"{file}:{line}"
    details: JSONObject = {"file": file} if line is None else {"file": file, "line": line}
    return AileronError(FailureClass.INVALID_REQUEST, f"{where}: {problem}", boundary=boundary, details=details)


class Table:
    """A table of a TOML document, checked against its schema. The methods that read its values rely on that check."""

    def __init__(
        self, source: _Source, path: _Path, values: JSONObject, schema: Schema, *, is_optional: bool = False
    ) -> None:
        self._source: Final = source
        self._path: Final = path
        self._values: Final = values
        self._schema: Final = schema
        self._is_optional: Final = is_optional

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def refuse(self, key: str | None, problem: str, *inner: str | int) -> AileronError:
        """Return the error for a key of this table, or for the key or element at the path `inner` below it, with file
        and line.

        If `key` is None, the error is about this table itself.
        """
        return self._source.refuse(self._path if key is None else (*self._path, key, *inner), problem)

    def parsed(self, key: str, parse: Callable[[str], _T]) -> _T:
        """Return the required string under `key`, converted by `parse`. A ValueError from `parse` becomes an error with
        file and line.
        """
        return self.attempt(key, parse, self.string(key))

    def attempt(self, key: str, parse: Callable[[str], _T], text: str) -> _T:
        """Return `parse(text)`, where `text` is a value under `key`. A ValueError from `parse` becomes an error about
        `key`, with file and line.
        """
        try:
            return parse(text)
        except ValueError as error:
            raise self.refuse(key, f"{key}: {error}") from None

    def string(self, key: str) -> str:
        """Return the required string under `key`."""
        value = self._values[key]
        assert isinstance(value, str)
        return value

    def maybe_string(self, key: str) -> str | None:
        """Return the optional string under `key`, or None if the key is absent."""
        return self.string(key) if key in self._values else None

    def strings(self, key: str) -> tuple[str, ...]:
        """Return the array of strings under `key`; empty if the key is absent."""
        return tuple(map(str, self._elements(key)))

    def element_lines(self, key: str) -> tuple[int, ...]:
        """Return the line of each element of the array under `key`, for errors of checks that are made after the
        document was read.
        """
        return self._source.element_lines((*self._path, key), len(self._elements(key)))

    def boolean(self, key: str, default: bool) -> bool:
        """Return the optional boolean under `key`, or `default` if the key is absent."""
        value = self._values.get(key, default)
        assert isinstance(value, bool)
        return value

    def integer(self, key: str, default: int) -> int:
        """Return the optional integer under `key`, or `default` if the key is absent."""
        value = self._values.get(key, default)
        assert isinstance(value, int)
        return value

    def value(self, key: str) -> Any:
        """Return the required value under `key`, which can have any type."""
        return self._values[key]

    def free(self, key: str) -> JSONObject:
        """Return the table under `key`, which can have any values that JSON can represent; empty if the key is absent."""
        value = self._values.get(key, {})
        assert isinstance(value, dict)
        return value

    def table(self, key: str) -> Table:
        """Return the table under `key`; empty if the table is optional and absent."""
        field = self._schema[key]
        return Table(self._source, (*self._path, key), self.free(key), field.fields, is_optional=not field.required)

    def tables(self, key: str) -> tuple[Table, ...]:
        """Return the array of tables under `key`; empty if the key is absent."""
        fields = self._schema[key].fields
        return tuple(
            Table(self._source, (*self._path, key, index), dict_of(value), fields)
            for index, value in enumerate(self._elements(key))
        )

    def _elements(self, key: str) -> list[JSON]:
        value = self._values.get(key, [])
        assert isinstance(value, list)
        return value

    def check_shape(self) -> None:
        """Raise AileronError for the first key that is unknown, missing, of the wrong type, or has hidden characters."""
        for key in self._values:
            if key not in self._schema:
                raise self.refuse(key, f"unknown key {key!r}{self._place()}{self._nearest(key)}")
        for key, field in self._schema.items():
            if key in self._values:
                self._check_value(key, field, self._values[key])
            elif field.required:
                raise self.refuse(None, f"missing key {key!r} ({field.kind.value}){self._place()}")

    def _check_value(self, key: str, field: Field, value: object) -> None:
        if not _IS_OF_KIND[field.kind](value):
            raise self.refuse(key, f"{key!r} is {_kind_of(value)}; expected {_with_article(field.kind.value)}")
        if field.choices and value not in field.choices:
            raise self.refuse(
                key, f"{key} {value!r} is not one of {', '.join(field.choices)}{_meant(value, field.choices)}"
            )
        if field.kind is Kind.INTEGER and field.bounds is not None and value not in field.bounds:
            raise self.refuse(key, f"{key} = {_shown(value)} is not between {field.bounds[0]} and {field.bounds[-1]}")
        if isinstance(value, list | dict):
            self._check_entries(key, field, value)
        if field.kind is Kind.TABLE:
            self.table(key).check_shape()
        elif field.kind is Kind.TABLES:
            for table in self.tables(key):
                table.check_shape()
        elif field.kind in (Kind.FREE, Kind.VALUE, Kind.VALUES, Kind.NUMBER):
            self._check_free((key,), value)
        else:
            for text in value if isinstance(value, list) else [value]:
                self._check_visible((key,), text, prose=False)

    def _check_entries(self, key: str, field: Field, entries: list[JSON] | JSONObject) -> None:
        if field.bounds is not None and len(entries) not in field.bounds:
            found = f"has {len(entries)} entries" if entries else "is empty"
            hint = "" if entries else self._instead_of_none(key, field)
            raise self.refuse(key, f"{key} {found}; expected {_spelled_bounds(field.bounds)}{hint}")
        seen = set[str]()
        for index, text in enumerate(map(str, entries) if field.is_unique else ()):
            if text in seen:
                raise self.refuse(key, f"{key} has {text[:80]!r} twice; write each once", index)
            seen.add(text)

    def _instead_of_none(self, key: str, field: Field) -> str:
        """Return the end of an error message about an empty array or table: what to write in its place."""
        example = f", such as {json.dumps(field.example)}" if isinstance(field.example, list) else ""
        if field.required and not self._is_optional:
            return example
        return f"{example}, or leave out {self._header() if field.required else key}"

    def _check_free(self, path: tuple[str, ...], value: object) -> None:
        # Recursion is bounded: `check_nesting` counted the brackets and the dots.
        if isinstance(value, dict):
            for inner, member in value.items():
                self._check_visible((*path, inner), inner, prose=False)
                self._check_free((*path, inner), member)
        elif isinstance(value, list):
            for member in value:
                self._check_free(path, member)
        elif isinstance(value, str):
            self._check_visible(path, value, prose=True)
        elif problem := _unsayable(value):
            raise self.refuse(path[0], f"{path[-1]!r} holds {problem}", *path[1:])

    def _check_visible(self, path: tuple[str, ...], text: object, *, prose: bool) -> None:
        if isinstance(text, str) and (found := hidden_at(text, prose=prose)) is not None:
            problem = f"{path[-1]!r} holds a hidden character: {spelled(text[found])}; remove it"
            raise self.refuse(path[0], problem, *path[1:])

    def _place(self) -> str:
        return f" in {self._header()}" if self._path else ""

    def _header(self) -> str:
        name = ".".join(part for part in self._path if isinstance(part, str))
        return f"[[{name}]]" if isinstance(self._path[-1], int) else f"[{name}]"

    def _nearest(self, key: str) -> str:
        return _meant(key, self._schema) or f"; expected one of {', '.join(self._schema)}"


class _Source:
    """A document's text and its name, to bound nesting before parsing and to find lines after an error.

    A document made from values has a name only.
    """

    def __init__(self, text: str | None, file: str, boundary: Boundary, first_line: int) -> None:
        self._text: Final = text or ""
        self._has_lines: Final = text is not None
        self._file: Final = file
        self._boundary: Final = boundary
        self._first_line: Final = first_line

    def check_nesting(self) -> None:
        """Raise AileronError if the text is nested too deep to be parsed safely. Takes time linear in the text's length."""
        depth = dots = 0
        for token in _tokens(self._text):
            if token.text in "[{":
                depth, dots = depth + 1, 0
            elif token.text in "]}":
                depth, dots = max(0, depth - 1), 0
            elif token.text == ".":
                dots += 1
            elif token.text in "=,\n":
                dots = 0
            if max(depth, dots) > _MAX_NESTING:
                raise self._error(self._line_at(token.start), f"nested deeper than {_MAX_NESTING} levels")

    def refuse_syntax(self, error: ValueError | RecursionError) -> AileronError:
        """Return the error with the parser's message, which ends with `(at line 3, column 7)` or `(at end of document)`."""
        said = str(error)
        at_line = re.search(r" \(at line (\d+), column \d+\)$", said)
        line = self._first_line + int(at_line[1]) - 1 if at_line else self._line_at(len(self._text))
        return self._error(line, f"not TOML: {said[: at_line.start()] if at_line else said}")

    def refuse(self, path: _Path, problem: str) -> AileronError:
        """Return the error for the value at `path`, with the line of the nearest key that can be found."""
        return self._error(self._line_of(path, _key_lines(self._text)), problem)

    def element_lines(self, path: _Path, count: int) -> tuple[int, ...]:
        """Return the line of each of the `count` elements of the array at `path`, or the nearest line that can be found."""
        lines = _key_lines(self._text)
        return tuple(self._line_of((*path, index), lines) for index in range(count))

    def _line_of(self, path: _Path, lines: Mapping[_Path, int]) -> int:
        while path and path not in lines:
            path = path[:-1]
        return self._first_line + lines.get(path, 1) - 1

    def _line_at(self, index: int) -> int:
        return self._first_line + self._text.count("\n", 0, index)

    def _error(self, line: int, problem: str) -> AileronError:
        return refusal(self._file, line if self._has_lines else None, problem, self._boundary)


class _Token(NamedTuple):
    text: str
    start: int


# The lexical half of TOML 1.0, enough to know strings and comments from structure. On text that is valid up to
# some point it agrees with tomllib up to that point, which is all the bounds need. A string that is not closed
# runs to the end of the text, or of its line: without that match, every quote in it would be tried as another
# beginning, in quadratic time. No possessive quantifiers: before Python 3.11.5 they mismatch (gh-106052).
_TOKEN: Final = re.compile(
    r'''"""[^"\\]*(?:(?:\\[\s\S]|"(?!""))[^"\\]*)*(?:"{3,5}|\\?\Z)'''
    r"""|'{3}[^']*(?:'(?!'')[^']*)*(?:'{3,5}|\Z)"""
    r"""|"[^"\\\n]*(?:\\.[^"\\\n]*)*"?"""
    r"""|'[^'\n]*'?"""
    r"""|\#[^\n]*"""
    r"""|[\[\]{}.=,\n]"""
    r"""|[^\s"'#\[\]{}.=,]+"""
)


def _tokens(text: str) -> Iterator[_Token]:
    return (_Token(match[0], match.start()) for match in _TOKEN.finditer(text))


def _key_lines(text: str) -> dict[_Path, int]:
    """Return the line, from 1, of each header, key and array element of a valid document, except keys in inline tables."""
    lines: dict[_Path, int] = {}
    lengths: dict[_Path, int] = {}
    header: _Path = ()
    line = 1
    for statement in _statements(text):
        kind, parts = _left_side(statement)
        if kind == "key":
            for end in range(1, len(parts) + 1):
                lines.setdefault((*header, *parts[:end]), line)
            for index, offset in enumerate(_element_offsets(statement)):
                lines.setdefault((*header, *parts, index), line + offset)
        elif kind:
            header = _resolved(parts, lengths, is_array=kind == "array")
            lines.setdefault(header, line)
        line += sum(token.text.count("\n") for token in statement)
    return lines


def _statements(text: str) -> Iterator[list[_Token]]:
    """Yield the statements of a TOML document, each as its tokens up to and including a line end outside brackets."""
    statement: list[_Token] = []
    depth = 0
    for token in _tokens(text):
        statement.append(token)
        if token.text in "[{":
            depth += 1
        elif token.text in "]}":
            depth -= 1
        elif token.text == "\n" and depth <= 0:
            yield statement
            statement, depth = [], 0
    yield statement


def _element_offsets(statement: list[_Token]) -> Iterator[int]:
    """Yield, for each element of the array in a statement, how many lines below the array's key it is; nothing if the
    value is not an array.
    """
    depth = newlines = 0
    is_due = False
    for token in statement[[token.text for token in statement].index("=") + 1 :]:
        is_space = token.text.startswith("#") or token.text == "\n"
        if depth == 0 and token.text != "[":
            return
        if is_due and not is_space and token.text != "]":
            yield newlines
            is_due = False
        if token.text in "[{":
            depth += 1
            is_due = is_due or depth == 1
        elif token.text in "]}":
            depth -= 1
        elif token.text == "," and depth == 1:
            is_due = True
        newlines += token.text.count("\n")


def _left_side(statement: list[_Token]) -> tuple[str, tuple[str, ...]]:
    """Return the kind and the dotted name of a TOML statement. The kind is `array` for [[NAME]], `table` for [NAME], `key` for
    NAME = VALUE, and empty for any other statement, which has no name.
    """
    words = [token.text for token in statement if not token.text.startswith("#")]
    if words[:2] == ["[", "["]:
        return "array", _names(words[2:], "]")
    if words[:1] == ["["]:
        return "table", _names(words[1:], "]")
    return ("key", _names(words, "=")) if "=" in words else ("", ())


def _names(words: list[str], end: str) -> tuple[str, ...]:
    names: list[str] = []
    for word in words[: words.index(end)]:
        if word != ".":
            names.append(tomllib.loads(f"key = {word}")["key"] if word[0] in "\"'" else word)
    return tuple(names)


def _resolved(parts: tuple[str, ...], lengths: dict[_Path, int], *, is_array: bool) -> _Path:
    """Return a header's name with the index of the array element that it is in: execute.inputs becomes execute, 2, inputs."""
    path: _Path = ()
    for number, part in enumerate(parts, start=1):
        path = (*path, part)
        if is_array and number == len(parts):
            lengths[path] = lengths.get(path, 0) + 1
        if path in lengths:
            path = (*path, lengths[path] - 1)
    return path


_IS_OF_KIND: Final[dict[Kind, Callable[[object], bool]]] = {
    Kind.STRING: lambda value: isinstance(value, str),
    Kind.INTEGER: lambda value: isinstance(value, int) and not isinstance(value, bool),
    Kind.NUMBER: lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    Kind.BOOLEAN: lambda value: isinstance(value, bool),
    Kind.VALUE: lambda _value: True,
    Kind.VALUES: lambda value: isinstance(value, list),
    Kind.STRINGS: lambda value: isinstance(value, list) and all(isinstance(item, str) for item in value),
    Kind.FREE: lambda value: isinstance(value, dict),
    Kind.TABLE: lambda value: isinstance(value, dict),
    Kind.TABLES: lambda value: isinstance(value, list) and all(isinstance(item, dict) for item in value),
}


def _unsayable(value: object) -> str | None:
    """Return why a TOML value that is neither text nor a container has no exact JSON form; None if it has one."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value}, which JSON cannot represent"
    if isinstance(value, int | float):
        return None if abs(value) <= MAX_NUMBER else "a number of 2**53 or more, which JSON cannot represent exactly"
    return f"{_kind_of(value)}, which JSON cannot represent; write it as a string"


def _kind_of(value: object) -> str:
    match value:
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case int():
            return "an integer"
        case float():
            return "a float"
        case dict():
            return "a table"
        case list():
            return "an array"
        case _:
            return f"a {type(value).__name__}"  # date, time, datetime


def _shown(number: object) -> str:
    """Return a number as text, or words for it if it is too long.

    Python raises ValueError for the decimal form of numbers with thousands of digits.
    """
    return str(number) if isinstance(number, int) and abs(number) <= MAX_NUMBER else "a number of 2**53 or more"


def _spelled_bounds(bounds: range) -> str:
    if bounds[-1] == MAX_NUMBER:
        return f"at least {bounds[0]}"
    return f"{bounds[0]} to {bounds[-1]}" if bounds[0] else f"at most {bounds[-1]}"


def _meant(word: object, known: Iterable[str]) -> str:
    question = did_you_mean(str(word), known)
    return f"; {question}" if question else ""


def _with_article(words: str) -> str:
    return f"an {words}" if words[0] in "aeiou" else f"a {words}"
