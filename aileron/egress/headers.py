"""Header fields: which of a connector's fields are sent, which of an upstream's fields are accepted, and how a body is
framed.

Pure; runs in the daemon on fields that a jailed connector or any server wrote. The connector does not speak HTTP: it
passes names and values. Every byte that could end a field early is refused here, before a name is resolved.

Rules
- A field name is an RFC 9110 token; a value is visible ASCII, space and tab. Everything else, such as CR, LF and NUL,
  raises RefusedError.
- A request that asks for another protocol (`Upgrade`: WebSocket, h2c) is refused, because nothing could be checked
  after the switch. A field of a WebSocket's handshake is refused too, because only websocket.py writes those fields.
- Dropped from requests: hop-by-hop fields, fields that `Connection` names, `Host`, fields that describe the sender or
  the path (`Forwarded`, `X-Forwarded-*`), `Expect`, `Accept-Encoding`. The engine writes its own `Host`, framing and
  `Accept-Encoding: identity`. The credential is added afterwards, so no `Connection` option can remove it.
- In a request with a credential, a connector's own `Authorization`, or the field that the credential uses, is refused.
  Here and above, `_` in a field's name counts as `-`, because CGI and WSGI servers do not distinguish them.
- In a response in HTTP/1.1, each line of the head must end with CR LF, and no line can continue another.
- Partial responses are neither requested nor accepted from a host that a secret could have been sent to, because a
  connector could cut a secret so that neither half is found. RFC 9110 section 14.2 lets a server ignore `Range`, so
  clients can handle complete responses.
- Aileron frames a body; a length that the connector states must agree exactly.

Source: RFC 9110 sections 5.5, 5.6.2 and 7.6.1; RFC 9112 section 6. Not here: the credential itself (credentials/).
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from aileron.egress.refusal import BadAnswerError, Reason, RefusedError

__all__ = [
    "MAX_HEADER_BYTES",
    "MAX_HEADER_FIELDS",
    "MAX_RESPONSE_HEADER_BYTES",
    "TOKEN",
    "Field",
    "HeadLines",
    "ResponseHead",
    "check_method",
    "check_reads",
    "check_whole",
    "field_key",
    "frame_body",
    "is_field_value",
    "keep_request_fields",
    "read_response_head",
    "without_parts",
]

Field = tuple[str, str]

MAX_HEADER_FIELDS: Final = 100  # what Apache takes in a request (LimitRequestFields)
MAX_HEADER_BYTES: Final = 32 << 10  # 32 KiB of names and values; servers stop at 8 to 32 KiB
MAX_RESPONSE_HEADER_BYTES: Final = 48 << 10  # as UTF-8: a frame's header holds 64 KiB, and MessagePack adds to it

TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,256}")
"""Pattern of a token of RFC 9110 section 5.6.2, of at most 256 characters."""
_VALUE: Final = re.compile(r"[\x20-\x7e\t]*")
_METHOD: Final = re.compile(r"[A-Za-z][A-Za-z0-9\-]{0,31}")  # every method of the IANA registry fits
_REFUSED_METHODS: Final = frozenset({"CONNECT", "TRACE", "TRACK"})  # a tunnel; an echo of the credential

_READING_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "PROPFIND", "QUERY", "REPORT", "SEARCH"})
"""Methods that only read (safe methods), in the spelling of their definitions: RFC 9110 section 9.2.1, RFC 4918 9.1,
RFC 3253 3.6, RFC 5323 2, QUERY.
"""
_METHOD_IN_DISGUISE: Final = frozenset({"x-http-method", "x-http-method-override", "x-method-override"})
"""Fields (as `field_key`) with which frameworks let a request specify another method than its own."""

_HOP_BY_HOP: Final = frozenset(
    {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}
)
_DROPPED_FROM_REQUESTS: Final = _HOP_BY_HOP | {
    "accept-encoding", "content-length", "expect", "forwarded", "host", "http2-settings", "via", "x-real-ip",
}  # fmt: skip
_DROPPED_PREFIXES: Final = ("proxy-", "x-forwarded-")
_ASKS_FOR_PARTS: Final = frozenset({"range", "if-range", "request-range", "a-im"})
"""Fields that ask for a part of a response: RFC 9110 sections 14.2 and 13.1.5; Netscape's name for `Range`, which
servers still read; RFC 3229 (delta encoding).
"""
_PARTIAL_STATUS: Final = frozenset({206, 226})
_INTERIM: Final = re.compile(rb"HTTP/1\.[0-9] 1(?!01)[0-9]{2}")  # after 101 another protocol begins
_METHODS_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
_NO_BODY_STATUS: Final = frozenset({204, 304})


def check_method(method: str) -> str:
    """Return a method as it goes on the wire. Raises RefusedError for text that is not a method name, and for CONNECT
    and TRACE.
    """
    if not _METHOD.fullmatch(method) or method.upper() in _REFUSED_METHODS:
        raise RefusedError(Reason.METHOD, "the method must be a plain HTTP method name, and not CONNECT or TRACE")
    return method


def check_reads(method: str, fields: Sequence[Field]) -> None:
    """Raise RefusedError(read_only) unless a request only reads, as far as its head shows."""
    if method not in _READING_METHODS:
        reading = ", ".join(sorted(_READING_METHODS))
        raise RefusedError(Reason.READ_ONLY, f"a preview can only read: it can use {reading}")
    for name, _value in fields:
        if field_key(name.strip()) in _METHOD_IN_DISGUISE:
            raise RefusedError(
                Reason.READ_ONLY, f"a preview can only read: header field {field_key(name)} names another method"
            )


def field_key(name: str) -> str:
    """Return the key of a header field's name. Two names share a key if a server could take them for the same field."""
    return name.lower().replace("_", "-")


def is_field_value(value: str) -> bool:
    """Return whether the value of a header field has only visible ASCII, space and tab, and no blank at either end."""
    return _VALUE.fullmatch(value) is not None and value == value.strip(" \t")


def keep_request_fields(fields: Sequence[Field], reserved: frozenset[str]) -> tuple[Field, ...]:
    """Check the connector's header fields, and return those that are sent, in order and as spelled.

    `reserved` are the `field_key`s that belong to the credential of this request; empty without a credential. Raises
    RefusedError for a malformed field, a reserved field, `Upgrade`, or too many fields.
    """
    if len(fields) > MAX_HEADER_FIELDS or sum(len(name) + len(value) for name, value in fields) > MAX_HEADER_BYTES:
        limit = f"{MAX_HEADER_FIELDS} fields and {MAX_HEADER_BYTES >> 10} KiB"
        raise RefusedError(Reason.HEADER_LIMIT, f"the request has more header fields than {limit}")
    trimmed = [(name, value.strip(" \t")) for name, value in fields]
    for number, (name, value) in enumerate(trimmed, start=1):
        if not TOKEN.fullmatch(name):
            raise RefusedError(Reason.HEADER_NAME, f"the name of header field {number} is not a valid HTTP token")
        if not _VALUE.fullmatch(value):
            raise RefusedError(
                Reason.HEADER_VALUE, f"header field {name} has a byte other than visible ASCII, space or tab"
            )
        if field_key(name) in reserved:
            raise RefusedError(Reason.HEADER_CREDENTIAL, f"header field {name} belongs to the credential; leave it out")
        if field_key(name) == "upgrade":
            raise RefusedError(
                Reason.UPGRADE,
                "the request asks to change the protocol (Upgrade): open a WebSocket with the host function websocket; "
                "h2c is not supported",
            )
        if field_key(name).startswith("sec-websocket-"):
            raise RefusedError(
                Reason.UPGRADE,
                f"header field {name} belongs to the handshake of a WebSocket; leave it out, and name subprotocols as such",
            )
    dropped = _DROPPED_FROM_REQUESTS | frozenset(map(field_key, _connection_options(trimmed)))
    return tuple(
        (name, value)
        for name, value in trimmed
        if field_key(name) not in dropped and not field_key(name).startswith(_DROPPED_PREFIXES)
    )


def without_parts(fields: Sequence[Field]) -> tuple[Field, ...]:
    """Return a request's header fields, except those that ask for only a part of the response."""
    return tuple((name, value) for name, value in fields if field_key(name) not in _ASKS_FOR_PARTS)


def frame_body(
    method: str, fields: Sequence[Field], body: bytes | AsyncIterator[bytes] | None
) -> tuple[Field | None, int | None]:
    """Return the header field that frames a request's body (None if the request needs none), and the number of bytes
    that the body must have (None: any number).

    A streamed body goes out chunked, or with the connector's own `Content-Length`, because some services accept no
    chunked uploads; the body must then have that length. Raises RefusedError if `Content-Length` or `Transfer-Encoding`
    is doubtful, such as a length that is not the body's.
    """
    declared = _declared_length(fields)
    if isinstance(body, bytes) or body is None:
        length = len(body or b"")
        if declared not in (None, length):
            raise RefusedError(Reason.BODY_LENGTH, "Content-Length is not the length of the body")
        if length or method.upper() in _METHODS_WITH_BODY:
            return ("Content-Length", str(length)), length
        return None, 0
    if declared is None:
        return ("Transfer-Encoding", "chunked"), None
    return ("Content-Length", str(declared)), declared


class ResponseHead(msgspec.Struct, frozen=True):
    """The head of an upstream's response. `codings` are its content codings, outermost last."""

    status: int
    fields: tuple[tuple[bytes, bytes], ...]
    codings: tuple[str, ...]


def check_whole(head: ResponseHead) -> None:
    """Raise BadAnswerError if the response is only part of a representation. 416 (the requested range does not exist)
    is allowed.
    """
    fields = {name.lower(): value for name, value in head.fields}
    is_part = head.status in _PARTIAL_STATUS or (b"content-range" in fields and head.status != 416)
    if is_part or fields.get(b"content-type", b"").lower().startswith(b"multipart/byteranges"):
        raise BadAnswerError("it is a partial answer, in which a divided secret cannot be found: request the whole")


class HeadLines:
    """A checker of the heads of an HTTP/1.1 response as they come off the wire, interim ones and the final one.

    h11 accepts a bare LF as the end of a line, and joins continuation lines (obs-fold); other parsers do neither. RFC
    9112 sections 2.2 and 5.2 let a recipient refuse both.
    """

    def __init__(self) -> None:
        self._line = b""  # the incomplete line so far; the wire bounds the size of heads
        self._is_status_line = True
        self._is_interim = False
        self._is_over = False

    def are_clean(self, data: bytes) -> bool:
        """Return False if a line of a head is malformed. Bytes after the final head are not checked."""
        *whole, rest = data.split(b"\n")
        for part in whole:
            if self._is_over:
                return True
            line, self._line = self._line + part, b""
            if not self._take(line):
                return False
        self._line += b"" if self._is_over else rest
        return True

    def _take(self, line: bytes) -> bool:
        if not line.endswith(b"\r") or b"\r" in line[:-1]:
            return False
        if self._is_status_line:
            self._is_interim = _INTERIM.match(line) is not None
            self._is_status_line = False
        elif line == b"\r":
            self._is_status_line, self._is_over = self._is_interim, not self._is_interim
        return not line.startswith((b" ", b"\t"))


def read_response_head(method: str, status: int, fields: Sequence[tuple[bytes, bytes]]) -> ResponseHead:
    """Check a response's status and header fields, and return its head without the fields that are not passed on.
    Raises BadAnswerError for two framings, an unknown status, or too many fields.

    When the body will be decoded, the fields that describe its encoded form are dropped.
    """
    if not 200 <= status <= 599:
        raise BadAnswerError(f"HTTP does not define status {status}")
    # The size as UTF-8: each Latin-1 byte above 0x7f takes two bytes in the frame.
    size = sum(len(part) + len(part.translate(None, _ASCII)) for field in fields for part in field)
    if len(fields) > MAX_HEADER_FIELDS * 2 or size > MAX_RESPONSE_HEADER_BYTES:
        raise BadAnswerError(f"its header is larger than {MAX_RESPONSE_HEADER_BYTES >> 10} KiB")
    named = [(name.lower(), value) for name, value in fields]
    names = [name for name, _value in named]
    if b"transfer-encoding" in names and b"content-length" in names:
        raise BadAnswerError("it has both Content-Length and Transfer-Encoding")  # RFC 9112 6.1: smuggling, close
    has_body = method.upper() != "HEAD" and status not in _NO_BODY_STATUS
    codings = _codings(named) if has_body else ()
    text = [(name.decode("ascii"), value.decode("latin-1")) for name, value in named]
    dropped = _HOP_BY_HOP | _connection_options(text)
    if codings:
        dropped |= {"content-encoding", "content-length"}
    kept = (field for field, (name, _value) in zip(fields, text, strict=True) if name not in dropped)
    return ResponseHead(status, tuple(kept), codings)


_ASCII: Final = bytes(range(0x80))


def _connection_options(fields: Sequence[Field]) -> frozenset[str]:
    options = [value for name, value in fields if name.lower() == "connection"]
    return frozenset(option.strip(" \t").lower() for value in options for option in value.split(","))


def _declared_length(fields: Sequence[Field]) -> int | None:
    lengths = [value.strip(" \t") for name, value in fields if field_key(name) == "content-length"]
    encodings = [value.strip(" \t").lower() for name, value in fields if field_key(name) == "transfer-encoding"]
    if encodings not in ([], ["chunked"]):
        raise RefusedError(Reason.BODY_LENGTH, "Transfer-Encoding must be the single word chunked; leave it out")
    if not lengths:
        return None
    if encodings or len(lengths) > 1 or not re.fullmatch(r"[0-9]{1,15}", lengths[0]):
        raise RefusedError(Reason.BODY_LENGTH, "Content-Length must be a single plain number; leave it out")
    return int(lengths[0])


def _codings(named: Sequence[tuple[bytes, bytes]]) -> tuple[str, ...]:
    values = [value.decode("latin-1") for name, value in named if name == b"content-encoding"]
    words = [word.strip(" \t").lower() for value in values for word in value.split(",")]
    return tuple(word for word in words if word not in {"", "identity"})
