"""Refusals that the server itself sends, before the request reaches an application. Each has the form of the daemon's
error responses, and closes its connection.

Source: docs/reference/failures.md; RFC 9111 section 5.2.2.5 (no-store); WHATWG Fetch (nosniff). Not here: the reasons
for refusals (admission.py, request_line.py).
"""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.types import Send

from aileron.api.failures import ErrorAnswer, ErrorBody
from aileron.model.failure import AileronError, Failure, FailureClass

__all__ = ["refuse", "refuse_stranger"]

_BUSY: Final = AileronError(
    FailureClass.BUSY, "too many requests of callers without a session just now: try again", retriable=True
).failure


async def refuse(send: Send, failure: Failure, status: int, *more: tuple[bytes, bytes]) -> None:
    """Respond with this failure as JSON, and with the additional header fields `more`."""
    body = msgspec.json.encode(ErrorAnswer(error=ErrorBody.of(failure, None)))
    fields = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        (b"connection", b"close"),
        *more,
    ]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def refuse_stranger(send: Send) -> None:
    """Respond with status 429 to a caller without an open session, because the daemon is busy."""
    await refuse(send, _BUSY, _BUSY.failure_class.http_status, (b"retry-after", b"1"))
