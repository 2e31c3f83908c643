"""Aileron's values as HTTP responses. Pure.

One place turns a failure into a status and a body, for every route of every socket.
Source: docs/reference/http-api.md, docs/reference/failures.md.
"""

from __future__ import annotations

from typing import Any, Final, assert_never

import msgspec
from starlette.responses import Response

from aileron.api.failures import ErrorAnswer, ErrorBody
from aileron.api.runs import PendingAnswer, RunAnswer, RunningAnswer
from aileron.daemon.views import review_url, where_to_decide
from aileron.model.failure import Failure
from aileron.model.outcome import Failed, Outcome, Pending, Running, Succeeded
from aileron.model.timestamp import utc

__all__ = [
    "as_json",
    "failure_answer",
    "pending_answer",
    "pending_message",
    "run_answer",
]

_ENCODER: Final = msgspec.json.Encoder()
_UNKEPT: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
"""Headers of every JSON response, which forbid caching it and guessing its type: RFC 9111 section 5.2.2.5; WHATWG Fetch,
`X-Content-Type-Options`.
"""


def as_json(value: Any, status: int = 200) -> Response:
    """Return `value` as a JSON response. Its headers keep clients from guessing another type, and caches from storing it."""
    return Response(_ENCODER.encode(value), status, _UNKEPT, media_type="application/json")


def failure_answer(failure: Failure, audit_id: str | None = None) -> Response:
    """Return the response for a failure, with the HTTP status of the failure's class."""
    return as_json(ErrorAnswer(error=ErrorBody.of(failure, audit_id)), failure.failure_class.http_status)


def run_answer(answer: Outcome | Pending | Running, review: str) -> Response:
    """Return the response of `POST /v1/actions/{name}/run`; `review` is the base URL of the pages, without a slash at its end."""
    match answer:
        case Succeeded():
            return as_json(RunAnswer(audit_id=answer.run_id, result=answer.result))
        case Failed():
            return failure_answer(answer.failure, answer.run_id)
        case Pending():
            return as_json(pending_answer(answer, review), 202)
        case Running():
            return as_json(RunningAnswer(run_id=answer.run_id, status=answer.status), 202)
        case _:
            assert_never(answer)


def pending_answer(pending: Pending, review: str) -> PendingAnswer:
    """Return the response body that says that a person must decide about a run first; `review` is the base URL of the pages."""
    return PendingAnswer(
        approval_id=pending.approval_id,
        audit_id=pending.run_id,
        review_url=review_url(review, pending.approval_id),
        message=pending_message(review, pending.approval_id),
        expires_at=utc(pending.expires_at),
    )


def pending_message(review: str, approval_id: str) -> str:
    """Return the message that tells the person where to decide, for an agent to show while a run waits for the decision."""
    return f"Nothing has happened yet: a person must decide this first, {where_to_decide(review, approval_id)}."
