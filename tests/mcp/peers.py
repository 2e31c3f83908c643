"""A door that keeps its runs in a dict, and the SDK's client at a socket pair: the two ends of the protocol's tests.

The server and the door are in one process here, and speak with each other as the daemon and the process of the protocol do: over
a channel for each connection and each request.

The door is a peer behind the seam (aileron/mcp/agent_port.py), as small as it can be while keeping its promises; the same
questions are put to a real daemon in tests/daemon/test_protocol.py.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import anyio
from anyio.abc import SocketStream
from mcp.client import Client
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from starlette.types import ASGIApp, Receive, Scope, Send

from aileron.actions.manifest import input_schema, parse_action
from aileron.mcp.agent_port import Asker, Call, CallState, Offer, Offered
from aileron.mcp.answering import answer_agent
from aileron.mcp.asking import Agent
from aileron.mcp.calls import PROGRESS_S, ToolCalls
from aileron.mcp.lines import WRITE_S
from aileron.mcp.server import McpServer
from aileron.model.failure import AileronError, FailureClass
from aileron.model.outcome import RunStatus
from tests.support.shaped import shaped

__all__ = ["ERAS", "DictDoor", "RawPeer", "Served", "action_text", "connected", "offered", "raw_peer", "running"]

ERAS: Final = ("legacy", "auto")
"""Ways in which the SDK's client can begin: `initialize`, or `server/discover`."""


def action_text(
    name: str, *, gated: bool = False, idempotent: bool = False, irreversible: bool = True, body: str = ""
) -> str:
    """Return an action file with one optional input, `topic`."""
    approval = f"\n[approval]\nrequired = true\nirreversible = {str(irreversible).lower()}\n" if gated else ""
    return f"""+++
name = "{name}"
version = "1.0.0"

[match]
intent = "do {name}"

[[requires.connectors]]
name = "github://aileron-tests/probe"
version = "1.0.0"
hash = "sha256:{"a" * 64}"
capabilities = ["echo"]

[[inputs]]
name = "topic"
type = "string"
description = "What about."
required = false

[[execute]]
id = "one"
connector = "github://aileron-tests/probe"
op = "echo"
idempotent = {str(idempotent).lower()}
{approval}+++

{body or f"Does {name}."}
"""


def offered(name: str, *, granted: bool = False, **options: Any) -> Offered:
    """Return an action of this name in the form in which the door offers it."""
    action = parse_action(action_text(name, **options), file=f"{name}.md")
    return Offered(action=action, input_schema=input_schema(action), granted=granted)


class DictDoor:
    """A door whose answers the test puts into `answers`; it keeps states by session and id."""

    def __init__(self, *actions: Offered) -> None:
        self.actions = {entry.action.name: entry for entry in actions}
        self.listed: frozenset[str] | None = None
        self.answers: dict[str, CallState] = {}
        self.states: dict[tuple[str, str], CallState] = {}
        self.calls: list[Call] = []
        self.begun = anyio.Event()
        self.cancelled = anyio.Event()
        self.hold: anyio.Event | None = None
        self.waits: list[float] = []
        self.over = anyio.Event()

    async def offer(self, session: str, process: int | None = None) -> Offer:
        return Offer(actions=tuple(self.actions[name] for name in sorted(self.actions)), listed=self.listed)

    async def run(self, call: Call, wait_s: float) -> CallState:
        self.calls.append(call)
        self.waits.append(wait_s)
        if call.action not in self.actions:
            raise AileronError(FailureClass.NOT_FOUND, f"no action {call.action!r} is installed")
        if self.hold is not None:
            self.begun.set()
            try:
                await self.hold.wait()
            except BaseException:
                self.cancelled.set()
                raise
        usual: CallState = {"status": "completed", "audit_id": "run-1", "result": {"args": call.args}}
        answer = self.answers.get(call.action, usual)
        if answer["status"] == "pending_approval":
            answer.setdefault("message", "Nothing has happened yet: a person must decide this first.")
        for name in ("approval_id", "audit_id", "run_id"):
            if name in answer:
                self.states[call.session, shaped(answer)[name]] = answer
        return answer

    async def state(self, session: str, asked: str, wait_s: float, seen: int | None = None) -> CallState:
        self.waits.append(wait_s)
        state = self._own(session, asked)
        if not RunStatus(state["status"]).is_final:
            with anyio.move_on_after(wait_s):
                await self.over.wait()
        return self._own(session, asked)

    async def answer(self, session: str, approval_id: str, answer: str) -> CallState:
        state = self._own(session, approval_id)
        if "question" not in state:
            raise AileronError(FailureClass.INVALID_REQUEST, "no question waits for an answer")
        del state["question"]
        answered: CallState = shaped({"approval_id": approval_id, "answer": answer})
        return answered

    async def cancel(self, session: str, approval_id: str) -> CallState:
        state = self._own(session, approval_id)
        if state["status"] != "pending_approval":
            raise AileronError(FailureClass.ALREADY_DECIDED, "it was decided", details={"status": state["status"]})
        state["status"] = "cancelled"
        return {"status": "cancelled", "approval_id": approval_id, "audit_id": state["audit_id"]}

    async def pending(self, session: str) -> list[CallState]:
        return [
            {**state, "action": "any", "created_at": "2026-01-01T00:00:00Z"}
            for (owner, asked), state in self.states.items()
            if owner == session and state["status"] == "pending_approval" and asked == state.get("approval_id")
        ]

    def _own(self, session: str, asked: str) -> CallState:
        if (session, asked) not in self.states:
            raise AileronError(FailureClass.NOT_FOUND, f"nothing here has the id {asked!r}")
        return self.states[session, asked]


class Served:
    """A server of a door, with the daemon's part: an agent's channel for each connection and request."""

    def __init__(self, server: McpServer, calls: ToolCalls) -> None:
        self.tools_changed = server.tools_changed
        self.told = server.told
        self._server = server
        self._calls = calls

    async def serve(self, stream: SocketStream, session: str) -> None:
        """Serve a connection of a session."""
        async with self._agent(session) as agent:
            await self._server.serve(stream, agent)

    def http_app(self) -> ASGIApp:
        """Return `/mcp` as an application, for requests whose scope has the session's name in its state."""

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            state = scope["state"]
            if "session" not in state:
                await self._server.http_app()(scope, receive, send)
                return
            async with self._agent(state["session"]) as agent:
                await self._server.http_app()({**scope, "state": {**state, "agent": agent}}, receive, send)

        return app

    @contextlib.asynccontextmanager
    async def _agent(self, session: str) -> AsyncIterator[Agent]:
        ours, theirs = socket.socketpair()
        agent = Agent()
        await agent.open(theirs)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer_agent, ours, self._calls, Asker(session))
            try:
                yield agent
            finally:
                agent.close()


@contextlib.asynccontextmanager
async def running(door: DictDoor, *, progress_s: float = PROGRESS_S, write_s: float = WRITE_S) -> AsyncIterator[Served]:
    """Run a server of this door."""
    server = McpServer("1.2.3", write_s=write_s)
    async with server.run():
        yield Served(server, ToolCalls(door, progress_s))


@contextlib.asynccontextmanager
async def connected(server: Served, mode: str, session: str = "local", **options: Any) -> AsyncIterator[Client]:
    """Connect the SDK's client on a connection of its own, in the era that `mode` names."""
    async with anyio.create_task_group() as tasks:
        async with _pair() as (ours, theirs):
            tasks.start_soon(server.serve, theirs, session)
            async with Client(_LineTransport(ours), mode=mode, **options) as client:
                yield client
        tasks.cancel_scope.cancel()


class RawPeer:
    """A client that sends whatever the test wants, line by line."""

    def __init__(self, stream: SocketStream, end_server: Callable[[], None]) -> None:
        self.stream = stream
        self.end_server = end_server
        self._held = b""

    async def say(self, message: Any) -> None:
        """Send a message as JSON, or bytes as they are."""
        await self.stream.send(message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n")

    async def hear(self) -> Any:
        """Return the next message, or None once the server ended the connection."""
        while b"\n" not in self._held:
            try:
                self._held += await self.stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return None
        line, _, self._held = self._held.partition(b"\n")
        return json.loads(line)

    async def open(self) -> None:
        """Shake hands as the older era does."""
        client = {"name": "raw", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
        await self.say({"jsonrpc": "2.0", "id": "init", "method": "initialize", "params": params})
        assert (await self.hear())["id"] == "init"
        await self.say({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def call(self, request: Any, tool: str, args: dict[str, Any] | None = None) -> None:
        """Call a tool, without waiting for the answer."""
        params = {"name": tool, "arguments": args or {}}
        await self.say({"jsonrpc": "2.0", "id": request, "method": "tools/call", "params": params})


@contextlib.asynccontextmanager
async def raw_peer(server: Served, session: str = "local") -> AsyncIterator[RawPeer]:
    """Open a connection without the SDK's client."""
    serving = anyio.CancelScope()

    async def serve(stream: SocketStream) -> None:
        with serving:
            await server.serve(stream, session)

    async with anyio.create_task_group() as tasks:
        async with _pair() as (ours, theirs):
            tasks.start_soon(serve, theirs)
            yield RawPeer(ours, serving.cancel)
        tasks.cancel_scope.cancel()


@contextlib.asynccontextmanager
async def _pair() -> AsyncIterator[tuple[SocketStream, SocketStream]]:
    end, other = socket.socketpair()
    async with await SocketStream.from_socket(end) as ours, await SocketStream.from_socket(other) as theirs:
        yield ours, theirs


@contextlib.asynccontextmanager
async def _lines(stream: SocketStream) -> AsyncIterator[tuple[Any, Any]]:
    into, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, out = anyio.create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        held = b""
        async with into:
            with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                while True:
                    held += await stream.receive()
                    *lines, held = held.split(b"\n")
                    for line in lines:
                        await into.send(SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False)))

    async def write() -> None:
        async with out:
            async for item in out:
                await stream.send(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        tasks.start_soon(write)
        async with incoming, outgoing:
            yield incoming, outgoing
        tasks.cancel_scope.cancel()


def _LineTransport(stream: SocketStream) -> Any:  # noqa: N802 - what the SDK calls a transport
    return _lines(stream)
