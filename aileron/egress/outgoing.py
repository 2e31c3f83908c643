"""A request as it goes on the wire, before and after a credential is added.

Pure; runs in the daemon. Code that adds a credential (credentials/, signing/) takes an `Outgoing` and returns another,
so that exactly what is signed is sent, down to the last header field.

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
    """A complete request, as it is sent. `fields` are in order, and include `Host` and the framing.

    `body` is None if there is no body, or if the body comes in pieces (`is_streamed`).
    """

    method: str
    url: Url
    fields: tuple[Field, ...] = ()
    body: bytes | None = None
    is_streamed: bool = False

    @property
    def opens_websocket(self) -> bool:
        """True if the request asks for a WebSocket. Only the supervisor writes the `Upgrade` field (websocket.py); a
        connector's own is refused.
        """
        return any(name.lower() == "upgrade" for name, _value in self.fields)

    def with_fields(self, *added: Field) -> Outgoing:
        """Return the request with `added` as its last fields."""
        return dataclasses.replace(self, fields=(*self.fields, *added))

    def with_query(self, parameter: str) -> Outgoing:
        """Return the request with `parameter`, which is already percent-encoded, as the last parameter of its query."""
        query = parameter if self.url.query is None else f"{self.url.query}&{parameter}"
        return self.with_whole_query(query)

    def with_whole_query(self, query: str | None) -> Outgoing:
        """Return the request with `query` in place of its own query."""
        return dataclasses.replace(self, url=msgspec.structs.replace(self.url, query=query))

    def with_path(self, path: str) -> Outgoing:
        """Return the request with `path`, which is already percent-encoded, in place of its own path."""
        return dataclasses.replace(self, url=msgspec.structs.replace(self.url, path=path))

    def with_body(self, body: bytes) -> Outgoing:
        """Return the request with `body` as its complete body, and the length of `body` as its `Content-Length`."""
        kept = tuple(field for field in self.fields if field[0].lower() not in {"content-length", "transfer-encoding"})
        fields = (*kept, ("Content-Length", str(len(body))))
        return dataclasses.replace(self, fields=fields, body=body, is_streamed=False)


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Injection:
    """A request with its credential, and the byte strings to scrub from its response. Holds the secret, so its repr
    shows nothing.

    All later responses of the step are searched for `roots` too; only this response is searched for `once`, such as a
    signature, which no other request has. `certificate` is the client certificate of the connection, in PEM with its
    private key, and `first_message` the text that a WebSocket begins with.
    """

    request: Outgoing
    roots: frozenset[bytes] = frozenset()
    once: frozenset[bytes] = frozenset()
    certificate: Secret | None = None
    first_message: Secret | None = None
