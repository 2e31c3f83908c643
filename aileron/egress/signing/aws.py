"""AWS Signature Version 4 over a request as it goes on the wire: in a header field, or in its query (presigned).

Pure; runs in the daemon, on a request that passed every rule (rules.py). The signed text is made here from the
`Outgoing` that is sent, without the fields that a proxy may change on the way.

Rules
- S3's path is signed as it is served: decoded once and encoded once, `//` and all. For every other service, doubled
  slashes count as one, and the encoded path is encoded again.
- Query parameters are decoded, encoded in the one canonical way, and sorted by name and then value; `a` is `a=`. A `+`
  is a blank for some servers and a plus for others, so it goes on the wire as `%20`, its meaning in forms.
- Values of header fields of one name are joined by commas, trimmed, and with single blanks inside.
- `host` and all fields except those in `_UNSIGNED` are signed.

Source: IAM User Guide, "Create a signed AWS API request"; S3 API Reference, "Authenticating Requests". Not here: the key's form
(model/aws_key.py), a library's own signature and the hash of the body (aws_request.py).
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from aileron.egress.headers import Field
from aileron.egress.outgoing import Outgoing
from aileron.model.aws_key import AwsKey
from aileron.model.request_signing import AwsScope

__all__ = ["ALGORITHM", "UNSIGNED_PAYLOAD", "canonical_request", "is_s3", "presigned", "signed"]

ALGORITHM: Final = "AWS4-HMAC-SHA256"
UNSIGNED_PAYLOAD: Final = "UNSIGNED-PAYLOAD"

_S3: Final = frozenset({"s3", "s3-object-lambda", "s3-outposts", "s3express"})
_UNSIGNED: Final = frozenset(
    {"accept-encoding", "authorization", "connection", "content-length", "expect", "sec-websocket-key", "sec-websocket-protocol",
     "sec-websocket-version", "te", "traceparent", "tracestate", "transfer-encoding", "upgrade", "user-agent", "via",
     "x-amzn-trace-id"}
)  # fmt: skip
"""Header fields that are not signed: fields that proxies and load balancers change or drop, and hop-by-hop fields. The
latter are the framing, which the hash of the body covers better, and the handshake of a WebSocket, which a proxy makes
again for its own connection.
"""
_BLANKS: Final = re.compile(r"[ \t]+")
_SLASHES: Final = re.compile(r"/{2,}")


def is_s3(service: str) -> bool:
    """Return whether AWS's special rules for signatures of S3 requests apply to the service."""
    return service in _S3


def signed(
    request: Outgoing, key: AwsKey, scope: AwsScope, at: datetime.datetime, payload: str
) -> tuple[Outgoing, str]:
    """Return the request with its date, session token and `Authorization`, and the signature in hex. The request must
    have none of these fields yet. For S3, `X-Amz-Content-SHA256` is added if it is missing.

    `payload` is the SHA-256 of the body in hex, or S3's placeholder for the hash.
    """
    moment = f"{at.astimezone(datetime.UTC):%Y%m%dT%H%M%SZ}"
    added = [("X-Amz-Date", moment)]
    if key.session_token is not None:
        added.append(("X-Amz-Security-Token", key.session_token.reveal().decode("ascii")))
    if is_s3(scope.service) and all(name.lower() != "x-amz-content-sha256" for name, _value in request.fields):
        added.append(("X-Amz-Content-SHA256", payload))
    request = _plain_blanks(request).with_fields(*added)
    text, names = canonical_request(request, scope.service, payload)
    signature = _signature(key, scope, moment, text)
    credential = f"{key.access_key_id}/{_scope_text(scope, moment)}"
    value = f"{ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={signature}"
    return request.with_fields(("Authorization", value)), signature


def presigned(
    request: Outgoing, key: AwsKey, scope: AwsScope, at: datetime.datetime, payload: str, expires_s: int
) -> tuple[Outgoing, str]:
    """Return the request with the signature in its query, and the signature in hex. The caller limits `expires_s`."""
    moment = f"{at.astimezone(datetime.UTC):%Y%m%dT%H%M%SZ}"
    parameters = [
        ("X-Amz-Algorithm", ALGORITHM),
        ("X-Amz-Credential", f"{key.access_key_id}/{_scope_text(scope, moment)}"),
        ("X-Amz-Date", moment),
        ("X-Amz-Expires", str(expires_s)),
        ("X-Amz-SignedHeaders", ";".join(name for name, _value in _signed_fields(request.fields))),
    ]
    if key.session_token is not None:
        parameters.append(("X-Amz-Security-Token", key.session_token.reveal().decode("ascii")))
    request = _plain_blanks(request)
    for name, value in parameters:
        request = request.with_query(f"{name}={quote(value, safe='-_.~')}")
    text, _names = canonical_request(request, scope.service, payload)
    signature = _signature(key, scope, moment, text)
    return request.with_query(f"X-Amz-Signature={signature}"), signature


def canonical_request(request: Outgoing, service: str, payload: str) -> tuple[str, str]:
    """Return the canonical request, whose hash is signed, and the names of the signed fields, joined by semicolons."""
    fields = _signed_fields(request.fields)
    names = ";".join(name for name, _value in fields)
    lines = "".join(f"{name}:{value}\n" for name, value in fields)
    path, query = _canonical_path(request.url.path, service), _canonical_query(request.url.query)
    return "\n".join((request.method, path, query, lines, names, payload)), names


def _canonical_path(path: str, service: str) -> str:
    if is_s3(service):
        return quote(unquote_to_bytes(path), safe="/-_.~")
    return quote(_SLASHES.sub("/", path), safe="/-_.~")


def _canonical_query(query: str | None) -> str:
    if not query:
        return ""
    pairs = [pair.partition("=") for pair in query.split("&") if pair]
    return "&".join(
        f"{name}={value}" for name, value in sorted((_once(name), _once(value)) for name, _, value in pairs)
    )


def _once(text: str) -> str:
    return quote(unquote_to_bytes(text), safe="-_.~")


def _signed_fields(fields: Sequence[Field]) -> list[tuple[str, str]]:
    """Return the header fields to sign, sorted by name in lower case, with all values of a name joined into one."""
    values: dict[str, list[str]] = {}
    for name, value in fields:
        if name.lower() not in _UNSIGNED:
            values.setdefault(name.lower(), []).append(_BLANKS.sub(" ", value.strip(" \t")))
    return sorted((name, ",".join(parts)) for name, parts in values.items())


def _plain_blanks(request: Outgoing) -> Outgoing:
    query = request.url.query
    return request if query is None or "+" not in query else request.with_whole_query(query.replace("+", "%20"))


def _scope_text(scope: AwsScope, moment: str) -> str:
    return f"{moment[:8]}/{scope.region}/{scope.service}/aws4_request"


def _signature(key: AwsKey, scope: AwsScope, moment: str, text: str) -> str:
    digest = hashlib.sha256(text.encode()).hexdigest()
    to_sign = f"{ALGORITHM}\n{moment}\n{_scope_text(scope, moment)}\n{digest}"
    derived = b"AWS4" + key.secret_access_key.reveal()
    for part in (moment[:8], scope.region, scope.service, "aws4_request", to_sign):
        derived = hmac.digest(derived, part.encode(), "sha256")
    return derived.hex()
