"""Standing grants: whether a grant covers a run, and whether a grant can be created. Pure.

Runs in the daemon. Trusts neither the caller whose arguments are matched nor the caller that requests a grant. A grant that
does not match costs a question; a grant that matches too much defeats the gate, so every unclear case is no match.

A grant matches only if
1. the plan is of this action, and its file has exactly the approved bytes
2. it uses exactly the approved credentials
3. it is not past `until`
4. every constraint holds for the plan's own arguments; a missing argument fulfils only `absent`
5. the action can be undone
6. its changes do not need a preview

Values are compared as in JSON, without conversion: text exactly, including case, and numbers as numbers. A boolean is not a
number.

>>> _holds(Constraint(argument="amount", operator="at_most", value=50), {"amount": 49.5})
True
>>> _holds(Constraint(argument="amount", operator="at_most", value=50), {"amount": True})
False

Source: docs/reference/consents.md. Not here: the number of uses of a grant (ledger), who may create a grant (daemon/).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, assert_never

from aileron.model.canonical import canonical_json
from aileron.model.consent import Constraint, StandingGrant
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.json_value import JSONObject
from aileron.model.manifest import ActionFile, InputSpec
from aileron.model.plan import Plan

__all__ = ["MIN_FOR_S", "check_grant", "credentials_of", "matches"]

MAX_CONSTRAINTS: Final = 16
"""Maximum number of constraints on given arguments. A person reads all of them before they approve."""
MAX_ABSENT: Final = 64
"""Maximum number of arguments that must be absent; they are shown as names in one line."""
MAX_USES: Final = 1000
"""Maximum number of uses of one grant: if more are needed, the action should have no gate instead."""
MIN_FOR_S: Final = 60
MAX_FOR_S: Final = 30 * 24 * 3600
"""30 days, in seconds: longest duration of a grant. A month later nobody remembers what they approved."""
MAX_CHOICES: Final = 64
"""Maximum number of values in a `one_of` constraint, so that a person still reads the list."""
MAX_VALUE_BYTES: Final = 4 << 10
"""4 KiB: maximum size of one constraint's value as canonical JSON."""


def matches(grant: StandingGrant, plan: Plan, now: float) -> bool:
    """Return whether `grant` covers the run of `plan` at `now` (seconds since the epoch). Does not count uses."""
    return (
        (plan.action, plan.action_digest) == (grant.action, grant.action_digest)  # 1
        and set(credentials_of(plan)) == set(grant.credentials)  # 2
        and now < grant.until  # 3
        and all(_holds(constraint, plan.args) for constraint in grant.constraints)  # 4
        and not plan.approval.irreversible  # 5
        and not plan.changes_only_seen  # 6: without a preview that was approved, it would change nothing
    )


def credentials_of(plan: Plan) -> tuple[str, ...]:
    """Return the sorted names of the bindings that the plan's steps use, without those of the plan's preview."""
    return tuple(sorted({str(step.grant.credential.binding) for step in plan.steps if step.grant.credential}))


def check_grant(action: ActionFile, constraints: Sequence[Constraint], uses: int, for_s: int) -> None:
    """Check that a grant with these constraints, this number of uses and this duration in seconds can be created for `action`.
    Raises AileronError(invalid_request) with the reason.
    """
    if not action.approval.required:
        raise _refused(f"action {action.name!r} asks nobody: there is nothing to grant")
    if action.approval.irreversible:
        raise _refused(
            f"action {action.name!r} cannot be undone, so each run is decided by itself; if that is not so, its file says "
            "`irreversible = false`"
        )
    if isinstance(uses, bool) or not 1 <= uses <= MAX_USES:
        raise _refused(f"a grant is for 1 to {MAX_USES} uses, not {uses}")
    if isinstance(for_s, bool) or not MIN_FOR_S <= for_s <= MAX_FOR_S:
        raise _refused(f"a grant lasts from {MIN_FOR_S} seconds to {MAX_FOR_S // 86400} days, not {for_s} seconds")
    absent = sum(1 for constraint in constraints if constraint.operator == "absent")
    if len(constraints) - absent > MAX_CONSTRAINTS:
        raise _refused(f"{len(constraints) - absent} constraints; at most {MAX_CONSTRAINTS}, so that they are read")
    if absent > MAX_ABSENT:
        raise _refused(f"{absent} arguments that must not be given; at most {MAX_ABSENT}")
    inputs = {spec.name: spec for spec in action.inputs}
    for constraint in constraints:
        if constraint.argument not in inputs:
            declared = ", ".join(inputs) or "none"
            raise _refused(f"action {action.name!r} has no argument {constraint.argument!r}; declared: {declared}")
        if problem := _problem(constraint, inputs[constraint.argument]):
            raise _refused(f"argument {constraint.argument!r}, {constraint.operator}: {problem}")


def _problem(constraint: Constraint, spec: InputSpec) -> str | None:
    """Return a description of the error in a constraint on the input `spec`, or None.

    The constraint's value is omitted, since it may be long.
    """
    try:
        if len(canonical_json(constraint.value)) > MAX_VALUE_BYTES:
            return f"its value is over {MAX_VALUE_BYTES} bytes"
    except ValueError as error:
        return str(error)
    value = constraint.value
    match constraint.operator:
        case "equals":
            return None if _is_of(spec, value) else f"its value is not of type {spec.type}"
        case "one_of":
            if not isinstance(value, list) or not 1 <= len(value) <= MAX_CHOICES:
                return f"its value is not a list of 1 to {MAX_CHOICES}"
            return None if all(_is_of(spec, choice) for choice in value) else f"a value is not of type {spec.type}"
        case "prefix":
            if spec.type != "string":
                return f"for text, and this argument is of type {spec.type}"
            return None if isinstance(value, str) and value else "its value is not a text, or empty"
        case "at_most":
            if spec.type not in {"integer", "number"}:
                return f"for numbers, and this argument is of type {spec.type}"
            return None if _is_number(value) else "its value is not a number"
        case "absent":
            return None if value is None else "its value is not null"
        case unknown:
            assert_never(unknown)


def _is_of(spec: InputSpec, value: Any) -> bool:
    match spec.type:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return _is_number(value) and isinstance(value, int)
        case "number":
            return _is_number(value)
        case "array" | "object":  # only some could be compared: such an argument needs a question
            return False


def _holds(constraint: Constraint, args: JSONObject) -> bool:
    if constraint.operator == "absent" or constraint.argument not in args:
        return constraint.operator == "absent" and constraint.argument not in args
    given, value = args[constraint.argument], constraint.value
    match constraint.operator:
        case "equals":
            return _are_equal(given, value)
        case "one_of":
            return isinstance(value, list) and any(_are_equal(given, choice) for choice in value)
        case "prefix":
            return isinstance(given, str) and isinstance(value, str) and value != "" and given.startswith(value)
        case "at_most":
            return bool(_is_number(given) and _is_number(value) and given <= value)
        case unknown:
            assert_never(unknown)


def _are_equal(given: Any, value: Any) -> bool:
    """Return whether two numbers, two strings or two booleans are equal; False for all other values."""
    if _is_number(given) and _is_number(value):
        return bool(given == value)
    return type(given) is type(value) and isinstance(given, str | bool) and given == value


def _is_number(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _refused(message: str) -> AileronError:
    return AileronError(FailureClass.INVALID_REQUEST, message, boundary=Boundary.ACTION)
