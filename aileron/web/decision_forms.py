"""The page's forms for one question: the second step of an approval, denials, questions to the agent, withdrawals.

Runs in the daemon, for an admitted browser (admission.py).

    GET  /approvals/ID/approve      the second step of an approval
    POST /approvals/ID/decide       the decision, signed with the key of this session, or with a passkey
    POST /approvals/ID/challenge    the challenge for a passkey for that decision (requested by the script)
    POST /approvals/ID/ask, cancel

Rules
- The second step requires the token from the first page, and a request that another site did not cause. Without these,
  the daemon reads no preview from a service.
- A form contains the digest of the question that its page showed. When the form arrives, the question's digest is
  computed again. If the two differ, nothing is signed.
- An approval takes two steps. If the action cannot be undone, a word must be typed in the second step. For a long
  question, the person must say whether they read the complete text.
- A passkey signs in place of the key of the session. The checks are the same, both before and after the passkey signs.

Source: docs/reference/page.md. Not here: the display of a question (questions.py), the record (daemon/http/page.py).
"""

from __future__ import annotations

import itertools
from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aileron.api.approvals import Decision
from aileron.cards.decision_flow import UnsignedDecision
from aileron.model.failure import AileronError, FailureClass
from aileron.web import refusals
from aileron.web.admission import Admission, on_to
from aileron.web.daemon_port import DaemonPort, PasskeyPort
from aileron.web.forms import FormError, is_from_here, needed, query_of, read_form
from aileron.web.passkey_pages import as_json
from aileron.web.questions import QuestionPages, QuestionView, edit_of
from aileron.web.sessions import Session
from aileron.web.templating import html
from aileron.web.views import is_long

__all__ = ["MAX_REASON", "DecisionForms"]

MAX_REASON: Final = 4000
"""Maximum number of characters in a reason."""
_DECISION: Final = ("token", "decision", "digest", "reason", "word", "read", "edit", "at", "key_id", "signature")
"""The fields of a form for a decision; the last three are for a passkey."""


class DecisionForms:
    """The handlers of the page's forms that approve or deny one question. Each page has one instance."""

    def __init__(
        self, daemon: DaemonPort, admission: Admission, questions: QuestionPages, passkeys: PasskeyPort
    ) -> None:
        self._daemon = daemon
        self._admission = admission
        self._questions = questions
        self._passkeys = passkeys

    def routes(self) -> list[Route]:
        """Return the routes for the application that serves the page."""
        path, let_in = "/approvals/{id}", self._admission.let_in
        return [
            Route(f"{path}/approve", let_in(self._confirm), methods=["GET"]),
            Route(f"{path}/decide", let_in(self._decide), methods=["POST"]),
            Route(f"{path}/challenge", let_in(self._challenge), methods=["POST"]),
            Route(f"{path}/ask", let_in(self._ask), methods=["POST"]),
            Route(f"{path}/cancel", let_in(self._cancel), methods=["POST"]),
        ]

    async def _confirm(self, request: Request, session: Session) -> Response:
        """Return the page that confirms an approval: a summary of the question, and a field for the word to type, or a button."""
        approval_id = request.path_params["id"]
        fields = query_of(request, "token", "digest", "read", "edit")
        digest, edit = needed(fields, "digest"), edit_of(fields)
        is_token = session.is_token(fields.get("token", ""), "confirm", approval_id, digest, edit or "")
        is_led_here = not is_token or not is_from_here(request)
        shown = await self._questions.shown(session, approval_id, edit, read=not is_led_here)
        if (refusal := await self._check_shown(session, shown, digest, edit)) is not None:
            return refusal
        if is_led_here:
            problem = "Approving starts on this page. Read the request, then press Approve…"
            return await self._questions.waiting_page(session, shown, edit, problem, HTTPStatus.FORBIDDEN)
        if shown.review.why_no_yes is not None:
            return await self._no_yes(session, shown, edit)
        if is_long(shown.card) and fields.get("read") not in ("all", "part"):
            problem = "This is a long request. Say below whether you have read all of it."
            return await self._questions.waiting_page(session, shown, edit, problem, HTTPStatus.BAD_REQUEST)
        return await self._confirm_page(session, shown, edit, fields.get("read", "all"))

    async def _confirm_page(
        self,
        session: Session,
        shown: QuestionView,
        edit: str | None,
        read: str,
        problem: str | None = None,
        status: int = 200,
    ) -> Response:
        review = shown.review
        return html(
            "confirm.html",
            status,
            **await self._admission.frame(session),
            **shown.values(edit),
            effect=list(itertools.takewhile(lambda section: not section.is_said, shown.card.sections)),
            problem=problem,
            read=read,
            **self._questions.passkeys_for(shown),
            token=session.token("approve", review.id, review.digest, edit or "", read),
        )

    async def _decide(self, request: Request, session: Session) -> Response:
        approval_id = request.path_params["id"]
        fields = await read_form(request, *_DECISION)
        decided = await self._choice(session, approval_id, fields)
        if isinstance(decided, Response):
            return decided
        key = session.key
        try:
            if "signature" in fields:
                signed = Decision(
                    decision=decided.decision,
                    digest=decided.digest,
                    reason=decided.reason,
                    at=needed(fields, "at"),
                    key_id=needed(fields, "key_id"),
                    signature=needed(fields, "signature"),
                )
                await self._daemon.decide_signed(approval_id, signed)
            elif key is not None:
                await self._daemon.decide(key, decided)
            else:
                session.check_open()
                why = "It was unlocked without your signing key, so each decision here needs a passkey."
                return refusals.problem(HTTPStatus.FORBIDDEN, "This page cannot sign.", why, approval_id)
        except AileronError as error:
            if error.failure.failure_class in (FailureClass.ALREADY_DECIDED, FailureClass.APPROVAL_EXPIRED):
                return await self._too_late(session, approval_id)
            if error.failure.failure_class is FailureClass.INVALID_REQUEST:  # such as a preview read elsewhere since
                session.forget_previews_of(approval_id)
            raise
        session.decided = approval_id
        return on_to(approval_id)

    async def _challenge(self, request: Request, session: Session) -> Response:
        """Return a new challenge that a passkey must sign, for exactly the decision in this form."""
        approval_id = request.path_params["id"]
        decided = await self._choice(session, approval_id, await read_form(request, *_DECISION))
        if isinstance(decided, Response):
            return decided
        return as_json(await self._passkeys.challenge(approval_id, decided.digest, decided.decision, decided.reason))

    async def _choice(self, session: Session, approval_id: str, fields: dict[str, str]) -> UnsignedDecision | Response:
        """Return the decision in the form's fields if it can be signed now; otherwise a page with the reason why not.

        Raises FormError for an invalid form.
        """
        decision, digest, edit = needed(fields, "decision"), needed(fields, "digest"), edit_of(fields)
        read, reason = fields.get("read", ""), fields.get("reason", "").strip() or None
        if decision == "approve":
            self._admission.check_token(session, fields, "approve", approval_id, digest, edit or "", read)
        elif decision == "deny":
            self._admission.check_token(session, fields, "deny", approval_id, digest, edit or "")
        else:
            raise FormError(HTTPStatus.BAD_REQUEST, "a decision is approve or deny")
        shown = await self._questions.shown(session, approval_id, edit)
        if (refusal := await self._check_shown(session, shown, digest, edit)) is not None:
            return refusal
        if reason is not None and len(reason) > MAX_REASON:
            problem = f"A reason has at most {MAX_REASON} characters; this one has {len(reason)}. Nothing was decided."
            return await self._questions.waiting_page(
                session, shown, edit, problem, HTTPStatus.BAD_REQUEST, reason[:MAX_REASON]
            )
        if decision == "approve" and shown.review.why_no_yes is not None:
            return await self._no_yes(session, shown, edit)
        word = shown.card.word
        if decision == "approve" and word is not None and fields.get("word", "").strip() != word:
            problem = f"That is not the word. Nothing was decided. Type {word}."
            return await self._confirm_page(session, shown, edit, read, problem, HTTPStatus.BAD_REQUEST)
        return shown.review.decided("approve" if decision == "approve" else "deny", reason)

    async def _check_shown(
        self, session: Session, shown: QuestionView, digest: str, edit: str | None
    ) -> Response | None:
        """Return None if the question is open and unchanged since the page with the form was made; otherwise the page
        with the question's current state.
        """
        if not shown.review.waits:
            return await self._too_late(session, shown.review.id)
        if digest == shown.review.digest:
            return None
        problem = (
            "This request has changed since the page was shown. Nothing was signed. Look at it again, then decide."
        )
        return await self._questions.waiting_page(session, shown, edit, problem, HTTPStatus.CONFLICT)

    async def _no_yes(self, session: Session, shown: QuestionView, edit: str | None) -> Response:
        """Return the page of a question with a message that the question cannot be approved as it is. Nothing is signed."""
        problem = "This cannot be approved as it is. Nothing was signed."
        return await self._questions.waiting_page(session, shown, edit, problem, HTTPStatus.CONFLICT)

    async def _too_late(self, session: Session, approval_id: str) -> Response:
        shown = await self._questions.shown(session, approval_id, None)
        word = (
            "It expired before you decided."
            if shown.review.question.status == "expired"
            else ("It was already decided when your decision arrived. Yours does not count.")
        )
        return await self._questions.over(session, shown, word, HTTPStatus.CONFLICT)

    async def _ask(self, request: Request, session: Session) -> Response:
        approval_id = request.path_params["id"]
        fields = await read_form(request, "token", "text")
        self._admission.check_token(session, fields, "ask", approval_id)
        text = needed(fields, "text").strip()
        if not text:
            raise FormError(HTTPStatus.BAD_REQUEST, "the question is empty")
        await self._daemon.ask_back(approval_id, text)
        session.leave_note(approval_id, "Sent to the agent. Its answer appears on this page.")
        return on_to(approval_id)

    async def _cancel(self, request: Request, session: Session) -> Response:
        approval_id = request.path_params["id"]
        fields = await read_form(request, "token")
        self._admission.check_token(session, fields, "cancel", approval_id)
        await self._daemon.cancel(approval_id)
        return on_to(approval_id)
