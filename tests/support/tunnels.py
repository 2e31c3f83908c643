r"""The way out of a cell under a test's control: a proxy on loopback, with an event loop of its own in a thread.

    with Proxy(hosts=["api.example.test"]) as proxy:
        proxy.resolver["api.example.test"] = ["127.0.0.1"]
        with proxy.connected() as client:
            client.sendall(b"CONNECT api.example.test:443 HTTP/1.1\r\n\r\n")

The daemon's door is not in it (tests/daemon/test_tunnels.py): every connection counts as the one cell's. `journal` remembers
every row.
"""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Self

import anyio
import anyio.from_thread
import anyio.lowlevel

from aileron.config import LiveSettings, Settings
from aileron.egress.tunnel import HostPolicy, TunnelIntent, TunnelReport, WayOut
from aileron.egress.tunnel.policy import Admitted, Cell, Refused, listed
from aileron.model.host_pattern import HostPattern, parse_host_patterns
from aileron.model.names import HostPort
from tests.support.upstream import Upstream
from tests.support.waiting import wait_until

__all__ = ["DEADLINE_S", "Answer", "Door", "Proxy", "TestCell", "read_answer"]

DEADLINE_S: Final = 30.0


@dataclasses.dataclass(frozen=True)
class TestCell:
    """The session of a cell."""

    __test__ = False

    id: str
    hosts: tuple[HostPattern, ...]


@dataclasses.dataclass(frozen=True)
class Answer:
    """A proxy's response to CONNECT."""

    status: int
    phrase: str
    fields: dict[str, str]
    body: str

    @property
    def reason(self) -> str | None:
        """Reason in a form for programs."""
        return self.fields.get("aileron-reason")


class Journal:
    """A journal that remembers every row."""

    def __init__(self) -> None:
        self.intents: list[TunnelIntent] = []
        self.reports: list[TunnelReport] = []
        self.refusals: list[tuple[str, str]] = []
        self.on_opened: Callable[[], None] | None = None

    async def opened(self, intent: TunnelIntent) -> str:
        await anyio.lowlevel.checkpoint()
        if self.on_opened is not None:
            self.on_opened()
        self.intents.append(intent)
        return f"tun-{len(self.intents)}"

    async def closed(self, tunnel: str, report: TunnelReport) -> None:
        await anyio.lowlevel.checkpoint()
        self.reports.append(report)

    async def refused(self, session: str, destination: str, reason: str) -> None:
        await anyio.lowlevel.checkpoint()
        self.refusals.append((destination, reason))


class _ListedHosts:
    """A HostPolicy that decides by the cell's list alone, without a question."""

    async def admit(self, cell: Cell, destination: HostPort) -> Admitted | Refused:
        return listed(cell.hosts, destination)


class Proxy:
    """A proxy that runs between enter and exit."""

    def __init__(
        self,
        hosts: Sequence[str] = (),
        private: Sequence[HostPort] = (),
        policy: HostPolicy | None = None,
        own_port: int | None = None,
    ) -> None:
        self.resolver: dict[str, list[str]] = {}
        """Addresses of each name; a name in `answers` is looked up there first."""
        self.answers: dict[str, list[list[str]]] = {}
        """Addresses that successive look-ups of a name find; the last list stays."""
        self.looked_up: list[str] = []
        self.journal: Final = Journal()
        self.cell: Final = TestCell("ses-test", parse_host_patterns(hosts))
        settings = Settings(egress_private=frozenset(private))
        self.way: Final = WayOut(
            LiveSettings(settings), policy or _ListedHosts(), self.journal, self._resolve, own_port
        )
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._listener.setblocking(False)
        self.port: Final[int] = self._listener.getsockname()[1]
        self._stop: anyio.Event | None = None
        self._stack = contextlib.ExitStack()
        self.carrying = 0

    async def _resolve(self, host: str, port: int) -> list[str]:
        await anyio.lowlevel.checkpoint()
        self.looked_up.append(host)
        answers = self.answers.get(host)
        if answers:
            return answers.pop(0) if len(answers) > 1 else answers[0]
        if host not in self.resolver:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self.resolver[host]

    def __enter__(self) -> Self:
        portal = self._stack.enter_context(anyio.from_thread.start_blocking_portal())
        started = threading.Event()
        running = portal.start_task_soon(self._serve, started)
        assert started.wait(DEADLINE_S)

        def stop() -> None:
            assert self._stop is not None
            portal.call(self._stop.set)
            running.result(DEADLINE_S)

        self._stack.callback(stop)
        self._portal = portal
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stack.close()
        self._listener.close()

    async def _serve(self, started: threading.Event) -> None:
        self._stop = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._accept, tasks)
            started.set()
            await self._stop.wait()
            tasks.cancel_scope.cancel()

    async def _accept(self, tasks: anyio.abc.TaskGroup) -> None:
        while True:
            await anyio.wait_readable(self._listener)
            with contextlib.suppress(BlockingIOError):
                connection, _ = self._listener.accept()
                connection.setblocking(False)
                tasks.start_soon(self._carry, connection)

    async def _carry(self, connection: socket.socket) -> None:
        self.carrying += 1
        try:
            await self.way.carry(connection, self.cell)
        finally:
            self.carrying -= 1

    def end_session(self) -> None:
        """End the session, as the daemon does when it is over."""
        self._portal.call(self.way.end_session, self.cell.id)

    @contextlib.contextmanager
    def connected(self) -> Iterator[socket.socket]:
        """Yield a connection to the proxy."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_S) as client:
            yield client

    @contextlib.contextmanager
    def asked(self, head: bytes) -> Iterator[tuple[socket.socket, Answer]]:
        """Send a request head on a connection. Yield the connection and the response."""
        with self.connected() as client:
            client.sendall(head)
            yield client, read_answer(client)

    def connect(self, destination: str) -> contextlib.AbstractContextManager[tuple[socket.socket, Answer]]:
        """Return a context that requests a tunnel to the destination and yields the connection and the response."""
        return self.asked(f"CONNECT {destination} HTTP/1.1\r\nHost: {destination}\r\n\r\n".encode())

    def report(self) -> TunnelReport:
        """Wait for the report of the tunnel that ended last, and return it."""
        journal = self.journal
        wait_until(
            lambda: len(journal.reports) == len(journal.intents) and journal.reports,
            "every tunnel has a report",
            seen=lambda: (journal.intents, journal.reports),
        )
        return self.journal.reports[-1]


def read_answer(client: socket.socket) -> Answer:
    """Return one response; the body up to its declared length. What follows it stays in the socket."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        data = client.recv(1)
        assert data, f"closed after {head!r}"
        head += data
    first, *lines = head.decode("ascii").rstrip("\r\n").split("\r\n")
    _version, status, phrase = first.split(" ", 2)
    fields = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    body = b""
    while len(body) < int(fields.get("content-length", "0")):
        data = client.recv(65536)
        assert data
        body += data
    return Answer(int(status), phrase, fields, body.decode("ascii"))


class Door(Upstream):
    """A port on loopback that leads to `tunnel.sock` of a home, as a cell's door does. This process connects."""

    def __init__(self, home: Path) -> None:
        super().__init__(lambda _seen: b"")
        self._path = str(home / "run" / "tunnel.sock")

    def connected(self) -> socket.socket:
        """Return a connection to the socket itself, without the port."""
        made = socket.socket(socket.AF_UNIX)
        # Not `settimeout` alone: a connect that may not block is refused where the backlog is full (unix(7), EAGAIN).
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(DEADLINE_S), 0))
        made.connect(self._path)
        made.settimeout(DEADLINE_S)
        return made

    def _converse(self, sock: socket.socket) -> None:
        _pass_on_both_ways(sock, self.connected())


def _pass_on_both_ways(client: socket.socket, daemon: socket.socket) -> None:
    with client, daemon:
        back = threading.Thread(target=_pass_on, args=(daemon, client))
        back.start()
        _pass_on(client, daemon)
        back.join(DEADLINE_S)


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
