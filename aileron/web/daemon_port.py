"""What the page may ask of the daemon, and what it is told: the other side is daemon/http/page.py.

Pure. Nothing of a question may be shown before somebody unlocked, and nothing here checks that: sessions.py and admission.py do.

Not here: HTTP (admission.py), what a person reads (review/card.py).
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
from aileron.model.preview import Preview
from aileron.model.secret import Secret
from aileron.review.decision_flow import UnsignedDecision

__all__ = ["DaemonPort", "Ended", "Key", "PasskeyPort", "Process", "Refused", "Unseen"]

Refused = Literal["passphrase", "process"]
"""Why somebody was not let in, as the record has it."""
Ended = Literal["asked", "over", "process", "replaced", "passkey", "many", "stopping"]
"""Why an unlocked page is locked again, as the record has it."""


class Key(Protocol):
    """An approver's private key while it is open. The page only holds it, and has it wiped."""

    @property
    def key_id(self) -> str:
        """Its name."""
        ...

    def wipe(self) -> None:
        """Overwrite it."""
        ...


class Process(Protocol):
    """Who is at the other end of a connection."""

    @property
    def pid(self) -> int:
        """Its number."""
        ...

    @property
    def name(self) -> str:
        """What it calls itself: nothing to rely on."""
        ...

    def is_same(self, other: Self) -> bool:
        """Whether it is the same one, and not another with its number."""
        ...


class Unseen(Exception):
    """Nobody can say which process asks: `why`.

    `is_gone`: its connection is closed, so that nobody is suspected; `is_foreign`: it is another user's, who writes no rows here.
    """

    def __init__(self, why: str, *, is_gone: bool = False, is_foreign: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.is_gone = is_gone
        self.is_foreign = is_foreign


class DaemonPort(Protocol):
    """One for each daemon. Every method may raise AileronError; what it is told is hostile text."""

    def approver(self) -> ApproverFacts:
        """Who decides. Never raises."""
        ...

    def opens(self, passkey: str) -> bool:
        """Whether a passkey of this id decides now, as far as can be known: not while the vault is locked. Never raises."""
        ...

    async def process(self, client: tuple[str, int], server: tuple[str, int]) -> Process:
        """Who holds the end `client` of this connection. Unseen, AileronError(busy)."""
        ...

    async def session_of(self, process: Process) -> str | None:
        """The agent's session that started this process, if one did. AileronError(busy)."""
        ...

    async def open_key(self, passphrase: Secret) -> Key:
        """The approver's key, opened. AileronError(unauthorized) for a wrong passphrase, vault_locked, hash_mismatch."""
        ...

    async def unlocked(self, page: str, key_id: str, process: Process) -> None:
        """Put on record that a page was unlocked. Where that cannot be, nothing is unlocked."""
        ...

    async def locked(self, page: str, why: Ended) -> None:
        """Put on record that it is locked again. Never raises: it is locked whatever the disk says."""
        ...

    async def refused(self, what: Literal["unlock", "page"], why: Refused, key_id: str | None) -> None:
        """Put on record that somebody was refused. Never raises."""
        ...

    async def waiting(self) -> list[ApprovalEntry]:
        """What waits for a person, the oldest first."""
        ...

    async def recent(self) -> list[ApprovalEntry]:
        """What was decided, taken back or ran out of time lately, the newest first."""
        ...

    async def question(self, approval_id: str) -> Question:
        """One question, whole, as it is told. AileronError not_found."""
        ...

    async def preview(self, approval_id: str, plan_digest: str) -> Preview:
        """Read what is there now, for who unlocked."""
        ...

    async def decide(self, key: Key, decided: UnsignedDecision) -> Settled:
        """Sign that decided with the key, and have it count. AileronError as DecisionService.decide."""
        ...

    async def decide_signed(self, approval_id: str, decision: Decision) -> Settled:
        """Have a decision count that a passkey signed. AileronError as DecisionService.decide."""
        ...

    async def ask_back(self, approval_id: str, text: str) -> None:
        """Ask whoever asked."""
        ...

    async def cancel(self, approval_id: str) -> None:
        """Take back what is held."""
        ...

    async def result(self, approval_id: str) -> RunState:
        """What became of a question."""
        ...

    async def record(self, audit_id: str) -> RecordOfRun:
        """A run: its events, oldest first, and whether there are more."""
        ...

    def news(self) -> anyio.Event:
        """Set when something is written after this call."""
        ...

    @property
    def stopping(self) -> anyio.Event:
        """Set once the daemon has been told to stop: what waits is answered."""
        ...


class PasskeyPort(Protocol):
    """The passkeys of this home, daemon/decisions/passkeys.py. Every method may raise AileronError; names are hostile text."""

    def listed(self) -> list[PasskeyEntry]:
        """Those that decide."""
        ...

    def unlocking(self) -> UnlockChallenge:
        """What each of them has to sign so that a page is unlocked."""
        ...

    async def check_unlocked(self, asked: PageUnlock, surface: str) -> str:
        """Whose key signed that, once. What does not count is on record."""
        ...

    async def challenge(
        self, approval_id: str, digest: str, decision: Literal["approve", "deny"], reason: str | None = None
    ) -> Challenge:
        """What each of them has to sign for a decision."""
        ...

    def registration(self, name: str) -> PasskeyOptions:
        """What one of this name is made with."""
        ...

    async def register(self, made: PasskeyMade) -> ConsentAnswer:
        """Ask whether one that was made may decide."""
        ...

    async def revoke(self, key_id: str) -> None:
        """End one."""
        ...
