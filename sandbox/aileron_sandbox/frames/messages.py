"""The messages of protocol version 1: the header of every frame is one of these.

On the wire a message is a MessagePack map with its tag under `type`; fields that are absent have the default shown here,
and nothing may be added. The type of a field says which values it may have; session.py says which message may follow which.

`Chunk`, `WebSocketMessage` and `WebSocketClose` travel both ways. A `Chunk`, a `WebSocketMessage` and an `HttpRequest` with
`body="inline"` carry raw bytes after the header, and a `Result` whose header would be too large carries its output there; no
other message has a body.

Source: docs/reference/frames.md (a test compares).
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

__all__ = [
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

PROTOCOL_VERSION: Final = 1
_CLOSE_CODES: Final = frozenset({*range(1000, 1004), *range(1007, 1014), *range(3000, 5000)})
"""Close codes that an end of a WebSocket may send: RFC 6455 section 7.4, and 1012 and 1013, which IANA registered since."""

RequestId = Annotated[int, msgspec.Meta(ge=1, le=(1 << 32) - 1)]
"""The number of a request, chosen by the jail. Each is larger than the last, so one comparison tells if it was ever issued."""
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Command = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
"""A command line for a shell at the far end: a program and paths. Linux has no path longer than 4,096 bytes."""
Status = Annotated[int, msgspec.Meta(ge=100, le=999)]
CloseCode = Annotated[int, msgspec.Meta(ge=1000, le=4999)]
"""A close code in the range of RFC 6455 section 7.4.2; `WebSocketClose` refuses those that no end may send."""
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=(1 << 53) - 1)]
LogLevel = Literal["debug", "info", "warning", "error"]
Headers = list[tuple[str, str]]
"""Names and values, in order, with repeated names. Characters U+0000 to U+00FF stand for the bytes of that value."""


def is_close_code(code: int) -> bool:
    """Return whether an end of a WebSocket may send this close code."""
    return code in _CLOSE_CODES


class _Message(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="type",
):
    """The base of all messages."""


class GrantedHost(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A destination that this invocation may name. `plain` means http instead of https; `login` is the protocol by which the
    host logs in there, such as `imap`: the connector gets a stream that is already logged in.
    """

    host: str
    port: Port
    plain: bool
    login: str | None = None

    @property
    def url(self) -> str:
        """The origin without a trailing slash, e.g. `https://api.example.com` or `http://127.0.0.1:5232`."""
        scheme, usual_port = ("http", 80) if self.plain else ("https", 443)
        return f"{scheme}://{self.host}" + ("" if self.port == usual_port else f":{self.port}")


class FrameFailure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The reason of a failure: a class from docs/reference/failures.md, a message, and details."""

    failure_class: str = msgspec.field(name="class")
    message: str
    details: dict[str, Any] = {}


# To the jail


class Invoke(_Message, frozen=True, kw_only=True, tag="invoke"):
    """The order to run `op` with `args`: always the host's first frame, sent once. `deadline_ms` counts from its arrival.

    `accepted`: the digest of a tool's changed description by its service, after a person has accepted the change. Only a
    connector that reported such a change of this operation is sent one.
    """

    protocol: int
    op: str
    args: dict[str, Any]
    hosts: list[GrantedHost]
    invocation: str
    deadline_ms: Milliseconds
    accepted: str | None = None


class HttpHead(_Message, frozen=True, kw_only=True, tag="http_head"):
    """Status and headers of the response to request `id`; its body follows as chunks, the last with `end`."""

    id: RequestId
    status: Status
    headers: Headers


class Refused(_Message, frozen=True, kw_only=True, tag="refused"):
    """Request `id` has failed, before or after its head, and is over. The connector may handle the failure."""

    id: RequestId
    error: FrameFailure


class TcpOpened(_Message, frozen=True, kw_only=True, tag="tcp_opened"):
    """Stream `id` is connected: chunks may flow in both directions."""

    id: RequestId


class Chunk(_Message, frozen=True, kw_only=True, tag="chunk"):
    """Bytes of a body or stream, to the jail or from it. `end` marks the last chunk of its direction."""

    id: RequestId
    end: bool = False


class WebSocketOpened(_Message, frozen=True, kw_only=True, tag="websocket_opened"):
    """WebSocket `id` is open: messages may flow in both directions. `subprotocol` is the requested subprotocol that the service
    chose.
    """

    id: RequestId
    headers: Headers
    subprotocol: str | None = None


class WebSocketMessage(_Message, frozen=True, kw_only=True, tag="websocket_message"):
    """A message on a WebSocket, to the jail or from it, or a part of one: `more` says that another part follows.

    `text`: the bytes of all parts together are UTF-8.
    """

    id: RequestId
    text: bool = False
    more: bool = False


class WebSocketClose(_Message, frozen=True, kw_only=True, tag="websocket_close"):
    """The close of a WebSocket. To the jail, the final frame: it is closed, with the service's code and reason. From the jail:
    close it.

    No `code` means that the close frame had none (RFC 6455 section 7.1.5), so there is no `reason` either. A reason is cut off
    at 123 bytes when it is sent (section 5.5).
    """

    id: RequestId
    code: CloseCode | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError for a code and reason that no close frame can have; a decoder makes a FrameError of it."""
        if self.code is None and self.reason:
            raise ValueError("a WebSocket is closed with a reason but without a code")
        if self.code is not None and not is_close_code(self.code):
            raise ValueError(f"a WebSocket is closed with {self.code}, which no end may send (RFC 6455 section 7.4)")


# From the jail


class Ready(_Message, frozen=True, kw_only=True, tag="ready"):
    """The connector has done what does not depend on the invocation, and waits for it. Optional; if sent, its first frame."""


class Log(_Message, frozen=True, kw_only=True, tag="log"):
    """A line for the log of this invocation."""

    level: LogLevel
    message: str
    fields: dict[str, Any] = {}


class Progress(_Message, frozen=True, kw_only=True, tag="progress"):
    """Progress of the operation: `done` of `total`, in the connector's own unit."""

    done: int | float
    total: int | float | None = None
    message: str | None = None


class AuditEvent(_Message, frozen=True, kw_only=True, tag="audit"):
    """A fact for the audit trail, in the connector's words and marked as such there."""

    event: str
    fields: dict[str, Any] = {}


class HttpRequest(_Message, frozen=True, kw_only=True, tag="http"):
    """A request that the host is to send. `credential` names the declared kind to add on the way out.

    `body`: `none`, `inline` (the bytes follow this header), or `stream` (chunks with this id follow, the last with `end`).
    """

    id: RequestId
    method: str
    url: str
    headers: Headers
    credential: str | None = None
    body: Literal["none", "inline", "stream"] = "none"


class TcpOpen(_Message, frozen=True, kw_only=True, tag="tcp_open"):
    """A stream of bytes that the host is to connect. `tls`: the host speaks TLS from the first byte, and verifies `host`.

    Streams and requests share their ids. There is no field for a credential: if the manifest has a login, the host logs in by
    itself, and ignores `tls`. `command` is what an `ssh` login executes.
    """

    id: RequestId
    host: str
    port: Port
    tls: bool
    command: Command | None = None


class WebSocketOpen(_Message, frozen=True, kw_only=True, tag="websocket_open"):
    """A WebSocket that the host is to open. WebSockets and requests share their ids; `credential` as in a request.

    If the service responds with anything but a WebSocket, that arrives like the response to a request.
    """

    id: RequestId
    url: str
    headers: Headers
    subprotocols: list[str] = []
    credential: str | None = None


class Cancel(_Message, frozen=True, kw_only=True, tag="cancel"):
    """The jail wants no more of request `id` and sends no more of its body. The host still ends it with a final frame."""

    id: RequestId


class Result(_Message, frozen=True, kw_only=True, tag="result"):
    """The operation is done; the last frame. The codec moves a large `output` into the body and back."""

    output: Any


class Failed(_Message, frozen=True, kw_only=True, tag="failure"):
    """The operation has failed; the last frame."""

    failure_class: str = msgspec.field(name="class")
    message: str
    details: dict[str, Any] = {}


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
