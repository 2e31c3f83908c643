"""What can go wrong when a secret is fetched, in words of ours, each with its cure.

Rules
- Nothing of what a program or a server said is quoted: it may be the secret, or tell of it.
- Each failure has a `details.code` from a closed list; the record has that and no message.

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
"""`changed` says the vault (vault/opened.py): what was fetched is not what was approved."""
CODES: Final[tuple[str, ...]] = get_args(ProblemCode)


def unfetched(reference: str, code: ProblemCode, what: str, cure: str, *, retriable: bool = False) -> AileronError:
    """`binding_failed`: whoever keeps the secret does not give it. `what` and `cure` are ours."""
    return AileronError(
        FailureClass.BINDING_FAILED,
        f"the secret at {reference} cannot be fetched: {what}; {cure}",
        boundary=Boundary.USER,
        details={"reference": reference, "code": code},
        retriable=retriable,
    )


def unreached(reference: str, code: ProblemCode, what: str) -> AileronError:
    """`network_error`: the server that keeps it was not reached, or did not answer in time."""
    return AileronError(
        FailureClass.NETWORK_ERROR,
        f"the secret at {reference} cannot be fetched: {what}",
        boundary=Boundary.EXTERNAL,
        details={"reference": reference, "code": code},
        retriable=True,
    )
