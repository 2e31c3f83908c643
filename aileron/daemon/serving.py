"""The HTTP server under every door: Hypercorn, configured once, in the clear or over TLS.

Runs in the daemon. The certificate is the one that was read with the settings, so that what a person agreed to is what is shown;
its private key is read here, and must be nobody else's to read.

Rules
- HTTP/1.1 and nothing else. Hypercorn would speak HTTP/2 to whoever begins with it, and never end such a connection while it is
  silent; no client of ours does.
- What is reached over TCP holds MAX_CONNECTIONS at most, so that other users of the machine cannot take every descriptor, and the
  person's own commands, which come over sockets of their own, are answered all the while. One more is closed at once.
- A connection has IDLE_S for the head of a request.

Source: docs/reference/configuration.md; RFC 8446 through OpenSSL. Not here: applications (api.py, ports.py), which addresses.
"""

from __future__ import annotations

import logging
import os
import socket
import ssl
import stat
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import anyio
import h11
import hypercorn.protocol
from hypercorn.asyncio import serve as serve_hypercorn
from hypercorn.config import Config, Sockets
from hypercorn.protocol.h11 import H11Protocol
from starlette.types import ASGIApp, Receive

from aileron.model.failure import AileronError, FailureClass

__all__ = ["BODY_S", "MAX_BODY_BYTES", "MAX_CONNECTIONS", "certificate_names", "drained", "serve", "tls_context"]

MAX_BODY_BYTES: Final = 1 << 20
"""1 MiB: arguments of an action travel in one frame header of 64 KiB, a secret is at most that, an action file 256 KiB."""
BODY_S: Final = 10.0
"""For a body to arrive: on this machine, a megabyte takes milliseconds."""
GRACE_S: Final = 5.0
IDLE_S: Final = 2.0
"""A connection without a request; one that its client closed costs a descriptor for as long."""
HANDSHAKE_S: Final = 10.0
"""For TLS to be there; over the worst of networks it takes three."""
MAX_CONNECTIONS: Final = 512
"""Over TCP, of all listeners together: twice what the gateway has under way, an eighth of the descriptors where there are 4,096;
each costs some 50 KiB.
"""
MAX_HEAD_BYTES: Final = 65536
"""Of a request before its body: coding agents put kilobytes of JSON into a field, and the providers take that."""
_SAY_AGAIN_S: Final = 10.0
_log = logging.getLogger(__name__)


async def serve(
    app: ASGIApp,
    listeners: list[socket.socket],
    stopped: Callable[[], Awaitable[None]],
    tls: ssl.SSLContext | None = None,
) -> None:
    """Serve `app` on the listening sockets, which are taken over, until `stopped` returns; then GRACE_S for answers under way."""
    config = _Config(tls, [_bounded(listener) for listener in listeners])
    config.ssl_handshake_timeout = HANDSHAKE_S
    config.graceful_timeout = GRACE_S
    config.keep_alive_timeout = IDLE_S
    config.accesslog = None
    config.errorlog = logging.getLogger("hypercorn.error")
    config.include_server_header = False
    config.include_date_header = False  # what the gateway passes on has one already
    config.h11_max_incomplete_size = MAX_HEAD_BYTES
    await serve_hypercorn(app, config, shutdown_trigger=stopped)  # type: ignore[arg-type]


def tls_context(certificate_pem: str, key: Path) -> ssl.SSLContext:
    """What a server shows: TLS 1.2 or newer, HTTP/1.1. AileronError(invalid_request) where the two do not fit each other."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        if stat.S_IMODE(key.stat().st_mode) & 0o077:
            raise _refused(key, f"others may read it: chmod 600 {key}")
        with open(os.memfd_create("certificate", os.MFD_CLOEXEC), "w", encoding="utf-8") as certificate:
            certificate.write(certificate_pem)
            certificate.flush()
            context.load_cert_chain(f"/proc/self/fd/{certificate.fileno()}", key, password=_no_passphrase)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        why = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        raise _refused(key, f"it does not serve with daemon.certificate ({why})") from None
    return context


def certificate_names(certificate_pem: str) -> list[str]:
    """The DNS names and addresses that a certificate is for, as a Host field has them, without a port; wildcards not."""
    from cryptography import x509  # only where the daemon listens

    certificate = x509.load_pem_x509_certificate(certificate_pem.encode())
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    addresses = names.get_values_for_type(x509.IPAddress)
    return [name.lower() for name in names.get_values_for_type(x509.DNSName) if "*" not in name] + [
        f"[{address}]" if address.version == 6 else str(address) for address in addresses
    ]


async def drained(receive: Receive) -> None:
    """Take the body of a request that is refused whatever it says: a client that still writes when its connection is closed hears
    of a broken pipe, and not of the refusal. As far as a body may go, and as long.
    """
    size = 0
    with anyio.move_on_after(BODY_S):
        while size <= MAX_BODY_BYTES:
            message = await receive()
            size += len(message.get("body", b""))
            if message["type"] != "http.request" or not message.get("more_body", False):
                return


class _Config(Config):
    """Hypercorn's, with a TLS context and sockets that were made before."""

    def __init__(self, tls: ssl.SSLContext | None, listeners: list[socket.socket]) -> None:
        super().__init__()
        self._tls = tls
        self._listeners = listeners

    @property
    def ssl_enabled(self) -> bool:
        return self._tls is not None

    def create_ssl_context(self) -> ssl.SSLContext | None:
        return self._tls

    def create_sockets(self) -> Sockets:
        if self._tls is not None:
            return Sockets(self._listeners, [], [])
        return Sockets([], self._listeners, [])


class _OnlyHttp11(H11Protocol):
    """Answers what asks for another version of HTTP as if it had not asked, RFC 9110 section 7.8."""

    async def _check_protocol(self, event: h11.Request) -> None:
        return


hypercorn.protocol.H11Protocol = _OnlyHttp11  # type: ignore[attr-defined] # there is no setting for it; a test sees that it holds


class _Places:
    """How many connections there are over TCP, and when that there are too many was last said."""

    def __init__(self) -> None:
        self.taken = 0
        self._said = -_SAY_AGAIN_S

    def say(self) -> None:
        if time.monotonic() - self._said >= _SAY_AGAIN_S:
            self._said = time.monotonic()
            _log.warning("%s connections over TCP are open: more are turned away", MAX_CONNECTIONS)


_PLACES: Final = _Places()


class _Accepted(socket.socket):
    """A connection that has a place until it is closed."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._has_place = True
        _PLACES.taken += 1

    def close(self) -> None:
        self._leave()
        super().close()

    def __del__(self) -> None:
        self._leave()

    def _leave(self) -> None:
        if self._has_place:
            self._has_place = False
            _PLACES.taken -= 1


class _Bounded(socket.socket):
    """A listener that closes what it has no place for."""

    def accept(self) -> tuple[socket.socket, Any]:
        accepted, address = super().accept()
        if _PLACES.taken >= MAX_CONNECTIONS:
            accepted.close()
            _PLACES.say()
            raise BlockingIOError  # others have their turn before the next
        return _Accepted(accepted.family, accepted.type, accepted.proto, accepted.detach()), address


def _bounded(listener: socket.socket) -> socket.socket:
    """The same listener, taken over; a socket of the home is only the user's own, and is left as it is."""
    if listener.family == socket.AF_UNIX:
        return listener
    # What is accepted has it too (tcp(7)); asyncio sets it only on sockets that know their protocol, which these do not. Without
    # it the second piece of an answer waits for the acknowledgement of the first, which a client may put off for 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return _Bounded(listener.family, listener.type, listener.proto, listener.detach())


def _no_passphrase() -> str:
    raise ValueError("the key is encrypted: store it without a passphrase, readable by you alone")


def _refused(key: Path, why: str) -> AileronError:
    return AileronError(FailureClass.INVALID_REQUEST, f"daemon.certificate_key {key}: {why}")
