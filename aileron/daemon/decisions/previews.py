"""Previews, read for whoever may see one, and which of each plan is the newest: a yes to an older one does not count.

Runs in the daemon. Memory of this process alone: of what was read before it began nothing is known, and any of that counts.

Rules
- Every preview is read here, whichever surface shows it: a yes is held against what all of them read.
- A reading has the place of the moment it began: of two at once the one that began last is the newest, whichever ends first.
- One that failed has shown nothing: what was the newest is still it.
- Of MAX_READ plans the newest is known. A plan that had to make room is not taken for one that nobody read: a yes to a preview
  of it counts once that is read anew.

Source: docs/reference/signed-decisions.md. Not here: who may see one (service.py, web/admission.py), the reading
(runs/spine.py).
"""

from __future__ import annotations

import itertools
import time
from typing import Final, NamedTuple

from aileron.approvals.signed import NotCounted
from aileron.model.decision import digest_with_preview
from aileron.model.failure import AileronError, FailureClass
from aileron.model.preview import Preview, shown_digest
from aileron.model.timestamp import utc
from aileron.runs.spine import Spine

__all__ = ["MAX_READ", "PreviewRegistry"]

MAX_READ: Final = 1000
"""Plans. Each was read because its approver signed for it or looked at it in an unlocked page: an agent fills none of them."""


class _Newest(NamedTuple):
    """`number` is the place of the reading among all, `digest` that of the plan with what was shown."""

    number: int
    digest: str


class PreviewRegistry:
    """One for each daemon."""

    def __init__(self, spine: Spine) -> None:
        self._spine = spine
        self._numbers = itertools.count(1)
        self._newest: dict[tuple[str, str], _Newest] = {}
        """By question and plan, the one that was read longest ago first."""
        self._forgotten = 0
        """The highest number that made room; 0 while none has."""

    async def read(self, approval_id: str, plan_digest: str | None) -> Preview:
        """What is there now, of this plan of the question or of the one it waits with. AileronError as Spine.preview."""
        number = next(self._numbers)
        seen = await self._spine.preview(approval_id, plan_digest)
        taken_at = utc(time.time())
        if plan_digest not in (None, seen.plan_digest):
            raise AileronError(FailureClass.HASH_MISMATCH, "the preview belongs to another plan and is not shown")
        if seen.fields is None:
            return Preview(None, seen.problem or "it says nothing", taken_at)
        digest = digest_with_preview(seen.plan_digest, shown_digest(seen.fields))
        self._keep((approval_id, seen.plan_digest), _Newest(number, digest))
        return Preview(seen.fields, None, taken_at, digest)

    def check_newest(self, approval_id: str, plan_digest: str, digest: str) -> None:
        """Return if nothing else was read of this plan since `digest` was shown. NotCounted."""
        newest = self._newest.get((approval_id, plan_digest))
        if newest is None and self._forgotten:
            problem = "it is no longer known whether the preview is current; load it again"
            raise NotCounted("digest", problem, FailureClass.INVALID_REQUEST)
        if newest is not None and newest.digest != digest:
            problem = "the current state was loaded again and has changed: load it again"
            raise NotCounted("digest", problem, FailureClass.INVALID_REQUEST)

    def _keep(self, plan: tuple[str, str], read: _Newest) -> None:
        before = self._newest.get(plan)
        if read.number < (self._forgotten if before is None else before.number):
            return  # one that began later has ended before, or may have and made room
        self._newest.pop(plan, None)
        while len(self._newest) >= MAX_READ:
            gone = self._newest.pop(next(iter(self._newest)))
            self._forgotten = max(self._forgotten, gone.number)
        self._newest[plan] = read
