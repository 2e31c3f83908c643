"""Messages between ingress and daemon: typed, over sequenced-packet sockets, one message per packet.

    first      a packet with the control socket  ingress → daemon
    control    Start, Known, Stop  daemon → ingress     a packet with one descriptor, an exchange  ingress → daemon
    exchange   Request, Body…      ingress → daemon     Head, Body…                                daemon → ingress

The first socket is the one with which ingress is started. Another process of the same user may have copied it
(isolated/process.py), so the daemon sends nothing on it, and accepts only packets from the process that it started
(SCM_CREDENTIALS).

An exchange is a socket pair made for one request. If ingress closes its end, the client has disconnected. If the daemon
closes its end before the last Body, the response is incomplete.

Rules
- The daemon trusts messages of ingress no more than a stranger's request: the set of valid messages is closed and bounded,
  and any other message raises MessageError and ends the exchange.
- A packet has at most MAX_PACKET bytes. The largest is a Request: its head is bounded in server.py.

Source: unix(7) (SOCK_SEQPACKET, SCM_RIGHTS); the ASGI specification 3.0, whose scopes and messages these represent.
Not here: when each message is sent (forward.py, daemon/http/ingress.py).
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Final

import msgspec

__all__ = [
    "MAX_PACKET",
    "MAX_PIECE",
    "Address",
    "Body",
    "Head",
    "Known",
    "Listening",
    "MessageError",
    "Request",
    "Start",
    "Stop",
    "body_packets",
    "decode_answer",
    "decode_order",
    "decode_request",
    "encode",
    "exchange_pair",
]

MAX_PIECE: Final = 16384
"""Maximum number of bytes of a body in one packet, equal to the server's read size."""
MAX_PACKET: Final = 160 * 1024
"""Maximum size of a packet in bytes, 160 KiB: a request's head has at most 64 KiB (server.MAX_HEAD_BYTES), and its
target is sent both encoded and decoded.
"""
_BUFFER: Final = MAX_PACKET
"""Size in bytes of the send buffer of an exchange's sockets (SO_SNDBUF; the kernel doubles it for its own bookkeeping):
one packet of the maximum size, so that a side that does not read soon blocks the other.
"""

Fields = list[tuple[bytes, bytes]]
Address = tuple[str, int]


class Listening(msgspec.Struct, frozen=True):
    """A TCP service of the daemon: its name as `door`, and how many of the attached descriptors are its listeners.
    Descriptors are attached in the order of the services.
    """

    door: str
    listeners: int
    tls: bool = False


class Start(msgspec.Struct, frozen=True, tag="start"):
    """Message of the daemon that tells ingress to serve these TCP services. The listeners are attached as descriptors.
    `certificate_key` is the path of the private key's file.
    """

    doors: list[Listening]
    models: list[str]
    """Paths of the gateway, for requests to models. Callers without an open session may send more of these than of
    other requests.
    """
    certificate_pem: str | None = None
    certificate_key: str | None = None


class Known(msgspec.Struct, frozen=True, tag="known"):
    """Message of the daemon with the digests of the tokens and cookies of all open sessions. They replace the digests
    sent before (known.py).
    """

    digests: list[str]


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Message of the daemon that tells ingress to accept no more connections. Requests in progress still have a few
    seconds.
    """


class Request(msgspec.Struct, frozen=True, tag="request"):
    """Message of ingress with the head of a request: the parts of an ASGI scope that come from the client. The daemon
    itself knows the address of the TCP service, and whether it has TLS.
    """

    door: str
    http_version: str
    method: str
    path: str
    raw_path: bytes
    query: bytes
    fields: Fields
    client: Address | None
    is_known: bool
    """True if ingress recognised a token or cookie of an open session. This flag gives no access."""


class Head(msgspec.Struct, frozen=True, tag="head"):
    """Message of the daemon with the head of a response: status and header fields."""

    status: int
    fields: Fields


class Body(msgspec.Struct, frozen=True, tag="body"):
    """Message with a piece of a request's or response's body. `more` is false in the last piece."""

    data: bytes
    more: bool


class MessageError(Exception):
    """Error: the other side sent an invalid message."""


_encoder: Final = msgspec.msgpack.Encoder()
_orders: Final[msgspec.msgpack.Decoder[Start | Known | Stop]] = msgspec.msgpack.Decoder(Start | Known | Stop)
_requests: Final[msgspec.msgpack.Decoder[Request | Body]] = msgspec.msgpack.Decoder(Request | Body)
_answers: Final[msgspec.msgpack.Decoder[Head | Body]] = msgspec.msgpack.Decoder(Head | Body)


def encode(message: Start | Known | Stop | Request | Head | Body) -> bytes:
    """Return the packet that contains a message."""
    return _encoder.encode(message)


def body_packets(data: bytes, most: int, *, more: bool) -> Iterator[bytes]:
    """Yield the packets for `data`, which is a body, or a part of a body if `more` is set. Each packet has at most
    `most` bytes; empty data gives one packet.
    """
    for at in range(0, max(1, len(data)), most):
        yield encode(Body(data[at : at + most], more or at + most < len(data)))


def decode_order(packet: bytes) -> Start | Known | Stop:
    """Decode a message of the daemon to ingress. Raises MessageError if it is invalid."""
    try:
        return _orders.decode(packet)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MessageError(f"an order that is none: {error}") from None


def decode_request(packet: bytes) -> Request | Body:
    """Decode a message with a part of a request. Raises MessageError if it is invalid."""
    try:
        return _requests.decode(packet)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MessageError(f"a part of a request that is none: {error}") from None


def decode_answer(packet: bytes) -> Head | Body:
    """Decode a message with a part of a response. Raises MessageError if it is invalid."""
    try:
        return _answers.decode(packet)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MessageError(f"a part of an answer that is none: {error}") from None


def exchange_pair() -> tuple[socket.socket, socket.socket]:
    """Return the two sockets for one request and its response (an exchange). Neither blocks."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
    return ends
