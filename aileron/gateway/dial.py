"""Connections to upstreams for httpcore2, with TCP and TLS by anyio, because httpcore2's own backend does not follow the rules
below.

Runs in the daemon. The names come from settings with a person's consent, so every address is allowed, with two exceptions: the
daemon's own ports, which would make a loop, and another machine under the name `localhost`.

Rules
- A TLS stream that ends without close_notify is an error, not an end, because a response may have been truncated.
- Closing never waits: a silent peer cannot delay it.
- Error messages are Aileron's own text, and quote nothing that a peer sent.

Source: docs/reference/gateway.md; RFC 8446 section 6.1. Not here: how a peer is verified (tls.py).
"""

from __future__ import annotations

import ipaddress
import logging
import os
import select
import socket
import ssl
from collections.abc import Iterable
from typing import Any, Final

import anyio
import anyio.abc
import httpcore2
from anyio.streams.tls import TLSAttribute, TLSStream

from aileron.model.failure import AileronError, Boundary, FailureClass

__all__ = ["Dialer", "refusal_of"]

# At DEBUG httpcore2 logs fields of requests and answers. No configuration may turn that on.
logging.getLogger("httpcore2.http11").disabled = True


class Dialer(httpcore2.AsyncNetworkBackend):
    """A network backend for httpcore2 that refuses to connect to `ours`, the addresses on which the daemon itself
    listens.

    Raises AileronError(network_error), with `details.phase` `connect`, if a host cannot be reached.
    """

    def __init__(self, ours: Iterable[tuple[str, int]]) -> None:
        self._ours: Final = tuple(ours)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Open a TCP connection to an upstream, with TCP_NODELAY set. Raises AileronError(invalid_request) for a
        refused address.
        """
        try:
            with anyio.fail_after(timeout):
                stream = await anyio.connect_tcp(host, port)
        except TimeoutError:
            raise _unreachable(host, port, f"no answer within {timeout:.0f} s") from None
        except socket.gaierror:
            raise _unreachable(host, port, "the name is not known") from None
        except OSError as error:
            raise _unreachable(host, port, _why(error)) from None
        sock: socket.socket = stream.extra(anyio.abc.SocketAttribute.raw_socket)  # noqa: S610 - anyio's, not Django's
        try:
            peer = sock.getpeername()
        except OSError:  # ENOTCONN: the peer reset the connection meanwhile
            await anyio.aclose_forcefully(stream)
            raise _unreachable(host, port, "the connection was reset at once") from None
        refusal = refusal_of(host, (peer[0], peer[1]), self._ours)
        if refusal is not None:
            await anyio.aclose_forcefully(stream)
            raise AileronError(FailureClass.INVALID_REQUEST, refusal, boundary=Boundary.RUNTIME)
        return _Stream(stream, sock, f"{host}:{port}")


def refusal_of(host: str, peer: tuple[str, int], ours: Iterable[tuple[str, int]]) -> str | None:
    """Return why a connection to `peer`, an address and port that were reached under the name `host`, must be refused:
    it leads to one of `ours`, the addresses on which the daemon listens, or `host` is `localhost` and `peer` is another
    machine. Return None if neither applies. Pure.
    """
    address = _address(peer[0])
    for our_address, our_port in ours:
        same = _address(our_address)
        if peer[1] == our_port and (address == same or (address.is_loopback and same.is_loopback)):
            return "the gateway's upstream is the gateway itself: gateway.upstreams in config.toml names this very port"
    if host == "localhost" and not address.is_loopback:
        return "localhost is another machine here: name 127.0.0.1 in gateway.upstreams instead"
    return None


class _Stream(httpcore2.AsyncNetworkStream):
    """A TCP or TLS connection to an upstream. It raises httpcore2's errors, with fixed messages. Only the TLS handshake
    obeys `timeout`; Patience limits the time of everything else (sides.py).
    """

    def __init__(self, stream: anyio.abc.ByteStream, sock: socket.socket, peer: str) -> None:
        self._stream: Final = stream
        self._sock: Final = sock  # kept, as anyio builds a table of eight entries to find it
        self._peer: Final = peer

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return at most `max_bytes` bytes, at least one unless the stream has ended."""
        try:
            return await self._stream.receive(max_bytes)
        except anyio.EndOfStream:
            return b""
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise httpcore2.ReadError("broken off") from None

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write all of `buffer`. If `buffer` is empty, return without yielding to the event loop."""
        if not buffer:
            return
        try:
            await self._stream.send(buffer)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise httpcore2.WriteError("broken off") from None

    async def aclose(self) -> None:
        """Close the connection now, without notifying the peer."""
        await anyio.aclose_forcefully(self._stream)

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        """Return the connection with TLS, after verifying its peer. Raises AileronError(network_error) if TLS fails."""
        try:
            with anyio.fail_after(timeout):
                tls = await TLSStream.wrap(self._stream, ssl_context=ssl_context, hostname=server_hostname)
        except ssl.SSLCertVerificationError as error:
            why = f"its certificate is not trusted ({error.verify_message}); egress.ca_file may name one more authority"
        except TimeoutError:
            why = f"no TLS within {timeout:.0f} s"
        except (OSError, anyio.BrokenResourceError, anyio.EndOfStream):  # ssl.SSLError is an OSError
            why = "TLS failed"
        else:
            return _Stream(tls, self._sock, self._peer)
        await self.aclose()
        raise _unreachable_at(self._peer, why)

    def get_extra_info(self, info: str) -> Any:
        """Return the information that httpcore2 requests: the TLS session, or whether an idle connection has bytes to
        read; None for any other name.
        """
        match info:
            case "ssl_object":
                return self._stream.extra(TLSAttribute.ssl_object, None)  # noqa: S610 - anyio's, not Django's
            case "is_readable":
                return _is_readable(self._sock)
            case _:
                return None


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Parse an IP address without its scope id. An IPv4-mapped IPv6 address becomes the IPv4 address."""
    address = ipaddress.ip_address(text.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address


def _is_readable(sock: socket.socket) -> bool:
    """Return whether the peer of an idle connection has closed it or sent bytes that were not requested. Never blocks."""
    if sock.fileno() == -1:
        return True
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def _why(error: OSError) -> str:
    """Return the system's text for the errno of a failed connection. The exception's own text cannot be used: asyncio
    replaces it with the address, and anyio keeps the errors of several addresses in the cause.
    """
    cause: BaseException | None = error.__cause__
    if isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[-1]
    number = cause.errno if isinstance(cause, OSError) else error.errno
    return os.strerror(number) if number else "no address answered"


def _unreachable(host: str, port: int, why: str) -> AileronError:
    return _unreachable_at(f"{host}:{port}", why)


def _unreachable_at(peer: str, why: str) -> AileronError:
    return AileronError(
        FailureClass.NETWORK_ERROR,
        f"{peer} was not reached: {why}",
        boundary=Boundary.EXTERNAL,
        retriable=True,
        details={"phase": "connect"},
    )
