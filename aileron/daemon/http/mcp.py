"""The protocol's server in the daemon: `run/mcp.sock`, `/mcp`, and the news that there are other actions now.

Runs in the daemon's event loop. The SDK costs 0.7 s of processor time and 50 MiB, so it is imported in a thread, for the first
connection or IMPORT_AFTER_S after the daemon is ready: whoever only runs a command never pays for it. A connection that comes
before waits.

A connection of the socket is the session of the token in its first line, where that line is the relay's own notification
(`notifications/aileron/session`), and `local` where it is anything else. A token that is not good, or a notification that cannot
be read whole, is nobody's: such a connection is answered, and everything it asks is refused. Only the first line counts.

Source: docs/reference/mcp.md, docs/adr/0019-mcp.md. Not here: the protocol (mcp/server.py), what agents may ask (agents.py).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import ByteStream, SocketAttribute, SocketListener
from starlette.types import ASGIApp, Receive, Scope, Send

from aileron import files
from aileron.daemon.http.sessions import LOCAL_SESSION, Sessions
from aileron.ingress.peers import peer_process
from aileron.mcp.agent_port import AgentPort
from aileron.model.failure import AileronError

if TYPE_CHECKING:  # 0.7 s
    from aileron.mcp.server import McpServer

__all__ = ["AgentProtocol", "action_files"]

IMPORT_AFTER_S: Final = 10.0
"""A daemon that nobody's agent has asked for by then has time to spare; one that a command started may be gone."""
MAX_CONNECTIONS: Final = 256
"""As many as sessions; each is an agent's process."""
LOOK_S: Final = 0.5
"""Between two looks at the action files, while the server is up: two system calls for each file."""
MAX_KEPT_BYTES: Final = 16 << 20
"""Of the file for the relay, which reads no more: five times the longest page of tools."""
_NOBODY: Final = "-"
"""The session of a connection whose token is not good: it is never open (sessions.py)."""
_PREAMBLE: Final = "notifications/aileron/session"
_MAX_FIRST: Final = 4096
"""Bytes of a first line that are looked at; the relay's has a tenth of that."""
_SESSION_MARK: Final = _PREAMBLE.encode()
_Signature = frozenset[tuple[str, int, int, int]]
_log = logging.getLogger(__name__)


class AgentProtocol:
    """One for each daemon. `signature` is another value whenever the actions may be others; `kept` is the file of what agents are
    answered first, for the relay that starts the next daemon.
    """

    def __init__(
        self, door: AgentPort, sessions: Sessions, version: str, signature: Callable[[], object], kept: Path
    ) -> None:
        self._door = door
        self._sessions = sessions
        self._version = version
        self._signature = signature
        self._kept = kept
        self._wanted = anyio.Event()
        self._up = anyio.Event()
        self._server: McpServer | None = None
        self._mcp: ASGIApp | None = None
        self._connections = 0
        self._answering: set[anyio.CancelScope] = set()

    async def serve(self, listener: socket.socket) -> None:
        """Accept on the socket until cancelled."""
        async with await SocketListener.from_socket(listener) as accepting, anyio.create_task_group() as tasks:
            tasks.start_soon(accepting.serve, self._connected)
            with anyio.move_on_after(IMPORT_AFTER_S):
                await self._wanted.wait()
            self._server = await anyio.to_thread.run_sync(self._import)
            try:
                async with self._server.run():
                    self._mcp = self._server.http_app()
                    self._up.set()
                    await self._tell_changes(self._server)
            finally:
                for answering in list(self._answering):
                    answering.cancel()

    async def http(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`/mcp`, as an ASGI application. Its caller has put the session into `scope["state"]`.

        An answer may be a stream that lasts as long as its client: it breaks off when the daemon stops.
        """
        await self._ready()
        if self._mcp is None:
            return
        with anyio.CancelScope() as answering:
            self._answering.add(answering)
            try:
                await self._mcp(scope, receive, send)
            finally:
                self._answering.discard(answering)

    def _import(self) -> McpServer:
        from aileron.mcp.server import McpServer

        return McpServer(self._door, self._version)

    async def _ready(self) -> None:
        self._wanted.set()
        await self._up.wait()

    async def _connected(self, stream: ByteStream) -> None:
        async with stream:
            if self._connections >= MAX_CONNECTIONS:
                _log.warning("%s agents are connected: one more was turned away", MAX_CONNECTIONS)
                return
            self._connections += 1
            self._wanted.set()
            try:
                await self._converse(stream)
            except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass  # the agent is gone
            except Exception:  # noqa: BLE001 - the end of a task: one connection never ends the others
                _log.exception("a connection of the protocol's socket ended unexpectedly")
            finally:
                self._connections -= 1

    async def _converse(self, stream: ByteStream) -> None:
        try:
            first = await _first_line(stream)
        except anyio.EndOfStream:
            return
        session, rest = self._session_of(first)
        await self._ready()
        if self._server is not None:
            process = peer_process(stream.extra(SocketAttribute.raw_socket))  # noqa: S610 - of anyio, not of Django
            await self._server.serve(_Begun(stream, rest), session, process)

    def _session_of(self, first: bytes) -> tuple[str, bytes]:
        """Who it is, and what is still to be read of what was."""
        line, end, rest = first.partition(b"\n")
        token = _token_of(line, is_whole=bool(end))
        if token is None:
            return LOCAL_SESSION, first
        try:
            return self._sessions.session_of(token), rest
        except AileronError:
            return _NOBODY, rest

    async def _tell_changes(self, server: McpServer) -> None:
        known, limited = await anyio.to_thread.run_sync(self._signature), self._sessions.limited()
        await self._keep_answers(server, limited)
        while True:
            await anyio.sleep(LOOK_S)
            found, limited_now = await anyio.to_thread.run_sync(self._signature), self._sessions.limited()
            if found != known:
                await server.tools_changed()
            if (found, limited_now) != (known, limited):
                known, limited = found, limited_now
                await self._keep_answers(server, limited)

    async def _keep_answers(self, server: McpServer, limited: frozenset[str]) -> None:
        """Best effort: without the file, agents wait for the next daemon as long as it takes. Those of `limited`, whose list is
        another, always do.
        """
        try:
            kept = {"aileron": self._version, "limited": sorted(limited), "results": await server.answers()}
            await anyio.to_thread.run_sync(_write, self._kept, msgspec.json.encode(kept))
        except Exception as error:  # noqa: BLE001 - what only saves time must not end the server of all agents
            _log.warning("what agents are answered first could not be kept: %s", type(error).__name__)


def action_files(directory: Path, state: Path) -> Callable[[], object]:
    """What the files of a directory, and the file beside it, look like from outside: other whenever one of them was written.

    By name, inode, size and time of change, as make(1) and its like do; nothing is read.
    """

    def look() -> _Signature:
        found: set[tuple[str, int, int, int]] = set()
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.endswith(".md"):
                    with contextlib.suppress(OSError):
                        found.add(_seen(entry.name, entry.stat(follow_symlinks=False)))
        with contextlib.suppress(OSError):
            found.add(_seen("", state.stat()))
        return frozenset(found)

    return look


def _write(path: Path, data: bytes) -> None:
    """AileronError. What is too long is not kept, and what was before it neither."""
    if len(data) > MAX_KEPT_BYTES:
        path.unlink(missing_ok=True)
        return
    with files.open_directory(path.parent, forbidden=0o077) as directory:
        files.replace(directory, path, data)


def _seen(name: str, facts: os.stat_result) -> tuple[str, int, int, int]:
    return name, facts.st_ino, facts.st_size, facts.st_mtime_ns


def _token_of(line: bytes, *, is_whole: bool) -> str | None:
    """The token of the relay's own notification, empty where it has none; None for any other line, which the server will judge.

    What speaks of a session and cannot be read is taken for such a notification: whoever has a session never becomes `local`.
    """
    if _SESSION_MARK not in line:
        return None
    try:
        message = json.loads(line) if is_whole else {}
    except (ValueError, RecursionError):
        return ""
    if not is_whole or not isinstance(message, dict):
        return ""
    if message.get("method") != _PREAMBLE:
        return None
    params = message.get("params")
    token = params.get("token") if isinstance(params, dict) else None
    return token if isinstance(token, str) else ""


async def _first_line(stream: ByteStream) -> bytes:
    """What came until the end of the first line, and whatever came with it; at most about _MAX_FIRST bytes are waited for."""
    read = b""
    while b"\n" not in read and len(read) < _MAX_FIRST:
        read += await stream.receive()
    return read


class _Begun(ByteStream):
    """A stream of which some bytes were read already."""

    def __init__(self, stream: ByteStream, begun: bytes) -> None:
        self._stream = stream
        self._begun = begun

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if self._begun:
            taken, self._begun = self._begun[:max_bytes], self._begun[max_bytes:]
            return taken
        return await self._stream.receive(max_bytes)

    async def send(self, item: bytes) -> None:
        await self._stream.send(item)

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()
