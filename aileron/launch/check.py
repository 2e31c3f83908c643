"""A check of Aileron's server in the way an agent uses it: the server is started by the command that would be
registered, and queried over its protocol.

Runs in `aileron doctor AGENT`. It sends the four messages that every agent begins with, spelled out here in order,
and imports nothing that the agent does not need. Each response has a deadline and a bound; the server's process is
killed at the end.

Rules
- The server is part of Aileron and trusted, but its output may be truncated for any reason: every failure is an AileronError
  with a reason.
- The check only reads: the one tool that it calls changes nothing.

Source: the MCP specification 2025-11-25, lifecycle and stdio transport. Not here: the agents' own programs.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from aileron.launch.agent import AileronServer
from aileron.model.failure import AileronError, FailureClass
from aileron.model.json_value import JSONObject, dict_of, list_of

__all__ = ["READ_ONLY", "Connection", "connected"]

READ_ONLY: Final = "list_pending"
"""Name of the tool that the check calls. It always exists."""
_PROTOCOL: Final = "2025-11-25"
_ANSWER_S: Final = 40.0
"""Seconds to wait for a response. The first may have to wait for the daemon's start, 30 seconds at most (client.py)."""
_END_S: Final = 5.0
_MAX_LINE: Final = 16 << 20
"""Maximum size of a message in bytes, 16 MiB, which is the server's own bound."""
_MAX_PAGES: Final = 100
_SAID_BYTES: Final = 4096
"""Number of bytes that are read from the end of the server's standard error."""


class Connection:
    """A connection to a started MCP server, over its standard input and output. Methods raise
    AileronError(internal_error) if the server does not respond as required.
    """

    def __init__(self, process: subprocess.Popen[bytes], said: Any) -> None:
        self._process = process
        self._said = said
        self._id = 0
        self._unread = b""

    def initialize(self) -> str:
        """Perform the handshake, and return the server's name, version and protocol."""
        client: JSONObject = {"name": "aileron-doctor", "version": "1"}
        answer = self._ask("initialize", {"protocolVersion": _PROTOCOL, "capabilities": {}, "clientInfo": client})
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        server = dict_of(answer.get("serverInfo"))
        return f"{server.get('name')} {server.get('version')}, protocol {answer.get('protocolVersion')}"

    def tools(self) -> list[str]:
        """Return the names of all tools that the server offers, from all pages."""
        names: list[str] = []
        asked: JSONObject = {}
        for _ in range(_MAX_PAGES):
            answer = self._ask("tools/list", asked)
            names += [str(dict_of(tool).get("name")) for tool in list_of(answer.get("tools"))]
            if not answer.get("nextCursor"):
                return names
            asked = {"cursor": answer["nextCursor"]}
        raise _failed(f"tools/list has more than {_MAX_PAGES} pages")

    def call(self, tool: str) -> str:
        """Call a tool without arguments, and return the first text of its result."""
        answer = self._ask("tools/call", {"name": tool, "arguments": {}})
        parts = map(dict_of, list_of(answer.get("content")))
        text = next((str(part["text"]) for part in parts if "text" in part), "")
        if answer.get("isError"):
            raise _failed(f"{tool} failed: {text}")
        return text

    def _ask(self, method: str, params: JSONObject) -> JSONObject:
        self._id += 1
        self._send({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params})
        until = time.monotonic() + _ANSWER_S
        while True:
            message = self._receive(method, until)
            if message.get("id") != self._id or "method" in message:
                continue  # a notification, or a request of the server's, which need not be answered to go on reading
            if "error" in message:
                raise _failed(f"{method}: {dict_of(message['error']).get('message')}")
            result = message.get("result")
            return result if isinstance(result, dict) else {}

    def _send(self, message: JSONObject) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise self._ended(str(message.get("method"))) from None

    def _receive(self, method: str, until: float) -> JSONObject:
        assert self._process.stdout is not None
        while b"\n" not in self._unread:
            if not select.select([self._process.stdout], [], [], max(0.0, until - time.monotonic()))[0]:
                raise _failed(f"no answer to {method} within {_ANSWER_S:g} s")
            data = os.read(self._process.stdout.fileno(), 1 << 16)
            if not data:
                raise self._ended(method)
            self._unread += data
            if len(self._unread) > _MAX_LINE:
                raise _failed(f"an answer to {method} longer than {_MAX_LINE >> 20} MiB")
        line, _, self._unread = self._unread.partition(b"\n")
        try:
            message = json.loads(line)
        except ValueError:
            raise _failed(f"its answer to {method} is not JSON") from None
        return message if isinstance(message, dict) else {}

    def _ended(self, method: str) -> AileronError:
        """Return the error for a server that ended, with the last line of its standard error."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, self._said.tell() - _SAID_BYTES))
        lines = self._said.read().decode("utf-8", "replace").strip().splitlines()
        return _failed(f"it ended before it answered {method}" + (f": {lines[-1]}" if lines else ""))


@contextlib.contextmanager
def connected(server: AileronServer, environment: Mapping[str, str]) -> Iterator[Connection]:
    """Start the server, yield a connection to it, and kill it at the end. Raises AileronError(internal_error) if the
    server does not start.
    """
    with tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(
                server.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, env=dict(environment)
            )
        except OSError as error:
            raise _failed(f"{server.command[0]}: {error.strerror or error}") from None
        with process:
            try:
                yield Connection(process, said)
            finally:
                process.kill()  # it has nothing to save


def _failed(why: str) -> AileronError:
    return AileronError(FailureClass.INTERNAL_ERROR, why)
