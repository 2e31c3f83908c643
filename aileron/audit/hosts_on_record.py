"""The hosts that agents in cells requested, and those that a person allowed, according to the record.

Runs in the daemon when it starts. No table stores them; they are computed from the events. This module only reads.

Source: docs/reference/audit-events.md, docs/adr/0065-questions-about-hosts.md. Not here: how a question was decided
(the row of its approval), whether a decision is valid.
"""

from __future__ import annotations

from typing import NamedTuple

from aileron.audit.events import HostAllowed, HostAsked
from aileron.ledger import Recorded, Snapshot
from aileron.model.names import HostPort

__all__ = ["AskedHost", "hosts_on_record"]


class AskedHost(NamedTuple):
    """The newest question about one host in one session.

    `is_allowed` is true if the host was approved and the approval took effect.
    """

    approval: str
    is_allowed: bool


def hosts_on_record(look: Snapshot) -> dict[str, dict[HostPort, AskedHost]]:
    """Return the newest question about each host, by session and host. Raises AileronError(hash_mismatch) if a row was
    altered.
    """
    every: list[Recorded[HostAsked] | Recorded[HostAllowed]] = [
        *look.all_of(HostAsked, 0),
        *look.all_of(HostAllowed, 0),
    ]
    found: dict[str, dict[HostPort, AskedHost]] = {}
    for row in sorted(every, key=lambda row: row.seq):
        event = row.checked()
        asked = AskedHost(event.approval, isinstance(event, HostAllowed))
        found.setdefault(event.session, {})[HostPort(event.host, event.port)] = asked
    return found
