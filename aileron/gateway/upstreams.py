"""The destination of a request to a model's API, and the header fields that are passed on. Pure.

A transparent proxy passes requests and responses on unchanged, except for header fields that neither side can be trusted with.
So fields of one connection stay on it, and a session's token stays in the daemon.

Rules
- Only listed paths and methods are passed on, and only if every program splits the path into the same segments. Otherwise a
  path that one program normalizes (`..` has many encodings) could reach, with a key from the vault, other parts of the API.
- A field that `Connection` names belongs to that connection only, except fields that determine where a message ends.
- A key from the vault is inserted only after every key of the client was removed.

Source: RFC 9110 sections 7.6.1 and 7.2, RFC 9112; docs/reference/gateway.md. Not here: sending anything (proxy.py).

>>> provider_of(b"/v1/messages/count_tokens", [])
'anthropic'
"""

from __future__ import annotations

import re
from typing import Final, Literal, Self
from urllib.parse import unquote_to_bytes, urlsplit

import msgspec

from aileron.config import GatewaySettings, Upstream
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.placeholder import CELL_PLACEHOLDER

__all__ = [
    "PATHS",
    "Destination",
    "Fields",
    "Provider",
    "check_key",
    "check_method",
    "check_no_token",
    "destinations",
    "injected_path",
    "provider_of",
    "request_fields",
    "response_fields",
    "round_fields",
    "token_of",
    "why_unread",
]

Provider = Literal["anthropic", "openai"]
Fields = list[tuple[bytes, bytes]]
"""Type of a message's header fields, in their order. In requests of agents, the names are in lower case."""

_PATHS: Final[tuple[tuple[bytes, Provider | None], ...]] = (
    (b"/v1/messages", "anthropic"),
    (b"/v1/chat/completions", "openai"),
    (b"/v1/responses", "openai"),
    (b"/v1/models", None),
)
_INJECTED: Final = b"/inject"
_INJECTED_PATH: Final = re.compile(_INJECTED + rb"/([A-Za-z0-9_-]+)(/.*)", re.DOTALL)
PATHS: Final = (*(path.decode() for path, _ in _PATHS), _INJECTED.decode())
"""Paths that belong to the gateway, each including everything below it."""
_ANTHROPIC_ONLY: Final = b"anthropic-version"
"""Header field that every request to Anthropic's API has, and that no other API has."""
_OF_THE_CONNECTION: Final = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"te", b"upgrade"})
"""Header fields that belong to one connection, RFC 9110 section 7.6.1. Transfer-Encoding is missing, because a request
that came in chunks is sent in chunks again.
"""
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding", b"host"})
"""Header fields that are passed on even if `Connection` names them, because without them the receiver would see the end
of the message in another place.
"""
_OF_THESE_BYTES: Final = frozenset({b"content-digest", b"content-md5", b"digest", b"repr-digest", b"signature"})
"""Header fields with a digest or a signature of the body (RFC 9530, RFC 9421), which are wrong if the body is changed."""
_KEYS: Final = (b"x-api-key", b"authorization")
_BEARER: Final = re.compile(rb"bearer +(\S+)", re.IGNORECASE)
_TOKEN: Final = re.compile(rb"(?<![A-Za-z0-9_-])ail_[A-Za-z0-9_-]{43}")
_TOKEN_PREFIX: Final = b"ail_"
_DECODED: Final = 4
"""Number of times that a request target or a header field is searched for a token: as it is, and percent-decoded once,
twice and three times. A request with text that could be decoded once more is refused; no client encodes text that
often.
"""
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
"""Methods that are passed on (RFC 9110 section 9.3, RFC 5789). TRACE is missing, because its response would repeat the request
with the key; CONNECT, because it opens a tunnel; and methods that the gateway does not know.
"""
_SENT_PATH: Final = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*")
"""Pattern of a path as it is sent (RFC 3986 section 3.3): `pchar` and slashes."""
_NAMES: Final = re.compile(rb"(?:(?:[A-Za-z0-9_~@-][A-Za-z0-9._~!$&'()*+,;=:@ -]*)?(?:/|\Z))*")
"""Pattern of a path that was percent-decoded once: segments of the characters in _SENT_PATH and the space. No segment begins
with a dot, or with a character that some program removes before it looks for dots. The path has no `%`, so it cannot be decoded
again, and no byte above ASCII, so no other spelling of a dot or slash.
"""
_SENDABLE: Final = re.compile(rb"[!-~]+")


class Destination(msgspec.Struct, frozen=True):
    """The URL of a provider's API, split into its parts. `prefix` comes before each path, without a slash at its end;
    `secret` is the name of the vault secret with the API key.
    """

    provider: Provider
    scheme: bytes
    host: bytes
    port: int
    prefix: bytes
    secret: str | None

    @classmethod
    def of(cls, provider: Provider, upstream: Upstream) -> Self:
        """Return the destination of requests to a provider's API that a setting (`upstream`) specifies."""
        parts = urlsplit(upstream.url)
        return cls(
            provider=provider,
            scheme=parts.scheme.encode(),
            host=(parts.hostname or "").encode(),
            port=parts.port or (443 if parts.scheme == "https" else 80),
            prefix=parts.path.rstrip("/").encode(),
            secret=upstream.secret,
        )

    @property
    def is_plain(self) -> bool:
        """True if requests are sent without TLS, which is only possible to loopback (config.py)."""
        return self.scheme == b"http"

    @property
    def authority(self) -> bytes:
        """Value of the Host field, with the port only if it is not the scheme's default."""
        return self.host if self.port == (80 if self.is_plain else 443) else b"%b:%d" % (self.host, self.port)

    def key_field(self, key: bytes) -> tuple[bytes, bytes]:
        """Return the header field in which requests to this API contain the key."""
        return (b"x-api-key", key) if self.provider == "anthropic" else (b"authorization", b"Bearer " + key)


def destinations(settings: GatewaySettings) -> dict[Provider, Destination]:
    """Return the destination of requests to each provider's API."""
    return {
        "anthropic": Destination.of("anthropic", settings.anthropic),
        "openai": Destination.of("openai", settings.openai),
    }


def provider_of(raw_path: bytes, fields: Fields) -> Provider:
    """Return the provider to whose API a request goes, according to its path, which must be one of the gateway's paths
    or below one. Raises AileronError: not_found for any other path, invalid_request if a segment is not a name.
    """
    for path, provider in _PATHS:
        if raw_path == path or raw_path.startswith(path + b"/"):
            _check_names(raw_path)
            if provider is None:
                return "anthropic" if any(name.lower() == _ANTHROPIC_ONLY for name, _ in fields) else "openai"
            return provider
    raise AileronError(FailureClass.NOT_FOUND, "the gateway has no such path: docs/reference/gateway.md lists them")


def injected_path(raw_path: bytes) -> tuple[str, bytes] | None:
    """Return the name in a session's address and the rest of the path, if the path has the form of such an address;
    None for any other path. Raises AileronError(not_found) if the address is malformed.
    """
    if raw_path != _INJECTED and not raw_path.startswith(_INJECTED + b"/"):
        return None
    found = _INJECTED_PATH.fullmatch(raw_path)
    if found is None:
        raise AileronError(FailureClass.NOT_FOUND, "expected /inject/NAME/v1/…: docs/reference/injected-tools.md")
    return found[1].decode(), found[2]


def why_unread(fields: Fields) -> str | None:
    """Return why a request's body cannot be read or replaced: it is compressed, or a header field has a digest of it.
    None if it can be.
    """
    for name, value in fields:
        if name.lower() == b"content-encoding" and value.strip().lower() != b"identity":
            return "the body is compressed"
        if name.lower() in _OF_THESE_BYTES:
            return "a field names a digest of the body"
    return None


def round_fields(fields: Fields, length: int, number: int) -> Fields:
    """Return the header fields for the request of round `number`, counted from 1, whose body has `length` bytes. They
    ask for a response without compression.
    """
    changed: Fields = []
    for name, value in fields:
        match name.lower():
            case b"content-length" | b"transfer-encoding" | b"expect" | b"accept-encoding":
                continue
            case b"idempotency-key" if number > 1:
                continue  # another body under the same key would get the first one's response
            case _:
                changed.append((name, value))
    # Always sent: without the field any encoding is acceptable, RFC 9110 section 12.5.3.
    return [*changed, (b"accept-encoding", b"identity"), (b"content-length", b"%d" % length)]


def check_method(method: str) -> None:
    """Check that requests with this method are passed on. Raises AileronError(invalid_request) otherwise."""
    if method not in _METHODS:
        raise AileronError(
            FailureClass.INVALID_REQUEST, f"{method} is not passed on; the methods are {', '.join(_METHODS)}"
        )


def request_fields(fields: Fields, destination: Destination, key: bytes | None = None) -> Fields:
    """Return the header fields of a request that are sent to the upstream, in their original order. `key` replaces the
    first of the client's keys, or comes last if the client sent none.
    """
    dropped = _OF_THE_CONNECTION | _named_by_connection(fields)
    if any(name == b"transfer-encoding" for name, _ in fields):
        dropped |= {b"content-length"}  # RFC 9112 section 6.3: two ends of one message can hide a second message
    sent: Fields = []
    keys_seen = 0
    for name, value in fields:
        match name:
            case b"host":
                sent.append((name, destination.authority))
            case b"x-api-key" | b"authorization" if key is not None:
                if not keys_seen:
                    sent.append(destination.key_field(key))
                keys_seen += 1
            case _ if name not in dropped:
                sent.append((name, value))
    if key is not None and not keys_seen:
        sent.append(destination.key_field(key))  # only in a cell: elsewhere the client must have sent a token
    return sent


def response_fields(fields: Fields) -> Fields:
    """Return the fields of a response for the agent, in their original order. Chunking is not passed on, because each
    connection has its own.
    """
    dropped = _OF_THE_CONNECTION | _named_by_connection(fields) | {b"transfer-encoding"}
    if any(name.lower() == b"transfer-encoding" for name, _ in fields):
        dropped |= {b"content-length"}  # as in a request
    return [(name, value) for name, value in fields if name.lower() not in dropped]


def token_of(fields: Fields, destination: Destination) -> str:
    """Return the API key in a request's header fields, which must have the form of a session's token. Raises
    AileronError(unauthorized) for no key, several keys, or another form.
    """
    shown = {_bare(name, value) for name, value in fields if name in _KEYS}
    if len(shown) != 1:
        found = "none was sent" if not shown else "several were sent"
        raise _no_token(f"{found}; the key of {destination.provider} is in the vault")
    (only,) = shown
    if only is None or not only.startswith(_TOKEN_PREFIX):
        raise _no_token(f"another was sent; the key of {destination.provider} is in the vault")
    return only.decode("latin-1")


def check_no_token(target: bytes, fields: Fields, destination: Destination) -> None:
    """Raise AileronError if a request with this target and these header fields contains a session's token,
    percent-encoded or not. A cell's placeholder has the form of a token and must not be sent either.

    Raises AileronError: unauthorized if a token would leave, invalid_request if the text is encoded too often to tell.
    """
    keys = [_bare(name, value) or b"" for name, value in fields if name in _KEYS]
    if any(key.startswith(_TOKEN_PREFIX) for key in keys) or any(map(_has_token, [target, *(v for _, v in fields)])):
        what = "the placeholder of a cell" if CELL_PLACEHOLDER.encode() in keys else "a session's token"
        raise AileronError(
            FailureClass.UNAUTHORIZED,
            f"{what} is no key of {destination.provider} and is not sent there: store the key with "
            f"`aileron secret set NAME` and name it in gateway.upstreams.{destination.provider}.secret, or give the agent one",
            boundary=Boundary.USER,
        )


def check_key(key: bytes, secret: str) -> None:
    """Check that a stored secret can be the value of a header field. Raises AileronError(binding_failed), which does
    not quote the secret, otherwise.
    """
    if not _SENDABLE.fullmatch(key):
        raise AileronError(
            FailureClass.BINDING_FAILED,
            f"the secret {secret!r} is no API key: it has spaces, line ends or other than ASCII characters in it",
            boundary=Boundary.USER,
        )


def _check_names(raw_path: bytes) -> None:
    """Check that every program would split the path into the same segments. Raises AileronError(invalid_request)
    otherwise.
    """
    if not (_SENT_PATH.fullmatch(raw_path) and _NAMES.fullmatch(unquote_to_bytes(raw_path))):
        raise AileronError(
            FailureClass.INVALID_REQUEST,
            "a path is sent as names between slashes, each of which begins with a letter, a digit or one of _ ~ @ - and goes on "
            "with those, dots, spaces and ! $ & ' ( ) * + , ; = : only, encoded once or not",
        )


def _has_token(sent: bytes) -> bool:
    """Return whether a session's token is in `sent`, a part of a request, percent-encoded or not. Raises
    AileronError(invalid_request) if the text is encoded too often.
    """
    for _ in range(_DECODED):
        if _TOKEN.search(sent):
            return True
        decoded = unquote_to_bytes(sent)
        if decoded == sent:
            return False
        sent = decoded
    raise AileronError(
        FailureClass.INVALID_REQUEST,
        f"the target or a field is percent-encoded {_DECODED} times over: nobody can say what is in it; encode it once",
    )


def _named_by_connection(fields: Fields) -> frozenset[bytes]:
    named = {
        token.strip().lower() for name, value in fields if name.lower() == b"connection" for token in value.split(b",")
    }
    return frozenset(named - _FRAMING)


def _bare(name: bytes, value: bytes) -> bytes | None:
    """Return the API key in a header field; None for an Authorization field that is not Bearer."""
    if name != b"authorization":
        return value
    found = _BEARER.fullmatch(value)
    return found[1] if found else None


def _no_token(found: str) -> AileronError:
    return AileronError(
        FailureClass.UNAUTHORIZED,
        f"the API key has to be one session's token here, and {found}: `aileron launch AGENT` gives an agent one",
        boundary=Boundary.USER,
    )
