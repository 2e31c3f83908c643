"""Request bodies that must be complete before anything is lent: bodies that are signed, that a credential is inserted
into, or that are sent twice.

Pure; runs in the daemon. A connector may pass its body in pieces. A body that is sent as it arrives needs no memory. A
body that is signed, or gets a key, must be complete first: the engine reads it, up to a bound, before the vault is
asked, and sends it with a `Content-Length`.

Rules
- These limits do not apply to a body that comes complete in one frame: it is never longer than that frame.
- rules.py decides which bodies are held and up to which size, from the manifest's declaration and the head of the
  request, as each kind of credential specifies (credentials/). A longer body is refused (`body_held`).
- At most `PLACES` bodies are held at once, and `PLACES_OF_ONE` of one step (meter.py).

Not here: signing a held body or adding a key (credentials/, signing/), sending the body (engine.py).
"""

from __future__ import annotations

from typing import Final

from aileron.egress.refusal import Reason, RefusedError

__all__ = ["KEYED_BYTES", "PLACES", "PLACES_OF_ONE", "REPEATED_BYTES", "SIGNED_BYTES", "too_long"]

SIGNED_BYTES: Final = 8 << 20
"""Maximum size of a signed body: 8 MiB. A part of an S3 multipart upload has at least 5 MiB, and boto3 makes parts of 8
MiB.
"""
KEYED_BYTES: Final = 1 << 20
"""Maximum size of a document that a key is inserted into: 1 MiB. An API's document has some KiB, and parsing 1 MiB
takes a tenth of a second.
"""
REPEATED_BYTES: Final = 1 << 20
"""Maximum size of a body that is sent again with an answer to a challenge: 1 MiB. Between the two exchanges the body is
in memory but does not count against `PLACES`.
"""
PLACES: Final = 8
"""Maximum number of bodies held at once for all steps together, with a total of at most 64 MiB."""
PLACES_OF_ONE: Final = 2
"""Maximum number of bodies held at once for one step: while one body is sent, the next can be received."""


def too_long(most_bytes: int) -> RefusedError:
    """Return the refusal of a body that has more than `most_bytes` bytes."""
    return RefusedError(
        Reason.BODY_HELD,
        "the body is signed, gets the key or may be sent twice, so it must be whole before it is sent, but has more than "
        f"{most_bytes >> 20} MiB; send it in parts",
    )
