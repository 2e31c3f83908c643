"""The outbound socket of egress: connect to a vetted address, verify TLS.

Nothing else in the daemon opens a connection to the outside, except the gateway to models (gateway/dial.py). `dial`
takes addresses, not a name, and connects only to the addresses that were vetted, so a second look-up cannot give
another address (DNS rebinding). Runs in the daemon; trusts neither the peer nor the party that named the peer.

Rules
- The name of the URL is verified (tls.py says how) before any byte of the request is written.
- No setting comes from the environment: not HTTPS_PROXY, and none of TLS.
- The socket is non-blocking and read only on request, so no transport hides bytes in a queue: bytes that a peer sends
  between two requests are still in the socket when `is_quiet` checks.
- A TLS stream that ends without close_notify is an error, not an end, because it may have been truncated.

Source: RFC 9110 section 4.3.4, RFC 9325, ssl(3ssl). Not here: names (lookup.py), which addresses are allowed
(addresses.py), when a connection is kept (pool.py).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import ipaddress
import logging
import os
import socket
import ssl
import sys
import termios
from collections.abc import Sequence
from typing import Final, Literal

import anyio
import anyio.lowlevel
import httpcore2

from aileron.egress.headers import HeadLines
from aileron.tls import was_cut

__all__ = ["MAX_ADDRESSES", "DialProgress", "Heard", "NoTlsError", "TlsAlertError", "Wire", "dial", "is_own_address"]

MAX_ADDRESSES: Final = 32  # more answers than any real service gives; each is checked, and the list is kept in memory
MAX_ATTEMPTS: Final = 4  # addresses tried one after the other before the name counts as unreachable
ATTEMPT_S: Final = 5.0  # one TCP handshake: three SYNs (1 s, 3 s apart; tcp(7) tcp_syn_retries) and an answer

_WOULD_BLOCK: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

# At DEBUG httpcore2 logs response headers as they came, before they are scrubbed. No configuration may turn that on.
logging.getLogger("httpcore2.http11").disabled = True


def is_own_address(address: str) -> bool:
    """Return whether the address belongs to this machine, so that a connection would reach one of the machine's own
    services.

    A connected UDP socket sends nothing; the kernel picks its source address as it would for TCP, and for one of the
    machine's own addresses it picks the same address (ip(7), routing table `local`).
    """
    family = _family(address)
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
        except OSError:
            return False  # no route: the connection itself will fail, and say so
        return ipaddress.ip_address(probe.getsockname()[0]) == ipaddress.ip_address(address)


Heard = Literal["nothing", "TLS", "HTTP", "a greeting", "something else"]
"""Kind of data that a peer sent first; "nothing" if no bytes have arrived yet."""


class DialProgress:
    """Progress of a call of `dial`, for the error message if no connection is made. The object holds no bytes that a
    peer sent.
    """

    def __init__(self) -> None:
        self.is_connected = False
        self.heard: Heard = "nothing"


class NoTlsError(OSError):
    """Error: the peer accepted the connection, but does not speak TLS."""

    def __init__(self, heard: Heard) -> None:
        super().__init__(errno.EPROTO, os.strerror(errno.EPROTO))
        self.heard: Final = heard


class TlsAlertError(httpcore2.ReadError):
    """Error: the peer ended TLS with an alert. `reason` is OpenSSL's name for it, such as
    `TLSV13_ALERT_CERTIFICATE_REQUIRED`.

    In TLS 1.3 the client completes the handshake before the server has checked the client's certificate, so an alert
    about that certificate comes with the first read.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason.lower().replace("_", " "))
        self.reason: Final = reason


async def dial(
    addresses: Sequence[str], port: int, tls: ssl.SSLContext | None, host: str, progress: DialProgress | None = None
) -> tuple[Wire, str]:
    """Connect to the first address that accepts. Return the connection and that address.

    With `tls` None, the connection has no TLS. `host` is the name or address that the certificate must be valid for,
    and the SNI if it is a name. Raises OSError (which includes ssl's errors) if no address accepts or TLS fails, and
    NoTlsError if the peer does not speak TLS. A peer that accepts but cannot prove its name ends the search. `progress`
    is updated throughout.
    """
    progress = DialProgress() if progress is None else progress
    sock, address = await _connect_any(addresses[:MAX_ATTEMPTS], port)
    progress.is_connected = True
    try:
        if tls is not None:
            sock = await _start_tls(sock, tls, host, progress)
        return Wire(sock), address
    except BaseException:
        sock.close()  # harmless if wrap_socket has taken over the descriptor
        raise


async def _connect_any(addresses: Sequence[str], port: int) -> tuple[socket.socket, str]:
    problem = OSError(errno.EADDRNOTAVAIL, "no address to connect to")
    for address in addresses:
        sock = socket.socket(_family(address), socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            with anyio.CancelScope(deadline=anyio.current_time() + ATTEMPT_S):
                await _connect(sock, address, port)
                return sock, address
            problem = TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        except OSError as error:
            problem = error
        except BaseException:
            sock.close()
            raise
        sock.close()
    raise problem


async def _connect(sock: socket.socket, address: str, port: int) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    code = sock.connect_ex((address, port))
    if code == errno.EINPROGRESS:
        await anyio.wait_writable(sock)
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))


async def _start_tls(sock: socket.socket, tls: ssl.SSLContext, host: str, progress: DialProgress) -> ssl.SSLSocket:
    wrapped = tls.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False, suppress_ragged_eofs=False)
    try:
        while True:
            if progress.heard == "nothing":
                progress.heard = _heard(wrapped)
            try:
                wrapped.do_handshake()
                return wrapped
            except _WOULD_BLOCK as blocked:
                waiting_to_write = isinstance(blocked, ssl.SSLWantWriteError)
            except ssl.SSLCertVerificationError:
                raise
            except OSError as error:
                if _was_no_tls(error) and progress.heard == "nothing":
                    # The bytes arrived after the peek, and OpenSSL has consumed them
                    progress.heard = "something else"
                if _is_tls(error, progress.heard):
                    raise
                break
            await (anyio.wait_writable(wrapped) if waiting_to_write else anyio.wait_readable(wrapped))
    except BaseException:
        wrapped.close()
        raise
    wrapped.close()
    # Outside the handler: OpenSSL's message is about a TLS version that the peer never sent
    raise NoTlsError(progress.heard)


def _is_tls(error: OSError, heard: Heard) -> bool:
    """Return whether the peer speaks TLS, judged by its first bytes (`heard`) and the error of the TLS handshake."""
    if heard == "nothing":
        return isinstance(error, ssl.SSLError) and not was_cut(error)
    return heard == "TLS"


def _was_no_tls(error: OSError) -> bool:
    """Return whether the error says that OpenSSL received bytes that are not a TLS record."""
    return isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER"


def _heard(wrapped: ssl.SSLSocket) -> Heard:
    """Return the kind of data that the peer sent first, without consuming it."""
    try:
        begin = socket.socket.recv(wrapped, 4, socket.MSG_PEEK)
    except OSError:
        return "nothing"
    if not begin:
        return "nothing"
    if begin[:1] in (b"\x16", b"\x15") and begin[1:2] in (b"", b"\x03"):  # RFC 8446 section 5.1: handshake, alert
        return "TLS"
    if begin == b"HTTP":
        return "HTTP"
    return "a greeting" if begin.startswith((b"220", b"+OK", b"* OK", b"SSH-")) else "something else"


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


class Wire(httpcore2.AsyncNetworkStream):
    """A connection with httpcore2's interface, used by one task at a time.

    The parameter `timeout` is ignored, because the engine limits the time of every step from outside.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._may_read: int | None = None
        self._lines: HeadLines | None = None

    @property
    def speaks_http2(self) -> bool:
        """True if the peer chose `h2` from the protocols offered in the handshake (RFC 7301). Always False without TLS."""
        return isinstance(self._sock, ssl.SSLSocket) and self._sock.selected_alpn_protocol() == "h2"

    def limit_reading(self, size: int | None) -> None:
        """Allow at most `size` more bytes to be read, for HTTP/1.1 response heads; None lifts the limit. The limit
        bounds interim responses.
        """
        self._may_read = size
        self._lines = None if size is None else HeadLines()

    def is_quiet(self) -> bool:
        """Return whether the connection is open with nothing to read, so that it can carry another request. Never blocks.

        Reads rather than polls, because a TLS 1.3 session ticket makes the socket readable without being response data.
        """
        try:
            return not self.read_waiting(1)
        except httpcore2.ReadError:
            return False

    def read_waiting(self, max_bytes: int) -> bytes:
        """Return bytes that have arrived and were not read yet; empty if there are none. Never blocks.

        Raises httpcore2.ReadError if the peer has closed or the connection broke.
        """
        try:
            data = self._sock.recv(max_bytes)
        except _WOULD_BLOCK:
            return b""
        except OSError as error:
            problem = error.strerror or "TLS error"
        else:
            if data:
                return data
            problem = "closed by the peer"
        raise httpcore2.ReadError(problem)

    def unsent_bytes(self) -> int:
        """Return the number of written bytes that have not arrived at the peer's kernel yet (tcp(7), SIOCOUTQ). 0 once
        the connection is closed.
        """
        if not self.is_open():
            return 0
        queued = fcntl.ioctl(self._sock.fileno(), termios.TIOCOUTQ, bytes(4))  # SIOCOUTQ, by its other name
        return int.from_bytes(queued, sys.byteorder)

    def is_open(self) -> bool:
        """Return whether the socket is still open on this side, whatever the peer has done."""
        return self._sock.fileno() != -1

    def close(self) -> None:
        """Close the connection at once, without waiting. Calling it again does nothing."""
        self._sock.close()

    def detach(self) -> socket.socket:
        """Return the socket of a connection without TLS and close this object. From then on, the socket belongs to the
        caller.
        """
        sock = socket.socket(self._sock.family, self._sock.type, fileno=self._sock.detach())
        sock.setblocking(False)
        return sock

    def end_writing(self) -> None:
        """Shut down the sending direction of the connection. The peer notices only without TLS, because TLS 1.2 has no
        half-close (RFC 5246 section 7.2.1).
        """
        if not isinstance(self._sock, ssl.SSLSocket):
            with contextlib.suppress(OSError):  # the connection is already closed
                self._sock.shutdown(socket.SHUT_WR)

    async def aclose(self) -> None:
        """Close the connection; httpcore2 calls this."""
        self.close()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return some bytes, or none at the end. Raises httpcore2.ReadError if the connection broke, and
        httpcore2.RemoteProtocolError if the peer sent too much before the response, or a malformed line of a head.
        """
        data = await self._receive(max_bytes)
        if self._may_read is not None:
            self._may_read -= len(data)
            if self._may_read < 0:
                raise httpcore2.RemoteProtocolError("too much before the response")
        if self._lines is not None and not self._lines.are_clean(data):
            raise httpcore2.RemoteProtocolError("a line of the head that ends in two ways")
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write all bytes. Raises httpcore2.WriteError if the connection broke."""
        rest = memoryview(buffer)
        while rest:
            rest = rest[await self._send(rest) :]

    async def _receive(self, max_bytes: int) -> bytes:
        waited = False
        while True:
            try:
                data = self._sock.recv(max_bytes)
            except _WOULD_BLOCK as blocked:
                to_write = isinstance(blocked, ssl.SSLWantWriteError)
            except OSError as error:
                problem = error
                break
            else:
                if not waited:  # a peer that always has more to send must not keep the loop busy
                    await anyio.lowlevel.cancel_shielded_checkpoint()
                return data
            await (anyio.wait_writable(self._sock) if to_write else anyio.wait_readable(self._sock))
            waited = True
        raise _alert_of(problem) or httpcore2.ReadError(problem.strerror or "TLS error")

    async def _send(self, data: memoryview) -> int:
        while True:
            try:
                return self._sock.send(data)
            except _WOULD_BLOCK as blocked:
                to_write = not isinstance(blocked, ssl.SSLWantReadError)
            except OSError as error:
                problem = error
                break
            await (anyio.wait_writable(self._sock) if to_write else anyio.wait_readable(self._sock))
        raise httpcore2.WriteError(problem.strerror or "TLS error")


def _alert_of(error: OSError) -> TlsAlertError | None:
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    return TlsAlertError(reason) if reason and "_ALERT_" in reason else None
