"""Our server, asked as an agent asks it: started by the very command that would be registered, and spoken to in its protocol.

Runs in `aileron doctor AGENT`. The four requests every agent begins with, by hand and in order: what stands here is what is sent,
and nothing is imported that the agent does not need. Each answer has a deadline and a bound; the process is gone at the end.

Rules
- The server is ours and trusted, but what it says may be cut short by anything: every refusal is an AileronError with a reason.
- Only reading: the one tool that is called changes nothing.

Source: the MCP specification 2025-11-25, lifecycle and stdio transport. Not here: agents' own programs.
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

__all__ = ["READ_ONLY", "Connection", "connected"]

READ_ONLY: Final = "list_pending"
"""The tool that is called: it is always there."""
_PROTOCOL: Final = "2025-11-25"
_ANSWER_S: Final = 40.0
"""The first may have to wait for a daemon that is started: 30 seconds at most (client.py)."""
_END_S: Final = 5.0
_MAX_LINE: Final = 16 << 20
"""As the server bounds a message."""
_MAX_PAGES: Final = 100
_SAID_BYTES: Final = 4096
"""Of what the server wrote to standard error: its last words."""


class Connection:
    """One conversation. Every method raises AileronError(internal_error) when the server does not answer as it has to."""

    def __init__(self, process: subprocess.Popen[bytes], said: Any) -> None:
        self._process = process
        self._said = said
        self._id = 0
        self._unread = b""

    def initialize(self) -> str:
        """The handshake; the server's name and version."""
        client = {"name": "aileron-doctor", "version": "1"}
        answer = self._ask("initialize", {"protocolVersion": _PROTOCOL, "capabilities": {}, "clientInfo": client})
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        server = answer.get("serverInfo") or {}
        return f"{server.get('name')} {server.get('version')}, protocol {answer.get('protocolVersion')}"

    def tools(self) -> list[str]:
        """The names of what is offered, all pages of them."""
        names: list[str] = []
        asked: dict[str, Any] = {}
        for _ in range(_MAX_PAGES):
            answer = self._ask("tools/list", asked)
            names += [str(tool.get("name")) for tool in answer.get("tools") or []]
            if not answer.get("nextCursor"):
                return names
            asked = {"cursor": answer["nextCursor"]}
        raise _failed(f"tools/list has more than {_MAX_PAGES} pages")

    def call(self, tool: str) -> str:
        """Call a tool without arguments; the first text of its result."""
        answer = self._ask("tools/call", {"name": tool, "arguments": {}})
        text = next((str(part["text"]) for part in answer.get("content") or [] if "text" in part), "")
        if answer.get("isError"):
            raise _failed(f"{tool} failed: {text}")
        return text

    def _ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._id += 1
        self._send({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params})
        until = time.monotonic() + _ANSWER_S
        while True:
            message = self._receive(method, until)
            if message.get("id") != self._id or "method" in message:
                continue  # a notification, or a request of the server's, which need not be answered to read
            if "error" in message:
                error = message["error"] or {}
                raise _failed(f"{method}: {error.get('message')}")
            result = message.get("result")
            return result if isinstance(result, dict) else {}

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise self._ended(str(message.get("method"))) from None

    def _receive(self, method: str, until: float) -> dict[str, Any]:
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
        """It went away; with the last line that it said."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, self._said.tell() - _SAID_BYTES))
        lines = self._said.read().decode("utf-8", "replace").strip().splitlines()
        return _failed(f"it ended before it answered {method}" + (f": {lines[-1]}" if lines else ""))


@contextlib.contextmanager
def connected(server: AileronServer, environment: Mapping[str, str]) -> Iterator[Connection]:
    """A connection to the server, started for it and ended with it. AileronError(internal_error) if it does not start."""
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
                process.kill()  # it has nothing to put away


def _failed(why: str) -> AileronError:
    return AileronError(FailureClass.INTERNAL_ERROR, why)
