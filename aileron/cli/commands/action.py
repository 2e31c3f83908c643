"""`aileron action`: the Markdown files that agents may run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import UNSET

from aileron.api.actions import (
    ActionDetail,
    ActionEntry,
    ActionList,
    ActionSwitched,
    SwitchAction,
)
from aileron.api.daemon import Removed
from aileron.cli import output
from aileron.cli.commands.completion import action_names
from aileron.cli.commands.options import AsJson
from aileron.cli.declared import Argument, Exit
from aileron.cli.own_files import text_of
from aileron.cli.problem import OK, Problem, report
from aileron.cli.supervisor import Supervisor, path_of
from aileron.model.json_value import JSONObject, checked_dict, dict_of, list_of
from aileron.model.visible import visible

if TYPE_CHECKING:
    from aileron.model.manifest import ConnectorManifest
    from aileron.model.plan import ConnectorPin

__all__ = ["Name", "disable", "enable", "list_", "remove", "show", "validate"]

_SUSPENDED = "suspended: the server changed this tool"

Name = Annotated[str, Argument(metavar="NAME", help="Name of the action.", autocompletion=action_names)]
Files = Annotated[list[Path], Argument(metavar="FILE...", help="Action files to check.")]


def list_(as_json: AsJson = False) -> None:
    """List installed actions."""
    found = Supervisor().fetch(ActionList, "GET", "/v1/actions")
    output.print_list(
        found,
        ("NAME", "VERSION", "STATE", "INTENT", "SOURCE"),
        (
            (action.name, action.version or None, _state(action), _about(action), _source(action))
            for action in found.actions
        ),
        as_json=as_json,
        empty="no actions installed\n  fix: aileron action add FILE",
        below=2,
    )


def show(name: Name, as_json: AsJson = False) -> None:
    """Show an action: its inputs, steps, hosts and text."""
    action = Supervisor().fetch(ActionDetail, "GET", path_of("v1", "actions", name))
    if as_json:
        output.print_json(action)
        return
    output.print_facts(
        [
            ("name", action.name),
            ("version", action.version or None),
            ("source", _source(action)),
            ("intent", action.intent or None),
            ("tags", ", ".join(action.tags or []) or None),
            ("state", _state(action)),
            ("suspended", [f"{op}: aileron action resume {name}" for op in action.suspended or []] or None),
            ("approval", "required" if action.gated else "not required"),
            ("connectors", None if action.connectors is UNSET else action.connectors),
            ("steps", [_step(step) for step in action.steps]),
            ("reaches", action.hosts or "nothing"),
            ("digest", action.digest),
        ]
    )
    _print_inputs(action)
    if action.body.strip():
        output.write("")
        output.print_block(action.body.strip("\n"))


def _print_inputs(action: ActionDetail) -> None:
    """Print a table of the action's inputs, with the constraints that their values must meet."""
    if not action.inputs:
        return
    shown = checked_dict(action.input_schema.get("properties") or {})
    rules = {spec.name: _rule(dict_of(shown.get(spec.name))) for spec in action.inputs}
    titles = ("INPUT", "TYPE", "REQUIRED", "DESCRIPTION", *(("RULE",) if any(rules.values()) else ()))
    rows = [(spec.name, spec.type, spec.required, spec.description, rules[spec.name]) for spec in action.inputs]
    output.write("")
    output.print_table(titles, [row[: len(titles)] for row in rows], empty="")


def _rule(schema: JSONObject) -> str:
    """Return an input's constraints as text, in the JSON Schema keywords that a refusal also uses: `maximum 9, default 3`."""
    rule = {key: value for key, value in schema.items() if key not in ("type", "description")}
    return ", ".join(f"{key} {json.dumps(value, ensure_ascii=False)}" for key, value in rule.items())


def validate(files: Files) -> None:
    """Check action files.

    Needs no daemon. Steps are also checked against the operations of installed connectors.
    """
    from aileron.actions.fitting import check_action
    from aileron.actions.manifest import parse_action
    from aileron.model.failure import AileronError

    worst = OK
    installed = _installed_manifests()
    for file in files:
        try:
            action = parse_action(text_of(file), file=str(file), allow_placeholder=True)
            check_action(action, installed, file=str(file))
        except AileronError as failed:
            worst = max(worst, report(Problem.of_failure(failed), as_json=False))
        else:
            output.write(f"{visible(str(file))}: ok, {visible(action.name)} {action.version}")
    if worst != OK:
        raise Exit(worst)


def _installed_manifests() -> Callable[[ConnectorPin], ConnectorManifest | None]:
    """Return a function that returns the manifest of the connector with a pin; None if that connector is not installed.

    A pin with the placeholder hash means the only installed connector of that name and version, as in `action add`.
    """
    from aileron.home import Home
    from aileron.model.names import UNBOUND_HASH, Fqn
    from aileron.registry.content import ContentStore

    store = ContentStore(Home.from_environment().connectors)

    def manifest(pin: ConnectorPin) -> ConnectorManifest | None:
        if pin.hash != UNBOUND_HASH:
            return store.maybe_manifest(pin)
        found = store.find(Fqn.parse(pin.name), pin.version)
        return store.maybe_manifest(found[0]) if len(found) == 1 else None

    return manifest


def enable(name: Name) -> None:
    """Enable an action, so that it can run."""
    _switch(name, True)


def disable(name: Name) -> None:
    """Disable an action, but keep its file."""
    _switch(name, False)


def remove(name: Name) -> None:
    """Remove an action and delete its file."""
    Supervisor().fetch(Removed, "DELETE", path_of("v1", "actions", name))
    output.note(f"removed {visible(name)}")


def _switch(name: str, enabled: bool) -> None:
    Supervisor().fetch(ActionSwitched, "PATCH", path_of("v1", "actions", name), SwitchAction(enabled=enabled))
    output.note(f"{visible(name)} is {'enabled' if enabled else 'disabled'}")


def _state(entry: ActionEntry) -> str:
    if entry.problem:
        return "broken"
    if entry.suspended:
        return _SUSPENDED
    state = "enabled" if entry.enabled else "disabled"
    return f"{state}, gated" if entry.gated else state


def _about(entry: ActionEntry) -> str | None:
    return entry.problem or entry.intent or None


def _source(entry: ActionEntry) -> str | None:
    """Return the source that the action's file specifies, or "your own" if it specifies none. None if the file cannot be read."""
    return None if entry.problem else entry.source or "your own"


def _step(step: JSONObject) -> str:
    connector = step.get("connector")
    if isinstance(connector, dict):
        connector = f"{connector.get('scheme')}://{'/'.join(map(str, list_of(connector.get('path'))))}"
    again = "safe to repeat" if step.get("idempotent") else "not repeated"
    return f"{step.get('id')}: {step.get('op')} of {connector}, {again}"
