"""Values of ours as HTTP answers. Pure but for the clock nobody asks.

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
"""RFC 9111 section 5.2.2.5; WHATWG Fetch, `X-Content-Type-Options`."""


def as_json(value: Any, status: int = 200) -> Response:
    """`value` as a JSON answer, which is JSON and nothing else to whoever gets it, and is kept nowhere on its way."""
    return Response(_ENCODER.encode(value), status, _UNKEPT, media_type="application/json")


def failure_answer(failure: Failure, audit_id: str | None = None) -> Response:
    """A failure with the status of its class."""
    return as_json(ErrorAnswer(error=ErrorBody.of(failure, audit_id)), failure.failure_class.http_status)


def run_answer(answer: Outcome | Pending | Running, review: str) -> Response:
    """What `POST /v1/actions/{name}/run` says; `review` is where the pages are served, without a slash at its end."""
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
    """That a person decides first."""
    return PendingAnswer(
        approval_id=pending.approval_id,
        audit_id=pending.run_id,
        review_url=review_url(review, pending.approval_id),
        message=pending_message(review, pending.approval_id),
        expires_at=utc(pending.expires_at),
    )


def pending_message(review: str, approval_id: str) -> str:
    """What whoever asked passes on while a run waits for a person."""
    return f"Nothing has happened yet: a person must decide this first, {where_to_decide(review, approval_id)}."
