"""Closes questions when they expire, even if no client asks about them, and closes runs that were left open.

Runs in the daemon, one task. The record decides: a late decision and this task may race in the ledger, and the loser gets an
error.

Rules
- The task wakes for the earliest expiry, for a new question, and at least every LOOK_S, because the wall clock may be set, and
  expiries pass while a machine sleeps.
- Refusals that are only counted are recorded once a minute (audit/refusals.py).
- If the ledger cannot be written, the questions stay open, but every decision about them is refused as too late. A run whose
  outcome could not be recorded is closed as `unknown` once the ledger can be written.

Not here: the effect of expiry (audit/log.py).
"""

from __future__ import annotations

import logging
from typing import Final

import anyio

from aileron.audit.log import Audit
from aileron.ledger.sqlite import Ledger
from aileron.model.failure import AileronError
from aileron.runs.spine import Spine

__all__ = ["LOOK_S", "close_on_time"]

LOOK_S: Final = 60.0
"""Maximum number of seconds between two checks. A change of the wall clock is noticed within this time."""
_AGAIN_S: Final = 5.0
"""Seconds until the next check after a failed check: a full disk is unlikely to have space again sooner."""
_log = logging.getLogger(__name__)


async def close_on_time(ledger: Ledger, audit: Audit, spine: Spine) -> None:
    """Close questions as they expire, and runs whose end could not be recorded. Return only when cancelled."""
    while True:
        asked = audit.watch.next_question
        try:
            await spine.close_unrecorded()
            await audit.tell_refused()
            wait_s = await _close_due(ledger, audit)
        except AileronError as error:
            _log.warning("what is over could not be closed: %s", error)
            wait_s = _AGAIN_S
        with anyio.move_on_after(wait_s):
            await asked.wait()


async def _close_due(ledger: Ledger, audit: Audit) -> float:
    """Close the questions that have expired. Return the seconds until the next check."""
    first_us = await ledger.read(lambda snapshot: snapshot.first_expiry())
    if first_us is None:
        return LOOK_S
    left_s = (first_us - ledger.now_us()) / 1_000_000
    if left_s > 0:
        return min(left_s, LOOK_S)
    await audit.expire_due()
    return 0.0
