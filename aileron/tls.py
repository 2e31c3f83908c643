"""Client-side TLS settings, with which every outside service is verified. Used by egress and the gateway in the daemon,
by the processes that log in (logins/), and by the command that imports an API (importing/).

Rules
- TLS is 1.2 or newer, and the name of the URL is verified against subjectAltName only.
- No setting comes from the environment: not SSL_CERT_FILE or SSL_CERT_DIR (OpenSSL would read them in
  `set_default_verify_paths`), not SSLKEYLOGFILE (`ssl.create_default_context` would write session keys there).

Source: RFC 9110 section 4.3.4, RFC 9325, ssl(3ssl). Not here: connecting (egress/dial.py, gateway/dial.py), serving (daemon/).
"""

from __future__ import annotations

import contextlib
import os
import re
import ssl
from collections.abc import Sequence
from typing import Final

from aileron.model.failure import AileronError, FailureClass

__all__ = ["client_context", "was_cut"]

_CA_BUNDLES: Final = (  # the distributions' paths, if OpenSSL was built with others
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def client_context(
    ca_pem: str | None, protocols: Sequence[str] = ("h2", "http/1.1"), *, at_once: bool = False
) -> ssl.SSLContext:
    """Return TLS settings that verify an upstream. `protocols` are offered by ALPN; `ca_pem` are certificates that are
    trusted in addition to the system's. `at_once`: read all certificates now, for a process that soon cannot open
    files.

    Raises AileronError(invalid_request) if `ca_pem` contains no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies chain and name; see the rules for why not by default
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False
    context.options |= ssl.OP_NO_RENEGOTIATION
    # Debian 12's Python 3.11.2 sets it by default (3.11.7 does not): a cut connection would look like a closed one.
    context.options &= ~getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
    if protocols:  # OpenSSL 1.1 takes no empty list
        context.set_alpn_protocols(list(protocols))
    _load_system_authorities(context, at_once=at_once)
    if ca_pem is not None and not _load_authorities(context, ca_pem):
        raise AileronError(
            FailureClass.INVALID_REQUEST, "egress.ca_file holds no certificate; it must be a PEM certificate file"
        )
    return context


def was_cut(error: ssl.SSLError) -> bool:
    """Return whether the error means that the peer closed the connection without close_notify. Python before 3.11.4 has
    no exception class for OpenSSL 3's reason.
    """
    return isinstance(error, ssl.SSLEOFError) or error.reason == "UNEXPECTED_EOF_WHILE_READING"


def _load_system_authorities(context: ssl.SSLContext, *, at_once: bool) -> None:
    paths = ssl.get_default_verify_paths()
    if hashed := _hashed_certificates(paths.openssl_capath):
        if at_once:
            _load_files(context, hashed)
        else:
            context.load_verify_locations(capath=paths.openssl_capath)  # read one by one, when needed
        return
    for bundle in (paths.openssl_cafile, *_CA_BUNDLES):
        if os.path.isfile(bundle):
            context.load_verify_locations(cafile=bundle)
            return


def _hashed_certificates(directory: str) -> list[str]:
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    return [os.path.join(directory, name) for name in names if re.fullmatch(r"[0-9a-f]{8}\.[0-9]", name)]


def _load_files(context: ssl.SSLContext, paths: Sequence[str]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):  # a broken link, or no certificate: OpenSSL would not find it later either
            context.load_verify_locations(cafile=path)


def _load_authorities(context: ssl.SSLContext, ca_pem: str) -> bool:
    # Python accepts no other; names beside a certificate may have others
    text = ca_pem.encode("ascii", "ignore").decode()
    if not text:
        return False
    try:
        context.load_verify_locations(cadata=text)
    except ssl.SSLError:
        return False
    return True
