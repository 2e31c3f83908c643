"""300 actions of fifteen services, as an importer of API descriptions would make them, and 60 requests that each mean one.

    texts = many_actions()                # name → action file
    for words, wanted in requests(): ...  # "file a bug in the github repo", {"github-create-issue"}

Both tables are data (tests/mcp/data), and the requests were written before anything ranked the actions.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["PROBE_PIN", "many_actions", "requests"]

DATA: Final = Path(__file__).parents[1] / "mcp" / "data"
PROBE_PIN: Final = "sha256:" + "a" * 64
_ASKS: Final = re.compile(r"(delete|send|post|refund|cancel|void|terminate|trash|empty|create-payout|unlock|disarm)")
_READS: Final = re.compile(r"(list|get|search|query|retrieve|compare|read|whos|download|export)")


class _Operation(NamedTuple):
    service: str
    title: str
    tags: tuple[str, ...]
    name: str
    summary: str
    description: str
    inputs: tuple[str, ...]


def many_actions(count: int = 300, *, pin: str = PROBE_PIN) -> dict[str, str]:
    """Return the text of each action file by its name; beyond 300 the same operations for further accounts.

    Each action calls `give_back` of the probe with this pin.
    """
    operations = list(_operations())
    found: dict[str, str] = {}
    for number in range(count):
        round_, place = divmod(number, len(operations))
        operation = operations[place]
        name = f"{operation.service}{round_ + 1 if round_ else ''}-{operation.name}"
        found[name] = _text(name, operation, pin)
    return found


def requests(file: str = "requests.txt") -> list[tuple[str, frozenset[str]]]:
    """Return each request's words, and the names of the actions that fulfil it.

    `requests_after.txt` has thirty more, which were written when the ranking was done.
    """
    return [
        (words, frozenset(names.split(", "))) for words, _, names in (line.partition(" => ") for line in _lines(file))
    ]


def _lines(file: str) -> list[str]:
    lines = (DATA / file).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def _operations() -> list[_Operation]:
    found: list[_Operation] = []
    service = title = ""
    tags: tuple[str, ...] = ()
    for line in _lines("operations.txt"):
        if heading := re.fullmatch(r"\[(\w+)\] (.+) \| (.+)", line):
            service, title, tags = heading[1], heading[2], tuple(heading[3].split())
            continue
        name, summary, description, inputs = line.split(" | ")
        found.append(_Operation(service, title, tags, name, summary, description, tuple(inputs.split())))
    return found


def _text(name: str, operation: _Operation, pin: str) -> str:
    inputs = "\n".join(
        f'[[inputs]]\nname = "{field}"\ntype = "string"\ndescription = "The {field.replace("_", " ")}."\nrequired = false\n'
        for field in (field.lower() for field in operation.inputs)
    )
    reads = _READS.match(operation.name) is not None
    gate = "" if reads or not _ASKS.match(operation.name) else "\n[approval]\nrequired = true\n"
    intent = operation.summary[0].lower() + operation.summary[1:]
    return f"""+++
name = "{name}"
version = "1.0.0"
tags = [{", ".join(f'"{tag}"' for tag in operation.tags)}]

[[requires.connectors]]
name = "github://aileron-tests/probe"
version = "1.0.0"
hash = "{pin}"
capabilities = ["give_back"]

[match]
intent = "{intent}"

{inputs}
[[execute]]
id = "call"
connector = "github://aileron-tests/probe"
op = "give_back"
idempotent = {str(reads).lower()}
{gate}+++

{operation.summary}.

{operation.description} {operation.title} API, operation `{operation.name.replace("-", "_")}`.
"""
