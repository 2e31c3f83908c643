"""Pages that show questions: the queue, a complete open question, a decided question and its outcome.

Runs in the daemon, for an admitted browser (admission.py).

    GET  /approvals               open questions, and recently decided ones
    GET  /approvals/news          responds when the shown questions have changed (requested by the script)
    GET  /approvals/ID            a complete question, or its outcome
    POST /approvals/ID/preview    read the current state again

Rules
- A decision is about the digest of the displayed question, which covers the preview that this session read, if any.
- A link from another site never causes a read from a service.

Source: docs/reference/page.md. Not here: the decision (decision_forms.py), the text of a question (cards/card.py).
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final, NamedTuple

import anyio
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aileron.api.approvals import ApprovalEntry
from aileron.cards.card import Card
from aileron.cards.decision_flow import Review, review_of
from aileron.cards.question import state_words
from aileron.cards.record import record_of, result_lines
from aileron.cards.together import MOST_TOGETHER
from aileron.model.failure import AileronError
from aileron.model.preview import Preview
from aileron.model.timestamp import local_time
from aileron.model.visible import visible
from aileron.web.admission import Admission, is_approval_id, on_to
from aileron.web.daemon_port import DaemonPort
from aileron.web.forms import FormError, is_from_here, is_opened, query_of, read_form
from aileron.web.passkey_pages import PasskeyPages
from aileron.web.sessions import Session
from aileron.web.templating import html, with_fields
from aileron.web.views import (
    alike_of,
    came_of,
    is_long,
    mark_of,
    milliseconds,
    queue_of,
    recent_of,
    sent_of,
    surface_of,
)

__all__ = ["NEWS_S", "QuestionPages", "QuestionView", "edit_of"]

NEWS_S: Final = 25.0
"""Maximum seconds that a request for news waits, the same as for an API call that waits."""
_PAUSE_S: Final = 0.25
"""Seconds between two checks for news: a run writes a dozen rows in that time."""
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)


class QuestionView(NamedTuple):
    """A question as one session sees it now: its review, with the preview that the session read, and its card."""

    review: Review
    card: Card
    mark: str
    """Hash that changes when anything about the question changes (`mark_of`)."""

    def values(self, edit: str | None) -> dict[str, object]:
        """Return the values with which a template shows this question. `edit` is the digest of the edited version to
        show, or None.
        """
        question = self.review.question
        return {
            "id": question.approval_id,
            "card": self.card,
            "is_lasting": not self.review.is_run,
            "digest": self.review.digest,
            "edit": edit or "",
            "edits": [version.digest for version in question.edits or ()],
            "asked_at": local_time(question.created_at),
            "expires_at": local_time(question.expires_at),
            "expires_ms": milliseconds(question.expires_at),
            "news_of": question.approval_id,
            "news": self.mark,
        }


class QuestionPages:
    """The queue, the page and preview of each question, and the answers to requests for news. Each page has one instance."""

    def __init__(self, daemon: DaemonPort, admission: Admission, passkeys: PasskeyPages) -> None:
        self._daemon = daemon
        self._admission = admission
        self._passkeys = passkeys

    def routes(self) -> list[Route]:
        """Return the routes for the application that serves the page. Passkey routes must come before `/approvals/{id}`."""
        let_in = self._admission.let_in
        return [
            Route("/approvals", let_in(self._queue), methods=["GET"]),
            Route("/approvals/news", let_in(self._news), methods=["GET"]),
            *self._passkeys.routes(),
            Route("/approvals/{id}", let_in(self._question), methods=["GET"]),
            Route("/approvals/{id}/preview", let_in(self._read_again), methods=["POST"]),
        ]

    async def _queue(self, _request: Request, session: Session) -> Response:
        waiting, recent = await self._daemon.waiting(), await self._daemon.recent()
        rows, asker = queue_of(waiting)
        return html(
            "queue.html",
            **await self._admission.frame(session),
            waiting=rows,
            asker=asker,
            recent=recent_of(recent),
            alike=[] if session.key is None else alike_of(waiting),
            news_of="",
            news=mark_of([*waiting, *recent]),
        )

    async def _question(self, request: Request, session: Session) -> Response:
        approval_id = request.path_params["id"]
        edit = edit_of(query_of(request, "edit"))
        note = session.take_note(approval_id)
        shown = await self.shown(session, approval_id, edit, read=is_from_here(request) and is_opened(request))
        if not shown.review.waits:
            return await self.over(session, shown, note=note)
        return await self.waiting_page(session, shown, edit, note=note)

    async def waiting_page(
        self,
        session: Session,
        shown: QuestionView,
        edit: str | None,
        problem: str | None = None,
        status: int = HTTPStatus.OK,
        reason: str = "",
        note: str | None = None,
    ) -> Response:
        """Return the page of an open question, with its forms.

        `problem`: why the last form was refused; `reason`: the reason for a denial that the person typed; `note`: a message.
        """
        review, passkeys, can_sign = shown.review, self.passkeys_for(shown), session.key is not None
        may_approve = can_sign or bool(passkeys["passkeys"] and passkeys["passkey_approves"])
        return html(
            "question.html",
            status,
            **await self._admission.frame(session),
            **shown.values(edit),
            note=note,
            problem=problem,
            reason=reason,
            is_long=is_long(shown.card),
            can_preview=review.has_preview,
            is_unread=review.is_unread,
            can_deny=can_sign or bool(passkeys["passkeys"]),
            can_approve=may_approve and review.why_no_yes is None,
            why_no_yes=None if review.why_no_yes is None else visible(review.why_no_yes),
            **passkeys,
            confirm_token=session.token("confirm", review.id, review.digest, edit or ""),
            deny_token=session.token("deny", review.id, review.digest, edit or ""),
            ask_token=session.token("ask", review.id),
            preview_token=session.token("preview", review.id, edit or ""),
        )

    async def over(
        self,
        session: Session,
        shown: QuestionView,
        problem: str | None = None,
        http_status: int = HTTPStatus.OK,
        note: str | None = None,
    ) -> Response:
        """Return the page of a question that can no longer be decided, with the decision and its outcome."""
        approval_id = shown.review.id
        result = await self._daemon.result(approval_id)
        status = result.status
        if (
            status != shown.review.question.status
        ):  # the run may have continued meanwhile; with an old mark, the script would reload this page at once
            shown = await self.shown(session, approval_id, None, read=False)
        question = shown.review.question
        audit_id = question.audit_id or None
        record = None if audit_id is None else record_of(await self._daemon.record(audit_id))
        if session.decided == approval_id:
            session.decided = None
        has_outcome = result.result is not UNSET
        lines, missing = result_lines(result.result) if has_outcome else ([], 0)
        return html(
            "over.html",
            http_status,
            **await self._admission.frame(session),
            **shown.values(None),
            note=note,
            problem=problem,
            status=status,
            state=state_words(status),
            came=came_of(result),
            decided_at=local_time(question.decided_at) if question.decided_at else None,
            surface=surface_of(question.surface) if question.surface else None,
            reason=question.reason or None,
            outcome=lines,
            outcome_missing=missing,
            has_outcome=has_outcome,
            requests=[] if record is None else [sent_of(request) for request in record.requests],
            events=[] if record is None else [(local_time(at), kind, facts) for at, kind, facts in record.events],
            is_cut=record is not None and record.is_cut,
            audit_id=audit_id,
            cancel_token=session.token("cancel", approval_id) if status == "approved" else None,
        )

    async def shown(self, session: Session, approval_id: str, edit: str | None, *, read: bool = True) -> QuestionView:
        """Return the current state of a question, with the preview that this session read; with `read`, read the
        preview if there is none.

        Raises AileronError: not_found, or hash_mismatch if an open question does not match its digest, because another
        program may have changed the ledger's file while no daemon ran.
        """
        question = await self._daemon.question(approval_id)
        review = review_of(question, is_signed=True, edit=edit)
        if review.waits and review.has_preview:
            review = review.with_preview(await self._preview(session, approval_id, review.plan_digest, read=read))
        return QuestionView(review, review.card(local_time), mark_of([question]))

    async def _preview(
        self, session: Session, approval_id: str, digest: str, *, read: bool = True, again: bool = False
    ) -> Preview | None:
        """Return the preview that this session read, or None. With `read`, read it if it is missing; with `again`,
        always read it anew.

        Raises OverError if the session ended. If the service cannot be read, return a preview with the failure, so that the
        person sees why no state is shown, and can still deny. This preview is not stored, and an earlier one is dropped.
        """
        async with session.reading:
            session.check_open()  # the session may have ended while this waited for the lock
            found = session.preview_of(approval_id, digest)
            if (found is None and read) or again:
                session.forget_preview(approval_id, digest)  # it is outdated even if this read fails
                try:
                    found = await self._daemon.preview(approval_id, digest)
                except AileronError as error:
                    return Preview(None, error.failure.message, None, None)
                session.check_open()
                session.keep_preview(approval_id, digest, found)
        return found

    async def _news(self, request: Request, session: Session) -> Response:
        fields = query_of(request, "of", "known", "waiting", "now")
        names, known = [name for name in fields.get("of", "").split(",") if name], fields.get("known", "")
        if len(names) > MOST_TOGETHER or not all(map(is_approval_id, names)):
            raise FormError(HTTPStatus.BAD_REQUEST, "no such question")
        changed = self._daemon.news()  # before the state is read, so that no change in between is missed
        told = await self._told(names)
        count = fields.get("waiting", str(told["waiting"]))
        with anyio.move_on_after(0.0 if "now" in fields else NEWS_S):
            while told["news"] == known and str(told["waiting"]) == count:
                await _first_of(changed, session.over, self._daemon.stopping)
                session.check_open()
                if self._daemon.stopping.is_set():
                    break
                await anyio.sleep(_PAUSE_S)
                changed = self._daemon.news()
                told = await self._told(names)
        return with_fields(JSONResponse(told))

    async def _told(self, names: list[str]) -> dict[str, object]:
        """Return the values that the page's script checks for changes. They describe the questions with the ids
        `names`, or the queue if `names` is empty.

        `news` changes when one of the questions changes (`mark_of`). `status` is the question's status if `names` has
        exactly one id, and otherwise empty. `waiting` is the number of open questions.
        """
        waiting = await self._daemon.waiting()
        rows: list[ApprovalEntry] = [await self._daemon.question(name) for name in names]
        shown = rows or [*waiting, *await self._daemon.recent()]
        return {"news": mark_of(shown), "status": rows[0].status if len(rows) == 1 else "", "waiting": len(waiting)}

    async def _read_again(self, request: Request, session: Session) -> Response:
        approval_id = request.path_params["id"]
        fields = await read_form(request, "token", "edit")
        edit = edit_of(fields)
        self._admission.check_token(session, fields, "preview", approval_id, edit or "")
        review = review_of(await self._daemon.question(approval_id), is_signed=True, edit=edit)
        if review.waits and review.has_preview:
            found = await self._preview(session, approval_id, review.plan_digest, again=True)
            if found is not None and found.problem is not None:
                session.leave_note(approval_id, "The current state could not be loaded.")
        return on_to(approval_id, edit)

    def passkeys_for(self, shown: QuestionView) -> dict[str, object]:
        """Return the passkeys that can decide about a question, as values for a template."""
        return {
            "passkeys": [{"key_id": passkey.id, "name": passkey.name} for passkey in self._passkeys.offered()],
            "passkey_approves": self._passkeys.says_yes_to(shown.review.question.kind),
        }


async def _first_of(*events: anyio.Event) -> None:
    async with anyio.create_task_group() as tasks:

        async def wait(event: anyio.Event) -> None:
            await event.wait()
            tasks.cancel_scope.cancel()

        for event in events:
            tasks.start_soon(wait, event)


def edit_of(fields: dict[str, str]) -> str | None:
    """Return the digest with which a form or a query string names an edited version of a question, or None if it names
    none. Raises FormError for a malformed digest.
    """
    edit = fields.get("edit", "")
    if edit and not _DIGEST.fullmatch(edit):
        raise FormError(HTTPStatus.BAD_REQUEST, "no such version")
    return edit or None
