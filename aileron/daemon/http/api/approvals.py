"""Routes of questions that wait for a person, and of decisions, with the types of their bodies.

Source: docs/reference/http-api.md.
"""

from __future__ import annotations

from starlette.requests import Request

from aileron.api.approvals import (
    Answered,
    AnswerQuestion,
    ApprovalList,
    AskBack,
    Asked,
    ChallengeRequest,
    Decision,
    Edited,
    EditRequest,
    PreviewRequest,
    Question,
    SealedPreview,
    Settled,
)
from aileron.api.approver import Challenge
from aileron.api.runs import RunState
from aileron.daemon.consent_service.approval_queue import ApprovalQueue
from aileron.daemon.consent_service.passkeys import Passkeys
from aileron.daemon.consent_service.service import DecisionService
from aileron.daemon.http.agents import StatusWaiter
from aileron.daemon.http.api.requests import caller_of, seen_progress, wait_s

__all__ = ["ApprovalRoutes"]


class ApprovalRoutes:
    """HTTP request handlers for questions to a person and their decisions. One instance per daemon."""

    def __init__(
        self, *, queue: ApprovalQueue, decisions: DecisionService, passkeys: Passkeys, following: StatusWaiter
    ) -> None:
        self._queue = queue
        self._decisions = decisions
        self._passkeys = passkeys
        self._following = following

    async def list_approvals(self, _request: Request) -> ApprovalList:
        """List the questions that wait for a person."""
        return ApprovalList(approvals=await self._queue.listed())

    async def show_approval(self, request: Request) -> Question:
        """Return one question with its frozen plan."""
        return await self._queue.show(request.path_params["id"])

    async def approval_result(self, request: Request) -> RunState:
        """Return the state of the run or change that a question is about, in the field `status`. Each state has HTTP code 200."""
        asked, session = request.path_params["id"], caller_of(request).sees
        return await self._following.question(asked, session, wait_s(request, 0.0), seen_progress(request))

    async def decide(self, request: Request, asked: Decision) -> Settled:
        """Record a person's decision. An approved run starts at once or after its holding time; an approved change is made."""
        return await self._decisions.decide(request.path_params["id"], asked, caller_of(request).scope.value)

    async def challenge(self, request: Request, asked: ChallengeRequest) -> Challenge:
        """Return the statements that passkeys can sign for a decision."""
        approval_id = request.path_params["id"]
        return await self._passkeys.challenge(approval_id, asked.digest, asked.decision, asked.reason)

    async def cancel(self, request: Request) -> Settled:
        """Withdraw a question, or an approval that has not been used yet."""
        caller = caller_of(request)
        return await self._queue.cancel(request.path_params["id"], caller.scope.value, caller.sees)

    async def edit(self, request: Request, asked: EditRequest) -> Edited:
        """Return a question's plan made again with other arguments. A person can approve it in place of the original."""
        return await self._queue.edit(request.path_params["id"], asked.args)

    async def preview(self, request: Request, asked: PreviewRequest) -> SealedPreview:
        """Return the preview of a run: the current state that the run would change, encrypted for the requesting approver."""
        return await self._decisions.preview(request.path_params["id"], asked, caller_of(request).scope)

    async def ask_back(self, request: Request, asked: AskBack) -> Asked:
        """Pass a person's question to the agent that requested the run."""
        return await self._queue.ask_back(request.path_params["id"], asked.question)

    async def answer(self, request: Request, asked: AnswerQuestion) -> Answered:
        """Record the agent's answer to a person's question."""
        return await self._queue.answer(request.path_params["id"], asked.answer, caller_of(request).sees)
