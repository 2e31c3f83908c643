"""What a page shows of questions: the queue, one that waits, whole, one that is over and what came of it.

Runs in the daemon, for who was let in (admission.py).

    GET  /approvals               what waits, and what was decided lately
    GET  /approvals/news          when something is another than what is shown (the script asks)
    GET  /approvals/ID            one question, whole, or what came of it
    POST /approvals/ID/preview    read again what is there now

Rules
- What a decision would be about is the digest of what is shown: with the preview that this session read, where there is one.
- A page of elsewhere that leads here has nothing read from a service by that.

Source: docs/reference/page.md. Not here: the decision (deciding.py), what a question says (review/sheet.py).
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import anyio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aileron.model.failure import AileronError
from aileron.model.preview import Preview
from aileron.model.timestamp import local_time
from aileron.review.question import digest_of, has_preview, is_run, state_of, waits
from aileron.review.record import record_of, result_lines
from aileron.review.sheet import Sheet, sheet_of
from aileron.web.admission import Admission, is_approval_id, on_to
from aileron.web.daemon_port import DaemonPort
from aileron.web.forms import FormError, is_from_here, query_of, read_form
from aileron.web.passkey_pages import PasskeyPages
from aileron.web.sessions import Session
from aileron.web.templating import html, with_fields
from aileron.web.views import (
    entry_of,
    is_long,
    mark_of,
    milliseconds,
    sent_of,
    surface_of,
)

__all__ = ["NEWS_S", "QuestionPages", "QuestionView", "edit_of"]

NEWS_S: Final = 25.0
"""As long as a call of the API waits."""
_PAUSE_S: Final = 0.25
"""Between two looks: a run writes a dozen rows in that time."""
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)


class QuestionView(NamedTuple):
    """One question, as it stands now for one session."""

    question: dict[str, Any]
    preview: Preview | None
    sheet: Sheet
    digest: str
    """Of what is shown: what a decision would be about."""
    mark: str
    """Another one once something about the question is."""

    @property
    def waits(self) -> bool:
        """Whether it can be decided."""
        return waits(self.question)

    def values(self, edit: str | None) -> dict[str, Any]:
        """For a template."""
        question = self.question
        return {
            "id": str(question["approval_id"]),
            "sheet": self.sheet,
            "is_lasting": not is_run(question),
            "digest": self.digest,
            "edit": edit or "",
            "edits": [str(one.get("digest")) for one in question.get("edits") or []],
            "asked_at": local_time(question.get("created_at")),
            "expires_at": local_time(question.get("expires_at")),
            "expires_ms": milliseconds(question.get("expires_at")),
            "news_of": str(question["approval_id"]),
            "news": self.mark,
        }


class QuestionPages:
    """One for each page."""

    def __init__(self, daemon: DaemonPort, admission: Admission, passkeys: PasskeyPages) -> None:
        self._daemon = daemon
        self._admission = admission
        self._passkeys = passkeys

    def routes(self) -> list[Route]:
        """Of the application that serves it; those of passkeys stand between the first and the last."""
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
        return html(
            "queue.html",
            **self._admission.frame(session),
            waiting=[entry_of(row) for row in waiting],
            recent=[entry_of(row) for row in recent],
            news_of="",
            news=mark_of([*waiting, *recent]),
        )

    async def _question(self, request: Request, session: Session) -> Response:
        approval_id = request.path_params["id"]
        edit = edit_of(query_of(request, "edit"))
        note = session.take_note(approval_id)
        shown = await self.shown(session, approval_id, edit, read=is_from_here(request))
        if not shown.waits:
            return await self.over(session, shown, note=note)
        return self.waiting_page(session, shown, edit, note=note)

    def waiting_page(
        self,
        session: Session,
        shown: QuestionView,
        edit: str | None,
        problem: str | None = None,
        status: int = HTTPStatus.OK,
        reason: str = "",
        note: str | None = None,
    ) -> Response:
        """A question that can be decided, with its forms. `problem`: why the last one was not taken; `reason`: what was typed."""
        approval_id = str(shown.question["approval_id"])
        return html(
            "question.html",
            status,
            **self._admission.frame(session),
            **shown.values(edit),
            note=note,
            problem=problem,
            reason=reason,
            is_long=is_long(shown.sheet),
            can_preview=has_preview(shown.question),
            is_unread=has_preview(shown.question) and shown.preview is None,
            **self.passkeys_for(shown),
            confirm_token=session.token("confirm", approval_id, shown.digest, edit or ""),
            deny_token=session.token("deny", approval_id, shown.digest, edit or ""),
            ask_token=session.token("ask", approval_id),
            preview_token=session.token("preview", approval_id, edit or ""),
        )

    async def over(
        self,
        session: Session,
        shown: QuestionView,
        problem: str | None = None,
        status: int = HTTPStatus.OK,
        note: str | None = None,
    ) -> Response:
        """A question that nobody can decide any more: what was decided, and what came of it."""
        question = shown.question
        approval_id, audit_id = str(question["approval_id"]), question.get("audit_id")
        result = await self._daemon.result(approval_id)
        record = None if audit_id is None else record_of(await self._daemon.record(str(audit_id)))
        if session.decided == approval_id:
            session.decided = None
        lines, missing = result_lines(result["result"]) if "result" in result else ([], 0)
        return html(
            "over.html",
            status,
            **self._admission.frame(session),
            **shown.values(None),
            note=note,
            problem=problem,
            status=question.get("status"),
            state=state_of(question),
            decided_at=local_time(question["decided_at"]) if question.get("decided_at") else None,
            surface=surface_of(question["surface"]) if question.get("surface") else None,
            reason=question.get("reason"),
            held_until=local_time(result["held_until"]) if "held_until" in result else None,
            error=result.get("error"),
            outcome=lines,
            outcome_missing=missing,
            has_outcome="result" in result,
            requests=[] if record is None else [sent_of(one) for one in record.requests],
            events=[] if record is None else [(local_time(at), kind, facts) for at, kind, facts in record.events],
            is_cut=record is not None and record.is_cut,
            audit_id=audit_id,
            cancel_token=session.token("cancel", approval_id) if question.get("status") == "approved" else None,
        )

    async def shown(self, session: Session, approval_id: str, edit: str | None, *, read: bool = True) -> QuestionView:
        """The question as it is now, with the preview this session read; with `read` it is read where it was not."""
        question = await self._daemon.question(approval_id)
        mark = mark_of([question])
        if edit is not None:
            question = await self._daemon.question(approval_id, edit)
        preview = None
        if waits(question) and has_preview(question):
            preview = await self._preview(session, approval_id, str(question["digest"]), read=read)
        sheet = sheet_of(question, preview, local_time)
        return QuestionView(question, preview, sheet, digest_of(question, preview), mark)

    async def _preview(
        self, session: Session, approval_id: str, digest: str, *, read: bool = True, again: bool = False
    ) -> Preview | None:
        """What this session read before; else, with `read`, what is read now. `again`: now in any case. OverError.

        What could not be begun to be read is told as what failed: a person may say no to it, and knows why they see nothing. It
        is not kept, and nor is what was read before it.
        """
        async with session.reading:
            session.check_open()  # it was waited for
            found = session.preview_of(approval_id, digest)
            if (found is None and read) or again:
                session.forget_preview(approval_id, digest)  # however this ends, it is not what is there now
                try:
                    found = await self._daemon.preview(approval_id, digest)
                except AileronError as error:
                    return Preview(None, error.failure.message, None, None)
                session.check_open()
                session.keep_preview(approval_id, digest, found)
        return found

    async def _news(self, request: Request, session: Session) -> Response:
        fields = query_of(request, "of", "known")
        approval_id, known = fields.get("of", ""), fields.get("known", "")
        if approval_id and not is_approval_id(approval_id):
            raise FormError(HTTPStatus.BAD_REQUEST, "no such question")
        rows: list[dict[str, Any]] = []
        with anyio.move_on_after(NEWS_S):
            while True:
                changed = self._daemon.news()  # taken before it is read: nothing in between is missed
                rows = await self._rows(approval_id)
                if mark_of(rows) != known:
                    break
                await _first_of(changed, session.over)
                session.check_open()
                await anyio.sleep(_PAUSE_S)
        status = str(rows[0].get("status")) if approval_id and rows else ""
        return with_fields(JSONResponse({"news": mark_of(rows), "status": status}))

    async def _rows(self, approval_id: str) -> list[dict[str, Any]]:
        if approval_id:
            return [await self._daemon.question(approval_id)]
        return [*await self._daemon.waiting(), *await self._daemon.recent()]

    async def _read_again(self, request: Request, session: Session) -> Response:
        approval_id = request.path_params["id"]
        fields = await read_form(request, "token", "edit")
        edit = edit_of(fields)
        self._admission.check_token(session, fields, "preview", approval_id, edit or "")
        question = await self._daemon.question(approval_id, edit)
        if waits(question) and has_preview(question):
            found = await self._preview(session, approval_id, str(question["digest"]), again=True)
            if found is not None and found.problem is not None:
                session.leave_note(approval_id, "When you asked for what is there now, it could not be read.")
        return on_to(approval_id, edit)

    def passkeys_for(self, shown: QuestionView) -> dict[str, Any]:
        """Those that can be asked about a question, for a template."""
        return {
            "passkeys": [{"key_id": one.id, "name": one.name} for one in self._passkeys.offered()],
            "passkey_approves": self._passkeys.says_yes_to(shown.question),
        }


async def _first_of(*events: anyio.Event) -> None:
    async with anyio.create_task_group() as tasks:

        async def wait(event: anyio.Event) -> None:
            await event.wait()
            tasks.cancel_scope.cancel()

        for event in events:
            tasks.start_soon(wait, event)


def edit_of(fields: dict[str, str]) -> str | None:
    """The digest of the edited version that a form or an address means. FormError for what is no digest."""
    edit = fields.get("edit", "")
    if edit and not _DIGEST.fullmatch(edit):
        raise FormError(HTTPStatus.BAD_REQUEST, "no such version")
    return edit or None
