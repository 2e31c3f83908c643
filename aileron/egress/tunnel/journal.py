"""What tunnels need of the ledger, as a Protocol, and what is written there: that one opens, how it ended, and who was refused.

The daemon passes in the journal. A tunnel is in it before the host hears of it, and again when it is over: after a crash the
ledger says that it was open, and nothing of how much went.

Source: docs/reference/audit-events.md. Not here: how a row becomes durable (audit/log.py).
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from aileron.model.names import HostPort

__all__ = ["TunnelIntent", "TunnelJournal", "TunnelReport"]


class TunnelIntent(msgspec.Struct, frozen=True):
    """What is about to be connected. `may_hide`: the ClientHello has an extension that can hold another name."""

    session: str
    destination: HostPort
    may_hide: bool


class TunnelReport(msgspec.Struct, frozen=True):
    """How it ended. Bytes are those of TLS, as they went both ways; `address` None: no connection was made."""

    session: str
    destination: HostPort
    address: str | None
    bytes_up: int
    bytes_down: int
    ms: float
    reason: str


class TunnelJournal(Protocol):
    """The ledger, as tunnels see it."""

    async def opened(self, intent: TunnelIntent) -> str:
        """Write it down; durable when it returns. The tunnel's id. An error here stops the tunnel."""
        ...

    async def closed(self, tunnel: str, report: TunnelReport) -> None:
        """Write down how it ended."""
        ...

    async def refused(self, session: str, destination: str, reason: str) -> None:
        """Write down that one was refused, the first of its kind at once and others with a count. The destination is the
        agent's text, bounded.
        """
        ...
