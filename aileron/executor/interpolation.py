"""The insertion of the results of earlier steps into the arguments of the next step.

Pure. The results come from an upstream, through a connector. They become arguments as values, and no text in a result
is interpreted as a reference. The places of the results are fixed in the approved plan.

Source: docs/reference/action-file.md, References. Not here: the references in an action file (actions/references.py).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import msgspec

from aileron.model.canonical import canonical_json
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.json_value import JSON, JSONObject
from aileron.model.plan import MAX_ARGS_BYTES, Filled, Step, StepValue

__all__ = ["with_answers"]


def with_answers(step: Step, answers: Mapping[str, JSON]) -> Step:
    """Return the step with the results of earlier steps inserted into its arguments, at the places that `filled` lists.
    `answers` has the results by step id.

    Raises AileronError(bad_input) if a result lacks the value to insert, a value cannot be inserted into a text, or the
    arguments get too large.
    """
    if not step.filled:
        return step
    args = copy.deepcopy(step.args)
    for place in step.filled:
        _put(args, place.at, _value(step, place, answers))
    size = len(canonical_json(args))
    if size > MAX_ARGS_BYTES:
        raise _refused(
            step, f"its arguments have {size} bytes after references are filled in; at most {MAX_ARGS_BYTES}"
        )
    return msgspec.structs.replace(step, args=args)


def _value(step: Step, place: Filled, answers: Mapping[str, JSON]) -> Any:
    if len(place.parts) == 1 and isinstance(place.parts[0], StepValue):
        return _found(step, place, place.parts[0], answers)
    return "".join(
        part if isinstance(part, str) else _text(step, place, part, _found(step, place, part, answers))
        for part in place.parts
    )


def _found(step: Step, place: Filled, wanted: StepValue, answers: Mapping[str, JSON]) -> Any:
    value = answers[wanted.step]
    for part in wanted.path:
        match value:
            case dict() if part in value:
                value = value[part]
            case list() if part.isdecimal() and part == str(int(part)) and int(part) < len(value):
                value = value[int(part)]
            case _:
                raise _refused(
                    step, f"{place.at} is {wanted}, but the answer of step {wanted.step!r} has no {part!r} there"
                )
    return value


def _text(step: Step, place: Filled, wanted: StepValue, value: Any) -> str:
    if isinstance(value, dict | list) or value is None:
        what = "an object" if isinstance(value, dict) else "an array" if isinstance(value, list) else "null"
        raise _refused(step, f"{place.at} has {wanted} inside a text, but its value is {what}")
    return value if isinstance(value, str) else canonical_json(value).decode()


def _put(args: JSONObject, at: str, value: Any) -> None:
    """Store the value in `args` at the JSON pointer `at` (RFC 6901), a place that exists in the plan's own arguments."""
    *way, last = (part.replace("~1", "/").replace("~0", "~") for part in at.split("/")[1:])
    inside: Any = args
    for part in way:
        inside = inside[int(part)] if isinstance(inside, list) else inside[part]
    if isinstance(inside, list):
        inside[int(last)] = value
    else:
        inside[last] = value


def _refused(step: Step, problem: str) -> AileronError:
    return AileronError(
        FailureClass.BAD_INPUT,
        f"step {step.id!r} was not started: {problem}",
        boundary=Boundary.ACTION,
        details={"step": step.id},
    )
