r"""Reader for files that describe a service: JSON or YAML becomes plain values. Sizes are limited before and after parsing.

Rules
- Only named files are used: a file can refer only to files that were named too (references.py).
- YAML is read as YAML 1.2 reads JSON's types: `no`, `on` and `2024-01-01` are strings. Tags are refused. Aliases are
  followed, but their expanded size counts, because a page of aliases can stand for more than a disk holds.
- Keys are strings: `200:` is "200".

Source: OpenAPI Specification 3.1.1, section 4.3 (Format); YAML 1.2.2, chapter 10. Not here: fetching (fetching.py).

>>> read(b"openapi: 3.1.0\nx-on: [no, 2024-01-01, 1, 1.5, null]", "a.yaml")["x-on"]
['no', '2024-01-01', 1, 1.5, None]
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from aileron.model.json_value import JSON, JSONObject

__all__ = ["MAX_BYTES", "MAX_FILES", "DocumentError", "Files", "read", "read_all"]

MAX_BYTES: Final = 32 << 20
"""32 MiB: maximum size of all files together. The largest known document, GitHub's, has 12 MiB."""
MAX_FILES: Final = 2000
"""Maximum number of files of one description; a split description has one file for each path and schema."""
_MAX_DEPTH: Final = 200
"""Maximum number of nested levels; the deepest known document has 40."""
_MAX_NODES: Final = 8_000_000
"""Maximum number of values of a file, counting each repetition by an alias; GitHub's document has 700,000."""
_MAX_WRITTEN: Final = 2_000_000
"""Maximum number of values written in a YAML file; parsing so many takes five seconds."""
_MAX_FLOW: Final = 1 << 20
"""1 MiB: maximum size of a file that begins like JSON and is tried as YAML, because larger files would take long."""


class DocumentError(ValueError):
    """Error: the document cannot be used; the message says why."""


class Files(msgspec.Struct, frozen=True):
    """The files that were read: each file's values by name, relative to their common folder, and the first file's name."""

    root: str
    values: JSONObject
    digest: str
    """Digest of the file: `sha256:` and hex digits. For several files, it covers their names and hashes in order."""

    @property
    def document(self) -> Any:
        """Values of the first file."""
        return self.values[self.root]


def read_all(root: str, files: Mapping[str, bytes]) -> Files:
    """Parse all files. Raises DocumentError if one cannot be used."""
    if len(files) > MAX_FILES:
        raise DocumentError(f"{len(files)} files; at most {MAX_FILES}")
    if (size := sum(map(len, files.values()))) > MAX_BYTES:
        raise DocumentError(f"{size} bytes; at most {MAX_BYTES}")
    values = {name: read(data, name) for name, data in files.items()}
    return Files(root, values, _digest(root, files))


def read(data: bytes, name: str) -> Any:
    """Parse the JSON or YAML file called `name`. Raises DocumentError if the file cannot be used."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DocumentError(f"{name}: not UTF-8 (byte {error.start})") from None
    try:
        values = msgspec.json.decode(text) if text.lstrip()[:1] in ("{", "[") else _yaml(text, name)
    except (msgspec.DecodeError, RecursionError) as error:
        if text.lstrip()[:1] in ("{", "[") and isinstance(error, msgspec.DecodeError):
            values = _maybe_flow_yaml(text, name, str(error))
        else:
            raise DocumentError(f"{name}: nested too deeply") from None
    _size(values, name)
    return values


def _maybe_flow_yaml(text: str, name: str, problem: str) -> Any:
    """Parse as YAML a text that begins like JSON but is not JSON, because YAML can begin with a brace too.

    A text that is neither is reported as invalid JSON, because it looks like JSON.
    """
    try:
        if len(text) <= _MAX_FLOW:
            return _yaml(text, name)
    except DocumentError:
        pass
    raise DocumentError(f"{name}: not JSON: {problem}")


def _digest(root: str, files: Mapping[str, bytes]) -> str:
    if len(files) == 1:
        return f"sha256:{hashlib.sha256(files[root]).hexdigest()}"
    lines = [f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(files.items())]
    return f"sha256:{hashlib.sha256(os.fsencode(''.join(lines))).hexdigest()}"


def _size(values: Any, name: str) -> None:
    """Raise DocumentError if a file has more values, or more nested levels, than allowed. Values shared by aliases are
    measured once.
    """
    sizes: dict[int, int] = {}

    def size(value: Any, depth: int) -> int:
        if isinstance(value, float) and not math.isfinite(value):
            raise DocumentError(f"{name}: a number that is too large")
        if not isinstance(value, dict | list) or not value:
            return 1
        if depth > _MAX_DEPTH:
            raise DocumentError(f"{name}: nested deeper than {_MAX_DEPTH} levels, or an alias within itself")
        known = sizes.get(id(value))
        if known is None:
            members = value.values() if isinstance(value, dict) else value
            known = 1 + sum(size(member, depth + 1) for member in members)
            if known > _MAX_NODES:
                raise DocumentError(f"{name}: more than {_MAX_NODES} values")
            sizes[id(value)] = known
        return known

    size(values, 0)


# YAML


_TAG: Final = "tag:yaml.org,2002:"
_RESOLVED: Final[dict[str, tuple[re.Pattern[str], tuple[str, ...]]]] = {
    "null": (re.compile(r"null|Null|NULL|~|"), ("", *"nN~")),
    "bool": (re.compile(r"true|True|TRUE|false|False|FALSE"), (*"tTfF",)),
    "int": (re.compile(r"[-+]?[0-9]+"), (*"-+0123456789",)),
    "float": (
        re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"),
        (*"-+.0123456789",),
    ),
}
"""Plain scalars of YAML 1.2.2 section 10.3.2, without octal and hexadecimal numbers, infinities and NaN, which JSON lacks."""
_MAX_DIGITS: Final = 400
"""Maximum number of digits of a number, because parsing longer numbers, which fit no float, takes quadratic time."""


def _yaml(text: str, name: str) -> Any:
    import yaml  # 30 ms, and most documents are JSON

    try:
        return _Yaml(text, name).value()
    except yaml.YAMLError as error:
        raise DocumentError(f"{name}: not YAML: {_told(error)}") from None


def _told(error: Exception) -> str:
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    where = "" if mark is None else f"line {mark.line + 1}: "
    return f"{where}{problem or 'cannot be parsed'}"


class _Open(msgspec.Struct):
    """A list or object that is being read. `key` belongs to the next member; if None, the next value is itself a key."""

    made: JSONObject | list[JSON]
    key: str | None = None
    is_merge: bool = False
    """True if the key is a plain `<<`."""
    merged: list[JSON] = []


class _Yaml:
    """The values of one YAML document, built from the parser's events one by one.

    PyYAML's own construction of values keeps a node of 1 KiB for each value, is recursive, and merges (`<<`) without limit.
    """

    def __init__(self, text: str, name: str) -> None:
        import yaml

        self._events: Final = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        self._name: Final = name
        self._anchors: Final[dict[str, tuple[Any, str | None]]] = {}
        """Values of the anchors that aliases refer to, each with its text if it is a scalar."""
        self._within: Final[list[_Open]] = []
        self._root: Final = _Open([])
        self._values = 0

    def value(self) -> Any:
        """Return the document's values; None for an empty document."""
        import yaml

        documents = 0
        for event in self._events:
            match event:
                case yaml.ScalarEvent():
                    self._place(event, self._scalar(event), event.value)
                case yaml.MappingStartEvent():
                    self._begin(event, {}, "map")
                case yaml.SequenceStartEvent():
                    self._begin(event, [], "seq")
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    self._end(event)
                case yaml.AliasEvent():
                    if event.anchor not in self._anchors:
                        raise self._problem(event, "an alias of nothing")
                    self._place(event, *self._anchors[event.anchor])
                case yaml.DocumentStartEvent():
                    documents += 1
                    if documents > 1:
                        raise self._problem(event, "a second document")
        assert isinstance(self._root.made, list)
        return self._root.made[0] if self._root.made else None

    def _begin(self, event: Any, made: JSONObject | list[JSON], tag: str) -> None:
        if event.tag not in (None, "!", f"{_TAG}{tag}"):
            raise self._problem(event, f"tag {event.tag[:60]!r} is not supported")
        if len(self._within) == _MAX_DEPTH:
            raise self._problem(event, f"nested deeper than {_MAX_DEPTH} levels")
        self._place(event, made, None)
        self._within.append(_Open(made))

    def _end(self, event: Any) -> None:
        done = self._within.pop()
        if isinstance(done.made, list):
            return
        for value in done.merged:
            for other in value if isinstance(value, list) else [value]:
                if not isinstance(other, dict):
                    raise self._problem(event, "only objects can be merged with `<<`")
                self._count(event, len(other))
                for key, member in list(other.items()):  # a copy: an object can be merged into itself
                    done.made.setdefault(key, member)

    def _place(self, event: Any, value: Any, text: str | None) -> None:
        """Add a value to the innermost open list or object. `text` is the text of a scalar, which can be a key."""
        self._count(event, 1)
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, text)
        at = self._within[-1] if self._within else self._root
        if isinstance(at.made, list):
            at.made.append(value)
        elif at.key is None:
            if text is None:
                raise self._problem(event, "a key that is no string")
            at.key, at.is_merge = text, text == "<<" and getattr(event, "implicit", (False,))[0]
        else:
            if at.is_merge:
                at.merged.append(value)
            else:
                at.made[at.key] = value
            at.key = None

    def _scalar(self, event: Any) -> Any:
        text: str = event.value
        if event.tag is None:
            kind = _kind(text) if event.implicit[0] else "str"
        else:
            kind = "str" if event.tag == "!" else event.tag.removeprefix(_TAG)
            if kind != "str" and (kind not in _RESOLVED or _kind(text) != kind):
                raise self._problem(event, f"tag {event.tag[:60]!r} is not supported here")
        if kind in ("int", "float") and len(text) > _MAX_DIGITS:
            raise self._problem(event, f"a number of {len(text)} digits")
        match kind:
            case "null":
                return None
            case "bool":
                return text.lower() == "true"
            case "int":
                return int(text)
            case "float":
                return float(text)
            case _:
                return text

    def _count(self, event: Any, values: int) -> None:
        self._values += values
        if self._values > _MAX_WRITTEN:
            raise self._problem(event, f"more than {_MAX_WRITTEN} values")

    def _problem(self, event: Any, words: str) -> DocumentError:
        return DocumentError(f"{self._name}: not YAML that can be read: line {event.start_mark.line + 1}: {words}")


def _kind(text: str) -> str:
    """Return the type of a plain scalar, determined by its first character and then its form."""
    for kind, (pattern, first) in _RESOLVED.items():
        if text[:1] in first and pattern.fullmatch(text):
            return kind
    return "str"
