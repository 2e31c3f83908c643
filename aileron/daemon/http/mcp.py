"""The protocol's server as the daemon sees it: `run/mcp.sock`, `/mcp`, and the news that there are other actions now.

Runs in the daemon's event loop. The protocol is spoken by a process of its own (mcp_process.py), which is started for the first
agent: whoever only runs a command never pays for it. An agent that comes before it serves waits. The daemon accepts, finds out
whose a connection or a request is, and hands it over; what the process asks for that agent then, it answers (mcp/answering.py).

    idle ──(an agent comes)──► started ──(it rests)──► idle
                                  └──(it ends)──► pause ──► idle

A connection of the socket is the session of the token in its first line, where that line is the relay's own notification
(`notifications/aileron/session`), and `local` where it is anything else. A token that is not good, or a notification that cannot
be read whole, is nobody's: such a connection is answered, and everything it asks is refused. Only the first line counts.

Rules
- The process is let go of once nobody has used it for REST_S. While it rests, no agent is connected.
- One that ends by itself is started again with the next agent, after a pause that grows up to PAUSE_MOST_S where it ends soon.
  Its agents lose their connections, and connect again; what they had begun goes on.
- Whoever waits for it longer than WAIT_S is sent away.

Source: docs/reference/mcp.md, docs/adr/0019-mcp.md, docs/adr/0075-mcp-in-a-process-of-its-own.md. Not here: the protocol
(mcp/server.py), what agents may ask (agents.py).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import msgspec
from anyio.abc import ByteStream, SocketAttribute, TaskGroup, UNIXSocketStream
from starlette.types import Receive, Scope, Send

from aileron import files
from aileron.daemon.http.accepting import accepted
from aileron.daemon.http.mcp_process import ProtocolProcess, protocol_process
from aileron.daemon.http.responses import failure_answer
from aileron.daemon.http.sessions import LOCAL_SESSION, Sessions
from aileron.ingress.exchange import head_of, pass_on
from aileron.ingress.messages import MessageError as ExchangeError
from aileron.ingress.messages import exchange_pair
from aileron.ingress.peers import peer_process
from aileron.ingress.server import drained
from aileron.mcp.agent_port import AgentPort, Asker
from aileron.mcp.first_answers import first_answers
from aileron.mcp.messages import Changed, Connection, MessageError, Request
from aileron.model.failure import AileronError, FailureClass
from aileron.threads import in_thread

if TYPE_CHECKING:  # only where there is an agent
    from aileron.mcp.calls import ToolCalls

__all__ = ["AgentProtocol", "action_files"]

REST_S: Final = 900.0
"""Without an agent, until the process goes: it costs the next agent half a second, and people start several in a row."""
WAIT_S: Final = 40.0
"""The longest wait for the process: more than it may take to start, and more than the longest pause before that."""
PAUSE_S, PAUSE_MOST_S = 0.2, 10.0
_WELL_S: Final = 60.0
"""After so long a life, its end is no fault that comes again at once."""
_TRIES: Final = 3
"""Attempts to hand an agent over: one that finds a process gone each time is sent away."""
MAX_CONNECTIONS: Final = 256
"""As many as sessions; each is an agent's process."""
LOOK_S: Final = 0.5
"""Between two looks at the action files, while the process is up: two system calls for each file."""
LOOK_RESTING_S: Final = 5.0
"""Between two looks while there is no process, and nobody to be told."""
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
        """Accept on the socket until cancelled."""
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
        """Begin each connection."""
        while True:
            tasks.start_soon(self._connected, await accepted(listener, "agent"))

    async def http(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`/mcp`, as an ASGI application. Its caller has put the session into `scope["state"]`.

        An answer may be a stream that lasts as long as its client: it breaks off when the daemon stops, or the process ends.
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
        """Have the process answer a request. Where it has gone, what was not answered breaks off: it may have been begun."""
        async with self._answered(channel, agent):
            with contextlib.suppress(OSError, ExchangeError):
                await pass_on(exchange, head_of("", scope, is_known=True), receive, send)

    @contextlib.asynccontextmanager
    async def _answered(self, channel: socket.socket, agent: Asker) -> AsyncIterator[None]:
        """Answer what is asked for this agent meanwhile."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._answer, channel, agent)
            yield
            tasks.cancel_scope.cancel()

    async def _hand_over(self, message: Connection | Request, given: socket.socket) -> socket.socket:
        """Give the process what an agent has to do with, and keep our end of its channel. Where it turns out to have just gone,
        before it had taken anything, the next one gets it. TimeoutError, OSError: then nobody has it.
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
        """Answer what is asked for this agent until either side ends the channel."""
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
                pass  # the agent is gone, or the process
            except Exception:  # noqa: BLE001 - the end of a task: one connection never ends the others
                _log.exception("a connection of the protocol's socket ended unexpectedly")
            finally:
                self._connections -= 1

    async def _converse(self, stream: ByteStream) -> None:
        self._wanted.set()  # it may start while the agent finds its words
        try:
            first = await _first_line(stream)
        except anyio.EndOfStream:
            return
        session, rest = self._session_of(first)
        raw = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - of anyio, not of Django
        agent = Asker(session, peer_process(raw))
        channel = await self._hand_over(Connection(rest), raw)
        await stream.aclose()  # it is the process's alone
        await self._answer(channel, agent)

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

    # the process

    async def _keep_running(self) -> None:
        """Have a process while somebody needs one, until cancelled."""
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
        """Run a process from its start to its end. Return whether it ended because nobody needed it any more."""
        try:
            async with protocol_process(self._version, self._rest_s) as process:
                self._process = process
                self._up.set()
                return await self._until_over(process)
        except (OSError, MessageError) as error:
            _log.error("the process that speaks with agents could not be spoken to: %s", error)
            return False
        finally:
            self._go_down()

    def _go_down(self) -> None:
        """Have whoever comes from now on wait for the next process."""
        self._process = None
        if self._up.is_set():
            self._up = anyio.Event()

    async def _until_over(self, process: ProtocolProcess) -> bool:
        is_done = False
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._tell_changes, process)
            is_done = await process.wait_over()
            self._go_down()  # at once, or who comes now would be lost
            tasks.cancel_scope.cancel()
        return is_done

    async def _ready(self) -> ProtocolProcess:
        """The process, once it serves."""
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
        """Return another value whenever the answers that are kept may be others: the actions, or who is limited."""
        return await in_thread(self._signature), self._sessions.limited()

    async def _tell_changes(self, process: ProtocolProcess) -> None:
        known: tuple[object, frozenset[str]] | None = None
        while True:
            with contextlib.suppress(OSError):  # no thread for this look; or it has gone, which `wait_over` says
                found = actions, limited = await self._look()
                if known is not None and actions != known[0]:
                    await process.tell(Changed())
                if found != known:
                    await self._keep_answers(process, limited)
                    self._seen = known = found
            await anyio.sleep(LOOK_S)

    async def _forget_changed(self) -> None:
        """Without a process nobody can say what agents are answered now: what is kept goes once it may be wrong."""
        seen, self._seen = self._seen, None
        with contextlib.suppress(OSError):  # no thread for a look: it may be wrong
            self._seen = await self._look()
        if seen is not None and seen != self._seen:
            with contextlib.suppress(OSError):
                self._kept.unlink(missing_ok=True)

    async def _keep_answers(self, process: ProtocolProcess, limited: frozenset[str]) -> None:
        """Best effort: without the file, agents wait for the next daemon as long as it takes. Those of `limited`, whose list is
        another, always do.
        """
        try:
            results = {
                version: await self._first_answers(version, is_modern=is_modern)
                for versions, is_modern in ((process.handshake, False), (process.modern, True))
                for version in versions
            }
            kept = {"aileron": self._version, "limited": sorted(limited), "results": results}
            await in_thread(_write, self._kept, msgspec.json.encode(kept))
        except Exception as error:  # noqa: BLE001 - what only saves time must not end the server of all agents
            _log.warning("what agents are answered first could not be kept: %s", type(error).__name__)

    async def _first_answers(self, version: str, *, is_modern: bool) -> dict[str, Any]:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            channel = await self._hand_over(Connection(b""), theirs)
            async with self._answered(channel, Asker("")):
                return await first_answers(ours, version, is_modern=is_modern)


async def _busy(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer that nothing was begun: nobody has seen the request."""
    problem = "agents cannot be served now; see `aileron daemon logs`"
    await drained(receive)
    await failure_answer(AileronError(FailureClass.BUSY, problem, retriable=True).failure)(scope, receive, send)


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
