"""Obtains the MCP server's first answers to a client, for the file from which the relay answers while no daemon runs yet.

Runs in the daemon: it connects to the MCP process like an ordinary client, and sends the requests that such a client
sends first. The answers that it reads are bounded, and must be JSON.

Source: docs/adr/0040-answers-before-the-daemon.md; MCP specification, "Lifecycle". Not here: the file (daemon/http/mcp.py), its
reader (relay_early.py).
"""

from __future__ import annotations

import socket
from typing import Final

import anyio
import msgspec
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from aileron.model.json_value import JSONObject

__all__ = ["first_answers"]

_ANSWERS_S: Final = 10.0
"""Maximum seconds for the first answers in one version of the protocol. They take milliseconds, and ten times as long
in a busy event loop.
"""
_MAX_ANSWER_BYTES: Final = 16 << 20
"""Maximum size of one answer in bytes, equal to the relay's limit for a message."""
_META: Final = "io.modelcontextprotocol"


async def first_answers(connection: socket.socket, version: str, *, is_modern: bool) -> JSONObject:
    """Return the results of `initialize` or `server/discover`, and of the first page of `tools/list`, by method.
    `connection` must be new, and is closed here. Raises TimeoutError; for an invalid answer, ValueError or anyio's errors
    of streams.
    """
    results: JSONObject = {}
    with anyio.fail_after(_ANSWERS_S):
        async with await SocketStream.from_socket(connection) as stream:
            lines = BufferedByteReceiveStream(stream)
            for method, asked in _first_questions(version, is_modern=is_modern).items():
                await stream.send(asked)
                while method not in results:
                    line = await lines.receive_until(b"\n", _MAX_ANSWER_BYTES)
                    message: JSONObject = msgspec.json.decode(line, type=dict)
                    if message.get("id") == method:
                        results[method] = message.get("result")
    return {method: result for method, result in results.items() if result is not None}


def _first_questions(version: str, *, is_modern: bool) -> dict[str, bytes]:
    """Return the first requests that an MCP client of this version sends, by method. The id of each request is the name
    of its method.
    """
    nobody: JSONObject = {"name": "aileron", "version": "0"}

    def asks(method: str, params: JSONObject) -> bytes:
        return msgspec.json.encode({"jsonrpc": "2.0", "id": method, "method": method, "params": params}) + b"\n"

    if is_modern:
        meta: JSONObject = {f"{_META}/protocolVersion": version, f"{_META}/clientInfo": nobody}
        meta[f"{_META}/clientCapabilities"] = {}
        return {method: asks(method, {"_meta": meta}) for method in ("server/discover", "tools/list")}
    hello = asks("initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": nobody})
    done = b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
    return {"initialize": hello, "tools/list": done + asks("tools/list", {})}
