"""Tunnels out of a cell: CONNECT for one host and port, then TLS with that name, to an address that was checked.

Runs in the daemon, once for each connection of the cell's door. It trusts neither the agent, nor the resolver, nor the
host. The caller has determined the session (daemon/http/tunnels.py).

    1 take a slot for a tunnel · 2 read the head of CONNECT (connect_head.py) · 3 ask the policy (policy.py)
    4 resolve and check every address (steps.py) · 5 send 200, read the ClientHello: its name must be the host (client_hello.py)
    6 record durably · 7 connect, and pass the ClientHello on · 8 bytes both ways, counted (relay.py) · 9 record the end

Rules
- Nothing is looked up before 3 has passed. No packet goes to the host before 6 has returned, and none at all if the
  ClientHello has another name.
- The addresses checked at 4 are dialled at 7, so a second look-up cannot give other addresses.
- Nothing is decrypted, and no credential is added. The contents of TLS are not visible: neither the Host field, nor other
  names that the host serves, nor hosts that it forwards to (docs/explanation/limitations.md).
- Loopback and private addresses need the user's `egress.private`; forbidden addresses, and the daemon's port, are never
  dialled.
- A refusal is reported to the agent and recorded in the ledger, and so is an end that neither side caused.
- Every wait has a deadline. If 6 was reached, 9 follows, cancellation included.

Source: docs/reference/cell-egress.md, docs/adr/0063-connect-from-a-cell.md.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Collection, Iterator
from typing import Final

import anyio
import msgspec

from aileron.config import LiveSettings
from aileron.egress.lookup import Resolver
from aileron.egress.refusal import Reason, RefusedError
from aileron.egress.steps import check_reachable, connected, look_up, written
from aileron.egress.tunnel.answers import ESTABLISHED, UNREACHABLE_ALERT, alert_of, refusal_answer
from aileron.egress.tunnel.client_hello import HELLO_BYTES, ClientHello, HelloReader
from aileron.egress.tunnel.connect_head import HEAD_BYTES, HeadReader
from aileron.egress.tunnel.hello_watch import HelloWatch, check_name
from aileron.egress.tunnel.journal import TunnelIntent, TunnelJournal, TunnelReport
from aileron.egress.tunnel.policy import Admitted, Cell, HostPolicy, Refused
from aileron.egress.tunnel.relay import ANSWER_S, PIECE_BYTES, Flow, receive, relay, say_and_end, send_all
from aileron.model.failure import AileronError
from aileron.model.names import HostPort

__all__ = ["HEAD_S", "HELLO_S", "MAX_OF_A_SESSION", "MAX_TUNNELS", "OPENED_A_MINUTE", "WayOut"]

MAX_TUNNELS: Final = 256  # of all cells: two descriptors each, and 512 KiB at most, if neither side reads
MAX_OF_A_SESSION: Final = 64  # a browser has six to a host and some dozens in all, npm fifteen
OPENED_A_MINUTE: Final = 600  # of one session: two rows of the ledger each; npm opens some hundred for a large project
MAX_TURNED_AWAY: Final = 32  # clients that are told at once; further ones are closed without a response
HEAD_S: Final = 10.0  # the client has the head ready when it connects
HELLO_S: Final = 10.0  # a client begins TLS as soon as it has its 200
ADMIT_S: Final = (
    60.0  # a person may be asked: the policy waits for them half as long, and this is for a policy that does not return
)
REACH_S: Final = 20.0  # a look-up (5 s) or a connection (10 s); each has its own bound in steps.py
_MINUTE_S: Final = 60.0
_SAID: Final = 300
"""Maximum number of characters of a destination that are recorded. A parsed destination has fewer."""


class WayOut:
    """Opens and carries the tunnels out of all cells. One instance per daemon."""

    def __init__(
        self,
        settings: LiveSettings,
        policy: HostPolicy,
        journal: TunnelJournal,
        resolve: Resolver,
        own_port: int | None = None,
    ) -> None:
        """Take `own_port`, the daemon's port on loopback, which no tunnel may reach."""
        self.policy: Final = policy
        self.journal: Final = journal
        self.resolve: Final = resolve
        self.own_port: Final = own_port
        self.settings: Final = settings
        self._open: dict[str, set[_Tunnel]] = {}
        self._rates: dict[str, _Rate] = {}
        self._turned_away = 0
        self.scratch: Final = memoryview(bytearray(PIECE_BYTES))

    @property
    def sessions(self) -> Collection[str]:
        """Ids of the sessions that have a tunnel, or are opening one."""
        return tuple(self._open)

    def end_session(self, session: str) -> None:
        """End all tunnels of a session that has ended. No more bytes pass in either direction."""
        for tunnel in tuple(self._open.get(session, ())):
            tunnel.end("session ended")

    async def carry(self, client: socket.socket, cell: Cell) -> None:
        """Serve one connection from its first byte to its last, and close it. Raises nothing except on cancellation."""
        with contextlib.closing(client), anyio.CancelScope() as scope:
            tunnel = _Tunnel(self, client, cell, scope)
            if (problem := self._no_place(cell.id)) is None:
                with self._place(tunnel, cell.id):
                    await tunnel.run()
            elif self._turned_away < MAX_TURNED_AWAY:
                self._turned_away += 1
                try:
                    await tunnel.turn_away(problem)
                finally:
                    self._turned_away -= 1

    def _no_place(self, session: str) -> str | None:
        """Return the limit that keeps the session from opening another tunnel now; None if it can open one."""
        if len(self._open.get(session, ())) >= MAX_OF_A_SESSION:
            return f"{MAX_OF_A_SESSION} connections of this cell are open: close some"
        if sum(map(len, self._open.values())) >= MAX_TUNNELS:
            return f"{MAX_TUNNELS} connections of all cells are open: try again later"
        if not self._rate_of(session).has_room():
            return f"this cell has opened {OPENED_A_MINUTE} connections within a minute: try again in a minute"
        return None

    @contextlib.contextmanager
    def _place(self, tunnel: _Tunnel, session: str) -> Iterator[None]:
        mine = self._open.setdefault(session, set())
        mine.add(tunnel)
        try:
            yield
        finally:
            mine.discard(tunnel)
            if not mine:
                del self._open[session]

    def count_opened(self, session: str) -> None:
        """Count one more opened tunnel against the session's maximum number of tunnels per minute."""
        self._rate_of(session).opened += 1

    def _rate_of(self, session: str) -> _Rate:
        now = anyio.current_time()
        rate = self._rates.get(session)
        if rate is None or now >= rate.until:
            self._rates = {name: other for name, other in self._rates.items() if now < other.until}
            rate = self._rates[session] = _Rate(now + _MINUTE_S)
        return rate


class _Rate(msgspec.Struct):
    """The number of tunnels that a session opened in the minute that ends at the time `until`."""

    until: float
    opened: int = 0

    def has_room(self) -> bool:
        """Return whether the session can open another tunnel in this minute."""
        return self.opened < OPENED_A_MINUTE


class _Told(Exception):
    """Error: the tunnel is refused. Its text is sent to the client; `reason`, as in answers.py, is also recorded in the
    ledger.
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class _Gone(Exception):
    """The client closed the connection before a tunnel was open, so no response can be sent."""


class _Tunnel:
    """A client's connection and the tunnel that is opened for it."""

    def __init__(self, way: WayOut, client: socket.socket, cell: Cell, scope: anyio.CancelScope) -> None:
        self._way = way
        self._client = client
        self._cell = cell
        self._scope = scope
        self._early = b""
        """Bytes that were read from the client but not used yet."""
        self._asked = "unknown"
        self._is_gone = False
        self._why_cancelled = "stopping"

    def end(self, why: str) -> None:
        """End the tunnel at once, because of `why`."""
        self._why_cancelled = why
        self._scope.cancel()

    async def run(self) -> None:
        """Serve the client's connection from its first byte to its last."""
        try:
            destination, addresses = await self._before_200()
        except _Told as no:
            await self._refuse(no.reason, refusal_answer(no.reason, str(no)))
            return
        except (_Gone, OSError):
            return
        try:
            await send_all(self._client, ESTABLISHED)
            hello, watch = await self._hello(destination)
        except RefusedError as error:
            await self._refuse(error.reason.value, alert_of(error.reason))
            return
        except (_Gone, OSError):
            return
        await self._through(destination, addresses, hello, watch)

    async def turn_away(self, problem: str) -> None:
        """Refuse the tunnel because a limit is reached, once the client's request has arrived. `problem` names the
        limit.
        """
        with contextlib.suppress(_Gone, OSError, RefusedError):
            self._asked = str(await self._head(ANSWER_S))
        reason = Reason.TUNNEL_LIMIT.value
        await self._refuse(reason, refusal_answer(reason, problem))

    # Before the tunnel is open

    async def _before_200(self) -> tuple[HostPort, tuple[str, ...]]:
        """Read the head of CONNECT, have the host admitted, and resolve and check its addresses (steps 2 to 4). Every
        refusal is raised as _Told.
        """
        try:
            destination = await self._head(HEAD_S)
            self._asked = str(destination)
            await self._admitted(destination)
            addresses = await look_up(self._way.resolve, destination, anyio.current_time() + REACH_S)
            self._check(destination, addresses)
        except RefusedError as error:
            reason, text = error.reason.value, str(error)
        except AileronError as error:
            reason, text = error.failure.failure_class.value, error.failure.message
        else:
            return destination, addresses
        raise _Told(reason, text)

    async def _head(self, wait_s: float) -> HostPort:
        reader = HeadReader()
        with anyio.move_on_after(wait_s):
            while True:
                destination = reader.feed(await self._more(HEAD_BYTES))
                if destination is not None:
                    self._early = reader.rest
                    return destination
        raise RefusedError(Reason.TUNNEL_SLOW, f"no whole CONNECT request came within {wait_s:.0f} seconds")

    async def _more(self, size: int) -> bytes:
        """Return more bytes of the client. Raises _Gone if the client has closed the connection."""
        data = await receive(self._client, size)
        if not data:
            raise _Gone
        return data

    async def _admitted(self, destination: HostPort) -> None:
        """Have the policy admit the host (step 3), while the client waits. Raises RefusedError if the host is refused,
        or if nobody decided, for instance because the client disconnected before a decision. Raises _Gone if the client
        disconnected after the decision, and AileronError if the policy raised one.
        """
        decided: Admitted | Refused | AileronError | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._until_gone, tasks.cancel_scope)
            with anyio.move_on_after(ADMIT_S):
                try:
                    decided = await self._way.policy.admit(self._cell, destination)
                except AileronError as error:  # raised in the group, it would be wrapped in an exception group
                    decided = error
            tasks.cancel_scope.cancel()
        if self._is_gone and decided is None:  # a question to a person remains, so the refusal is recorded
            raise RefusedError(
                Reason.HOST_UNANSWERED, f"nobody had decided about {destination} when the client gave up"
            )
        if self._is_gone:
            raise _Gone
        match decided:
            case Admitted():
                return
            case Refused():
                raise RefusedError(decided.reason, decided.text)
            case AileronError():
                raise decided
        text = f"nobody decided within {ADMIT_S:.0f} seconds whether this cell reaches {destination}"
        raise RefusedError(Reason.HOST_UNANSWERED, text)

    async def _until_gone(self, waiting: anyio.CancelScope) -> None:
        """Watch whether the client disconnects, and cancel `waiting` when it does. Bytes that the client sends
        meanwhile are stored up to a limit; beyond it the client is no longer watched.
        """
        try:
            while len(self._early) < HELLO_BYTES:
                self._early += await self._more(HELLO_BYTES - len(self._early))
        except (_Gone, OSError):
            self._is_gone = True
            waiting.cancel()

    def _check(self, destination: HostPort, addresses: tuple[str, ...]) -> None:
        private = destination in self._way.settings.now.egress_private
        check_reachable(destination, addresses, plain=False, private=private, own_port=self._way.own_port)

    # The ClientHello

    async def _hello(self, destination: HostPort) -> tuple[ClientHello, HelloWatch]:
        """Read and check the ClientHello (step 5, after the 200). On return, all bytes read from the client are in
        `_early`, and have been checked.
        """
        reader, data = HelloReader(), self._early
        with anyio.move_on_after(HELLO_S):
            while (hello := reader.feed(data)) is None:
                data = await self._more(HELLO_BYTES)
                self._early += data
            check_name(hello.name, destination.host)
            watch = HelloWatch(hello.name)
            watch.from_client(self._early[reader.consumed :])
            return hello, watch
        raise RefusedError(Reason.TUNNEL_SLOW, f"no whole ClientHello came within {HELLO_S:.0f} seconds")

    # The tunnel

    async def _through(
        self, destination: HostPort, addresses: tuple[str, ...], hello: ClientHello, watch: HelloWatch
    ) -> None:
        """Record that the tunnel opens, connect, relay the bytes, and record how the tunnel ended (steps 6 to 9)."""
        session = self._cell.id
        flow, began, address, reason = Flow(), anyio.current_time(), None, "stopping"
        try:
            tunnel = await self._opened(TunnelIntent(session, destination, hello.may_hide))
        except AileronError:
            await say_and_end(self._client, UNREACHABLE_ALERT)
            return
        self._way.count_opened(session)
        try:
            with contextlib.ExitStack() as stack:
                wire, address = await connected(began + REACH_S, destination, addresses, None)
                host = stack.enter_context(contextlib.closing(wire.detach()))
                await send_all(host, self._early)
                flow.went_up(len(self._early))
                reason = await relay(self._client, host, flow, watch, self._way.scratch)
        except AileronError:
            reason = "unreachable"
            await say_and_end(self._client, UNREACHABLE_ALERT)
        except RefusedError as error:
            reason = error.reason.value
            await say_and_end(self._client, alert_of(error.reason))
        except OSError:
            reason = "reset by host"
        except BaseException:
            reason = self._why_cancelled
            raise
        finally:
            ms = (anyio.current_time() - began) * 1000
            report = TunnelReport(session, destination, address, flow.bytes_up, flow.bytes_down, ms, reason)
            with contextlib.suppress(AileronError):  # the ledger is broken, which other parts report
                await written(lambda: self._way.journal.closed(tunnel, report))

    async def _opened(self, intent: TunnelIntent) -> str:
        """Record that the tunnel opens, and return its id. Raises AileronError if it cannot be recorded."""
        made = ""

        async def write() -> None:
            nonlocal made
            made = await self._way.journal.opened(intent)

        await written(write)
        return made

    # Refusals, to the ledger and to the client

    async def _refuse(self, reason: str, answer: bytes) -> None:
        """Record that the tunnel was refused, and then send `answer` to the client."""
        with contextlib.suppress(AileronError):  # no packet left: the client is refused even without a row
            await written(lambda: self._way.journal.refused(self._cell.id, self._asked[:_SAID], reason))
        await say_and_end(self._client, answer)
