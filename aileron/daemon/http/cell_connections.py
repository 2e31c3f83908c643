"""Summarizes, from the record, the hosts that a cell's agent reached or was refused, with counts and bytes.

Runs in the daemon, when a person views a session. The name of a refused destination is text from the agent, whose length was
limited when it was recorded. Only the newest MAX_EVENTS events of a session are read.

Source: docs/reference/audit-events.md. Not here: the display (cli/).
"""

from __future__ import annotations

from typing import Final

from aileron.api.sessions import CellConnections, HostReached, HostRefused
from aileron.audit.events import TunnelClosed, TunnelOpened, TunnelRefused
from aileron.ledger import EventFilter, Snapshot
from aileron.ledger.recorded import tag_of
from aileron.model.json_value import JSONObject
from aileron.model.names import HostPort

__all__ = ["MAX_EVENTS", "MAX_HOSTS", "cell_connections"]

MAX_EVENTS: Final = 20_000
"""Maximum number of events of a session that are read. They describe 10,000 connections, and are read in a fifth of a second."""
MAX_HOSTS: Final = 20
"""Maximum number of reached hosts, and of refused hosts, in a summary: as many as a person reads. The audit trail has all."""
_OPENED, _CLOSED, _REFUSED = tag_of(TunnelOpened), tag_of(TunnelClosed), tag_of(TunnelRefused)


def cell_connections(look: Snapshot, session: str) -> CellConnections:
    """Summarize the connections of one session's cell from its events in the snapshot `look`. Reached hosts are sorted by
    their bytes, refused hosts by how often they were refused; the highest number comes first.
    """
    ended: set[str] = set()
    reached: dict[str, HostReached] = {}
    refused: dict[tuple[str, str], int] = {}
    rows = 0
    before: int | None = None
    while rows < MAX_EVENTS:
        page = look.events(EventFilter(session=session, before=before, limit=MAX_EVENTS - rows))
        if not page:
            break
        for row in page:
            match row.facts.get("type"):
                case kind if kind in (_OPENED, _CLOSED):
                    _add(reached, ended, row.facts)
                case kind if kind == _REFUSED:
                    why = str(row.facts.get("destination")), str(row.facts.get("reason"))
                    refused[why] = refused.get(why, 0) + _number(row.facts, "count")
        rows += len(page)
        before = page[-1].seq
    by_bytes = sorted(
        reached.values(), key=lambda totals: (-totals.bytes_up - totals.bytes_down, -totals.connections, totals.host)
    )
    by_count = sorted(refused.items(), key=lambda refusal: (-refusal[1], refusal[0]))
    return CellConnections(
        reached=by_bytes[:MAX_HOSTS],
        reached_more=max(0, len(by_bytes) - MAX_HOSTS),
        refused=[HostRefused(host=host, reason=reason, count=count) for (host, reason), count in by_count[:MAX_HOSTS]],
        refused_more=max(0, len(by_count) - MAX_HOSTS),
        is_whole=rows < MAX_EVENTS,
    )


def _add(reached: dict[str, HostReached], ended: set[str], facts: JSONObject) -> None:
    """Add one event of a connection (`facts`) to the totals of its host in `reached`. Events come newest first, so the end
    of a connection comes before its beginning: `ended` collects the ids of the connections whose end was added.
    """
    tunnel, host = str(facts.get("tunnel")), str(HostPort(str(facts.get("host")), _number(facts, "port")))
    totals = reached.setdefault(host, HostReached(host=host, connections=0, not_ended=0, bytes_up=0, bytes_down=0))
    if facts["type"] == _CLOSED:
        ended.add(tunnel)
        up, down = _number(facts, "bytes_up"), _number(facts, "bytes_down")
        totals.connections, totals.bytes_up, totals.bytes_down = (
            totals.connections + 1,
            totals.bytes_up + up,
            totals.bytes_down + down,
        )
    elif tunnel not in ended:
        totals.connections, totals.not_ended = totals.connections + 1, totals.not_ended + 1


def _number(facts: JSONObject, name: str) -> int:
    """Return the number in the event's field `name`, or 0 if the field has no number. No daemon writes such an event,
    and the number is only displayed.
    """
    found = facts.get(name)
    return found if isinstance(found, int) else 0
