"""Passwords and tokens in the field `Authorization`: `basic`, `oauth2` and `oauth2_client`.

Pure; runs in the daemon.

Rules
- A password goes with the binding's user name, both in UTF-8.
- A token is sent in one place only: the connector's query must not have an `access_token` as well.

Source: RFC 6750, RFC 7617. Not here: a key in a field that a manifest names (key.py), the renewal of tokens (oauth/).
"""

from __future__ import annotations

import base64
from typing import Final

from aileron.egress.credentials.kind import Kind, authorization_field
from aileron.egress.credentials.lent import LentCredential, check_username_of, plain_roots, sendable, unusable
from aileron.egress.headers import is_field_value
from aileron.egress.outgoing import Injection, Outgoing
from aileron.model.manifest import CredentialNeed
from aileron.model.plan import CredentialUse

__all__ = ["BASIC", "BEARER", "with_field"]

_BESIDE_A_BEARER: Final = "access_token"  # RFC 6750 section 2.3; no request may carry a token in two ways (section 2)


def with_field(use: CredentialUse, lent: LentCredential, request: Outgoing, name: str, form: str) -> Outgoing:
    """Return the request with the header field `name`, whose value is `form` with the lent secret in place of `{key}`.
    Raises AileronError(binding_failed) if the secret cannot be sent.
    """
    secret = sendable(use, lent)
    value = form.replace("{key}", secret.decode("latin-1"))
    if not is_field_value(value) or secret != secret.strip(b" "):
        raise unusable(use, lent, "holds a character that a header cannot carry (only visible ASCII passes)")
    return request.with_fields((name, value))


def _basic(use: CredentialUse, lent: LentCredential, request: Outgoing) -> Injection:
    secret = sendable(use, lent)
    check_username_of(use, lent)
    pair = _pair(lent.username or "", secret)
    field = ("Authorization", f"Basic {base64.b64encode(pair).decode()}")
    return Injection(request.with_fields(field), _basic_roots(lent))


def _basic_roots(lent: LentCredential) -> frozenset[bytes]:
    """Return the bytes to search responses for: the password, the pair user:password, and that pair in base64. The last is
    included so that a base64 of that base64 is found as well.
    """
    pairs = {_pair(lent.username or "", secret) for secret in plain_roots(lent)}
    return plain_roots(lent).union(pairs, map(base64.b64encode, pairs))


def _pair(username: str, secret: bytes) -> bytes:
    return username.encode() + b":" + secret


def _bearer(use: CredentialUse, lent: LentCredential, request: Outgoing) -> Injection:
    return Injection(with_field(use, lent, request, "Authorization", "Bearer {key}"), plain_roots(lent))


def _query(_need: CredentialNeed) -> frozenset[str]:
    return frozenset({_BESIDE_A_BEARER})


BASIC: Final = Kind(put=_basic, reserved=authorization_field, roots=_basic_roots)
BEARER: Final = Kind(put=_bearer, reserved=authorization_field, parameters=_query, on_refusal="renew")
