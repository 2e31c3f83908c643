"""`run/tunnel.sock`: tunnels for outgoing connections of cells, used by the processes that manage the cells.

Runs in the daemon's event loop. A connection belongs to a cell if, according to the kernel, the process that made the
connection also opened the cell's session. There is no token that could be copied. Other processes of this user can connect too,
and get a refusal with the reason.

Rules
- The process is identified once, when its connection is accepted; its session is checked every LOOK_S for as long as the
  connection lasts.
- A connection that belongs to no cell is refused and does not count as a tunnel. At most MAX_STRANGERS connections are being
  refused at once.
- Without a free descriptor, nothing is accepted for a while (accepting.py).

Source: docs/reference/cell-egress.md; unix(7), SO_PEERCRED. Not here: the tunnels themselves (egress/tunnel/), the decision
about hosts (HostPolicy in egress/tunnel/policy.py).
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Callable
from typing import Final

import anyio

from aileron.audit import events
from aileron.audit.log import Audit
from aileron.audit.moves import new_id
from aileron.daemon.http.accepting import accepted
from aileron.daemon.http.sessions import LOCAL_SESSION, CellSession, Sessions
from aileron.egress.refusal import Reason
from aileron.egress.tunnel import TunnelIntent, TunnelReport, WayOut
from aileron.egress.tunnel.answers import refusal_answer
from aileron.egress.tunnel.relay import say_and_end
from aileron.ingress.peers import peer_of_connection
from aileron.model.failure import AileronError
from aileron.model.invocation import Scope

__all__ = ["LOOK_S", "Tunnels", "TunnelsOnRecord"]

LOOK_S: Final = 1.0
"""Seconds between two checks whether the sessions of tunnels are still open. Tunnels must end within five seconds of their
session.
"""
MAX_STRANGERS: Final = 32
_RECORD_S: Final = 2.0
"""Seconds to wait until the refusal of a caller is recorded. The caller gets the refusal even if recording takes longer."""
_ROUTE: Final = "CONNECT"
_log = logging.getLogger(__name__)


class TunnelsOnRecord:
    """Writer of tunnels' events to the ledger. Implements the interface in aileron/egress/tunnel/journal.py."""

    def __init__(self, audit: Audit, now_us: Callable[[], int]) -> None:
        self._audit = audit
        self._now_us = now_us

    async def opened(self, intent: TunnelIntent) -> str:
        """Record that a tunnel opens, and return its id. The record is on disk when this returns."""
        tunnel, to = new_id("tun", self._now_us()), intent.destination
        await self._audit.note(
            events.TunnelOpened(
                session=intent.session, tunnel=tunnel, host=to.host, port=to.port, may_hide=intent.may_hide
            )
        )
        return tunnel

    async def closed(self, tunnel: str, report: TunnelReport) -> None:
        """Record that a tunnel closed. This is written to disk together with the next event."""
        self._audit.note_end(
            events.TunnelClosed(
                session=report.session,
                tunnel=tunnel,
                host=report.destination.host,
                port=report.destination.port,
                address=report.address,
                bytes_up=report.bytes_up,
                bytes_down=report.bytes_down,
                ms=round(report.ms),
                reason=report.reason,
            )
        )

    async def refused(self, session: str, destination: str, reason: str) -> None:
        """Record that a destination was refused. When this returns, the event is on disk, or the refusal is counted and
        part of a later event.
        """
        await self._audit.tunnel_refused(session, destination, reason)


class Tunnels:
    """Server of `run/tunnel.sock`, which opens tunnels for the outgoing connections of cells. One instance per daemon."""

    def __init__(self, way_out: WayOut, sessions: Sessions, audit: Audit) -> None:
        self._way_out = way_out
        self._sessions = sessions
        self._audit = audit
        self._strangers = 0

    async def serve(self, listener: socket.socket) -> None:
        """Accept connections on the socket until cancelled."""
        with contextlib.closing(listener):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._end_with_sessions)
                while True:
                    connection = await accepted(listener, "tunnel")
                    try:
                        cell = self._cell_of(connection)
                    except OSError as error:  # no descriptor is free to read /proc: it may be a cell's
                        _log.warning("whose tunnel it is cannot be told: %s", error.strerror)
                        connection.close()
                        continue
                    if cell is not None:
                        tasks.start_soon(self._carry, connection, cell)
                    elif self._strangers < MAX_STRANGERS:
                        self._strangers += 1
                        tasks.start_soon(self._turn_away, connection)
                    else:
                        connection.close()

    def _cell_of(self, connection: socket.socket) -> CellSession | None:
        process = peer_of_connection(connection)
        return None if process is None else self._sessions.cell_of_process(process)

    async def _carry(self, connection: socket.socket, cell: CellSession) -> None:
        try:
            await self._way_out.carry(connection, cell)
        except Exception:  # noqa: BLE001 - the end of a task: one connection never ends the others
            _log.exception("a tunnel ended unexpectedly")

    async def _turn_away(self, connection: socket.socket) -> None:
        text = "only the process that started a cell reaches hosts here: aileron launch AGENT --jail"
        try:
            with contextlib.closing(connection):
                with contextlib.suppress(AileronError), anyio.move_on_after(_RECORD_S):
                    await self._audit.caller_refused(Scope.AGENT.value, _ROUTE, LOCAL_SESSION)
                await say_and_end(connection, refusal_answer(Reason.TUNNEL_CALLER.value, text))
        finally:
            self._strangers -= 1

    async def _end_with_sessions(self) -> None:
        while True:
            await anyio.sleep(LOOK_S)
            for session in self._way_out.sessions:
                try:
                    self._sessions.check_open(session)
                except AileronError:
                    self._way_out.end_session(session)
