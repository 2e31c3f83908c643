"""The certificate of `daemon.listen`: a check that it can be used, and the names for which it is valid.

Runs in ingress, and in the daemon at its start. The certificate itself was read with the settings, so that exactly the
certificate to which a person consented is presented. Its private key is read here, and must not be readable by other users.

Source: docs/reference/configuration.md; RFC 8446 through OpenSSL. Not here: the server (server.py).
"""

from __future__ import annotations

import os
import ssl
import stat
from pathlib import Path

from aileron.model.failure import AileronError, FailureClass

__all__ = ["certificate_names", "tls_context"]


def tls_context(certificate_pem: str, key: Path) -> ssl.SSLContext:
    """Return a server's TLS context for TLS 1.2 or newer and HTTP/1.1. Raises AileronError(invalid_request) if the key
    does not match the certificate, is encrypted, cannot be read, or may be used by other users.
    """
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
    """Return a certificate's DNS names and IP addresses as a Host header would have them, without port. Wildcards are
    left out.
    """
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


def _no_passphrase() -> str:
    raise ValueError("the key is encrypted: store it without a passphrase, readable by you alone")


def _refused(key: Path, why: str) -> AileronError:
    return AileronError(FailureClass.INVALID_REQUEST, f"daemon.certificate_key {key}: {why}")
