"""Passkeys on the page: unlock the page with a passkey, list the passkeys that can decide, add a passkey, revoke a passkey.

Runs in the daemon, on the loopback port. A script asks the browser for a passkey's signature, puts the result into a form
of the page, and submits that form like any other. So refusals use the same pages, and input is parsed in one way only.

    GET  /approvals/passkeys              the passkeys that can decide, each with a form that revokes it
    POST /approvals/passkeys/unlocking    the challenge that unlocks the page: JSON, for the script
    POST /approvals/passkeys/unlock       the signed challenge
    POST /approvals/passkeys/options      the options for a new passkey: JSON, for the script
    POST /approvals/passkeys/register     a new passkey, which becomes a question
    POST /approvals/passkeys/revoke       revoke a passkey

Rules
- A session that a passkey unlocked shows questions, and holds no key: each decision in the session needs its own touch
  (decision_forms.py).
- A passkey can be added only while the approver's key is open, and that key must sign the consent. The id that the browser
  computed itself must be the one in the question.
- Revoking a passkey takes only a session, as on every surface, because it only narrows access.

Source: docs/reference/page.md, docs/adr/0028-passkeys.md. Not here: the decision (decision_forms.py), the check of a
browser's signature (model/passkey.py), challenges (daemon/consent_service/passkeys.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from aileron.api.approver import PageUnlock, PasskeyEntry, PasskeyMade
from aileron.cards.subject import SYNCED
from aileron.model.consent import PASSKEY_DECIDES
from aileron.model.failure import AileronError
from aileron.model.timestamp import local_time
from aileron.web.daemon_port import PasskeyPort, Process
from aileron.web.forms import FormError, needed, read_form
from aileron.web.sessions import Session
from aileron.web.templating import html, with_fields

__all__ = ["SURFACE", "PageAccess", "PasskeyPages", "as_json"]

SURFACE: Final = "page"
"""The surface that is recorded for a refused unlock."""
_MAX_ID: Final = 64
_Answer = Callable[[Request], Awaitable[Response]]


class PageAccess(msgspec.Struct, frozen=True):
    """The parts of Admission that the passkey pages use."""

    let_in: Callable[[Callable[[Request, Session], Awaitable[Response]]], _Answer]
    """Wraps a handler so that it serves only unlocked browsers (`Admission.let_in`)."""
    at_the_door: Callable[[Callable[[Request, Process], Awaitable[Response]]], _Answer]
    """Wraps the handler of a form for browsers without a session (`Admission.at_the_door`)."""
    open: Callable[[Request, str, Process, str], Awaitable[Response]]
    """Opens a session that has no key, so passkeys sign its decisions (`Admission.open`)."""
    not_opened: Callable[[str, AileronError], Response]
    """Returns the unlock page, with the reason why the attempt failed (`Admission.not_opened`)."""
    check_token: Callable[..., None]
    frame: Callable[[Session], Awaitable[dict[str, object]]]
    base: str
    """Origin of the page with a host name, because browsers do not use passkeys with IP addresses."""


class PasskeyPages:
    """The pages that list, register and revoke passkeys, and the requests that unlock the page with a passkey. Each
    page has one instance.
    """

    def __init__(self, passkeys: PasskeyPort, ways: PageAccess) -> None:
        self._passkeys = passkeys
        self._ways = ways

    def routes(self) -> list[Route]:
        """Return the routes for the application that serves the page."""
        base, let_in, at_the_door = "/approvals/passkeys", self._ways.let_in, self._ways.at_the_door
        return [
            Route(base, let_in(self._list), methods=["GET"]),
            Route(f"{base}/unlocking", at_the_door(self._unlocking), methods=["POST"]),
            Route(f"{base}/unlock", at_the_door(self._unlock), methods=["POST"]),
            Route(f"{base}/options", let_in(self._options), methods=["POST"]),
            Route(f"{base}/register", let_in(self._register), methods=["POST"]),
            Route(f"{base}/revoke", let_in(self._revoke), methods=["POST"]),
        ]

    def offered(self) -> list[PasskeyEntry]:
        """Return the passkeys that can be used on this page; empty while the vault is locked."""
        try:
            return [passkey for passkey in self._passkeys.listed() if passkey.usable]
        except AileronError:
            return []

    def says_yes_to(self, kind: str) -> bool:
        """Return whether passkeys can approve questions of this kind, and at least one passkey is available."""
        return kind in PASSKEY_DECIDES and bool(self.offered())

    # Unlocking

    async def _unlocking(self, request: Request, _process: Process) -> Response:
        await read_form(request)
        return as_json(self._passkeys.unlocking())

    async def _unlock(self, request: Request, process: Process) -> Response:
        fields = await read_form(request, "to", "nonce", "at", "key_id", "signature")
        asked = PageUnlock(
            nonce=needed(fields, "nonce"),
            at=needed(fields, "at"),
            key_id=needed(fields, "key_id"),
            signature=needed(fields, "signature"),
        )
        try:
            key_id = await self._passkeys.check_unlocked(asked, SURFACE)
        except AileronError as error:
            return self._ways.not_opened(fields.get("to", ""), error)
        return await self._ways.open(request, key_id, process, fields.get("to", ""))

    # Those that may decide

    async def _list(self, _request: Request, session: Session) -> Response:
        return await self._page(session, session.take_note("passkeys"))

    async def _page(self, session: Session, note: str | None) -> Response:
        return html(
            "passkeys.html",
            **await self._ways.frame(session),
            note=note,
            passkeys=[_row(passkey, session) for passkey in self._passkeys.listed()],
            base=self._ways.base,
            add_token=session.token("passkey"),
            news_of="passkeys",
        )

    async def _revoke(self, request: Request, session: Session) -> Response:
        fields = await read_form(request, "token", "key_id")
        key_id = needed(fields, "key_id")
        self._ways.check_token(session, fields, "revoke", key_id)
        await self._passkeys.revoke(key_id)
        session.leave_note("passkeys", "Revoked. It can no longer decide.")
        return _to("/approvals/passkeys")

    # Making one

    async def _options(self, request: Request, session: Session) -> Response:
        fields = await read_form(request, "token", "name")
        self._check_may_add(session, fields)
        return as_json(self._passkeys.registration(needed(fields, "name").strip()))

    async def _register(self, request: Request, session: Session) -> Response:
        fields = await read_form(request, "token", "name", "client_data", "attestation", "transports", "made")
        self._check_may_add(session, fields)
        made = PasskeyMade(
            client_data=needed(fields, "client_data"),
            attestation=needed(fields, "attestation"),
            transports=tuple(fields.get("transports", "").split()),
        )
        answer = await self._passkeys.register(made)
        counted = needed(fields, "made")[:_MAX_ID]
        session.leave_note(
            answer.approval_id,
            f"This is about the passkey that this browser made just now. The browser counted its key to be {counted}. The key "
            "below has to be the same: compare both, and deny it where they differ.",
        )
        return _to(f"/approvals/{answer.approval_id}")

    def _check_may_add(self, session: Session, fields: dict[str, str]) -> None:
        self._ways.check_token(session, fields, "passkey")
        if session.key is None:
            raise FormError(HTTPStatus.FORBIDDEN, "a passkey is added where the approver's own key is open")


def as_json(found: Any) -> Response:
    """Return a JSON response for the page's own script."""
    return with_fields(Response(msgspec.json.encode(found), media_type="application/json"))


def _row(passkey: PasskeyEntry, session: Session) -> dict[str, object]:
    key_id = passkey.id
    return {
        "key_id": key_id,
        "name": passkey.name,
        "usable": passkey.usable,
        "origin": passkey.origin,
        "since": local_time(passkey.enrolled_at),
        "copied": SYNCED.get(passkey.synced, passkey.synced),
        "is_this": key_id == session.key_id,
        "token": session.token("revoke", key_id),
    }


def _to(path: str) -> Response:
    return with_fields(RedirectResponse(path, HTTPStatus.SEE_OTHER))
