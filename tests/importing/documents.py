"""Documents as the tests write them, and what becomes of one."""

from __future__ import annotations

import json
from typing import Any, Final

from aileron.importing.choosing import wanted
from aileron.importing.found import Described, described
from aileron.importing.reading import read_all
from aileron.importing.repository import Choices, Made, make
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
    """A whole document with these paths."""
    whole = {"openapi": version, "info": {"title": "Pets", "version": "1"}, "servers": SERVERS, "paths": paths}
    return {**whole, **more}


def one_operation(operation: Json, *, method: str = "get", path: str = "/pets", **more: Any) -> Json:
    """A document with one operation."""
    return document({path: {method: {"responses": {}, **operation}}}, **more)


def schema_ref(name: str) -> Json:
    """A reference to a named schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def found(whole: Any) -> Described:
    """The operations of a document, which is read from its bytes."""
    return described(read_all("api.json", {"api.json": json.dumps(whole).encode()}))


def imported(whole: Any, **choices: Any) -> Made:
    """Everything of a document, made."""
    there = found(whole)
    return make(there, wanted(there, everything=True), CONNECTOR, Choices(**choices))


def action_of(made: Made, name: str) -> str:
    """The text of one action."""
    return made.files[f"actions/{name}/action.md"].decode()


def reason_of(made: Made, op: str) -> str:
    """Why an operation was not imported."""
    return next(one.reason for one in made.unimported if one.found.name == op)
