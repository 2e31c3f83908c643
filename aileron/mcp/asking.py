"""An agent, as the MCP server sees it: its requests are sent to the daemon over the agent's channel, and the daemon's
answers are returned.

Runs in the MCP process, which knows nothing else about an agent. Only the daemon knows which agent a channel belongs to.

Rules
- If a request is cancelled, the daemon is told (Drop): it stops waiting for the answer, and a run that has begun continues.
- One report of progress is in transit at a time; the daemon sends the next report after the agent has received this one.
- When the daemon ends the channel, every open request raises AgentGone.

Source: docs/adr/0075-mcp-in-a-process-of-its-own.md. Not here: the daemon's end (answering.py).
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Final

import msgspec

from aileron.mcp.channel import Channel
from aileron.mcp.process_messages import (
    MAX_SAID_BYTES,
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
    decode_said,
    encode,
)
from aileron.model.json_value import JSONObject
from aileron.model.misfit import misfit_in

if TYPE_CHECKING:  # only for types: the MCP process need not import it
    from aileron.mcp.agent_port import Report

__all__ = ["Agent", "AgentGone", "AskRefused"]


_TURNS: Final = 4
"""Turns of the event loop to wait before a request is sent to the daemon. A cancellation that arrived together with its
call is noticed within two turns, so the call is never begun.
"""


class AgentGone(Exception):
    """Error: the daemon has ended this agent's channel."""


class AskRefused(Exception):
    """Error: the daemon refused an agent's request in a way that the Model Context Protocol reports as an error.
    `is_invalid` is true if the caller named an unknown tool or cursor.
    """

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.message)
        self.message = refused.message
        self.is_invalid = refused.kind == "invalid"


class Agent:
    """The agent at the other end of one connection or HTTP request, with its channel to the daemon."""

    def __init__(self) -> None:
        self._channel = Channel(self._take, MAX_SAID_BYTES, self._go)
        self._waiting: dict[int, asyncio.Queue[Said | None]] = {}  # each queue holds at most an answer and a report
        self._last = 0
        self._is_gone = False

    async def open(self, sock: socket.socket) -> None:
        """Start the channel to the daemon on this end of a socket pair."""
        await self._channel.open(sock)

    async def wait_gone(self) -> None:
        """Wait until the daemon has ended the agent's channel."""
        await self._channel.wait_over()

    def close(self) -> None:
        """End the channel to the daemon."""
        self._channel.close()

    async def listed(self, cursor: str | None) -> Listed:
        """Return a page of the list of tools. Raises AskRefused, or AgentGone if the daemon ended the channel."""
        self._last += 1
        said = await self._ask(List(self._last, cursor), None)
        if not isinstance(said, Listed):
            raise AgentGone
        return said

    async def call(self, name: str, arguments: JSONObject, report: Report | None) -> Answered:
        """Call a tool and return its result. Raises AskRefused, or AgentGone if the daemon ended the channel."""
        self._last += 1
        document, misfit = _carried(arguments)
        said = await self._ask(Call(self._last, name, document, misfit, report is not None), report)
        if not isinstance(said, Answered):
            raise AgentGone
        return said

    async def _ask(self, question: List | Call, report: Report | None) -> Said:
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        if self._is_gone:  # check directly before the queue is registered: `_go` then finds it
            raise AgentGone
        waiting = self._waiting[question.id] = asyncio.Queue()
        is_answered = False
        try:
            await self._channel.put(encode(question))
            while isinstance(said := await waiting.get(), Progressed):
                if report is not None:
                    await report(said.progress, said.total, said.message)
                self._channel.put_at_once(encode(Heard(question.id)))
            is_answered = True
        finally:
            del self._waiting[question.id]
            if not is_answered:
                self._channel.put_at_once(encode(Drop(question.id)))
        if said is None:
            raise AgentGone
        if isinstance(said, Refused):
            raise AskRefused(said)
        return said

    def _go(self) -> None:
        self._is_gone = True
        for waiting in self._waiting.values():
            waiting.put_nowait(None)

    def _take(self, message: bytes) -> None:
        said = decode_said(message)
        waiting = self._waiting.get(said.id)
        if waiting is None:
            return  # the question was dropped while this was on its way
        if waiting.qsize() > 1:
            raise MessageError("more is said than was asked")
        waiting.put_nowait(said)


def _carried(arguments: JSONObject) -> tuple[bytes, str | None]:
    """Return the arguments as JSON, and None. If JSON cannot represent them, return empty bytes and a description of
    the problem. The SDK's parsers accept values that JSON does not allow.
    """
    misfit = misfit_in(arguments)
    if misfit is None:
        try:
            return msgspec.json.encode(arguments), None
        except (ValueError, OverflowError, RecursionError, TypeError):
            misfit = "the arguments hold a value that JSON cannot carry"
    return b"", misfit
