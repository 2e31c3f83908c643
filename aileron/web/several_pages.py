"""Similar requests that are decided on one page: their card, the second step of an approval, a denial of all, the outcomes.

Runs in the daemon, for an admitted browser (admission.py).

    GET  /approvals/together?of=ID,ID     their card; a list instead if they are not alike or can no longer be decided
    GET  /approvals/together/approve      the second step of an approval
    POST /approvals/together/approve, deny

Rules
- The rules for one request (decision_forms.py) hold for each: the second step can only be reached from the first, a decision is
  about the digests of the questions that the form's page showed, and all are computed anew when the form arrives.
- Each decision is signed separately with the key of the session, as on every surface. A passkey needs a touch for each
  signature, so in a session without the key, the person decides the requests one by one.
- The first approval that fails stops the rest. A denial that fails does not.

Source: docs/reference/page.md (Several at once), docs/adr/0047-fewer-keys.md. Not here: which requests are alike
(cards/together.py).
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final, Literal

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from aileron.cards.apart import why_apart_unread
from aileron.cards.card import Card
from aileron.cards.question import state_words
from aileron.cards.together import MOST_TOGETHER, Apart, card_of_several
from aileron.model.failure import AileronError, FailureClass
from aileron.model.timestamp import local_time
from aileron.web.admission import Admission, is_approval_id
from aileron.web.daemon_port import DaemonPort
from aileron.web.decision_forms import MAX_REASON
from aileron.web.forms import FormError, is_from_here, is_opened, needed, query_of, read_form
from aileron.web.questions import QuestionPages, QuestionView
from aileron.web.sessions import Session
from aileron.web.templating import html, with_fields
from aileron.web.views import is_long, mark_of, milliseconds

__all__ = ["SeveralPages"]

_CHANGED: Final = (
    "One of these has changed since the page was shown. Nothing was signed. Look at them again, then decide."
)
_NO_KEY: Final = (
    "This page was unlocked without your signing key: a passkey is touched for each decision. Decide them one by one."
)
_READ: Final = re.compile(r"all|part")


class SeveralPages:
    """The pages on which several similar requests are decided together. Each page has one instance."""

    def __init__(self, daemon: DaemonPort, admission: Admission, questions: QuestionPages) -> None:
        self._daemon = daemon
        self._admission = admission
        self._questions = questions

    def routes(self) -> list[Route]:
        """Return the routes for the application that serves the page.

        They must come before `/approvals/{id}`, which also matches them.
        """
        base, let_in = "/approvals/together", self._admission.let_in
        return [
            Route(base, let_in(self._together), methods=["GET"]),
            Route(f"{base}/approve", let_in(self._confirm), methods=["GET"]),
            Route(f"{base}/approve", let_in(self._approve), methods=["POST"]),
            Route(f"{base}/deny", let_in(self._deny), methods=["POST"]),
        ]

    # Pages

    async def _together(self, request: Request, session: Session) -> Response:
        names = _names(query_of(request, "of"))
        views = await self._shown(session, names, read=is_from_here(request) and is_opened(request))
        card = _card_of(session, views)
        if isinstance(card, Apart):
            return await self._listed(session, views, card.why if all(view.review.waits for view in views) else None)
        return await self._card_page(session, views, card)

    async def _shown(self, session: Session, names: list[str], *, read: bool) -> list[QuestionView]:
        """Return the current state of each request whose id is in `names`.

        With `read`, also read its preview, unless the requests cannot be decided together anyway.
        """
        views = [await self._questions.shown(session, name, None, read=False) for name in names]
        if not read or why_apart_unread([view.review for view in views], local_time) is not None:
            return views
        return [
            await self._questions.shown(session, view.review.id, None) if view.review.is_unread else view
            for view in views
        ]

    async def _card_page(
        self,
        session: Session,
        views: list[QuestionView],
        card: Card,
        problem: str | None = None,
        status: int = HTTPStatus.OK,
        *,
        read: str | None = None,
        reason: str = "",
    ) -> Response:
        """Return the page with the card of several requests and the buttons.

        With `read`, which says how much of the card the person read, return the page that confirms the approval.
        """
        of, digest = _of(views), _digest(views)
        second = session.token("approve together", of, digest, read or "")
        return html(
            "several.html",
            status,
            **await self._admission.frame(session),
            **_times(views),
            card=card,
            count=len(views),
            of=of,
            digest=digest,
            problem=problem,
            reason=reason,
            read=read,
            is_long=is_long(card),
            confirm_token=session.token("confirm together", of, digest),
            deny_token=session.token("deny together", of, digest),
            approve_token=second,
        )

    async def _listed(
        self, session: Session, views: list[QuestionView], problem: str | None, status: int = HTTPStatus.OK
    ) -> Response:
        """Return the page that lists the requests, each with a link to its own page and with its state."""
        return html(
            "several_listed.html",
            status,
            **await self._admission.frame(session),
            **_times(views),
            note=session.note_of(_of(views)),
            problem=problem,
            rows=[
                {
                    "id": view.review.id,
                    "sentence": view.card.sentence,
                    "status": view.review.question.status,
                    "state": state_words(view.review.question.status),
                }
                for view in views
            ],
        )

    async def _confirm(self, request: Request, session: Session) -> Response:
        """Return the page that confirms an approval: the complete card again, and a field for the word to type, or a button."""
        fields = query_of(request, "token", "of", "digest", "read")
        names, digest = _names(fields), needed(fields, "digest")
        is_token = session.is_token(fields.get("token", ""), "confirm together", ",".join(names), digest)
        is_led_here = not is_token or not is_from_here(request)
        views = await self._shown(session, names, read=not is_led_here)
        card = await self._checked(session, views, digest)
        if isinstance(card, Response):
            return card
        if is_led_here:
            problem = "Approving starts on this page. Read the requests, then press Approve…"
            return await self._card_page(session, views, card, problem, HTTPStatus.FORBIDDEN)
        if is_long(card) and not _READ.fullmatch(fields.get("read", "")):
            problem = "These are long. Say below whether you have read all of it."
            return await self._card_page(session, views, card, problem, HTTPStatus.BAD_REQUEST)
        return await self._card_page(session, views, card, read=fields.get("read", "all"))

    async def _checked(self, session: Session, views: list[QuestionView], digest: str) -> Card | Response:
        """Return the requests' common card if it is unchanged since the page with the form was made; otherwise a page
        with the current state.
        """
        card = _card_of(session, views)
        if isinstance(card, Apart):
            return await self._listed(session, views, card.why, HTTPStatus.CONFLICT)
        if digest != _digest(views):
            return await self._card_page(session, views, card, _CHANGED, HTTPStatus.CONFLICT)
        return card

    # Decisions

    async def _approve(self, request: Request, session: Session) -> Response:
        fields = await read_form(request, "token", "of", "digest", "read", "word")
        names, digest, read = _names(fields), needed(fields, "digest"), fields.get("read", "")
        self._admission.check_token(session, fields, "approve together", ",".join(names), digest, read)
        views = await self._shown(session, names, read=True)
        card = await self._checked(session, views, digest)
        if isinstance(card, Response):
            return card
        word = card.word
        if word is not None and fields.get("word", "").strip() != word:
            problem = f"That is not the word. Nothing was decided. Type {word}."
            return await self._card_page(session, views, card, problem, HTTPStatus.BAD_REQUEST, read=read)
        done, why = 0, None
        for view in views:
            if (why := await self._why_untaken(session, view, "approve", None)) is not None:
                break
            done += 1
        return self._on_to_list(session, names, _note(f"{done} of {len(views)} approved.", why))

    async def _deny(self, request: Request, session: Session) -> Response:
        fields = await read_form(request, "token", "of", "digest", "reason")
        names, digest = _names(fields), needed(fields, "digest")
        self._admission.check_token(session, fields, "deny together", ",".join(names), digest)
        views = await self._shown(session, names, read=True)
        card = await self._checked(session, views, digest)
        if isinstance(card, Response):
            return card
        reason = fields.get("reason", "").strip()
        if len(reason) > MAX_REASON:
            problem = f"A reason has at most {MAX_REASON} characters; this one has {len(reason)}. Nothing was decided."
            return await self._card_page(
                session, views, card, problem, HTTPStatus.BAD_REQUEST, reason=reason[:MAX_REASON]
            )
        whys = [await self._why_untaken(session, view, "deny", reason or None) for view in views]
        last = next((why for why in reversed(whys) if why is not None), None)
        return self._on_to_list(session, names, _note(f"{whys.count(None)} of {len(views)} denied.", last))

    async def _why_untaken(
        self, session: Session, view: QuestionView, decision: Literal["approve", "deny"], reason: str | None
    ) -> str | None:
        """Submit the decision about one of the requests. Return the reason if the daemon did not accept it, else None.

        Raises OverError if the session has ended, and its key with it.
        """
        session.check_open()
        if (key := session.key) is None:
            return _NO_KEY
        try:
            await self._daemon.decide(key, view.review.decided(decision, reason))
        except AileronError as error:
            if error.failure.failure_class is FailureClass.INVALID_REQUEST:  # such as a preview read elsewhere since
                session.forget_previews_of(view.review.id)
            return error.failure.message
        return None

    def _on_to_list(self, session: Session, names: list[str], note: str) -> Response:
        of = ",".join(names)
        session.leave_note(of, note)
        return with_fields(RedirectResponse(f"/approvals/together?of={of}", HTTPStatus.SEE_OTHER))


def _card_of(session: Session, views: list[QuestionView]) -> Card | Apart:
    """Return the card of these requests, or the reason why they cannot be decided together on this page."""
    return Apart(_NO_KEY) if session.key is None else card_of_several([view.review for view in views], local_time)


def _note(count: str, why: str | None) -> str:
    return count if why is None else f"{count} One was not taken: {why}"


def _names(fields: dict[str, str]) -> list[str]:
    """Return the approval ids in a form or an address.

    Raises FormError for a malformed id, a duplicate, or too many or too few ids.
    """
    names = fields.get("of", "").split(",")
    if not 2 <= len(names) <= MOST_TOGETHER or len(set(names)) < len(names) or not all(map(is_approval_id, names)):
        raise FormError(HTTPStatus.BAD_REQUEST, "no such requests")
    return names


def _of(views: list[QuestionView]) -> str:
    return ",".join(view.review.id for view in views)


def _digest(views: list[QuestionView]) -> str:
    """Return the digests of all displayed questions, joined into one string, as a form of this page contains them."""
    return ",".join(view.review.digest for view in views)


def _times(views: list[QuestionView]) -> dict[str, object]:
    """Return template values for these requests: when the first one expires, and what the page's script needs to
    request news.
    """
    questions = [view.review.question for view in views]
    first = min((question.expires_at for question in questions), key=milliseconds)
    return {
        "expires_at": local_time(first),
        "expires_ms": milliseconds(first),
        "news_of": _of(views),
        "news": mark_of(questions),
    }
