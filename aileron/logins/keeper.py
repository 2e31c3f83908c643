"""The daemon's end of logins: starts the process that forks logins, sends a login its order, and receives its messages.

Runs in the daemon, which parses nothing here but typed messages. Two processes, each started with its first login: `ssh` needs
a library that takes a third of a second and 60 MiB to import, and only users of `ssh` should pay for that.

    idle ──(a login)──► started ──(it ends, or nobody logs in for UNUSED_S)──► idle

Rules
- An order is sent over a socket that is made for this order, together with the two connected sockets. Only the forked process
  reads the order.
- Nothing is sent before the process has hidden itself, because other processes may hold the descriptors that it is started
  with (isolated/process.py).
- A process that ends is started again with the next login; the logins of the old process have ended with it. So the daemon
  ends no process that has a login.

Source: docs/adr/0057-logins.md. Not here: which step may log in where (egress), the other end (process.py).
"""

from __future__ import annotations

import array
import contextlib
import logging
import os
import socket
import subprocess
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import anyio

from aileron.isolated.start import control_of, ended, execute_program, received, send, started
from aileron.logins.login_messages import (
    MAX_NOTE_BYTES,
    READY,
    Failed,
    FromLogin,
    MessageError,
    Noted,
    Order,
    Over,
    decode_from_login,
    encode,
)
from aileron.model.login import PROTOCOLS, LoginProtocol, protocol_facts

__all__ = ["Begun", "Keeper"]

_BUFFER_BYTES: Final = 1 << 20
"""Size in bytes of the socket buffer between a login and the daemon, in each direction: room for four pieces of the
stream, so that one side can continue while the other is busy. The kernel grants less if net.core.wmem_max is lower.
"""
START_S: Final = 20.0
"""Maximum seconds for a process that forks logins to import its modules and to confine itself, which takes half a
second on an idle machine.
"""
UNUSED_S: Final = 600.0
"""Seconds without a login after which a process that forks logins ends. Ending the process frees 20 MB, or 60 MB with
`ssh`; the next login then waits half a second for a new process.

An agent that a person works with checks mail or queries a database more often than every ten minutes.
"""
_USUAL: Final = tuple(protocol for protocol in PROTOCOLS if not protocol_facts(protocol).is_apart)
_SSH: Final = tuple(protocol for protocol in PROTOCOLS if protocol_facts(protocol).is_apart)
_log = logging.getLogger(__name__)


class Begun:
    """A login that was forked and waits for its order. `stream` is the daemon's end of the login's stream; `close` ends
    the login.

    The daemon also keeps a copy of the service's socket, to end the login: a login that waits for a service notices
    nothing else.
    """

    def __init__(self, control: socket.socket, closed: Callable[[], None]) -> None:
        """Take `control`, the socket to the login's process, and create the login's stream. `closed` is called exactly
        once, when the login has ended.
        """
        self._control: Final = control
        self._closed: Callable[[], None] | None = closed
        self.stream, self._far = socket.socketpair()
        for end in (self.stream, self._far):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        self.stream.setblocking(False)
        self._service: socket.socket | None = None

    async def begin(self, order: Order, service: socket.socket) -> None:
        """Send the login `order`, to log in over `service`, a connected socket. The socket then belongs to the login,
        and is closed here; the daemon keeps a copy until the login ends. Raises OSError if the order cannot be sent.
        """
        with service, self._far:
            self._service = service.dup()
            await _send_with(self._control, array.array("i", [service.fileno(), self._far.fileno()]), encode(order))

    async def hear(self) -> FromLogin | None:
        """Return the login's next message, or None if the login has ended without another message, or sent an invalid
        one.
        """
        said: FromLogin | None = None
        try:
            packet = await received(self._control, MAX_NOTE_BYTES)
            said = decode_from_login(packet) if packet else None
        except (OSError, MessageError) as error:
            _log.error("a login ended, or said what is none of its messages: %s", error)
        if said is None or isinstance(said, Failed | Over):
            self._let_go()
        return said

    async def noted(self) -> None:
        """Tell the login that its latest note (a mail message, its result, or effects) is on disk."""
        with contextlib.suppress(OSError):  # the login has ended, which `hear` reports
            await send(self._control, encode(Noted()))

    def close(self) -> None:
        """End the login, if it has not ended yet."""
        if self._service is not None:
            with contextlib.suppress(OSError):  # the login has already ended
                self._service.shutdown(socket.SHUT_RDWR)
        self._let_go()
        self.stream.close()
        self._far.close()
        self._control.close()
        closed, self._closed = self._closed, None
        if closed is not None:
            closed()

    def _let_go(self) -> None:
        """Close the daemon's copy of the service's socket, so that the connection ends when the login ends by itself."""
        if self._service is not None:
            self._service.close()
            self._service = None


class Keeper:
    """Keeper of the processes that fork logins, through which the daemon starts every login. Each daemon has one.

    `ca_pem` has certificate authorities that are trusted in addition to the system's. `clock` returns seconds since an
    arbitrary moment, and decides when an unused process ends.
    """

    def __init__(self, ca_pem: str | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._usual: Final = _Process(_USUAL, ca_pem, clock)
        self._ssh: Final = _Process(_SSH, ca_pem, clock)

    async def prepare(self, protocol: LoginProtocol) -> Begun:
        """Return a login that is being forked and will wait for its order. Raises OSError if its process cannot be started or
        reached.
        """
        return await (self._ssh if protocol in _SSH else self._usual).prepare()

    async def start(self, protocols: frozenset[LoginProtocol]) -> None:
        """Start the processes for these protocols in advance, before a login is needed. Raises OSError if a process cannot be
        started.
        """
        for process in (self._usual, self._ssh):
            if process.protocols & protocols:
                await process.control()

    async def serve(self) -> None:
        """Check periodically which processes that fork logins are unused, and end these. Returns only when cancelled."""
        while True:
            await anyio.sleep(UNUSED_S)
            await self.end_unused()

    async def end_unused(self) -> None:
        """End the processes that have had no login for UNUSED_S. The next login starts a new process."""
        for process in (self._usual, self._ssh):
            await process.end_if_unused()

    async def aclose(self) -> None:
        """End both processes that fork logins, which also ends every login."""
        for process in (self._usual, self._ssh):
            await process.aclose()


class _Process:
    """The handle of a process that forks logins. The process is started when a login needs it."""

    def __init__(self, protocols: tuple[LoginProtocol, ...], ca_pem: str | None, clock: Callable[[], float]) -> None:
        self.protocols: Final = frozenset(protocols)
        self._words: Final = protocols
        self._ca_pem: Final = ca_pem
        self._clock: Final = clock
        self._logins = 0
        self._used_at = clock()
        self._starting: anyio.Lock | None = None
        self._running: tuple[subprocess.Popen[bytes], socket.socket] | None = None

    async def prepare(self) -> Begun:
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                begun = Begun(control, self._over)
            except OSError:
                control.close()
                raise
            self._logins += 1
            try:
                await self._pass(array.array("i", [theirs.fileno()]))
            except BaseException:
                begun.close()
                raise
        return begun

    def _over(self) -> None:
        self._logins -= 1
        self._used_at = self._clock()

    async def end_if_unused(self) -> None:
        """End the process that forks logins if it had no login for UNUSED_S.

        A login that is requested at the same time either keeps the process running, or waits for a new process.
        """
        if self._starting is None:
            return
        async with self._starting:
            if not self._logins and self._used_at <= self._clock() - UNUSED_S:
                await self.aclose()

    async def _pass(self, passed: array.array[int]) -> None:
        """Pass the descriptors in `passed` to the process that forks logins. If it has just ended, start a new one and
        pass them to that.
        """
        control = await self.control()
        try:
            await _send_with(control, passed)
        except OSError:
            if self._running is not None and self._running[1] is control:  # no other caller has noticed yet
                await self.aclose()
            await _send_with(await self.control(), passed)

    async def control(self) -> socket.socket:
        """Start the process that forks logins if it is not running, and return its control socket. Raises OSError if
        the process cannot be started.
        """
        if self._starting is None:
            self._starting = anyio.Lock()
        async with self._starting:
            if self._running is not None and self._running[0].poll() is not None:
                await self.aclose()
            if self._running is None:
                self._running = await self._start()
                self._used_at = self._clock()
            return self._running[1]

    async def _start(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        ours, process = started(partial(_execute, words=self._words))
        try:
            with ours:
                control = await control_of(process.pid, ours)
            try:
                await self._prepare(control)
            except BaseException:
                control.close()
                raise
        except BaseException:
            with anyio.CancelScope(shield=True):
                await ended(process)
            raise
        return process, control

    async def _prepare(self, control: socket.socket) -> None:
        authorities = [] if self._ca_pem is None else [_file_with(self._ca_pem)]
        try:
            await _send_with(control, array.array("i", authorities))
        finally:
            for descriptor in authorities:
                os.close(descriptor)
        with anyio.move_on_after(START_S):
            if await received(control, len(READY)) == READY:
                return
        raise OSError("the process that logs in could not be started; the daemon's log says why")

    async def aclose(self) -> None:
        """End the process that forks logins, if it is running."""
        running, self._running = self._running, None
        if running is not None:
            running[1].close()
            with anyio.CancelScope(shield=True):
                await ended(running[0])


def _execute(control: int, words: tuple[str, ...]) -> subprocess.Popen[bytes]:
    return execute_program("aileron.logins", control, *words)


async def _send_with(control: socket.socket, passed: array.array[int], packet: bytes = b"x") -> None:
    """Send one packet together with the descriptors in `passed`."""
    while True:
        try:
            control.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)], socket.MSG_DONTWAIT)
        except BlockingIOError:
            await anyio.wait_writable(control)
        else:
            return


def _file_with(text: str) -> int:
    """Return a descriptor of a memory file that contains this text, positioned at the start."""
    descriptor = os.memfd_create("authorities", os.MFD_CLOEXEC)
    # Comments beside a certificate may be non-ASCII, which Python rejects
    rest = memoryview(text.encode("ascii", "ignore"))
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
