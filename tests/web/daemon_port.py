"""A scripted daemon port, and a page with it but without a daemon: for timings that no daemon can be brought to.

    desk = ToldDesk()
    async with browser_of(desk) as browser:
        page = await browser.get("/approvals")

Not here: the page of a real daemon (tests/support/paged.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import anyio
import httpx
import msgspec
from msgspec import UNSET

from aileron.api.approvals import ApprovalEntry, Question, Settled
from aileron.api.approver import ApproverFacts
from aileron.api.audit import RecordOfRun
from aileron.api.runs import RunState
from aileron.cards.decision_flow import UnsignedDecision
from aileron.daemon.http.pages import pages
from aileron.ingress.known import KnownCallers
from aileron.model.failure import AileronError, FailureClass
from aileron.model.preview import Preview, PreviewField
from aileron.web.app import Page
from aileron.web.daemon_port import Ended
from aileron.web.sessions import Session, Sessions
from tests.cli import questions
from tests.support.listed import in_a_list

__all__ = ["ASKED", "Browser", "Key", "Process", "ToldDesk", "asking", "browser_of", "previewed"]

ASKED: Final = "act-20260101T000000-00000000000000000001"
PORT: Final = 20480


class Process:
    """A process at the other end of a connection."""

    name = "browser"

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def is_same(self, other: Process) -> bool:
        """Return whether both have the same number."""
        return self.pid == other.pid


class Key:
    """A key that records whether it was wiped."""

    key_id = "ed25519:one"

    def __init__(self) -> None:
        self.is_wiped = False

    def wipe(self) -> None:
        """Record that the key was wiped."""
        self.is_wiped = True


class ToldDesk:
    """A daemon port that answers what its attributes say, and remembers the calls.

    The method that `holds` names waits in the middle: `arrived` is set then, and it goes on with `go_on`.
    """

    def __init__(self, *questions: dict[str, Any], holds: str = "") -> None:
        self.now = 1000.0
        self.key_id: str | None = Key.key_id
        self.status = "ready"
        self.told: list[tuple[str, str]] = []
        self.is_full = False
        self.passkeys = {"webauthn:one"}
        self.pid = 1
        self.questions = list(questions)
        self.shown = Preview(
            [PreviewField("Path", "what-is-there-now", multiline=False)], None, None, "sha256:" + "2" * 64
        )
        self.ran: dict[str, Any] = {"audit_id": "run-1", "status": "completed", "events": []}
        self.came: dict[str, Any] = {}
        self.holds = holds
        self.arrived = anyio.Event()
        self.go_on = anyio.Event()
        self.written = anyio.Event()
        self.stopping = anyio.Event()

    def opens(self, passkey: str) -> bool:
        """Return whether the passkey may unlock the page."""
        return passkey in self.passkeys

    def approver(self) -> ApproverFacts:
        """Return the facts about the approver."""
        return ApproverFacts(status=self.status, key_id=self.key_id or UNSET)  # type: ignore[arg-type]

    async def process(self, _client: Any, _server: Any) -> Process:
        """Return the process with the number `pid`, whatever the connection."""
        await self._hold("process")
        return Process(self.pid)

    async def session_of(self, _process: Any) -> str | None:
        """Return no session for any process."""
        return None

    async def open_key(self, passphrase: Any) -> Key:
        """Refuse every passphrase as wrong."""
        raise AileronError(FailureClass.UNAUTHORIZED, "wrong")

    async def unlocked(self, page: str, key_id: str, process: Any) -> None:
        """Record the unlocking, or raise AileronError(busy) if the disk is full."""
        if self.is_full:
            raise AileronError(FailureClass.BUSY, "the disk is full")
        self.told.append((page, "unlocked"))

    async def locked(self, page: str, why: Ended) -> None:
        """Record the locking."""
        self.told.append((page, why))

    async def refused(self, what: str, why: str, key_id: str | None) -> None:
        """Record the refusal."""
        self.told.append((what, why))

    async def waiting(self) -> list[ApprovalEntry]:
        """Return the rows of pending questions."""
        return self._rows(lambda question: question["status"] == "pending_approval")

    async def recent(self) -> list[ApprovalEntry]:
        """Return the rows of all other questions."""
        return self._rows(lambda question: question["status"] != "pending_approval")

    def _rows(self, wanted: Callable[[dict[str, Any]], bool]) -> list[ApprovalEntry]:
        return [
            msgspec.convert(entry, ApprovalEntry)
            for entry in in_a_list([question for question in self.questions if wanted(question)])
        ]

    async def question(self, approval_id: str) -> Question:
        """Return the question with this id. AileronError(not_found)."""
        for question in self.questions:
            if question.get("approval_id", approval_id) == approval_id:
                return msgspec.convert(question, Question)
        raise AileronError(FailureClass.NOT_FOUND, "no such question")

    async def preview(self, approval_id: str, plan_digest: str) -> Preview:
        """Return the preview in `shown`."""
        await self._hold("preview")
        return self.shown

    async def decide(self, _key: Any, decided: UnsignedDecision) -> Settled:
        """Settle the question by this decision."""
        (question,) = [question for question in self.questions if question["approval_id"] == decided.approval_id]
        question["status"] = "denied" if decided.decision == "deny" else "completed"
        self.told.append((decided.approval_id, decided.decision))
        await self._hold("decide")
        return Settled(status=question["status"], approval_id=decided.approval_id, audit_id=None)

    async def result(self, approval_id: str) -> RunState:
        """Return the state of the run, with the fields in `came`."""
        status = (await self.question(approval_id)).status
        return msgspec.convert({"status": status, "approval_id": approval_id, **self.came}, RunState)

    async def record(self, _audit_id: str) -> RecordOfRun:
        """Return the record in `ran`."""
        return msgspec.convert(self.ran, RecordOfRun)

    def news(self) -> anyio.Event:
        """Return the event of news."""
        return self.written

    async def _hold(self, method: str) -> None:
        if self.holds == method:
            self.arrived.set()
            await self.go_on.wait()


class NoPasskeys:
    """A home without passkeys."""

    def listed(self) -> list[dict[str, Any]]:
        """Return an empty list."""
        return []


class Browser:
    """A browser with an unlocked page."""

    def __init__(self, client: httpx.AsyncClient, sessions: Sessions, session: Session, cookie: str) -> None:
        self.sessions = sessions
        self.session = session
        self._client = client
        self._headers = {"Cookie": f"aileron-page-{PORT}={cookie}", "Sec-Fetch-Site": "same-origin"}

    async def get(self, path: str) -> httpx.Response:
        """Return a page."""
        return await self._client.get(path, headers=self._headers)

    async def post(self, path: str, fields: dict[str, str]) -> httpx.Response:
        """Send a form. Redirects are not followed."""
        headers = {**self._headers, "Origin": f"http://localhost:{PORT}"}
        return await self._client.post(path, data=fields, headers=headers)

    async def deny(self, digest: str) -> httpx.Response:
        """Deny the question with this digest, or with the digest of the preview that was read for it."""
        kept = self.session.preview_of(ASKED, digest)
        digest = digest if kept is None or kept.digest is None else kept.digest
        token = self.session.token("deny", ASKED, digest, "")
        return await self.post(f"/approvals/{ASKED}/decide", {"decision": "deny", "digest": digest, "token": token})


@contextlib.asynccontextmanager
async def browser_of(desk: Any) -> AsyncIterator[Browser]:
    """Open an unlocked page of this daemon port."""
    sessions = Sessions(desk, KnownCallers(), now=lambda: float(desk.now))
    passkeys: Any = NoPasskeys()
    transport = httpx.ASGITransport(pages(Page(desk, sessions, PORT, passkeys)))
    async with httpx.AsyncClient(transport=transport, base_url=f"http://localhost:{PORT}", timeout=30) as client:
        process: Any = Process(desk.pid)
        session, cookie = await sessions.open(Key(), Key.key_id, process)
        yield Browser(client, sessions, session, cookie)


def asking(**more: Any) -> dict[str, Any]:
    """Return a pending question without a preview."""
    return questions.question(**{"approval_id": ASKED, **more})


def previewed(**more: Any) -> dict[str, Any]:
    """Return a pending question with a preview."""
    return questions.question(questions.previewed(), **{"approval_id": ASKED, **more})
