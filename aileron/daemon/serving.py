"""The HTTP server under every door: Hypercorn, configured once, in the clear or over TLS.

Runs in the daemon. The certificate is the one that was read with the settings, so that what a person agreed to is what is shown;
its private key is read here, and must be nobody else's to read.

Source: docs/reference/configuration.md; RFC 8446 through OpenSSL. Not here: applications (api.py, ports.py), which addresses.
"""

from __future__ import annotations

import logging
import os
import socket
import ssl
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import anyio
from hypercorn.asyncio import serve as serve_hypercorn
from hypercorn.config import Config
from starlette.types import ASGIApp, Receive

from aileron.model.failure import AileronError, FailureClass

__all__ = ["BODY_S", "MAX_BODY_BYTES", "certificate_names", "drained", "serve", "tls_context"]

MAX_BODY_BYTES: Final = 1 << 20
"""1 MiB: arguments of an action travel in one frame header of 64 KiB, a secret is at most that, an action file 256 KiB."""
BODY_S: Final = 10.0
"""For a body to arrive: on this machine, a megabyte takes milliseconds."""
GRACE_S: Final = 5.0
IDLE_S: Final = 2.0
"""A connection without a request; one that its client closed costs a descriptor for as long."""
MAX_HEAD_BYTES: Final = 65536
"""Of a request before its body: coding agents put kilobytes of JSON into a field, and the providers take that."""


async def serve(
    app: ASGIApp,
    listeners: list[socket.socket],
    stopped: Callable[[], Awaitable[None]],
    tls: ssl.SSLContext | None = None,
) -> None:
    """Serve `app` on the listening sockets, which are taken over, until `stopped` returns; then GRACE_S for answers under way."""
    config = _Config(tls)
    config.bind = [f"fd://{listener.detach()}" for listener in listeners]
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
    """Hypercorn's, with a TLS context that was made before."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._tls = tls

    @property
    def ssl_enabled(self) -> bool:
        return self._tls is not None

    def create_ssl_context(self) -> ssl.SSLContext | None:
        return self._tls


def _no_passphrase() -> str:
    raise ValueError("the key is encrypted: store it without a passphrase, readable by you alone")


def _refused(key: Path, why: str) -> AileronError:
    return AileronError(FailureClass.INVALID_REQUEST, f"daemon.certificate_key {key}: {why}")
