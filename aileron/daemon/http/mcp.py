"""The daemon's side of the agents' protocol: `run/mcp.sock`, `/mcp`, and notices that the actions have changed.

Runs in the daemon's event loop. The protocol is implemented in a separate process (mcp_process.py), which is started only for
the first agent, so that commands do not pay for its start. An agent that connects before the process serves has to wait. The
daemon accepts a connection or a request, determines its session, and passes it to the process. Then the daemon answers the
process's requests for that agent (mcp/answering.py).

    idle ──(an agent connects)──► started ──(it rests)──► idle
                                     └──(it ends)──► pause ──► idle

A connection to the socket belongs to the session of the token in its first line, if that line is the relay's own notification
(`notifications/aileron/session`); with any other first line, it belongs to the session `local`. With a bad token, or a
notification that cannot be read completely, it belongs to no session: the connection is answered, but all its requests are
refused. Later lines never change the session.

Rules
- The process is ended after REST_S without use. While it is unused, no agent is connected.
- A process that ends unexpectedly is started again for the next agent, after a pause that grows up to PAUSE_MOST_S if processes
  end soon after their start. Its agents lose their connections and must connect again; their runs continue.
- An agent that waits longer than WAIT_S for the process is refused.

Source: docs/reference/mcp.md, docs/adr/0019-mcp.md, docs/adr/0075-mcp-in-a-process-of-its-own.md. Not here: the protocol
(mcp/server.py), the service for agents (agents.py).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import msgspec
from anyio.abc import ByteStream, SocketAttribute, TaskGroup, UNIXSocketStream
from starlette.types import Receive, Scope, Send

from aileron import files
from aileron.daemon.http.accepting import accepted
from aileron.daemon.http.mcp_process import ProtocolProcess, protocol_process
from aileron.daemon.http.responses import failure_answer
from aileron.daemon.http.sessions import LOCAL_SESSION, Sessions
from aileron.ingress.daemon_messages import MessageError as ExchangeError
from aileron.ingress.daemon_messages import exchange_pair
from aileron.ingress.exchange import head_of, pass_on
from aileron.ingress.peers import peer_process
from aileron.ingress.server import drained
from aileron.mcp.agent_port import AgentPort, Asker
from aileron.mcp.first_answers import first_answers
from aileron.mcp.process_messages import Changed, Connection, MessageError, Request
from aileron.model.failure import AileronError, FailureClass
from aileron.model.json_value import JSONObject
from aileron.threads import in_thread

if TYPE_CHECKING:  # only where there is an agent
    from aileron.mcp.calls import ToolCalls

__all__ = ["AgentProtocol", "action_files"]

REST_S: Final = 900.0
"""Seconds without an agent after which the protocol process is ended: a new start costs half a second, and people start several
agents in a row.
"""
WAIT_S: Final = 40.0
"""Longest time in seconds that an agent waits for the protocol process: more than the start of the process may take, and more
than the longest pause before a start.
"""
PAUSE_S, PAUSE_MOST_S = 0.2, 10.0
_WELL_S: Final = 60.0
"""Seconds that the protocol process must have run to reset the pause before the next start to the shortest pause. If
the process ends earlier, the pause doubles.
"""
_TRIES: Final = 3
"""Number of attempts to pass an agent to a protocol process. If the process has ended each time, the agent is refused."""
MAX_CONNECTIONS: Final = 256
"""Maximum number of connections: as many as sessions, because each connection is an agent's process."""
LOOK_S: Final = 0.5
"""Seconds between two checks of the action files while the process runs. A check takes two system calls for each file."""
LOOK_RESTING_S: Final = 5.0
"""Seconds between two checks of the action files while no process runs, when there is no agent to notify."""
MAX_KEPT_BYTES: Final = 16 << 20
"""Maximum size in bytes of the file with the answers to agents' first requests; the relay reads no more of it. This is five
times the longest page of tools.
"""
_NOBODY: Final = "-"
"""Session id of a connection with a bad token. No session with this id is ever open (sessions.py)."""
_PREAMBLE: Final = "notifications/aileron/session"
_MAX_FIRST: Final = 4096
"""Maximum number of bytes of a connection's first line that are examined; the relay's first line is a tenth of that."""
_SESSION_MARK: Final = _PREAMBLE.encode()
_Signature = frozenset[tuple[str, int, int, int]]
_log = logging.getLogger(__name__)


class AgentProtocol:
    """The daemon's side of the agents' protocol (MCP). One instance per daemon. The result of `signature` changes whenever
    the actions may have changed. `kept` is the file with the answers to agents' first requests: the relay gives an agent
    these answers while the next daemon starts.
    """

    def __init__(
        self,
        door: AgentPort,
        sessions: Sessions,
        version: str,
        signature: Callable[[], object],
        kept: Path,
        *,
        rest_s: float = REST_S,
    ) -> None:
        self._door = door
        self._sessions = sessions
        self._version = version
        self._signature = signature
        self._kept = kept
        self._rest_s = rest_s
        self._calls: ToolCalls | None = None
        self._process: ProtocolProcess | None = None
        self._wanted = anyio.Event()
        self._waiting = 0
        self._up = anyio.Event()
        self._connections = 0
        self._answering: set[anyio.CancelScope] = set()
        self._seen: object = None

    async def serve(self, listener: socket.socket) -> None:
        """Accept agents' connections on the socket, and keep the protocol process running while it is needed, until cancelled."""
        with listener:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._accept, listener, tasks)
                try:
                    await self._keep_running()
                finally:
                    for answering in list(self._answering):
                        answering.cancel()
                    if self._seen is not None:
                        with anyio.CancelScope(shield=True):
                            await self._forget_changed()

    async def _accept(self, listener: socket.socket, tasks: TaskGroup) -> None:
        """Accept agents' connections, and handle each in its own task."""
        while True:
            tasks.start_soon(self._connected, await accepted(listener, "agent"))

    async def http(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle requests to `/mcp` as an ASGI application. The caller must have put the session into `scope["state"]`.

        A response may be a stream that lasts as long as its client. It is cut off when the daemon stops or the process ends.
        """
        session = scope["state"]["session"]
        with anyio.CancelScope() as answering:
            self._answering.add(answering)
            try:
                with contextlib.ExitStack() as held:
                    try:
                        ours, theirs = map(held.enter_context, exchange_pair())
                        with theirs:
                            channel = await self._hand_over(Request(session), theirs)
                    except (OSError, TimeoutError):
                        await _busy(scope, receive, send)
                    else:
                        await self._pass_on(ours, channel, Asker(session), scope, receive, send)
            finally:
                self._answering.discard(answering)

    async def _pass_on(
        self, exchange: socket.socket, channel: socket.socket, agent: Asker, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Let the protocol process answer an HTTP request. If the process ends, cut the response off, because the process
        may have begun to execute the request.
        """
        async with self._answered(channel, agent):
            with contextlib.suppress(OSError, ExchangeError):
                await pass_on(exchange, head_of("", scope, is_known=True), receive, send)

    @contextlib.asynccontextmanager
    async def _answered(self, channel: socket.socket, agent: Asker) -> AsyncIterator[None]:
        """Answer, during the block, what the protocol process asks the daemon on behalf of this agent."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._answer, channel, agent)
            yield
            tasks.cancel_scope.cancel()

    async def _hand_over(self, message: Connection | Request, given: socket.socket) -> socket.socket:
        """Pass an agent's connection or exchange (`given`) to the protocol process, and return our end of the agent's
        channel. If the process ended before it took the agent, pass it to the next process. Raises TimeoutError or OSError
        if no process has taken the agent.
        """
        with anyio.fail_after(WAIT_S):
            for _ in range(_TRIES):
                process = await self._ready()
                if (channel := await process.maybe_take(message, given)) is not None:
                    return channel
                if self._process is process:
                    self._go_down()
        raise ConnectionError("the process that speaks with agents went away each time")

    async def _answer(self, channel: socket.socket, agent: Asker) -> None:
        """Answer what the protocol process asks the daemon on behalf of this agent, until either side closes the channel."""
        from aileron.mcp.answering import answer_agent
        from aileron.mcp.calls import ToolCalls

        if self._calls is None:
            self._calls = ToolCalls(self._door)
        await answer_agent(channel, self._calls, agent)

    async def _connected(self, connection: socket.socket) -> None:
        with connection:
            if self._connections >= MAX_CONNECTIONS:
                _log.warning("%s agents are connected: one more was turned away", MAX_CONNECTIONS)
                return
            self._connections += 1
            try:
                async with await UNIXSocketStream.from_socket(connection) as stream:
                    await self._converse(stream)
            except (OSError, TimeoutError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass  # the agent or the process is gone
            except Exception:  # noqa: BLE001 - the end of a task: one connection never ends the others
                _log.exception("a connection of the protocol's socket ended unexpectedly")
            finally:
                self._connections -= 1

    async def _converse(self, stream: ByteStream) -> None:
        self._wanted.set()  # the process can start before the agent's first line
        try:
            first = await _first_line(stream)
        except anyio.EndOfStream:
            return
        session, rest = self._session_of(first)
        raw = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - of anyio, not of Django
        agent = Asker(session, peer_process(raw))
        channel = await self._hand_over(Connection(rest), raw)
        await stream.aclose()  # the process alone has it now
        await self._answer(channel, agent)

    def _session_of(self, first: bytes) -> tuple[str, bytes]:
        """Return the session that a connection's first bytes identify, and the part of `first` that must still be
        passed on to the protocol process.
        """
        line, end, rest = first.partition(b"\n")
        token = _token_of(line, is_whole=bool(end))
        if token is None:
            return LOCAL_SESSION, first
        try:
            return self._sessions.session_of(token), rest
        except AileronError:
            return _NOBODY, rest

    # the process

    async def _keep_running(self) -> None:
        """Keep the protocol process running while an agent needs it, until cancelled."""
        pause_s = PAUSE_S
        while True:
            await self._wait_wanted()
            began = anyio.current_time()
            if await self._run_one():
                pause_s = PAUSE_S
                continue
            pause_s = PAUSE_S if anyio.current_time() - began > _WELL_S else min(PAUSE_MOST_S, 2 * pause_s)
            _log.warning(
                "the process that speaks with agents ended: it is started again with the next one, in %.1f s at the earliest",
                pause_s,
            )
            await anyio.sleep(pause_s)

    async def _wait_wanted(self) -> None:
        if not self._waiting:
            self._wanted = anyio.Event()
        while not self._wanted.is_set():
            with anyio.move_on_after(LOOK_RESTING_S):
                await self._wanted.wait()
            if not self._wanted.is_set():
                await self._forget_changed()

    async def _run_one(self) -> bool:
        """Run a protocol process from its start to its end. Return whether it ended because no agent needed it any longer."""
        listed: object = None
        with contextlib.suppress(OSError):  # no thread for this check: agents are told of a change that may be none
            # Before an agent can list the actions: a change right after its list could go unnoticed otherwise.
            listed, _limited = await self._look()
        try:
            async with protocol_process(self._version, self._rest_s) as process:
                self._process = process
                self._up.set()
                return await self._until_over(process, listed)
        except (OSError, MessageError) as error:
            _log.error("the process that speaks with agents could not be spoken to: %s", error)
            return False
        finally:
            self._go_down()

    def _go_down(self) -> None:
        """Mark the protocol process as gone, so that later agents wait for the next process."""
        self._process = None
        if self._up.is_set():
            self._up = anyio.Event()

    async def _until_over(self, process: ProtocolProcess, listed: object) -> bool:
        is_done = False
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._tell_changes, process, listed)
            is_done = await process.wait_over()
            self._go_down()  # at once, or an agent that comes now would be lost
            tasks.cancel_scope.cancel()
        return is_done

    async def _ready(self) -> ProtocolProcess:
        """Wait until a protocol process serves, and return it."""
        self._waiting += 1
        try:
            while (process := self._process) is None:
                self._wanted.set()
                await self._up.wait()
            return process
        finally:
            self._waiting -= 1

    # changes

    async def _look(self) -> tuple[object, frozenset[str]]:
        """Return the two values that the stored answers to agents' first requests depend on.

        They are the result of `signature`, and the digests of the tokens of sessions with a selection (sessions.py).
        """
        return await in_thread(self._signature), self._sessions.limited()

    async def _tell_changes(self, process: ProtocolProcess, listed: object) -> None:
        """Notify the agents of this process when the actions differ from `listed`, and keep the stored answers to agents'
        first requests up to date.
        """
        kept: tuple[object, frozenset[str]] | None = None
        while True:
            with contextlib.suppress(OSError):  # no thread for this check; or process gone: see `wait_over`
                found = actions, limited = await self._look()
                if actions != listed:
                    await process.tell(Changed())
                    listed = actions
                if found != kept:
                    await self._keep_answers(process, limited)
                    self._seen = kept = found
            await anyio.sleep(LOOK_S)

    async def _forget_changed(self) -> None:
        """Delete the stored answers to agents' first requests if the actions or the limited sessions have changed since
        they were stored, or if this cannot be checked. Without a protocol process, the daemon cannot make new answers.
        """
        seen, self._seen = self._seen, None
        with contextlib.suppress(OSError):  # no thread for a check: they may be wrong
            self._seen = await self._look()
        if seen is not None and seen != self._seen:
            with contextlib.suppress(OSError):
                self._kept.unlink(missing_ok=True)

    async def _keep_answers(self, process: ProtocolProcess, limited: frozenset[str]) -> None:
        """Write the answers to agents' first requests to the file, at best effort. Without the file, agents have to wait
        until the next daemon serves. Sessions in `limited` always wait, because their list of tools differs.
        """
        try:
            results = {
                version: await self._first_answers(version, is_modern=is_modern)
                for versions, is_modern in ((process.handshake, False), (process.modern, True))
                for version in versions
            }
            kept = {"aileron": self._version, "limited": sorted(limited), "results": results}
            await in_thread(_write, self._kept, msgspec.json.encode(kept))
        except Exception as error:  # noqa: BLE001 - a file that only saves time must not end the server
            _log.warning("what agents are answered first could not be kept: %s", type(error).__name__)

    async def _first_answers(self, version: str, *, is_modern: bool) -> JSONObject:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            channel = await self._hand_over(Connection(b""), theirs)
            async with self._answered(channel, Asker("")):
                return await first_answers(ours, version, is_modern=is_modern)


async def _busy(scope: Scope, receive: Receive, send: Send) -> None:
    """Respond that the daemon is busy. No protocol process has seen the request, so nothing was executed."""
    problem = "agents cannot be served now; see `aileron daemon logs`"
    await drained(receive)
    await failure_answer(AileronError(FailureClass.BUSY, problem, retriable=True).failure)(scope, receive, send)


def action_files(directory: Path, state: Path) -> Callable[[], object]:
    """Return a function whose result changes whenever a file in `directory`, or the file `state`, was written.

    The function compares names, inodes, sizes and modification times, as make(1) does. It reads no file.
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
    """Write `data`, the answers to agents' first requests, to the file. If `data` is too long, write nothing and remove the
    earlier file. Raises AileronError if that fails.
    """
    if len(data) > MAX_KEPT_BYTES:
        path.unlink(missing_ok=True)
        return
    with files.open_directory(path.parent, forbidden=0o077) as directory:
        files.replace(directory, path, data)


def _seen(name: str, facts: os.stat_result) -> tuple[str, int, int, int]:
    return name, facts.st_ino, facts.st_size, facts.st_mtime_ns


def _token_of(line: bytes, *, is_whole: bool) -> str | None:
    """Return the session token in a connection's first line if the line is the relay's own notification, and an empty
    string if the notification has none or was not read completely (not `is_whole`). Return None for any other line, which
    the protocol server then handles.

    A line that mentions a session and cannot be parsed counts as such a notification, so that a caller with a session never
    becomes `local`.
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
    """Return the bytes up to the end of the first line, and any further bytes received with them. Reads at most about
    _MAX_FIRST bytes.
    """
    read = b""
    while b"\n" not in read and len(read) < _MAX_FIRST:
        read += await stream.receive()
    return read
