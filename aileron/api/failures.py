"""Errors: the body of every response that is not a success.

Source: docs/reference/failures.md.
"""

from __future__ import annotations

from typing import Any, Self

import msgspec
from msgspec import UNSET, UnsetType

from aileron.model.failure import Boundary, Failure, FailureClass
from aileron.model.json_value import JSONMembers

__all__ = ["ErrorAnswer", "ErrorBody"]


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """A failure. `audit_id` is the run under which it is recorded, or null if nothing was recorded. `details` has facts for
    programs, with keys that depend on the class. Only a denied capability (`capability_denied`) has `connector`, `requested` and
    `granted`.
    """

    failure_class: FailureClass = msgspec.field(name="class")
    message: str
    retriable: bool
    boundary: Boundary
    audit_id: str | None
    details: JSONMembers
    connector: str | UnsetType = UNSET
    requested: str | UnsetType = UNSET
    granted: list[str] | UnsetType = UNSET

    @classmethod
    def of(cls, failure: Failure, audit_id: str | None) -> Self:
        """Return the body for a failure. For a denied capability, some of the details become fields of the body."""
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
    """The body of every response that is not a success. The HTTP status is that of the failure's class."""

    error: ErrorBody
