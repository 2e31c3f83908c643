"""Refusals, for tests: what is tried has to fail, and the failure says how.

assert refusal_of(store.read, "no-such").failure_class is FailureClass.NOT_FOUND
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ParamSpec

import pytest

from aileron.model.failure import AileronError, Failure

__all__ = ["refusal", "refusal_of"]

_P = ParamSpec("_P")


def refusal_of(call: Callable[_P, object], *args: _P.args, **options: _P.kwargs) -> Failure:
    """Return the failure in which this call ends."""
    with pytest.raises(AileronError) as caught:
        call(*args, **options)
    return caught.value.failure


async def refusal(attempt: Awaitable[object], match: str | None = None) -> Failure:
    """Return the failure in which the attempt ends, whose message matches the pattern."""
    with pytest.raises(AileronError, match=match) as caught:
        await attempt
    return caught.value.failure
