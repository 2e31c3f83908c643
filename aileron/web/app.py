"""The routes of the page: who may see, what is decided, and where to go on.

Runs in the daemon, on the loopback port, which every user of the machine and every page in the person's browser reaches. What is
not unlocked shows nothing of any question, and the same for every address of this form.

    GET  /approvals                  what waits, and what was decided lately
    GET  /approvals/news             when something is another than what is shown (the script asks)
    POST /approvals/unlock, lock     the passphrase of the approver's key, for this browser alone; and the end of that
    GET  /approvals/ID               one question, whole, or what came of it
    GET  /approvals/ID/approve       the second step of a yes
    POST /approvals/ID/decide        the decision, signed with the key of this session
    POST /approvals/ID/challenge     what a passkey has to sign for that decision (the script asks)
    POST /approvals/ID/ask, preview, cancel
    /approvals/passkeys…             passkeys.py

Rules
- A browser that an agent's session started unlocks nothing: whoever started it may drive it.
- Every request of a session comes from the process that unlocked (sessions.py). Who that is, is looked up each time.
- A form that changes something comes from the page's own origin, with the token of this session for exactly what it does.
- A decision is about the digest of what the form's page showed. The question is computed anew when the form arrives, and where
  it is another one by then, nothing is signed.
- A yes takes two steps; where it cannot be undone, the second is a word typed. A long question is decided by who says whether
  they read all of it.
- A passkey signs in place of the key of the session: what is checked before is the same, before it is asked and after.
- Nothing here needs a script, but passkeys.

Source: docs/reference/page.md. Not here: which Host and Origin the port answers (daemon/ports.py), the record (daemon/page.py).
"""

from __future__ import annotations

import itertools
import math
import re
from collections import deque
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import quote

import anyio
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from aileron.model.failure import AileronError, FailureClass
from aileron.model.preview import Preview
from aileron.model.secret import Secret
from aileron.model.wire import Decision
from aileron.review.question import kind_of
from aileron.review.sheet import Sheet, sheet_of
from aileron.web.desk import Desk, Ended, Key, PasskeyDesk, Process, Unseen
from aileron.web.forms import FormError, check_from_here, cookies_of, needed, query_of, read_form
from aileron.web.looks import html, with_fields
from aileron.web.passkeys import PasskeyPages, Ways, as_json
from aileron.web.sessions import Session, Sessions, StolenError
from aileron.web.shown import (
    entry_of,
    is_long,
    mark_of,
    milliseconds,
    outcome_lines,
    sent_of,
    state_of,
    step_lines,
    surface_of,
    when,
)

__all__ = ["MAX_WRONG", "NEWS_S", "WRONG_S", "Page"]

MAX_WRONG: Final = 5
"""Wrong passphrases within WRONG_S: a person mistypes two or three times; each costs a guesser what it costs on the file."""
WRONG_S: Final = 60.0
NEWS_S: Final = 25.0
"""As long as a call of the API waits."""
_PAUSE_S: Final = 0.25
"""Between two looks: a run writes a dozen rows in that time."""
MAX_REASON: Final = 4000
_ID: Final = re.compile(r"act-[0-9]{8}T[0-9]{6}-[0-9a-f]{20}", re.ASCII)
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_WAITS: Final = "pending_approval"
_DECISION: Final = ("token", "decision", "digest", "reason", "word", "read", "edit")
"""The fields of a form that decides."""
_UNDER_WAY: Final = ("approved", "running")
_ENDED: Final[dict[Ended, str]] = {
    "asked": "You locked this page.",
    "over": "The time of this page was over: it is locked.",
    "process": "This page was locked, because its cookie came from another program than this browser. That is on record: "
    "aileron audit list --type approval.refused. Some program of yours reads what your browser keeps.",
    "replaced": "This page was locked, because another key decides for this home now.",
    "passkey": "This page was locked, because the passkey that unlocked it decides no more, or because the vault, which knows, "
    "is locked.",
    "many": "This page was locked, because as many others as there can be were unlocked after it.",
    "stopping": "The supervisor was stopped: this page is locked.",
}
"""Why a page is locked that was not, to the browser that had it."""
_Handler = Callable[[Request, Session], Awaitable[Response]]


class _Shown(NamedTuple):
    """One question that waits, as it stands now for one session."""

    question: dict[str, Any]
    preview: Preview | None
    sheet: Sheet
    digest: str
    """Of what is shown: what a decision would be about."""
    mark: str
    """Another one once something about the question is."""


class _Asked(NamedTuple):
    """A decision that may be signed: for what is shown, in the form that was shown, with its word."""

    shown: _Shown
    digest: str
    decision: Literal["approve", "deny"]
    reason: str | None


class _AgentsError(Exception):
    """An agent's session started the browser that asks."""

    def __init__(self, session: str) -> None:
        super().__init__(session)
        self.session: Final = session


class Page:
    """One for each daemon. `port` is the loopback port's."""

    def __init__(self, desk: Desk, sessions: Sessions, port: int, passkeys: PasskeyDesk) -> None:
        self._desk = desk
        self._passkeys = passkeys
        self._sessions = sessions
        self._cookie = f"aileron-page-{port}"  # cookies know no ports: two homes are two names
        self._wrong: deque[float] = deque(maxlen=MAX_WRONG)
        self._unlocking = anyio.Lock()
        self._strangers = anyio.Lock()
        self._base = f"http://localhost:{port}"
        ways = Ways(
            self._let_in, self._at_the_door, self._open, self._not_opened, self._check_token, self._frame, self._base
        )
        self._with_passkeys = PasskeyPages(passkeys, ways)

    def routes(self) -> list[Route]:
        """Of the application that serves it."""
        one = "/approvals/{id}"
        return [
            Route("/approvals", self._let_in(self._queue), methods=["GET"]),
            Route("/approvals/news", self._let_in(self._news), methods=["GET"]),
            Route("/approvals/unlock", self._unlock, methods=["POST"]),
            Route("/approvals/lock", self._let_in(self._lock), methods=["POST"]),
            *self._with_passkeys.routes(),
            Route(one, self._let_in(self._question), methods=["GET"]),
            Route(f"{one}/approve", self._let_in(self._confirm), methods=["GET"]),
            Route(f"{one}/decide", self._let_in(self._decide), methods=["POST"]),
            Route(f"{one}/challenge", self._let_in(self._challenge), methods=["POST"]),
            Route(f"{one}/ask", self._let_in(self._ask), methods=["POST"]),
            Route(f"{one}/preview", self._let_in(self._read_again), methods=["POST"]),
            Route(f"{one}/cancel", self._let_in(self._cancel), methods=["POST"]),
        ]

    # Who may see

    def _let_in(self, handler: _Handler) -> Callable[[Request], Awaitable[Response]]:
        """The handler for who unlocked; for everybody else the page that says how."""

        async def answer(request: Request) -> Response:
            approval_id = request.path_params.get("id", "")
            if approval_id and not _ID.fullmatch(approval_id):
                return with_fields(PlainTextResponse("no such page\n", HTTPStatus.NOT_FOUND))
            try:
                if request.method == "POST":
                    check_from_here(request)
                session = await self._session_of(request)
                if session is None:
                    return self._locked_out(request, approval_id)
                return await handler(request, session)
            except FormError as error:
                return self._not_ours(error, approval_id)
            except Unseen as error:
                return self._unseen(error, approval_id)
            except StolenError:
                return self._stolen(request)
            except AileronError as error:
                return self._failed(error, approval_id)

        return answer

    def _at_the_door(
        self, handler: Callable[[Request, Process], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """The handler for a form of this page from who has no session, and whose process can be seen."""

        async def answer(request: Request) -> Response:
            try:
                check_from_here(request)
                return await handler(request, await self._stranger(request))
            except FormError as error:
                return self._not_ours(error, "")
            except Unseen as error:
                return await self._unseen_stranger(error)
            except _AgentsError as error:
                return self._agents(error, "")
            except AileronError as error:
                return self._not_opened("", error)

        return answer

    async def _stranger(self, request: Request) -> Process:
        """The process of who has no session yet. Unseen, _AgentsError."""
        async with self._strangers:  # who unlocked does not wait behind them
            process = await self._process(request)
            session = await self._desk.session_of(process)
        if session is not None:
            await self._desk.refused("unlock", "process", None)
            raise _AgentsError(session)
        return process

    async def _unseen_stranger(self, error: Unseen) -> Response:
        if not (error.is_gone or error.is_foreign):
            await self._desk.refused("unlock", "process", None)
        return self._unseen(error, "")

    def _agents(self, error: _AgentsError, approval_id: str) -> Response:
        why = (
            f"The program that asks was started by an agent ({error.session}), which may drive it. Open this address in a "
            "browser of your own."
        )
        return self._problem(HTTPStatus.FORBIDDEN, "This browser is an agent's.", why, approval_id)

    def _not_opened(self, approval_id: str, error: AileronError) -> Response:
        to = approval_id if _ID.fullmatch(approval_id) else ""
        return self._unlock_page(to, error.failure.message, error.failure.failure_class.http_status)

    async def _session_of(self, request: Request) -> Session | None:
        session = self._sessions.of_cookies(cookies_of(request, self._cookie))
        if session is None:
            return None
        try:
            process = await self._process(request)
        except Unseen as error:
            if not error.is_gone:  # its cookie is known to somebody who hides
                await self._sessions.lock(session, "process")
                await self._desk.refused("page", "process", session.key_id)
            raise
        await self._sessions.check(session, process)
        await self._sessions.end_due()
        return session if self._sessions.of_cookies(cookies_of(request, self._cookie)) is session else None

    async def _process(self, request: Request) -> Process:
        client, server = request.scope.get("client"), request.scope.get("server")
        if not client or not server:
            raise Unseen("there is no connection to look up")
        return await self._desk.process((client[0], client[1]), (server[0], server[1]))

    def _locked_out(self, request: Request, approval_id: str) -> Response:
        if request.url.path == "/approvals/news":
            return with_fields(JSONResponse({"locked": True}, HTTPStatus.UNAUTHORIZED))
        if request.method == "POST":
            return self._unlock_page(
                approval_id, "This page was locked meanwhile: nothing was done.", HTTPStatus.FORBIDDEN
            )
        why = self._sessions.why_ended(cookies_of(request, self._cookie))
        return self._unlock_page(approval_id, None if why is None else _ENDED[why])

    def _unlock_page(self, approval_id: str, problem: str | None = None, status: int = HTTPStatus.OK) -> Response:
        return html(
            "unlock.html",
            status,
            id=approval_id,
            standing=self._desk.standing(),
            problem=problem,
            has_passkeys=bool(self._with_passkeys.offered()),
            base=self._base,
        )

    # Unlock and lock

    async def _unlock(self, request: Request) -> Response:
        try:
            check_from_here(request)
            fields = await read_form(request, "passphrase", "to")
            typed, approval_id = needed(fields, "passphrase"), fields.get("to", "")
            if approval_id and not _ID.fullmatch(approval_id):
                raise FormError(HTTPStatus.BAD_REQUEST, "this form leads nowhere")
            process = await self._stranger(request)
        except FormError as error:
            return self._not_ours(error, "")
        except Unseen as error:
            return await self._unseen_stranger(error)
        except _AgentsError as error:
            return self._agents(error, approval_id)
        try:
            return await self._unlocked(request, Secret(typed.encode()), approval_id, process)
        except AileronError as error:
            return self._unlock_page(approval_id, error.failure.message, error.failure.failure_class.http_status)

    async def _unlocked(self, request: Request, typed: Secret, approval_id: str, process: Process) -> Response:
        if self._unlocking.locked():
            return self._unlock_page(
                approval_id, "Another try is under way: wait for it.", HTTPStatus.TOO_MANY_REQUESTS
            )
        async with self._unlocking:
            now = self._sessions.now()
            if len(self._wrong) == MAX_WRONG and now - self._wrong[0] < WRONG_S:
                problem = f"{MAX_WRONG} wrong passphrases within a minute: wait a minute, then try again."
                return self._unlock_page(approval_id, problem, HTTPStatus.TOO_MANY_REQUESTS)
            try:
                key = await self._desk.open_key(typed)
            except AileronError as error:
                if error.failure.failure_class is not FailureClass.UNAUTHORIZED:
                    raise
                self._wrong.append(now)
                await self._desk.refused("unlock", "passphrase", None)
                return self._unlock_page(approval_id, "That is not the passphrase.", HTTPStatus.FORBIDDEN)
        return await self._open(request, key.key_id, process, approval_id, key)

    async def _open(
        self, request: Request, key_id: str, process: Process, approval_id: str, key: Key | None = None
    ) -> Response:
        """A session, in place of the one that this browser had."""
        if approval_id and not _ID.fullmatch(approval_id):
            raise FormError(HTTPStatus.BAD_REQUEST, "this form leads nowhere")
        old = self._sessions.of_cookies(cookies_of(request, self._cookie))
        session, cookie = await self._sessions.open(key, key_id, process)
        if old is not None and old.process.is_same(session.process):
            await self._sessions.lock(old, "asked")
        response = _on_to(approval_id)
        # No Expires: a browser that ends forgets it. Not Secure, and so no __Host- name: localhost has no certificate, and not
        # every browser takes http://localhost for a secure place. The path keeps it from whatever else is served on this port.
        response.set_cookie(self._cookie, cookie, path="/approvals", httponly=True, samesite="strict")
        return response

    async def _lock(self, request: Request, session: Session) -> Response:
        fields = await read_form(request, "token")
        self._check_token(session, fields, "lock")
        await self._sessions.lock(session, "asked")
        response = _on_to("")
        response.delete_cookie(self._cookie, path="/approvals", httponly=True, samesite="strict")
        return response

    # What is shown

    async def _queue(self, _request: Request, session: Session) -> Response:
        waiting, recent = await self._desk.waiting(), await self._desk.recent()
        return html(
            "queue.html",
            **self._frame(session),
            waiting=[entry_of(row) for row in waiting],
            recent=[entry_of(row) for row in recent],
            news_of="",
            news=mark_of([*waiting, *recent]),
        )

    async def _question(self, request: Request, session: Session) -> Response:
        approval_id = request.path_params["id"]
        edit = _edit_of(query_of(request, "edit"))
        note = session.take_note(approval_id)
        # A page of elsewhere that leads here has nothing read from a service by that.
        is_from_here = request.headers.get("sec-fetch-site", "none") in ("none", "same-origin")
        shown = await self._shown(session, approval_id, edit, read=is_from_here)
        if shown.question.get("status") != _WAITS:
            return await self._over(session, shown, note=note)
        return self._waiting_page(session, shown, edit, note=note)

    def _waiting_page(
        self,
        session: Session,
        shown: _Shown,
        edit: str | None,
        problem: str | None = None,
        status: int = HTTPStatus.OK,
        reason: str = "",
        note: str | None = None,
    ) -> Response:
        approval_id = str(shown.question["approval_id"])
        return html(
            "question.html",
            status,
            **self._frame(session),
            **_of(shown, edit),
            note=note,
            problem=problem,
            reason=reason,
            is_long=is_long(shown.sheet),
            can_preview=self._has_preview(shown.question),
            is_unread=self._has_preview(shown.question) and shown.preview is None,
            **self._passkeys_for(shown),
            deny_token=session.token("deny", approval_id, shown.digest, edit or ""),
            ask_token=session.token("ask", approval_id),
            preview_token=session.token("preview", approval_id, edit or ""),
            news_of=approval_id,
            news=shown.mark,
        )

    async def _over(
        self,
        session: Session,
        shown: _Shown,
        problem: str | None = None,
        status: int = HTTPStatus.OK,
        note: str | None = None,
    ) -> Response:
        """A question that nobody can decide any more: what was decided, and what came of it."""
        question = shown.question
        approval_id, audit_id = str(question["approval_id"]), question.get("audit_id")
        result = await self._desk.result(approval_id)
        events = [] if audit_id is None else await self._desk.record(str(audit_id))
        lines, missing = outcome_lines(result["result"]) if "result" in result else ([], 0)
        return html(
            "over.html",
            status,
            **self._frame(session),
            **_of(shown, None),
            note=note,
            problem=problem,
            status=question.get("status"),
            state=state_of(question.get("status")),
            decided_at=when(question["decided_at"]) if question.get("decided_at") else None,
            surface=surface_of(question["surface"]) if question.get("surface") else None,
            reason=question.get("reason"),
            held_until=when(result["held_until"]) if "held_until" in result else None,
            error=result.get("error"),
            outcome=lines,
            outcome_missing=missing,
            has_outcome="result" in result,
            requests=sent_of(events),
            events=step_lines(events),
            audit_id=audit_id,
            is_under_way=question.get("status") in _UNDER_WAY,
            cancel_token=session.token("cancel", approval_id) if question.get("status") == "approved" else None,
            news_of=approval_id,
            news=shown.mark,
        )

    async def _shown(self, session: Session, approval_id: str, edit: str | None, *, read: bool = True) -> _Shown:
        """The question as it is now, with the preview this session read; with `read` it is read where it was not."""
        question = await self._desk.question(approval_id)
        mark = mark_of([question])
        if edit is not None:
            question = await self._desk.question(approval_id, edit)
        preview = None
        if question.get("status") == _WAITS and self._has_preview(question):
            preview = await self._preview(session, approval_id, str(question["digest"]), read=read)
        digest = str(question.get("digest"))
        if preview is not None and preview.digest is not None:
            digest = preview.digest
        return _Shown(question, preview, sheet_of(question, preview, when), digest, mark)

    async def _preview(
        self, session: Session, approval_id: str, digest: str, *, read: bool = True, again: bool = False
    ) -> Preview | None:
        """What this session read before; else, with `read`, what is read now. `again`: now in any case.

        What could not be begun to be read is told as what failed: a person may say no to it, and knows why they see nothing.
        """
        async with session.reading:
            found = session.preview_of(approval_id, digest)
            if (found is None and read) or again:
                try:
                    found = await self._desk.preview(approval_id, digest)
                except AileronError as error:
                    return Preview(None, error.failure.message, None, None)
                session.keep_preview(approval_id, digest, found)
        return found

    def _has_preview(self, question: dict[str, Any]) -> bool:
        return kind_of(question) == "action" and (question.get("plan") or {}).get("preview") is not None

    async def _news(self, request: Request, session: Session) -> Response:
        fields = query_of(request, "of", "known")
        approval_id, known = fields.get("of", ""), fields.get("known", "")
        if approval_id and not _ID.fullmatch(approval_id):
            raise FormError(HTTPStatus.BAD_REQUEST, "no such question")
        rows: list[dict[str, Any]] = []
        with anyio.move_on_after(NEWS_S):
            while True:
                changed = self._desk.news()  # taken before it is read: nothing in between is missed
                rows = await self._rows(approval_id)
                if mark_of(rows) != known:
                    break
                await changed.wait()
                await anyio.sleep(_PAUSE_S)
        status = str(rows[0].get("status")) if approval_id and rows else ""
        return with_fields(JSONResponse({"news": mark_of(rows), "status": status}))

    async def _rows(self, approval_id: str) -> list[dict[str, Any]]:
        if approval_id:
            return [await self._desk.question(approval_id)]
        return [*await self._desk.waiting(), *await self._desk.recent()]

    # What is done

    async def _confirm(self, request: Request, session: Session) -> Response:
        """The second step of a yes: what it is about once more, and the word or the button."""
        approval_id = request.path_params["id"]
        fields = query_of(request, "digest", "read", "edit")
        edit = _edit_of(fields)
        shown = await self._shown(session, approval_id, edit)
        if (refusal := await self._check_shown(session, shown, needed(fields, "digest"), edit)) is not None:
            return refusal
        if is_long(shown.sheet) and fields.get("read") not in ("all", "part"):
            problem = "It is long: say below whether you have read all of it."
            return self._waiting_page(session, shown, edit, problem, HTTPStatus.BAD_REQUEST)
        return self._confirm_page(session, shown, edit, fields.get("read", "all"))

    def _confirm_page(
        self,
        session: Session,
        shown: _Shown,
        edit: str | None,
        read: str,
        problem: str | None = None,
        status: int = 200,
    ) -> Response:
        approval_id = str(shown.question["approval_id"])
        return html(
            "confirm.html",
            status,
            **self._frame(session),
            **_of(shown, edit),
            effect=list(
                itertools.takewhile(
                    lambda section: not section.is_said and not section.is_fine_print, shown.sheet.sections
                )
            ),
            problem=problem,
            read=read,
            **self._passkeys_for(shown),
            token=session.token("approve", approval_id, shown.digest, edit or "", read),
            news_of=approval_id,
            news=shown.mark,
        )

    async def _decide(self, request: Request, session: Session) -> Response:
        approval_id = request.path_params["id"]
        fields = await read_form(request, *_DECISION, "at", "key_id", "signature")
        asked = await self._asked(session, approval_id, fields)
        if isinstance(asked, Response):
            return asked
        key = session.key
        try:
            if "signature" in fields:
                signed = Decision(
                    decision=asked.decision,
                    digest=asked.digest,
                    reason=asked.reason,
                    at=needed(fields, "at"),
                    key_id=needed(fields, "key_id"),
                    signature=needed(fields, "signature"),
                )
                settled = await self._desk.decide_signed(approval_id, signed)
            elif key is not None:
                settled = await self._desk.decide(key, asked.shown.question, asked.digest, asked.decision, asked.reason)
            else:
                why = "It was unlocked without the key that signs: a decision here takes a passkey."
                return self._problem(HTTPStatus.FORBIDDEN, "This page only shows.", why, approval_id)
        except AileronError as error:
            if error.failure.failure_class not in (FailureClass.ALREADY_DECIDED, FailureClass.APPROVAL_EXPIRED):
                raise
            return await self._too_late(session, approval_id)
        if settled.status == "failed":
            session.leave_note(approval_id, "It is approved, and it could not be done.")
        return _on_to(approval_id)

    async def _challenge(self, request: Request, session: Session) -> Response:
        """What a passkey has to sign for the very decision of this form, made now."""
        approval_id = request.path_params["id"]
        asked = await self._asked(
            session, approval_id, await read_form(request, *_DECISION, "at", "key_id", "signature")
        )
        if isinstance(asked, Response):
            return asked
        return as_json(await self._passkeys.challenge(approval_id, asked.digest, asked.decision, asked.reason))

    async def _asked(self, session: Session, approval_id: str, fields: dict[str, str]) -> _Asked | Response:
        """What the form decides, where that may be signed now; else the page that says why not. FormError."""
        decision, digest, edit = needed(fields, "decision"), needed(fields, "digest"), _edit_of(fields)
        read, reason = fields.get("read", ""), fields.get("reason", "").strip() or None
        if decision == "approve":
            self._check_token(session, fields, "approve", approval_id, digest, edit or "", read)
        elif decision == "deny":
            self._check_token(session, fields, "deny", approval_id, digest, edit or "")
        else:
            raise FormError(HTTPStatus.BAD_REQUEST, "a decision is approve or deny")
        shown = await self._shown(session, approval_id, edit)
        if (refusal := await self._check_shown(session, shown, digest, edit)) is not None:
            return refusal
        if reason is not None and len(reason) > MAX_REASON:
            problem = f"A reason has at most {MAX_REASON} characters; this one has {len(reason)}. Nothing was decided."
            return self._waiting_page(session, shown, edit, problem, HTTPStatus.BAD_REQUEST, reason[:MAX_REASON])
        word = shown.sheet.word
        if decision == "approve" and word is not None and fields.get("word", "").strip() != word:
            problem = f"That is not the word. Nothing was decided: type {word}."
            return self._confirm_page(session, shown, edit, read, problem, HTTPStatus.BAD_REQUEST)
        return _Asked(shown, digest, "approve" if decision == "approve" else "deny", reason)

    async def _check_shown(self, session: Session, shown: _Shown, digest: str, edit: str | None) -> Response | None:
        """None where this is what the form's page showed and it waits; else the page that says what is so now."""
        if shown.question.get("status") != _WAITS:
            return await self._too_late(session, str(shown.question["approval_id"]))
        if digest == shown.digest:
            return None
        problem = "It is another one now than the one you decided about: nothing was signed. Look at it again."
        return self._waiting_page(session, shown, edit, problem, HTTPStatus.CONFLICT)

    async def _too_late(self, session: Session, approval_id: str) -> Response:
        shown = await self._shown(session, approval_id, None)
        word = (
            "Its time was over before you decided."
            if shown.question.get("status") == "expired"
            else ("It was decided before your decision arrived: yours counts for nothing.")
        )
        return await self._over(session, shown, word, HTTPStatus.CONFLICT)

    async def _ask(self, request: Request, session: Session) -> Response:
        approval_id = request.path_params["id"]
        fields = await read_form(request, "token", "text")
        self._check_token(session, fields, "ask", approval_id)
        text = needed(fields, "text").strip()
        if not text:
            raise FormError(HTTPStatus.BAD_REQUEST, "nothing was asked")
        await self._desk.ask_back(approval_id, text)
        session.leave_note(approval_id, "Asked. The answer will stand below, when the agent gives one.")
        return _on_to(approval_id)

    async def _read_again(self, request: Request, session: Session) -> Response:
        approval_id = request.path_params["id"]
        fields = await read_form(request, "token", "edit")
        edit = _edit_of(fields)
        self._check_token(session, fields, "preview", approval_id, edit or "")
        question = await self._desk.question(approval_id, edit)
        if question.get("status") == _WAITS and self._has_preview(question):
            await self._preview(session, approval_id, str(question["digest"]), again=True)
        return _on_to(approval_id, edit)

    async def _cancel(self, request: Request, session: Session) -> Response:
        approval_id = request.path_params["id"]
        fields = await read_form(request, "token")
        self._check_token(session, fields, "cancel", approval_id)
        await self._desk.cancel(approval_id)
        return _on_to(approval_id)

    # Parts

    def _check_token(self, session: Session, fields: dict[str, str], *does: str) -> None:
        if not session.is_token(needed(fields, "token"), *does):
            raise FormError(HTTPStatus.FORBIDDEN, "this form is not of this session, or was changed: nothing was done")

    def _frame(self, session: Session) -> dict[str, Any]:
        """What every page of a session shows at its top."""
        left_s = max(0.0, session.ends_at - self._sessions.now())
        return {
            "left_s": math.ceil(left_s),
            "lock_token": session.token("lock"),
            "key_id": session.key_id,
            "can_sign": session.key is not None,
        }

    def _passkeys_for(self, shown: _Shown) -> dict[str, Any]:
        """Those that can be asked about a question, for a template."""
        return {
            "passkeys": [{"key_id": one["id"], "name": one["name"]} for one in self._with_passkeys.offered()],
            "passkey_approves": self._with_passkeys.says_yes_to(shown.question),
        }

    def _failed(self, error: AileronError, approval_id: str) -> Response:
        failure = error.failure
        title = (
            "There is no such question."
            if failure.failure_class is FailureClass.NOT_FOUND
            else "That could not be done."
        )
        return self._problem(failure.failure_class.http_status, title, failure.message, approval_id)

    def _problem(self, status: int, title: str, why: str, approval_id: str) -> Response:
        return html("problem.html", status, title=title, why=why, id=approval_id)

    def _not_ours(self, error: FormError, approval_id: str) -> Response:
        is_foreign = error.status == HTTPStatus.FORBIDDEN
        title = "That did not come from this page." if is_foreign else "That cannot be taken."
        return self._problem(error.status, title, error.why, approval_id)

    def _unseen(self, error: Unseen, approval_id: str) -> Response:
        why = (
            f"It cannot be found out which program asks ({error.why}), and a page is unlocked for one program alone. "
            "Decide in a terminal, or in a browser that runs as you, in the open."
        )
        return self._problem(HTTPStatus.FORBIDDEN, "This browser cannot decide here.", why, approval_id)

    def _stolen(self, request: Request) -> Response:
        why = (
            "The cookie of an unlocked page came from another program than the browser that unlocked it. The page is locked "
            "now, and this is on record (aileron audit list --type approval.refused)."
        )
        response = self._problem(HTTPStatus.FORBIDDEN, "This page is locked.", why, request.path_params.get("id", ""))
        response.delete_cookie(self._cookie, path="/approvals", httponly=True, samesite="strict")
        return response


def _of(shown: _Shown, edit: str | None) -> dict[str, Any]:
    """A question, for a template."""
    question = shown.question
    return {
        "id": str(question["approval_id"]),
        "sheet": shown.sheet,
        "digest": shown.digest,
        "edit": edit or "",
        "edits": [str(one.get("digest")) for one in question.get("edits") or []],
        "asked_at": when(question.get("created_at")),
        "expires_at": when(question.get("expires_at")),
        "expires_ms": milliseconds(question.get("expires_at")),
    }


def _edit_of(fields: dict[str, str]) -> str | None:
    edit = fields.get("edit", "")
    if edit and not _DIGEST.fullmatch(edit):
        raise FormError(HTTPStatus.BAD_REQUEST, "no such version")
    return edit or None


def _on_to(approval_id: str, edit: str | None = None) -> Response:
    """303: look at what is so now, with a request that changes nothing when it is repeated."""
    path = "/approvals" + (f"/{quote(approval_id)}" if approval_id else "") + (f"?edit={quote(edit)}" if edit else "")
    return with_fields(RedirectResponse(path, HTTPStatus.SEE_OTHER))
