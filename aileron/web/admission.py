"""Access control of the page: unlocking, the check of each request, and locking.

Runs in the daemon, on the loopback port, which every user of the machine and every page in the person's browser can
reach. A locked page shows nothing about any question, and looks the same for every question's address, whether the
question exists or not.

    POST /approvals/unlock    the passphrase of the approver's key, for this browser alone
    POST /approvals/lock      lock the page again

Rules
- A browser that an agent's session started cannot unlock the page: the agent may control it.
- Every request of a session comes from the process that unlocked the page (sessions.py). The process is looked up each time.
- A form that changes something must come from the page's own origin, with this session's token for exactly this action.
- Passphrases are checked one at a time. Wrong passphrases have a rate limit for each process, and a higher one for all
  processes together, so that one program that guesses does not lock the person out.

Source: docs/reference/page.md. Not here: how long a session lasts (sessions.py), unlocking with a passkey (passkey_pages.py),
the Host and Origin that the port accepts (daemon/http/listeners.py).
"""

from __future__ import annotations

import logging
import math
import re
from collections import deque
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

import anyio
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from aileron.cards.question import state_words, waits
from aileron.model.failure import AileronError, FailureClass
from aileron.model.secret import Secret
from aileron.web import refusals
from aileron.web.daemon_port import DaemonPort, Ended, Key, Process, Unseen
from aileron.web.forms import FormError, check_from_here, cookies_of, needed, read_form
from aileron.web.sessions import OverError, Session, Sessions, StolenError
from aileron.web.templating import html, with_fields
from aileron.web.workers import CLEARED

__all__ = ["MAX_STRANGERS", "MAX_WRONG", "MAX_WRONG_ALL", "WRONG_S", "Admission", "Handler", "is_approval_id", "on_to"]

MAX_WRONG: Final = 5
"""Maximum number of wrong passphrases per browser process within WRONG_S seconds.

A person mistypes two or three times. A program could guess just as fast with a copy of the key's file.
"""
MAX_WRONG_ALL: Final = 20
"""Maximum number of wrong passphrases of all processes within WRONG_S seconds.

Three processes that guess still leave attempts for the person's browser.
"""
WRONG_S: Final = 60.0
MAX_STRANGERS: Final = 32
"""Maximum number of requests without a session that wait for their process to be identified.

Each takes at most 64 KiB and some 20 ms of a processor. A person's browser has six connections, and can try again.
"""
_log = logging.getLogger(__name__)
_NEWS: Final = "/approvals/news"
_ID: Final = re.compile(r"act-[0-9]{8}T[0-9]{6}-[0-9a-f]{20}", re.ASCII)
_ENDED: Final[dict[Ended, str]] = {
    "asked": "You locked this page.",
    "over": "This page was locked: its time was over.",
    "process": "This page was locked, because its cookie came from another program than this browser. A program of yours "
    "reads what your browser stores. It is on record: aileron audit list --type approval.refused",
    "replaced": "This page was locked, because this home has another approver now.",
    "passkey": "This page was locked, because the passkey that unlocked it was revoked, or because the vault was locked.",
    "many": "This page was locked, because too many others were unlocked after it.",
    "stopping": "This page was locked: the daemon was stopped.",
}
"""Texts for the unlock page that say why the browser's session ended, by reason."""
Handler = Callable[[Request, Session], Awaitable[Response]]
"""Handler of a request from an unlocked browser; its second argument is the browser's session."""


class _AgentsError(Exception):
    """Error: the browser that sent the request was started in an agent's session, so it may not unlock the page."""

    def __init__(self, session: str) -> None:
        super().__init__(session)
        self.session: Final = session


class Admission:
    """The access control of the page: it decides which browsers can use the page, and serves unlocking and locking.

    `port` is the loopback port; `has_passkeys` returns whether a passkey can be used now.
    """

    def __init__(self, daemon: DaemonPort, sessions: Sessions, port: int, has_passkeys: Callable[[], bool]) -> None:
        self._daemon = daemon
        self._sessions = sessions
        self._has_passkeys = has_passkeys
        self._cookie = f"aileron-page-{port}"  # cookies are shared by all ports of localhost: two homes need two names
        self._wrong: deque[tuple[float, Process]] = deque(maxlen=MAX_WRONG_ALL)
        self._unlocking = anyio.Lock()
        self._strangers = anyio.Lock()
        self.base: Final = f"http://localhost:{port}"
        """Origin of the page with a host name, which passkeys need."""

    def routes(self) -> list[Route]:
        """Return the routes for the application that serves the page."""
        return [
            Route("/approvals/unlock", self.at_the_door(self._unlock), methods=["POST"]),
            Route("/approvals/lock", self.let_in(self._lock, is_end=True), methods=["POST"]),
        ]

    # Who may see

    def let_in(self, handler: Handler, *, is_end: bool = False) -> Callable[[Request], Awaitable[Response]]:
        """Wrap a handler of the page so that it serves only unlocked browsers; all others get the page that explains
        how to unlock.

        The handler's response is sent only if the session is still open afterwards, or if ending it is the handler's
        purpose (`is_end`).
        """

        async def answer(request: Request) -> Response:
            approval_id = request.path_params.get("id", "")
            if approval_id and not is_approval_id(approval_id):
                return with_fields(PlainTextResponse("no such page\n", HTTPStatus.NOT_FOUND))
            try:
                if request.method == "POST":
                    check_from_here(request)
                session = await self._session_of(request)
                if session is None:
                    return await self._locked_out(request, approval_id)
                response = await handler(request, session)
                if is_end or await self._sessions.is_open(session):
                    return response
                return await self._ended_meanwhile(request, approval_id)
            except OverError:
                return await self._ended_meanwhile(request, approval_id)
            except FormError as error:
                return refusals.not_ours(error, approval_id)
            except Unseen as error:
                return refusals.unseen(error, approval_id)
            except StolenError:
                return self._stolen(request)
            except AileronError as error:
                return refusals.failed(error, approval_id)
            except Exception:  # noqa: BLE001 - rows of a file that others can write while no daemon runs; the log has it
                _log.exception("a page could not be made")
                return refusals.broken(approval_id)

        return answer

    def at_the_door(
        self, handler: Callable[[Request, Process], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Wrap the handler of a form with which a browser without a session unlocks the page. The handler gets the
        browser's process.
        """

        async def answer(request: Request) -> Response:
            try:
                check_from_here(request)
                return await handler(request, await self._stranger(request))
            except FormError as error:
                return refusals.not_ours(error, "")
            except Unseen as error:
                return await self._unseen_stranger(error)
            except _AgentsError as error:
                return refusals.agents(error.session, "")
            except AileronError as error:
                return self.not_opened("", error)
            except Exception:  # noqa: BLE001 - as above
                _log.exception("nobody could be let in")
                return refusals.broken("")

        return answer

    async def _stranger(self, request: Request) -> Process:
        """Return the process of a browser that has no session. Raises Unseen if the process cannot be determined,
        _AgentsError if an agent started the browser, or AileronError(busy).

        A browser that an agent's session started is recorded as refused.
        """
        if self._strangers.statistics().tasks_waiting >= MAX_STRANGERS:
            raise AileronError(FailureClass.BUSY, "Too many programs want to unlock this page. Try again in a moment.")
        async with self._strangers:  # requests with a session need not wait for this
            process = await self._process(request)
            session = await self._daemon.session_of(process)
        if session is not None:
            await self._daemon.refused("unlock", "process", None)
            raise _AgentsError(session)
        return process

    async def _unseen_stranger(self, error: Unseen) -> Response:
        if not (error.is_gone or error.is_foreign):
            await self._daemon.refused("unlock", "process", None)
        return refusals.unseen(error, "")

    def not_opened(self, approval_id: str, error: AileronError) -> Response:
        """Return the unlock page, with `error` as the reason why unlocking failed. `approval_id` is what the browser
        sent, unchecked.
        """
        to = approval_id if is_approval_id(approval_id) else ""
        return self._unlock_page(to, error.failure.message, error.failure.failure_class.http_status)

    async def _session_of(self, request: Request) -> Session | None:
        session = self._sessions.of_cookies(cookies_of(request, self._cookie))
        if session is None:
            return None
        try:
            process = await self._process(request)
        except Unseen as error:
            if not error.is_gone:  # an unidentified process has the session's cookie
                await self._sessions.lock(session, "process")
                await self._daemon.refused("page", "process", session.key_id)
            raise
        await self._sessions.check(session, process)
        await self._sessions.end_due()
        return session if self._sessions.of_cookies(cookies_of(request, self._cookie)) is session else None

    async def _process(self, request: Request) -> Process:
        client, server = request.scope.get("client"), request.scope.get("server")
        if not client or not server:
            raise Unseen("there is no connection to look up")
        return await self._daemon.process((client[0], client[1]), (server[0], server[1]))

    async def _locked_out(self, request: Request, approval_id: str) -> Response:
        """Return the unlock page for a browser without an open session, with the reason if it is known. The browser's
        request was not executed.
        """
        if request.url.path == _NEWS:
            return _locked_news()
        if request.method == "POST":
            return self._unlock_page(
                approval_id, "This page was locked before that arrived. Nothing was done.", HTTPStatus.FORBIDDEN
            )
        past = self._sessions.past_of(cookies_of(request, self._cookie))
        if past is None:
            return self._unlock_page(approval_id)
        words = _ENDED[past.why]
        if past.decided == approval_id and past.process.is_same(await self._process(request)):
            words = f"{words} {await self._on_record(approval_id)}"
        return self._unlock_page(approval_id, words)

    async def _ended_meanwhile(self, request: Request, approval_id: str) -> Response:
        """Return the unlock page for a browser whose session ended during its request, with what is known about the
        request's effect.
        """
        if request.url.path == _NEWS:
            return _locked_news()
        past = self._sessions.past_of(cookies_of(request, self._cookie))
        words = "This page was locked meanwhile." if past is None else _ENDED[past.why]
        if request.method == "POST" and request.url.path.endswith("/decide"):
            words = f"{words} {await self._on_record(approval_id)}"
        elif request.method == "POST":
            words += " What you did last may have been done. Unlock the page again and look."
        return self._unlock_page(approval_id, words, HTTPStatus.FORBIDDEN)

    async def _on_record(self, approval_id: str) -> str:
        """Return a sentence that says whether the question `approval_id` was decided, for a browser whose session ended
        while it sent the decision.
        """
        try:
            question = await self._daemon.question(approval_id)
        except AileronError:
            return f"Whether your decision counts is not known now. Run: aileron approval show {approval_id}"
        if waits(question):
            return "Your decision was not recorded: the request still waits."
        return f"The request is decided. On record: {state_words(question.status)}."

    def _unlock_page(self, approval_id: str, problem: str | None = None, status: int = HTTPStatus.OK) -> Response:
        page = html(
            "unlock.html",
            status,
            id=approval_id,
            approver=self._daemon.approver(),
            problem=problem,
            has_passkeys=self._has_passkeys(),
            base=self.base,
        )
        page.headers.update(CLEARED)
        return page

    async def _unlock(self, request: Request, process: Process) -> Response:
        fields = await read_form(request, "passphrase", "to")
        typed, approval_id = needed(fields, "passphrase"), fields.get("to", "")
        if approval_id and not is_approval_id(approval_id):
            raise FormError(HTTPStatus.BAD_REQUEST, "this form leads nowhere")
        try:
            return await self._unlocked(request, Secret(typed.encode()), approval_id, process)
        except AileronError as error:
            return self.not_opened(approval_id, error)

    async def _unlocked(self, request: Request, typed: Secret, approval_id: str, process: Process) -> Response:
        if self._unlocking.locked():
            return self._unlock_page(
                approval_id, "Another passphrase is being checked. Try again in a moment.", HTTPStatus.TOO_MANY_REQUESTS
            )
        async with self._unlocking:
            now = self._sessions.now()
            if (count := self._wrong_of(process, now)) is not None:
                problem = f"{count} wrong passphrases within a minute: wait a minute, then try again, or decide in a terminal."
                return self._unlock_page(approval_id, problem, HTTPStatus.TOO_MANY_REQUESTS)
            try:
                key = await self._daemon.open_key(typed)
            except AileronError as error:
                if error.failure.failure_class is not FailureClass.UNAUTHORIZED:
                    raise
                self._wrong.append((now, process))
                await self._daemon.refused("unlock", "passphrase", None)
                return self._unlock_page(approval_id, "That is not the passphrase.", HTTPStatus.FORBIDDEN)
        return await self.open(request, key.key_id, process, approval_id, key)

    def _wrong_of(self, process: Process, now: float) -> int | None:
        """Return the number of recent wrong passphrases if the browser's process may not try another one now; None if
        it may.
        """
        late = [guesser for at, guesser in self._wrong if now - at < WRONG_S]
        own = sum(guesser.is_same(process) for guesser in late)
        if own >= MAX_WRONG:
            return own
        return len(late) if len(late) >= MAX_WRONG_ALL else None

    async def open(
        self, request: Request, key_id: str, process: Process, approval_id: str, key: Key | None = None
    ) -> Response:
        """Open a session for a browser, which replaces the browser's earlier session if there is one, and return the
        redirect to the question or the queue.
        """
        if approval_id and not is_approval_id(approval_id):
            raise FormError(HTTPStatus.BAD_REQUEST, "this form leads nowhere")
        old = self._sessions.of_cookies(cookies_of(request, self._cookie))
        session, cookie = await self._sessions.open(key, key_id, process)
        if old is not None and old.process.is_same(session.process):
            await self._sessions.lock(old, "asked")
        response = on_to(approval_id)
        # No Expires: the cookie ends with the browser. Not Secure, and so no __Host- name: localhost has no certificate, and not
        # every browser takes http://localhost for a secure place. The path keeps it from whatever else is served on this port.
        response.set_cookie(self._cookie, cookie, path="/approvals", httponly=True, samesite="strict")
        return response

    async def _lock(self, request: Request, session: Session) -> Response:
        fields = await read_form(request, "token")
        self.check_token(session, fields, "lock")
        await self._sessions.lock(session, "asked")
        response = on_to("")
        response.delete_cookie(self._cookie, path="/approvals", httponly=True, samesite="strict")
        return response

    def check_token(self, session: Session, fields: dict[str, str], *does: str) -> None:
        """Check that the form has this session's token for exactly the action `does`, given as words such as `lock`.
        Raises FormError otherwise.
        """
        if not session.is_token(needed(fields, "token"), *does):
            raise FormError(HTTPStatus.FORBIDDEN, "this form is not of this session, or was changed: nothing was done")

    async def frame(self, session: Session) -> dict[str, object]:
        """Return the template values for the header and title of every page of a session.

        Raises AileronError if the daemon fails.
        """
        left_s = max(0.0, session.ends_at - self._sessions.now())
        return {
            "left_s": math.ceil(left_s),
            "lock_token": session.token("lock"),
            "key_id": session.key_id,
            "can_sign": session.key is not None,
            "waiting_count": len(await self._daemon.waiting()),
        }

    def _stolen(self, request: Request) -> Response:
        response = refusals.stolen(request.path_params.get("id", ""))
        response.delete_cookie(self._cookie, path="/approvals", httponly=True, samesite="strict")
        return response


def _locked_news() -> Response:
    return with_fields(JSONResponse({"locked": True}, HTTPStatus.UNAUTHORIZED))


def is_approval_id(text: str) -> bool:
    """Return whether `text` has the form of a question's id."""
    return _ID.fullmatch(text) is not None


def on_to(approval_id: str, edit: str | None = None) -> Response:
    """Redirect (303) to a question's page, so that a reload repeats no change. Without an id, redirect to the queue."""
    path = "/approvals" + (f"/{quote(approval_id)}" if approval_id else "") + (f"?edit={quote(edit)}" if edit else "")
    return with_fields(RedirectResponse(path, HTTPStatus.SEE_OTHER))
