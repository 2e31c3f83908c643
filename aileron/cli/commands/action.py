"""`aileron action`: the Markdown files that agents may run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from aileron.cli import output
from aileron.cli.commands.completion import action_names
from aileron.cli.commands.done import tell_done
from aileron.cli.commands.options import AsJson, PassphraseFile, Yes
from aileron.cli.deciding import carry_through
from aileron.cli.problem import OK, Problem
from aileron.cli.prompts import passphrase_from
from aileron.cli.run import report
from aileron.cli.supervisor import Supervisor, path_of
from aileron.model.visible import visible

__all__ = ["add", "disable", "enable", "list_", "remove", "show", "validate"]

_MAX_BYTES = 1 << 20
"""1 MiB, four times what an action file may have: the reader says what is too much."""

Name = Annotated[str, typer.Argument(metavar="NAME", help="The action.", autocompletion=action_names)]
Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Action files.")]


def add(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The action file.")],
    force: Annotated[bool, typer.Option("--force", help="Take the place of another action of that name.")] = False,
    yes: Yes = False,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Install an action file.

    A placeholder hash is bound to the one installed connector of that name and version. Where an approver exists it waits
    for their signature, which is asked for at a terminal.
    """
    asked: dict[str, Any] = {"text": _text_of(file), "file": str(file)}
    if force:
        asked["replace"] = True
    supervisor = Supervisor(passphrase=passphrase_from(passphrase_file))
    answer = supervisor.ask("POST", "/v1/actions", asked)
    raise typer.Exit(carry_through(supervisor, answer, tell_done, kind="action_file", yes=yes, as_json=as_json))


def list_(as_json: AsJson = False) -> None:
    """List the installed actions."""
    actions = Supervisor().ask("GET", "/v1/actions")["actions"]
    if as_json:
        output.print_json({"actions": actions})
        return
    output.print_table(
        ("NAME", "VERSION", "STATE", "INTENT"),
        [(entry["name"], entry.get("version"), _state(entry), _about(entry)) for entry in actions],
        empty="no action is installed\n  fix: aileron action add FILE",
    )


def show(name: Name, as_json: AsJson = False) -> None:
    """Show one action: its inputs, steps, reach and text."""
    action = Supervisor().ask("GET", path_of("v1", "actions", name))
    if as_json:
        output.print_json(action)
        return
    output.print_facts(
        [
            ("name", action["name"]),
            ("version", action.get("version")),
            ("intent", action.get("intent")),
            ("state", _state(action)),
            ("approval", "a person is asked" if action.get("gated") else "nobody is asked"),
            ("connectors", action.get("connectors")),
            ("steps", [_step(step) for step in action.get("steps", [])]),
            ("reaches", action.get("hosts") or "nothing"),
            ("digest", action.get("digest")),
        ]
    )
    _print_inputs(action)
    if action.get("body", "").strip():
        output.write("")
        output.print_block(action["body"].strip("\n"))


def _print_inputs(action: dict[str, Any]) -> None:
    """Each with what a value has to fit, as a call is held against it."""
    inputs = action.get("inputs", [])
    if not inputs:
        return
    shown = (action.get("input_schema") or {}).get("properties") or {}
    rules = {spec["name"]: _rule(shown.get(spec["name"]) or {}) for spec in inputs}
    titles = ("INPUT", "TYPE", "REQUIRED", "DESCRIPTION", *(("RULE",) if any(rules.values()) else ()))
    rows = [
        (spec["name"], spec["type"], spec["required"], spec.get("description"), rules[spec["name"]]) for spec in inputs
    ]
    output.write("")
    output.print_table(titles, [row[: len(titles)] for row in rows], empty="")


def _rule(schema: dict[str, Any]) -> str:
    """In the keywords that a refusal names: `maximum 9, default 3`."""
    rule = {key: value for key, value in schema.items() if key not in ("type", "description")}
    return ", ".join(f"{key} {json.dumps(value, ensure_ascii=False)}" for key, value in rule.items())


def validate(files: Files) -> None:
    """Check action files, without a daemon."""
    from aileron.actions.manifest import parse_action
    from aileron.model.failure import AileronError

    worst = OK
    for file in files:
        try:
            action = parse_action(_text_of(file), file=str(file), allow_placeholder=True)
        except AileronError as failed:
            worst = max(worst, report(Problem.of_failure(failed), as_json=False))
        else:
            output.write(f"{visible(str(file))}: ok, {visible(action.name)} {action.version}")
    if worst != OK:
        raise typer.Exit(worst)


def enable(name: Name) -> None:
    """Let an action be run."""
    _switch(name, True)


def disable(name: Name) -> None:
    """Keep an action from being run, and its file."""
    _switch(name, False)


def remove(name: Name) -> None:
    """Delete an action's file."""
    Supervisor().ask("DELETE", path_of("v1", "actions", name))
    output.note(f"removed {visible(name)}")


def _switch(name: str, enabled: bool) -> None:
    Supervisor().ask("PATCH", path_of("v1", "actions", name), {"enabled": enabled})
    output.note(f"{visible(name)} is {'enabled' if enabled else 'disabled'}")


def _text_of(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            data = opened.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise Problem.usage(f"{file}: more than {_MAX_BYTES} bytes")
        return data.decode()
    except FileNotFoundError:
        raise Problem.missing(f"{file}: there is no such file") from None
    except OSError as error:
        raise Problem.usage(f"{file}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise Problem.usage(f"{file}: not UTF-8 at byte {error.start}") from None


def _state(entry: dict[str, Any]) -> str:
    if entry.get("problem"):
        return "broken"
    state = "enabled" if entry.get("enabled") else "disabled"
    return f"{state}, gated" if entry.get("gated") else state


def _about(entry: dict[str, Any]) -> Any:
    return entry.get("problem") or entry.get("intent")


def _step(step: dict[str, Any]) -> str:
    connector = step.get("connector")
    if isinstance(connector, dict):
        connector = f"{connector.get('scheme')}://{'/'.join(connector.get('path', []))}"
    again = "may be repeated" if step.get("idempotent") else "at most once"
    return f"{step.get('id')}: {step.get('op')} of {connector}, {again}"
