"""The interface to the ledger that tunnels need, as a Protocol, and the values that are recorded: openings, ends and refusals.

The daemon passes in the journal. A tunnel is recorded before the first packet to the host, and again when it is over.
After a crash the ledger says that the tunnel was open, but not how many bytes it carried.

Source: docs/reference/audit-events.md. Not here: how a row becomes durable (audit/log.py).
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from aileron.model.names import HostPort

__all__ = ["TunnelIntent", "TunnelJournal", "TunnelReport"]


class TunnelIntent(msgspec.Struct, frozen=True):
    """A tunnel that is about to be connected. `may_hide`: the ClientHello has an extension that can hold another name."""

    session: str
    destination: HostPort
    may_hide: bool


class TunnelReport(msgspec.Struct, frozen=True):
    """The end of a tunnel. The byte counts are the bytes of TLS in each direction. `address` is None if no connection
    was made.
    """

    session: str
    destination: HostPort
    address: str | None
    bytes_up: int
    bytes_down: int
    ms: float
    reason: str


class TunnelJournal(Protocol):
    """Interface for recording tunnels out of cells in the ledger."""

    async def opened(self, intent: TunnelIntent) -> str:
        """Record that a tunnel opens, and return its id. The record is durable on return; an error stops the tunnel."""
        ...

    async def closed(self, tunnel: str, report: TunnelReport) -> None:
        """Record how a tunnel ended."""
        ...

    async def refused(self, session: str, destination: str, reason: str) -> None:
        """Record that a tunnel was refused. The first refusal of its kind is recorded at once; repetitions are counted
        and recorded later as one event. The destination is the agent's text, truncated.
        """
        ...
