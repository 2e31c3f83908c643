"""A tap between an agent's relay and the daemon's `run/mcp.sock`: every message in both directions, as it passes.

The daemon's socket is renamed, and one of ours put in its place that passes everything on unchanged; neither side can tell. So
a test knows what an agent really sent, however it was made to start `aileron-mcp`. Runs in threads of the test process.

    with Tap(home.path / "run" / "mcp.sock") as tap:
        ...run an agent...
    assert tap.spoke == "2026-07-28"

Source: MCP specification, "Transports" (newline-delimited JSON-RPC). Not here: the protocol's meaning, beyond what tests ask
about.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

from tests.support.waiting import wait_until

__all__ = ["Message", "Tap"]

_APPEARS_S: Final = 15.0
"""Seconds that a daemon may take until its socket exists: the protocol's server is imported after the daemon is ready."""
_MESSAGE_BYTES: Final = 16 << 20
"""Bytes of one line: far above what either side sends, so that a mistake ends a test and not the machine."""


@dataclasses.dataclass(frozen=True)
class Message:
    """A line; `up` from the agent to the daemon. `connection` counts from 0: request ids are its own."""

    connection: int
    up: bool
    body: dict[str, Any]


class Tap:
    """A socket in the place of another; a context manager that puts it back."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._real = path.with_name("mcp-tapped.sock")
        self._messages: list[Message] = []
        self._news = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._open: set[socket.socket] = set()

    def __enter__(self) -> Self:
        wait_until(self._path.exists, f"{self._path} appears", within_s=_APPEARS_S)
        self._path.rename(self._real)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._path))
        self._listener.listen()
        self._start(self._accept)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._real.rename(self._path)
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept
        for each in list(self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        while self._threads:
            self._threads.pop().join(timeout=10)
        self._listener.close()

    @property
    def messages(self) -> list[Message]:
        """Every message so far, oldest first."""
        with self._news:
            return list(self._messages)

    @property
    def spoke(self) -> str:
        """The version of the protocol in which the tools were listed: from `initialize`, or from the request itself."""
        agreed: dict[int, str] = {}
        for message in self.messages:
            if message.up and message.body.get("method") == "tools/list":
                meta = message.body.get("params", {}).get("_meta", {})
                return str(meta.get("io.modelcontextprotocol/protocolVersion") or agreed.get(message.connection, ""))
            if not message.up and "protocolVersion" in message.body.get("result", {}):
                agreed[message.connection] = message.body["result"]["protocolVersion"]
        return ""

    @property
    def token(self) -> str:
        """The session's token, which the relay sends before the agent's first message; "" if there is none."""
        for message in self.messages:
            if message.up and message.body.get("method") == "notifications/aileron/session":
                return str(message.body["params"]["token"])
        return ""

    @property
    def instructions(self) -> str:
        """The server's instructions, in either era of the protocol; "" if there are none."""
        said = [message.body.get("result", {}).get("instructions") for message in self.messages if not message.up]
        return next((text for text in said if text), "")

    def asked(self, method: str) -> list[Message]:
        """Return the requests of one method, oldest first."""
        return [message for message in self.messages if message.up and message.body.get("method") == method]

    def calls(self, tool: str) -> list[Message]:
        """Return the calls of one tool, oldest first."""
        return [call for call in self.asked("tools/call") if call.body["params"]["name"] == tool]

    def answer(self, request: Message) -> dict[str, Any]:
        """Return the result of a request; {} if there is none yet, or an error."""
        for message in self.messages:
            if (
                not message.up
                and message.connection == request.connection
                and message.body.get("id") == request.body["id"]
            ):
                result: dict[str, Any] = message.body.get("result", {})
                return result
        return {}

    def wait(self, seen: Callable[[Self], bool], deadline_s: float) -> bool:
        """Wait until the messages are as wanted; return False if the deadline came first."""
        with self._news:
            return self._news.wait_for(lambda: seen(self), deadline_s)

    def _start(self, run: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=run, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        for number in itertools.count():
            try:
                agent, _address = self._listener.accept()
            except OSError:
                return
            daemon = socket.socket(socket.AF_UNIX)
            daemon.connect(str(self._real))
            self._open |= {agent, daemon}
            self._start(self._serve, number, agent, daemon)

    def _serve(self, number: int, agent: socket.socket, daemon: socket.socket) -> None:
        """Serve one connection until both directions have ended."""
        down = threading.Thread(target=self._pass_on, args=(number, daemon, agent, False), daemon=True)
        down.start()
        self._pass_on(number, agent, daemon, True)
        down.join()
        self._open -= {agent, daemon}
        agent.close()
        daemon.close()

    def _pass_on(self, number: int, reading: socket.socket, writing: socket.socket, up: bool) -> None:
        """Pass on one direction. A message is noted before it is passed on, so a caller who saw its effect can look it up."""
        line = b""
        with contextlib.suppress(OSError):  # the other side has gone
            while data := reading.recv(65536):
                *whole, line = (line + data).split(b"\n")
                assert len(line) < _MESSAGE_BYTES, "a line without an end"
                self._note(number, up, whole)
                writing.sendall(data)
        with contextlib.suppress(OSError):
            writing.shutdown(socket.SHUT_WR)

    def _note(self, number: int, up: bool, lines: list[bytes]) -> None:
        with self._news:
            self._messages += [Message(number, up, json.loads(line)) for line in lines if line.strip()]
            self._news.notify_all()
