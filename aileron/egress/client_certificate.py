"""TLS with a client certificate that the vault lends: the TLS settings of a connection that uses it.

Runs in the daemon; the private key goes to OpenSSL and nowhere else. OpenSSL takes a key only by the name of a file. So
the key is written to an anonymous file in memory (memfd_create(2)), which is sealed, read and closed before anything
else happens.

Rules
- Each connection has its own TLS settings, which hold the key while the connection is open (pool.py). No settings are
  stored for the next connection. Making the settings takes 1.4 ms on Debian 12, and 20 ms if the trust store is one
  file; a worker thread does it, so that the event loop is not blocked. A reused connection needs no new settings.
- A certificate is identified by a digest, keyed with a key of this process. The digest shows only which connection was
  made with which certificate.

Source: memfd_create(2), fcntl(2) on seals; RFC 8446 sections 4.4.2 and 6.2. Not here: what a certificate is
(model/client_certificate.py), which request uses a certificate (credentials/certificate.py), which connection serves
the request (pool.py).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import ssl
from collections.abc import Iterator, Sequence
from typing import Final

import anyio.to_thread

from aileron.egress.dial import TlsAlertError
from aileron.model.client_certificate import CertificateError, ClientCertificate
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.fixes import Stored, fix_for
from aileron.model.plan import CredentialUse
from aileron.model.secret import Secret
from aileron.tls import client_context

__all__ = ["certificate_refused", "certificate_tag", "context_with", "unusable_certificate"]

_TAG_KEY: Final = os.urandom(32)
_SEALS: Final = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_REFUSALS: Final = {
    "BAD_CERTIFICATE": "could not be verified",
    "UNSUPPORTED_CERTIFICATE": "is of a type that it does not support",
    "CERTIFICATE_REVOKED": "was revoked",
    "CERTIFICATE_EXPIRED": "has expired",
    "CERTIFICATE_UNKNOWN": "could not be accepted",
    "UNKNOWN_CA": "was issued by an authority that it does not trust",
    "ACCESS_DENIED": "is not allowed here",
    "CERTIFICATE_REQUIRED": "did not arrive",
    "DECRYPT_ERROR": "does not belong to the private key",
}
"""Meanings of a server's alerts about a certificate (RFC 8446 section 6.2). A key is the end of OpenSSL's name for the
alert.
"""


def certificate_tag(certificate: Secret | None) -> bytes | None:
    """Return a digest that identifies the certificate: equal for the same bytes, in this process. Return None for no
    certificate.
    """
    return None if certificate is None else hashlib.blake2b(certificate.reveal(), key=_TAG_KEY, digest_size=16).digest()


async def context_with(
    certificate: Secret,
    use: CredentialUse,
    stored: Stored | None,
    ca_pem: str | None,
    protocols: Sequence[str],
) -> ssl.SSLContext:
    """Return the TLS settings of one connection that presents the client certificate, made as `tls.client_context`
    makes others. Raises AileronError(binding_failed) if OpenSSL rejects the certificate.
    """
    return await anyio.to_thread.run_sync(_context_with, certificate, use, stored, ca_pem, protocols)


def _context_with(
    certificate: Secret, use: CredentialUse, stored: Stored | None, ca_pem: str | None, protocols: Sequence[str]
) -> ssl.SSLContext:
    context = client_context(ca_pem, protocols)
    try:
        with _in_memory(ClientCertificate(certificate.reveal()).pem) as path:
            context.load_cert_chain(path, password=_no_passphrase)
        return context
    except CertificateError as error:
        problem = error
    except ssl.SSLError as error:
        word = (error.reason or "unknown reason").lower().replace("_", " ")
        problem = CertificateError(f"has a certificate that OpenSSL does not take: {word}", "get another one")
    raise unusable_certificate(use, problem, stored)


@contextlib.contextmanager
def _in_memory(pem: bytes) -> Iterator[str]:
    """Yield the path of an anonymous file in memory that contains `pem`. No other process can open it: the daemon is
    not dumpable.
    """
    descriptor = os.memfd_create("client-certificate", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        rest = memoryview(pem)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _no_passphrase() -> bytes:
    """Return an empty passphrase; otherwise OpenSSL would prompt for a passphrase at a terminal."""
    return b""


def unusable_certificate(use: CredentialUse, problem: CertificateError, stored: Stored | None) -> AileronError:
    """Return a `binding_failed` error that says what is wrong with the client certificate (`problem`) and how to fix
    it.
    """
    message = f"the secret of {use.binding} {problem.what}: {problem.fix}; {fix_for(use.binding, stored)}"
    return AileronError(FailureClass.BINDING_FAILED, message, boundary=Boundary.USER)


def certificate_refused(use: CredentialUse, stored: Stored | None, error: Exception) -> AileronError | None:
    """Return `binding_failed` if the error is a server's alert about the certificate that `use` sent, else None."""
    alert = error.reason if isinstance(error, ssl.SSLError | TlsAlertError) else None
    if alert is None or "_ALERT_" not in alert:
        return None
    said = next((words for name, words in _REFUSALS.items() if alert.endswith(name)), None)
    if said is None:
        return None
    message = (
        f"the server refused the client certificate of {use.binding}: it says that the certificate {said} "
        f"({alert.lower().replace('_', ' ')}). Ask whoever runs the server which authority it accepts; "
        f"{fix_for(use.binding, stored)}"
    )
    return AileronError(FailureClass.BINDING_FAILED, message, boundary=Boundary.USER)
