r"""Files that describe a service, as plain values: JSON or YAML, bounded before and after they are parsed.

Rules
- What counts is what is named: a file refers to no other that was not named with it (references.py).
- YAML is read as YAML 1.2 reads JSON's types: `no`, `on` and `2024-01-01` are strings. Tags are refused. Aliases are
  followed, but what they expand to counts: a page of aliases can stand for more than a disk holds.
- Keys are strings: `200:` is "200".

Source: OpenAPI Specification 3.1.1, section 4.3 (Format); YAML 1.2.2, chapter 10. Not here: fetching (fetching.py).

>>> read(b"openapi: 3.1.0\nx-on: [no, 2024-01-01, 1, 1.5, null]", "a.yaml")["x-on"]
['no', '2024-01-01', 1, 1.5, None]
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec

__all__ = ["MAX_BYTES", "MAX_FILES", "DocumentError", "Files", "read", "read_all"]

MAX_BYTES: Final = 32 << 20
"""32 MiB of all files together: the largest known document, GitHub's, has 12."""
MAX_FILES: Final = 2000
"""Files of one description: those that are split have one for each path and schema."""
_MAX_DEPTH: Final = 200
"""Levels: of known documents the deepest has 40."""
_MAX_NODES: Final = 8_000_000
"""Values, counted as often as an alias repeats them: GitHub's document has 700,000."""


class DocumentError(ValueError):
    """Nothing can be made of this document, and why."""


class Files(msgspec.Struct, frozen=True):
    """What was read: the values of each file by its name, relative to the folder of the first, and that one's name."""

    root: str
    values: dict[str, Any]
    digest: str
    """sha256 of the files, `sha256:` and hex digits; of several, of their names and hashes in order."""

    @property
    def document(self) -> Any:
        """The values of the first file."""
        return self.values[self.root]


def read_all(root: str, files: Mapping[str, bytes]) -> Files:
    """Read every file. DocumentError."""
    if len(files) > MAX_FILES:
        raise DocumentError(f"{len(files)} files; at most {MAX_FILES}")
    if (size := sum(map(len, files.values()))) > MAX_BYTES:
        raise DocumentError(f"{size} bytes; at most {MAX_BYTES}")
    values = {name: read(data, name) for name, data in files.items()}
    return Files(root, values, _digest(root, files))


def read(data: bytes, name: str) -> Any:
    """One file. DocumentError."""
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
    """YAML may begin with a brace too; what is neither is told as JSON, which it looks like."""
    try:
        return _yaml(text, name)
    except DocumentError:
        raise DocumentError(f"{name}: not JSON: {problem}") from None


def _digest(root: str, files: Mapping[str, bytes]) -> str:
    if len(files) == 1:
        return f"sha256:{hashlib.sha256(files[root]).hexdigest()}"
    lines = [f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(files.items())]
    return f"sha256:{hashlib.sha256(''.join(lines).encode()).hexdigest()}"


def _size(values: Any, name: str) -> None:
    """Return if all of it is no more and no deeper than documents are. Values that aliases share are measured once."""
    sizes: dict[int, int] = {}

    def size(value: Any, depth: int) -> int:
        if not isinstance(value, dict | list):
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


_RESOLVED: Final = {
    "tag:yaml.org,2002:null": (r"null|Null|NULL|~|", "nN~\0"),
    "tag:yaml.org,2002:bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "tag:yaml.org,2002:int": (r"[-+]?[0-9]+", "-+0123456789"),
    "tag:yaml.org,2002:float": (r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
}
"""YAML 1.2.2 section 10.3.2, but for octal and hexadecimal numbers, infinities and NaN, which JSON cannot say."""
_MAX_DIGITS: Final = 400
"""Of one number: what is longer than any float takes quadratic time."""


def _yaml(text: str, name: str) -> Any:
    import yaml  # 30 ms, and most documents are JSON

    try:
        return yaml.load(text, Loader=_loader())  # noqa: S506  (a SafeLoader, with fewer tags)
    except yaml.YAMLError as error:
        raise DocumentError(f"{name}: not YAML: {_told(error)}") from None
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"{name}: not YAML that can be read: {error}") from None


def _told(error: Exception) -> str:
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    where = "" if mark is None else f"line {mark.line + 1}: "
    return f"{where}{problem or 'cannot be parsed'}"


def _loader() -> Any:
    """PyYAML's safe loader with the types of YAML 1.2 and no tags but those."""
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]
        yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}
        yaml_constructors: ClassVar[dict[Any, Any]] = {}

    for tag, (pattern, first) in _RESOLVED.items():
        Loader.add_implicit_resolver(tag, re.compile(rf"(?:{pattern})\Z"), ["" if c == "\0" else c for c in first])
    Loader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile(r"<<\Z"), ["<"])
    for tag in ("map", "seq", "str", "null"):
        full = f"tag:yaml.org,2002:{tag}"
        Loader.add_constructor(full, yaml.SafeLoader.yaml_constructors[full])
    Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
    Loader.add_constructor("tag:yaml.org,2002:bool", lambda loader, node: node.value.lower() == "true")
    Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(_number(node.value)))
    Loader.add_constructor("tag:yaml.org,2002:float", lambda loader, node: float(_number(node.value)))
    Loader.add_constructor(None, _refuse_tag)
    return Loader


def _number(text: str) -> str:
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"a number of {len(text)} digits")
    return text


def _mapping(loader: Any, node: Any) -> Any:
    made: dict[str, Any] = {}
    yield made
    loader.flatten_mapping(node)
    for key, value in node.value:
        if not hasattr(key.value, "lower"):
            raise ValueError(f"line {key.start_mark.line + 1}: a key that is no string")
        made[key.value] = loader.construct_object(value)


def _refuse_tag(loader: Any, node: Any) -> Any:
    raise ValueError(f"line {node.start_mark.line + 1}: tag {node.tag[:60]!r} is not supported")
