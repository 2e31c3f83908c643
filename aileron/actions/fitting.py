"""Checks of an action, and of a call of the action, against the operations that its connectors declare.

Pure. Nobody should have to decide about a call that cannot work, such as a call of an operation that does not exist or that
does not accept an argument. The connector would refuse the call as well, but only after the approval. The operations are those
in the publisher's manifest. If it lists none, nothing is refused here.

    check_action   faults that every call of this file would have: for the author, when the file is added, validated or released
    check_call     faults of one call: for the caller, before a person is asked
    check_seen     a missing or wrong preview of changes that a person must see first
    seen_steps     the steps that make such changes
    value_problem  the fault of one argument

Source: docs/reference/action-file.md, docs/adr/0037-operations-are-recorded.md. Not here: how operations are recorded
(registry/operations.py), the connector's own check of its arguments (connectors/sdk/aileron_connector/operation.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from aileron.actions.references import Argument, pieces
from aileron.actions.summary import is_same_name
from aileron.model.document import refusal
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.json_value import JSON
from aileron.model.manifest import (
    ActionFile,
    ConnectorManifest,
    InputSpec,
    Operation,
    Parameter,
    StepSpec,
)
from aileron.model.names import Fqn
from aileron.model.near import did_you_mean
from aileron.model.plan import ConnectorPin, Step
from aileron.model.preview import EFFECTS_LABEL

__all__ = ["check_action", "check_call", "check_seen", "seen_steps", "value_problem"]

_MAX_NAMED: Final = 20
"""Maximum number of operations that an error message lists; the error's details have all of them."""


def check_action(
    action: ActionFile, manifest: Callable[[ConnectorPin], ConnectorManifest | None], *, file: str
) -> None:
    """Check that each step of an action, and its preview, has arguments that its operation can accept in some call.

    `manifest` returns the manifest of a connector, or None if it is unknown; steps of such a connector are not checked. Raises
    AileronError: unknown_op (`details`: operations), or invalid_request with `file`.
    """
    required = {connector.name: connector for connector in action.connectors}
    declared = {spec.name: spec for spec in action.inputs}
    known: dict[Fqn, ConnectorManifest | None] = {}
    for step_id, connector, op, inputs, implied in _uses(action):
        if connector not in known:
            pinned = required[connector]
            known[connector] = manifest(ConnectorPin(str(pinned.name), pinned.version, pinned.hash))
        found = known[connector]
        if found is None or found.operations is None:
            continue
        operation = _operation(found, op, f"{file}: step {step_id!r}")
        given = {name: _Given.input(declared[name]) for name in implied if name not in inputs}
        given |= {name: _Given.written(value, declared) for name, value in inputs.items()}
        if problems := dict(_misfits(operation, given)):
            told = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
            raise refusal(file, None, f"step {step_id!r}, {op} of {found.name}: {told}", Boundary.ACTION)
    check_seen(action, known)


def check_seen(action: ActionFile, manifests: Mapping[Fqn, ConnectorManifest | None]) -> None:
    """Check the preview of an action with a step that changes only what a person saw (`login = "previewed"`). Other
    actions pass.

    The action can have only one such step, and the preview must run an operation of the step's connector that shows the
    changes. Raises AileronError(invalid_request) if not, or if the preview has a line with the label that Aileron itself uses.
    """
    previewed, changing = _previewed(manifests), seen_steps(action, manifests)
    if not changing:
        return
    rule = action.preview
    if rule is not None and any(is_same_name(label, EFFECTS_LABEL) for label in rule.render):
        raise AileronError(
            FailureClass.INVALID_REQUEST,
            f"action {action.name!r}: the line {EFFECTS_LABEL!r} of its preview is shown by Aileron; call yours something else",
            boundary=Boundary.ACTION,
        )
    is_shown = rule is not None and rule.connector == changing[0].connector and (rule.connector, rule.op) in previewed
    if len(changing) > 1 or not is_shown:
        raise AileronError(
            FailureClass.INVALID_REQUEST,
            f"action {action.name!r}: operation {changing[0].op!r} changes only what a person saw: it needs "
            f"[approval.preview] with an operation of {changing[0].connector} that shows it, and is the only such step",
            boundary=Boundary.ACTION,
        )


def seen_steps(action: ActionFile, manifests: Mapping[Fqn, ConnectorManifest | None]) -> list[StepSpec]:
    """Return the steps that change only what the approved preview showed (`login = "previewed"`)."""
    previewed = _previewed(manifests)
    return [step for step in action.steps if (step.connector, step.op) in previewed]


def _previewed(manifests: Mapping[Fqn, ConnectorManifest | None]) -> set[tuple[Fqn, str]]:
    return {
        (name, operation.name)
        for name, manifest in manifests.items()
        for operation in (() if manifest is None else manifest.operations or ())
        if operation.login == "previewed"
    }


def check_call(step: Step, manifest: ConnectorManifest) -> None:
    """Check that the operation of this step accepts its arguments.
    Raises AileronError: unknown_op, or bad_input (`details`: arguments).
    """
    if manifest.operations is None:
        return
    operation = _operation(manifest, step.op, f"step {step.id!r}")
    later = {place.at.split("/")[1].replace("~1", "/").replace("~0", "~") for place in step.filled}
    problems = dict(_problems(operation, step.args, later))
    if problems:
        told = "; ".join(f"argument {name!r}: {problem}" for name, problem in problems.items())
        raise AileronError(
            FailureClass.BAD_INPUT,
            f"cannot call {step.op} of {manifest.name} like this: {told}",
            boundary=Boundary.ACTION,
            details={"arguments": problems, "step": step.id},
        )


def _uses(action: ActionFile) -> Iterator[tuple[str, Fqn, str, Mapping[str, JSON], tuple[str, ...]]]:
    """Yield, for each step of an action and for its preview, its id, connector, operation and own `inputs`, and the
    names of the action's inputs that are added to these. For a step, all of the action's inputs are added; for the
    preview, none.
    """
    names = tuple(spec.name for spec in action.inputs)
    for step in action.steps:
        yield step.id, step.connector, step.op, step.inputs, names
    if action.preview is not None:
        yield "preview", action.preview.connector, action.preview.op, action.preview.inputs, ()


def _operation(manifest: ConnectorManifest, op: str, where: str) -> Operation:
    operations = {operation.name: operation for operation in manifest.operations or ()}
    if op in operations:
        return operations[op]
    names = sorted(operations)
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    hint = did_you_mean(op, names, f"operations: {', '.join(names[:_MAX_NAMED])}{more}")
    raise AileronError(
        FailureClass.UNKNOWN_OP,
        f"{where}: {manifest.name}@{manifest.version} has no operation {op!r}; {hint}",
        boundary=Boundary.ACTION,
        details={"operations": names},
    )


# A call


def _problems(operation: Operation, args: Mapping[str, JSON], later: set[str]) -> Iterator[tuple[str, str]]:
    """Yield each faulty argument and its fault.
    The arguments in `later` are filled from results of earlier steps, so their values are not known yet.
    """
    for name in args:
        if (problem := _unknown(operation, name)) is not None:
            yield name, problem
    for parameter in operation.parameters:
        if parameter.name not in args:
            if parameter.required:
                yield parameter.name, f"missing; the operation needs {_expected(parameter)}"
        elif parameter.name not in later and (problem := value_problem(parameter, args[parameter.name])) is not None:
            yield parameter.name, problem


def _unknown(operation: Operation, name: str) -> str | None:
    names = [parameter.name for parameter in operation.parameters]
    if operation.rest or name in names:
        return None
    hint = did_you_mean(name, names, f"it accepts {', '.join(names) or 'nothing'}")
    return f"the operation does not accept it; {hint}"


def value_problem(parameter: Parameter, value: object) -> str | None:
    """Return what is wrong with `value` as the argument for this parameter, or None. The value may be long or private,
    so it is not quoted.
    """
    kinds = _kinds(value)
    if parameter.types and not kinds & set(parameter.types):
        return f"the operation accepts {_expected(parameter)}"
    if isinstance(value, list) and parameter.items and not all(_kinds(item) & set(parameter.items) for item in value):
        return f"the operation accepts an array of {_or(parameter.items)}"
    if isinstance(value, str):
        if parameter.min_length is not None and len(value) < parameter.min_length:
            return f"shorter than the minimum of {parameter.min_length} characters"
        if parameter.max_length is not None and len(value) > parameter.max_length:
            return f"longer than the maximum of {parameter.max_length} characters"
    if isinstance(value, int | float) and not isinstance(value, bool):
        if parameter.minimum is not None and value < parameter.minimum:
            return f"below the minimum of {parameter.minimum}"
        if parameter.maximum is not None and value > parameter.maximum:
            return f"above the maximum of {parameter.maximum}"
    if parameter.enum and kinds & {"string", "integer"} and value not in parameter.enum:
        return f"not one of {', '.join(map(str, parameter.enum))}"
    return None


def _kinds(value: object) -> set[str]:
    """Return the types that a value has; an integer also counts as a number."""
    match value:
        case None:
            return {"null"}
        case bool():
            return {"boolean"}
        case int():
            return {"integer", "number"}
        case float():
            return {"number"}
        case str():
            return {"string"}
        case list():
            return {"array"}
        case _:
            return {"object"}


def _expected(parameter: Parameter) -> str:
    return _or(parameter.types) if parameter.types else "a value"


def _or(types: tuple[str, ...]) -> str:
    return " or ".join(types)


# A file


class _Given(msgspec.Struct, frozen=True, kw_only=True):
    """The value that an action file gives for an operation's parameter: its possible types, whether it is always given, and the
    value itself if the file contains it.
    """

    kinds: frozenset[str] | None
    is_always: bool = True
    value: Any = msgspec.UNSET
    source: str | None = None
    """Name of the input that the value comes from; None if it does not come from an input."""

    @classmethod
    def input(cls, spec: InputSpec) -> _Given:
        """Return a description of a parameter's value that is passed on unchanged from an action's input. A number
        input can have an integer as its value.
        """
        kinds = frozenset(
            {"integer": {"integer", "number"}, "number": {"integer", "number"}}.get(spec.type, {spec.type})
        )
        return cls(kinds=kinds, is_always=spec.is_always_there, value=spec.default, source=spec.name)

    @classmethod
    def written(cls, value: object, declared: Mapping[str, InputSpec]) -> _Given:
        """Return a description of a value under `inputs`: a literal, a reference, or text that contains references."""
        if not isinstance(value, str):
            return cls(kinds=frozenset(_kinds(value)), value=msgspec.UNSET if isinstance(value, list | dict) else value)
        found = pieces(value)
        match found:
            case (Argument() as argument,):
                return cls.input(declared[argument.name])
            case (str(),) | ():
                return cls(kinds=frozenset({"string"}), value=value)
            case (_,):
                return cls(kinds=None)
            case _:
                return cls(kinds=frozenset({"string"}))


def _misfits(operation: Operation, given: Mapping[str, _Given]) -> Iterator[tuple[str, str]]:
    for name in given:
        if (problem := _unknown(operation, name)) is not None:
            yield name, problem
    for parameter in operation.parameters:
        found = given.get(parameter.name)
        if found is None:
            if parameter.required:
                yield parameter.name, f"the operation needs it ({_expected(parameter)}); add it to the step's inputs"
        elif parameter.required and not found.is_always:
            yield (
                parameter.name,
                (
                    f"the operation needs it, but input {found.source!r} is optional: make it required, or give it a "
                    "default"
                ),
            )
        elif parameter.types and found.kinds is not None and not found.kinds & set(parameter.types):
            yield parameter.name, f"{_or(tuple(sorted(found.kinds)))}; the operation accepts {_expected(parameter)}"
        elif found.value is not msgspec.UNSET and (problem := value_problem(parameter, found.value)) is not None:
            yield parameter.name, problem
