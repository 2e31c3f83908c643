"""Documents that the tests write, and their imports."""

from __future__ import annotations

import json
from typing import Any, Final

from aileron.importing.choosing import wanted
from aileron.importing.found import Described, described
from aileron.importing.reading import read_all
from aileron.importing.record import Choices
from aileron.importing.repository import Made, make
from aileron.model.names import Fqn

__all__ = [
    "CONNECTOR",
    "Json",
    "action_of",
    "document",
    "found",
    "imported",
    "one_operation",
    "reason_of",
    "schema_ref",
]

Json = dict[str, Any]
CONNECTOR: Final = Fqn.parse("github://me/connector-x")
SERVERS: Final = [{"url": "https://api.example.com/v1"}]


def document(paths: Json, *, version: str = "3.1.0", **more: Any) -> Json:
    """Return a whole document with these paths."""
    whole = {"openapi": version, "info": {"title": "Pets", "version": "1"}, "servers": SERVERS, "paths": paths}
    return {**whole, **more}


def one_operation(operation: Json, *, method: str = "get", path: str = "/pets", **more: Any) -> Json:
    """Return a document with one operation."""
    return document({path: {method: {"responses": {}, **operation}}}, **more)


def schema_ref(name: str) -> Json:
    """Return a reference to a named schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def found(whole: Any) -> Described:
    """Return the operations of a document, read from its bytes."""
    return described(read_all("api.json", {"api.json": json.dumps(whole).encode()}))


def imported(whole: Any, **choices: Any) -> Made:
    """Import every operation of a document."""
    there = found(whole)
    return make(there, wanted(there, everything=True), CONNECTOR, Choices(**choices))


def action_of(made: Made, name: str) -> str:
    """Return the text of one action."""
    return made.files[f"actions/{name}/action.md"].decode()


def reason_of(made: Made, op: str) -> str:
    """Return why an operation was not imported."""
    return next(operation.reason for operation in made.unimported if operation.found.name == op)
