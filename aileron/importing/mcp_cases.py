"""Test cases of imported tools: a call of each tool, with a made-up result.

The exchanges are made by the connector's own client with a simulated server that behaves as the frozen tools specify. A case is
omitted if no valid arguments are known.

Pure. Source: docs/reference/connector-cases.md. Not here: running them (aileron/connector_tests).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from aileron.importing.cases import example_arguments
from aileron.importing.operations import Imported
from aileron.importing.toml import toml_of
from aileron.model.json_value import JSONObject, dict_of
from aileron_connector.check import Schemas, maybe_problem
from aileron_connector.mcp.client import Answer, Client, Pairs
from aileron_connector.mcp.document import Tool, Tools
from aileron_connector.mcp.headers import argument_headers

__all__ = ["cases_text"]

_HEADER: Final = "# A call of each tool with a made-up result. `aileron connector test` runs them in a real jail.\n"
_RESULT: Final = {"content": [{"type": "text", "text": "done"}]}
_MAX_FILE: Final = 200 << 10
"""Maximum size of a file of cases in bytes; readers accept at most 256 KiB."""


def cases_text(tools: Tools, operations: Sequence[Imported]) -> str | None:
    """Return the text of the file of cases; None if there are no cases."""
    text, schemas = _HEADER, Schemas(tools.components.schemas)
    for operation in operations:
        tool = msgspec.json.decode(tools.tools[operation.name], type=Tool)
        case = "\n".join(_case(operation, tool, tools, schemas))
        if case and len(text) + len(case) < _MAX_FILE:
            text += f"\n{case}\n"
    return text if text != _HEADER else None


def _case(operation: Imported, tool: Tool, tools: Tools, schemas: Schemas) -> Iterator[str]:
    args = example_arguments(operation)
    if args is None:
        return
    properties = {argument: name for name, argument in tool.arguments.items()}
    given = args.get(tool.argument, {}) if tool.argument else {properties[name]: value for name, value in args.items()}
    if maybe_problem(given, tool.sent, schemas, reading="argument") is not None:
        return
    yield "[[case]]"
    yield f"name = {toml_of(f'{operation.name} calls the tool')}"
    yield f"op = {toml_of(operation.name)}"
    if args:
        yield f"args = {toml_of(args)}"
    yield 'output = { text = "done" }'
    for sent, answer in _exchanges(tool, tools, dict_of(given)):
        yield ""
        yield "[[case.exchange]]"
        yield 'method = "POST"'
        yield f"path = {toml_of(tools.path)}"
        yield f"sends = {toml_of(sent.decode())}"
        if tools.credential:
            yield f"credential = {toml_of(tools.credential)}"
        yield f"status = {200 if answer else 202}"
        if answer:
            yield 'headers = { "Content-Type" = "application/json" }'
            yield f"body = {toml_of(json.dumps(answer))}"


def _exchanges(tool: Tool, tools: Tools, given: JSONObject) -> list[tuple[bytes, JSONObject]]:
    """Return the messages that a client sends to call `tool`, each with the response of a made-up server that has only
    this tool.
    """
    found: list[tuple[bytes, JSONObject]] = []
    results = {
        "initialize": {"protocolVersion": tools.protocol, "capabilities": {"tools": {}}, "serverInfo": {}},
        "tools/list": {"tools": [tool.listed]},
        "tools/call": _RESULT,
    }

    def wire(method: str, headers: Pairs, body: bytes | None, give_up_at: float | None) -> Answer:
        message = msgspec.json.decode(body or b"{}")
        result = results.get(message.get("method"))
        answer = {} if result is None else {"jsonrpc": "2.0", "id": message["id"], "result": result}
        found.append((body or b"", answer))
        return _MadeUp(answer)

    with Client(wire) as client:
        client.open(tools.protocol)
        next(client.pages())
        client.call(str(tool.listed["name"]), given, argument_headers(tool.listed.get("inputSchema"), given))
    return found


class _JsonFields:
    """Headers of a made-up JSON response, read with `get`."""

    def get(self, name: str, default: str | None = None) -> str | None:
        return "application/json" if name == "content-type" else default


class _MadeUp:
    """A made-up HTTP response in the form that the MCP client reads."""

    def __init__(self, answer: JSONObject) -> None:
        self.status: Final = 200 if answer else 202
        self.headers: Final = _JsonFields()
        self.retry_after_s: Final = None
        self._body: Final = json.dumps(answer).encode()

    def iter_bytes(self) -> Iterator[bytes]:
        yield self._body

    def close(self) -> None:
        """Do nothing, because no connection is open."""
