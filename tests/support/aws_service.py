"""A service that checks AWS signatures: from the bytes it received, with botocore, which is independent of Aileron's code.

>>> with Upstream(SignatureChecker({"AKIDEXAMPLE": b"wJalr…"}), context) as upstream: ...     # doctest: +SKIP
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
from collections.abc import Mapping
from urllib.parse import unquote

import botocore.auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.support.upstream import Seen, answer

__all__ = ["SignatureChecker"]

_OF_THE_SIGNATURE = "X-Amz-Signature"


@dataclasses.dataclass(frozen=True)
class _Claim:
    """Claims of a request about its own signature."""

    credential: str
    signed: list[str]
    signature: str
    at: str
    query: str
    is_presigned: bool


@dataclasses.dataclass
class SignatureChecker:
    """A script for an `Upstream`: 200 `fine` for a good signature, else 403 with the reason as AWS words it."""

    secrets: Mapping[str, bytes]
    """Secret keys by access key ID."""
    tokens: Mapping[str, bytes] = dataclasses.field(default_factory=dict)

    def __call__(self, seen: Seen) -> bytes:
        wrong = self.what_is_wrong_with(seen)
        return (
            answer(b"fine")
            if wrong is None
            else answer(f"<Error><Code>{wrong}</Code></Error>".encode(), status="403 No")
        )

    def what_is_wrong_with(self, seen: Seen) -> str | None:
        """Return the error code of S3 for a bad signature; None for a good one."""
        claim = _claim(seen)
        if claim is None:
            return "AccessDenied"
        key_id, _day, region, service, _end = claim.credential.split("/")
        if key_id not in self.secrets:
            return "InvalidAccessKeyId"
        fields = [(name, value) for name, value in seen.fields if name.lower() in claim.signed]
        if {name.lower() for name, _value in fields} != set(claim.signed) or "host" not in claim.signed:
            return "SignatureDoesNotMatch"
        if any(name.lower().startswith("x-amz-") and name.lower() not in claim.signed for name, _value in seen.fields):
            return "AccessDenied"
        hashed = seen.values("x-amz-content-sha256")
        if hashed and len(hashed[0]) == 64 and hashlib.sha256(seen.body).hexdigest() != hashed[0]:
            return "XAmzContentSHA256Mismatch"
        auth = botocore.auth.S3SigV4Auth if service == "s3" else botocore.auth.SigV4Auth
        signer = auth(Credentials(key_id, self.secrets[key_id].decode()), service, region)
        request = AWSRequest(
            seen.method, f"https://{seen.values('host')[0]}{seen.target.partition('?')[0]}{claim.query}", data=seen.body
        )
        for name, value in fields:
            request.headers.add_header(name, value)
        if claim.is_presigned and service == "s3" and not hashed:
            request.headers["X-Amz-Content-SHA256"] = "UNSIGNED-PAYLOAD"
        request.context["timestamp"] = claim.at
        text = signer.canonical_request(request)
        if claim.is_presigned and service == "s3" and not hashed:
            text = text.replace("x-amz-content-sha256:UNSIGNED-PAYLOAD\n", "").replace(";x-amz-content-sha256\n", "\n")
        good = signer.signature(signer.string_to_sign(request, text), request)
        return None if good == claim.signature else "SignatureDoesNotMatch"


def _claim(seen: Seen) -> _Claim | None:
    query = seen.target.partition("?")[2]
    pairs = dict(pair.partition("=")[::2] for pair in query.split("&"))
    fields = seen.values("authorization")
    if _OF_THE_SIGNATURE in pairs and not fields:
        left = "&".join(pair for pair in query.split("&") if not pair.startswith(f"{_OF_THE_SIGNATURE}="))
        signed = unquote(pairs["X-Amz-SignedHeaders"]).split(";")
        return _Claim(
            unquote(pairs["X-Amz-Credential"]), signed, pairs[_OF_THE_SIGNATURE], pairs["X-Amz-Date"], f"?{left}", True
        )
    if len(fields) != 1 or not fields[0].startswith("AWS4-HMAC-SHA256 "):
        return None
    parts = dict(part.strip().split("=", 1) for part in fields[0].partition(" ")[2].split(","))
    at = seen.values("x-amz-date")[0]
    now = datetime.datetime.now(datetime.UTC)
    if abs(datetime.datetime.strptime(at, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC) - now) > datetime.timedelta(
        minutes=5
    ):
        return None
    shown = f"?{query}" if query else ""
    return _Claim(parts["Credential"], parts["SignedHeaders"].split(";"), parts["Signature"], at, shown, False)
