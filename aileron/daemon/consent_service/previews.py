"""Reads previews for authorized viewers, and knows the newest preview of each plan, because an approval of an older
preview is not valid.

Runs in the daemon. Readings are stored only in this process's memory. After a restart, earlier previews are unknown, and an
approval of any of them is valid.

Rules
- Every preview is read here, whichever surface shows it: so an approval is compared with the readings of all surfaces.
- Readings are ordered by when they began: of two concurrent readings, the one that began last is the newest, whichever ends
  first.
- A failed reading showed nothing, so the newest reading stays the same.
- The newest reading is stored for MAX_READ plans. A plan whose reading was dropped to make room is not treated as never read:
  an approval of its preview is valid only after the preview is read again.

Source: docs/reference/signed-decisions.md. Not here: who may see a preview (service.py, web/admission.py), the reading
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
"""Maximum number of plans whose newest preview is stored. Each was requested with the approver's signature or viewed on an
unlocked page, so agents cannot fill this memory.
"""


class _Newest(NamedTuple):
    """The newest preview of a plan. `number` is its position among all previews that were read; `digest` is the
    digest of the plan together with the shown values.
    """

    number: int
    digest: str


class PreviewRegistry:
    """Service that reads previews, and remembers the newest preview of each plan. One instance per daemon."""

    def __init__(self, spine: Spine) -> None:
        self._spine = spine
        self._numbers = itertools.count(1)
        self._newest: dict[tuple[str, str], _Newest] = {}
        """The newest preview of each plan, by question and plan. The plan whose preview was read longest ago comes first."""
        self._forgotten = 0
        """Highest number of a preview that was dropped to make room; 0 if none was."""

    async def read(self, approval_id: str, plan_digest: str | None) -> Preview:
        """Read and return the preview of a plan of the question, by default of the waiting plan. Raises AileronError
        as Spine.preview does.
        """
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
        """Check that an approval with this `digest` is about the plan's newest preview. Raises NotCounted if a newer
        preview differs, or if the newest one may have been dropped to make room. If no preview of the plan was read and
        none of any plan was dropped, every digest passes.
        """
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
            return  # a reading that began later has ended before, or may have done so and made room
        self._newest.pop(plan, None)
        while len(self._newest) >= MAX_READ:
            gone = self._newest.pop(next(iter(self._newest)))
            self._forgotten = max(self._forgotten, gone.number)
        self._newest[plan] = read
