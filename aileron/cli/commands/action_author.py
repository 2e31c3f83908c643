"""`aileron action new` and `aileron action schema`: for who writes an action file.

`schema` needs no daemon. `new` asks a running one for a connector's pin, and starts none.
"""

from __future__ import annotations

import difflib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aileron.cli import output
from aileron.cli.problem import Problem, local_work
from aileron.cli.supervisor import Supervisor
from aileron.model.visible import visible

if TYPE_CHECKING:
    from aileron.model.names import Fqn

__all__ = ["new", "schema"]

_SOME_CONNECTOR = "github://owner/repository"
_SOME_VERSION = "0.1.0"
_SOME_OP = "some_operation"
_TEXT = """\
+++
# Every key there may be: docs/reference/action-file.md, or `aileron action schema`.
name = "{name}"
version = "0.1.0"

[[requires.connectors]]
name = "{connector}"
version = "{version}"
{hash_note}hash = "{hash}"
# The operations that the steps below use, and no others.
capabilities = ["{op}"]

[match]
# One phrase a person would say.
intent = "{intent}"

# What a caller gives; read by the model, so with an example where the form matters.
{inputs}
# The steps, in order. The operation gets the inputs, and what [execute.inputs] says beside them.
[[execute]]
id = "first"
connector = "{connector}"
op = "{op}"
# True only for what reads: it may then be run again by itself after a failure that passes.
idempotent = false

[execute.inputs]
{given}

# Whether a person decides before each run. False only where nothing is sent, paid, created or changed.
[approval]
required = true
expires_in = "15m"
+++

# {title}

What it does, and when to call it: an agent reads this as the tool's description.
"""


_SOME_INPUT: dict[str, Any] = {"name": "text", "required": True, "types": ["string"]}
_TYPES = ("string", "integer", "number", "boolean", "array", "object")
_RULES = ("minimum", "maximum", "min_length", "max_length")


def schema(
    manifest: Annotated[
        bool, typer.Option("--manifest", help="Of a connector's manifest.toml, in place of an action's frontmatter.")
    ] = False,
) -> None:
    """Print JSON Schema for an editor.

    It describes the TOML as JSON, in the dialect 2020-12: all that it refuses, Aileron refuses.
    """
    from aileron.model.described import json_schema

    if manifest:
        from aileron.registry.manifest import SCHEMA as FIELDS

        _print(json_schema(FIELDS, "Aileron: a connector's manifest.toml"))
        return
    from aileron.actions.manifest import SCHEMA

    _print(json_schema(SCHEMA, "Aileron: the frontmatter of an action file"))


def _print(found: dict[str, Any]) -> None:
    output.write(json.dumps(found, indent=2))  # also in a pipe: it becomes a file that people keep


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The action's name: lower case, as in send-email.")],
    connector: Annotated[
        str | None,
        typer.Option("--connector", metavar="NAME[@VERSION]", help="What it calls; an installed one, for its hash."),
    ] = None,
    op: Annotated[str, typer.Option("--op", metavar="OP", help="The operation it calls.")] = _SOME_OP,
    file: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="The file to write; NAME.md unless said.")
    ] = None,
) -> None:
    """Write a new action file, with every choice explained, to be edited and added.

    What is not known stands there as a placeholder. Of a connector that is installed the inputs are those of the operation,
    and an unknown one is refused. No file is ever overwritten.
    """
    from aileron.actions.manifest import parse_action
    from aileron.model.names import UNBOUND_HASH

    _check_names(name, op)
    called, version = _named(connector)
    pin = None if called is None else _installed(called, version)
    parameters = _parameters(pin, op)
    words = name.replace("-", " ").replace("_", " ").replace(".", " ")
    text = _TEXT.format(
        name=name,
        connector=called or _SOME_CONNECTOR,
        version=(pin or {}).get("version") or version or _SOME_VERSION,
        hash=(pin or {}).get("hash") or UNBOUND_HASH,
        hash_note="" if pin else "# `aileron action add` puts the hash of the installed connector here.\n",
        op=op,
        inputs="".join(map(_input, parameters)),
        given="\n".join(f'{one["name"]} = "${{args.{one["name"]}}}"' for one in parameters),
        intent=words,
        title=words.capitalize(),
    )
    with local_work():
        parse_action(text, file=f"{name}.md", allow_placeholder=True)
    written = Path(f"{name}.md") if file is None else file
    _write_new(written, text)
    output.write(str(visible(str(written))))
    output.note(_next(called, op, pin, written))


def _check_names(name: str, op: str) -> None:
    """Return if both may stand between quotes. Problem otherwise: nothing else is put into the text as it was typed."""
    from aileron.model.names import ACTION_NAME, OP_NAME

    if not ACTION_NAME.fullmatch(name):
        raise Problem.usage(f"name {name!r} is not lower-case letters, digits, '.', '_', '-', at most 64")
    if not OP_NAME.fullmatch(op):
        raise Problem.usage(f"--op {op!r} is not a lower-case letter, then letters, digits, '_', at most 64")


def _named(connector: str | None) -> tuple[Fqn | None, str | None]:
    from aileron.model.names import Fqn, check_semver

    if connector is None:
        return None, None
    name, separator, version = connector.partition("@")
    try:
        return Fqn.parse(name), check_semver(version) if separator else None
    except ValueError as error:
        raise Problem.usage(f"--connector {error}", fix="aileron connector list") from None


def _installed(name: Fqn, version: str | None) -> dict[str, Any] | None:
    """The one that is meant, where a daemon runs and has just one such; None otherwise."""
    answer = Supervisor().maybe_ask("/v1/connectors") or {}
    found = [
        entry
        for entry in answer.get("connectors", [])
        if entry.get("name") == str(name) and version in (None, entry.get("version"))
    ]
    return found[0] if len(found) == 1 else None


def _parameters(pin: dict[str, Any] | None, op: str) -> list[dict[str, Any]]:
    """Those of the operation, the required ones first; one to begin with where that is not recorded. Problem: no such one."""
    from aileron.model.names import INPUT_NAME

    operations = None if pin is None else pin.get("operations")
    if operations is None or op == _SOME_OP:
        return [_SOME_INPUT]
    found = {str(one["name"]): one for one in operations}
    if op not in found:
        near = difflib.get_close_matches(op, found, n=1)
        why = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(found))}"
        raise Problem.usage(f"the connector has no operation {op!r}", why=why)
    parameters = [one for one in found[op].get("parameters") or [] if INPUT_NAME.fullmatch(str(one["name"]))]
    return sorted(parameters, key=lambda one: not one.get("required", True))


def _input(parameter: dict[str, Any]) -> str:
    """One `[[inputs]]` for a parameter, with the rules that an input can have. Its description is the author's."""
    types = parameter.get("types") or []
    kind = next((one for one in _TYPES if one in types), "string")
    lines = [
        "[[inputs]]",
        f'name = "{parameter["name"]}"',
        f'type = "{kind}"',
        'description = "…, for example …"',
    ]
    if not parameter.get("required", True):
        lines.append("required = false")
    is_text, is_number = kind == "string", kind in ("integer", "number")
    fitting = {"minimum": is_number, "maximum": is_number, "min_length": is_text, "max_length": is_text}
    lines += [
        f"{key} = {json.dumps(parameter[key])}" for key in _RULES if parameter.get(key) is not None and fitting[key]
    ]
    choices = [one for one in parameter.get("enum") or [] if isinstance(one, str) is is_text]
    if choices and (is_text or is_number):
        lines.append(f"enum = {json.dumps(choices, ensure_ascii=False)}")
    if kind == "array" and len(parameter.get("items") or []) == 1:
        lines.append(f'schema = {{ items = {{ type = "{parameter["items"][0]}" }} }}')
    return "\n".join(lines) + "\n\n"


def _write_new(file: Path, text: str) -> None:
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        raise Problem.usage(f"{file} is there already, and is not overwritten: name another with -o FILE") from None
    except OSError as error:
        raise Problem.usage(f"{file}: {error.strerror or error}") from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(text)


def _next(connector: Fqn | None, op: str, pin: dict[str, Any] | None, file: Path) -> str:
    missing = [
        what
        for what, is_known in (
            ("the connector", connector is not None),
            ("its version", pin is not None),
            ("the operation", op != _SOME_OP),
        )
        if not is_known
    ]
    open_yet = f"still to be named: {', '.join(missing)}; " if missing else ""
    return f"{open_yet}then: aileron action add {visible(str(file))}"
