"""The daemon's side of the page: implements the calls of web/daemon_port.py.

Runs in the daemon. This is the only place in the daemon where an approver's private key is decrypted: for one unlocked page, in
memory that no other process can read (supervise.py: not dumpable), for as long as web/sessions.py allows.

Rules
- Only the key that the vault names is ever decrypted.
- A decision on the page is signed, sent and checked like every other decision (consent_service/service.py). Its surface is
  `page`.
- A preview is read for the person who unlocked the page, as for the signer of a request (consent_service/previews.py). It leaves
  this process only as a part of that page.

Not here: HTTP, sessions, forms (web/), whether a signature counts (consent_service/service.py).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import anyio
import anyio.to_thread

from aileron.api.approvals import ApprovalEntry, Decision, Question, Settled
from aileron.api.approver import ApproverFacts
from aileron.api.audit import RecordOfRun
from aileron.api.runs import RunState
from aileron.approver_key import keyfile
from aileron.approver_key.signing import signed_decision
from aileron.audit import query
from aileron.audit.events import PageLocked, PageUnlocked
from aileron.cards.decision_flow import UnsignedDecision
from aileron.cards.listed import listed
from aileron.daemon.consent_service.approval_queue import ApprovalQueue
from aileron.daemon.consent_service.approver import ApproverState
from aileron.daemon.consent_service.previews import PreviewRegistry
from aileron.daemon.consent_service.service import DecisionService
from aileron.daemon.foundation import Foundation
from aileron.daemon.http.peer import NoPeer, Peer, peer_of
from aileron.daemon.http.sessions import Sessions
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.preview import Preview
from aileron.model.secret import Secret
from aileron.threads import in_thread
from aileron.web import daemon_port

__all__ = ["SURFACE", "PageService"]

SURFACE: Final = "page"
"""Surface that is recorded for decisions on the page."""
_RECENT: Final = 20
"""Maximum number of ended questions, such as decided or expired ones, that the page lists: one or two screens."""
_log = logging.getLogger(__name__)


class PageService:
    """Implementation of the page's DaemonPort. One instance per daemon."""

    def __init__(
        self,
        base: Foundation,
        *,
        approver: ApproverState,
        queue: ApprovalQueue,
        decisions: DecisionService,
        readings: PreviewRegistry,
        sessions: Sessions,
        stopping: anyio.Event,
    ) -> None:
        self._base = base
        self._file = base.home.approver_key
        self._approver = approver
        self._queue = queue
        self._decisions = decisions
        self._readings = readings
        self._sessions = sessions
        self.stopping = stopping
        self._looking = anyio.CapacityLimiter(
            2
        )  # threads that search for a process: some milliseconds of CPU time each

    # The person, and the process

    def approver(self) -> ApproverFacts:
        """Return whether decisions are signed in this home, and with which key."""
        return self._approver.facts()

    def opens(self, passkey: str) -> bool:
        """Return whether the passkey can unlock the page, that is, whether it is enrolled in the vault."""
        try:
            consents = self._approver.consents()
        except AileronError:
            return False
        return consents is not None and consents.passkey(passkey) is not None

    async def process(self, client: tuple[str, int], server: tuple[str, int]) -> Peer:
        """Return the process at the client's end of a loopback connection. Raises Unseen if it cannot be identified."""
        with _looked_up():
            found = await in_thread(peer_of, client, server, limiter=self._looking)
        if isinstance(found, NoPeer):
            raise daemon_port.Unseen(found.value, is_gone=found is NoPeer.GONE, is_foreign=found is NoPeer.ANOTHER_USER)
        return found

    async def session_of(self, process: daemon_port.Process) -> str | None:
        """Return the session that started the process or one of its ancestors."""
        with _looked_up():
            return await in_thread(self._sessions.started_by, process.pid, limiter=self._looking)

    async def open_key(self, passphrase: Secret) -> keyfile.ApproverKey:
        """Decrypt the approver's key that the vault names, and return it."""
        consents = self._approver.consents()
        if consents is None:
            raise AileronError(
                FailureClass.CONSENT_REQUIRED,
                "decisions are not signed in this home, so there is no key to open: aileron approver init",
                boundary=Boundary.USER,
            )
        with anyio.CancelScope(shield=True):  # else a caller that does not wait would leave an open key behind
            key = await anyio.to_thread.run_sync(keyfile.open_key, self._file_of(consents.key_id), passphrase)
        if key.key_id != consents.key_id:
            key.wipe()
            raise AileronError(
                FailureClass.HASH_MISMATCH,
                f"the key in {self._file} is not the one of this home's approver, {consents.key_id}: aileron "
                "approver status",
            )
        return key

    def _file_of(self, key_id: str) -> Path:
        """Return the path of the file with the approver's private key `key_id`: the staged file if a command that replaces
        the key ended before it moved that file (keyfile.py).
        """
        new = keyfile.staged(self._file)
        with contextlib.suppress(AileronError):
            if keyfile.public_of(new).key_id == key_id:
                return new
        return self._file

    async def unlocked(self, page: str, key_id: str, process: daemon_port.Process) -> None:
        """Record that a page was unlocked. If recording fails, the page stays locked."""
        await self._base.audit.note(PageUnlocked(page=page, key_id=key_id, pid=process.pid, program=process.name[:64]))

    async def locked(self, page: str, why: daemon_port.Ended) -> None:
        """Record that a page was locked. If recording fails, the failure is only logged."""
        try:
            await self._base.audit.note(PageLocked(page=page, reason=why))
        except AileronError as error:
            _log.warning("that a page was locked is not on record: %s", error)

    async def refused(self, what: Literal["unlock", "page"], why: daemon_port.Refused, key_id: str | None) -> None:
        """Record that a request for the page, or an attempt to unlock it, was refused. If recording fails, the failure is
        only logged.
        """
        try:
            await self._base.audit.refuse(None, what, why, SURFACE, key_id)
        except AileronError as error:
            _log.warning("that a page refused somebody is not on record: %s", error)

    # Display

    async def waiting(self) -> list[ApprovalEntry]:
        """Return the waiting questions, the first to expire first."""
        return await self._queue.listed()

    async def recent(self) -> list[ApprovalEntry]:
        """Return the newest ended questions, the newest first."""
        return [*await query.recent_approvals(self._base.ledger, _RECENT, listed)]

    async def question(self, approval_id: str) -> Question:
        """Return the complete question."""
        return await self._queue.show(approval_id)

    async def preview(self, approval_id: str, plan_digest: str) -> Preview:
        """Return the preview of a plan: the current state that the run would change."""
        return await self._readings.read(approval_id, plan_digest)

    async def result(self, approval_id: str) -> RunState:
        """Return the state of the run or change that a question is about."""
        return await self._queue.result(approval_id, None)

    async def record(self, audit_id: str) -> RecordOfRun:
        """Return a run with its events, and whether there are more."""
        return await query.run_with_events(self._base.ledger, audit_id)

    def news(self) -> anyio.Event:
        """Return the event that is set at the ledger's next write."""
        return self._base.ledger.news()

    # Decisions

    async def decide(self, key: daemon_port.Key, decided: UnsignedDecision) -> Settled:
        """Sign a decision with the page's key, and submit it like any other surface."""
        if not isinstance(key, keyfile.ApproverKey):
            raise TypeError("only this module opens keys")
        body = signed_decision(key, decided.approval_id, decided.digest, decided.decision, decided.reason, decided.head)
        return await self._decisions.decide(decided.approval_id, body, SURFACE)

    async def decide_signed(self, approval_id: str, decision: Decision) -> Settled:
        """Submit a decision with a passkey's signature, which is checked like the signature of every decision."""
        return await self._decisions.decide(approval_id, decision, SURFACE)

    async def ask_back(self, approval_id: str, text: str) -> None:
        """Pass the person's question to the requesting agent."""
        await self._queue.ask_back(approval_id, text)

    async def cancel(self, approval_id: str) -> None:
        """Withdraw the approval of a run that is still held, so that the run does not start."""
        await self._queue.cancel(approval_id, SURFACE, None)


@contextlib.contextmanager
def _looked_up() -> Iterator[None]:
    """Translate an OSError from reading /proc into a retriable AileronError (busy): such an error does not prove that
    the process is the wrong one.
    """
    try:
        yield
    except OSError as error:
        why = f"which program asks cannot be looked up now ({error.strerror}): try again in a moment"
        raise AileronError(FailureClass.BUSY, why, retriable=True) from error
