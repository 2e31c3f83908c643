"""A packed document written by hand, and one operation at a time of it, for the tests of this folder."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from aileron_connector import operation
from aileron_connector.check import Schemas
from aileron_connector.openapi.document import Document, Operation
from aileron_connector.openapi.request import Endpoint, Request, prepared
from aileron_connector.openapi.service import Service
from aileron_connector.testing import Answer, Done, call

BASE = "https://api.example.com/v1"
ORIGIN = "https://api.example.com"


def endpoint(method: str = "GET", path: str = "/items", **operation: Any) -> Endpoint:
    """Return an operation, spelled as in a document."""
    return Endpoint(method, path, msgspec.convert({"operationId": "x", **operation}, Operation))


def parameter(name: str, place: str = "query", **more: Any) -> dict[str, Any]:
    """Return a parameter whose argument has its name; required in a path."""
    required = {"required": True} if place == "path" else {}
    return {"name": name, "in": place, "x-aileron-argument": name, "schema": {}, **required, **more}


def request(of: Endpoint, schemas: dict[str, Any] | None = None, /, **arguments: Any) -> Request:
    """Return the request of a call."""
    return prepared(of, arguments, BASE, named(schemas or {}))


def named(schemas: dict[str, Any]) -> Schemas:
    """Return named schemas, undecoded."""
    return Schemas({name: msgspec.Raw(json.dumps(schema).encode()) for name, schema in schemas.items()})


def document(paths: dict[str, Any], schemas: dict[str, Any] | None = None, server: str = "/v1") -> bytes:
    """Return a packed document of these paths."""
    whole = {
        "openapi": "3.1.1",
        "info": {"title": "Items", "version": "1"},
        "servers": [{"url": server}],
        "paths": paths,
        "components": {"schemas": schemas or {}},
    }
    msgspec.convert(whole, dict[str, Any])
    assert msgspec.json.decode(json.dumps(whole), type=Document).paths.keys() == paths.keys()
    return json.dumps(whole).encode()


@contextlib.contextmanager
def declared(data: bytes, idempotency: Mapping[str, str] | None = None) -> Iterator[Service]:
    """Declare the operations of a document for the length of the block."""
    service = Service(data, idempotency or {})
    known = dict(operation.OPERATIONS)
    try:
        service.declare()
        yield service
    finally:
        operation.OPERATIONS.clear()
        operation.OPERATIONS.update(known)


def answered(
    of: dict[str, Any], answer: Answer, /, method: str = "get", path: str = "/items", **arguments: Any
) -> Done:
    """Call the one operation of a document."""
    with declared(document({path: {method: {"operationId": "x", **of}}})):
        return call("x", arguments, answer=answer, hosts=[ORIGIN])


PROGRAM = '''\
"""Items: operations of an OpenAPI document."""

from aileron_connector import openapi

if __name__ == "__main__":
    openapi.run("service")
'''
MANIFEST = """\
[connector]
name = "github://acme/connector-items"
version = "0.0.0-dev"

[capabilities.network]
hosts = ["api.example.com:443"]

[capabilities.credential]
kind = "api_key"
scope = "Read and write items"

[capabilities.runtime]
imports = ["http"]
"""


def connector_of(folder: Path, data: bytes) -> Path:
    """Write the sources of a connector as an import does; return their folder."""
    service = folder / "service"
    service.mkdir(parents=True)
    (service / "__init__.py").write_text('"""The document of the service."""\n')
    (service / "document.json").write_bytes(data)
    (folder / "connector.py").write_text(PROGRAM)
    (folder / "manifest.toml").write_text(MANIFEST)
    return folder
