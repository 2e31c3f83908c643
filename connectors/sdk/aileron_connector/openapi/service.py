"""Declares the operations of a packed document, and executes calls of them.

    declare("service")              # reads service/document.json next to the program, and registers its operations
    run("service")                  # declares them and serves the invocation; a connector needs no more
    run("service", idempotency={"send": "txn_id"})      # sets this argument to the invocation's idempotency key

Runs in the jail. The document was installed with the program and is as trusted as the program. The document decides which
request an operation makes, and the host decides whether that request is sent.

Rules
- Only the necessary parts are decoded: the operations' names when the document is read, an operation when it is called.
- A request goes to the first host of this invocation, which may have been chosen when the connector was built, or to
  the host that the operation names, if it is granted.
- The operation's `security` names the credential, which the host adds.
- Redirects are not followed, since they could lead outside of the grant. No request is repeated here, since the host does that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from aileron_connector import http, loop, packed
from aileron_connector.check import Schemas
from aileron_connector.failures import BadInput, ConnectorError
from aileron_connector.openapi import answer
from aileron_connector.openapi.document import Document, Operation
from aileron_connector.openapi.request import Endpoint, prepared
from aileron_sandbox.frames import GrantedHost, JSONObject

__all__ = ["Service", "base_url", "declare", "run"]

_FILE: Final = "document.json"
_NONE: Final[Mapping[str, str]] = MappingProxyType({})


class _Named(msgspec.Struct, rename="camel"):
    """An operation, decoded only as far as its name."""

    operation_id: str


_DOCUMENT: Final = msgspec.json.Decoder(Document)
_OPERATION: Final = msgspec.json.Decoder(Operation)
_NAMED: Final = msgspec.json.Decoder(_Named)
"""Decoder for the name of an operation. Like the decoders above, it is made when the module is loaded, which can be
before a run: making _OPERATION takes longer than decoding with it.
"""


class _Place(NamedTuple):
    """The position of an operation in the document."""

    method: str
    path: str
    raw: msgspec.Raw


class Service:
    """The operations of one document. Raises ConnectorError if the document is not valid.

    `idempotency` maps operations to the argument that holds the idempotency key (http.py). Raises ValueError if the document
    has no such operation.
    """

    def __init__(self, document: bytes, idempotency: Mapping[str, str] = _NONE) -> None:
        try:
            self._document: Final = _DOCUMENT.decode(document)
            self._places: Final = _places(self._document)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _broken(error) from error
        self._schemas: Final = Schemas(self._document.components.schemas)
        self._idempotency: Final = idempotency
        for name in idempotency:
            if name not in self._places:
                raise ValueError(f"idempotency of {name!r}: the document has no such operation")

    @property
    def names(self) -> list[str]:
        """Names of the operations, in the document's order."""
        return list(self._places)

    def endpoint(self, name: str) -> Endpoint:
        """Decode the operation with this name, and return it with its method and path."""
        place = self._places[name]
        try:
            decoded = _OPERATION.decode(place.raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _broken(error) from error
        return Endpoint(place.method.upper(), place.path, decoded)

    def declare(self) -> None:
        """Declare the operations. Raises ValueError if an operation with one of these names exists already."""
        packed.declare(self._places, self.call)

    def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """Send the request of an operation, and return its output."""
        endpoint = self.endpoint(name)
        arguments = self._with_key(name, arguments)
        base = base_url(self._document, endpoint.operation, http.hosts())
        request = prepared(endpoint, arguments, base, self._schemas)
        security = endpoint.operation.security
        credential = next(iter(security[0]), None) if security else None
        with http.request(request.method, request.url, request.headers, request.body, credential) as response:
            return answer.output(response, answer.Asked(endpoint, request.url, arguments), self._schemas)

    def _with_key(self, name: str, arguments: JSONObject) -> JSONObject:
        """Add the idempotency key to the arguments, if the operation has an argument for it. Raises BadInput if the
        caller gives that argument: a new request with an old key would be taken for the old request.
        """
        key = self._idempotency.get(name)
        if key is None:
            return arguments
        if key in arguments:
            raise BadInput(f"argument {key!r} is the connector's own: leave it out", argument=key)
        return {**arguments, key: http.idempotency_key()}


def _places(document: Document) -> dict[str, _Place]:
    return {
        _NAMED.decode(raw).operation_id: _Place(method, path, raw)
        for path, methods in document.paths.items()
        for method, raw in methods.items()
    }


def _broken(error: Exception) -> ConnectorError:
    return ConnectorError("connector_runtime_error", f"the connector's document cannot be read: {error}")


def base_url(document: Document, called: Operation, hosts: Sequence[GrantedHost]) -> str:
    """Return the base URL of the operation's path: a granted origin and a base path. Raises ConnectorError if the
    invocation has no such origin.
    """
    url = (called.servers or document.servers)[0].url if called.servers or document.servers else ""
    if url and not url.startswith("/"):
        granted, path = _granted(url, hosts)
        return f"{granted.url}{path}".rstrip("/")
    if not hosts:
        raise ConnectorError("connector_runtime_error", "no host is granted, so that there is nobody to ask")
    return f"{hosts[0].url}{url}".rstrip("/")


def _granted(url: str, hosts: Sequence[GrantedHost]) -> tuple[GrantedHost, str]:
    """Return the granted host of an absolute URL, and the path of the URL."""
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    name, _, port_text = authority.partition(":")
    port = int(port_text) if port_text.isdecimal() else 80 if scheme.lower() == "http" else 443
    for host in hosts:
        if host.host == name.lower() and host.port == port:
            return host, slash + path
    raise ConnectorError(
        "connector_runtime_error",
        f"this operation is at {name[:253]}:{port}, which is not among the hosts of the connector's manifest",
    )


def declare(package: str, *, idempotency: Mapping[str, str] = _NONE) -> Service:
    """Declare the operations in the `document.json` of a package, which is in the same archive as the program."""
    service = Service(packed.data_of(package, _FILE), idempotency)
    service.declare()
    return service


def run(package: str, *, idempotency: Mapping[str, str] = _NONE) -> None:
    """Declare the operations, and serve the one invocation for which this process was started. Call this function last."""
    declare(package, idempotency=idempotency)
    loop.run()
