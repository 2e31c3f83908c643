"""Credentials that sign a request or prove that the sender has them, and are not sent themselves: `aws_sigv4`, `hmac`,
`digest`.

Pure but for the clock; runs in the daemon, as the last step before the wire, so that exactly what is signed is sent.

Rules
- A signature is searched for only in the response to its own request, as each request has a different signature. The
  key is searched for in every response.
- The connector's own signature is replaced where client libraries make one (`aws_sigv4`), and refused elsewhere.
- `digest` answers a challenge; before the first challenge, nothing is added. A WebSocket's handshake is sent only once,
  so it cannot use `digest`.
- A body that is signed or sent twice must be complete first (held.py).

Source: docs/reference/egress.md. Not here: how each signature is made (egress/signing/).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import UNSET

from aileron.egress.credentials.key import NEVER_A_CREDENTIAL
from aileron.egress.credentials.kind import Kind, authorization_field
from aileron.egress.credentials.lent import LentCredential, check_username_of, plain_roots, unusable
from aileron.egress.headers import TOKEN, Field, field_key, is_field_value
from aileron.egress.held import REPEATED_BYTES, SIGNED_BYTES
from aileron.egress.outgoing import Injection, Outgoing
from aileron.egress.refusal import Reason, RefusedError
from aileron.egress.signing.aws_operation import check_operation
from aileron.egress.signing.aws_request import (
    check_own_query,
    given_payload,
    is_sha256,
    is_unhashed,
    sign_for_aws,
    without_own_signature,
)
from aileron.egress.signing.digest import answer, without_proof
from aileron.egress.signing.hmac_template import Occasion, sign, signs_body
from aileron.egress.signing.time_of_day import time_of_day
from aileron.egress.url import Url
from aileron.model.aws_key import AwsKey
from aileron.model.manifest import CredentialNeed
from aileron.model.plan import CredentialUse

__all__ = ["AWS_SIGV4", "DIGEST", "HMAC"]


# aws_sigv4


def _put_aws(use: CredentialUse, lent: LentCredential, request: Outgoing) -> Injection:
    now, scope = time_of_day(), use.need.aws
    if not scope:
        raise unusable(use, lent, "is declared without the region and service to sign for")
    try:
        key = AwsKey.parse(lent.username, lent.secret)
        key.check_current(now)
    except ValueError as error:
        words = str(error)
    else:
        signed, signature = sign_for_aws(request, key, scope, now)
        return Injection(signed, frozenset(key.secrets), frozenset({signature.encode()}))
    raise unusable(use, lent, words)


def _aws_roots(lent: LentCredential) -> frozenset[bytes]:
    """Return the secret parts of the stored AWS key, to search responses for. The stored text itself is never sent, so it need
    not be searched for.
    """
    try:
        return frozenset(AwsKey.parse(lent.username, lent.secret).secrets)
    except ValueError:
        return frozenset()


def _check_aws(need: CredentialNeed, url: Url, is_read_only: bool) -> None:
    if need.aws:
        check_operation(url, need.aws.service, is_read_only=is_read_only)


def _without_placeholder(url: Url, fields: Sequence[Field]) -> tuple[Field, ...]:
    check_own_query(url)
    return without_own_signature(fields)


def _given_sha256(url: Url, fields: Sequence[Field]) -> str | None:
    given = given_payload(url, fields)
    return given if given is not None and is_sha256(given) else None


def _held_for_aws(need: CredentialNeed, url: Url, fields: Sequence[Field]) -> int | None:
    """Return the maximum size of a streamed body that must be complete before it is signed: SIGNED_BYTES. None if the
    connector gave the body's hash, or the signature does not cover the body.
    """
    given = given_payload(url, fields)
    service = need.aws.service if need.aws else ""
    return None if given is not None or is_unhashed(url, service, given) else SIGNED_BYTES


# hmac


def _put_hmac(use: CredentialUse, lent: LentCredential, request: Outgoing) -> Injection:
    template = use.need.hmac
    if template is UNSET:
        raise unusable(use, lent, "is declared without a template")
    if request.is_streamed and signs_body(template):  # otherwise an empty body would be signed
        raise unusable(use, lent, "signs the body, which came in pieces; let the connector send it whole")
    try:
        signed = sign(template, lent.secret.reveal(), request, Occasion.now())
    except ValueError as error:
        raise unusable(use, lent, f"cannot be the key of an HMAC: it {error}") from None
    for name, value in signed.fields:
        if not TOKEN.fullmatch(name) or field_key(name) in NEVER_A_CREDENTIAL or not is_field_value(value):
            raise unusable(use, lent, "is declared with a header field that cannot carry a signature")
    once = frozenset({signed.signature.encode("ascii")})
    return Injection(request.with_fields(*signed.fields), plain_roots(lent), once)


def _hmac_fields(need: CredentialNeed) -> frozenset[str]:
    fields = () if need.hmac is UNSET else need.hmac.headers
    return frozenset({"authorization", *(field_key(name) for name, _value in fields)})


def _held_for_hmac(need: CredentialNeed, _url: Url, _fields: Sequence[Field]) -> int | None:
    return SIGNED_BYTES if need.hmac and signs_body(need.hmac) else None


# digest


def _put_digest(use: CredentialUse, lent: LentCredential, request: Outgoing) -> Injection:
    check_username_of(use, lent)
    if lent.round is None:
        return Injection(request, plain_roots(lent))
    answered = answer(lent.round, lent.username or "", lent.secret.reveal(), request)
    field = ("Authorization", answered.field)
    return Injection(request.with_fields(field), plain_roots(lent), frozenset({answered.response.encode("ascii")}))


def _no_handshake(_need: CredentialNeed, is_websocket: bool) -> None:
    if is_websocket:
        raise RefusedError(
            Reason.CREDENTIAL_NOT_GRANTED,
            "HTTP Digest answers a challenge, and the handshake of a WebSocket is sent once: use a service that takes a token",
        )


def _held_for_digest(_need: CredentialNeed, _url: Url, _fields: Sequence[Field]) -> int | None:
    return REPEATED_BYTES


AWS_SIGV4: Final = Kind(
    put=_put_aws,
    reserved=authorization_field,
    roots=_aws_roots,
    check_url=_check_aws,
    own_fields=_without_placeholder,
    given_hash=_given_sha256,
    held_bytes=_held_for_aws,
    on_refusal="explain",
)
HMAC: Final = Kind(put=_put_hmac, reserved=_hmac_fields, held_bytes=_held_for_hmac, on_refusal="explain")
DIGEST: Final = Kind(
    put=_put_digest,
    reserved=authorization_field,
    check_used=_no_handshake,
    held_bytes=_held_for_digest,
    relayed=without_proof,
    on_refusal="answer",
)
