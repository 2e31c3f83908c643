"""The protocol over HTTP, at the daemon's `/mcp`, with the SDK's client: both eras, the session of a token, and the bounds."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import anyio
import httpx2
import mcp_types
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from starlette.types import ASGIApp, Receive, Scope, Send

from aileron.mcp.lines import MAX_LINE_BYTES
from tests.mcp.peers import ERAS, DictDoor, offered, running
from tests.support.home import DaemonHome, asking_home, probe_action

pytestmark = pytest.mark.anyio

DEADLINE_S: Final = 60.0
both_eras = pytest.mark.parametrize("mode", ERAS)
HELLO: Final = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
LIST: Final = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
ACCEPT: Final = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
MODERN: Final = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Place:
    """A home, the address of its `/mcp`, and its sessions."""

    def __init__(self, home: DaemonHome) -> None:
        self.home = home
        self.url = home.must("GET", "/v1/status")["web"] + "/mcp"
        self.port = int(self.url.split(":")[2].split("/")[0])

    def token(self) -> str:
        """Return the token of a new session."""
        return str(self.home.must("POST", "/v1/sessions", {"agent": "test", "folder": "/"})["token"])

    def client(self, token: str) -> httpx2.AsyncClient:
        """Return an HTTP client of that session."""
        headers = {"Authorization": f"Bearer {token}"}
        return httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(DEADLINE_S), trust_env=False)

    @contextlib.asynccontextmanager
    async def connected(self, mode: str, token: str | None = None, **options: Any) -> AsyncIterator[Client]:
        """Connect the SDK's client as that session, or as a new one."""
        async with self.client(token or self.token()) as http:
            transport = streamable_http_client(self.url, http_client=http)
            async with Client(transport, mode=mode, **options) as client:
                yield client


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """Make a home with an action that runs at once and one that asks."""
    with asking_home() as home:
        yield Place(home)


@pytest.mark.jail
@both_eras
async def test_a_client_of_either_protocol_era_lists_and_calls_tools_and_polls_over_http(
    place: Place, mode: str
) -> None:
    """The call goes through the real daemon and a real jail: at once, and after a person approved."""
    with anyio.fail_after(DEADLINE_S):
        async with place.connected(mode) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            done = await client.call_tool("give_back", {"text": "x"})
            asked = (await client.call_tool("ask_first", {"text": "y"})).structured_content
            checked = (await client.call_tool("check_action_status", {"id": asked["approval_id"]})).structured_content
            shown = place.home.must("GET", f"/v1/action-approvals/{asked['approval_id']}")
            place.home.decide({**asked, "digest": shown["digest"]}, "approve")
            ended = await client.call_tool("wait_for_action", {"id": asked["approval_id"], "seconds": 50})

            assert client.protocol_version == {"legacy": "2025-11-25", "auto": "2026-07-28"}[mode]
            assert {"give_back", "ask_first", "check_action_status"} <= tools
            assert done.structured_content["result"]["text"] == "x"
            assert (asked["status"], checked["status"]) == ("pending_approval", "pending_approval")
            assert asked["review_url"] == checked["review_url"] in checked["message"]
            assert (ended.is_error, ended.structured_content["result"]["text"]) == (False, "y")


@pytest.mark.jail
@pytest.mark.slow
@both_eras
async def test_waiting_reports_progress_over_http(place: Place, mode: str) -> None:
    """The progress arrives on the stream of the call's own answer."""
    heard = anyio.Event()

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        assert (total, (message or "").partition(",")[0]) == (20, "pending_approval")
        heard.set()

    with anyio.fail_after(DEADLINE_S):
        async with place.connected(mode) as client, anyio.create_task_group() as tasks:
            asked = (await client.call_tool("ask_first", {"text": "y"})).structured_content

            async def wait() -> None:
                arguments = {"id": asked["approval_id"], "seconds": 20}
                ended = await client.call_tool("wait_for_action", arguments, progress_callback=progressed)
                assert ended.structured_content["status"] == "cancelled"

            tasks.start_soon(wait)
            await heard.wait()
            await client.call_tool("cancel_action", {"id": asked["approval_id"]})


@pytest.mark.jail
async def test_the_standing_http_stream_of_the_2025_protocol_reports_changed_actions(place: Place) -> None:
    """The server announces this capability in the handshake."""
    heard = anyio.Event()

    async def handler(message: object) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            heard.set()

    with anyio.fail_after(DEADLINE_S):
        async with place.connected("legacy", message_handler=handler) as client:
            assert client.server_capabilities.tools is not None
            assert client.server_capabilities.tools.list_changed
            number = 0
            while not heard.is_set():  # the stream opens at some time: earlier changes are not told
                number += 1
                place.home.add_probe_action("give_back", name=f"new-{number}")
                with anyio.move_on_after(2):
                    await heard.wait()
            assert f"new_{number}" in {tool.name for tool in (await client.list_tools()).tools}


@pytest.mark.jail
async def test_an_http_subscription_of_the_2026_protocol_reports_changed_actions(place: Place) -> None:
    """The news comes on the stream that the client opened."""
    with anyio.fail_after(DEADLINE_S):
        async with place.connected("auto") as client, client.listen(tools_list_changed=True) as changes:
            text = probe_action("give_back", name="newer")
            place.home.must("POST", "/v1/actions", {"text": text, "file": "a test"})
            assert type(await anext(aiter(changes))).__name__ == "ToolsListChanged"
            assert "newer" in {tool.name for tool in (await client.list_tools(cache_mode="refresh")).tools}


@pytest.mark.abuse_case("A1")
@pytest.mark.jail
async def test_a_stolen_protocol_session_id_is_useless(place: Place) -> None:
    """The id is unknown under another token; with its own token it works until that token's session ends."""
    begun = place.home.must("POST", "/v1/sessions", {"agent": "test", "folder": "/"})
    mine, other = begun["token"], place.token()
    with anyio.fail_after(DEADLINE_S):
        async with place.client(mine) as owner, place.client(other) as thief:
            opened = await owner.post(place.url, json=HELLO, headers=ACCEPT)
            stolen = {**ACCEPT, "Mcp-Session-Id": opened.headers["mcp-session-id"]}
            refused = [
                await thief.post(place.url, json=LIST, headers=stolen),
                await thief.delete(place.url, headers=stolen),
                await thief.get(place.url, headers={**stolen, "Accept": "text/event-stream"}),
            ]
            answered = await owner.post(place.url, json=LIST, headers=stolen)

            assert [answer.status_code for answer in refused] == [404, 404, 404]
            assert (answered.status_code, "give_back" in answered.text) == (200, True)
            place.home.must("POST", f"/v1/sessions/{begun['id']}/end", {})
            assert (await owner.post(place.url, json=LIST, headers=stolen)).status_code == 401


@pytest.mark.abuse_case("A1")
@pytest.mark.jail
async def test_an_invalid_token_is_refused(place: Place) -> None:
    """Both eras refuse it instead of treating the request as the session `local`."""
    with anyio.fail_after(DEADLINE_S):
        for token in ("x", "ail_" + "A" * 43):
            async with place.client(token) as nobody:
                for headers in (ACCEPT, {**ACCEPT, "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}):
                    answer = await nobody.post(place.url, json={**LIST, "params": {"_meta": MODERN}}, headers=headers)
                    assert answer.status_code == 401, answer.text


@pytest.mark.abuse_case("A3")
@pytest.mark.jail
@pytest.mark.parametrize("over", [1, 2 * MAX_LINE_BYTES])
async def test_a_body_that_is_too_long_is_refused(place: Place, over: int) -> None:
    """The refusal is readable at any length, and the next request is answered. A body that just fits is taken."""
    fits = json.dumps(HELLO).encode().ljust(MAX_LINE_BYTES)
    with anyio.fail_after(DEADLINE_S):
        async with place.client(place.token()) as client:
            refused = await client.post(place.url, content=fits + b" " * over, headers=ACCEPT)
            fine = await client.post(place.url, content=fits, headers=ACCEPT)

            assert (refused.status_code, f"{MAX_LINE_BYTES} bytes" in refused.text) == (413, True)
            assert fine.status_code == 200


@pytest.mark.abuse_case("A4")
async def test_concurrent_requests_of_one_session_are_bounded() -> None:
    """The next request is refused; another session is served meanwhile, and later the same one again."""
    door = DictDoor(offered("slow"))
    door.hold = anyio.Event()
    refused = anyio.Event()
    statuses: list[int] = []

    def headers(session: str) -> dict[str, str]:
        modern = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "slow"}
        return {**ACCEPT, **modern, "X-Session": session}

    call = {"name": "slow", "arguments": {}, "_meta": MODERN}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    with anyio.fail_after(DEADLINE_S):
        async with running(door) as server:
            app = server.http_app()

            async def front(scope: Scope, receive: Receive, send: Send) -> None:
                session = dict(scope["headers"])[b"x-session"].decode()
                await app({**scope, "state": {"session": session} if session else {}}, receive, send)

            async with (
                httpx2.AsyncClient(transport=httpx2.ASGITransport(front), base_url="http://localhost") as client,
                anyio.create_task_group() as tasks,
            ):

                async def ask(session: str) -> None:
                    answer = await client.post("/mcp", json=message, headers=headers(session))
                    statuses.append(answer.status_code)
                    if answer.status_code == 429:
                        assert "64 requests" in json.loads(answer.text)["error"]["message"]
                        refused.set()

                for _ in range(65):
                    tasks.start_soon(ask, "ses-1")
                await refused.wait()
                tasks.start_soon(ask, "ses-2")
                while len(door.calls) < 65:
                    await anyio.lowlevel.checkpoint()
                assert statuses == [429]
                door.hold.set()
            async with httpx2.AsyncClient(transport=httpx2.ASGITransport(front), base_url="http://localhost") as client:
                again = await client.post("/mcp", json=message, headers=headers("ses-1"))
                nobody = await client.post("/mcp", json=message, headers=headers(""))

            assert sorted(statuses) == [200] * 65 + [429]
            assert sorted({call.session for call in door.calls}) == ["ses-1", "ses-2"]
            assert (again.status_code, nobody.status_code) == (200, 401)


class Exchange:
    """A request to the application itself, whose client may go away."""

    def __init__(self, body: bytes, headers: dict[str, str], session: str = "ses-1") -> None:
        raw = [(name.lower().encode(), value.encode()) for name, value in {"Host": "localhost", **headers}.items()]
        self.scope: Scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "path": "/mcp",
            "raw_path": b"/mcp",
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "headers": raw,
            "state": {"session": session},
        }
        self._body = body
        self._sent = False
        self.gone = anyio.Event()
        self.status = 0
        self.headers: dict[bytes, bytes] = {}

    async def served_by(self, app: ASGIApp) -> None:
        """Let the application answer the request."""
        await app(self.scope, self.receive, self.send)

    async def receive(self) -> Any:
        """Return the body, and after that the disconnection, once the client is gone."""
        if not self._sent:
            self._sent = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        """Keep the head of the response."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = dict(message["headers"])


async def test_the_bodies_of_one_session_are_bounded_together() -> None:
    """Eight megabytes are in progress, and a ninth is refused; later there is room again."""
    door = DictDoor(offered("slow"))
    door.hold = anyio.Event()
    call = {"name": "slow", "arguments": {"topic": "x" * (MAX_LINE_BYTES - 500)}, "_meta": MODERN}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).encode()
    headers = {**ACCEPT, "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "slow"}
    exchanges = [Exchange(body, headers) for _ in range(10)]
    with anyio.fail_after(DEADLINE_S):
        async with running(door) as server:
            app = server.http_app()
            async with anyio.create_task_group() as tasks:
                for exchange in exchanges[:8]:
                    tasks.start_soon(exchange.served_by, app)
                while len(door.calls) < 8:
                    await anyio.lowlevel.checkpoint()
                await exchanges[8].served_by(app)
                door.hold.set()
            await exchanges[9].served_by(app)

    assert [exchange.status for exchange in exchanges] == [200] * 8 + [429, 200]
    assert len(door.calls) == 9


async def test_a_call_stops_waiting_when_its_client_disconnects() -> None:
    """The newer era cancels HTTP calls this way; the run itself may continue."""
    door = DictDoor(offered("slow"))
    door.hold = anyio.Event()
    call = {"name": "slow", "arguments": {}, "_meta": MODERN}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    headers = {**ACCEPT, "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "slow"}
    with anyio.fail_after(DEADLINE_S):
        async with running(door) as server, anyio.create_task_group() as tasks:
            exchange = Exchange(json.dumps(message).encode(), headers)
            tasks.start_soon(exchange.served_by, server.http_app())
            await door.begun.wait()
            assert not door.cancelled.is_set()
            exchange.gone.set()
            await door.cancelled.wait()


async def test_a_deleted_protocol_session_of_the_2025_protocol_is_forgotten() -> None:
    """The server sends it no news after DELETE, and its id is unknown."""
    with anyio.fail_after(DEADLINE_S):
        async with running(DictDoor(offered("a"))) as server:
            app = server.http_app()

            async def ask(message: object, method: str = "POST", **headers: str) -> Exchange:
                exchange = Exchange(json.dumps(message).encode(), {**ACCEPT, **headers})
                exchange.scope["method"] = method
                await app(exchange.scope, exchange.receive, exchange.send)
                return exchange

            opened = await ask(HELLO)
            session = {"Mcp-Session-Id": opened.headers[b"mcp-session-id"].decode()}
            await ask({"jsonrpc": "2.0", "method": "notifications/initialized"}, **session)
            while not server.told:
                await anyio.lowlevel.checkpoint()
            await ask(None, "DELETE", **session)
            while server.told:
                await anyio.lowlevel.checkpoint()
            await server.tools_changed()

            assert (opened.status, (await ask(LIST, **session)).status) == (200, 404)
