"""Conversion of a Swagger 2.0 document to the shape of OpenAPI 3.0, as far as the import of operations needs it.

Pure. Schemas stay in place with their references, because schemas of 2.0 are nearly the same as those of 3.0. Swagger 2.0
differs from 3.0 in other parts: bodies and forms are parameters, the type of a parameter is directly in the parameter, and the
host is in three keys.

Source: OpenAPI Specification 2.0; its differences from 3.0 in "Upgrading from Swagger 2.0 to OpenAPI 3.0". Not here: OpenAPI
3.x.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from aileron.importing.reading import DocumentError
from aileron.importing.references import References
from aileron.model.json_value import JSON, JSONObject, list_of

__all__ = ["as_openapi_3"]

_SCHEMA_KEYS: Final = (
    "type format items default maximum exclusiveMaximum minimum exclusiveMinimum maxLength minLength pattern maxItems "
    "minItems uniqueItems enum multipleOf"
).split()
_STYLES: Final = {
    "csv": ("form", False),
    "ssv": ("spaceDelimited", False),
    "pipes": ("pipeDelimited", False),
    "multi": ("form", True),
}
_METHODS: Final = ("get", "head", "post", "put", "patch", "delete")
_FORM: Final = "application/x-www-form-urlencoded"
_MULTIPART: Final = "multipart/form-data"
_JSON: Final = "application/json"
_FLOWS: Final = {
    "accessCode": "authorizationCode",
    "application": "clientCredentials",
    "implicit": "implicit",
    "password": "password",
}


def as_openapi_3(document: JSONObject, references: References) -> JSONObject:
    """Return the document with `servers`, `components.securitySchemes` and operations in the form of 3.0."""
    if str(document.get("swagger")) != "2.0":
        raise DocumentError(f"swagger: {str(document.get('swagger'))[:20]}; expected 2.0, or OpenAPI 3.0 or 3.1")
    paths = document.get("paths")
    made: JSONObject = {}
    for path, item in paths.items() if isinstance(paths, dict) else ():
        if isinstance(item, dict):
            whole: JSONObject = {key: _item_part(key, value, document, references) for key, value in item.items()}
            shared = [parameter for parameter in list_of(item.get("parameters")) if not _is_body(parameter, references)]
            bodies = [parameter for parameter in list_of(item.get("parameters")) if _is_body(parameter, references)]
            whole["parameters"] = [_parameter(parameter, references) for parameter in shared]
            if bodies:
                _give_bodies(whole, item, bodies, document, references)
            made[path] = whole
    schemes = document.get("securityDefinitions")
    return {
        **{key: document[key] for key in ("info", "security") if key in document},
        "servers": [*_servers(document)],
        "paths": made,
        "components": {
            "securitySchemes": {
                name: _scheme(scheme) for name, scheme in (schemes if isinstance(schemes, dict) else {}).items()
            }
        },
    }


def _item_part(key: str, value: Any, document: JSONObject, references: References) -> Any:
    if key in _METHODS and isinstance(value, dict):
        return _operation(value, list_of(value.get("parameters")), document, references)
    return value


def _give_bodies(
    made: JSONObject, item: JSONObject, bodies: list[JSON], document: JSONObject, references: References
) -> None:
    """Add a path's own body parameters to each of its operations."""
    for method in _METHODS:
        if isinstance(raw := item.get(method), dict):
            made[method] = _operation(raw, [*bodies, *list_of(raw.get("parameters"))], document, references)


def _operation(raw: JSONObject, parameters: list[JSON], document: JSONObject, references: References) -> JSONObject:
    """Return an operation with the `requestBody` and `responses` of 3.0."""
    consumes = list_of(raw.get("consumes")) or list_of(document.get("consumes")) or [_JSON]
    produces = list_of(raw.get("produces")) or list_of(document.get("produces")) or [_JSON]
    operation = {key: value for key, value in raw.items() if key not in ("consumes", "produces", "schemes")}
    operation["parameters"] = [
        _parameter(parameter, references) for parameter in parameters if not _is_body(parameter, references)
    ]
    bodies = [_value(parameter, references) for parameter in parameters if _is_body(parameter, references)]
    if bodies:
        operation["requestBody"] = _request_body(bodies, [kind for kind in consumes if isinstance(kind, str)])
    responses = raw.get("responses")
    operation["responses"] = {
        status: _response(answer, [kind for kind in produces if isinstance(kind, str)], references)
        for status, answer in (responses if isinstance(responses, dict) else {}).items()
    }
    return operation


def _value(raw: Any, references: References) -> JSONObject:
    try:
        value = references.resolved(raw, references.root).value
    except DocumentError:
        return {}
    return value if isinstance(value, dict) else {}


def _is_body(raw: Any, references: References) -> bool:
    return _value(raw, references).get("in") in ("body", "formData")


def _parameter(raw: Any, references: References) -> JSONObject:
    """Return a path, query or header parameter. A broken reference stays as it is, so that it is reported later."""
    value = _value(raw, references)
    if not value:
        return raw if isinstance(raw, dict) else {}
    made = {key: item for key, item in value.items() if key not in _SCHEMA_KEYS and key != "collectionFormat"}
    made["schema"] = _inline_schema(value)
    if value.get("type") == "array":
        style, explode = _style(value)
        made |= {"style": style, "explode": explode}
    return made


def _style(value: JSONObject) -> tuple[str, bool]:
    """Return the OpenAPI 3.0 `style` and `explode` for a Swagger list parameter; the default is that of CSV.

    A list format that 3.0 lacks becomes an invalid style, to be refused.
    """
    items = value.get("items")
    if isinstance(items, dict) and items.get("type") == "array":
        return "a list of lists", False
    said = said if isinstance(said := value.get("collectionFormat"), str) else "csv"
    if value.get("in") in ("path", "header"):
        return ("simple", False) if said in ("csv", "multi") else (f"collectionFormat: {said}", False)
    return _STYLES.get(said, (f"collectionFormat: {said}", False))


def _inline_schema(value: JSONObject) -> JSONObject:
    schema = {key: value[key] for key in _SCHEMA_KEYS if key in value}
    if schema.get("type") == "file":
        schema |= {"type": "string", "format": "binary"}
    return schema


def _request_body(bodies: list[JSONObject], consumes: list[str]) -> JSONObject:
    whole = next((body for body in bodies if body.get("in") == "body"), None)
    if whole is not None:
        content: JSONObject = {kind: {"schema": whole.get("schema", {})} for kind in consumes}
        return {
            "required": whole.get("required") is True,
            "content": content,
            "description": whole.get("description", ""),
        }
    fields = [(name, body) for body in bodies if isinstance(name := body.get("name"), str)]
    has_file = any(body.get("type") == "file" for _, body in fields)
    kind = _MULTIPART if has_file or (_MULTIPART in consumes and _FORM not in consumes) else _FORM
    required: list[JSON] = [name for name, body in fields if body.get("required") is True]
    schema: JSONObject = {
        "type": "object",
        "properties": {
            name: {**_inline_schema(body), "description": body.get("description", "")} for name, body in fields
        },
        "required": required,
    }
    encoding: JSONObject = {}
    for name, body in fields:
        if body.get("type") == "array":
            style, explode = _style(body)
            encoding[name] = {"style": style, "explode": explode}
    return {"required": bool(required), "content": {kind: {"schema": schema, "encoding": encoding}}}


def _response(raw: Any, produces: list[str], references: References) -> JSONObject:
    value = _value(raw, references)
    made: JSONObject = {"description": value.get("description", "")}
    schema = value.get("schema")
    if isinstance(schema, dict):
        if schema.get("type") == "file":
            schema = {"type": "string", "format": "binary"}
        made["content"] = {kind: {"schema": schema} for kind in produces}
    return made


def _servers(document: JSONObject) -> Iterator[JSONObject]:
    host, base = document.get("host"), document.get("basePath")
    path = base if isinstance(base, str) and base != "/" else ""
    if not isinstance(host, str):
        if path:
            yield {"url": path}
        return
    schemes = [scheme for scheme in list_of(document.get("schemes")) if scheme in ("https", "http")]
    yield {"url": f"{'https' if 'https' in schemes or not schemes else 'http'}://{host}{path}"}


def _scheme(raw: Any) -> Any:
    if not isinstance(raw, dict):
        return {}
    if raw.get("type") == "basic":
        return {"type": "http", "scheme": "basic", "description": raw.get("description", "")}
    if raw.get("type") == "oauth2":
        flow = {key: raw[key] for key in ("authorizationUrl", "tokenUrl", "scopes") if key in raw}
        return {"type": "oauth2", "flows": {_FLOWS.get(str(raw.get("flow")), "implicit"): flow}}
    return raw
