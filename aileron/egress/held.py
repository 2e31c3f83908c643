"""Request bodies that must be whole before anything is lent: those that are signed, that a credential is put
into, or that are sent twice.

Pure; runs in the daemon. A connector may hand over its body in pieces. A body that goes out as it comes needs no memory; a
body that is signed, or gets a key, has to be there first. So the engine reads it, up to a bound, before it asks the vault,
and sends it with a `Content-Length`.

Rules
- A body that comes whole (in one frame) is never longer than that frame, and these limits do not apply to it.
- Decided in rules.py, from what a manifest declares and the head of the request, as each kind of credential says (credentials/);
  a longer body is refused (`body_held`).
- At most `PLACES` are held at once, `PLACES_OF_ONE` of one step (meter.py).

Not here: what is done with a held body (credentials/, signing/), sending it (engine.py).
"""

from __future__ import annotations

from typing import Final

from aileron.egress.refusal import Reason, RefusedError

__all__ = ["KEYED_BYTES", "PLACES", "PLACES_OF_ONE", "REPEATED_BYTES", "SIGNED_BYTES", "too_long"]

SIGNED_BYTES: Final = 8 << 20
"""8 MiB of a signed body: a part of an S3 multipart upload has at least 5 MiB, and boto3 makes parts of 8."""
KEYED_BYTES: Final = 1 << 20
"""1 MiB of a document that a key is put into: an API's has some KiB, and parsing 1 MiB takes a tenth of a second."""
REPEATED_BYTES: Final = 1 << 20
"""1 MiB of a body that is sent again with an answer to a challenge: between the two it is kept in memory without a place."""
PLACES: Final = 8
"""Bodies held at once, of all steps: 64 MiB."""
PLACES_OF_ONE: Final = 2
"""Bodies held at once for one step: while one is sent, the next can come."""


def too_long(most_bytes: int) -> RefusedError:
    """Return the refusal of a body with more bytes than that."""
    return RefusedError(
        Reason.BODY_HELD,
        "the body is signed, gets the key or may be sent twice, so it must be whole before it is sent, but has more than "
        f"{most_bytes >> 20} MiB; send it in parts",
    )
