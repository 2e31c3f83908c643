"""The list of a document's operations, for a person to choose from before any operation is parsed completely.

Reading is lenient here, since a broken operation must not hide the others: its problem is reported when it is imported.

Source: OpenAPI Specification 3.1.1, sections 4.8.1 (OpenAPI Object), 4.8.8 (Paths Object), 4.8.9 (Path Item Object). Not
here: an operation's arguments and responses (operations.py), Swagger 2.0 (swagger.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from aileron.importing.reading import DocumentError, Files
from aileron.importing.references import References
from aileron.importing.swagger import as_openapi_3
from aileron.model.json_value import JSON, JSONObject, dict_of, list_of

__all__ = ["METHODS", "Described", "FoundOperation", "described"]

METHODS: Final = ("get", "head", "post", "put", "patch", "delete")
"""Methods that egress can send. OPTIONS and TRACE concern the connection, and are not operations of a service."""
_READS: Final = ("get", "head")
_MAX_OPERATIONS: Final = 20_000
"""Maximum number of operations in one document; the largest known document has 1,200."""
_MAX_NAME: Final = 64
_MAX_TAGS: Final = 20
"""Maximum number of tags of one operation; people mostly find an operation by its first tag."""
_MAX_SCHEMES: Final = 200
"""Maximum number of security schemes; known documents have at most 20."""
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+|[0-9]+")


class FoundOperation(msgspec.Struct, frozen=True):
    """An operation as described in the document. `name` is unique, in snake case."""

    name: str
    path: str
    method: str
    tags: tuple[str, ...]
    summary: str
    raw: JSONObject
    """The operation's Operation Object, unchanged."""
    shared: Sequence[JSON]
    """The parameters that the operation's path declares for all its operations."""
    servers: Sequence[JSON]
    """Servers of the operation or its path; if empty, the document's servers apply."""
    file: str
    """Name of the file that contains the operation, to resolve its references."""
    is_old: bool = False
    """True if the document marks the operation as deprecated."""

    @property
    def reads(self) -> bool:
        """True if the operation's method is safe (RFC 9110 section 9.2.1)."""
        return self.method in _READS


class Described(msgspec.Struct, frozen=True):
    """A document with its operations.

    `is_3_0` is true if its schemas are those of OpenAPI 3.0, which Swagger uses too.
    """

    title: str
    version: str
    license: dict[str, str]
    is_3_0: bool
    servers: tuple[Any, ...]
    security: list[JSON] | None
    schemes: JSONObject
    operations: tuple[FoundOperation, ...]
    references: References
    digest: str
    description: str = ""
    """Description of the complete API, unchanged."""


def described(files: Files) -> Described:
    """Return the document with its operations. Raises DocumentError if the document does not describe an API."""
    document = files.document
    if not isinstance(document, dict):
        raise DocumentError(f"{files.root}: not an OpenAPI document: it is no object")
    references = References(files)
    if "swagger" in document:
        document = as_openapi_3(document, references)
        is_3_0 = True
    else:
        is_3_0 = _is_3_0(document, files.root)
    info = dict_of(document.get("info"))
    found = tuple(_operations(document, references))
    if not found:
        raise DocumentError(f"{files.root}: no operations: `paths` is empty")
    components = dict_of(document.get("components"))
    schemes = dict_of(components.get("securitySchemes"))
    if len(schemes) > _MAX_SCHEMES:
        raise DocumentError(f"{files.root}: {len(schemes)} security schemes; at most {_MAX_SCHEMES}")
    return Described(
        title=_line(info.get("title")).rstrip(". ") or "API",
        version=_line(info.get("version")),
        license={key: _line(value) for key, value in dict_of(info.get("license")).items() if isinstance(value, str)},
        is_3_0=is_3_0,
        servers=tuple(list_of(document.get("servers"))),
        security=document.get("security") if isinstance(document.get("security"), list) else None,
        schemes=schemes,
        operations=found,
        references=references,
        digest=files.digest,
        description=said if isinstance(said := info.get("description"), str) else "",
    )


def _is_3_0(document: JSONObject, name: str) -> bool:
    version = document.get("openapi")
    if not isinstance(version, str) or not version.startswith(("3.0", "3.1")):
        said = "no `openapi` key" if version is None else f"openapi: {str(version)[:20]}"
        raise DocumentError(f"{name}: {said}; expected OpenAPI 3.0 or 3.1, or Swagger 2.0")
    return version.startswith("3.0")


def _operations(document: JSONObject, references: References) -> Iterator[FoundOperation]:
    names = _Names()
    number = 0
    for path, item in dict_of(document.get("paths")).items():
        try:
            place = references.resolved(item, references.root)
        except DocumentError:
            continue
        shared, servers = list_of(dict_of(place.value).get("parameters")), list_of(dict_of(place.value).get("servers"))
        for method in METHODS:
            raw = dict_of(place.value).get(method)
            if not isinstance(raw, dict):
                continue
            number += 1
            if number > _MAX_OPERATIONS:
                raise DocumentError(f"more than {_MAX_OPERATIONS} operations")
            yield FoundOperation(
                name=names.of(raw, path, method),
                path=path,
                method=method,
                tags=tuple(_line(tag) for tag in list_of(raw.get("tags"))[:_MAX_TAGS] if isinstance(tag, str)),
                summary=_line(raw.get("summary")),
                raw=raw,
                shared=shared,
                servers=list_of(raw.get("servers")) or servers,
                file=place.file,
                is_old=raw.get("deprecated") is True,
            )


class _Names:
    """Allocator of unique operation names."""

    def __init__(self) -> None:
        self._given: set[str] = set()
        self._numbers: dict[str, int] = {}

    def of(self, raw: JSONObject, path: str, method: str) -> str:
        by_path = _snake(f"{method} {re.sub(r'[{}]', ' ', path)}")
        said = raw.get("operationId")
        name = (_snake(_without_path(said, path, method)) if isinstance(said, str) else "") or by_path
        for candidate in (name, f"{name}_{method}", by_path):
            if candidate not in self._given and len(candidate) <= _MAX_NAME:
                return self._take(candidate)
        stem = name[: _MAX_NAME - 6]
        number = self._numbers.get(stem, 2)
        while f"{stem}_{number}" in self._given:
            number += 1
        self._numbers[stem] = number
        return self._take(f"{stem}_{number}")

    def _take(self, name: str) -> str:
        self._given.add(name)
        return name


def _without_path(name: str, path: str, method: str) -> str:
    """Return a name without the path and method that FastAPI appends, as in `read_item_items__item_id__get`."""
    tail = f"{re.sub(r'[^A-Za-z0-9_]', '_', path)}_{method}"
    return name.removesuffix(tail) or name


def _snake(text: str) -> str:
    name = "_".join(word.lower() for word in _WORDS.findall(text)).strip("_")
    name = name if name[:1].isalpha() else f"op_{name}" if name else ""
    return name[:_MAX_NAME].rstrip("_")


def _line(value: Any) -> str:
    """Return a title, or a similar value, as one line of visible text; empty if the value is not text."""
    from aileron.importing.words import line

    return line(value) if isinstance(value, str) else ""
