"""The documents' own examples of JSON bodies, given to the actions: which are accepted, and whether the others are listed.

An example is accepted if every input of the action file takes its part, and the connector's schema takes the whole. A body
with several examples is accepted if one is. What is null in an example is left out, as in a call.

Not here: what an example is (aileron/importing/examples.py), the page (measure.py).
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import msgspec

from aileron.actions.inputs import argument_problem
from aileron.actions.manifest import parse_action
from aileron.importing.examples import bodies_of, is_found
from aileron.importing.found import Described
from aileron.importing.media import chosen_media, is_json
from aileron.importing.operations import OWN_SCHEMA, Imported
from aileron.importing.repository import Made
from aileron.importing.schemas import UnusableError
from aileron.model.manifest import InputSpec
from aileron_connector.check import Schemas, maybe_problem
from aileron_connector.openapi.document import Document

__all__ = ["Bodies", "bodies_in"]

_LISTED: Final = "cannot be given: "


@dataclasses.dataclass(frozen=True)
class Bodies:
    """JSON bodies of imported operations. `contradicting`: no example of these fits the document's own schema."""

    of_json: int = 0
    with_example: int = 0
    accepted: int = 0
    contradicting: int = 0
    unlisted: tuple[str, ...] = ()
    """Operations with an example that is neither accepted nor listed with its reason."""

    @property
    def fitting(self) -> int:
        """Number of bodies with an example that fits the document's own schema."""
        return self.with_example - self.contradicting

    def __add__(self, other: Bodies) -> Bodies:
        return Bodies(*(mine + theirs for mine, theirs in zip(_values(self), _values(other), strict=True)))


def _values(bodies: Bodies) -> list[Any]:
    return [getattr(bodies, field.name) for field in dataclasses.fields(bodies)]


def bodies_in(made: Made, found: Described) -> Bodies:
    """Count the bodies of one connector."""
    document = msgspec.json.decode(made.files["service/document.json"], type=Document)
    schemas = Schemas(document.components.schemas, search=is_found)
    names = {action.op: action.name for action in made.actions}
    total = Bodies()
    for operation in made.imported:
        if operation.name in names and (media := _media(operation, found)) is not None:
            examples = [example.value for example in bodies_of(media, found.references, operation.found.file)]
            total += _tried(operation, _inputs(made, names[operation.name]), examples, schemas)
    return total


def _media(operation: Imported, found: Described) -> dict[str, Any] | None:
    """Return the operation's JSON body as the document describes it, or None if it has none."""
    content = found.references.maybe(operation.found.raw.get("requestBody"), operation.found.file).get("content")
    if not isinstance(content, dict) or not content:
        return None
    try:
        kind, media = chosen_media(content)
    except UnusableError:
        return None
    return media if is_json(kind) else None


def _inputs(made: Made, name: str) -> dict[str, InputSpec]:
    path = f"actions/{name}/action.md"
    action = parse_action(made.files[path].decode(), file=path, allow_placeholder=True)
    return {given.name: given for given in action.inputs}


def _tried(operation: Imported, inputs: dict[str, InputSpec], examples: list[Any], schemas: Schemas) -> Bodies:
    taken = [_is_taken(operation, inputs, value, schemas) for value in examples]
    listed = [reason for reason in operation.left_out if _LISTED in reason]
    return Bodies(
        of_json=1,
        with_example=int(bool(examples)),
        accepted=int(any(taken)),
        contradicting=int(bool(examples) and sum(OWN_SCHEMA in reason for reason in listed) == len(examples)),
        unlisted=(operation.name,) if taken.count(False) != len(listed) else (),
    )


def _is_taken(operation: Imported, inputs: dict[str, InputSpec], value: Any, schemas: Schemas) -> bool:
    body = operation.packed.request_body
    if body is None:
        return False
    (media,) = body.content.values()
    if maybe_problem(value, media.schema, schemas, reading="argument") is not None:
        return False
    if not body.arguments:
        return argument_problem(inputs[body.argument], value) is None
    if not isinstance(value, dict) or not value.keys() <= body.arguments.keys():
        return False
    needed = [name for name, argument in body.arguments.items() if inputs[argument].required]
    return value.keys() >= set(needed) and all(
        argument_problem(inputs[body.arguments[name]], inner) is None for name, inner in value.items()
    )
