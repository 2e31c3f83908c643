"""What the daemon and the process that speaks the protocol say to each other: typed messages of msgspec.

    control    Start, Connection, Request, Changed    daemon → process     Ready, Resting              process → daemon
    channel    Listed, Answered, Progressed, Refused  daemon → process     List, Call, Drop, Heard     process → daemon

The control socket has sequenced packets, one message each. An agent's connection comes with two descriptors: the connection, and
a channel that was made for it. What is asked over a channel is asked by the agent of that connection, whatever the message says:
so the process names no session, and the daemon believes none. A request over HTTP comes in the same way, with its exchange
(ingress/exchange.py) in place of the connection.

Rules
- What is decoded is closed and bounded; anything else is MessageError and ends the channel, or the process.
- Arguments and facts are JSON in bytes: one side has no use for what is in them.

Source: docs/adr/0075-mcp-in-a-process-of-its-own.md; unix(7) (SOCK_SEQPACKET, SCM_RIGHTS). Not here: who sends which when
(process.py and asking.py, daemon/http/mcp_process.py and answering.py), how messages are told apart on a channel (channel.py).
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
"""Bytes. The largest is a Connection: what was read with its first line, 68 KiB at most."""
MAX_ASKED_BYTES: Final = 4 << 20
"""Of one message on a channel, to the daemon: a call's line has 1 MiB, whose control characters may take more as JSON."""
MAX_SAID_BYTES: Final = 64 << 20
"""To the process: the longest is a page of 200 tools, each of which has at most 8,192 characters and its schema."""


class Start(msgspec.Struct, frozen=True, tag="start"):
    """The first order: what the server says of its version, and how long nobody uses it before it says so."""

    version: str
    rest_s: float


class Connection(msgspec.Struct, frozen=True, tag="connection"):
    """An agent's connection and its channel come along; `begun` was read from it already."""

    begun: bytes


class Request(msgspec.Struct, frozen=True, tag="request"):
    """A request over HTTP, as an exchange, and its channel come along; `session` is only compared with that of others."""

    session: str


class Changed(msgspec.Struct, frozen=True, tag="changed"):
    """The list of tools may be another: tell everybody."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """It serves, and gave up what it does not need. The versions of the protocol that begin with a handshake, and the others."""

    handshake: list[str]
    modern: list[str]


class Resting(msgspec.Struct, frozen=True, tag="resting"):
    """Nobody has used it for as long as Start said; it has taken so many connections and requests until now."""

    taken: int


class List(msgspec.Struct, frozen=True, tag="list"):
    """One page of the tools."""

    id: int
    cursor: str | None


class Call(msgspec.Struct, frozen=True, tag="call"):
    """One call of a tool. `misfit` says what JSON cannot carry of its arguments, in place of them. `reports`: of its progress."""

    id: int
    name: str
    arguments: bytes
    misfit: str | None
    reports: bool


class Drop(msgspec.Struct, frozen=True, tag="drop"):
    """Nobody waits for an answer any more."""

    id: int


class Heard(msgspec.Struct, frozen=True, tag="heard"):
    """A report of progress has reached the agent; the next one may come."""

    id: int


class Listed(msgspec.Struct, frozen=True, tag="listed"):
    """One page: a JSON array of tools, and the cursor of the next."""

    id: int
    tools: bytes
    cursor: str | None


class Answered(msgspec.Struct, frozen=True, tag="answered"):
    """How a call ended: results.ToolResult, its facts as JSON."""

    id: int
    text: str
    facts: bytes
    is_error: bool


class Progressed(msgspec.Struct, frozen=True, tag="progressed"):
    """One report of a call's progress. The next one waits until this one was Heard."""

    id: int
    progress: float
    total: float | None
    message: str | None


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """An error of the protocol: of what the caller sent (a tool or a cursor that there is not), or of ours."""

    id: int
    kind: Literal["invalid", "internal"]
    message: str


class MessageError(Exception):
    """The other side did not send what can be sent."""


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
    """The bytes of a message."""
    return _encoder.encode(message)


def decode_order(packet: bytes) -> Order:
    """An order of the daemon. MessageError."""
    order: Order = _decoded(_orders, packet)
    return order


def decode_from_process(packet: bytes) -> FromProcess:
    """A word of the process on the control socket. MessageError."""
    word: FromProcess = _decoded(_from_process, packet)
    return word


def decode_asked(frame: bytes) -> Asked:
    """A question of the process on a channel. MessageError."""
    asked: Asked = _decoded(_asked, frame)
    return asked


def decode_said(frame: bytes) -> Said:
    """An answer of the daemon on a channel. MessageError."""
    said: Said = _decoded(_said, frame)
    return said


def _decoded(decoder: msgspec.msgpack.Decoder[Any], data: bytes) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MessageError(f"a message that is none: {error}") from None
