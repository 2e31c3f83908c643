"""Builds the HTTP request of an operation, after checking the arguments.

    prepared(Endpoint("GET", "/items/{id}", operation), {"id": 7, "q": "x"}, "https://api.example.com/v1", schemas)
    # Request("GET", "https://api.example.com/v1/items/7?q=x", [("Accept", "application/json"), …], None)

Arguments come from an agent and are not trusted: if one is missing, unknown or does not fit its schema, BadInput with
its name is raised. The document was installed by a person and decides where arguments go.

Rules
- An argument of a path is always one segment, or a part of one. Empty ones, `.` and `..` are refused: servers, proxies and
clients resolve them before any check. Dot segments between slashes in an argument are refused too, and so are dot segments
that appear only if a server decodes twice.
- A header field is visible ASCII, space and tab, with neither space nor tab at its ends. The host sends no others.
- Optional arguments that are not given are left out. A body is sent if it is required or an argument of it is given.
- The argument for a file, and for a body that is neither JSON, a form nor text, is base64.

Pure, except for the boundary of a multipart body, which is random. Source: OpenAPI 3.1.1, sections 4.8.8 to 4.8.15; RFC 7578.
Not here: writing values (styles.py), the base URL (service.py).
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from aileron_connector.check import Problem, Schema, Schemas, maybe_problem
from aileron_connector.failures import BadInput
from aileron_connector.openapi import styles
from aileron_connector.openapi.document import Encoding, Media, Operation, Parameter, RequestBody
from aileron_connector.openapi.media import Kind, kind_of
from aileron_connector.openapi.styles import Pair, Way
from aileron_sandbox.frames import JSON, JSONObject

__all__ = ["Endpoint", "Request", "prepared", "schema_of"]

_EXPRESSION: Final = re.compile(r"\{([^{}]+)\}")
_FIELD_VALUE: Final = re.compile(r"[\x20-\x7e\t]*")
_NOT_PARAMETERS: Final = frozenset({"content-type", "authorization"})
"""Header fields that are never parameters, even if a document lists them (OpenAPI). The body and the credential
determine them.
"""
_SLASHES: Final = re.compile(r"[/\\]")
_TWICE: Final = {"%2e": ".", "%2f": "/", "%5c": "\\"}
_AGENT: Final = "aileron"
"""Value of `User-Agent`. Some services (GitHub) refuse requests without it, but no service needs to know more."""
_QUOTED_NAME: Final = str.maketrans({'"': "%22", "\r": "%0D", "\n": "%0A"})
"""Escapes in the name of a multipart part, as browsers write it (WHATWG HTML, multipart/form-data encoding algorithm)."""


class Endpoint(NamedTuple):
    """An operation with its path and method in the document. `method` is in upper case."""

    method: str
    path: str
    operation: Operation


class Request(NamedTuple):
    """An HTTP request as the connector sends it to the host."""

    method: str
    url: str
    headers: list[tuple[str, str]]
    body: bytes | None


def prepared(endpoint: Endpoint, arguments: Mapping[str, JSON], base_url: str, schemas: Schemas) -> Request:
    """Build the request for a call. `base_url` has no slash at its end. Raises BadInput if the caller must change an argument."""
    operation = endpoint.operation
    _check_known(operation, arguments)
    for parameter in operation.parameters:
        _check_parameter(parameter, arguments, schemas)
    content_type, body = _body(operation.request_body, arguments, schemas)
    path = _path(endpoint, arguments)
    pairs = [
        pair for given in _given(operation, "query", arguments) for pair in _query(given, arguments[given.argument])
    ]
    headers = _headers(operation, arguments, content_type)
    return Request(endpoint.method, _joined(base_url + path, pairs), headers, body)


def schema_of(parameter: Parameter) -> Any:
    """Return the schema that a value of this parameter must match."""
    return next(iter(parameter.content.values())).get("schema", True) if parameter.content else parameter.schema


# Arguments


def _check_known(operation: Operation, arguments: Mapping[str, JSON]) -> None:
    known = {parameter.argument: None for parameter in operation.parameters}
    if operation.request_body is not None:
        body = operation.request_body
        known |= dict.fromkeys(body.arguments.values() if body.arguments else [body.argument])
    if operation.listing is not None and operation.listing.argument:
        known[operation.listing.argument] = None
        _check_fields(operation.listing.argument, arguments)
    for name in arguments:
        if name not in known:
            expected = ", ".join(known) or "none"
            raise BadInput(f"unknown argument {name[:64]!r}; expected {expected}", argument=name[:64])


def _check_fields(argument: str, arguments: Mapping[str, JSON]) -> None:
    fields = arguments.get(argument, ["*"])
    if not isinstance(fields, list) or not fields or not all(isinstance(field, str) and field for field in fields):
        raise BadInput(
            f'argument {argument!r} is not a list of names of fields, such as ["id", "user.login"], or ["*"] for all',
            argument=argument,
        )


def _check_parameter(parameter: Parameter, arguments: Mapping[str, JSON], schemas: Schemas) -> None:
    if parameter.argument in arguments:
        _check(parameter.argument, arguments[parameter.argument], schema_of(parameter), schemas)
    elif parameter.required:
        raise _missing(parameter.argument)


def _check(argument: str, value: Any, schema: Any, schemas: Schemas) -> None:
    problem = maybe_problem(value, schema, schemas, reading="argument")
    if problem is not None:
        raise _misfit(argument, problem)


def _misfit(argument: str, problem: Problem) -> BadInput:
    where = f", at {problem.place}," if problem.path else ""
    return BadInput(f"argument {argument!r}{where} {problem.words}", argument=argument)


def _missing(argument: str) -> BadInput:
    return BadInput(f"argument {argument!r} is missing", argument=argument)


def _given(operation: Operation, place: str, arguments: Mapping[str, JSON]) -> Iterator[Parameter]:
    return (
        parameter for parameter in operation.parameters if parameter.place == place and parameter.argument in arguments
    )


# Path, query, header fields


def _path(endpoint: Endpoint, arguments: Mapping[str, JSON]) -> str:
    of_name = {parameter.name: parameter for parameter in endpoint.operation.parameters if parameter.place == "path"}
    # A `#` part only distinguishes two operations of one path; it is not part of a request (RFC 3986 section 3.5).
    path, question, query = endpoint.path.partition("#")[0].partition("?")
    return "/".join([_segment(piece, of_name, arguments) for piece in path.split("/")]) + question + query


def _segment(template: str, of_name: Mapping[str, Parameter], arguments: Mapping[str, JSON]) -> str:
    """Return one segment of the path with its parameters filled in. Raises BadInput if a server could interpret the
    segment as another path.
    """
    used = [of_name[name] for name in _EXPRESSION.findall(template) if name in of_name]
    if not used:
        return template

    def expanded(found: re.Match[str]) -> str:
        parameter = of_name.get(found[1])
        return found[0] if parameter is None else _expanded(parameter, arguments.get(parameter.argument))

    text = _EXPRESSION.sub(expanded, template)
    if text.partition(";")[0] in {".", ".."} or not text:
        raise BadInput(f"argument {used[0].argument!r} would change the path", argument=used[0].argument)
    return text


def _expanded(parameter: Parameter, value: Any) -> str:
    if parameter.content:
        text = styles.encoded(msgspec.json.encode(value).decode())
    else:
        text = styles.segment(parameter.name, value, Way.of(parameter.style, parameter.explode, "simple"))
    if not text or value == "":
        raise BadInput(
            f"argument {parameter.argument!r} is empty, and is a part of the path", argument=parameter.argument
        )
    if any(_has_dots(part) for part in _texts(value)):
        raise BadInput(
            f"argument {parameter.argument!r} has a dot segment ('.' or '..'), which would change the path",
            argument=parameter.argument,
        )
    return text


def _texts(value: Any) -> list[str]:
    """Return every text in an argument's value, including the texts of its members."""
    if isinstance(value, dict):
        return [text for key, member in value.items() for text in (key, *_texts(member))]
    if isinstance(value, list):
        return [text for member in value for text in _texts(member)]
    return [styles.scalar(value)]


def _has_dots(text: str) -> bool:
    for spelled, meant in _TWICE.items():
        text = re.sub(spelled, meant.replace("\\", r"\\"), text, flags=re.IGNORECASE)
    return any(piece.partition(";")[0] in {".", ".."} for piece in _SLASHES.split(text))


def _query(parameter: Parameter, value: Any) -> list[Pair]:
    if parameter.content:
        return [(styles.encoded(parameter.name), styles.encoded(msgspec.json.encode(value).decode()))]
    way = Way.of(parameter.style, parameter.explode, "form", parameter.allow_reserved)
    return styles.query(parameter.name, value, way)


def _joined(url: str, pairs: list[Pair]) -> str:
    if not pairs:
        return url
    return f"{url}{'&' if '?' in url else '?'}{_form(pairs)}"


def _form(pairs: list[Pair]) -> str:
    return "&".join([f"{name}={value}" for name, value in pairs])


def _headers(operation: Operation, arguments: Mapping[str, JSON], content_type: str) -> list[tuple[str, str]]:
    headers = [
        (parameter.name, _field_value(parameter, arguments[parameter.argument]))
        for parameter in _given(operation, "header", arguments)
        if parameter.name.lower() not in _NOT_PARAMETERS and arguments[parameter.argument] is not None
    ]
    given = {name.lower() for name, _ in headers}
    ours = [("Accept", _accepted(operation)), ("User-Agent", _AGENT), ("Content-Type", content_type)]
    return headers + [(name, value) for name, value in ours if value and name.lower() not in given]


def _field_value(parameter: Parameter, value: Any) -> str:
    if parameter.content:
        text = msgspec.json.encode(value).decode()
    else:
        text = styles.field(value, Way.of(parameter.style, parameter.explode, "simple").explode)
    if not _FIELD_VALUE.fullmatch(text) or text != text.strip(" \t"):
        raise BadInput(
            f"argument {parameter.argument!r} cannot be a header field: it may have visible ASCII characters only, "
            "and spaces or tabs between them",
            argument=parameter.argument,
        )
    return text


def _accepted(operation: Operation) -> str:
    """Return the value of `Accept`: the media types of successful answers, or `*/*` if the document names none.

    If JSON is among them, only JSON is accepted: the document's schema is for JSON, and GitHub answers
    `application/vnd.github.object` with another shape.
    """
    wanted = {
        media_type: None
        for status, response in operation.responses.items()
        if status[:1] == "2" or status == "default"
        for media_type in response.content
    }
    return ", ".join([content_type for content_type in wanted if kind_of(content_type) == "json"] or wanted) or "*/*"


# Bodies


def _body(body: RequestBody | None, arguments: Mapping[str, JSON], schemas: Schemas) -> tuple[str, bytes | None]:
    """Return the value of Content-Type and the bytes of the body. Without a body they are empty and None."""
    if body is None:
        return "", None
    media_type, media = next(iter(body.content.items()))
    value = _checked_value(body, media, arguments, schemas)
    return ("", None) if value is msgspec.UNSET else _written(media_type, media, value, _Names.of(body), schemas)


def _checked_value(body: RequestBody, media: Media, arguments: Mapping[str, JSON], schemas: Schemas) -> Any:
    """Return the value of the body, or UNSET for no body. Raises BadInput if the value does not match the schema."""
    if not body.arguments:
        if body.argument in arguments:
            _check(body.argument, arguments[body.argument], media.schema, schemas)
        elif body.required:
            raise _missing(body.argument)
        return arguments.get(body.argument, msgspec.UNSET)
    value = {name: arguments[argument] for name, argument in body.arguments.items() if argument in arguments}
    if not value and not body.required:
        return msgspec.UNSET
    problem = maybe_problem(value, media.schema, schemas, reading="argument")
    if problem is not None:
        raise _of_argument(problem, body.arguments)
    return value


def _of_argument(problem: Problem, arguments: Mapping[str, str]) -> BadInput:
    """Return the error for a problem with the body. It names the argument that the invalid property was made from."""
    if problem.path and (argument := arguments.get(str(problem.path[0]))) is not None:
        return _misfit(argument, problem._replace(path=problem.path[1:]))
    if problem.missing is not None and problem.missing in arguments and not problem.path:
        return _missing(arguments[problem.missing])
    return BadInput(f"the arguments do not fit together: {problem.place or 'the body'} {problem.words}")


class _Names(NamedTuple):
    """The names of the arguments from which the properties of a body are made."""

    argument: str
    arguments: Mapping[str, str]

    @classmethod
    def of(cls, body: RequestBody) -> _Names:
        return cls(body.argument, body.arguments)

    def argument_of(self, name: str) -> str:
        return self.arguments.get(name, self.argument)


def _written(media_type: str, media: Media, value: Any, names: _Names, schemas: Schemas) -> tuple[str, bytes]:
    kind: Kind = kind_of(media_type)
    if kind == "json":
        return media_type, msgspec.json.encode(value)
    if kind == "text":
        return _with_charset(media_type), _text(names.argument, value).encode("utf-8", "replace")
    if kind == "binary":
        return media_type if "*" not in media_type else _ANY_BYTES, _decoded(names.argument, value)
    if not isinstance(value, dict):
        raise BadInput(f"argument {names.argument!r} is not an object", argument=names.argument)
    if kind == "form":
        return media_type, _form([pair for name in value for pair in _form_pairs(name, value[name], media)]).encode()
    return _multipart(list(_parts(media, value, names, schemas)))


_ANY_BYTES: Final = "application/octet-stream"


def _with_charset(media_type: str) -> str:
    """Return a text's media type with a charset, because text/plain without a charset means ASCII (RFC 2046)."""
    return media_type if "charset" in media_type.lower() else f"{media_type}; charset=utf-8"


def _text(argument: str, value: Any) -> str:
    if not isinstance(value, str):
        raise BadInput(f"argument {argument!r} is not a string", argument=argument)
    return value


def _decoded(argument: str, value: Any) -> bytes:
    try:
        return base64.b64decode(_text(argument, value), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadInput(f"argument {argument!r} is not base64, which bytes are given as", argument=argument) from error


def _form_pairs(name: str, value: Any, media: Media) -> list[Pair]:
    """Return the name-value pairs for one property of a form. Without a style they are the pairs that HTML forms send, and
    an object is JSON.
    """
    encoding = media.encoding.get(name, Encoding())
    if encoding.style is not None or encoding.explode is not None or encoding.allow_reserved:
        return styles.query(name, value, Way.of(encoding.style, encoding.explode, "form", encoding.allow_reserved))
    members = value if isinstance(value, list) and kind_of(encoding.content_type) != "json" else [value]
    return [(styles.encoded(name), styles.encoded(styles.scalar(member))) for member in members if member is not None]


class _Part(NamedTuple):
    """A part of a multipart body."""

    name: str
    filename: str
    content_type: str
    content: bytes


def _parts(media: Media, value: JSONObject, names: _Names, schemas: Schemas) -> Iterator[_Part]:
    properties = schemas.resolved(media.schema).get("properties", {})
    for name, field in value.items():
        schema = schemas.resolved(properties.get(name, {}))
        content_type = media.encoding.get(name, Encoding()).content_type.partition(",")[0].strip()
        members = field if isinstance(field, list) and kind_of(content_type) != "json" else None
        rule = schema if members is None else schemas.resolved(schema.get("items", True))
        for member in [field] if members is None else members:
            if member is not None:
                yield _part(name, member, rule, content_type, names.argument_of(name))


def _part(name: str, value: Any, schema: Schema, content_type: str, argument: str) -> _Part:
    if _is_file(schema, content_type) and isinstance(value, str):
        declared = content_type if "*" not in content_type else ""
        content_type = declared or schema.get("contentMediaType", _ANY_BYTES)
        return _Part(name, name, content_type, _decoded(argument, value))
    if isinstance(value, dict | list):
        return _Part(name, "", content_type or "application/json", msgspec.json.encode(value))
    return _Part(name, "", content_type, styles.scalar(value).encode("utf-8", "replace"))


def _is_file(schema: Schema, content_type: str) -> bool:
    """Return whether a property holds bytes, so that its argument is base64."""
    if schema.get("format") == "binary" or schema.get("contentEncoding") == "base64" or "contentMediaType" in schema:
        return True
    return bool(content_type) and kind_of(content_type) == "binary"


def _multipart(parts: list[_Part]) -> tuple[str, bytes]:
    boundary = _boundary([part.content for part in parts])
    pieces = []
    for part in parts:
        filename = f'; filename="{part.filename.translate(_QUOTED_NAME)}"' if part.filename else ""
        lines = [
            f"--{boundary}",
            f'Content-Disposition: form-data; name="{part.name.translate(_QUOTED_NAME)}"{filename}',
            *([f"Content-Type: {part.content_type}"] if part.content_type else []),
        ]
        pieces += ["\r\n".join(lines).encode(), b"\r\n\r\n", part.content, b"\r\n"]
    return f"multipart/form-data; boundary={boundary}", b"".join([*pieces, f"--{boundary}--\r\n".encode()])


def _boundary(contents: list[bytes]) -> str:
    """Return a boundary that no part contains. It is random, so that nobody can write a part with it, and is checked
    nevertheless.
    """
    while True:
        boundary = f"aileron-{os.urandom(16).hex()}"
        if not any(boundary.encode() in content for content in contents):
            return boundary
