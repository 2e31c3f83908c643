"""A request as it goes on the wire, before and after a credential is in it.

Pure; runs in the daemon. Code that adds a credential (credentials/, signing/) takes an `Outgoing` and returns another: so what is
signed is what is sent, to the last header field.

Not here: the decision that it can go out (rules.py), the wire itself (dial.py).
"""

from __future__ import annotations

import dataclasses

import msgspec

from aileron.egress.headers import Field
from aileron.egress.url import Url
from aileron.model.secret import Secret

__all__ = ["Injection", "Outgoing"]


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Outgoing:
    """A complete request: nothing is added to it later. `fields` are in order, with `Host` and framing.

    `body` None: there is none, or it comes in pieces (`is_streamed`).
    """

    method: str
    url: Url
    fields: tuple[Field, ...] = ()
    body: bytes | None = None
    is_streamed: bool = False

    @property
    def opens_websocket(self) -> bool:
        """True if the request asks for a WebSocket. Only the supervisor writes this field (websocket.py); a connector's is
        refused.
        """
        return any(name.lower() == "upgrade" for name, _value in self.fields)

    def with_fields(self, *added: Field) -> Outgoing:
        """Return the request with these fields last."""
        return dataclasses.replace(self, fields=(*self.fields, *added))

    def with_query(self, parameter: str) -> Outgoing:
        """Return the request with this parameter, percent-encoded already, last in its query."""
        query = parameter if self.url.query is None else f"{self.url.query}&{parameter}"
        return self.with_whole_query(query)

    def with_whole_query(self, query: str | None) -> Outgoing:
        """Return the request with this query in place of its own."""
        return dataclasses.replace(self, url=msgspec.structs.replace(self.url, query=query))

    def with_path(self, path: str) -> Outgoing:
        """Return the request with this path, percent-encoded already."""
        return dataclasses.replace(self, url=msgspec.structs.replace(self.url, path=path))

    def with_body(self, body: bytes) -> Outgoing:
        """Return the request with this whole body, and its length in place of the old one's."""
        kept = tuple(field for field in self.fields if field[0].lower() not in {"content-length", "transfer-encoding"})
        fields = (*kept, ("Content-Length", str(len(body))))
        return dataclasses.replace(self, fields=fields, body=body, is_streamed=False)


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Injection:
    """A request with its credential, and the byte strings to scrub from its response. Holds the secret; prints nothing.

    `roots` are searched for in all later answers of the step too, `once` only in this response: a signature, which another
    request does not have. `certificate` is the client certificate of the connection, in PEM with its private key, and
    `first_message` the text that a WebSocket begins with.
    """

    request: Outgoing
    roots: frozenset[bytes] = frozenset()
    once: frozenset[bytes] = frozenset()
    certificate: Secret | None = None
    first_message: Secret | None = None
