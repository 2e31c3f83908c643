"""Why something was not done: the body of every answer that is not a success.

Source: docs/reference/failures.md.
"""

from __future__ import annotations

from typing import Any, Self

import msgspec
from msgspec import UNSET, UnsetType

from aileron.model.failure import Boundary, Failure, FailureClass

__all__ = ["ErrorAnswer", "ErrorBody"]


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """One failure as JSON. `connector`, `requested`, `granted` only for a denied capability."""

    failure_class: FailureClass = msgspec.field(name="class")
    message: str
    retriable: bool
    boundary: Boundary
    audit_id: str | None
    details: dict[str, Any]
    connector: str | UnsetType = UNSET
    requested: str | UnsetType = UNSET
    granted: list[str] | UnsetType = UNSET

    @classmethod
    def of(cls, failure: Failure, audit_id: str | None) -> Self:
        """The body for a failure; what a denied capability names in its details goes on top."""
        details = dict(failure.details)
        on_top: dict[str, Any] = {}
        if failure.failure_class is FailureClass.CAPABILITY_DENIED:
            on_top = {name: details.pop(name) for name in ("connector", "requested", "granted") if name in details}
        return cls(
            failure_class=failure.failure_class,
            message=failure.message,
            retriable=failure.retriable,
            boundary=failure.boundary,
            audit_id=audit_id,
            details=details,
            **on_top,
        )


class ErrorAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Body of every answer that is not a success."""

    error: ErrorBody
