"""The closed list of ways a request can fail, and the only exception that carries a failure.

Every failure that a caller sees has a class from `FailureClass`, a boundary (who set the limit), and a message. The
message says what happened and, if it is known, the command that fixes it. One table has the HTTP status and the exit
code of each class.

Rules
- A failure is created where it arises and is never wrapped again.
- A message never holds a secret, a header value or a body, and is cut to MAX_MESSAGE characters, whatever its origin, because
  it may quote an untrusted value a megabyte long. Its beginning and end are kept, because they hold what happened and the fix.
- A failure class that a connector invents becomes `connector_runtime_error` with `details["connector_class"]`.

Source: docs/reference/failures.md (checked against this table). Not here: process exit codes that are not failures (69,
75, 130), which belong to the command line.

>>> FailureClass.VAULT_LOCKED.http_status, FailureClass.VAULT_LOCKED.exit_code
(423, 4)
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from aileron.model.json_value import JSONMembers

__all__ = ["MAX_MESSAGE", "AileronError", "Boundary", "Failure", "FailureClass", "shortened"]

MAX_MESSAGE: Final = 4000
"""Maximum number of characters of a recorded message, two screens. Aileron's longest without an untrusted value has about 500."""


class Boundary(enum.StrEnum):
    """The source of the limit that a request crossed, or the place where the failure occurred."""

    SANDBOX = "sandbox"
    CONNECTOR_MANIFEST = "connector_manifest"
    ACTION = "action"
    RUNTIME = "runtime"
    EXTERNAL = "external"
    USER = "user"


class FailureClass(enum.StrEnum):
    """The class of a failure, from a closed list. The class determines the HTTP status and the exit code of a command."""

    INVALID_REQUEST = "invalid_request"
    BAD_INPUT = "bad_input"
    UNKNOWN_OP = "unknown_op"
    NOT_FOUND = "not_found"
    UNAUTHORIZED = "unauthorized"
    VAULT_LOCKED = "vault_locked"
    BINDING_REQUIRED = "binding_required"
    BINDING_FAILED = "binding_failed"
    APPROVAL_DENIED = "approval_denied"
    CAPABILITY_DENIED = "capability_denied"
    CONSENT_REQUIRED = "consent_required"
    IDEMPOTENCY_CONFLICT = "idempotency_conflict"
    RESOURCE_LIMIT_EXCEEDED = "resource_limit_exceeded"
    CONNECTOR_RUNTIME_ERROR = "connector_runtime_error"
    NETWORK_ERROR = "network_error"
    EXTERNAL_API_ERROR = "external_api_error"
    OUTCOME_UNKNOWN = "outcome_unknown"
    HASH_MISMATCH = "hash_mismatch"
    SIGNATURE_FAILURE = "signature_failure"
    SANDBOX_UNAVAILABLE = "sandbox_unavailable"
    ACTION_DISABLED = "action_disabled"
    ALREADY_DECIDED = "already_decided"
    CANCELLED = "cancelled"
    APPROVAL_EXPIRED = "approval_expired"
    BUSY = "busy"
    INTERNAL_ERROR = "internal_error"

    @property
    def http_status(self) -> int:
        """Status of an HTTP response whose body is a failure of this class."""
        return _STATUS_AND_EXIT[self][0]

    @property
    def exit_code(self) -> int:
        """Exit code of a command that ends with a failure of this class."""
        return _STATUS_AND_EXIT[self][1]


_STATUS_AND_EXIT: Final[dict[FailureClass, tuple[int, int]]] = {
    FailureClass.INVALID_REQUEST: (400, 2),
    FailureClass.BAD_INPUT: (422, 2),
    FailureClass.UNKNOWN_OP: (422, 1),
    FailureClass.NOT_FOUND: (404, 3),
    FailureClass.UNAUTHORIZED: (401, 6),
    FailureClass.VAULT_LOCKED: (423, 4),
    FailureClass.BINDING_REQUIRED: (409, 4),
    FailureClass.BINDING_FAILED: (409, 4),
    FailureClass.APPROVAL_DENIED: (403, 5),
    FailureClass.CAPABILITY_DENIED: (403, 6),
    FailureClass.CONSENT_REQUIRED: (403, 6),
    FailureClass.IDEMPOTENCY_CONFLICT: (409, 2),
    FailureClass.RESOURCE_LIMIT_EXCEEDED: (422, 1),
    FailureClass.CONNECTOR_RUNTIME_ERROR: (502, 1),
    FailureClass.NETWORK_ERROR: (502, 7),
    FailureClass.EXTERNAL_API_ERROR: (502, 7),
    FailureClass.OUTCOME_UNKNOWN: (500, 8),
    FailureClass.HASH_MISMATCH: (409, 9),
    FailureClass.SIGNATURE_FAILURE: (409, 9),
    FailureClass.SANDBOX_UNAVAILABLE: (503, 1),
    FailureClass.ACTION_DISABLED: (409, 6),
    FailureClass.ALREADY_DECIDED: (409, 6),
    FailureClass.CANCELLED: (409, 6),
    FailureClass.APPROVAL_EXPIRED: (410, 6),
    FailureClass.BUSY: (429, 1),
    FailureClass.INTERNAL_ERROR: (500, 1),
}


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A failure, as recorded and as returned to the caller. `failure_class` is named `class` on the wire."""

    failure_class: FailureClass = msgspec.field(name="class")
    message: str
    boundary: Boundary
    retriable: bool = False
    details: JSONMembers = {}

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "message", shortened(self.message))


class AileronError(Exception):
    """The only exception of the supervisor: it carries a `Failure`, whose message is its text.

    The class says who must act: the caller (`invalid_request`, `bad_input`), a person (`vault_locked`, `binding_required`, …),
    the other side (`external_api_error`, …), the machine (`sandbox_unavailable`), or Aileron's developers (`internal_error`,
    a bug).
    """

    def __init__(
        self,
        failure_class: FailureClass,
        message: str,
        *,
        boundary: Boundary = Boundary.RUNTIME,
        retriable: bool = False,
        details: JSONMembers | None = None,
    ) -> None:
        self.failure: Final = Failure(
            failure_class=failure_class,
            message=message,
            boundary=boundary,
            retriable=retriable,
            details=details or {},
        )
        super().__init__(self.failure.message)

    @classmethod
    def of(cls, failure: Failure) -> AileronError:
        """Return the exception for a failure that was recorded or received as a value."""
        return cls(
            failure.failure_class,
            failure.message,
            boundary=failure.boundary,
            retriable=failure.retriable,
            details=failure.details,
        )


def shortened(message: str, most: int = MAX_MESSAGE) -> str:
    """Return a message shortened to `most` characters: its beginning, how many characters were left out, and its end."""
    if len(message) <= most:
        return message
    gap, end = " … ({} characters left out) … ", most // 4
    kept = most - len(gap.format(len(message))) - end
    return message[:kept] + gap.format(len(message) - kept - end) + message[-end:]
