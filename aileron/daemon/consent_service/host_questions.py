"""Decides whether an agent in a cell may connect to a host now. It may if the host is listed or was allowed before; otherwise a
person is asked, and the connection waits.

Runs in the daemon, for outgoing connections of cells. The client is an agent, or a program that it fetched a minute ago: it
decides which names a person reads, so the number, frequency and waiting time of the questions are bounded here.

    listed by the session             → at once
    not listed, and it does not ask   → refused, with the option that lists it
    not listed, and it asks           → a question, once; the connection waits for WAIT_S, and is refused with the question's id
        approved                      → this session can reach it until it ends
        denied, or withdrawn          → refused until the session ends, without another question
        expired                       → asked again at the next try

Rules
- A person is never asked twice about the same host for the same session while the first question waits, or after a denial.
- At most MAX_WAITING questions of one session wait at once, and at most MAX_ALL questions of all sessions together. A person is
  asked about at most MAX_NAMES names during one session. A connection beyond these limits is refused at once and nothing is
  stored about it.
- When a session ends, its waiting questions are withdrawn.

Source: docs/adr/0065-questions-about-hosts.md, docs/reference/consents.md#hosts. Not here: connecting (aileron/egress), the
display of a question (aileron/cards).
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable
from typing import Final, assert_never

import anyio

from aileron.audit.log import Audit
from aileron.daemon.consent_service.allowed_hosts import AllowedHosts, AskingCell, KnownHost
from aileron.daemon.consent_service.consents import ConsentService
from aileron.egress.refusal import Reason
from aileron.egress.tunnel.policy import Admitted, Cell, Refused, listed
from aileron.ledger import ApprovalState
from aileron.model.consent import ConsentKind, HostConsent
from aileron.model.failure import AileronError
from aileron.model.names import HostPort
from aileron.model.visible import visible

__all__ = ["MAX_ALL", "MAX_NAMES", "MAX_WAITING", "HostQuestions"]

MAX_WAITING: Final = 8
"""Maximum number of waiting questions of one session: as many as a tool needs at its first start, and as a person reads in a
minute.
"""
MAX_NAMES: Final = 64
"""Maximum number of HOST:PORT pairs that a person is ever asked about for one session; many toolchains use thirty."""
MAX_ALL: Final = 64
"""Maximum number of waiting questions of all sessions: a third of the queue's places for consents, so that places are left for
a person's own changes.
"""
WAIT_S: Final = 25.0
"""Seconds that a connection waits for a decision: clients give up after thirty seconds or more, and a person at the desk needs
ten seconds.
"""
_ENDED: Final = "session"
"""Surface that is recorded for a question that was withdrawn because its session ended."""


class _Answer(enum.Enum):
    """The current state of a person's answer to one question."""

    WAITS = enum.auto()
    YES = enum.auto()
    NO = enum.auto()
    NONE = enum.auto()
    """The question expired unanswered, or its answer is not valid: the person may be asked about the host again."""


class HostQuestions:
    """Service that decides whether cells can connect to hosts, and asks a person about hosts that are not listed. One
    instance per daemon. Implements HostPolicy (egress/tunnel/policy.py).
    """

    def __init__(self, hosts: AllowedHosts, consents: ConsentService, audit: Audit, *, wait_s: float = WAIT_S) -> None:
        self._hosts = hosts
        self._consents = consents
        self._audit = audit
        self._wait_s = wait_s
        self._asking = anyio.Lock()
        """Lock that makes counting questions and asking one a single step. Held while one or two rows are written to
        the ledger.
        """

    async def load(self) -> None:
        """Withdraw the waiting questions about hosts whose session is no longer open. Raises AileronError if that cannot be
        recorded.
        """
        await self._withdraw(lambda session: self._hosts.cell(session) is None)

    async def ended(self, session: str) -> None:
        """Forget the hosts that were allowed for a session that has ended, and withdraw its questions."""
        async with self._asking:
            self._hosts.forget(session)
            await self._withdraw(lambda other: other == session)

    async def admit(self, cell: Cell, destination: HostPort) -> Admitted | Refused:
        """Return whether this cell may connect to `destination` now. Wait at most WAIT_S for a person's decision. If cancelled,
        leave the question as it is.

        Raises AileronError (vault_locked) if the host was allowed but the approval cannot be checked, or (hash_mismatch) if the
        approval is not what was decided.
        """
        found, facts = listed(cell.hosts, destination), self._hosts.cell(cell.id)
        if isinstance(found, Admitted) or facts is None or not facts.ask:
            return found
        with anyio.CancelScope(shield=True):  # a question that is on record must be known here, too
            async with self._asking:
                known = await self._question(cell.id, facts, destination)
        if isinstance(known, Refused):
            return known
        answer = await self._audit.watch.follow(
            known.approval,
            _Answer.WAITS,
            lambda: self._answer(known),
            lambda now: now is not _Answer.WAITS,
            self._wait_s,
        )
        return await self._told(answer, known, destination)

    async def _question(self, session: str, facts: AskingCell, destination: HostPort) -> KnownHost | Refused:
        """Return the question about this host, waiting or decided. Ask it now if it was not asked before, has expired,
        or has an answer that is not valid. Return Refused if it cannot be asked.
        """
        known = self._hosts.of(session).get(destination)
        if known is not None and await self._answer(known) is not _Answer.NONE:
            return known
        if self._hosts.cell(session) is None:
            return Refused(Reason.HOST_NOT_LISTED, f"{destination} is not allowed: the session {session} is over")
        if (problem := await self._why_not_asked(session, destination)) is not None:
            return Refused(
                Reason.HOST_LIMIT, f"{destination} is not allowed in this cell, and nobody was asked: {problem}"
            )
        subject = HostConsent(
            session=session, agent=facts.agent, folder=facts.folder, host=destination.host, port=destination.port
        )
        asked = await self._consents.ask(subject)
        return self._hosts.asked(subject, asked.approval_id)

    async def _why_not_asked(self, session: str, destination: HostPort) -> str | None:
        """Return why no question about `destination` can be asked for this session now, as the end of a sentence; None if
        one can be asked.
        """
        known = self._hosts.of(session)
        if destination not in known and len(known) >= MAX_NAMES:
            return (
                f"this session has asked about {MAX_NAMES} hosts already; start it with --allow-host for what it needs"
            )
        waiting = await self._audit.waiting(ConsentKind.HOST)
        if sum(host.approval in waiting for host in known.values()) >= MAX_WAITING:
            return f"{MAX_WAITING} questions of this session wait: aileron approval list"
        if len(waiting) >= MAX_ALL:
            return f"{MAX_ALL} questions about hosts wait: aileron approval list"
        return None

    async def _answer(self, known: KnownHost) -> _Answer:
        """Return a person's answer to the question about the host `known`, as far as there is one. Raises AileronError
        (vault_locked, hash_mismatch) if an approval cannot be checked.
        """
        if known.is_allowed:
            return _Answer.YES if await self._hosts.counts(known) else _Answer.NONE
        state, _ = await self._audit.state_of(known.approval)
        match state:
            case (
                ApprovalState.PENDING | ApprovalState.APPROVED | ApprovalState.REDEEMED
            ):  # its effect follows in a moment
                return _Answer.WAITS
            case ApprovalState.DENIED | ApprovalState.CANCELLED:
                return _Answer.NO
            case ApprovalState.EXPIRED:
                return _Answer.NONE
            case impossible:
                assert_never(impossible)

    async def _told(self, answer: _Answer, known: KnownHost, destination: HostPort) -> Admitted | Refused:
        match answer:
            case _Answer.YES:
                return Admitted()
            case _Answer.NO:
                state, reason = await self._audit.state_of(known.approval)
                how = "withdrawn" if state is ApprovalState.CANCELLED else "denied by a person"
                why = f" ({visible(reason)})" if reason else ""
                text = (
                    f"{destination} is not allowed in this cell: it was {how} for this session{why}; do not try again"
                )
                return Refused(Reason.HOST_DENIED, text)
            case _Answer.WAITS | _Answer.NONE:
                text = (
                    f"{destination} waits for a person: aileron approve {known.approval}; try again once it is approved"
                    if answer is _Answer.WAITS
                    else f"nobody decided about {destination} in time; try again, and a person is asked again"
                )
                return Refused(Reason.HOST_UNANSWERED, text)
            case impossible:
                assert_never(impossible)

    async def _withdraw(self, is_over: Callable[[str], bool]) -> None:
        for row, subject in await self._audit.open_consents():
            if isinstance(subject, HostConsent) and is_over(subject.session):
                with contextlib.suppress(
                    AileronError
                ):  # a person decided meanwhile: carrying that out is then refused (consents.py)
                    await self._audit.cancel(row.id, surface=_ENDED)
