"""What a client library signed itself with its placeholder key, taken off; what is said of the body, read; and signed anew.

Pure; runs in the daemon, on what a jailed connector wrote. An unmodified boto3 signs each request with whatever key it was given.
That signature is worth nothing. It is left out, not refused, so that the library needs no change.

Rules
- Left out: an `Authorization` that begins with `AWS4-HMAC-SHA256`, `X-Amz-Date`, `Date`, `X-Amz-Security-Token`, and of a
  presigned URL the parameters of its signature. Any other `Authorization`, and a signature of another version, is refused.
- A URL that came presigned is presigned again, for `MAX_EXPIRES_S` at most: a connector chooses the form by what it sends.
- `x-amz-content-sha256` is the connector's, if it is a hash: it is held to it (engine.py). What is not hashed goes out over TLS.
- Chunks that were signed one by one were signed with the placeholder key: refused.

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
"""Five minutes: a presigned URL is used when it is made, and clocks may differ; AWS takes up to seven days."""

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
    """The connector's fields, but for those of a signature of this version."""
    return tuple(field for field in fields if not _is_of_a_signature(field))


def check_own_query(url: Url) -> None:
    """RefusedError if the connector's URL is signed, but not in this version's way."""
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
    """What the connector says of its body: its SHA-256 in hex, or what stands for it; None: nothing.

    RefusedError(body_signature) for what cannot be signed.
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
    """Whether it is a hash in hex."""
    return _HASH.fullmatch(given) is not None


def is_unhashed(url: Url, service: str, given: str | None) -> bool:
    """Whether the signature says nothing of the body: as given, or because S3's presigned URLs are made before there is one."""
    return given in _UNHASHED or (given is None and aws.is_s3(service) and _is_presigned(url.query))


def sign_for_aws(request: Outgoing, key: AwsKey, scope: AwsScope, at: datetime.datetime) -> tuple[Outgoing, str]:
    """The request, signed, and its signature in hex. Its fields have none of their own, its query may have one."""
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
    """As given, within the bound."""
    for pair in query.split("&"):
        if _name(pair) == "x-amz-expires" and re.fullmatch(r"[0-9]{1,9}", pair.partition("=")[2]):
            return max(1, min(int(pair.partition("=")[2]), MAX_EXPIRES_S))
    return MAX_EXPIRES_S


def _name(pair: str) -> str:
    return unquote(pair.partition("=")[0]).lower()
