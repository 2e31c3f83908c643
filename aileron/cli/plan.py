"""What would be done, as a person reads it: for `run --dry-run`, `approval show`, and before a decision.

Runs in commands. A plan is the daemon's, but its arguments are an agent's and its names a stranger's: every value is shown whole,
on lines that cannot pass for ours.

Source: model/plan.py, whose JSON this is. Not here: deciding.
"""

from __future__ import annotations

from typing import Any

from aileron.cli import output
from aileron.cli.visible import visible_lines

__all__ = ["COLUMN", "print_plan"]

COLUMN = 12
"""Where values begin, in the plan and in what stands above it."""
_PARTS = ("kind", "service", "identity")


def print_plan(plan: dict[str, Any], stream: str = "stdout") -> None:
    """Its arguments and steps; on `stderr` as part of a question."""
    output.print_facts([("arguments", _arguments(plan.get("args") or {}))], stream, column=COLUMN)
    for number, step in enumerate(plan.get("steps") or [], start=1):
        connector, grant = step.get("connector") or {}, step.get("grant") or {}
        output.write("", stream)
        output.print_facts(
            [
                (f"step {number}", f"{step.get('id')}: {step.get('op')}"),
                ("connector", f"{connector.get('name')}@{connector.get('version')}"),
                ("hash", connector.get("hash")),
                ("reaches", [_host(host) for host in grant.get("hosts") or []] or "nothing"),
                ("credential", _credential(grant.get("credential")) or "none"),
                ("repeated", "if need be" if step.get("idempotent") else "never"),
                ("given", _arguments(step.get("args") or {})),
            ],
            stream,
            column=COLUMN,
        )


def _arguments(args: dict[str, Any]) -> list[str] | str:
    """One line for each, and one for each line of a text that has several."""
    lines: list[str] = []
    for name, value in args.items():
        if isinstance(value, str) and "\n" in value:
            lines += [f"{name} =", *(f"│ {line}" for line in visible_lines(value))]
        else:
            lines.append(f"{name} = {_quoted(value)}")
    return lines or "none"


def _quoted(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)


def _host(value: Any) -> str:
    return f"{value.get('host')}:{value.get('port')}" if isinstance(value, dict) else str(value)


def _credential(use: Any) -> str | None:
    if not isinstance(use, dict):
        return None
    name = use.get("binding")
    return "/".join(str(name.get(part)) for part in _PARTS) if isinstance(name, dict) else str(name)
