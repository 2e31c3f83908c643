"""The record in the form that its routes return: events that clients can wait for, and the check of the hash chain.

Runs in the daemon. Source: docs/reference/http-api.md. Not here: one run, one question (audit/query.py).
"""

from __future__ import annotations

import anyio
import anyio.to_thread

from aileron.api.audit import DecisionCounts, Verification, VerificationFinding
from aileron.audit import query
from aileron.audit.verify import verify
from aileron.home import Home
from aileron.ledger.sqlite import Ledger
from aileron.model.json_value import JSONObject

__all__ = ["verified", "wait_events"]


async def wait_events(ledger: Ledger, wanted: dict[str, str], wait_s: float = 0.0) -> list[JSONObject]:
    """Return the events that match the filters in `wanted`. If there are none, wait up to `wait_s` seconds for matching
    events.
    """
    found = await query.events(ledger, wanted)
    with anyio.move_on_after(wait_s):
        while not found and wait_s:
            news = ledger.news()
            found = await query.events(ledger, wanted)
            if not found:
                await news.wait()
    return found


async def verified(home: Home) -> Verification:
    """Read the ledger from its file and verify its hash chain."""
    report = await anyio.to_thread.run_sync(lambda: verify(home.ledger, expected_home=home.path))
    counts, finding = report.decisions, report.finding
    return Verification(
        ok=report.is_whole,
        rows=report.rows,
        head=report.head,
        signed_head=report.signed_head,
        decisions=DecisionCounts(signed=counts.signed, unsigned=counts.unsigned, unchecked=counts.unchecked),
        problem=None
        if finding is None
        else VerificationFinding(reason=finding.reason, seq=finding.seq, message=finding.message),
        cannot_prove=list(report.cannot_prove),
    )
