"""Which failures are tried again by themselves: never one of a credential, which a service could lock an account for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.executor.endings import claimed
from aileron.executor.retry import is_transient
from aileron.model.failure import AileronError, Failure, FailureClass


def failure(of: FailureClass, *, retriable: bool = False, **details: Any) -> Failure:
    """One of that class."""
    return AileronError(of, "it did not work", retriable=retriable, details=details).failure


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_service_that_is_busy_is_asked_again(status: int):
    """And so is one that could not be reached."""
    assert is_transient(failure(FailureClass.EXTERNAL_API_ERROR, status=status))
    assert is_transient(failure(FailureClass.NETWORK_ERROR, retriable=True))
    assert not is_transient(failure(FailureClass.NETWORK_ERROR))


@pytest.mark.parametrize(
    ("reason", "is_asked_again"),
    [("refused", False), ("certificate", False), ("not_encrypted", False), ("closed", True), (["refused"], True)],
)
def test_what_some_seconds_do_not_change_is_told_at_once(reason: object, is_asked_again: bool):
    """A person would wait eight seconds for what is known, as where nothing listens at a port. The caller may ask again."""
    assert is_transient(failure(FailureClass.NETWORK_ERROR, retriable=True, reason=reason)) is is_asked_again


@pytest.mark.parametrize(("reason", "may_pass"), [("certificate", False), ("refused", True), (["certificate"], True)])
def test_what_a_connector_hands_on_is_as_retriable_as_the_host_said(reason: object, may_pass: bool):
    """A connector's frame has no word for it, so the reason decides."""
    assert claimed("network_error", "it did not work", {"reason": reason}).failure.retriable is may_pass


@given(
    st.sampled_from(sorted(set(FailureClass) - {FailureClass.NETWORK_ERROR, FailureClass.EXTERNAL_API_ERROR})),
    st.booleans(),
    st.sampled_from(["refused_credential", "may_write", "host_key", "closed"]),
    st.sampled_from([None, 429, 500, 503]),
)
def test_a_refused_credential_is_not_whatever_else_is_said(
    of: FailureClass, retriable: bool, reason: str, status: int | None
):
    """`binding_failed` among them: not with `retriable`, nor with a status that a service would be asked again for."""
    assert not is_transient(failure(of, retriable=retriable, reason=reason, status=status))
