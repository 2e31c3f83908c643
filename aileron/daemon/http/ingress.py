"""The daemon's end of ingress. It starts the ingress process, gives it the listeners, and answers the requests that ingress
passes on.

Runs in the daemon, which parses nothing here but typed messages (ingress/daemon_messages.py). The listeners stay open in the
daemon, too. While no ingress runs, connections wait in the listeners' backlog, and no other program can take the port.

    idle ──(a client connects)──► started ──(it ends)──► pause ──► idle
      └────────(it was not used)─────┤
                                     └──(the daemon stops)──► told to stop, killed after GRACE_S

Rules
- No ingress is started before a client connects, and it ends by itself when no client connects for long, so an unused port
  costs nothing.
- An ingress that ends is started again, after a pause that grows up to PAUSE_MOST_S if it ends soon.
- MAX_EXCHANGES exchanges are handled at once; further ones are closed unanswered. At most MAX_OF_STRANGERS of them are from
  clients that ingress marks as unknown; further unknown clients get a response with status 429 (busy).
- No message is sent before ingress has made itself inaccessible to other processes, which may share the socket that it is
  started with (isolated/process.py).
- The two processes share the file descriptions of the sockets between them, including the flag O_NONBLOCK, which ingress may
  clear (open(2), "open file description"). So each call on such a socket uses MSG_DONTWAIT. The daemon accepts no connections
  here.
- An exception of an application ends its exchange, and is logged.
- The daemon derives a request's TLS state and address from the listener, and never from a message of ingress.

Source: docs/adr/0031-ingress.md; the ASGI specification 3.0. Not here: the other end (ingress/forward.py), authorization
(listeners.py).
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import logging
import socket
import subprocess
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec
from starlette.types import ASGIApp

from aileron.ingress.daemon_messages import (
    Address,
    Known,
    Listening,
    MessageError,
    Request,
    Start,
    Stop,
    encode,
)
from aileron.ingress.exchange import Exchange, scope_of, unread_thrown_away
from aileron.ingress.known import SHOWS_SESSION, KnownCallers
from aileron.ingress.refusals import refuse_stranger
from aileron.isolated.packets import FULL_PAUSE_S, are_free, packet_socket, received_with
from aileron.isolated.start import control_of, ended, execute_program, send, started

__all__ = ["Ingress", "TcpService"]

MAX_EXCHANGES: Final = 512
"""Maximum number of exchanges (a request and its response) at once: as many as a listener has connections
(ingress/connection_places.py).
"""
MAX_OF_STRANGERS: Final = MAX_EXCHANGES // 2
"""Maximum number of exchanges of unknown clients: as many as ingress admits at once (admission.MAX_UNDER_WAY). Exchanges of
clients that have disconnected also count until they end.
"""
GRACE_S: Final = 6.0
"""Seconds to wait for ingress to end when the daemon stops. Ingress gives responses in progress five seconds, and then ends."""
PAUSE_S, PAUSE_MOST_S = 0.2, 10.0
_WELL_S: Final = 60.0
"""Seconds that an ingress process must have run to reset the pause before the next start to the shortest pause. If
ingress ends earlier, the pause doubles.
"""
_AT_ONCE: Final = 16
"""Maximum number of exchanges taken in one turn of the event loop, so that other tasks get their turn."""
_ENVIRONMENT: Final = {
    # The memory of a connection goes back to the kernel when it ends, mallopt(3).
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "16384",
    "PYTHONMALLOC": "malloc",
    "MALLOC_TRIM_THRESHOLD_": "131072",
}
_log = logging.getLogger(__name__)


class TcpService(msgspec.Struct, frozen=True):
    """A TCP address of the daemon and the application that serves it, with one listener for each address family."""

    listeners: list[socket.socket]
    app: ASGIApp
    tls: bool = False

    def address_for(self, client: Address | None) -> Address | None:
        """Return the address of the listener that a client with this address reaches; None if no listener has the client's
        address family.
        """
        for listener in self.listeners:
            address: Address = listener.getsockname()[:2]
            if client is not None and _is_ipv6(client) == _is_ipv6(address):
                return address
        return None


@dataclass
class Ingress:
    """The daemon's end of ingress. One instance per daemon. `models` are the gateway's paths. The certificate and the path of
    its key are for TLS.
    """

    doors: Mapping[str, TcpService]
    known: KnownCallers
    models: Sequence[str]
    certificate_pem: str | None = None
    certificate_key: str | None = None
    _exchanges: int = field(default=0, init=False)
    _of_strangers: int = field(default=0, init=False)

    async def serve(self, stopped: Callable[[], Awaitable[None]]) -> None:
        """Start ingress when clients connect, and answer the requests that it passes on, until `stopped` returns. Then wait
        until requests in progress are answered, for at most GRACE_S seconds.
        """
        is_over = anyio.Event()

        async def wait_stop() -> None:
            await stopped()
            is_over.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_stop)
            await self._keep_running(is_over)
            tasks.cancel_scope.cancel()
        for listener in self._listeners():
            listener.close()

    async def _keep_running(self, is_over: anyio.Event) -> None:
        pause_s = PAUSE_S
        while True:
            await _first_of(is_over.wait, *(partial(anyio.wait_readable, listener) for listener in self._listeners()))
            if is_over.is_set():
                return
            began = anyio.current_time()
            was_unused = await self._run_one(is_over)
            if is_over.is_set():
                return
            if was_unused:
                pause_s = PAUSE_S
                continue
            pause_s = PAUSE_S if anyio.current_time() - began > _WELL_S else min(PAUSE_MOST_S, 2 * pause_s)
            _log.warning(
                "ingress ended: it is started again with the next connection, in %.1f s at the earliest", pause_s
            )
            with anyio.move_on_after(pause_s):
                await is_over.wait()

    def _listeners(self) -> list[socket.socket]:
        """Return the listening sockets of all services in the order in which they are passed to ingress."""
        return [listener for door in self.doors.values() for listener in door.listeners]

    async def _run_one(self, is_over: anyio.Event) -> bool:
        """Run one ingress process from its start to its end. It ends when the daemon stops or this call is cancelled. Return
        True if it ended by itself because it was not used.
        """
        try:
            ours, process = started(execute_process)
        except (
            OSError
        ) as error:  # no descriptor, no process: it is tried again, and the daemon has other work meanwhile
            _log.error("ingress could not be started: %s", error.strerror)
            return False
        with ours:
            try:
                with await control_of(process.pid, ours) as control:
                    ours.close()
                    self._start(control)
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(self._tell, control, is_over)
                        tasks.start_soon(_end_after, is_over, tasks.cancel_scope)
                        await self._take(control, tasks)
                        tasks.cancel_scope.cancel()
            except OSError as error:  # it ended before it got its start message
                _log.warning("ingress could not be spoken to: %s", error.strerror)
            finally:
                self.known.subscribe(None)
                with anyio.CancelScope(shield=True):
                    await ended(process)
        return process.returncode == 0

    def _start(self, ours: socket.socket) -> None:
        doors = [Listening(name, len(door.listeners), door.tls) for name, door in self.doors.items()]
        start = Start(doors, list(self.models), self.certificate_pem, self.certificate_key)
        listeners = array.array("i", [listener.fileno() for listener in self._listeners()])
        ours.sendmsg([encode(start)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, listeners)], socket.MSG_DONTWAIT)

    async def _tell(self, ours: socket.socket, is_over: anyio.Event) -> None:
        """Send messages to ingress over the control socket `ours`: the known callers, now and after each change, and
        the request to stop, once `is_over` is set. It is no error here if ingress has ended.
        """
        changed = asyncio.Event()
        self.known.subscribe(changed.set)

        async def tell() -> None:
            with contextlib.suppress(OSError):  # ingress has gone, which the other task notices
                while True:
                    changed.clear()
                    await send(ours, encode(Known(self.known.all())))
                    await changed.wait()

        await _first_of(is_over.wait, tell)
        with contextlib.suppress(OSError):
            await send(ours, encode(Stop()))

    async def _take(self, ours: socket.socket, tasks: anyio.abc.TaskGroup) -> None:
        """Receive exchanges from ingress over the control socket `ours`, and answer each in its own task, until ingress has
        ended.
        """
        while True:
            await anyio.wait_readable(ours)
            for _ in range(_AT_ONCE):
                if not are_free(1, ours.fileno()):  # the exchange waits in the socket
                    _log.warning("requests over TCP wait: out of system resource")
                    await anyio.sleep(FULL_PAUSE_S)
                    break
                try:
                    packet, descriptors, _ = received_with(ours, 16, 1, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    break
                except OSError:
                    return
                if not packet:
                    return
                if not descriptors:
                    _log.warning("ingress passed nothing, or no descriptor was free for what it passed")
                for descriptor in descriptors:
                    if (exchange := _maybe_exchange(descriptor)) is not None:
                        self._begin(exchange, tasks)

    def _begin(self, exchange: socket.socket, tasks: anyio.abc.TaskGroup) -> None:
        if self._exchanges >= MAX_EXCHANGES:
            exchange.close()
            return
        self._exchanges += 1
        tasks.start_soon(self._serve_one, exchange)

    async def _serve_one(self, exchange: socket.socket) -> None:
        try:
            with exchange, unread_thrown_away(exchange):
                await self._answer(Exchange(exchange))
        except MessageError as error:
            _log.error("ingress sent what it cannot send: %s", error)
        except Exception:  # noqa: BLE001 - an application's exception ends only its request
            _log.exception("a request could not be answered")
        finally:
            self._exchanges -= 1

    async def _answer(self, exchange: Exchange) -> None:
        request = await exchange.head()
        door = None if request is None else self.doors.get(request.door)
        if request is None:
            return  # the client was gone before its request was here
        if door is None:
            raise MessageError("a door that there is not")
        with self._counted(request) as has_room:
            if has_room:
                await door.app(_scope_of(request, door), exchange.receive, exchange.send)
            else:
                await refuse_stranger(exchange.send)

    @contextlib.contextmanager
    def _counted(self, request: Request) -> Iterator[bool]:
        """Yield whether the request can be handled now. A request of a known client always can. Requests of unknown clients are
        counted during the block, and MAX_OF_STRANGERS of them can be handled at once.
        """
        if request.is_known:
            yield True
            return
        self._of_strangers += 1
        try:
            yield self._of_strangers <= MAX_OF_STRANGERS
        finally:
            self._of_strangers -= 1


async def _end_after(is_over: anyio.Event, scope: anyio.CancelScope) -> None:
    """Cancel the scope GRACE_S seconds after the daemon was told to stop (`is_over`), even if ingress still runs."""
    await is_over.wait()
    await anyio.sleep(GRACE_S)
    scope.cancel()


def _is_ipv6(address: Address) -> bool:
    return ":" in address[0]


def _scope_of(request: Request, door: TcpService) -> dict[str, object]:
    return {
        **scope_of(request),
        "scheme": "https" if door.tls else "http",
        "server": door.address_for(request.client),
        "state": {SHOWS_SESSION: request.is_known},
    }


def _maybe_exchange(descriptor: int) -> socket.socket | None:
    """Return the descriptor that ingress passed as the socket of an exchange; if it is not a socket of the expected kind,
    close it and return None.
    """
    try:
        return packet_socket(descriptor)
    except ValueError as error:
        _log.error("ingress passed %s", error)
        return None


async def _first_of(*waits: Callable[[], Awaitable[object]]) -> None:
    """Run these functions concurrently, and return as soon as one of them has returned."""

    async def wait(function: Callable[[], Awaitable[object]], scope: anyio.CancelScope) -> None:
        await function()
        scope.cancel()

    async with anyio.create_task_group() as tasks:
        for function in waits:
            tasks.start_soon(wait, function, tasks.cancel_scope)


def execute_process(control: int) -> subprocess.Popen[bytes]:
    """Start the program of ingress, which inherits `control`, its end of the control socket."""
    return execute_program("aileron.ingress", control, environment=_ENVIRONMENT)
