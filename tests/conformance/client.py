"""A client for the conformance suite's own servers: the official SDK's, on `aileron-mcp`, which speaks HTTP to them.

The suite starts this with the address of its server as the last word, the scenario and the revision in the environment. It then
checks what the relay puts on the wire: where it posts, its headers, what it does with an answer. The requests themselves are
the SDK's.

Source: the suite's README ("Client Testing"). Not here: which scenarios, and what must come of them (test_relay_conformance.py).
"""

from __future__ import annotations

import contextlib
import os
import sys
import urllib.parse
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, Final

import anyio
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError

_ASK_S: Final = 20.0
"""Seconds for one request; the suite gives a client 30 s."""
_TOKEN: Final = "ail_" + "A" * 43
"""A token as long as one of Aileron's; the suite's servers require none."""
_ARGUMENTS: Final = {"add_numbers": {"a": 5, "b": 3}}
_OLDER: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")


async def _converse(url: str) -> None:
    """List everything that the server has, and use all of it once."""
    at = urllib.parse.urlsplit(url)
    relay = StdioServerParameters(
        command=str(Path(sys.executable).with_name("aileron-mcp")),
        env={
            "AILERON_URL": f"{at.scheme}://{at.netloc}",
            "AILERON_SESSION_TOKEN": _TOKEN,
            "AILERON_HOME": os.environ["AILERON_HOME"],
        },
    )
    mode: Any = "legacy" if os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION") in _OLDER else "auto"
    async with Client(relay, mode=mode, read_timeout_seconds=_ASK_S, **_callbacks()) as client:
        has = client.server_capabilities
        if has.tools is not None:
            for tool in (await client.list_tools()).tools:
                await _maybe(client.call_tool(tool.name, _ARGUMENTS.get(tool.name, {})))
        if has.resources is not None:
            for resource in (await client.list_resources()).resources:
                await _maybe(client.read_resource(str(resource.uri)))
        if has.prompts is not None:
            for prompt in (await client.list_prompts()).prompts:
                await _maybe(client.get_prompt(prompt.name, {}))


async def _maybe(asked: Awaitable[object]) -> None:
    """Await a request; an error of the suite's server is no failure of the client."""
    with contextlib.suppress(MCPError):
        await asked


def _callbacks() -> dict[str, Any]:
    """Return callbacks, so that the SDK declares the capabilities that a scenario expects of a client."""

    async def refused(*_: object) -> Any:
        raise NotImplementedError

    return {"sampling_callback": refused, "list_roots_callback": refused, "elicitation_callback": refused}


if __name__ == "__main__":
    anyio.run(_converse, sys.argv[-1])
