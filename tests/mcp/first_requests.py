"""Program that reports what a protocol process imports and builds, before and after its first requests.

`python -m tests.mcp.first_requests` prints one JSON object. It runs as a process of its own, which has the SDK as that
process has it (aileron/mcp/__main__.py).
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from typing import Any

import anyio
from anyio.abc import SocketStream

from aileron.mcp.__main__ import import_server

_CLIENT = {"name": "first", "version": "1"}
_ITSELF = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": _CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}
_HANDSHAKE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": _CLIENT}
_CALL = {"name": "any", "arguments": {"topic": "x"}}
_ERAS: tuple[list[tuple[str, dict[str, Any]]], ...] = (
    [
        ("initialize", _HANDSHAKE),
        ("ping", {}),
        ("tools/list", {}),
        ("tools/call", {**_CALL, "_meta": {"progressToken": 1}}),
        ("tools/call", {"name": 5}),
        ("prompts/list", {}),
    ],
    [
        ("server/discover", {"_meta": _ITSELF}),
        ("subscriptions/listen", {"_meta": _ITSELF, "notifications": {"toolsListChanged": True}}),
        ("tools/list", {"_meta": _ITSELF}),
        ("tools/call", {**_CALL, "_meta": {**_ITSELF, "progressToken": 1}}),
    ],
)


def _imported() -> set[str]:
    """Return the names of the imported modules, without those whose import is forbidden."""
    return {name for name, module in sys.modules.items() if module is not None}


def main() -> None:
    """Import the server, converse in both eras, build all other models, and print the results."""
    import_server()
    imported = _imported()
    from aileron.mcp.server import McpServer

    McpServer("1")
    unbuilt = _unbuilt()
    heard = [anyio.run(_converse, requests) for requests in _ERAS]
    built_late = sorted(unbuilt - _unbuilt())
    for model in list(_models()):
        model.model_rebuild()
    late = sorted(_imported() - imported)
    print(json.dumps({"imported": sorted(imported), "heard": heard, "built_late": built_late, "late": late}))


async def _converse(requests: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """Send these requests, each after the answer to the last. Return what arrived: `result`, `error` or a notification."""
    from aileron.mcp.server import McpServer

    heard: list[str] = []
    server, (theirs, ours) = McpServer("1"), socket.socketpair()
    async with server.run(), anyio.create_task_group() as tasks, await SocketStream.from_socket(ours) as stream:
        tasks.start_soon(server.serve, await SocketStream.from_socket(theirs), _daemon())
        for number, (method, params) in enumerate(requests):
            await stream.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode())
            await stream.send(b"\n")
            heard += await _heard(stream, number)
            if method == "initialize":
                await stream.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        await server.tools_changed()
        heard += await _heard(stream, None)
        tasks.cancel_scope.cancel()
    return heard


async def _heard(stream: SocketStream, number: int | None) -> list[str]:
    """Read until this request is answered or its subscription acknowledged; without a number, read one batch of messages."""
    heard: list[str] = []
    held = b""
    while True:
        held += await stream.receive()
        *lines, held = held.split(b"\n")
        for line in map(json.loads, lines):
            heard.append(line.get("method") or ("result" if "result" in line else "error"))
            if line.get("id") == number or line.get("method") == "notifications/subscriptions/acknowledged":
                return heard


def _daemon() -> Any:
    """Return an agent to whom the daemon answers at once."""
    from aileron.mcp.asking import Agent
    from aileron.mcp.process_messages import Answered, Listed

    class Answering(Agent):
        async def listed(self, cursor: str | None) -> Listed:
            return Listed(1, b'[{"name":"any","description":"x","inputSchema":{"type":"object"}}]', None)

        async def call(self, name: str, arguments: dict[str, Any], report: Any) -> Answered:
            await report(1.0, None, "half")
            return Answered(1, "done", b"{}", is_error=False)

    return Answering()


def _models() -> Iterator[Any]:
    from pydantic import BaseModel

    waiting: list[Any] = [BaseModel]
    while waiting:
        for model in waiting.pop().__subclasses__():
            waiting.append(model)
            yield model


def _unbuilt() -> set[str]:
    return {f"{model.__module__}.{model.__name__}" for model in _models() if not model.__pydantic_complete__}


if __name__ == "__main__":
    main()
