"""A client certificate. It is not part of the request; it is presented when the connection is made.

Pure but for the clock; runs in the daemon. The private key is never sent.

Source: RFC 8446 section 4.4.2. Not here: the connection (egress/client_certificate.py), the format of a certificate
(model/client_certificate.py).
"""

from __future__ import annotations

from typing import Final

from aileron.egress.client_certificate import unusable_certificate
from aileron.egress.credentials.kind import Kind
from aileron.egress.credentials.lent import LentCredential
from aileron.egress.outgoing import Injection, Outgoing
from aileron.egress.refusal import Reason, RefusedError
from aileron.egress.signing.time_of_day import time_of_day
from aileron.egress.url import Url
from aileron.model.client_certificate import CertificateError, ClientCertificate
from aileron.model.manifest import CredentialNeed
from aileron.model.plan import CredentialUse

__all__ = ["MTLS"]


def _put(use: CredentialUse, lent: LentCredential, request: Outgoing) -> Injection:
    """Return the request unchanged, because the certificate is presented in TLS. There is nothing to scrub, as the
    request contains no secret.
    """
    try:
        ClientCertificate(lent.secret.reveal()).check_valid_at(time_of_day().timestamp())
    except CertificateError as error:
        problem = error
    else:
        return Injection(request, certificate=lent.secret)
    raise unusable_certificate(use, problem, lent.stored)


def _nothing_sent(_lent: LentCredential) -> frozenset[bytes]:
    return frozenset()


def _nothing_reserved(_need: CredentialNeed) -> frozenset[str]:
    return frozenset()


def _check_url(_need: CredentialNeed, url: Url, _is_read_only: bool) -> None:
    if url.scheme != "https":
        raise RefusedError(
            Reason.PLAIN_HTTP,
            f"http://{url.destination} has no TLS, which a client certificate needs: use TLS, or send the request without "
            "the credential",
        )


MTLS: Final = Kind(put=_put, reserved=_nothing_reserved, roots=_nothing_sent, check_url=_check_url)
