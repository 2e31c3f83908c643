"""The check of the AWS operation in a query: some operations are refused in a preview, and some always.

Pure; runs in the daemon, on what a jailed connector wrote. The service is the one in the manifest.

Rules
- Query APIs (EC2, IAM, SQS) accept any operation in a `GET`, so a preview, which can only read, must specify none.
- S3 Express gives out keys for a session. Aileron does not know these keys and cannot search responses for them, so
  requests for them are refused.
- A name is matched in every spelling that a server might take for it (key_places.py).

>>> from aileron.egress.url import parse_url
>>> check_operation(parse_url("https://ec2.us-east-1.amazonaws.com/?marker=Action"), "ec2", is_read_only=True)

Source: docs/reference/egress.md; EC2 API Reference, "Query Requests"; S3 API Reference, "CreateSession". Not here: STS,
as no manifest can have requests to it signed (registry/manifest_signing.py); bodies, which query APIs read only in a
`POST`.
"""

from __future__ import annotations

import re

from aileron.egress.key_places import parameter_key
from aileron.egress.refusal import Reason, RefusedError
from aileron.egress.signing.aws import is_s3
from aileron.egress.url import Url

__all__ = ["check_operation"]


def check_operation(url: Url, service: str, *, is_read_only: bool) -> None:
    """Raise RefusedError for an operation that gives out keys, or that is not allowed in a preview (`is_read_only`)."""
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
