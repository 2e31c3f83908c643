"""The part of OpenAPI 3.1 that a packed document consists of, as types: what an import writes and a connector reads.

A packed document is valid OpenAPI 3.1, whatever the original was. It has less in it, so that a connector needs to know less:

- References are `#/components/schemas/NAME` only, and stand in schemas only. All others are resolved.
- A request body has one media type. Parameters are in path, query or header, and have a schema.
- Schemas have the keywords of aileron_connector/check.py and no others.
- `security` of an operation is `[{KIND: []}]`, with the kind of credential that the manifest declares, or `[]` for none.
- The first server of the document is the manifest's first host. Its URL is a path alone, so that a host that is bound when the
  connector is built is used as it is. An operation elsewhere has a server of its own, with an absolute URL.

Extensions say which argument of the operation goes where: `x-aileron-argument`, `x-aileron-arguments`, `x-aileron-list`.

Operations and schemas stay undecoded until they are asked for (`msgspec.Raw`): a run needs one operation, and a document may have
hundreds.

Source: OpenAPI Specification 3.1.1, section 4.8. Not here: how a request is made of it (request.py), what a schema means
(check.py).
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

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
]

VERSION: Final = "3.1.1"

Place = Literal["path", "query", "header"]
Style = Literal["simple", "label", "matrix", "form", "spaceDelimited", "pipeDelimited", "deepObject"]


class Server(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where requests go: `/base/path` or empty for the first host, `https://host/base/path` for another."""

    url: str


class Info(msgspec.Struct, frozen=True, omit_defaults=True, rename={"source": "x-aileron-source"}):
    """What the service is called. `source` is the hash of the original document, `sha256:` and 64 hex digits."""

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
    """One parameter, and the argument whose value it has. With `content` it is written as JSON, instead of by `style`."""

    name: str
    place: Place
    argument: str
    required: bool = False
    schema: dict[str, Any] = {}
    style: Style | None = None
    """None: `simple` in a path or header, `form` in a query."""
    explode: bool | None = None
    """None: true for `form` only."""
    allow_reserved: bool = False
    content: dict[str, dict[str, Any]] = {}
    """At most one, as `application/json`: then `schema` is inside of it."""


class Encoding(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """How one property of a form is written."""

    content_type: str = ""
    style: Style | None = None
    explode: bool | None = None
    allow_reserved: bool = False


class Media(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is sent or answered as one media type. No schema: anything."""

    schema: dict[str, Any] | bool = True
    encoding: dict[str, Encoding] = {}


class RequestBody(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={"argument": "x-aileron-argument", "arguments": "x-aileron-arguments"},
):
    """The body of a request: made of the arguments of its properties, or one argument as a whole."""

    content: dict[str, Media]
    """Exactly one."""
    required: bool = False
    arguments: dict[str, str] = {}
    """Property to argument. Empty: `argument` is the whole body."""
    argument: str = ""


class Link(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What an answer has for another call, here of the same operation. `parameters`: name to `$response.body#/POINTER`."""

    operation_id: str
    parameters: dict[str, str]


class Response(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the service answers with one status. No content: nothing is said about a body."""

    description: str = ""
    content: dict[str, Media] = {}
    links: dict[str, Link] = {}
    """`next` alone: the next page."""


class ListShape(msgspec.Struct, frozen=True, omit_defaults=True):
    """The list in an answer: the keys that lead to it, and what is told of each member if the list is large."""

    at: list[str] = []
    fields: list[str] = []
    """Names of members' properties, dotted for properties of those: `user.login`."""
    argument: str = ""
    """The argument with which a caller chooses other fields; empty: none."""


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
    """One operation. Its id is the connector's operation."""

    operation_id: str
    security: list[dict[str, list[str]]] = []
    parameters: list[Parameter] = []
    request_body: RequestBody | None = None
    responses: dict[str, Response] = {}
    """By status, by class of it (`2XX`), or `default`."""
    servers: list[Server] = []
    listing: ListShape | None = None
    summary: str = ""


class Components(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What schemas refer to."""

    schemas: dict[str, msgspec.Raw] = {}
    security_schemes: dict[str, Any] = {}


class Document(msgspec.Struct, frozen=True):
    """All of it. `paths` has the operations of each path by method, in lower case."""

    openapi: str
    info: Info
    servers: list[Server]
    paths: dict[str, dict[str, msgspec.Raw]]
    components: Components = Components()
