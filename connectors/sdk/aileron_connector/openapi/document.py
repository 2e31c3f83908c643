"""Types for a packed document: a restricted form of OpenAPI 3.1 that an import writes and a connector reads.

A packed document is valid OpenAPI 3.1, whatever the original was. It has fewer features, so that a connector needs fewer rules:

- References are only `#/components/schemas/NAME`, and only in schemas. All other references are resolved by the import.
- A request body has one media type. Parameters are in path, query or header, and have a schema.
- Schemas have the keywords of aileron_connector/check.py and no others.
- `security` of an operation is `[{KIND: []}]`, with the kind of credential that the manifest declares, or `[]` for none.
- The first server of the document is the manifest's first host. Its URL is only a path, because the host may be chosen
  when the connector is built. An operation on another host has a server of its own, with an absolute URL.

Extensions say where each argument of the operation goes: `x-aileron-argument`, `x-aileron-arguments`, `x-aileron-list`.

Operations and schemas stay undecoded until they are used (`msgspec.Raw`): a run needs one operation, and a document may have
hundreds.

Source: OpenAPI Specification 3.1.1, section 4.8. Not here: making requests (request.py), the meaning of schemas (check.py).
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from aileron_connector.check import Schema
from aileron_sandbox.frames import JSONObject

__all__ = [
    "VERSION",
    "Components",
    "Document",
    "Encoding",
    "Info",
    "Link",
    "ListShape",
    "Media",
    "Operation",
    "Parameter",
    "RequestBody",
    "Response",
    "Server",
    "Style",
]

VERSION: Final = "3.1.1"

Place = Literal["path", "query", "header"]
Style = Literal["simple", "label", "matrix", "form", "spaceDelimited", "pipeDelimited", "deepObject"]


class Server(msgspec.Struct, frozen=True, omit_defaults=True):
    """The base of requests' URLs: `/base/path` or empty for the first host, `https://host/base/path` for another host."""

    url: str


class Info(msgspec.Struct, frozen=True, omit_defaults=True, rename={"source": "x-aileron-source"}):
    """The service's name and version. `source` is the hash of the original document, as `sha256:` and 64 hex digits."""

    title: str
    version: str
    source: str = ""
    license: dict[str, str] = {}


class Parameter(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={"place": "in", "allow_reserved": "allowReserved", "argument": "x-aileron-argument"},
):
    """A parameter, and the name of the argument that holds its value. With `content`, the value is written as JSON instead
    of by `style`.
    """

    name: str
    place: Place
    argument: str
    required: bool = False
    schema: Schema = {}
    style: Style | None = None
    """Style in which the value is written. None means `simple` in a path or header, `form` in a query."""
    explode: bool | None = None
    """True if each member of a list or an object is written separately, false if all are written together; None means true
    for `form` only.
    """
    allow_reserved: bool = False
    content: dict[str, JSONObject] = {}
    """Schema under the key `application/json`, with at most one entry. It replaces `schema`."""


class Encoding(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The way in which one property of a form is written."""

    content_type: str = ""
    style: Style | None = None
    explode: bool | None = None
    allow_reserved: bool = False


class Media(msgspec.Struct, frozen=True, omit_defaults=True):
    """The schema of a body with one media type. Without a schema, any content is allowed."""

    schema: Schema | bool = True
    encoding: dict[str, Encoding] = {}


class RequestBody(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={"argument": "x-aileron-argument", "arguments": "x-aileron-arguments"},
):
    """The body of a request. It is made from the arguments for its properties, or is the value of one argument."""

    content: dict[str, Media]
    """The body's schema by media type, with exactly one entry."""
    required: bool = False
    arguments: dict[str, str] = {}
    """Name of the argument for each property. If empty, `argument` holds the complete body."""
    argument: str = ""


class Link(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A link from an answer to the next call of the same operation. `parameters` map names of parameters to
    `$response.body#/POINTER`.
    """

    operation_id: str
    parameters: dict[str, str]


class Response(msgspec.Struct, frozen=True, omit_defaults=True):
    """The service's answer for one status. Without content, any body is allowed."""

    description: str = ""
    content: dict[str, Media] = {}
    links: dict[str, Link] = {}
    """Links from the answer. The only key is `next`, for the next page."""


class ListShape(msgspec.Struct, frozen=True, omit_defaults=True):
    """The path of the list in an answer, as keys, and the fields that each member keeps if the answer is large."""

    at: list[str] = []
    fields: list[str] = []
    """Names of the members' properties, with dots for nested properties: `user.login`."""
    argument: str = ""
    """Argument with which a caller chooses other fields; empty if the operation has no such argument."""


class Operation(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={
        "operation_id": "operationId",
        "request_body": "requestBody",
        "listing": "x-aileron-list",
    },
):
    """An operation of the document. Its id is the name of the connector's operation."""

    operation_id: str
    security: list[dict[str, list[str]]] = []
    parameters: list[Parameter] = []
    request_body: RequestBody | None = None
    responses: dict[str, Response] = {}
    """Responses by status, by class of status (`2XX`), or under `default`."""
    servers: list[Server] = []
    listing: ListShape | None = None
    summary: str = ""


class Components(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The components of the document, to which references lead."""

    schemas: dict[str, msgspec.Raw] = {}
    security_schemes: JSONObject = {}


class Document(msgspec.Struct, frozen=True):
    """The complete document. `paths` has the operations of each path by method, in lower case."""

    openapi: str
    info: Info
    servers: list[Server]
    paths: dict[str, dict[str, msgspec.Raw]]
    components: Components = Components()
