"""The failures of fetching a secret, in Aileron's own words, each with its fix.

Rules
- No output of a program or a server is quoted, because it may be the secret, or reveal part of it.
- Each failure has a `details.code` from a closed list; the audit trail has the code and no message.

Source: docs/reference/bindings.md, "Secrets that are kept elsewhere".
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from aileron.model.failure import AileronError, Boundary, FailureClass

__all__ = ["CODES", "ProblemCode", "unfetched", "unreached"]

ProblemCode = Literal[
    "not_installed",
    "missing",
    "locked",
    "refused",
    "sealed",
    "too_large",
    "not_text",
    "redirected",
    "bad_answer",
    "timed_out",
    "unreachable",
    "not_allowed",
    "changed",
]
"""The values of `details.code` in the error for a secret that could not be fetched. `changed` comes from the vault
(vault/opened.py) if the fetched value is not the approved one.
"""
CODES: Final[tuple[str, ...]] = get_args(ProblemCode)


def unfetched(reference: str, code: ProblemCode, fault: str, fix: str, *, retriable: bool = False) -> AileronError:
    """Return the `binding_failed` error for a store that does not give the secret. `fault` and `fix` must be Aileron's own
    text.
    """
    return AileronError(
        FailureClass.BINDING_FAILED,
        f"the secret at {reference} cannot be fetched: {fault}; {fix}",
        boundary=Boundary.USER,
        details={"reference": reference, "code": code},
        retriable=retriable,
    )


def unreached(reference: str, code: ProblemCode, fault: str) -> AileronError:
    """Return the `network_error` for a server that was not reached, or that did not answer in time."""
    return AileronError(
        FailureClass.NETWORK_ERROR,
        f"the secret at {reference} cannot be fetched: {fault}",
        boundary=Boundary.EXTERNAL,
        details={"reference": reference, "code": code},
        retriable=True,
    )
