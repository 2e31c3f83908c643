"""The inputs of one action: the values that an agent gives for an operation, each with a name, a rule and a description.

Collected while the operation is read (operations.py). Optional parts that cannot be expressed are left out and reported.

Rules
- Each argument has a unique name in snake case. If two places use the same name, the place is appended: `id` and `id_body`.
- An input has a description that is no longer than a model needs: all rules together have at most 16 KiB. If they are
  larger, the largest rules are shrunk first, and optional inputs are left out only after that.

Source: docs/reference/action-file.md (inputs). Not here: converting a schema to a rule (rules.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from aileron.actions.inputs import EXPECTED
from aileron.importing.rules import Rule, Rules, Taken, input_type, size_of
from aileron.importing.schemas import Packed, Packer, UnusableError, kept
from aileron.importing.shrinking import NO_ROOM, shrunk
from aileron.importing.words import line
from aileron.model.json_value import JSON
from aileron.model.names import INPUT_NAME
from aileron_connector.check import Schema

__all__ = ["MAX_INPUTS", "Input", "Inputs", "snake"]

MAX_INPUTS: Final = 60
"""Maximum number of inputs of one action; operations in a manifest have at most 64 parameters."""
_MAX_RULES: Final = 16 << 10
"""16 KiB: maximum size of all rules of one action, because a model has them in its context with every request."""
_MAX_LOST: Final = 1000
"""Maximum number of parts of one input that are reported as left out; further parts are only counted."""
_MAX_WORDS: Final = 200
_NOT_NAME: Final = re.compile(r"[^a-z0-9]+")
_FORMATS: Final[dict[str, tuple[str, str]]] = {
    "date-time": ("Date and time, such as 2026-11-24T10:00:00Z", "iso 8601"),
    "date": ("Date, such as 2026-11-24", "yyyy"),
    "time": ("Time, such as 10:00:00Z", "hh:"),
    "duration": ("ISO 8601 duration, such as PT15M", "iso 8601"),
    "uuid": ("A UUID", "uuid"),
    "email": ("A mail address", "mail"),
    "uri": ("A URL", "url"),
    "ipv4": ("An IPv4 address", "ip"),
    "ipv6": ("An IPv6 address", "ip"),
}
"""Text about each format for a model, with a keyword. The text is omitted if the document's description already
contains the keyword.
"""


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """An argument of an action. `rule` is its JSON schema, including the type, with the keywords of actions/inputs.py."""

    name: str
    rule: Rule
    description: str
    required: bool
    is_path: bool = False
    is_base64: bool = False
    format: str = ""
    """The format as the document names it: `uuid`, `date-time`. For an array, the format of its items."""
    example: Any = msgspec.UNSET

    @property
    def kind(self) -> str:
        """Type of the input."""
        return str(self.rule["type"])


class Inputs:
    """The inputs of one operation in their order, and the list of parts that were left out."""

    def __init__(self, rules: Rules, packer: Packer) -> None:
        self._rules = rules
        self._packer = packer
        self._inputs: list[Input] = []
        self._left_out: list[str] = []
        self._taken: set[str] = set()
        self._whole: dict[str, tuple[Taken, Sequence[JSON]]] = {}
        """The complete rule of each input, with the document's examples of the input, by the input's name."""

    @property
    def every(self) -> tuple[Input, ...]:
        """All inputs that have been added and not removed so far."""
        return tuple(self._inputs)

    @property
    def left_out(self) -> tuple[str, ...]:
        """The parts of the operation's arguments that cannot be given in a call, each with the reason."""
        kept = {entry.name for entry in self._inputs}
        within = [told for name, (taken, _) in self._whole.items() if name in kept for told in _lost(name, taken)]
        return (*self._left_out, *within)

    @property
    def mark(self) -> tuple[int, int]:
        """The numbers of inputs and of reasons added so far, to be passed to `undone`."""
        return len(self._inputs), len(self._left_out)

    def undone(self, since: tuple[int, int]) -> None:
        """Remove the inputs, and the reasons for parts left out, that were added since `mark` returned `since`."""
        del self._inputs[since[0] :], self._left_out[since[1] :]

    def maybe_own(self, *names: str) -> str:
        """Reserve and return the first of these names that no input has yet; return an empty string if all are taken."""
        name = next((candidate for candidate in names if candidate not in self._taken), "")
        self._taken |= {name} if name else set()
        return name

    def put(self, made: Input) -> None:
        """Add an input that no schema in the document describes, under a name from `maybe_own`."""
        self._inputs.append(made)

    def add(
        self,
        argument: str,
        schema: Packed,
        said: Mapping[str, object],
        *,
        required: bool,
        is_path: bool = False,
        used: Sequence[JSON] = (),
    ) -> None:
        """Add an input named `argument` for a value that `schema` describes. `said` has the document's other facts
        about the value, such as its description; `used` are the document's examples of it.

        Raises UnusableError if no input would accept only values that the schema allows, or if no more inputs fit.
        """
        try:
            if not required and len(self._inputs) >= MAX_INPUTS:  # `fit` would leave it out, after all the work
                raise UnusableError(NO_ROOM)
            taken = self._rules.taken(schema, used)
            rule = taken.rule.copy()
            if rule["type"] == "boolean" and "enum" in rule:
                raise UnusableError(f"only {str(rule['enum'][0]).lower()}, which an input cannot say")
        except UnusableError:
            self._taken.discard(argument)
            raise
        words = rule.pop("description", "")
        self._whole[argument] = (msgspec.structs.replace(taken, rule=rule), used)
        packed: Schema = schema if isinstance(schema, dict) else {}
        told = said.get("description") if isinstance(said.get("description"), str) else ""
        example = next(
            (source[key] for source in (said, packed) for key in ("example", "default") if key in source), msgspec.UNSET
        )
        self._inputs.append(
            Input(
                name=argument,
                rule=rule,
                description=_described(line(told or words, _MAX_WORDS), argument, packed, rule),
                required=required,
                is_path=is_path,
                is_base64=_is_base64(packed),
                format=self._format(packed),
                example=example if isinstance(example, str | int | float | bool) else msgspec.UNSET,
            )
        )

    def _format(self, schema: Schema) -> str:
        items = schema.get("items")
        if isinstance(items, dict) and "$ref" in items:
            items = self._packer.lookup(items["$ref"])
        found = items if isinstance(items, dict) else schema
        return str(found.get("format", ""))

    def named(self, name: str, place: str) -> str:
        """Reserve and return a free input name for a value that the document calls `name`. Raises UnusableError if no
        name is left.
        """
        base = snake(name) or place
        for candidate in (base, f"{base}_{place}", *(f"{base}_{number}" for number in range(2, 100))):
            if candidate not in self._taken and INPUT_NAME.fullmatch(candidate):
                self._taken.add(candidate)
                return candidate
        raise UnusableError("no name is left for it")

    def leave_out(self, name: str, reason: str) -> None:
        """Record that the optional part `name` cannot be given in a call, and the reason."""
        self._left_out.append(f"{line(name, 60)}: {reason}")

    def fit(self) -> None:
        """Shrink all inputs to a total size that a model can read; leave out optional inputs that do not fit.

        Raises UnusableError if not even the required inputs fit.
        """
        self._shrink()
        needed = [entry for entry in self._inputs if entry.required]
        room, count = _MAX_RULES - sum(map(_weight, needed)), MAX_INPUTS - len(needed)
        if room < 0 or count < 0:
            raise UnusableError(f"what it requires is more than {_MAX_RULES} bytes of schemas, or {MAX_INPUTS} inputs")
        kept = {entry.name for entry in needed}
        for entry in sorted(self._inputs, key=lambda entry: not self._whole_of(entry)[1]):  # inputs with examples first
            if not entry.required:
                room, count = room - _weight(entry), count - 1
                if room < 0 or count < 0:
                    self.leave_out(entry.name, NO_ROOM)
                else:
                    kept.add(entry.name)
        self._inputs = [entry for entry in self._inputs if entry.name in kept]

    def _shrink(self) -> None:
        """Shrink inputs, the largest first, to a fair share of _MAX_RULES bytes, and further only if that is not enough.

        Parts that an example uses are cut last, and only from required inputs, because a required input cannot be left
        out.
        """
        weights = {entry.name: _weight(entry) for entry in self._inputs}
        share = _share(list(weights.values()), _MAX_RULES)
        for least, keeps_used in ((share, True), (0, True), (0, False)):
            counted = {entry.name for entry in self._inputs if keeps_used or entry.required}
            for entry in sorted(self._inputs, key=lambda entry: -weights[entry.name]):
                over = sum(weights[name] for name in counted) - _MAX_RULES
                if over > 0 and entry.name in counted:
                    made = self._in(entry, max(least, weights[entry.name] - over), keeps_used=keeps_used)
                    weights[entry.name] = _weight(made)
                    self._inputs = [made if given is entry else given for given in self._inputs]

    def _whole_of(self, entry: Input) -> tuple[Taken, Sequence[JSON]]:
        return self._whole.get(entry.name, (Taken(entry.rule, ()), ()))

    def _in(self, entry: Input, most_bytes: int, *, keeps_used: bool) -> Input:
        """Return an input with its rule shrunk so that the input has `most_bytes`, or as few bytes as possible. With
        `keeps_used`, properties that an example uses are not removed.
        """
        taken, used = self._whole_of(entry)
        made = shrunk(taken, most_bytes - len(entry.description) - len(entry.name), used, keeps_used=keeps_used)
        self._whole[entry.name] = (made, used)
        return _with_rule(entry, made.rule)


def _share(weights: Sequence[int], room: int) -> int:
    """Return the largest limit such that the weights, each cut to that limit, add up to at most `room`."""
    for place, weight in enumerate(sorted(weights)):
        share = room // (len(weights) - place)
        if weight > share:
            return max(share, 1)
        room -= weight
    return _MAX_RULES


def _with_rule(entry: Input, rule: Rule) -> Input:
    told = rule.get("description", "")  # the description that replaced an enum (shrinking.py)
    if not told:
        return msgspec.structs.replace(entry, rule=rule)
    rule = kept(rule, lambda keyword: keyword != "description")
    return msgspec.structs.replace(entry, rule=rule, description=f"{entry.description.rstrip('. ')}. {told}.")


def _lost(name: str, taken: Taken) -> Iterator[str]:
    """Yield a sentence for each part that is left out of an input, with the part's path."""
    for loss in taken.lost[:_MAX_LOST]:
        yield f"{line(f'{name}{loss.at}', 160)}: {loss.reason}"
    if len(taken.lost) > _MAX_LOST:
        yield f"{name}: and {len(taken.lost) - _MAX_LOST} more of its parts"


def _weight(entry: Input) -> int:
    return size_of(entry.rule) + len(entry.description) + len(entry.name)


def snake(name: str) -> str:
    """Return a name in snake case; empty if none of its characters is allowed in a name."""
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    made = _NOT_NAME.sub("_", words.lower()).strip("_")[:60].rstrip("_")
    return made if made[:1].isalpha() else f"arg_{made}" if made else ""


def _is_base64(schema: Schema) -> bool:
    return schema.get("format") in ("binary", "byte") or schema.get("contentEncoding") == "base64"


def _described(words: str, name: str, schema: Schema, rule: Rule) -> str:
    """Return the document's description, or else one made from the name, with the format and the default value."""
    told = words or f"{name.replace('_', ' ').capitalize()}: {EXPECTED[input_type(rule)]}."
    if _is_base64(schema):
        told = f"{told.rstrip('. ')}. As base64."
    elif (form := _FORMATS.get(schema.get("format", ""))) and rule["type"] == "string" and form[1] not in told.lower():
        told = f"{told.rstrip('. ')}. {form[0]}."
    default = schema.get("default")
    if isinstance(default, str | int | float | bool) and default != "" and "default" not in told.lower():
        told = f"{told.rstrip('. ')}. Default: {line(str(default).lower() if isinstance(default, bool) else str(default), 60)}."
    return told
