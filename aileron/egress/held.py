"""Which request bodies have to be whole before anything is lent: those that are signed, that a credential is put
into, or that are sent twice.

Pure; runs in the daemon. A connector may hand over its body in pieces. What goes out as it comes needs no memory; what a
signature is made of, or what gets a key, has to be there first. So the engine reads it, up to a bound, before it asks the vault,
and sends it with a `Content-Length`.

Rules
- A body that comes whole (in one frame) is never longer than that frame, and nothing here is asked about it.
- Decided in rules.py, from what a manifest declares and the head of the request; a longer body is refused (`body_held`).
- At most `PLACES` are held at once, `PLACES_OF_ONE` of one step (meter.py).

Not here: what is made of a body (inject.py, signing/), that a body goes out as it came (engine.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from aileron.egress.headers import Field
from aileron.egress.refusal import Reason, RefusedError
from aileron.egress.signing.aws_request import given_payload, is_unhashed
from aileron.egress.signing.hmac_template import signs_body
from aileron.egress.url import Url
from aileron.model.manifest import CredentialNeed

__all__ = ["KEYED_BYTES", "PLACES", "PLACES_OF_ONE", "SIGNED_BYTES", "held_bytes", "too_long"]

SIGNED_BYTES: Final = 8 << 20
"""8 MiB: a part of an S3 multipart upload has at least 5 MiB, and boto3 makes them of 8."""
KEYED_BYTES: Final = 1 << 20
"""1 MiB of a document that a key is put into: an API's has some KiB, and parsing so much takes a tenth of a second."""
REPEATED_BYTES: Final = 1 << 20
"""1 MiB of a body that is sent again with an answer to a challenge: in between it is kept without one of the places."""
PLACES: Final = 8
"""Bodies held at once, of all steps: 64 MiB."""
PLACES_OF_ONE: Final = 2
"""Of one step: while one is sent, the next can come."""


def held_bytes(need: CredentialNeed, url: Url, fields: Sequence[Field]) -> int | None:
    """How long a body in pieces may be that has to be whole; None: it goes out as it comes.

    `fields` are the connector's. RefusedError where it says something of its body that cannot be signed.
    """
    holds = _HOLDS.get(need.kind)
    return None if holds is None else holds(need, url, fields)


def too_long(most_bytes: int) -> RefusedError:
    """Of a body with more than that."""
    return RefusedError(
        Reason.BODY_HELD,
        "the body is signed, gets the key or may be sent twice, so it must be whole before it is sent, but has more than "
        f"{most_bytes >> 20} MiB; send it in parts",
    )


def _with_a_key(need: CredentialNeed, _url: Url, _fields: Sequence[Field]) -> int | None:
    return KEYED_BYTES if isinstance(need.body, str) else None


def _with_a_message(need: CredentialNeed, _url: Url, _fields: Sequence[Field]) -> int | None:
    return SIGNED_BYTES if need.hmac and signs_body(need.hmac) else None


def _sent_twice(_need: CredentialNeed, _url: Url, _fields: Sequence[Field]) -> int | None:
    return REPEATED_BYTES


def _signed_for_aws(need: CredentialNeed, url: Url, fields: Sequence[Field]) -> int | None:
    """All, but for those whose hash the connector gave, or that the signature says nothing of."""
    given = given_payload(url, fields)
    service = need.aws.service if need.aws else ""
    return None if given is not None or is_unhashed(url, service, given) else SIGNED_BYTES


_HOLDS: Final[dict[str, Callable[[CredentialNeed, Url, Sequence[Field]], int | None]]] = {
    "api_key": _with_a_key,
    "digest": _sent_twice,
    "aws_sigv4": _signed_for_aws,
    "hmac": _with_a_message,
}
