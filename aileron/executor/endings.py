"""Translation of the way a connector ended, or of the failure that it reported, into a failure of the run. Pure.

The sandbox does not know Aileron's failure classes, so all of its errors are translated here. A connector can claim
only the failure classes that an honest connector needs; any other class becomes `connector_runtime_error`.
"""

from __future__ import annotations

import signal
from typing import Final, assert_never

from aileron.executor.retry import is_lasting
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.json_value import JSONMembers
from aileron_sandbox.ending import Ending, Exited, NetworkAttempt, OverLimit, RefusedToStart, Signalled

__all__ = ["broke_the_protocol", "claimed", "ended_without_result", "over_limit", "reached_for_a_network"]

_CLAIMABLE: Final = {
    FailureClass.BAD_INPUT: Boundary.ACTION,
    FailureClass.UNKNOWN_OP: Boundary.ACTION,
    FailureClass.NETWORK_ERROR: Boundary.EXTERNAL,
    FailureClass.EXTERNAL_API_ERROR: Boundary.EXTERNAL,
    FailureClass.RESOURCE_LIMIT_EXCEEDED: Boundary.SANDBOX,
    FailureClass.CONNECTOR_RUNTIME_ERROR: Boundary.SANDBOX,
}
_USED_UP: Final = {
    "cpu": "used up its CPU time",
    "memory": "exceeded the memory limit for all of its processes",
}
_TRANSIENT_STATUS: Final = frozenset({429, *range(500, 600)})
_MAX_MESSAGE: Final = 2000
"""Maximum number of characters of a connector's own message in a failure. A person reads the message, and a frame
allows 64 KiB.
"""


def claimed(name: str, message: str, details: JSONMembers) -> AileronError:
    """Return the failure of the run for a failure that a connector reported in its own words."""
    message = message[:_MAX_MESSAGE]
    try:
        failure_class = FailureClass(name)
        boundary = _CLAIMABLE[failure_class]
    except (ValueError, KeyError):
        details = {**details, "connector_class": name[:100]}
        return AileronError(FailureClass.CONNECTOR_RUNTIME_ERROR, message, boundary=Boundary.SANDBOX, details=details)
    status = details.get("status")  # any JSON value: a list cannot be looked up in a set
    is_transient = isinstance(status, int) and status in _TRANSIENT_STATUS
    retriable = (failure_class is FailureClass.NETWORK_ERROR and not is_lasting(details)) or (
        failure_class is FailureClass.EXTERNAL_API_ERROR and is_transient
    )
    return AileronError(failure_class, message, boundary=boundary, retriable=retriable, details=details)


def ended_without_result(ending: Ending, connector: str, log_tail: str) -> AileronError:
    """Return the failure of a connector that ended without a result or a failure."""
    details = {"log": log_tail} if log_tail else {}
    match ending:
        case RefusedToStart():
            return AileronError(
                FailureClass.SANDBOX_UNAVAILABLE,
                f"no jail could be started for {connector}: {ending}; run `aileron doctor`",
                boundary=Boundary.SANDBOX,
            )
        case OverLimit():
            return over_limit(ending.limit, f"{connector} {_USED_UP[ending.limit]} and was killed")
        case NetworkAttempt():
            return reached_for_a_network(ending, connector, [])
        case Signalled(signal=signal.SIGSYS):
            return AileronError(
                FailureClass.CAPABILITY_DENIED,
                f"{connector} made a forbidden system call and was killed",
                boundary=Boundary.SANDBOX,
                details={"connector": connector, "requested": "syscall:forbidden", "granted": []},
            )
        case Signalled():
            return _runtime_error(f"{connector} was killed by {ending.name}", details)
        case Exited():
            return _runtime_error(f"{connector} exited with status {ending.code} and no result", details)
        case _:
            assert_never(ending)


def reached_for_a_network(attempt: NetworkAttempt, connector: str, granted: list[str]) -> AileronError:
    """Return the failure of a connector that tried to reach a network without the supervisor. `granted` are the hosts
    that it could have reached through the supervisor.
    """
    destination = attempt.destination.removeprefix("network:")
    return AileronError(
        FailureClass.CAPABILITY_DENIED,
        f"{connector} tried to connect to {destination} directly and was killed: a connector must send its requests "
        "through the supervisor, to hosts that its manifest declares",
        boundary=Boundary.SANDBOX,
        details={
            "connector": connector,
            "requested": attempt.destination,
            "granted": granted,
            "reason": "system_call",
        },
    )


def over_limit(limit: str, message: str) -> AileronError:
    """Return the failure of a run that exceeded the limit named `limit`, such as `wall`."""
    return AileronError(
        FailureClass.RESOURCE_LIMIT_EXCEEDED, message, boundary=Boundary.SANDBOX, details={"limit": limit}
    )


def broke_the_protocol(connector: str, why: str) -> AileronError:
    """Return the failure of a connector that violated the frame protocol. `why` says how."""
    return _runtime_error(f"{connector} violated the frame protocol: {why}"[:_MAX_MESSAGE], {"protocol": True})


def _runtime_error(message: str, details: JSONMembers) -> AileronError:
    return AileronError(FailureClass.CONNECTOR_RUNTIME_ERROR, message, boundary=Boundary.SANDBOX, details=details)
