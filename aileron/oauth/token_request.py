"""Builds the request for a token without a sign-in: grant, client authentication, assertion, exchanged token.

Pure, except for the randomness; runs in the daemon, in a worker thread. Every request contains or proves a secret, and is sent
only to the token endpoint.

Rules
- The request goes to the manifest's `token_url`. A key file that specifies another endpoint is refused, because one of the two
  is a mistake, or an attack.
- An assertion is valid for five minutes, only for that endpoint, and only once (`jti`).
- `client_secret_basic` encodes ID and secret as a form does, before Base64 (RFC 6749, section 2.3.1).
- The error for an unsuitable credential quotes no part of it.

Source: RFC 6749 section 4.4, RFC 7523 sections 2 and 3, RFC 8693 section 2.1, RFC 8707. Not here: signing (assertion.py),
sending the request (minting.py).
"""

from __future__ import annotations

import base64
import dataclasses
import re
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from urllib.parse import quote_plus, unquote_plus

import msgspec

from aileron.model.fixes import Stored
from aileron.model.names import BindingName
from aileron.model.request_signing import TokenGrant
from aileron.model.secret import Secret

if TYPE_CHECKING:  # cryptography comes with the first assertion
    from aileron.oauth.assertion import Claims

__all__ = ["ASSERTION_S", "ClientCredential", "TokenRequest", "sent_parts", "token_request"]

ASSERTION_S: Final = 300
"""Validity of an assertion in seconds: an exchange takes 30 s at most, and clocks differ by some minutes. Google accepts at
most an hour.
"""
MAX_SENT_BYTES: Final = 8 << 10
"""Maximum size in bytes of a secret or token that a token request contains: 8 KiB. Egress has the same limit for a
header field.
"""
_BASIC: Final = b"Basic "
_JTI_BYTES: Final = 16  # 128 bits: never used twice
_ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_SENDABLE: Final = re.compile(r"[\x20-\x7e]+")
"""Pattern of text in printable ASCII (VSCHAR; RFC 6749, appendix A.2)."""
_GRANT_TYPES: Final = {
    "client_credentials": "client_credentials",
    "jwt_bearer": "urn:ietf:params:oauth:grant-type:jwt-bearer",
    "token_exchange": "urn:ietf:params:oauth:grant-type:token-exchange",
}


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class ClientCredential:
    """The credential with which a binding requests tokens. `secret` is the stored secret; `grant` is the grant for which the
    binding was approved.
    """

    name: BindingName
    grant: TokenGrant
    client_id: str | None
    secret: Secret
    stored: Stored
    """Place where the secret is stored, for the person who has to replace it."""


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class TokenRequest:
    """A token request: its form, and the value of its `Authorization` header field, if it has one."""

    form: dict[str, str]
    authorization: Secret | None = None

    @property
    def sent(self) -> tuple[str, ...]:
        """The values that a response could repeat: the values of the form, and client ID and secret of the `Authorization`
        field.
        """
        if self.authorization is None:
            return tuple(self.form.values())
        pair = base64.b64decode(self.authorization.reveal().removeprefix(_BASIC)).decode("ascii")
        return (*self.form.values(), *map(unquote_plus, pair.split(":")))


class _Exchange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The stored secret, a JSON object, of a binding that exchanges a token and whose client also authenticates."""

    client_secret: str
    subject_token: str

    def __repr__(self) -> str:
        return "<client secret and token>"


def token_request(
    credential: ClientCredential, now: float, *, random: Callable[[int], bytes] = secrets.token_bytes
) -> TokenRequest:
    """Return the token request, made at `now` (s since the epoch). Raise ValueError for an unsuitable credential, with the
    reason as the end of a sentence.
    """
    grant = credential.grant
    form = {"grant_type": _GRANT_TYPES[grant.grant]}
    for name, value in (("audience", _audience_parameter(grant)), ("resource", grant.resource)):
        if value is not None:
            form[name] = value
    if grant.scopes:
        form["scope"] = " ".join(grant.scopes)
    if grant.grant == "jwt_bearer":
        return TokenRequest(_with_assertion(form, credential, now, random))
    client_secret, subject_token = _stored_parts(credential)
    if subject_token is not None:
        form |= {"subject_token": subject_token, "subject_token_type": grant.subject_token_type}
    return _authenticated(form, credential, client_secret, now, random)


def sent_parts(stored: Secret, client_id: str | None) -> tuple[Secret, ...]:
    """Return the forms in which parts of a stored secret may be sent, for any kind of grant: as they are, and as
    `client_secret_basic` encodes them.

    No part of a private key is ever sent.
    """
    try:
        found = msgspec.json.decode(stored.reveal(), type=_Exchange)
        texts = [found.client_secret, found.subject_token]
    except (ValueError, RecursionError):
        texts = [stored.reveal().decode("ascii", "replace")]
    forms = dict.fromkeys(texts)
    if client_id is not None and _SENDABLE.fullmatch(texts[0]):
        forms |= dict.fromkeys((quote_plus(texts[0]), _basic(client_id, texts[0])))
    return tuple(Secret(form.encode()) for form in forms if _SENDABLE.fullmatch(form))


def _audience_parameter(grant: TokenGrant) -> str | None:
    return None if grant.grant == "jwt_bearer" else grant.audience


def _stored_parts(credential: ClientCredential) -> tuple[str | None, str | None]:
    """Return the client's secret, and the token to exchange, from the credential's stored secret. Each is None if the
    credential does not have it.
    """
    grant = credential.grant
    if grant.grant == "client_credentials":
        return (None if grant.client_auth == "private_key_jwt" else _text(credential.secret)), None
    if grant.client_auth == "none":
        return None, _text(credential.secret)
    try:
        found = msgspec.json.decode(credential.secret.reveal(), type=_Exchange)
    except (ValueError, RecursionError):
        raise ValueError('is not {"client_secret": "…", "subject_token": "…"}, which the connector needs') from None
    return _text(Secret(found.client_secret.encode())), _text(Secret(found.subject_token.encode()))


def _text(value: Secret) -> str:
    try:
        text = value.reveal().decode("ascii")
    except UnicodeDecodeError:
        text = ""
    if not _SENDABLE.fullmatch(text) or len(text) > MAX_SENT_BYTES:
        raise ValueError(
            f"is not a client secret or token: one line of printable ASCII characters, at most {MAX_SENT_BYTES >> 10} KiB"
        )
    return text


def _authenticated(
    form: dict[str, str],
    credential: ClientCredential,
    client_secret: str | None,
    now: float,
    random: Callable[[int], bytes],
) -> TokenRequest:
    """Return the token request with this form and the client's authentication (RFC 6749 section 2.3, RFC 7523 section
    2.2).
    """
    client_id, auth = credential.client_id, credential.grant.client_auth
    if auth == "none":
        return TokenRequest(form if client_id is None else {**form, "client_id": client_id})
    if client_id is None:
        raise ValueError("has no client ID; give it with --username")
    if auth == "private_key_jwt":
        from aileron.oauth.assertion import read_signing_key

        key = read_signing_key(credential.secret, credential.grant.algorithm)
        claims = _claims(client_id, credential.grant.token_url, now, random)
        assertion = {"client_assertion_type": _ASSERTION_TYPE, "client_assertion": key.signed(claims)}
        return TokenRequest({**form, "client_id": client_id, **assertion})
    assert client_secret is not None
    if auth == "client_secret_basic":
        return TokenRequest(form, Secret(_BASIC + _basic(client_id, client_secret).encode("ascii")))
    return TokenRequest({**form, "client_id": client_id, "client_secret": client_secret})


def _basic(client_id: str, client_secret: str) -> str:
    pair = f"{quote_plus(client_id)}:{quote_plus(client_secret)}"
    return base64.b64encode(pair.encode("ascii")).decode("ascii")


def _with_assertion(
    form: dict[str, str], credential: ClientCredential, now: float, random: Callable[[int], bytes]
) -> dict[str, str]:
    """Return the form of a token request with an assertion (a signed JWT) added (RFC 7523, section 2.1). An assertion
    of a Google service account contains the scopes, as Google requires.
    """
    from aileron.oauth.assertion import is_json, read_service_account, read_signing_key

    grant = credential.grant
    audience = grant.audience or grant.token_url
    account = read_service_account(credential.secret, grant.algorithm)
    if account is None:
        if is_json(credential.secret) and b"service_account" in credential.secret.reveal():
            raise ValueError("is a service account's key file that is not whole; download it again")
        if credential.client_id is None:
            raise ValueError("has no issuer of the assertion, which is the client ID; give it with --username")
        key = read_signing_key(credential.secret, grant.algorithm)
        claims = _claims(credential.client_id, audience, now, random)
        return {**form, "assertion": key.signed(claims)}
    if account.token_url != grant.token_url:
        raise ValueError(
            f"is the key file of a service account whose tokens are not issued at {grant.token_url}, where the connector asks: "
            "use the key file of the right account, or a connector made for this one"
        )
    if credential.client_id not in (None, account.email):
        raise ValueError("is the key file of another account than --username says; leave --username out")
    claims = _claims(account.email, audience, now, random)
    if scope := form.pop("scope", ""):
        claims["scope"] = scope
    return {**form, "assertion": account.key.signed(claims)}


def _claims(issuer: str, audience: str, now: float, random: Callable[[int], bytes]) -> Claims:
    """Return the claims of an assertion whose issuer and subject are `issuer` (RFC 7523, section 3)."""
    at = int(now)
    return {
        "iss": issuer,
        "sub": issuer,
        "aud": audience,
        "iat": at,
        "exp": at + ASSERTION_S,
        "jti": random(_JTI_BYTES).hex(),
    }
