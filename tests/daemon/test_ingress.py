"""The daemon's end of ingress: with a process that was taken over, and with one that cannot be started.

The process that was taken over runs the programs below, under the real one's name, and sends whatever they say; doors, messages
and processes are real.
"""

from __future__ import annotations

import errno
import http.client
import logging
import os
import resource
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.abc
import anyio.lowlevel
import pytest
from starlette.types import ASGIApp

from aileron.daemon.http import ingress
from aileron.daemon.http.cells import OnlyOfCells
from aileron.daemon.http.ingress import MAX_OF_STRANGERS, Ingress, TcpService
from aileron.daemon.http.mcp import AgentProtocol
from aileron.ingress.known import KnownCallers
from aileron.isolated import start
from tests.support.descriptors import at_most
from tests.support.home import daemon_home
from tests.support.waiting import wait_still_async, wait_text, wait_until_async

pytestmark = pytest.mark.anyio
DEADLINE_S = 60.0
_REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
_BEFORE = """
import os, socket, sys
control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
with theirs, socket.socket(fileno=int(sys.argv[1])) as first:
    socket.send_fds(first, [b"hidden"], [theirs.fileno()])
sys.path.remove({folder!r})
for name in [name for name in sys.modules if name.split(".")[0] == "aileron"]:
    del sys.modules[name]
from aileron.ingress.daemon_messages import Body, Head, Request, decode_answer, encode, exchange_pair

def ask(path, is_known=True):
    ours, theirs = exchange_pair()
    ours.setblocking(True)
    ours.settimeout(30)
    head = Request("page", "1.1", "GET", path, path.encode(), b"", [], None, is_known)
    ours.send(encode(head) if is_known is not None else b"nonsense")
    ours.send(encode(Body(b"", False)))
    socket.send_fds(control, [b"x"], [theirs.fileno()])
    theirs.close()
    return ours

def answered(ours):
    packet = ours.recv(100000)
    return "closed" if not packet else decode_answer(packet).status

def say(*what):
    with open({found!r}, "a") as file:
        print(*what, file=file)

control.recv(200000)
"""
_FOREIGN = """
pipe, _ = os.pipe()
inet, stream = socket.socket(), socket.socketpair()[0]
for one in (pipe, os.open("/", os.O_RDONLY), inet.fileno(), stream.fileno()):
    socket.send_fds(control, [b"x"], [one])
control.send(b"nothing comes along")
say(answered(ask("/", None)), answered(ask("/")))
control.recv(1000000)
control.recv(1000000)
"""
_SLOW = """
slow = [ask("/slow", False) for _ in range({most})]
say(*(answered(one) for one in slow[::50]))
say(answered(ask("/slow", False)), answered(ask("/")))
for one in slow:
    one.close()
while answered(ask("/", False)) == 429:
    pass
say("again")
control.recv(1000000)
control.recv(1000000)
"""
_BLOCKING = """
import fcntl
def ask_blocking(path):
    ours, theirs = exchange_pair()
    ours.setblocking(True)
    ours.settimeout(30)
    socket.send_fds(control, [b"x"], [theirs.fileno()])
    ours.send(encode(Request("page", "1.1", "GET", path, path.encode(), b"", [], None, True)))
    assert answered(ours) == 200  # the daemon has the socket, and waits for more
    fcntl.fcntl(theirs, fcntl.F_SETFL, fcntl.fcntl(theirs, fcntl.F_GETFL) & ~os.O_NONBLOCK)
    return ours, theirs
read, theirs = ask_blocking("/slow")
read.send(encode(Body(b"", True)))  # it is read, and then there is nothing
written, theirs_too = ask_blocking("/long")
written.send(encode(Body(b"", False)))
say("both")
say(answered(ask("/")))
control.recv(1000000)
control.recv(1000000)
"""
_LYING = """
import msgspec
for client in (["127.0.0.1", 40000], ["::1", 40000], None):
    ours, theirs = exchange_pair()
    ours.setblocking(True)
    head = {{"type": "request", "door": "page", "http_version": "1.1", "method": "GET", "path": "/",
             "raw_path": b"/", "query": b"",
             "fields": [], "client": client, "is_known": True, "scheme": "http", "server": ["192.0.2.1", 443]}}
    ours.send(msgspec.msgpack.encode(head))
    ours.send(encode(Body(b"", False)))
    socket.send_fds(control, [b"x"], [theirs.fileno()])
    say(answered(ours))
control.recv(1000000)
control.recv(1000000)
"""
_FULL = """
import time
say("there")
while not os.path.exists({found!r} + ".go"):
    time.sleep(0.01)
say(answered(ask("/")))
control.recv(1000000)
control.recv(1000000)
"""
_DEAF = """
say("there")
import time
time.sleep(600)
"""


async def _app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/long":
        await receive()
        await send({"type": "http.response.body", "body": bytes(4 << 20), "more_body": True})
    while scope["path"] == "/slow" and (await receive())["type"] != "http.disconnect":
        pass
    await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def _taken_over(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    then: str,
    door: TcpService | None = None,
    known: KnownCallers | None = None,
) -> AsyncIterator[Path]:
    """Run ingress with a process that executes `then`, and yield the file in which it writes what it found, a line each."""
    found = tmp_path / "found"
    package = tmp_path / "aileron" / "ingress"
    package.mkdir(parents=True)
    (tmp_path / "aileron" / "__init__.py").touch()
    (package / "__init__.py").touch()
    program = (_BEFORE + then).format(folder=str(tmp_path), found=str(found), most=MAX_OF_STRANGERS)
    (package / "__main__.py").write_text(program, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    door = door or TcpService([socket.create_server(("127.0.0.1", 0))], _app)
    over = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Ingress({"page": door}, known or KnownCallers(), []).serve, over.wait)
        with socket.create_connection(door.listeners[0].getsockname()):
            yield found
        over.set()


async def _lines(found: Path, count: int) -> list[str]:
    def lines() -> list[str]:
        return found.read_text(encoding="utf-8").splitlines() if found.exists() else []

    await wait_until_async(lambda: len(lines()) >= count, f"{count} lines", seen=lines)
    return lines()


@pytest.mark.abuse_case("A33")
async def test_an_invalid_descriptor_that_ingress_passes_is_logged_and_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Anything else that ingress passes is logged and closed; a valid exchange afterwards is answered."""
    with caplog.at_level(logging.ERROR, ingress.__name__):
        async with _taken_over(tmp_path, monkeypatch, _FOREIGN) as found:
            before = _descriptors()
            assert await _lines(found, 1) == ["closed 200"]
            after = _descriptors()
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "ingress passed something that is no socket",
        "ingress passed something that is no socket",
        "ingress passed a socket of another kind",
        "ingress passed a socket of another kind",
        "ingress sent what it cannot send",
    ]
    assert not [name for name in after - before if name.startswith("pipe:") or name == "/"]


@pytest.mark.abuse_case("A32")
async def test_unknown_callers_get_at_most_half_of_the_places_for_concurrent_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slow unknown callers must not keep known ones out; when they leave, other unknown callers are served."""
    async with _taken_over(tmp_path, monkeypatch, _SLOW) as found:
        lines = await _lines(found, 3)
    assert set(lines[0].split()) == {"200"}
    assert lines[1:] == ["429 200", "again"]


@pytest.mark.abuse_case("A37")
async def test_an_ingress_process_that_was_taken_over_cannot_block_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ingress makes passed sockets blocking again: others are served while these have no data or are full."""
    async with _taken_over(tmp_path, monkeypatch, _BLOCKING) as found:
        assert await _lines(found, 2) == ["both", "200"]


async def test_an_ingress_process_that_reads_no_messages_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order to stop is behind more messages than the socket holds, so the daemon kills the process after its grace
    period.
    """
    monkeypatch.setattr(ingress, "GRACE_S", 0.2)
    known = KnownCallers()
    with anyio.fail_after(DEADLINE_S):
        async with _taken_over(tmp_path, monkeypatch, _DEAF, known=known) as found:
            await _lines(found, 1)
            for number in range(1000):
                known.add(f"{number:064x}")
                await anyio.lowlevel.checkpoint()


async def test_passed_sockets_wait_in_ingress_while_the_daemon_has_no_free_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The kernel drops a passed descriptor that has no free number, so the daemon receives it only when one is free."""
    monkeypatch.setattr(ingress, "FULL_PAUSE_S", 0.01)
    async with _taken_over(tmp_path, monkeypatch, _FULL) as found:
        await _lines(found, 1)
        with at_most(os.getpid(), 3):
            Path(f"{found}.go").mkdir()
            await wait_until_async(lambda: "requests over TCP wait" in caplog.text, "it waits")
        assert (await _lines(found, 2))[1] == "200"


async def _said_by(app: ASGIApp, state: dict[str, Any]) -> list[Any]:
    """Return the messages with which an application answers a request without a body."""
    said: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        said.append(message)

    await app({"type": "http", "state": state}, receive, send)
    return said


async def test_an_agents_request_gets_429_if_no_file_descriptor_is_free() -> None:
    """The agent can retry: the status says that nothing was begun."""
    protocol = AgentProtocol(cast("Any", None), cast("Any", None), "0", lambda: None, Path("unused"))
    with at_most(os.getpid(), 3):
        said = await _said_by(protocol.http, {"session": "ses_x"})
    assert said[0]["status"] == 429
    assert b"agents cannot be served now" in said[1]["body"]


async def test_a_cells_request_gets_429_if_no_free_descriptor_was_left_to_find_its_process() -> None:
    """The caller may be valid, because only a free descriptor was missing: no refused caller is recorded."""
    cells = OnlyOfCells(_app, cast("Any", None), cast("Any", None))
    why = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    said = await _said_by(cells, {"aileron.peer": why})
    assert said[0]["status"] == 429
    assert (b"connection", b"close") in said[0]["headers"]


@pytest.mark.abuse_case("A35")
async def test_the_daemon_ignores_the_address_and_scheme_that_ingress_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ingress claims another address and a request without TLS: the application gets the listener's own values."""
    seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope["scheme"], scope["server"]))
        await _app(scope, receive, send)

    door = TcpService([socket.create_server(("127.0.0.1", 0))], app, tls=True)
    address = door.listeners[0].getsockname()
    async with _taken_over(tmp_path, monkeypatch, _LYING, door) as found:
        assert await _lines(found, 3) == ["200"] * 3
    assert seen == [("https", address), ("https", None), ("https", None)]


@pytest.mark.abuse_case("A38")
@pytest.mark.parametrize("speaks", [False, True])
async def test_a_process_that_stole_the_first_socket_of_ingress_gets_no_messages(
    speaks: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Any process of the user can steal it before ingress is protected; the daemon sends and accepts nothing there."""
    execute = ingress.execute_process
    heard: list[bytes] = []

    async def hear(taken: socket.socket) -> None:
        await anyio.wait_readable(taken)
        with taken:
            try:
                heard.append(taken.recv(100))
            except ConnectionResetError:  # closed before the sent message was read
                heard.append(b"")

    def executed(first: int) -> subprocess.Popen[bytes]:
        taken = socket.socket(fileno=os.dup(first))
        if speaks and not heard:
            control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                socket.send_fds(taken, [b"hidden"], [theirs.fileno()])
            tasks.start_soon(hear, control)
        tasks.start_soon(hear, taken)
        return execute(first)

    monkeypatch.setattr(ingress, "execute_process", executed)
    door = TcpService([socket.create_server(("127.0.0.1", 0))], _app)
    over = anyio.Event()
    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Ingress({"page": door}, KnownCallers(), []).serve, over.wait)
            async with await anyio.connect_tcp(*door.listeners[0].getsockname()) as client:
                # the socket it took, the one it passed, and the next process's
                await wait_until_async(lambda: len(heard) >= (3 if speaks else 1), "it hears", seen=lambda: heard)
                assert not any(heard)
                await client.send(_REQUEST)
                assert (await client.receive()).startswith(b"HTTP/1.1 200")
            over.set()
    assert [record.message for record in caplog.records if "could not be spoken to" in record.message] == (
        [f"ingress could not be spoken to: process {os.getpid()} spoke in its place: it has taken a descriptor of it"]
        if speaks
        else []
    )


@pytest.mark.jail
@pytest.mark.skipif(os.geteuid() != 0, reason="the daemon is undumpable: only root may count what it has open")
def test_starting_ingress_is_retried_after_a_failure() -> None:
    """The daemon lacks descriptors and logs that; the home's sockets keep working, and later the port does."""
    with daemon_home() as home:
        port = int(home.must("GET", "/v1/status")["web"].rpartition(":")[2])
        log = home.path / "logs" / "daemon.log"
        assert home.daemon_pid is not None
        usual = resource.prlimit(home.daemon_pid, resource.RLIMIT_NOFILE)
        resource.prlimit(home.daemon_pid, resource.RLIMIT_NOFILE, (_with_one_left(home.daemon_pid), usual[1]))
        with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as waiting:
            waiting.sendall(f"GET /healthz HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
            wait_text(log, "ingress could not be started: Too many open files")
            assert home.ask("GET", "/healthz").status == 200
            resource.prlimit(home.daemon_pid, resource.RLIMIT_NOFILE, usual)
            answer = http.client.HTTPResponse(waiting)
            answer.begin()
            assert answer.status == 200


_IMPATIENT = """
import sys
from aileron.ingress import process
process.TIDY_S, process.UNUSED_S = 0.05, {unused_s}
from aileron.ingress.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


@asynccontextmanager
async def _impatient(monkeypatch: pytest.MonkeyPatch, unused_s: float) -> AsyncIterator[_Impatient]:
    """Run a daemon's ingress whose process ends after `unused_s` seconds without a connection."""
    begun = _Impatient(TcpService([socket.create_server(("127.0.0.1", 0))], _app))

    def executed(first: int) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _IMPATIENT.format(unused_s=unused_s), str(first)],
            pass_fds=[first],
            env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        begun.processes.append(process)
        return process

    monkeypatch.setattr(ingress, "execute_process", executed)
    monkeypatch.setattr(start, "_END_S", DEADLINE_S)  # it ends by itself, and is not killed for being slow
    over = anyio.Event()
    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Ingress({"page": begun.door}, KnownCallers(), []).serve, over.wait)
            yield begun
            over.set()


class _Impatient:
    """A door, and the processes that have served it, the newest last."""

    def __init__(self, door: TcpService) -> None:
        self.door = door
        self.processes: list[subprocess.Popen[bytes]] = []

    async def connected(self) -> anyio.abc.SocketStream:
        """Open a new connection."""
        return await anyio.connect_tcp(*self.door.listeners[0].getsockname())

    async def until_ended(self) -> None:
        """Wait for the end of all processes that have begun."""
        await wait_until_async(
            lambda: all(process.returncode is not None for process in self.processes), "all have ended"
        )


async def test_a_connection_restarts_an_ingress_process_that_ended_while_unused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Ending while unused is not logged as an error, and does not happen while a client is connected."""
    async with _impatient(monkeypatch, 0.2) as begun:
        async with await begun.connected() as asks, await begun.connected() as stays:
            await stays.send(_REQUEST.replace(b"GET /", b"GET /slow"))  # at once: silent clients are not kept for long
            await asks.send(_REQUEST)
            assert (await asks.receive()).startswith(b"HTTP/1.1 200")
            assert (await stays.receive()).startswith(b"HTTP/1.1 200")
            assert await wait_still_async(lambda: begun.processes[0].returncode, "it stays", for_s=0.5) is None
        await begun.until_ended()
        async with await begun.connected() as asks_later:
            await asks_later.send(_REQUEST)
            assert (await asks_later.receive()).startswith(b"HTTP/1.1 200")
    assert [process.returncode for process in begun.processes] == [0, 0]
    assert caplog.records == []


async def test_a_connection_is_answered_although_ingress_is_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the process ends as soon as no client is connected, so between any two of these connections."""
    async with _impatient(monkeypatch, 0.0) as begun:
        for number in range(3):
            async with await begun.connected() as asks:
                await asks.send(_REQUEST)
                assert (await asks.receive()).startswith(b"HTTP/1.1 200")
            if number == 0:
                await begun.until_ended()
    assert len(begun.processes) > 1


def _with_one_left(pid: int) -> int:
    """Return a descriptor limit that leaves one free: enough for a client, but not for ingress's first pair of sockets."""
    taken = {int(descriptor.name) for descriptor in Path(f"/proc/{pid}/fd").iterdir()}
    return next(number for number in range(len(taken) + 1) if number not in taken) + 1


def _descriptors() -> set[str]:
    """Return the names of this process's open descriptors."""
    return {str(descriptor.readlink()) for descriptor in Path("/proc/self/fd").iterdir() if descriptor.is_symlink()}
