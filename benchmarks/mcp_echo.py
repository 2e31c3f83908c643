"""A server of the official MCP SDK (low level, stdio) with one tool that returns its argument: a peer of bench_run.py."""

from __future__ import annotations

import json
from typing import Any

import anyio
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

_SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


async def _list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[types.Tool(name="give_back", description="Gives back.", input_schema=_SCHEMA)])


async def _call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    given = {"text": (params.arguments or {})["text"]}
    text = types.TextContent(type="text", text=json.dumps(given))
    return types.CallToolResult(content=[text], structured_content=given)


async def _main() -> None:
    server: Server[Any] = Server("echo", version="1", on_list_tools=_list_tools, on_call_tool=_call_tool)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(_main)
