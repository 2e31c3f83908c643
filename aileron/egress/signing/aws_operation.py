"""What a request asks an AWS service to do, as far as its query says it: refused where a preview, or anybody, may not.

Pure; runs in the daemon, on what a jailed connector wrote. The service is what the manifest says that requests are signed for.

Rules
- Query APIs (EC2, IAM, SQS) take an operation of any kind in a `GET`: a preview, which can only read, names none.
- S3 Express gives out keys for a session. An answer is searched for keys that are known, and these are not: nobody asks for one.
- A name counts in every spelling that a server might take for it (places.py).

>>> from aileron.egress.url import parse_url
>>> check_operation(parse_url("https://ec2.us-east-1.amazonaws.com/?marker=Action"), "ec2", is_read_only=True)

Source: docs/reference/egress.md; EC2 API Reference, "Query Requests"; S3 API Reference, "CreateSession". Not here: STS, for which
no manifest can have requests signed (registry/manifest_signing.py); bodies, which query APIs read of a `POST` alone.
"""

from __future__ import annotations

import re

from aileron.egress.places import parameter_key
from aileron.egress.refusal import Reason, RefusedError
from aileron.egress.signing.aws import is_s3
from aileron.egress.url import Url

__all__ = ["check_operation"]


def check_operation(url: Url, service: str, *, is_read_only: bool) -> None:
    """RefusedError for an operation that a preview does not have, or that gives out keys; `is_read_only`: this is a preview."""
    names = {parameter_key(pair.partition("=")[0]) for pair in re.split("[&;]", url.query or "")}
    if is_read_only and "action" in names:
        raise RefusedError(
            Reason.READ_ONLY,
            "a preview can only read: the query parameter Action could name an operation of an AWS query API, which may "
            "change something by GET too",
        )
    if is_s3(service) and "session" in names:
        raise RefusedError(
            Reason.ANSWER_CREDENTIAL,
            "the query parameter session asks S3 for new keys, which would reach the connector; each request is signed with the "
            'bound key: for boto3, use Config(s3={"disable_s3_express_session_auth": True})',
        )
