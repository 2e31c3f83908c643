"""The schedule of retries: when a failed step is tried again, and after how long. Pure.

A step gets at most 3 more tries, after 1, 2 and 4 s with jitter. It gets them only if the step is declared idempotent,
the failure is transient (`network_error`, or `external_api_error` with 5xx or 429), and the wait ends before the step's
deadline. A `Retry-After` in whole seconds is honoured if it is longer. If a connection is refused because nothing
listens at the address, the step is not retried: a service that is starting takes longer than these seconds, and a
person waits for the result.

>>> delay_s(0, retry_after_s=None, jitter=0.0)
1.0
"""

from __future__ import annotations

from typing import Final

from aileron.model.failure import Failure, FailureClass
from aileron.model.json_value import JSONMembers

__all__ = ["MAX_RETRIES", "delay_s", "is_lasting", "is_transient", "retry_after_s"]

MAX_RETRIES: Final = 3
_JITTER_SHARE: Final = 0.25  # spreads callers that failed together; small enough to keep 1/2/4 recognisable
_TOO_MANY_REQUESTS: Final = 429
_LASTING: Final = frozenset({"certificate", "not_encrypted", "weak_login", "protocol"})
"""Values of `details.reason` in a `network_error` that lasts until a person changes something."""


def is_transient(failure: Failure) -> bool:
    """Return whether a request that failed in this way may succeed if it is repeated later."""
    if failure.failure_class is FailureClass.NETWORK_ERROR:
        return failure.retriable and not is_lasting(failure.details) and failure.details.get("reason") != "refused"
    status = failure.details.get("status")
    return (
        failure.failure_class is FailureClass.EXTERNAL_API_ERROR
        and isinstance(status, int)
        and (status == _TOO_MANY_REQUESTS or 500 <= status <= 599)
    )


def is_lasting(details: JSONMembers) -> bool:
    """Return whether the details of a `network_error` mean that retries fail until a person changes something."""
    reason = details.get("reason")  # any JSON value: a list cannot be looked up in a set
    return isinstance(reason, str) and reason in _LASTING


def retry_after_s(failure: Failure) -> int | None:
    """Return the seconds that the upstream asked to wait, if the connector passed them on as a whole number in
    `details.retry_after_s`; else None.
    """
    value = failure.details.get("retry_after_s")
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def delay_s(retries_so_far: int, *, retry_after_s: int | None, jitter: float) -> float:
    """Return the seconds to wait before the next try. `jitter` is in [0, 1)."""
    scheduled = float(2**retries_so_far) * (1 + _JITTER_SHARE * jitter)
    return max(scheduled, float(retry_after_s or 0))
