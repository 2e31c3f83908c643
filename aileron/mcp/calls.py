"""Execution of tool calls, whether they came over MCP (server.py) or in a model's response (docs/adr/0064).

Runs in the daemon. The caller is untrusted. Its session was determined beforehand, and all its requests are made as
that session (agent_port.py), so that it cannot see the runs and questions of other sessions.

Rules
- A call of an action returns at once if a person must decide, otherwise after at most CALL_S. If the run has not ended
  by then, the result has an id with which the caller can ask for the state later.
- A refusal by an action or by AgentPort is a result with `isError`; only an unknown tool is an error of the caller's protocol.
- Cancelling a call only stops its waiting. A run that has begun continues, and a question to a person stays open until
  `cancel_action` withdraws it.
- Arguments and results are never logged.

Source: docs/reference/mcp.md. Not here: the text of results (results.py), the list of tools (tools.py).
"""

from __future__ import annotations

import difflib
import logging
import math
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

import anyio
import anyio.to_thread
import msgspec

from aileron.mcp import results, tools
from aileron.mcp.agent_port import AgentPort, Asker, Call, CallState, Offer, Offered
from aileron.mcp.finding import MAX_FOUND, MAX_WORDS_CHARACTERS, USUAL_FOUND, Finder
from aileron.mcp.results import ToolResult
from aileron.model.failure import AileronError, Boundary, Failure, FailureClass
from aileron.model.json_value import JSON, JSONObject
from aileron.model.misfit import misfit_in
from aileron.model.names import RESERVED_TOOLS, tool_name
from aileron.model.outcome import RunStatus
from aileron.model.visible import visible

__all__ = ["CALL_S", "PROGRESS_S", "QUIET_S", "ToolCalls", "UnknownTool", "bug"]

CALL_S: Final = 25.0
"""Maximum number of seconds that a call waits for its run to end before it returns the status `running`. Every measured
agent waits for at least 60 s.
"""
QUIET_S: Final = 0.5
"""Seconds after which a call begins to report progress, if its client requested that. Most calls have ended by then, so
their progress is never requested from the daemon.
"""
PROGRESS_S: Final = 4.0
"""Seconds between two progress notifications of wait_for_action. Agents that limit the time without a notification
allow 60 s. A person's question to the agent is noticed at the same interval.
"""
_DEFAULT_WAIT_S: Final = 25.0
_MAX_KNOWN: Final = 4000
"""Maximum number of remembered tool names; above it, all are forgotten. It is four times the maximum number of actions."""
_MAX_NEAREST: Final = 5
"""Maximum number of similar names that the error for an unknown name suggests."""
_ACCOUNT_CHARACTERS: Final = 2000
"""Maximum number of characters of the argument that names a credential; enough for ten complete names."""
_ID_CHARACTERS: Final = 200
_log = logging.getLogger(__name__)
_Asked = TypeVar("_Asked")


class UnknownTool(LookupError):
    """Error: the caller named an unknown tool. The message is for the caller."""


_OwnTool = Callable[[Asker, JSONObject], Awaitable[ToolResult]]


class _Check(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    answer: str | None = None
    page: int = 1


class _Wait(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    seconds: float = _DEFAULT_WAIT_S


class _Cancel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str


class _Find(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    words: str
    limit: int = USUAL_FOUND


class _Act(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    arguments: JSONObject = {}


class _Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class _Rising:
    """A converter of a run's progress into progress that never decreases, as the protocol requires. A run's own reports start
    again with each step and each attempt.
    """

    def __init__(self) -> None:
        self._base = 0.0
        self._done = self._last = -math.inf

    def step(self, done: float, total: float | None) -> tuple[float, float | None] | None:
        """Return `progress` and `total` to report, or None if the progress is not higher than the last reported one."""
        if done < self._done:
            self._base = self._last
        self._done = done
        progress = self._base + done
        if progress <= self._last:
            return None
        self._last = progress
        return progress, None if total is None else self._base + total


class ToolCalls:
    """An executor of the tool calls that arrive by one route, such as the MCP server."""

    def __init__(self, door: AgentPort, progress_s: float = PROGRESS_S) -> None:
        self._door = door
        self._progress_s = progress_s
        self._own: dict[str, _OwnTool] = {
            "cancel_action": self._cancel_action,
            "check_action_status": self._check_action_status,
            "find_action": self._find_action,
            "list_pending": self._list_pending,
            "run_action": self._run_action,
            "wait_for_action": self._wait_for_action,
        }
        self._finder = Finder()
        self._finding = anyio.CapacityLimiter(1)  # one thread at a time: the finder is shared
        self._known: dict[str, str] = {}  # tool name → action, for all tools that were ever listed

    async def offer(self, asker: Asker) -> Offer:
        """Return the actions that this caller can use now, and remember their names."""
        return await self._offer(asker)

    async def call(self, asker: Asker, name: str, arguments: Mapping[str, JSON]) -> ToolResult:
        """Execute a call. Raises UnknownTool; every other failure is returned as a result."""
        own = self._own.get(name)
        status = self._refused_status(name)
        try:
            args = _plain(dict(arguments))
            if own is not None:
                return await own(asker, args)
            if (action := await self._action_of(asker, name)) is None:
                raise UnknownTool(f"Unknown tool: {visible(name[:_ID_CHARACTERS])}")
            return await self._act(asker, action, args)
        except AileronError as error:
            return results.refused(error.failure, status=status)
        except UnknownTool:
            raise
        except Exception as error:  # noqa: BLE001 - the end of a request: nothing foreign leaves, nor is logged
            return results.refused(bug(error), status=status)

    def misfit(self, name: str, problem: str) -> ToolResult:
        """Return the result for a call of the tool `name` whose arguments JSON cannot represent, as `problem` says."""
        return results.refused(_bad_input(problem).failure, status=self._refused_status(name))

    def _refused_status(self, name: str) -> RunStatus | None:
        """Return the status of a refused call: `failed` for an action, and None for Aileron's own tools, whose results
        have no status.
        """
        return RunStatus.FAILED if name not in self._own or name == tools.RUN_ACTION.name else None

    async def _act(self, asker: Asker, action: str, args: JSONObject) -> ToolResult:
        """Run an action, which the caller called through its tool or through run_action."""
        tool = tool_name(action)
        account = _account(args)
        call = Call(session=asker.session, action=action, args=args, binding=account, process=asker.process)
        try:
            state = await self._run(asker, call)
        except AileronError as error:
            now = (
                await self._looked_up(asker, tool) if error.failure.failure_class is FailureClass.NOT_FOUND else action
            )
            if now in (None, action):
                raise
            # The tool's name now belongs to another action: `a-b` was removed and `a.b` added. Nothing was run yet.
            state = await self._run(asker, msgspec.structs.replace(call, action=str(now)))
        return results.state_result(state)

    async def _run(self, asker: Asker, call: Call) -> CallState:
        """Run an action through the daemon. If the client requested progress, forward the connector's reports meanwhile."""
        if asker.report is None:
            return await self._door.run(call, CALL_S)
        until = anyio.current_time() + CALL_S
        begun = state = await self._door.run(call, QUIET_S)
        rising, seen = _Rising(), 0
        while state["status"] == RunStatus.RUNNING and (left := until - anyio.current_time()) > 0:
            state = await self._door.state(call.session, begun["run_id"], left, seen)
            report = state.get("progress")
            if report is not None and report["number"] > seen:
                seen = report["number"]
                if (step := rising.step(report["done"], report.get("total"))) is not None:
                    await asker.report(*step, report.get("message"))
        return begun if state["status"] == RunStatus.RUNNING else state

    async def _action_of(self, asker: Asker, tool: str) -> str | None:
        return self._known.get(tool) or await self._looked_up(asker, tool)

    async def _looked_up(self, asker: Asker, tool: str) -> str | None:
        await self._offer(asker)
        return self._known.get(tool)

    async def _offer(self, asker: Asker) -> Offer:
        offer = await self._door.offer(asker.session, asker.process)
        if len(self._known) > _MAX_KNOWN:
            self._known.clear()
        # For a name that was listed once, the daemon's error says why the action is no longer available.
        self._known.update({tool_name(entry.action.name): entry.action.name for entry in offer.actions})
        return offer

    # our own tools

    async def _check_action_status(self, asker: Asker, args: JSONObject) -> ToolResult:
        asked = _decoded(args, _Check)
        first = ""
        if asked.answer is not None:
            await self._door.answer(asker.session, _id(asked.id), asked.answer)
            first = "Your answer was passed on."
        return results.state_result(
            await self._door.state(asker.session, _id(asked.id), 0.0), page=asked.page, first=first
        )

    async def _wait_for_action(self, asker: Asker, args: JSONObject) -> ToolResult:
        asked = _decoded(args, _Wait)
        if not 0 <= asked.seconds <= tools.MAX_WAIT_S:
            raise _bad_input(f"seconds is {asked.seconds:g}; expected 0 to {tools.MAX_WAIT_S}")
        begun = anyio.current_time()
        while True:
            waited = anyio.current_time() - begun
            left = max(0.0, asked.seconds - waited)
            state = await self._door.state(asker.session, _id(asked.id), min(left, self._progress_s))
            if RunStatus(state["status"]).is_final or state.get("question") or left <= self._progress_s:
                return results.state_result(state)
            waited = anyio.current_time() - begun
            if asker.report is not None:
                await asker.report(waited, asked.seconds, f"{state['status']}, {waited:.0f} s")

    async def _cancel_action(self, asker: Asker, args: JSONObject) -> ToolResult:
        return results.cancelled(await self._door.cancel(asker.session, _id(_decoded(args, _Cancel).id)))

    async def _find_action(self, asker: Asker, args: JSONObject) -> ToolResult:
        asked = _decoded(args, _Find)
        if not 1 <= asked.limit <= MAX_FOUND:
            raise _bad_input(f"limit is {asked.limit}; expected 1 to {MAX_FOUND}")
        if not 1 <= len(asked.words) <= MAX_WORDS_CHARACTERS:
            raise _bad_input(f"words has {len(asked.words)} characters; expected 1 to {MAX_WORDS_CHARACTERS}")
        offer = await self._offer(asker)
        return results.found_list(await self._found(offer, asked.words, asked.limit), len(offer.actions))

    async def _found(self, offer: Offer, words: str, limit: int) -> list[Offered]:
        entries = {entry.action.name: entry for entry in offer.actions}
        actions = [entry.action for entry in offer.actions]
        found = await anyio.to_thread.run_sync(self._finder.find, words, actions, limit, limiter=self._finding)
        return [entries[action.name] for action in found]

    async def _run_action(self, asker: Asker, args: JSONObject) -> ToolResult:
        asked = _decoded(args, _Act)
        tool = tool_name(asked.name[:_ID_CHARACTERS])
        if tool in RESERVED_TOOLS:
            raise _bad_input(f"{tool} is a tool of its own: call it directly")
        action = await self._action_of(asker, tool)
        if action is None:
            raise await self._with_nearest(asker, tool, f"no action is called {visible(asked.name[:_ID_CHARACTERS])!r}")
        try:
            return await self._act(asker, action, dict(asked.arguments))
        except AileronError as error:
            if error.failure.failure_class is not FailureClass.NOT_FOUND:
                raise
            raise await self._with_nearest(asker, tool, error.failure.message) from None

    async def _with_nearest(self, asker: Asker, tool: str, message: str) -> AileronError:
        """Return the error `message` for an unknown action, with the names of similar actions."""
        offer = await self._offer(asker)
        names = [tool_name(entry.action.name) for entry in offer.actions]
        # Comparing with a thousand names takes a tenth of a second, each time that a caller gives an unknown name.
        alike = await anyio.to_thread.run_sync(
            difflib.get_close_matches, tool, names, _MAX_NEAREST, limiter=self._finding
        )
        found = await self._found(offer, tool.replace("_", " "), _MAX_NEAREST)
        nearest = list(dict.fromkeys([*alike, *(tool_name(entry.action.name) for entry in found)]))[:_MAX_NEAREST]
        details: JSONObject = {"nearest": [*nearest]} if nearest else {}
        return AileronError(FailureClass.NOT_FOUND, message, boundary=Boundary.ACTION, details=details)

    async def _list_pending(self, asker: Asker, args: JSONObject) -> ToolResult:
        _decoded(args, _Nothing)
        return results.pending_list(await self._door.pending(asker.session))


def _plain(args: JSONObject) -> JSONObject:
    """Return the arguments as JSON values. Raises AileronError(bad_input) for values that JSON does not have but the SDK's
    parsers accept: infinite numbers, lone surrogates.
    """
    misfit = misfit_in(args)  # msgspec would write null for an infinite number
    if misfit is not None:
        raise _bad_input(misfit)
    try:
        plain: JSONObject = msgspec.json.decode(msgspec.json.encode(args))
    except (ValueError, OverflowError, RecursionError, TypeError):
        raise _bad_input("the arguments hold a value that JSON cannot carry") from None
    return plain


def _account(args: JSONObject) -> str | None:
    """Remove the name of the credential (ACCOUNT) from the arguments and return it, or None. It is never passed to the
    action.
    """
    account = args.pop(tools.ACCOUNT, None)
    if account is None or (isinstance(account, str) and len(account) <= _ACCOUNT_CHARACTERS):
        return account
    raise _bad_input(f"{tools.ACCOUNT} is not a text of at most {_ACCOUNT_CHARACTERS} characters")


def _decoded(args: JSONObject, shape: type[_Asked]) -> _Asked:
    """Return the decoded arguments of one of Aileron's own tools. Raises AileronError(bad_input), which names the wrong
    argument.
    """
    try:
        return msgspec.convert(args, shape)
    except msgspec.ValidationError as error:
        raise _bad_input(visible(str(error)[:_ID_CHARACTERS])) from None


def _id(text: str) -> str:
    if not 1 <= len(text) <= _ID_CHARACTERS:
        raise _bad_input(f"an id has 1 to {_ID_CHARACTERS} characters; this one has {len(text)}")
    return text


def _bad_input(message: str) -> AileronError:
    return AileronError(FailureClass.BAD_INPUT, message, boundary=Boundary.USER)


def bug(error: Exception) -> Failure:
    """Return the failure for an unforeseen error. The error's message is left out, because it may contain an argument or a
    result.
    """
    place = traceback.extract_tb(error.__traceback__)[-1]
    _log.error("a request of an agent failed: %s at %s:%s", type(error).__name__, place.filename, place.lineno)
    return AileronError(FailureClass.INTERNAL_ERROR, "this is a bug in aileron; see `aileron daemon logs`").failure
