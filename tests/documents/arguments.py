"""Arguments for a call of an imported operation: the document's examples, or the least value that fits if it has none.

The same ones every time. Not here: what the examples are (aileron/importing/cases.py).
"""

from __future__ import annotations

import functools
import json
import re
from typing import Any, Final

from hypothesis import HealthCheck, Phase, find, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample, Unsatisfiable

from aileron.actions.inputs import argument_problem
from aileron.importing.cases import some_arguments
from aileron.importing.operations import Imported
from aileron.model.manifest import InputSpec, InputType

__all__ = ["arguments", "value_of"]

_PLAIN: Final = settings(
    derandomize=True, database=None, max_examples=300, phases=[Phase.generate], suppress_health_check=[*HealthCheck]
)


def arguments(operation: Imported) -> dict[str, Any] | None:
    """Return the required arguments, and those that the document has examples of; None if no value was found that fits."""
    args = some_arguments(operation)
    for given in operation.inputs:
        if given.required and given.name not in args:
            rule = {key: inner for key, inner in given.rule.items() if key != "type"}
            spec = InputSpec(name=given.name, type=given.kind, description="", rule=rule)  # type: ignore[arg-type]
            value = value_of(spec)
            if value is None:
                return None
            args[given.name] = value
    return args


def value_of(spec: InputSpec) -> Any | None:
    """Return the least value that an input of an action takes, or None if none was found."""
    return _least(spec.type, json.dumps(spec.rule))


@functools.cache  # most actions of a service take the same ones
def _least(kind: InputType, rule: str) -> Any | None:
    spec = InputSpec(name="value", type=kind, description="", rule=json.loads(rule))
    try:
        return find(_values({"type": spec.type, **spec.rule}), functools.partial(_fits, spec), settings=_PLAIN)
    except (NoSuchExample, Unsatisfiable):
        return None


def _fits(spec: InputSpec, value: Any) -> bool:
    return argument_problem(spec, value) is None


def _values(rule: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return values that mostly follow a rule."""
    if "enum" in rule:
        return st.just(rule["enum"][0])
    match rule["type"]:
        case "string" if "pattern" in rule:
            found = st.from_regex(re.compile(rule["pattern"], re.ASCII))
            return found.filter(lambda text: bool(text) and text.isprintable() and text == text.strip())
        case "array":
            least = max(1, rule.get("minItems", 0))
            return st.lists(_values(rule.get("items", {"type": "string"})), min_size=least, max_size=least)
        case "object":
            needed = rule.get("required") or list(rule.get("properties", {}))[: rule.get("minProperties", 0)]
            return st.fixed_dictionaries({name: _values(rule["properties"][name]) for name in needed})
        case "string":
            return st.just("example".ljust(rule.get("minLength", 0), "x")[: rule.get("maxLength")])
        case "boolean":
            return st.just(True)
        case kind:
            least, most = rule.get("minimum"), rule.get("maximum")
            return st.integers(least, most) if kind == "integer" else st.floats(least, most, allow_nan=False)
