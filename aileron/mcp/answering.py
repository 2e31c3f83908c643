"""The daemon's end of an agent's channel. It answers the requests that the MCP process makes for that agent.

Runs in the daemon. The MCP process is not trusted, because it parses what agents send. The daemon itself determined
whose channel it is, and no message can change that; all requests are made as that agent (calls.py).

Rules
- At most MAX_UNDER_WAY requests of a channel, of at most MAX_CALLS_BYTES together, are processed at once; at the limit,
  no further request is read.
- If a request is dropped (Drop), or its channel ends, waiting for its result stops. A run that has begun continues (calls.py).
- A report of progress is sent only after the agent has received the previous report, so an agent that does not read
  gets no more reports.
- No request or answer is logged.

Source: docs/adr/0075-mcp-in-a-process-of-its-own.md. Not here: the other end (asking.py).
"""

from __future__ import annotations

import contextlib
import socket
from typing import Final

import anyio
import msgspec
from anyio.abc import TaskGroup

from aileron.mcp import tools
from aileron.mcp.agent_port import Asker, Report
from aileron.mcp.calls import ToolCalls, UnknownTool, bug
from aileron.mcp.channel import Channel
from aileron.mcp.process_messages import (
    MAX_ASKED_BYTES,
    Answered,
    Call,
    Drop,
    Heard,
    List,
    Listed,
    MessageError,
    Progressed,
    Refused,
    Said,
    decode_asked,
    encode,
)
from aileron.mcp.results import ToolResult
from aileron.model.failure import AileronError
from aileron.model.json_value import JSONObject

__all__ = ["answer_agent"]

MAX_UNDER_WAY: Final = 128
"""Maximum number of requests on one agent's channel that are processed at once: twice what a connection can have
(lines.MAX_CALLS). Dropped requests count until they have ended.
"""
MAX_CALLS_BYTES: Final = 16 << 20
"""Maximum total size in bytes of the requests on one agent's channel that are processed at once: twice what a connection can
have (lines.MAX_CALLS_BYTES).
"""


async def answer_agent(sock: socket.socket, calls: ToolCalls, asker: Asker) -> None:
    """Answer the MCP process's requests for one agent over `sock`, the daemon's end of the agent's channel, until
    either side ends the channel; then close it.
    """
    await _Answering(calls, asker).run(sock)


class _Answering:
    def __init__(self, calls: ToolCalls, asker: Asker) -> None:
        self._calls = calls
        self._asker = asker
        self._channel = Channel(self._take, MAX_ASKED_BYTES)
        self._tasks: TaskGroup | None = None
        self._under_way: dict[int, anyio.CancelScope] = {}
        self._bytes = 0
        self._unheard: dict[int, anyio.Event] = {}

    async def run(self, sock: socket.socket) -> None:
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                await self._channel.open(sock)
                await self._channel.wait_over()
            finally:
                self._channel.close()
            tasks.cancel_scope.cancel()

    def _take(self, message: bytes) -> None:
        match decode_asked(message):
            case Drop(id=number):
                if (scope := self._under_way.get(number)) is not None:
                    scope.cancel()
            case Heard(id=number):
                if (unheard := self._unheard.get(number)) is not None:
                    unheard.set()
            case question:
                self._begin(question, len(message))

    def _begin(self, question: List | Call, size: int) -> None:
        if self._tasks is None or question.id in self._under_way:
            raise MessageError("a question twice")
        self._under_way[question.id] = scope = anyio.CancelScope()
        self._bytes += size
        self._tasks.start_soon(self._answer, question, scope, size)
        if not self._has_room():
            self._channel.pause()

    def _has_room(self) -> bool:
        return len(self._under_way) < MAX_UNDER_WAY and self._bytes < MAX_CALLS_BYTES

    async def _answer(self, question: List | Call, scope: anyio.CancelScope, size: int) -> None:
        try:
            with scope:
                said = await (self._listed(question) if isinstance(question, List) else self._called(question))
                await self._channel.put(encode(said))
        finally:
            del self._under_way[question.id]
            self._bytes -= size
            if self._has_room():
                self._channel.resume()

    async def _listed(self, asked: List) -> Said:
        try:
            offer = await self._calls.offer(self._asker)
        except AileronError as error:
            return Refused(asked.id, "internal", error.failure.message)
        except Exception as error:  # noqa: BLE001 - the end of a request: nothing foreign leaves, nor is logged
            return Refused(asked.id, "internal", bug(error).message)
        try:
            page, cursor = ([], None) if offer.is_injected else tools.page_of(offer, asked.cursor)
        except ValueError as error:
            return Refused(asked.id, "invalid", f"cursor: {error}")
        return Listed(asked.id, msgspec.json.encode(page), cursor)

    async def _called(self, asked: Call) -> Said:
        asker = self._asker._replace(report=self._report_of(asked.id)) if asked.reports else self._asker
        try:
            result = await self._result(asker, asked)
        except UnknownTool as unknown:
            return Refused(asked.id, "invalid", str(unknown))
        return Answered(asked.id, result.text, msgspec.json.encode(result.facts), result.is_error)

    async def _result(self, asker: Asker, asked: Call) -> ToolResult:
        misfit = asked.misfit
        arguments: JSONObject = {}
        if misfit is None:
            try:
                arguments = msgspec.json.decode(asked.arguments, type=JSONObject)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                misfit = "the arguments are no JSON object"
        if misfit is not None:
            return self._calls.misfit(asked.name, misfit)
        return await self._calls.call(asker, asked.name, arguments)

    def _report_of(self, number: int) -> Report:
        async def report(progress: float, total: float | None = None, message: str | None = None) -> None:
            unheard = self._unheard[number] = anyio.Event()
            try:
                await self._channel.put(encode(Progressed(number, progress, total, message)))
                await unheard.wait()
            finally:
                with contextlib.suppress(KeyError):
                    del self._unheard[number]

        return report
