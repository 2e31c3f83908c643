"""The interface through which the page uses the rest of the daemon. It is implemented in daemon/http/page.py.

Pure. Nothing about a question may be shown before a person has unlocked the page; sessions.py and admission.py check
that.

Not here: HTTP (admission.py), the text for a person (cards/card.py).
"""

from __future__ import annotations

from typing import Literal, Protocol, Self

import anyio

from aileron.api.approvals import ApprovalEntry, ConsentAnswer, Decision, Question, Settled
from aileron.api.approver import (
    ApproverFacts,
    Challenge,
    PageUnlock,
    PasskeyEntry,
    PasskeyMade,
    PasskeyOptions,
    UnlockChallenge,
)
from aileron.api.audit import RecordOfRun
from aileron.api.runs import RunState
from aileron.cards.decision_flow import UnsignedDecision
from aileron.model.preview import Preview
from aileron.model.secret import Secret

__all__ = ["DaemonPort", "Ended", "Key", "PasskeyPort", "Process", "Refused", "Unseen"]

Refused = Literal["passphrase", "process"]
"""Reason, as recorded, why a browser was refused: a wrong passphrase, or its process."""
Ended = Literal["asked", "over", "process", "replaced", "passkey", "many", "stopping"]
"""Reason, as recorded, why the session of an unlocked browser ended (texts: admission.py)."""


class Key(Protocol):
    """The approver's private key while it is open. The page stores and wipes it; the daemon signs with it."""

    @property
    def key_id(self) -> str:
        """Id of the key."""
        ...

    def wipe(self) -> None:
        """Overwrite the key in memory."""
        ...


class Process(Protocol):
    """The process of the browser that is connected to the page."""

    @property
    def pid(self) -> int:
        """Process id."""
        ...

    @property
    def name(self) -> str:
        """Name of the process. The process can choose it, so it proves nothing."""
        ...

    def is_same(self, other: Self) -> bool:
        """Return whether `other` is the same process, and not another with a reused process id."""
        ...


class Unseen(Exception):
    """Error: the process that sent the request cannot be determined; `why` gives the reason.

    `is_gone`: the connection is closed, which is harmless. `is_foreign`: the process is another user's; its attempts
    are not recorded, so that they cannot fill the record.
    """

    def __init__(self, why: str, *, is_gone: bool = False, is_foreign: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.is_gone = is_gone
        self.is_foreign = is_foreign


class DaemonPort(Protocol):
    """The page's interface to the rest of the daemon. Each method may raise AileronError; returned text is hostile."""

    def approver(self) -> ApproverFacts:
        """Return the facts about this home's approver. Never raises."""
        ...

    def opens(self, passkey: str) -> bool:
        """Return whether the passkey with this id can decide now. False while the vault is locked, because the answer
        is then unknown. Never raises.
        """
        ...

    async def process(self, client: tuple[str, int], server: tuple[str, int]) -> Process:
        """Return the process at the client's end of the TCP connection from the address `client` to the address
        `server`. Raises Unseen or AileronError(busy).
        """
        ...

    async def session_of(self, process: Process) -> str | None:
        """Return the id of the agent's session that started this process, or None. Raises AileronError(busy)."""
        ...

    async def open_key(self, passphrase: Secret) -> Key:
        """Open the approver's key. Raises AileronError: unauthorized for a wrong passphrase, vault_locked, hash_mismatch."""
        ...

    async def unlocked(self, page: str, key_id: str, process: Process) -> None:
        """Record in the audit trail that a page was unlocked. If this fails, the page stays locked."""
        ...

    async def locked(self, page: str, why: Ended) -> None:
        """Record in the audit trail that a page was locked again. Never raises: the page is locked even if the disk fails."""
        ...

    async def refused(self, what: Literal["unlock", "page"], why: Refused, key_id: str | None) -> None:
        """Record in the audit trail that a browser was refused, at unlocking or on the page. Never raises."""
        ...

    async def waiting(self) -> list[ApprovalEntry]:
        """Return the open questions, the first to expire first."""
        ...

    async def recent(self) -> list[ApprovalEntry]:
        """Return the questions that were recently decided, withdrawn or expired, the newest first."""
        ...

    async def question(self, approval_id: str) -> Question:
        """Return the complete question with this id. Raises AileronError(not_found) if it does not exist."""
        ...

    async def preview(self, approval_id: str, plan_digest: str) -> Preview:
        """Read the preview of the plan with this digest, for the person who unlocked the page."""
        ...

    async def decide(self, key: Key, decided: UnsignedDecision) -> Settled:
        """Sign the decision with the key, and submit it. Raises AileronError as DecisionService.decide does."""
        ...

    async def decide_signed(self, approval_id: str, decision: Decision) -> Settled:
        """Submit a decision that a passkey signed. Raises AileronError as DecisionService.decide does."""
        ...

    async def ask_back(self, approval_id: str, text: str) -> None:
        """Ask the agent a question about its request."""
        ...

    async def cancel(self, approval_id: str) -> None:
        """Withdraw an approval while its run is held back."""
        ...

    async def result(self, approval_id: str) -> RunState:
        """Return the state of a question and, if its run has ended, the result."""
        ...

    async def record(self, audit_id: str) -> RecordOfRun:
        """Return the record of a run in the audit trail: its events, oldest first, and whether there are more."""
        ...

    def news(self) -> anyio.Event:
        """Return an event that is set when something is written to the ledger after this call."""
        ...

    @property
    def stopping(self) -> anyio.Event:
        """Event that is set when the daemon has been told to stop, so that waiting requests get their response."""
        ...


class PasskeyPort(Protocol):
    """The page's interface to the home's passkeys (daemon/consent_service/passkeys.py).

    Every method may raise AileronError; names are hostile text.
    """

    def listed(self) -> list[PasskeyEntry]:
        """Return the passkeys that can decide."""
        ...

    def unlocking(self) -> UnlockChallenge:
        """Return the challenge that each passkey must sign to unlock a page."""
        ...

    async def check_unlocked(self, asked: PageUnlock, surface: str) -> str:
        """Check a signed challenge that unlocks a page; each is valid only once. Return the id of the key that signed
        it. A refusal is recorded.
        """
        ...

    async def challenge(
        self, approval_id: str, digest: str, decision: Literal["approve", "deny"], reason: str | None = None
    ) -> Challenge:
        """Return the challenge that each passkey must sign for a decision."""
        ...

    def registration(self, name: str) -> PasskeyOptions:
        """Return the options with which a browser creates a passkey of this name."""
        ...

    async def register(self, made: PasskeyMade) -> ConsentAnswer:
        """Create a question that asks a person whether the new passkey may decide."""
        ...

    async def revoke(self, key_id: str) -> None:
        """Revoke a passkey."""
        ...
