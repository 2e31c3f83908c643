"""Replace a client library's own signature, which was made with a placeholder key, and read the hash that it states for
the body.

Pure; runs in the daemon, on what a jailed connector wrote. An unmodified boto3 signs each request with the key that it
was given, here a placeholder. That worthless signature is removed, not refused, so that the library needs no change.

Rules
- These are removed: an `Authorization` that begins with `AWS4-HMAC-SHA256`, `X-Amz-Date`, `Date`, `X-Amz-Security-Token`, and
  the signature's parameters of a presigned URL. Any other `Authorization`, and a signature of another version, is refused.
- A URL that the connector presigned is presigned again, for at most `MAX_EXPIRES_S`. The form of the connector's
  request thus chooses the form of the signature.
- The connector's `x-amz-content-sha256` is kept if it is a hash, and the body must have that hash (engine.py). An
  unhashed body needs TLS.
- A body in signed chunks is refused, because the chunks were signed with the placeholder key.

Source: docs/reference/egress.md. Not here: the text that is signed (aws.py).
"""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote

from aileron.egress.headers import Field, field_key
from aileron.egress.outgoing import Outgoing
from aileron.egress.refusal import Reason, RefusedError
from aileron.egress.signing import aws
from aileron.egress.url import Url
from aileron.model.aws_key import AwsKey
from aileron.model.request_signing import AwsScope

__all__ = [
    "MAX_EXPIRES_S",
    "check_own_query",
    "given_payload",
    "is_sha256",
    "is_unhashed",
    "sign_for_aws",
    "without_own_signature",
]

MAX_EXPIRES_S: Final = 300
"""Maximum lifetime of a presigned URL in seconds: five minutes, because the URL is used as soon as it is made, and
clocks may differ. AWS accepts up to seven days.
"""

_HASH: Final = re.compile(r"[0-9a-f]{64}")
_UNHASHED: Final = frozenset({aws.UNSIGNED_PAYLOAD, "STREAMING-UNSIGNED-PAYLOAD-TRAILER"})
_OF_A_SIGNATURE: Final = frozenset({"x-amz-date", "date", "x-amz-security-token"})
_PARAMETERS: Final = frozenset(
    {"x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-expires", "x-amz-security-token", "x-amz-signature",
     "x-amz-signedheaders"}
)  # fmt: skip
_OF_VERSION_2: Final = frozenset({"awsaccesskeyid", "signature"})
_EMPTY: Final = hashlib.sha256(b"").hexdigest()


def without_own_signature(fields: Sequence[Field]) -> tuple[Field, ...]:
    """Return the connector's fields, except those that belong to a Signature Version 4."""
    return tuple(field for field in fields if not _is_of_a_signature(field))


def check_own_query(url: Url) -> None:
    """Raise RefusedError if the connector's URL is signed in another way than Signature Version 4."""
    names = {_name(pair): pair for pair in (url.query or "").split("&")}
    algorithm = unquote(names.get("x-amz-algorithm", "").partition("=")[2])
    if names.keys() >= _OF_VERSION_2:
        raise RefusedError(
            Reason.HEADER_CREDENTIAL,
            'the URL is signed with version 2: for boto3, make the client with Config(signature_version="s3v4")',
        )
    if "x-amz-algorithm" in names and algorithm != aws.ALGORITHM:
        raise RefusedError(
            Reason.HEADER_CREDENTIAL,
            f"the URL is signed with another algorithm than {aws.ALGORITHM}; leave the signature out",
        )


def given_payload(url: Url, fields: Sequence[Field]) -> str | None:
    """Return the value of the connector's field `X-Amz-Content-SHA256`: the SHA-256 of the body in hex, or AWS's
    placeholder for an unhashed body; None if the field is missing.

    Raises RefusedError(body_signature) for a body that cannot be signed.
    """
    values = {value.strip(" \t") for name, value in fields if field_key(name) == "x-amz-content-sha256"}
    if not values:
        return None
    value = values.pop()
    if value.startswith("STREAMING-AWS4-"):
        raise RefusedError(
            Reason.BODY_SIGNATURE,
            "the chunks of the body are signed with the placeholder key: send the body whole or its SHA-256 in "
            'x-amz-content-sha256; for boto3, use https and Config(request_checksum_calculation="when_required")',
        )
    if values or not (is_sha256(value) or value in _UNHASHED):
        raise RefusedError(
            Reason.BODY_SIGNATURE, "x-amz-content-sha256 is no SHA-256 in lower-case hex; leave it out, or give that"
        )
    if value in _UNHASHED and url.scheme != "https":
        raise RefusedError(
            Reason.BODY_SIGNATURE,
            f"without TLS a body is signed: leave {value} out of x-amz-content-sha256, or use https",
        )
    return value


def is_sha256(given: str) -> bool:
    """Return whether the text is a SHA-256 in hex."""
    return _HASH.fullmatch(given) is not None


def is_unhashed(url: Url, service: str, given: str | None) -> bool:
    """Return whether the signature does not cover the body. The connector can request that (`given`), and S3's
    presigned URLs are made before there is a body.
    """
    return given in _UNHASHED or (given is None and aws.is_s3(service) and _is_presigned(url.query))


def sign_for_aws(request: Outgoing, key: AwsKey, scope: AwsScope, at: datetime.datetime) -> tuple[Outgoing, str]:
    """Return the signed request, and its signature in hex. The request's fields must not contain a signature; its query
    may.
    """
    given = given_payload(request.url, request.fields)
    if not _is_presigned(request.url.query):
        return aws.signed(request, key, scope, at, given or _hash(request))
    expires_s = _expires_s(request.url.query or "")
    unhashed = is_unhashed(request.url, scope.service, given)
    payload = given or (aws.UNSIGNED_PAYLOAD if unhashed else _hash(request))
    left = "&".join(pair for pair in (request.url.query or "").split("&") if _name(pair) not in _PARAMETERS)
    return aws.presigned(request.with_whole_query(left or None), key, scope, at, payload, expires_s)


def _hash(request: Outgoing) -> str:
    assert not request.is_streamed, "a body without a hash is held (held.py)"
    return hashlib.sha256(request.body).hexdigest() if request.body else _EMPTY


def _is_of_a_signature(field: Field) -> bool:
    name, value = field_key(field[0]), field[1].strip(" \t")
    return name in _OF_A_SIGNATURE or (name == "authorization" and value.startswith(f"{aws.ALGORITHM} "))


def _is_presigned(query: str | None) -> bool:
    return "x-amz-algorithm" in {_name(pair) for pair in (query or "").split("&")}


def _expires_s(query: str) -> int:
    """Return the lifetime in seconds that the connector's presigned URL requests, at most MAX_EXPIRES_S."""
    for pair in query.split("&"):
        if _name(pair) == "x-amz-expires" and re.fullmatch(r"[0-9]{1,9}", pair.partition("=")[2]):
            return max(1, min(int(pair.partition("=")[2]), MAX_EXPIRES_S))
    return MAX_EXPIRES_S


def _name(pair: str) -> str:
    return unquote(pair.partition("=")[0]).lower()
