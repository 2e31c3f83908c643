"""The service for agents, over HTTP and over the Model Context Protocol: list actions, run them, follow their own requests. The
routes of the agent socket and the tools of the protocol's server only call this service.

Runs in the daemon. Callers are untrusted; their identity was determined before (sessions.py). An agent cannot see the requests
of other sessions. This module decides nothing: runs go through the runner to the spine (runs/spine.py).

Source: docs/reference/http-api.md; aileron/mcp/agent_port.py says what each method must do. Not here: HTTP (api/), the protocol
(mcp/).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Final

import anyio
import anyio.to_thread
import msgspec
from msgspec import UNSET

from aileron.actions.manifest import input_schema
from aileron.actions.resolve import Choice, account_choices
from aileron.api.failures import ErrorBody
from aileron.api.runs import RunningAnswer, RunRequest, RunState
from aileron.audit import query
from aileron.audit.watch import Watch
from aileron.daemon.consent_service.approval_queue import ApprovalQueue
from aileron.daemon.consent_service.standing_grants import GrantService
from aileron.daemon.foundation import Foundation
from aileron.daemon.http.responses import pending_answer, pending_message
from aileron.daemon.http.run_door import RunDoor
from aileron.daemon.http.sessions import Caller, Sessions
from aileron.daemon.runner import Runner
from aileron.daemon.views import review_url
from aileron.ledger.sqlite import Ledger
from aileron.mcp.agent_port import Account, Call, CallState, Offer, Offered
from aileron.model.consent import ConsentKind
from aileron.model.failure import AileronError
from aileron.model.invocation import Scope
from aileron.model.json_value import JSONObject
from aileron.model.manifest import ActionFile
from aileron.model.outcome import Failed, Outcome, Pending, Running, RunStatus, Succeeded
from aileron.model.selecting import is_selected
from aileron.runs.progress import Board, Reported

__all__ = ["AgentService", "StatusWaiter"]

_QUESTION: Final = "act-"
"""Prefix of the ids of questions; the ids of runs have another prefix."""


class StatusWaiter:
    """Service that waits until a run has ended or a question is decided."""

    def __init__(self, runner: Runner, watch: Watch, board: Board, ledger: Ledger) -> None:
        self._runner = runner
        self._watch = watch
        self._board = board
        self._ledger = ledger

    async def run(self, run_id: str, session: str | None, wait_s: float, seen: int | None) -> RunState:
        """Return the state of a run, as `state` does. Raises AileronError (not_found) if the run belongs to another session."""
        return await self.state(lambda: query.run_state(self._ledger, run_id, session), wait_s, seen)

    async def question(self, approval_id: str, session: str | None, wait_s: float, seen: int | None) -> RunState:
        """Return the state of a question, as `state` does. Raises AileronError (not_found) if another session asked it."""
        return await self.state(lambda: query.approval_result(self._ledger, approval_id, session), wait_s, seen)

    async def state(self, look: Callable[[], Awaitable[RunState]], wait_s: float, seen: int | None = None) -> RunState:
        """Return the result of `look` once the state is final, after `wait_s` seconds, or when the run reports progress with a
        higher number than `seen`. The field `progress` is the latest report. Also starts an approved run that has not begun.
        """
        state = await look()
        if _is_over(state) or state.audit_id is UNSET:
            return state
        problem = await self._begun(state)
        run_id, first = state.audit_id, state

        async def follow() -> RunState:
            return await self._watch.follow(run_id, first, look, _is_over, wait_s)

        with self._board.on(run_id) as reported:  # kept if the run ends while its state is read
            state = await follow() if seen is None else await _progressed(reported, seen, follow) or await look()
        if problem is not None and state.status is RunStatus.APPROVED:
            return msgspec.structs.replace(state, error=ErrorBody.of(problem.failure, run_id))
        if state.status is RunStatus.RUNNING and (progress := reported.latest()) is not None:
            return msgspec.structs.replace(state, progress=progress)
        return state

    async def _begun(self, state: RunState) -> AileronError | None:
        if state.status is not RunStatus.APPROVED or state.approval_id is UNSET:
            return None
        return await self._runner.resume(state.approval_id)


async def _progressed(reported: Reported, seen: int, follow: Callable[[], Awaitable[RunState]]) -> RunState | None:
    """Return the state of the run that `follow` returns; None if the run first reports progress with a higher number
    than `seen`.
    """
    state, problem = None, None
    async with anyio.create_task_group() as tasks:

        async def hear() -> None:
            await reported.newer(seen)
            tasks.cancel_scope.cancel()

        tasks.start_soon(hear)
        try:
            state = await follow()
        except AileronError as error:  # outside it would be an exception group
            problem = error
        tasks.cancel_scope.cancel()
    if problem is not None:
        raise problem
    return state


class AgentService:
    """The service for agents: it offers actions, runs them, and reports on runs and questions. One instance per daemon.
    Implements aileron/mcp/agent_port.py.
    """

    def __init__(
        self,
        base: Foundation,
        *,
        door: RunDoor,
        queue: ApprovalQueue,
        grants: GrantService,
        following: StatusWaiter,
        sessions: Sessions,
    ) -> None:
        self._base = base
        self._door = door
        self._queue = queue
        self._grants = grants
        self._following = following
        self._sessions = sessions

    async def offer(self, session: str, process: int | None = None) -> Offer:
        """Return the actions that are valid, enabled, and in this session's selection. `process` is the id of the calling
        process, if known; the limits of the sessions that it descends from apply too.
        """
        granted = await self._granted()
        selection = self._sessions.selection_of(Caller(Scope.AGENT, session, process))

        def look() -> tuple[Offered, ...]:
            several = self._bound_more_than_once()
            return tuple(
                Offered(
                    action=entry.action,
                    input_schema=input_schema(entry.action),
                    granted=entry.action.name in granted,
                    accounts=self._accounts(entry.action, several),
                )
                for entry in self._base.actions.list_actions()
                if entry.action is not None and entry.enabled and selection.admits(entry.action)
            )

        actions = await anyio.to_thread.run_sync(look)
        is_injected = self._sessions.is_injected(session)
        mcp = self._base.settings.now.mcp
        if len(actions) <= mcp.find_above:
            return Offer(actions=actions, is_injected=is_injected)
        kept = (offered.action for offered in actions if is_selected(mcp.keep_listed, offered.action))
        listed = frozenset(action.name for action in kept)
        return Offer(actions=actions, listed=listed, is_injected=is_injected)

    def _bound_more_than_once(self) -> frozenset[str]:
        """Return the connectors with several bindings; an empty set if the vault cannot be read, because no action can run
        then.
        """
        try:
            count = Counter(binding.connector for binding in self._base.vault.bindings())
        except AileronError:
            return frozenset()
        return frozenset(connector for connector, times in count.items() if times > 1)

    def _accounts(self, action: ActionFile, several: frozenset[str]) -> tuple[Account, ...]:
        """Return the accounts that a caller of `action` can choose between; empty if none of its connectors is in
        `several`, the connectors with several bindings.
        """
        if several.isdisjoint(str(connector.name) for connector in action.connectors):
            return ()
        try:
            found = account_choices(action, connectors=self._base.connectors, bindings=self._base.vault)
        except AileronError:  # a connector is missing, and a run says so
            return ()
        return tuple(Account(value=choice.value, told=_told(choice)) for choice in found)

    async def _granted(self) -> frozenset[str]:
        """Return the names of the actions that have a standing grant with uses left."""
        try:
            return frozenset(grant.action for grant in await self._grants.listed() if not grant.over)
        except AileronError:  # the vault is locked, or replaced: nothing runs without approval
            return frozenset()

    async def run(self, call: Call, wait_s: float) -> CallState:
        """Run an action for an agent, and wait at most `wait_s` seconds for the outcome. Return the state of the run."""
        asked = RunRequest(args=call.args, binding=call.binding)
        caller = Caller(Scope.AGENT, call.session, call.process)
        with self._sessions.answering(caller):
            return _as_state(await self._door.run(caller, call.action, asked, wait_s), self._base.review)

    async def state(self, session: str, asked: str, wait_s: float, seen: int | None = None) -> CallState:
        """Return the state of the run or question with the id `asked`, after waiting as StatusWaiter.state does."""
        with self._asked_by(session):
            look = self._following.question if asked.startswith(_QUESTION) else self._following.run
            state = _plain(await look(asked, session, wait_s, seen))
        if state["status"] == RunStatus.PENDING_APPROVAL and "approval_id" in state:
            state["review_url"] = review_url(self._base.review, state["approval_id"])
            state["message"] = pending_message(self._base.review, state["approval_id"])
        return state

    async def answer(self, session: str, approval_id: str, answer: str) -> CallState:
        """Record the agent's answer to a person's question."""
        with self._asked_by(session):
            return _plain(await self._queue.answer(approval_id, answer, session))

    async def cancel(self, session: str, approval_id: str) -> CallState:
        """Withdraw a question about a run that the session's agent requested."""
        with self._asked_by(session):
            return _plain(await self._queue.cancel(approval_id, Scope.AGENT.value, session))

    async def pending(self, session: str) -> list[CallState]:
        """Return the runs of the session that wait for a decision."""
        with self._asked_by(session):
            return [
                {**_plain(question), "review_url": review_url(self._base.review, question.approval_id)}
                for question in await self._queue.listed()
                if question.session == session and question.kind == ConsentKind.ACTION
            ]

    def _asked_by(self, session: str) -> AbstractContextManager[None]:
        return self._sessions.answering(_caller(session))


def _caller(session: str) -> Caller:
    return Caller(Scope.AGENT, session)


def _told(choice: Choice) -> str:
    return ", ".join(
        f"{binding.account} ({binding.name})" if binding.account else str(binding.name) for binding in choice.uses
    )


def _plain(value: msgspec.Struct) -> CallState:
    """Convert an API value to JSON values."""
    answer: CallState = msgspec.to_builtins(value)
    return answer


def _as_state(answer: Outcome | Pending | Running, review: str) -> CallState:
    match answer:
        case Succeeded():
            return {"status": RunStatus.COMPLETED.value, "audit_id": answer.run_id, "result": answer.result}
        case Failed():
            error: JSONObject = msgspec.to_builtins(ErrorBody.of(answer.failure, answer.run_id))
            return {"status": RunStatus.FAILED.value, "audit_id": answer.run_id, "error": error}
        case Pending():
            return _plain(pending_answer(answer, review))
        case Running():
            return _plain(RunningAnswer(run_id=answer.run_id, status=answer.status))


def _is_over(state: RunState) -> bool:
    return state.status.is_final
