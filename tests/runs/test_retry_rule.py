"""Failures that are retried automatically: never one of a credential, because a service could lock the account."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.executor.endings import claimed
from aileron.executor.retry import is_transient
from aileron.model.failure import AileronError, Failure, FailureClass


def failure(of: FailureClass, *, retriable: bool = False, **details: Any) -> Failure:
    """Return a failure of that class."""
    return AileronError(of, "it did not work", retriable=retriable, details=details).failure


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_service_is_retried(status: int) -> None:
    """A service that could not be reached is retried in the same way."""
    assert is_transient(failure(FailureClass.EXTERNAL_API_ERROR, status=status))
    assert is_transient(failure(FailureClass.NETWORK_ERROR, retriable=True))
    assert not is_transient(failure(FailureClass.NETWORK_ERROR))


@pytest.mark.parametrize(
    ("reason", "is_asked_again"),
    [("refused", False), ("certificate", False), ("not_encrypted", False), ("closed", True), (["refused"], True)],
)
def test_a_failure_that_will_not_pass_soon_is_reported_at_once(reason: object, is_asked_again: bool) -> None:
    """Retries would make a person wait eight seconds to learn that nothing listens at a port. The caller may retry."""
    assert is_transient(failure(FailureClass.NETWORK_ERROR, retriable=True, reason=reason)) is is_asked_again


@pytest.mark.parametrize(("reason", "may_pass"), [("certificate", False), ("refused", True), (["certificate"], True)])
def test_the_reason_of_a_connector_s_network_error_decides_whether_the_error_is_retriable(
    reason: object, may_pass: bool
) -> None:
    """A connector's frame has no field `retriable`, so the reason decides."""
    assert claimed("network_error", "it did not work", {"reason": reason}).failure.retriable is may_pass


@given(
    st.sampled_from(sorted(set(FailureClass) - {FailureClass.NETWORK_ERROR, FailureClass.EXTERNAL_API_ERROR})),
    st.booleans(),
    st.sampled_from(["refused_credential", "may_write", "host_key", "closed"]),
    st.sampled_from([None, 429, 500, 503]),
)
def test_a_refused_credential_is_never_retried(
    of: FailureClass, retriable: bool, reason: str, status: int | None
) -> None:
    """`binding_failed` is among the classes: neither `retriable` nor a status that is otherwise retried changes that."""
    assert not is_transient(failure(of, retriable=retriable, reason=reason, status=status))
