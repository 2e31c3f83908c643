"""An asker for a notifier that is tested alone: a queue of pending questions, reported as the daemon reports them.

    asking = Asking()
    asking.notifier = Notifier(settings, egress, vault, queue=asking.look, page=PAGE)
    asking.asked("apr-1", "send-mail", "action")

Not here: the daemon's own queue (tests/daemon/test_notified.py).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final

from aileron.api.approvals import ApprovalEntry
from aileron.daemon.notify.notifier import Notifier
from aileron.model.failure import AileronError, FailureClass
from aileron.model.outcome import RunStatus
from aileron.model.timestamp import utc
from tests.support.waiting import wait_until_async

__all__ = ["PAGE", "Asking", "Watch"]

PAGE: Final = "http://localhost:27182"


class Watch:
    """A clock that stands still until it is set, and counts how often it is read."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return self.now

    async def wait_looked_at(self) -> None:
        """Wait until the clock has been read several more times."""
        before = self.looks
        await wait_until_async(lambda: self.looks > before + 5, "the clock is looked at", seen=lambda: self.looks)


class Asking:
    """An asker whose questions stay in a queue until they are decided, and that tells a notifier of each."""

    def __init__(self) -> None:
        self.waiting: dict[str, ApprovalEntry] = {}
        self.notifier: Notifier | None = None
        self.lasts_s = 900.0
        self.clock: Callable[[], float] = time.time
        self.is_broken = False

    async def look(self, approval_id: str) -> ApprovalEntry | None:
        """Return a pending question, or None, as the daemon's queue does for the notifier."""
        if self.is_broken:
            raise AileronError(FailureClass.BUSY, "the disk is full")
        return self.waiting.get(approval_id)

    def asked(self, approval_id: str, name: str, kind: str, *, agent: str = "claude", headline: str = "") -> None:
        """Add a pending question and tell the notifier."""
        said = {"action": name, "agent": agent, "headline": headline} if kind == "action" else {"name": name}
        self.waiting[approval_id] = ApprovalEntry(
            approval_id=approval_id,
            kind=kind,
            status=RunStatus.PENDING_APPROVAL,
            digest="sha256:0",
            created_at=utc(self.clock()),
            expires_at=utc(self.clock() + self.lasts_s),
            **said,  # type: ignore[arg-type]
        )
        assert self.notifier is not None
        self.notifier.asked(approval_id, name, kind)

    async def ask(self, approval_id: str, name: str, kind: str, *, until: Awaitable[object], **more: str) -> None:
        """Add a pending question, tell the notifier, and wait until what the notifier has to do then is done."""
        self.asked(approval_id, name, kind, **more)
        await until

    def decide(self, approval_id: str) -> None:
        """Remove a question from the queue, because it was decided."""
        del self.waiting[approval_id]
