"""The notes server's tools for clients of the Model Context Protocol: one endpoint, no sessions, answers in JSON.

    POST /mcp       server/discover, tools/list, tools/call, in the revision 2026-07-28

Pure: this module turns a message into a response; the server has the functions that the tools call.

Source: Model Context Protocol 2026-07-28; docs/reference/cli.md. Not here: keys and the log (notes_server.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

__all__ = ["REVISION", "Doing", "answered"]

REVISION: Final = "2026-07-28"
_WHO: Final = {"io.modelcontextprotocol/serverInfo": {"name": "Notes", "version": "1.0.0"}}
_NOTE: Final = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "text": {"type": "string"}},
    "required": ["id", "text"],
}
_ID: Final = {"type": "integer", "minimum": 1, "description": "The number of the note.", "examples": [1]}
_TEXT: Final = {
    "type": "string",
    "minLength": 1,
    "maxLength": 500,
    "description": "What the note says.",
    "examples": ["Buy milk"],
}
_TOOLS: Final = (
    {
        "name": "list_notes",
        "title": "List notes",
        "description": "The newest notes, the newest first.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "limit": {"type": "integer", "minimum": 1, "maximum": 100, "description": "How many at most."}
            },
        },
        "outputSchema": {
            "type": "object",
            "properties": {"notes": {"type": "array", "items": _NOTE}},
            "required": ["notes"],
        },
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "add_note",
        "title": "Add a note",
        "description": "Adds a note.",
        "inputSchema": {"type": "object", "properties": {"text": _TEXT}, "required": ["text"]},
        "outputSchema": _NOTE,
        "annotations": {"readOnlyHint": False, "destructiveHint": False},
    },
    {
        "name": "delete_note",
        "title": "Delete a note",
        "description": "Deletes a note.",
        "inputSchema": {"type": "object", "properties": {"id": _ID}, "required": ["id"]},
        "annotations": {"readOnlyHint": False, "destructiveHint": True},
    },
)

Doing = Callable[[Mapping[str, object]], Any]
"""A tool's function, which takes the arguments and returns a value or None.

It raises ValueError if it cannot do what was asked.
"""


class _Call(msgspec.Struct):
    """The `params` of a JSON-RPC request, all optional."""

    name: str = ""
    arguments: dict[str, object] = {}


class _Request(msgspec.Struct):
    """A JSON-RPC request."""

    id: int | str
    method: str
    params: _Call = msgspec.field(default_factory=_Call)


def answered(body: bytes, tools: Mapping[str, Doing]) -> tuple[int, dict[str, object]]:
    """Return the HTTP status and the JSON-RPC message that respond to the request in `body`."""
    try:
        asked = msgspec.json.decode(body, type=_Request)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 400, _error(None, -32600, "not a request")
    found: dict[str, object]
    match asked.method:
        case "server/discover":
            found = {"supportedVersions": [REVISION], "capabilities": {"tools": {}}, "_meta": _WHO}
        case "tools/list":
            found = {"tools": _TOOLS, "ttlMs": 0, "cacheScope": "private"}
        case "tools/call" if asked.params.name in tools:
            found = _called(tools[asked.params.name], asked.params.arguments)
        case "tools/call":
            return 400, _error(asked.id, -32602, "no such tool")
        case _:
            return 404, _error(asked.id, -32601, "no such method")
    return 200, {"jsonrpc": "2.0", "id": asked.id, "result": {"resultType": "complete", **found}}


def _called(tool: Doing, arguments: Mapping[str, object]) -> dict[str, object]:
    try:
        value = tool(arguments)
    except ValueError as error:
        return {"isError": True, "content": [{"type": "text", "text": str(error)}]}
    if value is None:
        return {"content": [{"type": "text", "text": "done"}]}
    data = msgspec.to_builtins(value)
    return {"content": [{"type": "text", "text": msgspec.json.encode(data).decode()}], "structuredContent": data}


def _error(number: int | str | None, code: int, words: str) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": words}}
