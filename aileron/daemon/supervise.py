"""The daemon's process: its state before the first request, and how it starts and stops.

The daemon is one process per user and home. It holds the vault's key while the vault is unlocked, and is not dumpable, so that
another process of the user cannot attach to it and read the key (prctl(2), PR_SET_DUMPABLE).

Order: begin.py → ports → ledger → template → recovery (runs that the last daemon left unfinished become `unknown`) → sockets →
`ready` → the rooms, with the first connection (rooms.py). Each module that is imported here delays the start of the
daemon.

Rules
- Every problem that can keep a daemon from starting is detected before `ready`: settings, ports, certificates, the jail, the
  ledger.
- If the rooms cannot be built after `ready`, every waiting client gets the reason, and the daemon ends.
- Imports after `ready` come from the installation that was started, or they are refused (installation.py).

Source: docs/adr/0072-rooms-imported-when-first-used.md. Not here: the rooms (rooms.py).
"""

from __future__ import annotations

import functools
import gc
import logging
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

import anyio
import msgspec
from anyio.abc import TaskStatus

from aileron import __version__, files
from aileron.audit.log import Audit
from aileron.config import Settings, keep_port
from aileron.daemon.http.ports import listen_on, listen_on_loopback
from aileron.daemon.rendezvous import HomeListeners, listen_in, refuse_all
from aileron.executor.jails import Jails
from aileron.home import Home
from aileron.ingress.certificate import certificate_names, tls_context
from aileron.ledger.sqlite import Ledger

if TYPE_CHECKING:
    from aileron.daemon.rooms import Rooms

__all__ = ["supervise"]

BUILD_AFTER_S: Final = 5.0
"""Seconds after `ready` until the daemon's services (rooms.py) are built even if no client connects: sessions must end, and
settings must be checked, without any request. The client that started the daemon normally connects long before.
"""
_log = logging.getLogger(__name__)


def supervise(
    home: Home,
    wanted: Settings,
    settings: Settings,
    read: files.Stamp | None,
    jails: Jails,
    tell: Callable[[str], None],
) -> None:
    """Run the daemon until it is stopped. Call `tell` with `ready` once clients can connect. Raises AileronError, JailUnavailable
    or OSError if the daemon cannot start.

    `wanted` are the settings of config.toml, which has the stamp `read`; `settings` are the settings in force.
    """
    anyio.run(_Daemon(home, wanted, settings, read, jails).run, tell)


class _Daemon:
    """The daemon's process, from reading its settings until its stop. An instance is used once."""

    def __init__(
        self, home: Home, wanted: Settings, settings: Settings, read: files.Stamp | None, jails: Jails
    ) -> None:
        self._home = home
        self._started_at = time.time()
        self._read = read
        self._jails = jails
        self._port, self._loopback = listen_on_loopback(wanted.daemon_port)
        if wanted.daemon_port is None:
            keep_port(home.config, self._port)
        self._wanted = msgspec.structs.replace(wanted, daemon_port=self._port)
        self._settings = msgspec.structs.replace(settings, daemon_port=self._port)
        self._elsewhere = _elsewhere(self._settings)

    async def run(self, tell: Callable[[str], None]) -> None:
        with Ledger.open(self._home.ledger, self._home.path, __version__) as ledger:
            audit = Audit(ledger)
            self._jails.wait_until_ready()  # before anything is recorded: without a jail there is no daemon
            await audit.recover()
            await audit.daemon_started(__version__, self._jails.layers, self._settings.digest())
            sockets = listen_in(self._home)
            failed = await self._serve(audit, ledger, anyio.Event(), sockets, tell)
        if failed is not None:
            refuse_all(sockets, failed)  # at the very end: a later client can start another daemon
            raise failed
        _log.info("stopped")

    async def _serve(
        self,
        audit: Audit,
        ledger: Ledger,
        stopping: anyio.Event,
        sockets: HomeListeners,
        tell: Callable[[str], None],
    ) -> Exception | None:
        """Report ready, build the services (rooms.py) once there is a client, and serve. Return the error if they could not be
        built, otherwise None.
        """
        async with anyio.create_task_group() as background:
            background.start_soon(self._jails.serve)
            await background.start(_stop_on_signal, stopping)
            # Listening before "ready": a client that connects in between waits in the backlog.
            _log.info("ready: version %s, pid %s, layers %s", __version__, os.getpid(), " ".join(self._jails.layers))
            tell("ready")
            try:
                await _somebody(stopping, [*sockets, *self._loopback, *self._listening_elsewhere()])
                rooms = None if stopping.is_set() else await self._built(audit, ledger, stopping, sockets)
            except Exception as error:  # noqa: BLE001 - told to every waiting client, and raised
                _log.error("nothing can be answered: %s", error)
                background.cancel_scope.cancel()
                return error
            gc.freeze()  # imported modules stay, and are not searched again: 0.1 s each time
            gc.enable()
            if rooms is not None:
                await rooms.serve()
            background.cancel_scope.cancel()
        await audit.daemon_stopped(__version__)
        return None

    async def _built(self, audit: Audit, ledger: Ledger, stopping: anyio.Event, sockets: HomeListeners) -> Rooms:
        """Build the daemon's services (rooms.py). Their hundred modules, and the HTTP server, are imported only now."""
        from aileron.daemon.rooms import Rooms, Start

        rooms = Rooms(
            Start(
                home=self._home,
                started_at=self._started_at,
                settings=self._settings,
                wanted=self._wanted,
                read=self._read,
                port=self._port,
                ledger=ledger,
                audit=audit,
                jails=self._jails,
                stopping=stopping,
                sockets=sockets,
                loopback=self._loopback,
                elsewhere=self._elsewhere,
            )
        )
        await rooms.build()
        return rooms

    def _listening_elsewhere(self) -> list[socket.socket]:
        return [] if self._elsewhere is None else [self._elsewhere[0]]


async def _somebody(stopping: anyio.Event, listeners: Sequence[socket.socket]) -> None:
    """Wait until a client connects, the daemon is told to stop, or BUILD_AFTER_S seconds have passed."""
    with anyio.move_on_after(BUILD_AFTER_S):
        async with anyio.create_task_group() as waiting:

            async def wait(for_one: Callable[[], Awaitable[None]]) -> None:
                await for_one()
                waiting.cancel_scope.cancel()

            waiting.start_soon(wait, stopping.wait)
            for listener in listeners:
                waiting.start_soon(wait, functools.partial(anyio.wait_readable, listener))


async def _stop_on_signal(stopping: anyio.Event, *, task_status: TaskStatus[None]) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for number in signals:
            _log.info("told to stop by %s", signal.Signals(number).name)
            stopping.set()


def _elsewhere(settings: Settings) -> tuple[socket.socket, list[str]] | None:
    """Return the listening socket for `daemon.listen` and the host names that clients can use for it; None without that setting
    or its certificate. The ingress process reads the certificate itself; here it is only checked before anything is served.
    """
    address, pem, key = settings.daemon_listen, settings.daemon_certificate_pem, settings.daemon_certificate_key
    if address is None or pem is None or key is None:
        return None
    tls_context(pem, key)
    names = [str(address), *(f"{name}:{address.port}" for name in certificate_names(pem))]
    return listen_on(address), names
