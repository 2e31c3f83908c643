"""`aileron action new` and `aileron action schema`: for authors of action files.

`schema` needs no daemon. `new` asks a running one for a connector's pin, and starts none.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import UNSET

from aileron.actions.operation_names import guessed_effect, words_of
from aileron.api.connectors import ConnectorEntry, ConnectorList
from aileron.cli import output
from aileron.cli.declared import Argument, Option
from aileron.cli.problem import Problem, local_work, parsed
from aileron.cli.supervisor import Supervisor
from aileron.client import is_in_cell
from aileron.model.effect import Effect
from aileron.model.json_value import JSONObject
from aileron.model.manifest import Operation, Parameter
from aileron.model.names import ACTION_NAME, INPUT_NAME, OP_NAME, UNBOUND_HASH, Fqn, check_semver
from aileron.model.visible import visible

__all__ = ["new", "new_text", "schema"]

_SOME_CONNECTOR = "github://owner/repository"
_SOME_VERSION = "0.1.0"
_TEXT = """\
+++
# Every key there may be: docs/reference/action-file.md, or `aileron action schema`.
name = "{name}"
version = "0.1.0"
# What a person who is asked reads first. {{NAME}} is an argument, or a line of the preview.
summary = "{summary}"

[[requires.connectors]]
name = "{connector}"
version = "{version}"
{hash_note}hash = "{hash}"
# The operations that the steps below use, and no others.
capabilities = ["{op}"]

[match]
# One phrase a person would say.
intent = "{intent}"

{inputs}# The steps, in order. The operation gets the inputs, and what [execute.inputs] says beside them.
[[execute]]
id = "{step}"
connector = "{connector}"
op = "{op}"
{effect}{given}
{approval}+++

# {title}

{body}
"""


_INPUTS = "# What a caller gives; read by the model, so with an example where the form matters.\n"
_EFFECTS: Final = " or ".join(", ".join(Effect).rsplit(", ", 1))
_KNOWN_EFFECT = """\
# What the operation does: {effects}. A person who is asked sees it.
effect = "{effect}"
"""
_UNKNOWN_EFFECT = """\
# What the operation does: {effects}. Until it is said, a person who is asked has to type "yes".
# effect = "change"
"""
_IDEMPOTENT = """\
# True only for what reads: it may then be run again by itself after a failure that passes.
idempotent = {idempotent}
"""
_ASKS = """\
# A person decides before each run. False only where nothing is sent, paid, created or changed.
[approval]
required = true
expires_in = "15m"
"""
_DOES_NOT_ASK = """\
# It only reads, so nobody is asked.
[approval]
required = false
"""


_TYPES = ("string", "integer", "number", "boolean", "array", "object")
_MAX_SUMMARY = 80
"""Maximum number of characters of a summary: a line of a terminal. An action file allows 120."""
_MAX_IN_SUMMARY = 2
"""Maximum number of arguments in a summary.

In most operations, the arguments that distinguish one call from another come first.
"""
_MAX_FIXED = 1000
"""Maximum number of characters of a generated placeholder text. If a parameter needs a longer one, none is generated,
because nobody would edit it.
"""


def schema(
    manifest: Annotated[
        bool, Option("--manifest", help="Print the schema of a connector's manifest.toml instead.")
    ] = False,
) -> None:
    """Print a JSON Schema of the action file, for your editor.

    It describes the TOML frontmatter as JSON (draft 2020-12). Whatever the schema rejects, Aileron rejects too.
    """
    from aileron.model.described import json_schema

    if manifest:
        from aileron.registry.manifest import SCHEMA as FIELDS

        _print(json_schema(FIELDS, "Aileron: connector manifest (manifest.toml)"))
        return
    from aileron.actions.manifest import SCHEMA

    _print(json_schema(SCHEMA, "Aileron: action file frontmatter"))


def _print(found: JSONObject) -> None:
    output.write(json.dumps(found, indent=2))  # also in a pipe: it becomes a file that people keep


def new(
    name: Annotated[str, Argument(metavar="NAME", help="Name of the action, in lower case, such as send-email.")],
    connector: Annotated[
        str | None,
        Option(
            "--connector",
            metavar="NAME[@VERSION]",
            help="Connector to call. Default: the installed connector that has the operation.",
        ),
    ] = None,
    op: Annotated[
        str | None,
        Option("--op", metavar="OP", help="Operation to call. Default: derived from NAME, such as send_email."),
    ] = None,
    effect: Annotated[
        Effect | None,
        Option("--effect", help="What the operation does. Only with read is no approval needed."),
    ] = None,
    file: Annotated[
        Path | None, Option("-o", "--output", metavar="FILE", help="File to write. Default: NAME.md.")
    ] = None,
) -> None:
    """Create an action file with a comment at each choice.

    If the connector is installed, inputs are taken from the operation, and an unknown operation is refused. Each run needs your
    approval, unless you give --effect read. Existing files are never overwritten.
    """
    from aileron.actions.manifest import parse_action

    _check_names(name, op)
    called, version = _named(connector)
    meant = op or _op_named(name)
    pin = _installed(called, version, meant)
    if pin is not None and called is None:
        called, _ = _named(str(pin.name))
    text = new_text(
        name,
        meant,
        _operation(pin, meant),
        connector=str(called or _SOME_CONNECTOR),
        version=(pin and pin.version) or version or _SOME_VERSION,
        pin=None if pin is None else pin.hash,
        effect=effect,
    )
    with local_work():
        parse_action(text, file=f"{name}.md", allow_placeholder=True)
    written = Path(f"{name}.md") if file is None else file
    _write_new(written, text)
    output.write(str(visible(str(written))))
    output.note(_next(called, pin, written))


def _check_names(name: str, op: str | None) -> None:
    """Check that the names of a new action and of its operation are valid. They are the only typed text of an action
    file, inserted between quotes without escapes.

    Raises Problem otherwise.
    """
    if not ACTION_NAME.fullmatch(name):
        raise Problem.usage(
            f"invalid action name {name!r}: use lower-case letters, digits, '.', '_' and '-', 64 characters at most"
        )
    if op is not None and not OP_NAME.fullmatch(op):
        raise Problem.usage(
            f"invalid operation {op!r}: use a lower-case letter, then lower-case letters, digits and '_', 64 "
            "characters at most"
        )


def _op_named(name: str) -> str:
    """Return the operation that an action with this name calls if no option specifies one.

    Raises Problem if no valid operation name can be derived.
    """
    op = words_of(name).replace(" ", "_")
    if not OP_NAME.fullmatch(op):
        raise Problem.usage(f"{name!r} cannot be an operation's name", fix=f"aileron action new {name} --op OP")
    return op


def _named(connector: str | None) -> tuple[Fqn | None, str | None]:
    if connector is None:
        return None, None
    name, separator, version = connector.partition("@")
    fix = "aileron connector list"
    full_name = parsed("--connector", Fqn.parse, name, fix=fix)
    return full_name, parsed("--connector", check_semver, version, fix=fix) if separator else None


def _installed(name: Fqn | None, version: str | None, op: str) -> ConnectorEntry | None:
    """Return the connector with this name, or the one that has the operation, if a daemon runs and exactly one connector
    matches; None otherwise.
    """
    answer = None if is_in_cell() else Supervisor().maybe_fetch(ConnectorList, "/v1/connectors")
    every = [] if answer is None else answer.connectors
    if name is None:
        found = [entry for entry in every if op in _operations(entry)]
    else:
        found = [entry for entry in every if entry.name == str(name) and version in (None, entry.version)]
    return found[0] if len(found) == 1 else None


def _operations(pin: ConnectorEntry | None) -> dict[str, Operation]:
    """Return a connector's operations by name; empty if they are not recorded."""
    operations = UNSET if pin is None else pin.operations
    return {} if operations is UNSET or operations is None else {operation.name: operation for operation in operations}


def _operation(pin: ConnectorEntry | None, op: str) -> Operation | None:
    """Return the operation with that name; None if the connector's operations are not recorded.

    Raises Problem if there is no such operation.
    """
    found = _operations(pin)
    if found and op not in found:
        from aileron.cli.near import did_you_mean

        why, fix = did_you_mean(op, found) or (f"operations: {', '.join(sorted(found))}", None)
        raise Problem.usage(f"the connector has no operation {op!r}", why=why, fix=fix or "give --op OP")
    return found.get(op)


def new_text(
    name: str,
    op: str,
    operation: Operation | None,
    *,
    connector: str,
    version: str,
    pin: str | None = None,
    effect: Effect | None = None,
) -> str:
    """Return the text of a new action file that calls `op`. `operation` describes its parameters, if they are known;
    `pin` is the connector's hash if it is known.

    The required parameters come first. A run needs no approval only if the author says that `effect` is `read`. A
    guess from the operation's name is written into the file but decides nothing. Raises Problem(usage) if no action
    file can provide the parameters that the operation needs.
    """
    some = Operation(name=op, parameters=(Parameter(name="text", types=("string",)),))
    parameters = sorted((operation or some).parameters, key=lambda parameter: not parameter.required)
    inputs = [
        parameter for parameter in parameters if INPUT_NAME.fullmatch(parameter.name) and parameter.types != ("null",)
    ]
    given = [
        *(f'{parameter.name} = "${{args.{parameter.name}}}"' for parameter in inputs),
        *(_fixed(parameter, op) for parameter in parameters if parameter.required and parameter not in inputs),
    ]
    words = words_of(name)
    is_read = effect is Effect.READ
    return _TEXT.format(
        name=name,
        summary=_summary(words, inputs),
        connector=connector,
        version=version,
        hash=pin or UNBOUND_HASH,
        hash_note="" if pin else "# `aileron action add` puts the hash of the installed connector here.\n",
        op=op,
        step=f"{op.partition('_')[0]}_" if op.partition("_")[0] == "args" else op.partition("_")[0],
        inputs="".join([_INPUTS if inputs else "", *(_input(parameter, op) for parameter in inputs)]),
        effect=_effect(effect or guessed_effect(op)) + _IDEMPOTENT.format(idempotent=str(is_read).lower()),
        given="\n".join(["", "[execute.inputs]", *given, ""]) if given else "",
        approval=_DOES_NOT_ASK if is_read else _ASKS,
        intent=words,
        title=words.capitalize(),
        body=f"Calls `{op}` of {connector}. {'It only reads.' if is_read else 'A person is asked before each run.'}",
    )


def _summary(words: str, inputs: list[Parameter]) -> str:
    """Return the summary of a new action: the words of its name, followed by the first required arguments that fit on a
    line.
    """
    shown = [
        parameter.name for parameter in inputs if parameter.required and not {"array", "object"} & set(parameter.types)
    ]
    for most in range(_MAX_IN_SUMMARY, 0, -1):
        places = ", ".join(f"{{{name}}}" for name in shown[:most])
        if places and len(words) + 1 + len(places) <= _MAX_SUMMARY:
            return f"{words.capitalize()} {places}"
    return words.capitalize()


def _effect(effect: Effect | None) -> str:
    return (_UNKNOWN_EFFECT if effect is None else _KNOWN_EFFECT).format(effects=_EFFECTS, effect=effect)


def _input(parameter: Parameter, op: str) -> str:
    """Return an `[[inputs]]` entry for a parameter, with all constraints that an input supports and a generic description."""
    kind = next((type_name for type_name in _TYPES if type_name in parameter.types), "string")
    lines = [
        "[[inputs]]",
        f'name = "{parameter.name}"',
        f'type = "{kind}"',
        f'description = "The {words_of(parameter.name)} that {op} takes."',
    ]
    if not parameter.required:
        lines.append("required = false")
    lines += [f"{key} = {_toml(value)}" for key, value in _rules(parameter, kind)]
    return "\n".join(lines) + "\n\n"


def _rules(parameter: Parameter, kind: str) -> Iterator[tuple[str, Any]]:
    """Yield the constraints that an input of this type supports, as keys and values of its `[[inputs]]` entry.
    Contradictory bounds are left for the operation to report.
    """
    bounds: dict[str, int | float | None]
    match kind:
        case "string":
            bounds = {"min_length": parameter.min_length, "max_length": parameter.max_length}
        case "integer" | "number":
            bounds = {"minimum": parameter.minimum, "maximum": parameter.maximum}
        case "array":
            yield "schema", {"items": {"type": parameter.items[0]}} if len(parameter.items) == 1 else {}
            return
        case "object":
            yield "schema", {}
            return
        case _:
            return
    least, most = bounds.values()
    if least is None or most is None or least <= most:
        yield from ((key, value) for key, value in bounds.items() if value is not None)
    choices = [choice for choice in dict.fromkeys(parameter.enum) if isinstance(choice, str) is (kind == "string")]
    if choices:
        yield "enum", choices


def _fixed(parameter: Parameter, op: str) -> str:
    """Return a line of `[execute.inputs]` that gives a parameter one fixed value, because no input can have the
    parameter's name.

    Raises Problem(usage) if no value is known that the operation accepts.
    """
    from aileron.actions.fitting import value_problem

    least = parameter.min_length or 0
    some = "…" * max(1, least) if least <= _MAX_FIXED else ""
    numbers = [number for number in (parameter.minimum, parameter.maximum) if number is not None]
    whole = [math.ceil(number) for number in numbers]
    candidates: tuple[Any, ...] = (*parameter.enum, some, "", 0, *whole, *numbers, False, [], {})
    for value in candidates:
        if value_problem(parameter, value) is None and "${" not in str(value):
            return f"# Always this one value: an input cannot have that name.\n{parameter.name} = {_toml(value)}"
    is_null = parameter.types == ("null",)
    raise Problem.usage(
        f"operation {op!r} needs {parameter.name!r}, which an action file cannot provide",
        why="it accepts only null, which TOML does not have" if is_null else "no accepted value is known",
    )


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_toml(inner)}' for key, inner in value.items())} }}" if value else "{}"
    return json.dumps(value, ensure_ascii=False)  # visible text, numbers, booleans and lists of them are spelled alike


def _write_new(file: Path, text: str) -> None:
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        raise Problem.usage(f"{file} already exists; name another file with -o FILE") from None
    except OSError as error:
        raise Problem.usage(f"{file}: {error.strerror or error}") from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(text)


def _next(connector: Fqn | None, pin: ConnectorEntry | None, file: Path) -> str:
    missing = [what for what, is_known in (("the connector", connector), ("its version", pin)) if is_known is None]
    open_yet = f"fill in {', '.join(missing)}; " if missing else ""
    return f"{open_yet}then run: aileron action add {visible(str(file))}"
