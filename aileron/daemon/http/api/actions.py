"""Routes of actions and their runs, with the types of their bodies.

Source: docs/reference/http-api.md.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from aileron.api.actions import (
    ActionDetail,
    ActionEntry,
    ActionList,
    ActionResumed,
    ActionSwitched,
    AddAction,
    AddedAction,
    ResumeAction,
    SwitchAction,
)
from aileron.api.approvals import ConsentAnswer, ConsentsAnswer
from aileron.api.daemon import Removed
from aileron.api.runs import PlanAnswer, RunRequest, RunState
from aileron.daemon.consent_service.tool_changes import ToolChanges
from aileron.daemon.http.agents import StatusWaiter
from aileron.daemon.http.api.requests import caller_of, seen_progress, wait_s
from aileron.daemon.http.responses import as_json, run_answer
from aileron.daemon.http.run_door import RunDoor
from aileron.daemon.http.sessions import Sessions
from aileron.daemon.packages.actions import ActionService
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.invocation import Scope
from aileron.model.selecting import Selection

__all__ = ["ActionRoutes"]

DEFAULT_WAIT_S: Final = 25.0


class ActionRoutes:
    """HTTP request handlers for actions and their runs. One instance per daemon."""

    def __init__(
        self,
        *,
        actions: ActionService,
        tools: ToolChanges,
        door: RunDoor,
        following: StatusWaiter,
        sessions: Sessions,
        review: str,
    ) -> None:
        self._actions = actions
        self._tools = tools
        self._sessions = sessions
        self._door = door
        self._following = following
        self._review = review

    async def list_actions(self, request: Request) -> ActionList:
        """List every action file that the caller can use. A broken file is listed with its problem."""
        listed = await self._actions.listed()
        selection = self._selection_of(request)
        return ActionList(actions=[entry for entry in listed if _is_admitted(selection, entry)])

    async def show_action(self, request: Request) -> ActionDetail:
        """Return one action with all its details."""
        name, selection = request.path_params["name"], self._selection_of(request)
        shown = await self._actions.show(name)
        if not _is_admitted(selection, shown):
            raise AileronError(
                FailureClass.NOT_FOUND, f"this session has no action {name[:64]!a}", boundary=Boundary.ACTION
            )
        return shown

    def _selection_of(self, request: Request) -> Selection:
        """Return the selection of actions that the requesting agent can use. A person can use every action, whatever session
        they work in.
        """
        caller = caller_of(request)
        return self._sessions.selection_of(caller) if caller.scope is Scope.AGENT else Selection()

    async def add_action(self, _request: Request, asked: AddAction) -> AddedAction | ConsentAnswer:
        """Install an action file."""
        return await self._actions.add(asked.text, asked.file, replace=asked.replace)

    async def change_action(self, request: Request, asked: SwitchAction) -> ActionSwitched:
        """Enable or disable an action."""
        await self._actions.enable(request.path_params["name"], asked.enabled)
        return ActionSwitched(name=request.path_params["name"], enabled=asked.enabled)

    async def resume_action(self, request: Request, asked: ResumeAction) -> ActionResumed | ConsentsAnswer:
        """Ask a person again about an action's changed tools. If the request says that they are unchanged, only resume them."""
        return await self._tools.resume(request.path_params["name"], unchanged=asked.unchanged)

    async def remove_action(self, request: Request) -> Removed:
        """Delete an action file."""
        await self._actions.remove(request.path_params["name"])
        return Removed(removed=request.path_params["name"])

    async def run_action(self, request: Request, asked: RunRequest) -> Response:
        """Run an action. For a dry run, only return its plan."""
        caller, name, key = caller_of(request), request.path_params["name"], request.headers.get("idempotency-key")
        if asked.dry_run:
            return as_json(PlanAnswer(plan=await self._door.plan(caller, name, asked)))
        outcome = await self._door.run(caller, name, asked, wait_s(request, DEFAULT_WAIT_S), key=key)
        return run_answer(outcome, self._review)

    async def show_run(self, request: Request) -> RunState:
        """Return the state of a run, with the outcome if the run has ended."""
        run_id, session = request.path_params["id"], caller_of(request).sees
        return await self._following.run(run_id, session, wait_s(request, 0.0), seen_progress(request))


def _is_admitted(selection: Selection, entry: ActionEntry) -> bool:
    connectors = [name.rpartition("@")[0] for name in entry.connectors or []]
    return selection.admits_facts(entry.name, entry.tags or [], connectors)
