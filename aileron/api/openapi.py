"""The HTTP API as an OpenAPI document, generated from the types themselves.

Pure. It is made only on request, because it imports modules that nothing else needs. The docstrings of the
types become the descriptions of the schemas.

Source: OpenAPI 3.1.1, JSON Schema 2020-12, docs/reference/http-api.md.
"""

from __future__ import annotations

import inspect
import re
from http import HTTPStatus
from types import UnionType
from typing import Final, get_args

import msgspec

from aileron.api.failures import ErrorAnswer
from aileron.api.routes import ROUTES, RouteSpec

__all__ = ["openapi_document"]

_REF: Final = "#/components/schemas/{name}"
_PARAMETER: Final = re.compile(r"\{(\w+)(:path)?\}")


def openapi_document(version: str) -> dict[str, object]:
    """Return the OpenAPI document of all routes, as JSON values. `version` is that of Aileron."""
    types = [kind for spec in ROUTES for kind in _types_of(spec)]
    unique = list(dict.fromkeys([*types, ErrorAnswer]))
    schemas, components = msgspec.json.schema_components(unique, ref_template=_REF)
    schema_of = dict(zip(unique, schemas, strict=True))
    paths: dict[str, dict[str, object]] = {}
    for spec in ROUTES:
        paths.setdefault(_PARAMETER.sub(r"{\1}", spec.path), {})[spec.method.lower()] = _operation(spec, schema_of)
    return {
        "openapi": "3.1.1",
        "info": {"title": "Aileron", "version": version, "summary": "The daemon's HTTP API, over its sockets."},
        "paths": paths,
        "components": {"schemas": {name: _described(schema) for name, schema in components.items()}},
    }


def _described(schema: dict[str, object]) -> dict[str, object]:
    """Return the schema with the source's indentation removed from its description. Markdown would show indented text as code."""
    if "description" not in schema:
        return schema
    return {**schema, "description": inspect.cleandoc(str(schema["description"]))}


def _types_of(spec: RouteSpec) -> list[type]:
    """Return the types of a route's request and response bodies. The members of a union are listed one by one."""
    found = [spec.answer, spec.body, spec.later]
    return [member for kind in found if kind is not None for member in _members(kind)]


def _members(kind: type | UnionType) -> tuple[type, ...]:
    return get_args(kind) if isinstance(kind, UnionType) else (kind,)


def _operation(spec: RouteSpec, schema_of: dict[type, dict[str, object]]) -> dict[str, object]:
    def content(kind: type | UnionType) -> dict[str, object]:
        schemas = [schema_of[member] for member in _members(kind)]
        return {"application/json": {"schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas}}}

    answers = {HTTPStatus.OK: spec.answer, HTTPStatus.ACCEPTED: spec.later}
    responses: dict[str, object] = {
        str(int(status)): {"description": HTTPStatus(status).phrase, "content": content(kind)}
        for status, kind in answers.items()
        if kind is not None
    }
    responses["default"] = {"description": "The error: docs/reference/failures.md", "content": content(ErrorAnswer)}
    if spec.answer is None and spec.later is None:
        responses["200"] = {"description": "This OpenAPI document", "content": {"application/json": {}}}
    operation: dict[str, object] = {
        "operationId": spec.handler,
        "tags": [spec.handler.partition(".")[0]],
        "x-aileron-scopes": sorted(scope.value for scope in spec.scopes),
        "parameters": [*_path_parameters(spec), *_query_parameters(spec)],
        "responses": responses,
    }
    if spec.body is not None:
        operation["requestBody"] = {"required": True, "content": content(spec.body)}
    return operation


def _path_parameters(spec: RouteSpec) -> list[dict[str, object]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name, _ in _PARAMETER.findall(spec.path)
    ]


def _query_parameters(spec: RouteSpec) -> list[dict[str, object]]:
    return [{"name": name, "in": "query", "schema": {"type": "string"}} for name in spec.query]
