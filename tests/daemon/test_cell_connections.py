"""A session shows where its cell's agent connected: counted from a ledger, within bounds."""

from __future__ import annotations

import pytest

from aileron.audit.events import TunnelClosed, TunnelOpened, TunnelRefused, facts_of
from aileron.daemon.http import cell_connections as module
from aileron.daemon.http.cell_connections import MAX_HOSTS, cell_connections
from aileron.ledger import Ledger

pytestmark = pytest.mark.anyio
SESSION = "ses-1"


def opened(tunnel: str, host: str = "a.test", session: str = SESSION) -> TunnelOpened:
    """Return the event that a connection began."""
    return TunnelOpened(session=session, tunnel=tunnel, host=host, port=443)


def closed(tunnel: str, up: int, down: int, host: str = "a.test", session: str = SESSION) -> TunnelClosed:
    """Return the event that a connection ended."""
    return TunnelClosed(
        session=session, tunnel=tunnel, host=host, port=443, ms=1, reason="closed", bytes_up=up, bytes_down=down
    )


def refused(host: str, count: int, session: str = SESSION) -> TunnelRefused:
    """Return the event that connections to a host were refused `count` times."""
    return TunnelRefused(session=session, destination=host, reason="host_not_listed", count=count, since_us=1)


async def written(ledger: Ledger, *events: TunnelOpened | TunnelClosed | TunnelRefused) -> None:
    """Write the events to the ledger, in this order."""
    await ledger.commit(lambda tx: [tx.append(facts_of(event)) for event in events])


async def test_a_sessions_connections_and_bytes_are_summed_by_host(ledger: Ledger) -> None:
    """A connection without an end is counted; connections of another session are not."""
    await written(
        ledger,
        opened("1"),
        opened("2"),
        closed("1", 10, 100),
        opened("3", "b.test"),
        closed("3", 1000, 1, "b.test"),
        opened("4"),
        closed("4", 1, 2),
        opened("5", session="ses-2"),
        closed("5", 7, 7, session="ses-2"),
        refused("c.test:443", 1),
        refused("c.test:443", 4),
        refused("d.test:443", 9, "ses-2"),
    )
    found = await ledger.read(lambda look: cell_connections(look, SESSION))
    assert [
        (totals.host, totals.connections, totals.not_ended, totals.bytes_up, totals.bytes_down)
        for totals in found.reached
    ] == [
        ("b.test:443", 1, 0, 1000, 1),
        ("a.test:443", 3, 1, 11, 102),
    ]
    assert [(refusal.host, refusal.reason, refusal.count) for refusal in found.refused] == [
        ("c.test:443", "host_not_listed", 5)
    ]
    assert (found.reached_more, found.refused_more, found.is_whole) == (0, 0, True)


async def test_the_list_of_a_cells_hosts_is_bounded(ledger: Ledger) -> None:
    """The hosts with the most traffic or refusals come first, and the result says how many are left out."""
    await written(ledger, *(closed(str(n), n, 0, f"h{n}.test") for n in range(MAX_HOSTS + 3)))
    await written(ledger, *(refused(f"h{n}.test:443", n + 1) for n in range(MAX_HOSTS + 2)))
    found = await ledger.read(lambda look: cell_connections(look, SESSION))
    assert (len(found.reached), found.reached_more) == (MAX_HOSTS, 3)
    assert (len(found.refused), found.refused_more) == (MAX_HOSTS, 2)
    assert found.reached[0].host == f"h{MAX_HOSTS + 2}.test:443"
    assert found.refused[0].host == f"h{MAX_HOSTS + 1}.test:443"


async def test_only_a_sessions_newest_connection_events_are_read(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A longer session is not read to its beginning, and the result says that it is incomplete."""
    monkeypatch.setattr(module, "MAX_EVENTS", 2)
    await written(ledger, opened("1"), closed("1", 1, 1), closed("2", 1, 1))
    found = await ledger.read(lambda look: cell_connections(look, SESSION))
    assert ([totals.connections for totals in found.reached], found.is_whole) == ([2], False)
