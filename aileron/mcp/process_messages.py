"""Messages between the daemon and the MCP process, typed and encoded with msgpack.

    control    Start, Connection, Request, Changed    daemon → process     Ready, Resting              process → daemon
    channel    Listed, Answered, Progressed, Refused  daemon → process     List, Call, Drop, Heard     process → daemon

The control socket has sequenced packets, one message each. An agent's connection comes with two descriptors: the
connection, and a channel that was made for it. A request on a channel always counts as a request of that connection's
agent. So no message names a session, which the process could forge. A request over HTTP is sent in the same way, with
its exchange (ingress/exchange.py) in place of the connection.

Rules
- Decoded messages have closed types and bounded sizes. Any other message raises MessageError and ends the channel, or the
  process.
- Arguments and facts are bytes of JSON, because one of the two processes need not decode them.

Source: docs/adr/0075-mcp-in-a-process-of-its-own.md; unix(7) (SOCK_SEQPACKET, SCM_RIGHTS). Not here: the order of messages
(process.py and asking.py, daemon/http/mcp_process.py and answering.py), the separation of messages on a channel (channel.py).
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

__all__ = [
    "MAX_ASKED_BYTES",
    "MAX_PACKET",
    "MAX_SAID_BYTES",
    "Answered",
    "Asked",
    "Call",
    "Changed",
    "Connection",
    "Drop",
    "FromProcess",
    "Heard",
    "List",
    "Listed",
    "Message",
    "MessageError",
    "Order",
    "Progressed",
    "Ready",
    "Refused",
    "Request",
    "Resting",
    "Said",
    "Start",
    "decode_asked",
    "decode_from_process",
    "decode_order",
    "decode_said",
    "encode",
]

MAX_PACKET: Final = 160 << 10
"""Maximum size in bytes of a packet on the control socket. The largest packet is a Connection with the data that was read
with its first line, at most 68 KiB.
"""
MAX_ASKED_BYTES: Final = 4 << 20
"""Maximum size in bytes of one message on a channel to the daemon. A call's line has at most 1 MiB, and its control
characters may take more bytes as JSON.
"""
MAX_SAID_BYTES: Final = 64 << 20
"""Maximum size in bytes of one message of the daemon on a channel. The longest message is a page of 200 tools; each has a
description of at most 8,192 characters and its schema.
"""


class Start(msgspec.Struct, frozen=True, tag="start"):
    """The daemon's first message to the MCP process. It has the version that the MCP server reports, and the seconds
    without use after which the process sends Resting.
    """

    version: str
    rest_s: float


class Connection(msgspec.Struct, frozen=True, tag="connection"):
    """Message that tells the MCP process to serve a new connection of an agent.

    Two sockets are attached as descriptors: the connection itself, and the channel on which the process sends the agent's
    requests to the daemon. `begun` has the bytes that were already read from the connection.
    """

    begun: bytes


class Request(msgspec.Struct, frozen=True, tag="request"):
    """Message that tells the MCP process to serve one HTTP request of an agent.

    Two sockets are attached as descriptors: one carries the HTTP request and its response, and on the other the process sends
    the agent's requests to the daemon. `session` is only used to tell which requests belong together.
    """

    session: str


class Changed(msgspec.Struct, frozen=True, tag="changed"):
    """Message that tells the MCP process to notify all connections that the list of tools may have changed."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """Message that the MCP process is ready to serve, and has given up privileges that it does not need. The message lists
    the protocol's versions that begin with a handshake, and the other versions.
    """

    handshake: list[str]
    modern: list[str]


class Resting(msgspec.Struct, frozen=True, tag="resting"):
    """Message that the MCP process was unused for as long as Start specified. `taken` is the number of connections and
    requests that it has received so far.
    """

    taken: int


class List(msgspec.Struct, frozen=True, tag="list"):
    """Request of the MCP process to the daemon for a page of the list of tools."""

    id: int
    cursor: str | None


class Call(msgspec.Struct, frozen=True, tag="call"):
    """Request of the MCP process to the daemon to call a tool. If JSON cannot represent the arguments, `misfit`
    describes the problem and `arguments` is empty. `reports` is true if progress is wanted.
    """

    id: int
    name: str
    arguments: bytes
    misfit: str | None
    reports: bool


class Drop(msgspec.Struct, frozen=True, tag="drop"):
    """Message that the agent no longer waits for the answer to the List or Call with this id."""

    id: int


class Heard(msgspec.Struct, frozen=True, tag="heard"):
    """Message that a report of progress has reached the agent, so that the daemon can send the next one."""

    id: int


class Listed(msgspec.Struct, frozen=True, tag="listed"):
    """The daemon's answer to List: a page of tools as a JSON array, and the cursor of the next page."""

    id: int
    tools: bytes
    cursor: str | None


class Answered(msgspec.Struct, frozen=True, tag="answered"):
    """The daemon's answer to Call: the fields of results.ToolResult, with its facts as JSON."""

    id: int
    text: str
    facts: bytes
    is_error: bool


class Progressed(msgspec.Struct, frozen=True, tag="progressed"):
    """A report of a call's progress. The next report is sent only after Heard has confirmed this one."""

    id: int
    progress: float
    total: float | None
    message: str | None


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The refusal of a List or Call, as an error of the protocol. Its kind is `invalid` if the caller named an unknown
    tool or cursor, `internal` if the fault is Aileron's.
    """

    id: int
    kind: Literal["invalid", "internal"]
    message: str


class MessageError(Exception):
    """Error: the other side sent an invalid message."""


Order = Start | Connection | Request | Changed
FromProcess = Ready | Resting
Asked = List | Call | Drop | Heard
Said = Listed | Answered | Progressed | Refused
Message = Order | FromProcess | Asked | Said

_encoder: Final = msgspec.msgpack.Encoder()
_orders: Final[msgspec.msgpack.Decoder[Order]] = msgspec.msgpack.Decoder(Order)
_from_process: Final[msgspec.msgpack.Decoder[FromProcess]] = msgspec.msgpack.Decoder(FromProcess)
_asked: Final[msgspec.msgpack.Decoder[Asked]] = msgspec.msgpack.Decoder(Asked)
_said: Final[msgspec.msgpack.Decoder[Said]] = msgspec.msgpack.Decoder(Said)


def encode(message: Message) -> bytes:
    """Return the bytes of a message."""
    return _encoder.encode(message)


def decode_order(packet: bytes) -> Order:
    """Decode a message of the daemon on the control socket. Raises MessageError if it is not valid."""
    order: Order = _decoded(_orders, packet)
    return order


def decode_from_process(packet: bytes) -> FromProcess:
    """Decode a message of the MCP process on the control socket. Raises MessageError if it is not valid."""
    word: FromProcess = _decoded(_from_process, packet)
    return word


def decode_asked(frame: bytes) -> Asked:
    """Decode a message of the MCP process on an agent's channel. Raises MessageError if it is not valid."""
    asked: Asked = _decoded(_asked, frame)
    return asked


def decode_said(frame: bytes) -> Said:
    """Decode a message of the daemon on an agent's channel. Raises MessageError if it is not valid."""
    said: Said = _decoded(_said, frame)
    return said


def _decoded(decoder: msgspec.msgpack.Decoder[Any], data: bytes) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MessageError(f"a message that is none: {error}") from None
