"""Offers the actions as tools in requests to a model. This is the gateway's access to the sessions and to the run door.

Runs in the daemon. Session names in addresses are untrusted, and are looked up. A call comes from a model. It is handled like a
call over the agents' protocol (mcp/calls.py), on behalf of the requesting session, with the same result. The added tools, the
calls, and the status of their results are recorded. Arguments and results are not, because the records of the runs contain
them.

Source: docs/reference/injected-tools.md; aileron/gateway/inject/exchange.py says what each method must do. Not here: bodies.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from aileron.audit import events
from aileron.audit.log import Audit
from aileron.daemon.http.sessions import Sessions
from aileron.gateway.inject.wire import PREFIX, Tool, Wire
from aileron.mcp.agent_port import AgentPort, Asker
from aileron.model.failure import AileronError
from aileron.model.json_value import JSONObject, dict_of, maybe_text
from aileron.model.names import RESERVED_TOOLS

if TYPE_CHECKING:  # only if it is used
    from aileron.mcp.agent_port import Offer
    from aileron.mcp.calls import ToolCalls
    from aileron.mcp.results import ToolResult

__all__ = ["InjectedTools"]

MAX_NOTED: Final = 1024
"""Maximum number of recent events that are remembered so that they are not recorded again: four for each open session."""
MAX_NAMES: Final = 128
"""Maximum number of tool names in one event: as many as a request can have."""
_OWN: Final = re.compile(r"\b(" + "|".join(sorted(RESERVED_TOOLS)) + r")\b")


class InjectedTools:
    """Service that provides the gateway with the actions as tools, and runs the calls of these tools. One instance per daemon."""

    def __init__(self, door: AgentPort, sessions: Sessions, audit: Audit) -> None:
        self._door = door
        self._sessions = sessions
        self._audit = audit
        self._noted: OrderedDict[tuple[str, ...], None] = OrderedDict()
        self._calls: ToolCalls | None = None

    def session_of(self, name: str) -> str:
        """Return the session whose gateway addresses contain this name. Raises AileronError (unauthorized)."""
        return self._sessions.session_of_address(name)

    def is_injected(self, session: str) -> bool:
        """Return whether the session was started with the option to insert tools into its requests."""
        return self._sessions.is_injected(session)

    async def offered(self, session: str, room: int) -> Sequence[Tool]:
        """Return at most `room` tools for a session's request: its listed actions and Aileron's own tools. If they are too many,
        return only the tools that find and run the actions; if these are also too many, return none. Raises AileronError if the
        session is not open or the actions cannot be listed.
        """
        self._sessions.check_open(session)
        offer = await self._tool_calls().offer(Asker(session))
        return await anyio.to_thread.run_sync(functools.partial(_fitting, offer, room))

    async def call(self, session: str, wire: Wire, tool: str, arguments: JSONObject) -> tuple[str, bool]:
        """Run a model's call of a tool, and record it. Return the text for the model, and whether it is an error."""
        from aileron.mcp import results
        from aileron.mcp.calls import UnknownTool

        try:
            await self._audit.note(events.InjectionCalled(session=session, wire=wire, tool=tool))
            found = await self._tool_calls().call(Asker(session), tool, arguments)
        except UnknownTool as unknown:
            return str(unknown), True
        except AileronError as unwritten:  # no tool was called
            return _told(results.refused(unwritten.failure)), True
        facts = found.facts
        failure = dict_of(facts.get("error"))
        answered = events.InjectionAnswered(
            session=session,
            wire=wire,
            tool=tool,
            status=maybe_text(facts.get("status")),
            failure_class=maybe_text(failure.get("class")),
            asked=maybe_text(facts.get("id")),
        )
        with anyio.CancelScope(shield=True):
            try:
                await self._audit.note(answered)
            except AileronError as unwritten:  # as everywhere: a result that cannot be recorded is not told
                return _told(results.refused(unwritten.failure)), True
        return _told(found), found.is_error

    async def added(self, session: str, wire: Wire, names: Sequence[str]) -> None:
        """Record the names of the tools added to a request if they differ from those added to the session's last request.
        Raises AileronError if recording fails.
        """
        what = ("added", session, wire, hashlib.sha256(" ".join(names).encode()).hexdigest())
        if self._is_new(what):
            listed = tuple(names[:MAX_NAMES])
            await self._audit.note(events.InjectionAdded(session=session, wire=wire, tools=listed, count=len(names)))
            for known in [known for known in self._noted if known[:3] == what[:3]]:
                del self._noted[known]  # recorded again even if the list returns to an earlier one
            self._noted_now(what)

    async def passed(self, session: str, wire: Wire, why: str) -> None:
        """Record that a request was forwarded without adding tools, and the reason `why`. Repeated events of a session with
        the same reason are recorded once.
        """
        what = ("passed", session, wire, why)
        if self._is_new(what):
            with contextlib.suppress(AileronError):  # the request goes on unchanged all the same
                await self._audit.note(events.InjectionSkipped(session=session, wire=wire, reason=why))
                self._noted_now(what)

    def _tool_calls(self) -> ToolCalls:
        if self._calls is None:
            from aileron.mcp.calls import ToolCalls

            self._calls = ToolCalls(self._door)
        return self._calls

    def _is_new(self, what: tuple[str, ...]) -> bool:
        if what in self._noted:
            self._noted.move_to_end(what)
            return False
        return True

    def _noted_now(self, what: tuple[str, ...]) -> None:
        """Remember that the event with the key `what` was recorded, so that it is not recorded again. An event that could
        not be recorded is not remembered: the next request records it.
        """
        self._noted[what] = None
        if len(self._noted) > MAX_NOTED:
            self._noted.popitem(last=False)


def _fitting(offer: Offer, room: int) -> list[Tool]:
    from aileron.mcp import tools

    listed = [offered for offered in offer.actions if offer.listed is None or offered.action.name in offer.listed]
    own = tools.OWN if offer.listed is None else tools.OWN_OF_MANY
    if len(listed) + len(own) > room:
        listed, own = [], tools.OWN_OF_MANY
    if len(own) > room:
        return []
    described = [*own, *(tools.tool_of(offered) for offered in listed)]
    return [
        Tool(tool.name, _prefixed(tool.description) if tool in own else tool.description, tool.input_schema)
        for tool in described
    ]


def _told(result: ToolResult) -> str:
    """Return the text of a tool's result. Aileron's own tools appear in it under the names that the model was given."""
    step = str(result.facts.get("next_step", ""))
    return result.text.replace(step, _prefixed(step)) if step else result.text


def _prefixed(sentence: str) -> str:
    return _OWN.sub(rf"{PREFIX}_\1", sentence)
