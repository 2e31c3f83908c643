r"""Checks that a stored value has the form that its binding needs: one line of text, a private key, a certificate, a document.

Pure: the caller passes the time. Inspects values and never quotes a value.

Rules
- A value has line ends only if it is a document: PEM, or a JSON object. A document can only be used where the document itself
  is not sent: for an `ssh` login, a client certificate, a signature, an assertion. In any other place, its line ends would end
  a header or a command early.
- The key of an HMAC must decode from the encoding that the manifest states.
- A private key must have no passphrase, because no person is present to type one.
- A client certificate must come with its private key, and must be valid now.
- A password for a login must have no control character: `\0` and `\1` separate the parts of SASL's messages, and a line end
  ends a command.

Source: RFC 4616. Not here: recognizing a document (model/pem.py), reading it (egress/signing, oauth,
model/client_certificate.py), a server's verdict (aileron/logins).
"""

from __future__ import annotations

import datetime
import re
from typing import Final, assert_never

from aileron.model.aws_key import AwsKey
from aileron.model.client_certificate import CertificateError, ClientCertificate
from aileron.model.credential import hmac_template_of
from aileron.model.credential_kind import parse_credential_kind
from aileron.model.fixes import Stored, fix_for
from aileron.model.pem import is_document, maybe_private_key
from aileron.model.request_signing import hmac_key
from aileron.model.secret import Secret
from aileron.vault.bindings import Binding

__all__ = ["check_fits"]

_CONTROL: Final = re.compile(rb"[\x00-\x1f\x7f]")


def check_fits(binding: Binding, value: Secret, stored: Stored, now_s: float) -> None:
    """Check that `binding` can use the value at `now_s` (since the epoch). Raise ValueError if it cannot, with an instruction
    and without quoting the value.

    `stored` is the place where the value is stored. It determines the instruction for the person who has to replace the
    value.
    """
    match parse_credential_kind(binding.kind):
        case "aws_sigv4":
            _check_aws(binding, value, stored, now_s)
        case "hmac":
            _check_hmac(binding, value, stored)
        case "mtls":
            _check_certificate(binding, value, stored, now_s)
        case "oauth2_client":
            pass  # every value fits: the code that signs with it reports what is wrong
        case "api_key" | "basic" | "digest" | "login" | "oauth2":
            _check_text(binding, value, stored)
        case impossible:
            assert_never(impossible)


def _check_text(binding: Binding, value: Secret, stored: Stored) -> None:
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
        fix = "remove it from a copy with `ssh-keygen -p -N '' -f COPY`, and store that"
        raise ValueError(
            f"secret {binding.secret!r} is a private key with a passphrase, which nobody could type: {fix}"
        )
    if key is None and binding.logins and binding.grant is None and _CONTROL.search(value.reveal()):
        what = "has a control character, which would end the login early"
        raise ValueError(f"secret {binding.secret!r} {what}; {fix_for(binding.name, stored)}")


def _check_hmac(binding: Binding, value: Secret, stored: Stored) -> None:
    _check_text(binding, value, stored)
    try:
        template = None if binding.reach is None else hmac_template_of(binding.reach.wire)
        if template is not None:
            hmac_key(template.key, value.reveal())
    except ValueError as error:
        fix = f"copy it again from the service's page, whole; {fix_for(binding.name, stored)}"
        raise ValueError(f"secret {binding.secret!r} cannot be the key of an HMAC: it {error}; {fix}") from None


def _check_certificate(binding: Binding, value: Secret, stored: Stored, now_s: float) -> None:
    try:
        ClientCertificate(value.reveal()).check_valid_at(now_s)
    except CertificateError as error:
        problem = error
    else:
        return
    raise ValueError(f"secret {binding.secret!r} {problem.what}: {problem.fix}; {fix_for(binding.name, stored)}")


def _check_aws(binding: Binding, value: Secret, stored: Stored, now_s: float) -> None:
    try:
        AwsKey.parse(binding.username, value).check_current(datetime.datetime.fromtimestamp(now_s, datetime.UTC))
    except ValueError as error:
        raise ValueError(f"secret {binding.secret!r} {error}; {fix_for(binding.name, stored)}") from None
