"""The messages of protocol version 1. The header of every frame is one of these messages.

On the wire a message is a MessagePack map with its tag under `type`; fields that are absent have the default shown here,
and nothing may be added. The type of a field says which values it may have; session.py says which message may follow which.

`Chunk`, `WebSocketMessage` and `WebSocketClose` travel both ways. A `Chunk`, a `WebSocketMessage` and an `HttpRequest` with
`body="inline"` carry raw bytes after the header, and a `Result` whose header would be too large carries its output there; no
other message has a body.

Source: docs/reference/frames.md (a test compares).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

__all__ = [
    "JSON",
    "PROTOCOL_VERSION",
    "AuditEvent",
    "Cancel",
    "Chunk",
    "Failed",
    "FrameFailure",
    "FromJail",
    "GrantedHost",
    "HttpHead",
    "HttpRequest",
    "Invoke",
    "JSONObject",
    "Log",
    "LogLevel",
    "Message",
    "Progress",
    "Ready",
    "Refused",
    "Result",
    "TcpOpen",
    "TcpOpened",
    "ToJail",
    "WebSocketClose",
    "WebSocketMessage",
    "WebSocketOpen",
    "WebSocketOpened",
    "is_close_code",
]

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"
    JSONObject: TypeAlias = "dict[str, JSON]"
    _Members: TypeAlias = Mapping[str, object]  # an object that is only passed on
else:
    # msgspec reads the types of a message's fields, and knows no recursive type. The codec checks what is in such values.
    JSON = Any
    JSONObject = _Members = dict[str, Any]

PROTOCOL_VERSION: Final = 1
_CLOSE_CODES: Final = frozenset({*range(1000, 1004), *range(1007, 1014), *range(3000, 5000)})
"""Close codes that an endpoint of a WebSocket may send: RFC 6455 section 7.4, and 1012 and 1013, which IANA registered later."""

RequestId = Annotated[int, msgspec.Meta(ge=1, le=(1 << 32) - 1)]
"""The id of a request, chosen by the jail. Each id is larger than the one before, so a comparison with the last id
shows whether an id was ever used.
"""
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Command = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
"""A command line for a shell on the remote host: a program and paths. Linux has no path longer than 4,096 bytes."""
Status = Annotated[int, msgspec.Meta(ge=100, le=999)]
CloseCode = Annotated[int, msgspec.Meta(ge=1000, le=4999)]
"""A close code in the range of RFC 6455 section 7.4.2. `WebSocketClose` refuses the codes that no endpoint may send."""
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=(1 << 53) - 1)]
LogLevel = Literal["debug", "info", "warning", "error"]
Headers = list[tuple[str, str]]
"""Header fields as (name, value), in order; names may repeat. Values are bytes decoded as Latin-1 (U+0000 to U+00FF)."""


def is_close_code(code: int) -> bool:
    """Return whether an endpoint of a WebSocket may send this close code (RFC 6455 section 7.4)."""
    return code in _CLOSE_CODES


class _Message(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="type",
):
    """The base class of all messages."""


class GrantedHost(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A destination that this invocation may use. `plain` means http instead of https. `login` is the protocol by which
    the host logs in to this destination, such as `imap`; the connector's stream is then already logged in.
    """

    host: str
    port: Port
    plain: bool
    login: str | None = None

    @property
    def url(self) -> str:
        """The origin URL without a trailing slash, such as `https://api.example.com` or `http://127.0.0.1:5232`."""
        scheme, usual_port = ("http", 80) if self.plain else ("https", 443)
        return f"{scheme}://{self.host}" + ("" if self.port == usual_port else f":{self.port}")


class FrameFailure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The reason for a failure: a class from docs/reference/failures.md, a message, and details."""

    failure_class: str = msgspec.field(name="class")
    message: str
    details: _Members = {}


# To the jail


class Invoke(_Message, frozen=True, kw_only=True, tag="invoke"):
    """Message that tells the connector to run `op` with `args`. It is the host's first frame, and is sent once.
    `deadline_ms` counts from the arrival of this message.

    `accepted` is the digest of a tool's changed description. It is sent after a person has accepted the change, and
    only to a connector that reported such a change for this operation.
    """

    protocol: int
    op: str
    args: JSONObject
    hosts: list[GrantedHost]
    invocation: str
    deadline_ms: Milliseconds
    accepted: str | None = None


class HttpHead(_Message, frozen=True, kw_only=True, tag="http_head"):
    """Message with the status and headers of the response to request `id`. The body follows as chunks; the last chunk
    has `end` set.
    """

    id: RequestId
    status: Status
    headers: Headers


class Refused(_Message, frozen=True, kw_only=True, tag="refused"):
    """Message that request `id` has failed, before or after its `HttpHead`. No frame for it follows. The connector can
    handle the failure.
    """

    id: RequestId
    error: FrameFailure


class TcpOpened(_Message, frozen=True, kw_only=True, tag="tcp_opened"):
    """Message that stream `id` is connected: chunks may flow in both directions."""

    id: RequestId


class Chunk(_Message, frozen=True, kw_only=True, tag="chunk"):
    """Message with bytes of a body or stream, in either direction. `end` marks the last chunk of its direction."""

    id: RequestId
    end: bool = False


class WebSocketOpened(_Message, frozen=True, kw_only=True, tag="websocket_opened"):
    """Message that WebSocket `id` is open: messages may flow in both directions. `subprotocol` is the requested
    subprotocol that the service chose.
    """

    id: RequestId
    headers: Headers
    subprotocol: str | None = None


class WebSocketMessage(_Message, frozen=True, kw_only=True, tag="websocket_message"):
    """A message on a WebSocket, or a part of one, in either direction. `more` says that another part follows.

    `text` says that the bytes of all parts together are UTF-8.
    """

    id: RequestId
    text: bool = False
    more: bool = False


class WebSocketClose(_Message, frozen=True, kw_only=True, tag="websocket_close"):
    """Message that closes a WebSocket. Sent to the jail, it is the final frame: the WebSocket is closed, with the
    service's code and reason. Sent from the jail, it tells the host to close the WebSocket.

    `code` is None if the close frame had none (RFC 6455 section 7.1.5); `reason` is then empty. A reason is truncated
    to 123 bytes when it is sent (section 5.5).
    """

    id: RequestId
    code: CloseCode | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError for a code and reason that no close frame can have. A decoder raises a FrameError instead."""
        if self.code is None and self.reason:
            raise ValueError("a WebSocket is closed with a reason but without a code")
        if self.code is not None and not is_close_code(self.code):
            raise ValueError(f"a WebSocket is closed with {self.code}, which no end may send (RFC 6455 section 7.4)")


# From the jail


class Ready(_Message, frozen=True, kw_only=True, tag="ready"):
    """Message that the connector has loaded and waits for its invocation. Optional; if sent, it is the connector's
    first frame.
    """


class Log(_Message, frozen=True, kw_only=True, tag="log"):
    """A line for the log of this invocation."""

    level: LogLevel
    message: str
    fields: JSONObject = {}


class Progress(_Message, frozen=True, kw_only=True, tag="progress"):
    """Progress of the operation: `done` of `total`, in the connector's own unit."""

    done: int | float
    total: int | float | None = None
    message: str | None = None


class AuditEvent(_Message, frozen=True, kw_only=True, tag="audit"):
    """A fact for the audit trail, stated by the connector. The trail marks it as the connector's own words."""

    event: str
    fields: JSONObject = {}


class HttpRequest(_Message, frozen=True, kw_only=True, tag="http"):
    """An HTTP request for the host to send. `credential` is the declared kind of credential that the host adds.

    `body` is `none`, `inline` (the bytes follow this header), or `stream` (chunks with this id follow, the last with
    `end` set).
    """

    id: RequestId
    method: str
    url: str
    headers: Headers
    credential: str | None = None
    body: Literal["none", "inline", "stream"] = "none"


class TcpOpen(_Message, frozen=True, kw_only=True, tag="tcp_open"):
    """A request to the host to connect a stream of bytes. `tls` tells the host to use TLS from the first byte and to
    verify `host`.

    Streams and requests have ids from the same sequence. There is no field for a credential: if the manifest has a
    login, the host logs in by itself, and ignores `tls`. `command` is what an `ssh` login executes.
    """

    id: RequestId
    host: str
    port: Port
    tls: bool
    command: Command | None = None


class WebSocketOpen(_Message, frozen=True, kw_only=True, tag="websocket_open"):
    """A request to the host to open a WebSocket. WebSockets and requests have ids from the same sequence; `credential`
    is as in a request.

    If the service responds with anything but a WebSocket, its response is delivered like the response to a request.
    """

    id: RequestId
    url: str
    headers: Headers
    subprotocols: list[str] = []
    credential: str | None = None


class Cancel(_Message, frozen=True, kw_only=True, tag="cancel"):
    """Message that the jail reads no more of the response to request `id`, and sends no more of the request's body. The
    host still ends the request with a final frame.
    """

    id: RequestId


class Result(_Message, frozen=True, kw_only=True, tag="result"):
    """Message with the output of a finished operation. It is the last frame. The codec moves a large `output` into the
    body and back.
    """

    output: JSON


class Failed(_Message, frozen=True, kw_only=True, tag="failure"):
    """Message that the operation has failed, with the reason. It is the last frame."""

    failure_class: str = msgspec.field(name="class")
    message: str
    details: _Members = {}


ToJail = Invoke | HttpHead | TcpOpened | WebSocketOpened | Chunk | WebSocketMessage | WebSocketClose | Refused
FromJail = (
    Ready
    | Log
    | Progress
    | AuditEvent
    | HttpRequest
    | TcpOpen
    | WebSocketOpen
    | Chunk
    | WebSocketMessage
    | WebSocketClose
    | Cancel
    | Result
    | Failed
)
Message = ToJail | FromJail
