"""The process that speaks the protocol: it comes with the first agent, goes after the last, and takes nothing with it.

The daemon's side of it and the process are real; the actions are those of a door that keeps its runs in a dict (peers.py). With
the whole daemon: tests/daemon/test_protocol.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import anyio
import psutil
import pytest
from starlette.types import ASGIApp, Message, Scope

from aileron.audit.log import Audit
from aileron.config import LiveSettings, Settings
from aileron.daemon.http import mcp
from aileron.daemon.http.mcp import AgentProtocol
from aileron.daemon.http.sessions import Sessions
from aileron.ingress.known import KnownCallers
from aileron.ledger.sqlite import Ledger
from tests.mcp.peers import DictDoor, RawPeer, offered
from tests.support.descriptors import at_most
from tests.support.waiting import give_turns, wait_still_async, wait_until_async

pytestmark = [pytest.mark.anyio, pytest.mark.jail]

DEADLINE_S: Final = 60.0
REST_S: Final = 0.3


class Home:
    """The place where the protocol is served, its door, and the file of the relay's first answers."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "mcp.sock"
        self.kept = folder / "run" / "mcp-answers.json"
        self.kept.parent.mkdir(mode=0o700)
        self.door = DictDoor(offered("quick"), offered("slow"))
        self.signature = 0
        self.look: Callable[[], int] = lambda: self.signature
        self.http: ASGIApp

    @contextlib.asynccontextmanager
    async def agent(self) -> AsyncIterator[RawPeer]:
        """Connect an agent that has shaken hands."""
        async with await anyio.connect_unix(self.socket) as stream:
            peer = RawPeer(stream, lambda: None)
            await peer.open()
            yield peer

    async def works(self) -> bool:
        """Return whether a new agent is served."""
        async with self.agent() as peer:
            await peer.call(1, "quick")
            return bool((await peer.hear())["result"]["structuredContent"]["status"] == "completed")


class Request:
    """A call of `slow` over HTTP, as the session `ses-1`."""

    def __init__(self) -> None:
        version = "2026-07-28"
        meta = {"protocolVersion": version, "clientCapabilities": {}}
        params: dict[str, Any] = {"name": "slow", "arguments": {}}
        params["_meta"] = {f"io.modelcontextprotocol/{name}": value for name, value in meta.items()}
        self._body: bytes | None = json.dumps(
            {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        ).encode()
        fields = {
            "host": "localhost",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            "mcp-protocol-version": version,
            "mcp-method": "tools/call",
            "mcp-name": "slow",
        }
        self.scope: Scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "path": "/mcp",
            "raw_path": b"/mcp",
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in fields.items()],
            "client": None,
            "state": {"session": "ses-1"},
        }
        self.status = 0
        self.is_answered = False

    async def served_by(self, app: ASGIApp) -> None:
        """Let the application answer the request."""
        await app(self.scope, self.receive, self.send)

    async def receive(self) -> Message:
        """Return the body; after it, nothing arrives."""
        if self._body is None:
            await anyio.sleep_forever()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        """Keep the status, and whether the answer was whole."""
        self.status = message.get("status", self.status)
        self.is_answered = message["type"] == "http.response.body" and not message.get("more_body", False)


@contextlib.asynccontextmanager
async def served(folder: Path, rest_s: float = REST_S) -> AsyncIterator[Home]:
    """Serve the protocol as the daemon serves it."""
    home = Home(folder)
    with Ledger.open(folder / "ledger.db", folder, "1.2.3") as ledger, anyio.fail_after(DEADLINE_S):
        sessions = Sessions(Audit(ledger), ledger, KnownCallers(), LiveSettings(Settings()))
        protocol = AgentProtocol(home.door, sessions, "1.2.3", lambda: home.look(), home.kept, rest_s=rest_s)
        home.http = protocol.http
        with socket.socket(socket.AF_UNIX) as listener:
            listener.setblocking(False)
            listener.bind(str(home.socket))
            listener.listen()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(protocol.serve, listener)
                yield home
                tasks.cancel_scope.cancel()


def processes() -> list[psutil.Process]:
    """Return the started process and the one that it confines; an empty list if there is none."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if "aileron.mcp" in child.cmdline():
                found += [child, *child.children()]
    return found


async def test_the_protocol_process_starts_with_the_first_agent_and_ends_after_the_last(tmp_path: Path) -> None:
    """An idle agent still counts as connected. After the last one has left, the next agent gets a new process."""
    async with served(tmp_path) as home:
        assert processes() == []
        async with home.agent() as peer:
            before = processes()
            assert await wait_still_async(processes, "it stays", for_s=3 * REST_S) == before
            await peer.call(1, "quick")
            assert (await peer.hear())["id"] == 1
            assert processes() == before
            assert len(before) == 2
        await wait_until_async(lambda: processes() == [], "it has ended", seen=processes)
        assert await home.works()
        assert {process.pid for process in processes()}.isdisjoint(process.pid for process in before)
    assert processes() == []


async def test_killing_the_protocol_process_ends_its_connections_and_a_new_one_starts(tmp_path: Path) -> None:
    """Calls end as when an agent disconnects. An HTTP request gets no response, because it may have begun."""
    request = Request()
    async with served(tmp_path) as home, anyio.create_task_group() as tasks:
        home.door.hold = anyio.Event()
        async with home.agent() as peer:
            await peer.call(1, "slow")
            tasks.start_soon(request.served_by, home.http)
            await wait_until_async(lambda: len(home.door.calls) == 2, "both are called")
            killed = processes()[-1]
            killed.send_signal(signal.SIGKILL)
            assert await peer.hear() is None
            await home.door.cancelled.wait()
        home.door.hold = None
        await wait_until_async(lambda: processes() == [], "it has ended", seen=processes)
        assert await home.works()
        assert not request.is_answered
        assert killed.pid not in [process.pid for process in processes()]


async def test_an_agent_not_yet_accepted_by_a_killed_protocol_process_is_served_by_the_next_one(tmp_path: Path) -> None:
    """The agent connects while the process is suspended, and notices nothing when it is killed."""
    async with served(tmp_path) as home:
        assert await home.works()
        _, stopped = processes()
        stopped.suspend()
        async with anyio.create_task_group() as tasks:

            async def agent() -> None:
                assert await home.works()

            tasks.start_soon(agent)
            await give_turns()
            stopped.kill()


async def test_a_connecting_agent_waits_while_the_protocol_process_has_no_free_descriptor(tmp_path: Path) -> None:
    """The agent that is already connected is served meanwhile; the waiting one is served later by the same process."""
    async with served(tmp_path) as home, home.agent() as peer, anyio.create_task_group() as tasks:

        async def agent() -> None:
            assert await home.works()
            tasks.cancel_scope.cancel()

        before = processes()
        with at_most(before[-1].pid, 3):
            tasks.start_soon(agent)
            assert await wait_still_async(processes, "it stays", for_s=REST_S) == before
            await peer.call(1, "quick")
            assert (await peer.hear())["id"] == 1
            assert not tasks.cancel_scope.cancel_called
        await anyio.sleep_forever()
    assert processes() == []


async def test_a_failed_start_of_the_protocol_process_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An agent that connects in between waits, and is served by the next process."""
    good = sys.executable
    monkeypatch.setattr(sys, "executable", "/bin/false")
    async with served(tmp_path) as home, anyio.create_task_group() as tasks:

        async def agent() -> None:
            assert await home.works()

        tasks.start_soon(agent)
        await wait_until_async(lambda: "it ended before it had hidden" in caplog.text, "it is said")
        monkeypatch.setattr(sys, "executable", good)


async def test_agents_that_wait_too_long_for_a_process_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket connection is closed, and an HTTP request gets status 429, because it was never begun."""
    request = Request()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    monkeypatch.setattr(mcp, "WAIT_S", 0.3)
    async with served(tmp_path) as home, await anyio.connect_unix(home.socket) as stream:
        await stream.send(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        await home.http(request.scope, request.receive, request.send)
        assert (request.status, request.is_answered) == (429, True)
        assert await RawPeer(stream, lambda: None).hear() is None


@pytest.mark.abuse_case("A45")
@pytest.mark.skipif(os.geteuid() != 0, reason="it is undumpable: only root may look into it")
async def test_the_protocol_process_can_use_its_sockets_but_open_no_file(tmp_path: Path) -> None:
    """The process parses untrusted input: it can open no file, and the same user cannot inspect it."""
    async with served(tmp_path) as home, home.agent():
        _, hidden = processes()
        status = Path(f"/proc/{hidden.pid}/status").read_text()
        opened = [link for link in Path(f"/proc/{hidden.pid}/fd").iterdir() if int(link.name) > 2]

        assert "_pydantic_core" in Path(f"/proc/{hidden.pid}/maps").read_text()
        assert ("Seccomp:\t2" in status, "NoNewPrivs:\t1" in status) == (True, True)
        assert os.stat(f"/proc/{hidden.pid}/environ").st_uid == 0
        assert {os.readlink(link).partition(":")[0] for link in opened} == {"socket", "anon_inode"}


async def test_a_change_of_actions_right_after_the_first_tool_list_is_reported(tmp_path: Path) -> None:
    """The actions are first compared before any agent can list them, however long that takes."""
    has_changed = threading.Event()

    def look() -> int:
        has_changed.wait(0.5)
        return home.signature

    async with served(tmp_path) as home:
        home.look = look
        async with home.agent() as peer:
            await peer.say({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
            assert (await peer.hear())["id"] == 1
            home.signature += 1
            has_changed.set()
            assert (await peer.hear())["method"] == "notifications/tools/list_changed"


@pytest.mark.parametrize("changes", [False, True])
async def test_cached_answers_for_the_relay_are_deleted_when_they_may_be_outdated(
    tmp_path: Path, changes: bool
) -> None:
    """The relay answers from this cache while the daemon starts. A daemon that ends keeps only a current one."""
    async with served(tmp_path) as home:
        assert await home.works()
        await wait_until_async(home.kept.exists, "it is kept")
        await wait_until_async(lambda: processes() == [], "it has ended", seen=processes)
        home.signature += changes
    assert home.kept.exists() is not changes
    if not changes:
        names = {tool["name"] for tool in results_of(home)["2025-11-25"]["tools/list"]["tools"]}
        assert {"quick", "slow"} <= names


def results_of(home: Home) -> dict[str, Any]:
    """Return the kept results, by version and method."""
    results: dict[str, Any] = json.loads(home.kept.read_bytes())["results"]
    return results
