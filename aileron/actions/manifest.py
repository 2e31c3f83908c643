"""Reader of an action file: TOML between two `+++` lines, then Markdown.

Turns the text into an `ActionFile` whose every value has been checked, or says what is wrong, with file and
line. Pure. The text is untrusted, is read by people and by language models, and specifies what will be
done. So nothing in it is ignored and nothing is guessed.

Rules
- The frontmatter ends at the first line that is exactly `+++`. Everything after it is the body, unchanged.
- `${args.NAME}` names a declared input, `${STEP.PATH}` an earlier step. Any other `${` is an error, so that a typing
  mistake is not sent literally.
- A reference within a longer string can only name an input that always has a value, because only the author knows what the
  text would be without a value.
- `sha256:bound-at-release` is a source file's hash; in an installed file it is an error.
- A preview runs before a person decides, so its operation must not be the operation of a step.

Source: docs/reference/action-file.md, checked against `SCHEMA`. Not here: whether the connector grants a
step's requests (resolve.py), and what an agent is shown (mcp/).

>>> parse_action("name = 1", file="a.md")
Traceback (most recent call last):
    ...
aileron.model.failure.AileronError: a.md:1: the first line is not +++, which starts the frontmatter
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, get_args

import msgspec

from aileron.actions.inputs import (
    MAX_CHOICES,
    MAX_LENGTH,
    MAX_PATTERN,
    SCALAR_KEYS,
    argument_problem,
    fragment,
    scalar_rule,
    schema_rule,
)
from aileron.actions.references import ARGS, STEP_ID, Argument, pieces
from aileron.actions.summary import MAX_SUMMARY, Place, is_same_name, template_of
from aileron.model.canonical import sha256_digest
from aileron.model.document import MAX_NUMBER, Field, Kind, Table, check_text, read_document, refusal
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.fields import full_name, version
from aileron.model.json_value import JSONObject
from aileron.model.manifest import (
    ActionFile,
    ApprovalRule,
    Effect,
    InputSpec,
    InputType,
    PreviewRule,
    RequiredConnector,
    StepSpec,
)
from aileron.model.names import (
    ACTION_NAME,
    BINDING_PART,
    FQN,
    INPUT_NAME,
    OP_NAME,
    PIN,
    SEMVER,
    TAG,
    UNBOUND_HASH,
    Fqn,
    check_pin,
    check_semver,
)
from aileron.model.text import hidden_at

__all__ = ["SCHEMA", "bind_placeholders", "input_schema", "parse_action"]


_ARGUMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_DURATION: Final = re.compile(r"([1-9][0-9]{0,5})([smh])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}
_EXPIRES_IN_S: Final = range(1, 24 * 3600 + 1)
"""Allowed values of `expires_in`, in seconds: the time until a question or its approval expires.

After a day, a person no longer remembers what they approved.
"""
_UNDO_WINDOW_S: Final = range(3600 + 1)
"""Allowed values of `undo_window_s`: seconds for which an approved run waits and can still be cancelled.

After an hour nobody wants to cancel a run any more, and a longer wait would be a schedule.
"""
_MAX_TAGS: Final = 8
"""Maximum number of an action's tags. A typical action has three: its service, its kind of work and its team."""
_MAX_RENDERED: Final = 32
"""Maximum number of lines in a preview; nobody reads more than a screen of them before a decision."""
_MAX_LABEL: Final = 64
"""Maximum number of characters of a label, so that it fits on one line with its value."""
_MAX_PATH: Final = 512
"""Maximum number of characters of a path into a result; the longest path for a known service has under 80."""
_PATH: Final = re.compile(r"(?:\.\.\.)?[^.]+(?:\.[^.]+){0,15}")
_TYPES: Final[tuple[str, ...]] = get_args(InputType)

_FENCE: Final = "+++"
_SOME: Final = range(1, MAX_NUMBER + 1)
"""Allowed numbers of entries in a list that must not be empty."""
_NOT_EMPTY: Final = r".*\S.*"


SCHEMA: Final = {
    "name": Field(
        Kind.STRING,
        required=True,
        says="the action's own name, see [names](names.md); also the file's name and, with `-` and `.` as `_`, the tool's",
        pattern=ACTION_NAME.pattern,
        example="send-email",
    ),
    "version": version("strict SemVer; a source file may say `0.0.0-dev`"),
    "source": Field(
        Kind.STRING,
        says="`NAME@VERSION` it was copied from; never fetched again by itself",
        pattern=f"{FQN}@{SEMVER}",
        example="github://acme/mail/actions/send-email@1.2.0",
    ),
    "summary": Field(
        Kind.STRING,
        says="what a call does, in a sentence that a person reads first: words, `{NAME}` for a value, and `[…]` for what is left "
        "out without one ([how it is filled](#the-summary))",
        pattern=_NOT_EMPTY,
        bounds=range(1, MAX_SUMMARY + 1),
        example="Send {subject} to {to}",
    ),
    "tags": Field(
        Kind.STRINGS,
        says="what the action belongs to, in lower-case words: you can [select](sessions.md#selections) actions by tag, and "
        "agents [find](mcp.md#many-actions) them by it. Each word has letters, digits, `_` or `-`, at most 32",
        bounds=range(1, _MAX_TAGS + 1),
        is_unique=True,
        pattern=TAG.pattern,
        example=["mail"],
    ),
    "requires": Field(
        Kind.TABLE,
        required=True,
        says="what the action calls",
        fields={
            "connectors": Field(
                Kind.TABLES,
                required=True,
                says="each connector the action calls, once",
                bounds=_SOME,
                fields={
                    "name": full_name("the connector's full name"),
                    "version": version("strict SemVer: one version, no range"),
                    "hash": Field(
                        Kind.STRING,
                        required=True,
                        says="the pin, `sha256:` and 64 hex digits: exactly these bytes run. In a source file "
                        f"`{UNBOUND_HASH}`, which `aileron action add` replaces by the hash of the one installed connector "
                        "of that name and version",
                        pattern=f"{PIN.pattern}|{UNBOUND_HASH}",
                        example=UNBOUND_HASH,
                    ),
                    "capabilities": Field(
                        Kind.STRINGS,
                        required=True,
                        says="the operations this action uses, each once. A step with another is refused (`capability_denied`). "
                        "Older files name the credential's kind (`oauth2`) or a scope (`chat:write`) instead: that stands for "
                        "any operation that uses this credential",
                        bounds=_SOME,
                        is_unique=True,
                        pattern="[^*]+",
                        example=["send_email"],
                    ),
                    "identity": Field(
                        Kind.STRING,
                        says="whose credential it uses: the last part of the [binding's](bindings.md) name. No other binding "
                        "is used, and the caller has no choice. Left out, the caller "
                        "[chooses](bindings.md#choosing-between-accounts) where there are several",
                        pattern=BINDING_PART.pattern,
                        example="work",
                    ),
                },
            )
        },
    ),
    "match": Field(
        Kind.TABLE,
        required=True,
        says="when it is meant",
        fields={
            "intent": Field(
                Kind.STRING,
                required=True,
                says="one phrase a person would say; the tool's title",
                pattern=_NOT_EMPTY,
                example="send an email",
            )
        },
    ),
    "inputs": Field(
        Kind.TABLES,
        says="the arguments of a call",
        fields={
            "name": Field(
                Kind.STRING, required=True, says="unique in the file", pattern=INPUT_NAME.pattern, example="to"
            ),
            "type": Field(
                Kind.STRING,
                required=True,
                says='nothing is converted: `"3"` is not an integer, `true` is not `1`, `1.0` is not an integer, and numbers are '
                "below 2**53",
                choices=_TYPES,
            ),
            "description": Field(
                Kind.STRING,
                required=True,
                says="for the model: short, concrete, with an example where the form matters",
                pattern=_NOT_EMPTY,
                example="Who gets it, for example ann@example.com.",
            ),
            "required": Field(Kind.BOOLEAN, says="default true; false where there is a `default`"),
            "label": Field(
                Kind.STRING, says="what a person is shown instead of the name", pattern=_NOT_EMPTY, example="To"
            ),
            "multiline": Field(Kind.BOOLEAN, says="only for strings: shown as a block", default=False),
            "default": Field(
                Kind.VALUE,
                says="stands for an argument that is not given, in the plan and for the person who is asked as if it had been",
            ),
            "enum": Field(
                Kind.VALUES,
                says="the values it may have; for strings and numbers",
                bounds=range(1, MAX_CHOICES + 1),
                example=["low", "high"],
            ),
            "pattern": Field(
                Kind.STRING,
                says="what a string has to contain, in [RE2's syntax](https://github.com/google/re2/wiki/Syntax): write `^…$` "
                "for the whole of it. A caller whose value does not fit is told the description as well",
                bounds=range(1, MAX_PATTERN + 1),
                example="^[a-z]+$",
            ),
            "minimum": Field(Kind.NUMBER, says="the least a number may be"),
            "maximum": Field(Kind.NUMBER, says="the most a number may be"),
            "min_length": Field(
                Kind.INTEGER, says="the least characters (code points) of a string", bounds=range(MAX_LENGTH + 1)
            ),
            "max_length": Field(Kind.INTEGER, says="the most characters of a string", bounds=range(MAX_LENGTH + 1)),
            "schema": Field(
                Kind.FREE,
                says="what an `array` or `object` has to fit, and required for these: JSON Schema 2020-12, "
                "[of these keywords](#arrays-and-objects)",
                example={"items": {"type": "string"}},
            ),
        },
    ),
    "execute": Field(
        Kind.TABLES,
        required=True,
        says="the steps, in order",
        bounds=_SOME,
        fields={
            "id": Field(
                Kind.STRING,
                required=True,
                says="unique in the file, and not `args`",
                pattern=STEP_ID.pattern,
                example="send",
            ),
            "connector": full_name("one of `[[requires.connectors]]`"),
            "op": Field(
                Kind.STRING,
                required=True,
                says="the connector's operation",
                pattern=OP_NAME.pattern,
                example="send_email",
            ),
            "idempotent": Field(
                Kind.BOOLEAN,
                says="true lets the step be run again after a passing failure, so never for what sends, pays, creates or changes "
                "anything; agents are told that an action without approval, all of whose steps are so, "
                "[only reads](mcp.md#hints)",
                default=False,
            ),
            "effect": Field(
                Kind.STRING,
                says="what the operation does; a person who is asked sees it, and it decides [how loudly they are asked]"
                "(#effects). Left out, it is `read` where the step is `idempotent`, and otherwise unknown",
                choices=tuple(effect.value for effect in Effect),
                example="send",
            ),
            "inputs": Field(
                Kind.FREE,
                says="what the operation gets beside the call's own arguments, and in place of one of the same name",
                example={"to": "${args.to}"},
            ),
        },
    ),
    "approval": Field(
        Kind.TABLE,
        says="whether a person decides first",
        fields={
            # Required, because a block that only says how long to wait must not read as "no approval".
            "required": Field(Kind.BOOLEAN, required=True, says="a person decides before each run"),
            "expires_in": Field(
                Kind.STRING,
                says="how long the question waits: `30s`, `15m`, `1h`, at most `24h`",
                pattern=_DURATION.pattern,
                default="15m",
            ),
            "irreversible": Field(
                Kind.BOOLEAN,
                says="what the person is told; where it is true, no [standing grant](consents.md#grants) can be made",
                default=ApprovalRule().irreversible,
            ),
            "undo_window_s": Field(
                Kind.INTEGER,
                says="seconds that an approved run is held before it begins; while it is held, it can be cancelled. Needs "
                "`required = true`",
                bounds=_UNDO_WINDOW_S,
                default=ApprovalRule().undo_window_s,
            ),
            "preview": Field(
                Kind.TABLE,
                says="what a person sees of the effect before they decide",
                fields={
                    "connector": full_name(
                        "one of `[[requires.connectors]]`; needed only if there are several", required=False
                    ),
                    "op": Field(
                        Kind.STRING,
                        required=True,
                        says="an operation named in that connector's `capabilities`, and no step of this action: what is asked "
                        "about is not done to ask",
                        pattern=OP_NAME.pattern,
                        example="get_draft",
                    ),
                    "inputs": Field(
                        Kind.FREE,
                        says="all that the operation gets, [references](#references) included; the call's own arguments are not "
                        "put beside it",
                        example={"draft_id": "${args.draft_id}"},
                    ),
                    "render": Field(
                        Kind.FREE,
                        required=True,
                        says=f"what is shown, by line: label (1 to {_MAX_LABEL} characters) to [path](#paths-of-a-preview)",
                        bounds=range(1, _MAX_RENDERED + 1),
                        example={"Subject": "...headers.Subject"},
                    ),
                    "multiline": Field(
                        Kind.STRINGS, says="the labels whose text is shown as a block", example=["Subject"]
                    ),
                },
            ),
        },
    ),
}


def parse_action(text: str, *, file: str, allow_placeholder: bool = False) -> ActionFile:
    """Parse an action file, which errors call `file`. Raises AileronError(invalid_request) with line and fix if it is invalid.

    `allow_placeholder` allows `sha256:bound-at-release` as a hash; use it only for a text that `action add` will bind.
    """
    parts = _split(text, file)
    table = read_document(parts.frontmatter, SCHEMA, file=file, boundary=Boundary.ACTION, first_line=2)
    connectors = _connectors(table, allow_placeholder)
    inputs = _inputs(table)
    steps = _steps(table, {connector.name for connector in connectors}, inputs)
    approval = _approval(table.table("approval"))
    preview = _maybe_preview(table.table("approval"), connectors, steps, inputs)
    return ActionFile(
        name=_name(table, "name", ACTION_NAME, "lower-case letters, digits, '.', '_', '-'"),
        version=table.parsed("version", check_semver),
        source=_source(table),
        intent=_words(table.table("match"), "intent"),
        summary=_summary(table, inputs, preview) if "summary" in table else None,
        tags=_tags(table),
        connectors=connectors,
        steps=steps,
        inputs=inputs,
        approval=approval,
        preview=preview,
        body=parts.body,
        text=text,
        digest=sha256_digest(text.encode()),
    )


def bind_placeholders(text: str, *, file: str, pins: Callable[[Fqn, str], Sequence[str]]) -> str:
    """Return the text with each placeholder hash replaced by the only pin that `pins(name, version)` returns.

    Raises AileronError(not_found) if no such connector is installed, and (invalid_request) if several are, because
    only a person can choose one. The rest of the file stays unchanged.
    """
    unbound = parse_action(text, file=file, allow_placeholder=True)
    needed = [connector for connector in unbound.connectors if connector.hash == UNBOUND_HASH]
    pieces = re.split(rf"(?<=[\"']){re.escape(UNBOUND_HASH)}(?=[\"'])", text)
    if len(pieces) != len(needed) + 1:
        problem = f"{UNBOUND_HASH!r} is also written outside a connector's hash; write the hashes by hand"
        raise _refused(file, None, problem)
    bound = pieces[0]
    for connector, piece in zip(needed, pieces[1:], strict=True):
        bound += _only(pins(connector.name, connector.version), connector, file) + piece
    parse_action(bound, file=file)
    return bound


def input_schema(action: ActionFile) -> JSONObject:
    """Return the JSON Schema of the arguments, as shown to a language model."""
    return {
        "type": "object",
        "properties": {spec.name: _shown(spec) for spec in action.inputs},
        "required": [spec.name for spec in action.inputs if spec.required],
        "additionalProperties": False,
    }


def _shown(spec: InputSpec) -> JSONObject:
    shown = {**fragment(spec.type, spec.rule), "description": spec.description}
    return shown if spec.default is msgspec.UNSET else {**shown, "default": spec.default}


class _Parts(NamedTuple):
    frontmatter: str
    body: str


def _split(text: str, file: str) -> _Parts:
    """Split an action file at its `+++` lines into frontmatter and Markdown. The size and hidden characters of the
    complete text are checked here.
    """
    check_text(text, file=file, boundary=Boundary.ACTION)
    lines = text.splitlines(keepends=True)
    if not lines or lines[0].rstrip("\r\n") != _FENCE:
        raise _refused(file, 1, f"the first line is not {_FENCE}, which starts the frontmatter")
    for number, line in enumerate(lines[1:], start=1):
        if line.rstrip("\r\n") == _FENCE:
            return _Parts("".join(lines[1:number]), "".join(lines[number + 1 :]))
    raise _refused(file, len(lines), f"no second {_FENCE} line, which ends the frontmatter")


def _tags(table: Table) -> tuple[str, ...]:
    found = table.strings("tags")
    for tag in found:
        if not TAG.fullmatch(tag):
            raise table.refuse("tags", f"invalid tag {tag!r}: use lower-case letters, digits, '_' or '-', at most 32")
    return found


def _connectors(table: Table, allow_placeholder: bool) -> tuple[RequiredConnector, ...]:
    connectors: dict[Fqn, RequiredConnector] = {}
    for entry in table.table("requires").tables("connectors"):
        connector = _connector(entry, allow_placeholder)
        if connector.name in connectors:
            raise entry.refuse("name", f"connector {connector.name} is listed twice")
        connectors[connector.name] = connector
    return tuple(connectors.values())


def _connector(entry: Table, allow_placeholder: bool) -> RequiredConnector:
    return RequiredConnector(
        name=entry.parsed("name", Fqn.parse),
        version=entry.parsed("version", check_semver),
        hash=_hash(entry, allow_placeholder),
        capabilities=_capabilities(entry),
        identity=_name(entry, "identity", BINDING_PART, "lower-case letters, digits, '.', '_', '-'")
        if "identity" in entry
        else None,
    )


def _hash(entry: Table, allow_placeholder: bool) -> str:
    if entry.string("hash") != UNBOUND_HASH:
        return entry.parsed("hash", check_pin)
    if allow_placeholder:
        return UNBOUND_HASH
    fix = "install the file with `aileron action add`, or write what `aileron connector show` prints"
    raise entry.refuse("hash", f"hash is the placeholder {UNBOUND_HASH!r}: {fix}")


def _capabilities(entry: Table) -> tuple[str, ...]:
    found = entry.strings("capabilities")
    for capability in found:
        if not capability or "*" in capability:
            problem = f"capability {capability!r} is empty or a wildcard"
            raise entry.refuse("capabilities", f"{problem}; name the operations this action uses")
    return found


def _inputs(table: Table) -> tuple[InputSpec, ...]:
    inputs: dict[str, InputSpec] = {}
    for entry in table.tables("inputs"):
        spec = _input(entry)
        if spec.name in inputs:
            raise entry.refuse("name", f"input {spec.name!r} is declared twice")
        inputs[spec.name] = spec
    return tuple(inputs.values())


def _input(entry: Table) -> InputSpec:
    multiline = entry.boolean("multiline", False)
    kind = entry.string("type")
    if multiline and kind != "string":
        raise entry.refuse("multiline", f'multiline needs type = "string", but this is {kind!r}')
    if "default" in entry and entry.boolean("required", False):
        raise entry.refuse("default", "a default makes an argument optional: remove required = true")
    spec = InputSpec(
        name=_name(entry, "name", INPUT_NAME, "a lower-case letter, then letters, digits, '_'"),
        type=msgspec.convert(kind, InputType),
        description=_words(entry, "description"),
        required=entry.boolean("required", "default" not in entry),
        label=_words(entry, "label") if "label" in entry else None,
        multiline=multiline,
        rule=_rule(entry, kind),
        default=entry.value("default") if "default" in entry else msgspec.UNSET,
    )
    if spec.default is not msgspec.UNSET and (problem := argument_problem(spec, spec.default)) is not None:
        raise entry.refuse("default", f"the default of input {spec.name!r} is not valid: {problem}")
    return spec


def _rule(entry: Table, kind: str) -> JSONObject:
    is_scalar = kind not in ("array", "object")
    if is_scalar != ("schema" not in entry):
        said = f'input {entry.string("name")!r}: schema and type = "array" or "object" go together'
        raise entry.refuse("schema" if is_scalar else "type", said)
    if is_scalar:
        return scalar_rule(entry, kind)
    for key in SCALAR_KEYS:
        if key in entry:
            raise entry.refuse(key, f"{key} does not apply to an input of type {kind!r}: put it in its schema")
    return schema_rule(entry, kind)


def _steps(table: Table, connectors: set[Fqn], inputs: tuple[InputSpec, ...]) -> tuple[StepSpec, ...]:
    steps: dict[str, StepSpec] = {}
    for entry in table.tables("execute"):
        step = _step(entry, connectors, _Known({spec.name: spec for spec in inputs}, tuple(steps)))
        if step.id in steps:
            raise entry.refuse("id", f"step id {step.id!r} is used twice; each id must be unique in its file")
        steps[step.id] = step
    return tuple(steps.values())


class _Known(NamedTuple):
    """The names that a reference in an action file can use: the inputs of the file, and the ids of the earlier steps."""

    inputs: dict[str, InputSpec]
    steps: tuple[str, ...]


def _step(entry: Table, connectors: set[Fqn], known: _Known) -> StepSpec:
    step_id = _name(entry, "id", STEP_ID, "lower-case letters, digits, '_', '-'")
    if step_id == ARGS:
        raise entry.refuse(
            "id", f"step id {ARGS!r} is reserved: ${{{ARGS}.…}} stands for the arguments of the call; choose another"
        )
    connector = entry.parsed("connector", Fqn.parse)
    if connector not in connectors:
        listed = ", ".join(sorted(map(str, connectors)))
        raise entry.refuse(
            "connector", f"step {step_id!r}: {connector} is not in [[requires.connectors]]; listed: {listed}"
        )
    return StepSpec(
        id=step_id,
        connector=connector,
        op=_op(entry),
        idempotent=entry.boolean("idempotent", False),
        effect=Effect(entry.string("effect")) if "effect" in entry else None,
        inputs=_given(entry, f"step {step_id!r}", known),
    )


def _summary(table: Table, inputs: tuple[InputSpec, ...], preview: PreviewRule | None) -> str:
    """Return the action's summary. Raises AileronError if a placeholder names neither an input nor a label of the preview, or
    if a placeholder outside brackets names only an input that can be absent.
    """
    text = table.string("summary")
    try:
        template = template_of(text)
    except ValueError as error:
        raise table.refuse("summary", f"summary: {error}") from None
    labels = () if preview is None else tuple(preview.render)
    for place in (part for part in template if isinstance(part, Place)):
        spec = next((input_spec for input_spec in inputs if input_spec.name == place.name), None)
        is_previewed = any(is_same_name(place.name, label) for label in labels)
        if spec is None and not is_previewed:
            known = ", ".join([*(input_spec.name for input_spec in inputs), *labels]) or "none"
            raise table.refuse(
                "summary", f"summary: {{{place.name}}} is not an input or a label of the preview: {known}"
            )
        if spec is not None and not (spec.is_always_there or place.is_optional or is_previewed):
            problem = f"input {spec.name!r} is optional: put its part in brackets, as in [ to {{{spec.name}}}]"
            raise table.refuse("summary", f"summary: {problem}")
    return text


def _op(entry: Table) -> str:
    return _name(entry, "op", OP_NAME, "a lower-case letter, then letters, digits, '_'")


def _given(entry: Table, subject: str, known: _Known) -> JSONObject:
    """Return the `inputs` of a step or a preview after checking them. Their keys must be argument names, and their
    references must be to known inputs and steps.
    """
    for key, value in entry.free("inputs").items():
        if not _ARGUMENT.fullmatch(key):
            raise entry.refuse("inputs", f"{subject}: {key!r} is not an argument name", key)
        for problem in _reference_problems(value, known):
            raise entry.refuse("inputs", f"{subject}, key {key!r}: {problem}", key)
    return entry.free("inputs")


def _reference_problems(value: Any, known: _Known) -> Iterator[str]:
    """Yield what is wrong with the references inside `value`. The reader of the document has limited the depth of `value`."""
    if isinstance(value, dict):
        for key, member in value.items():
            if "${" in key:
                yield f"reference in the name {key!r}; only values can be references"
            yield from _reference_problems(member, known)
    elif isinstance(value, list):
        for member in value:
            yield from _reference_problems(member, known)
    elif isinstance(value, str):
        yield from _text_problems(value, known)


def _text_problems(value: str, known: _Known) -> Iterator[str]:
    try:
        found = pieces(value)
    except ValueError as error:
        yield str(error)
        return
    for piece in found:
        if isinstance(piece, Argument):
            yield from _argument_problems(piece.name, known, is_whole=len(found) == 1)
        elif not isinstance(piece, str) and piece.step not in known.steps:
            yield f"{piece} is not an earlier step; earlier steps: {', '.join(known.steps) or 'none'}"


def _argument_problems(name: str, known: _Known, *, is_whole: bool) -> Iterator[str]:
    if name not in known.inputs:
        yield f"${{args.{name}}} is not an input; inputs: {', '.join(known.inputs) or 'none'}"
    elif not is_whole and not known.inputs[name].is_always_there:
        yield (
            f"input {name!r} is optional and stands inside a longer text; make it required, give it a default, "
            "or use it as the whole value"
        )
    elif not is_whole and known.inputs[name].type in ("array", "object"):
        yield (
            f"input {name!r} is an {known.inputs[name].type} and stands inside a longer text; use it as the whole value"
        )


def _approval(table: Table) -> ApprovalRule:
    defaults = ApprovalRule()
    expires_in_s = defaults.expires_in_s
    if "expires_in" in table:
        expires_in_s = table.parsed("expires_in", _duration_s)
    return ApprovalRule(
        required=table.boolean("required", defaults.required),
        expires_in_s=expires_in_s,
        irreversible=table.boolean("irreversible", defaults.irreversible),
        undo_window_s=_undo_window_s(table, defaults),
    )


def _undo_window_s(table: Table, defaults: ApprovalRule) -> int:
    seconds = table.integer("undo_window_s", defaults.undo_window_s)
    if seconds and not table.boolean("required", defaults.required):
        raise table.refuse("undo_window_s", "undo_window_s holds an approved run, so it needs required = true")
    return seconds


def _maybe_preview(
    approval: Table,
    connectors: tuple[RequiredConnector, ...],
    steps: tuple[StepSpec, ...],
    inputs: tuple[InputSpec, ...],
) -> PreviewRule | None:
    if "preview" not in approval:
        return None
    if not approval.boolean("required", False):
        raise approval.refuse("preview", "[approval.preview] is shown to the approver, so it needs required = true")
    table = approval.table("preview")
    connector, op = _previewed(table, connectors), _op(table)
    if op not in connector.capabilities:
        listed = ", ".join(connector.capabilities)
        raise table.refuse("op", f"preview: op {op!r} is not in the capabilities of {connector.name}; listed: {listed}")
    if any((step.connector, step.op) == (connector.name, op) for step in steps):
        raise table.refuse(
            "op", f"preview: op {op!r} is a step of this action; a preview only reads, before anything is done"
        )
    return PreviewRule(
        connector=connector.name,
        op=op,
        inputs=_given(table, "preview", _Known({spec.name: spec for spec in inputs}, ())),
        render=_render(table),
        multiline=_multiline(table),
    )


def _previewed(table: Table, connectors: tuple[RequiredConnector, ...]) -> RequiredConnector:
    listed = {connector.name: connector for connector in connectors}
    if "connector" not in table:
        if len(connectors) > 1:
            raise table.refuse(None, f"preview: name its connector, one of {', '.join(map(str, listed))}")
        return connectors[0]
    name = table.parsed("connector", Fqn.parse)
    if name not in listed:
        raise table.refuse(
            "connector", f"preview: {name} is not in [[requires.connectors]]; listed: {', '.join(map(str, listed))}"
        )
    return listed[name]


def _render(table: Table) -> dict[str, str]:
    paths: dict[str, str] = {}
    for label, path in table.free("render").items():
        if not label.strip() or label != label.strip() or len(label) > _MAX_LABEL:
            raise table.refuse(
                "render", f"label {label!r} must have 1 to {_MAX_LABEL} characters, without blanks at the ends", label
            )
        if not isinstance(path, str):
            raise table.refuse("render", f"label {label!r}: the path into the answer must be a string", label)
        if not _PATH.fullmatch(path) or len(path) > _MAX_PATH or hidden_at(path) is not None:
            problem = "names or indexes with dots between, such as payload.headers.Subject, after ... at any depth"
            raise table.refuse("render", f"label {label!r}: {path!r} is not a path into the answer: {problem}", label)
        paths[label] = path
    return paths


def _multiline(table: Table) -> frozenset[str]:
    labels, known = table.strings("multiline"), table.free("render")
    for label in labels:
        if label not in known:
            raise table.refuse(
                "multiline", f"multiline: {label!r} is not a label of render; labels: {', '.join(known)}"
            )
    return frozenset(labels)


def _duration_s(text: str) -> int:
    match = _DURATION.fullmatch(text)
    seconds = int(match[1]) * _SECONDS[match[2]] if match else 0
    if seconds not in _EXPIRES_IN_S:
        raise ValueError(f"{text!r} is not a duration from 1s to 24h, such as 30s, 15m or 1h")
    return seconds


def _source(table: Table) -> str | None:
    def check(text: str) -> str:
        name, separator, version = text.rpartition("@")
        if not separator:
            raise ValueError(f"{text!r} has no version; expected NAME@VERSION")
        return f"{Fqn.parse(name)}@{check_semver(version)}"

    return table.parsed("source", check) if "source" in table else None


def _name(table: Table, key: str, grammar: re.Pattern[str], words: str) -> str:
    value = table.string(key)
    if not grammar.fullmatch(value):
        raise table.refuse(key, f"{key} {value!r} is not {words}, at most 64")
    return value


def _words(table: Table, key: str) -> str:
    value = table.string(key).strip()
    if not value:
        raise table.refuse(key, f"{key} is empty")
    return value


def _only(pins: Sequence[str], connector: RequiredConnector, file: str) -> str:
    name = f"{connector.name}@{connector.version}"
    if len(pins) == 1:
        return pins[0]
    if not pins:
        message = f"{file}: {name} is not installed: aileron connector install PATH"
        raise AileronError(FailureClass.NOT_FOUND, message, boundary=Boundary.ACTION)
    raise _refused(
        file, None, f"{name} is installed more than once; write the hash of the one you mean: {', '.join(pins)}"
    )


def _refused(file: str, line: int | None, problem: str) -> AileronError:
    return refusal(file, line, problem, Boundary.ACTION)
