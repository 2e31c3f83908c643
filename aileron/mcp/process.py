"""The MCP process once its memory is hidden from other processes. It speaks the protocol with agents, and contains the
SDK, which parses their data.

It gets connections to run/mcp.sock and requests to /mcp from the daemon, each with a channel, and serves them. It has
no key, no file and no other socket, and requests everything from the daemon (asking.py). An attacker who takes it over
sees the data that the connected agents send and receive, and can make the requests that these agents may make. The
vault, the ledger and a person's decisions are out of reach.

Rules
- Everything that is needed later is imported before the process confines itself. After that it can open no file, and begin no
  connection.
- The process ends with the daemon, or when the daemon closes the control socket.
- When no agent has used the process for a while, it reports that (Resting). The count `taken` in the report tells the
  daemon whether work was still on its way. If it was, the process stays.

Source: docs/adr/0075-mcp-in-a-process-of-its-own.md. Not here: hiding the process (isolated/process.py), starting and ending it
(daemon/http/mcp.py).
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 - what is not imported now cannot be any more
import gc
import logging
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import anyio
import anyio._backends._asyncio
from anyio.abc import ByteStream, SocketStream, TaskGroup
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from aileron.ingress.exchange import Exchange, scope_of
from aileron.isolated.confine import compiled, confine
from aileron.isolated.packets import FULL_PAUSE_S, are_free, received_with
from aileron.isolated.start import send
from aileron.mcp.asking import Agent
from aileron.mcp.channel import take
from aileron.mcp.process_messages import (
    MAX_PACKET,
    Changed,
    Connection,
    Message,
    MessageError,
    Ready,
    Request,
    Resting,
    Start,
    decode_order,
    encode,
)
from aileron.mcp.server import McpServer
from aileron_sandbox import kernel

__all__ = ["serve_control"]

DATA_BYTES: Final = 2 << 30
"""RLIMIT_DATA of the process in bytes, against unforeseen use of memory; lines.py and server.py bound the expected use. A process
that exceeds it ends, and is restarted.
"""
LOG_BYTES: Final = 32 << 20
"""RLIMIT_FSIZE of the process in bytes. Standard error is the daemon's log, which is rotated at 5 MiB."""
_LOOKS: Final = 10
"""Number of checks for recent use that the process makes during the idle time after which it reports Resting."""
_PASSED: Final = 2
"""Number of descriptors that are passed with an order to serve an agent: its connection or exchange, and its channel."""
_LET_GO_S: Final = 10.0
"""Maximum seconds to wait until the daemon has read an HTTP response and closed its end. It takes microseconds, unless
the daemon's event loop is blocked.
"""
_log = logging.getLogger(__name__)
_Serve = Callable[[Agent], Awaitable[None]]


def serve_control(descriptor: int) -> int:
    """Execute the daemon's orders from the control socket `descriptor`. Return 0 when the daemon closes it. Raises
    MessageError if the first order is not Start.
    """
    control = socket.socket(fileno=descriptor)
    logging.basicConfig(level=logging.WARNING, format="mcp: %(levelname)s %(name)s: %(message)s")
    packet, _, _ = received_with(control, MAX_PACKET, 0)
    start = decode_order(packet)  # an empty packet, if the daemon has ended, raises MessageError
    if not isinstance(start, Start):
        raise MessageError("the first order is not to start")
    server = McpServer(start.version)
    confine(compiled(_calls, "no agent is served"), data_bytes=DATA_BYTES, file_bytes=LOG_BYTES)
    gc.freeze()  # objects from imports stay for ever: exclude them from garbage collection
    gc.enable()
    control.setblocking(False)
    anyio.run(_Process(control, start, server).run)
    return 0


def _calls() -> bytes:
    """Compile the system call filter for the MCP process, which has all its sockets and creates no others."""
    from aileron_sandbox.filters import compile_login

    return compile_login(forks=False)


class _Process:
    """The tasks of the MCP process, which run until the daemon closes the control socket."""

    def __init__(self, control: socket.socket, start: Start, server: McpServer) -> None:
        self._control = control
        self._rest_s = start.rest_s
        self._server = server
        self._taken = 0
        self._serving = 0
        self._used_at = 0.0

    async def run(self) -> None:
        async with self._server.run(), anyio.create_task_group() as tasks:
            await self._say(Ready(list(HANDSHAKE_PROTOCOL_VERSIONS), list(MODERN_PROTOCOL_VERSIONS)))
            tasks.start_soon(self._rest)
            await self._obey(tasks)
            tasks.cancel_scope.cancel()

    async def _obey(self, tasks: TaskGroup) -> None:
        while True:
            await anyio.wait_readable(self._control)
            await _wait_room(self._control.fileno())
            try:
                packet, descriptors, _ = received_with(self._control, MAX_PACKET, _PASSED, socket.MSG_DONTWAIT)
            except BlockingIOError:
                continue
            if not packet:
                return
            order, passed = decode_order(packet), [socket.socket(fileno=number) for number in descriptors]
            match order, passed:
                case Connection(begun=begun), [connection, channel]:
                    serve = partial(self._serve_connection, connection, begun)
                case Request(session=session), [exchange, channel]:
                    serve = partial(self._serve_request, exchange, session)
                case Changed(), []:
                    await self._server.tools_changed()
                    continue
                case _:
                    raise MessageError("an order that is none now")
            self._taken += 1
            self._serving += 1
            tasks.start_soon(self._counted, channel, serve)

    async def _say(self, message: Message) -> None:
        await send(self._control, encode(message))

    async def _rest(self) -> None:
        """Send the message Resting whenever no agent has used the process for as long as the message Start specified.
        Meanwhile, release memory that is no longer needed.
        """
        self._used_at = anyio.current_time()
        while True:
            await anyio.sleep(self._rest_s / _LOOKS)
            gc.collect()
            kernel.return_free_memory()
            now = anyio.current_time()
            if self._serving or self._server.http_sessions:
                self._used_at = now
            elif now - self._used_at >= self._rest_s:
                self._used_at = now
                await self._say(Resting(self._taken))

    async def _counted(self, channel: socket.socket, serve: _Serve) -> None:
        try:
            await self._for_agent(channel, serve)
        except Exception as error:  # noqa: BLE001 - the end of a task: one agent never ends the others
            _log.error("what an agent asked ended unexpectedly: %s", type(error).__name__)
        finally:
            self._serving -= 1
            self._used_at = anyio.current_time()

    async def _for_agent(self, channel: socket.socket, serve: _Serve) -> None:
        take(channel)
        agent = Agent()
        await agent.open(channel)
        try:
            await serve(agent)
        finally:
            agent.close()

    async def _serve_connection(self, connection: socket.socket, begun: bytes, agent: Agent) -> None:
        """Serve an agent's connection, from which the bytes `begun` were already read, until it ends, or the daemon
        ends the agent's channel.
        """
        async with anyio.create_task_group() as tasks:

            async def end() -> None:
                await agent.wait_gone()
                tasks.cancel_scope.cancel()

            tasks.start_soon(end)
            with connection:
                stream = await SocketStream.from_socket(connection)
                await self._server.serve(_Begun(stream, begun), agent)
            tasks.cancel_scope.cancel()

    async def _serve_request(self, sock: socket.socket, session: str, agent: Agent) -> None:
        """Serve an HTTP request over the exchange's socket `sock` until the MCP server has finished. After the response
        was sent completely, the daemon closes its end. That must not cancel the server's task: the SDK would treat the
        request as failed, and forget the session that the request began.
        """
        with sock:
            exchange = Exchange(sock)
            head = await exchange.head()
            if head is None:
                return  # the client was gone before its request was here
            state = {"session": session, "agent": agent}
            scope = {**scope_of(head), "scheme": "http", "server": None, "state": state}
            await self._server.http_app()(scope, exchange.receive, exchange.send)
            # Closing a socket with unread data would also discard data that was sent over it (ingress/exchange.py).
            with anyio.move_on_after(_LET_GO_S):
                while (await exchange.receive())["type"] != "http.disconnect":
                    pass


async def _wait_room(descriptor: int) -> None:
    """Wait until this process can open two more descriptors. Otherwise the kernel would drop the descriptors that the
    daemon passes (unix(7)), and the agent's connection would be lost.

    Meanwhile, new agents wait in the control socket, for as long as the daemon allows.
    """
    is_told = False
    while not are_free(_PASSED, descriptor):
        if not is_told:
            _log.warning("no more agents can be served until some have gone: out of system resource")
            is_told = True
        await anyio.sleep(FULL_PAUSE_S)


class _Begun(ByteStream):
    """A stream from which some bytes were already read; it returns those bytes first."""

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
