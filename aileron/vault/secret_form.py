r"""Whether a stored value can be what a binding uses it for: a text of one line, a private key, a certificate, a document.

Pure: the time of day is given. Looks at values and quotes none.

Rules
- A value has line ends only if it is a document: PEM, or a JSON object. A document serves only what never sends it as it is: an
  `ssh` login, a client certificate, a signature, an assertion. Anywhere else its line ends would end a header or a command early.
- The key of an HMAC can be decoded as the manifest says that it is written.
- A private key has no passphrase: nobody is there to type it.
- A client certificate comes with the private key that it belongs to, and is valid now.
- A password for a login has no control character: `\0` and `\1` separate the parts of SASL's messages, and a line is a command.

Source: RFC 4616. Not here: what is a document (model/pem.py), what is in it (egress/signing, oauth, model/client_certificate.py),
whether a server takes it (aileron/logins).
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Final

from aileron.model.aws_key import AwsKey
from aileron.model.client_certificate import CertificateError, ClientCertificate
from aileron.model.credential import hmac_template_of
from aileron.model.cure import Stored, cure_for
from aileron.model.pem import is_document, maybe_private_key
from aileron.model.request_signing import hmac_key
from aileron.model.secret import Secret
from aileron.vault.bindings import Binding

__all__ = ["check_fits"]

_CONTROL: Final = re.compile(rb"[\x00-\x1f\x7f]")


def check_fits(binding: Binding, value: Secret, stored: Stored, now_s: float) -> None:
    """Return if `binding` can use it at `now_s` (since the epoch). ValueError says what to do, and quotes nothing of it.

    `stored`: where the value is, for whoever has to replace it.
    """
    check = _FITS.get(binding.kind, _check_text)
    check(binding, value, stored, now_s)


def _check_text(binding: Binding, value: Secret, stored: Stored, _now_s: float) -> None:
    key, has_ssh = maybe_private_key(value), any(login.protocol == "ssh" for login in binding.logins)
    if key is not None and not has_ssh:
        raise ValueError(
            f"secret {binding.secret!r} is a private key, which kind {binding.kind} cannot send; give another --secret"
        )
    if key is None and is_document(value):
        raise ValueError(
            f"secret {binding.secret!r} has several lines, which kind {binding.kind} cannot send; give another --secret"
        )
    if key is not None and key.is_encrypted:
        cure = "remove it from a copy with `ssh-keygen -p -N '' -f COPY`, and store that"
        raise ValueError(
            f"secret {binding.secret!r} is a private key with a passphrase, which nobody could type: {cure}"
        )
    if key is None and binding.logins and binding.grant is None and _CONTROL.search(value.reveal()):
        what = "has a control character, which would end the login early"
        raise ValueError(f"secret {binding.secret!r} {what}; {cure_for(binding.name, stored)}")


def _check_hmac(binding: Binding, value: Secret, stored: Stored, now_s: float) -> None:
    _check_text(binding, value, stored, now_s)
    try:
        template = None if binding.reach is None else hmac_template_of(binding.reach.wire)
        if template is not None:
            hmac_key(template.key, value.reveal())
    except ValueError as error:
        cure = f"copy it again from the service's page, whole; {cure_for(binding.name, stored)}"
        raise ValueError(f"secret {binding.secret!r} cannot be the key of an HMAC: it {error}; {cure}") from None


def _check_certificate(binding: Binding, value: Secret, stored: Stored, now_s: float) -> None:
    try:
        ClientCertificate(value.reveal()).check_valid_at(now_s)
    except CertificateError as error:
        problem = error
    else:
        return
    raise ValueError(f"secret {binding.secret!r} {problem.what}: {problem.cure}; {cure_for(binding.name, stored)}")


def _check_aws(binding: Binding, value: Secret, stored: Stored, now_s: float) -> None:
    try:
        AwsKey.parse(binding.username, value).check_current(datetime.datetime.fromtimestamp(now_s, datetime.UTC))
    except ValueError as error:
        raise ValueError(f"secret {binding.secret!r} {error}; {cure_for(binding.name, stored)}") from None


def _check_nothing(_binding: Binding, _value: Secret, _stored: Stored, _now_s: float) -> None:
    """Whoever signs with it says what is wrong with it."""


_FITS: Final[dict[str, Callable[[Binding, Secret, Stored, float], None]]] = {
    "aws_sigv4": _check_aws,
    "hmac": _check_hmac,
    "mtls": _check_certificate,
    "oauth2_client": _check_nothing,
}
"""What takes a document or a key; all else takes text, but for an `ssh` login."""
