"""The destination of a request for a model, and its header fields: pure.

The daemon's side of a transparent proxy: what arrives is the agent's, what comes back is the provider's, and neither is
trusted to send what only we may send. So fields of one connection stay on it, and a session's token stays here.

Rules
- Only what is listed passes, paths as well as methods: segments that are names, as every program reads them. A path that
  one program could read as leading elsewhere would open, with a key of the vault's, more than a way to models; and nobody has a
  list of all the ways to write two dots.
- A field that `Connection` names is of that connection only, except those that say where a message ends.
- A key of the vault's is put in after every client's key was taken out.

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
"""Header fields in their order; names in lower case on the side of agents."""

_PATHS: Final[tuple[tuple[bytes, Provider | None], ...]] = (
    (b"/v1/messages", "anthropic"),
    (b"/v1/chat/completions", "openai"),
    (b"/v1/responses", "openai"),
    (b"/v1/models", None),
)
_INJECTED: Final = b"/inject"
_INJECTED_PATH: Final = re.compile(_INJECTED + rb"/([A-Za-z0-9_-]+)(/.*)", re.DOTALL)
PATHS: Final = (*(path.decode() for path, _ in _PATHS), _INJECTED.decode())
"""Paths that belong to the gateway, each with everything below it."""
_ANTHROPIC_ONLY: Final = b"anthropic-version"
"""Field that every request to Anthropic's API has, and no other API knows."""
_OF_THE_CONNECTION: Final = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"te", b"upgrade"})
"""Fields of one connection, RFC 9110 section 7.6.1. Transfer-Encoding is not among them for a request: it is sent in chunks
again.
"""
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding", b"host"})
"""Fields that are never dropped because `Connection` names them: the other side would see the end of a message elsewhere."""
_OF_THESE_BYTES: Final = frozenset({b"content-digest", b"content-md5", b"digest", b"repr-digest", b"signature"})
"""Fields of RFC 9530 and RFC 9421 that are wrong with another body."""
_KEYS: Final = (b"x-api-key", b"authorization")
_BEARER: Final = re.compile(rb"bearer +(\S+)", re.IGNORECASE)
_TOKEN: Final = re.compile(rb"(?<![A-Za-z0-9_-])ail_[A-Za-z0-9_-]{43}")
_TOKEN_PREFIX: Final = b"ail_"
_DECODED: Final = 4
"""Times that a target or a field is searched for a token: as it is, and decoded once, twice and three times. What could be
decoded once more is not sent; nobody encodes that often.
"""
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
"""Methods of RFC 9110 section 9.3 and RFC 5789 whose response is about a resource. The response to TRACE is the request as it
came, with the key; after that to CONNECT comes no response; the meaning of any other method is unknown to the gateway.
"""
_SENT_PATH: Final = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*")
"""RFC 3986 section 3.3: `pchar` and slashes."""
_NAMES: Final = re.compile(rb"(?:(?:[A-Za-z0-9_~@-][A-Za-z0-9._~!$&'()*+,;=:@ -]*)?(?:/|\Z))*")
"""A path decoded once: segments of the same characters and the space, none of which begins with a dot, or with a character that
some program takes off before it looks for dots. No `%`, so nothing is left to decode; no byte above ASCII, so no dot or slash
in another spelling.
"""
_SENDABLE: Final = re.compile(rb"[!-~]+")


class Destination(msgspec.Struct, frozen=True):
    """An upstream, taken apart. `prefix` is put before each path, without a slash at its end; `secret` is a name."""

    provider: Provider
    scheme: bytes
    host: bytes
    port: int
    prefix: bytes
    secret: str | None

    @classmethod
    def of(cls, provider: Provider, upstream: Upstream) -> Self:
        """Return the destination that a setting names."""
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
        """True if requests go without TLS, and so to loopback (config.py)."""
        return self.scheme == b"http"

    @property
    def authority(self) -> bytes:
        """Value of the Host field: with the port only if it is not the scheme's own."""
        return self.host if self.port == (80 if self.is_plain else 443) else b"%b:%d" % (self.host, self.port)

    def key_field(self, key: bytes) -> tuple[bytes, bytes]:
        """Return the field that carries a key to this API."""
        return (b"x-api-key", key) if self.provider == "anthropic" else (b"authorization", b"Bearer " + key)


def destinations(settings: GatewaySettings) -> dict[Provider, Destination]:
    """Return both upstreams."""
    return {
        "anthropic": Destination.of("anthropic", settings.anthropic),
        "openai": Destination.of("openai", settings.openai),
    }


def provider_of(raw_path: bytes, fields: Fields) -> Provider:
    """Return the provider of a path, itself or below. AileronError(not_found), (invalid_request) if a segment is no name."""
    for path, provider in _PATHS:
        if raw_path == path or raw_path.startswith(path + b"/"):
            _check_names(raw_path)
            if provider is None:
                return "anthropic" if any(name.lower() == _ANTHROPIC_ONLY for name, _ in fields) else "openai"
            return provider
    raise AileronError(FailureClass.NOT_FOUND, "the gateway has no such path: docs/reference/gateway.md lists them")


def injected_path(raw_path: bytes) -> tuple[str, bytes] | None:
    """Return a session's name and the path behind it, from one of its addresses; None for any other path.
    AileronError(not_found).
    """
    if raw_path != _INJECTED and not raw_path.startswith(_INJECTED + b"/"):
        return None
    found = _INJECTED_PATH.fullmatch(raw_path)
    if found is None:
        raise AileronError(FailureClass.NOT_FOUND, "expected /inject/NAME/v1/…: docs/reference/injected-tools.md")
    return found[1].decode(), found[2]


def why_unread(fields: Fields) -> str | None:
    """Return why a body cannot be read or replaced; None if it can."""
    for name, value in fields:
        if name.lower() == b"content-encoding" and value.strip().lower() != b"identity":
            return "the body is compressed"
        if name.lower() in _OF_THESE_BYTES:
            return "a field names a digest of the body"
    return None


def round_fields(fields: Fields, length: int, number: int) -> Fields:
    """Return a request's fields for another body, in round `number`, from 1. The response must come readable."""
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
    """Return if a request with this method is passed on. AileronError(invalid_request)."""
    if method not in _METHODS:
        raise AileronError(
            FailureClass.INVALID_REQUEST, f"{method} is not passed on; the methods are {', '.join(_METHODS)}"
        )


def request_fields(fields: Fields, destination: Destination, key: bytes | None = None) -> Fields:
    """Return the fields that go upstream, in the order they came. `key` replaces the first of the client's keys, and comes last
    if the client sent none.
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
    """Return the fields that go back, in the order they came; chunks are each connection's own matter."""
    dropped = _OF_THE_CONNECTION | _named_by_connection(fields) | {b"transfer-encoding"}
    if any(name.lower() == b"transfer-encoding" for name, _ in fields):
        dropped |= {b"content-length"}  # as in a request
    return [(name, value) for name, value in fields if name.lower() not in dropped]


def token_of(fields: Fields, destination: Destination) -> str:
    """Return the client's API key if it can be a session's token, as it must be here. AileronError(unauthorized) for none or
    several.
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
    """Return if no session's token would leave with these, in whatever encoding of a target, nor a cell's placeholder, which has
    the form of a token.

    AileronError(unauthorized), (invalid_request) if it is encoded too often to tell.
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
    """Return if a stored secret can be a header's value. AileronError(binding_failed), which does not repeat it."""
    if not _SENDABLE.fullmatch(key):
        raise AileronError(
            FailureClass.BINDING_FAILED,
            f"the secret {secret!r} is no API key: it has spaces, line ends or other than ASCII characters in it",
            boundary=Boundary.USER,
        )


def _check_names(raw_path: bytes) -> None:
    """Return if every program finds the same names in the path. AileronError(invalid_request)."""
    if not (_SENT_PATH.fullmatch(raw_path) and _NAMES.fullmatch(unquote_to_bytes(raw_path))):
        raise AileronError(
            FailureClass.INVALID_REQUEST,
            "a path is sent as names between slashes, each of which begins with a letter, a digit or one of _ ~ @ - and goes on "
            "with those, dots, spaces and ! $ & ' ( ) * + , ; = : only, encoded once or not",
        )


def _has_token(sent: bytes) -> bool:
    """Return whether a session's token is in `sent`, encoded or not. AileronError(invalid_request) if it is encoded too often."""
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
    """Return the key in a field; None for an Authorization that is no Bearer."""
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
