"""The relay over HTTP: a real daemon's `/mcp`, and a server that answers or withholds what a test wants."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import queue
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import anyio
import pytest
import trustme
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from aileron.mcp.relay_http import Endpoint, Misconfigured, header_of
from tests.support.home import DaemonHome, daemon_home
from tests.support.ports import reserve_ports
from tests.support.relay import INITIALIZE, INITIALIZED, Agent, envelope
from tests.support.relay_kills import killed_at_random
from tests.support.upstream_http import CountingServer
from tests.support.waiting import wait_until

TOKEN = "ail_" + "k" * 43
LIST_CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
CALL = {"name": "send_mail", "arguments": {"to": "mira"}}
DEADLINE_S = 30.0

Handler = http.server.BaseHTTPRequestHandler
Reply = Callable[[Handler, dict[str, Any]], None]


class Scripted:
    """A server with scripted answers, `replies`; `seen` has each request: method, headers, message."""

    def __init__(self) -> None:
        self.replies: queue.SimpleQueue[Reply] = queue.SimpleQueue()
        self.seen: queue.SimpleQueue[tuple[str, dict[str, str], dict[str, Any]]] = queue.SimpleQueue()
        outer = self

        class Scribe(Handler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                message = json.loads(body) if body else {}
                headers = {name.lower(): value for name, value in self.headers.items()}
                outer.seen.put((self.command, headers, message))
                with contextlib.suppress(OSError):
                    outer.replies.get(timeout=DEADLINE_S)(self, message)

            do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - the names are the standard library's

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        class Server(http.server.ThreadingHTTPServer):
            request_queue_size = 128
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                """Ignore a client that has gone: tests here kill theirs."""

        self._server = Server(("127.0.0.1", 0), Scribe)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def then(self, *replies: Reply) -> None:
        """Answer the next requests with these replies, in order."""
        for reply in replies:
            self.replies.put(reply)

    def next(self) -> tuple[str, dict[str, str], dict[str, Any]]:
        """Return the next request."""
        return self.seen.get(timeout=DEADLINE_S)


def whole(status: int, body: Any, kind: str = "application/json", **headers: str) -> Reply:
    """Return a reply with one body; without an `id` of its own it gets the request's."""

    def reply(handler: Handler, message: dict[str, Any]) -> None:
        sent = {"jsonrpc": "2.0", "id": message.get("id"), **body} if isinstance(body, dict) else body
        data = json.dumps(sent).encode() if not isinstance(sent, bytes) else sent
        handler.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(data)

    return reply


def stream(*messages: dict[str, Any] | None) -> Reply:
    """Return a reply of events until the connection ends; None stands for the answer."""

    def reply(handler: Handler, message: dict[str, Any]) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Connection", "close")
        handler.end_headers()
        for event in messages:
            answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message.get("id"), "result": {}}
            handler.wfile.write(
                b": ping\r\n\r\nevent: message\r\ndata: " + json.dumps(event or answer).encode() + b"\r\n\r\n"
            )
        handler.wfile.flush()
        handler.close_connection = True

    return reply


def hang_up(handler: Handler, _message: dict[str, Any]) -> None:
    """Read the request, and hang up."""
    handler.close_connection = True


accepted = whole(202, b"")


@pytest.fixture
def server() -> Iterator[Scripted]:
    """Listen where the daemon would."""
    with Scripted() as made:
        yield made


@pytest.fixture
def folder() -> Iterator[Path]:
    """Name a home that does not exist: over HTTP none is needed."""
    path = Path(tempfile.mkdtemp(prefix="ail-"))
    yield path / "none"
    assert not (path / "none").exists()
    shutil.rmtree(path)


@pytest.fixture
def agent(folder: Path, server: Scripted) -> Iterator[Agent]:
    """Start a relay of that server, with the test as its client."""
    with Agent(folder, AILERON_URL=server.url, AILERON_SESSION_TOKEN=TOKEN) as running:
        yield running


def greeted(agent: Agent, server: Scripted, *, is_streaming: bool = False) -> None:
    """Complete the handshake of the 2025 protocol; the standing stream is refused unless it is asked for."""
    server.then(whole(200, {"result": {"protocolVersion": "2025-11-25"}}, Mcp_Session_Id="one"), accepted)
    if not is_streaming:
        server.then(whole(405, b""))
    assert agent.initialize()["result"] == {"protocolVersion": "2025-11-25"}
    for method in ("POST", "POST", *(() if is_streaming else ("GET",))):
        assert server.next()[0] == method


# Requests


def test_requests_of_the_2026_protocol_repeat_their_method_and_name_in_headers(agent: Agent, server: Scripted) -> None:
    """The headers also have the version and, each time, the token, but no protocol session."""
    server.then(whole(200, {"result": {}}))
    agent.ask("tools/call", envelope(name="sänd", arguments={}))
    _, headers, message = server.next()

    assert headers["authorization"] == f"Bearer {TOKEN}"
    assert headers["accept"] == "application/json, text/event-stream"
    assert headers["mcp-protocol-version"] == "2026-07-28"
    assert headers["mcp-method"] == "tools/call"
    assert headers["mcp-name"] == "=?base64?c8OkbmQ=?="
    assert "mcp-session-id" not in headers
    assert message["params"]["name"] == "sänd"


@pytest.mark.parametrize(
    "name", ["plain", "", " edge", "edge ", "ü", "=?base64?eA==?=", "a\tb", "~!@#$%^&*()", "\ud800"]
)
def test_a_tool_name_is_encoded_in_a_header_as_the_sdk_encodes_it(name: str) -> None:
    """The protocol defines how a tool's name is encoded; both refuse a name that is not valid text."""
    from mcp.shared.inbound import encode_header_value

    try:
        expected: str | None = encode_header_value(name)
    except UnicodeEncodeError:
        expected = None
    if expected is None:
        with pytest.raises(UnicodeEncodeError):
            header_of(name)
    else:
        assert header_of(name) == expected


def test_requests_of_the_2025_protocol_carry_a_session_id(agent: Agent, server: Scripted) -> None:
    """The relay sends session id and version after the handshake, and deletes the session at the end."""
    greeted(agent, server)
    server.then(whole(200, {"result": {}}), accepted)
    agent.ask("tools/list")
    _, headers, _ = server.next()
    assert (headers["mcp-session-id"], headers["mcp-protocol-version"]) == ("one", "2025-11-25")
    assert "mcp-method" not in headers

    agent.close()
    method, headers, _ = server.next()
    assert (method, headers["mcp-session-id"]) == ("DELETE", "one")
    assert agent.wait() == (0, "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_relay_and_deletes_the_session(
    agent: Agent, server: Scripted, number: signal.Signals, code: int
) -> None:
    """Agents end their servers with signals."""
    greeted(agent, server)
    server.then(accepted)
    agent.signal(number)
    assert server.next()[0] == "DELETE"
    assert agent.wait() == (code, "")


# Responses


def test_the_relay_accepts_answers_as_json_or_as_server_sent_events(agent: Agent, server: Scripted) -> None:
    """Notifications on the way are passed on too."""
    progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}}
    server.then(
        whole(200, {"result": {"a": 1}}), stream(progress, None), whole(200, b'{"jsonrpc":"2.0",\n"id":3,"result":{}}')
    )
    assert agent.ask("tools/list", envelope())["result"] == {"a": 1}
    assert agent.ask("tools/list", envelope())["result"] == {}
    assert agent.others == [progress]
    assert agent.ask("tools/list", envelope())["result"] == {}


def test_notifications_from_the_daemon_arrive_over_http(agent: Agent, server: Scripted) -> None:
    """The 2025 protocol has a standing stream for them, opened after the handshake and again when it ends."""
    server.then(
        whole(200, {"result": {"protocolVersion": "2025-11-25"}}, Mcp_Session_Id="one"),
        accepted,
        stream(LIST_CHANGED),
        stream(LIST_CHANGED),
        whole(405, b""),
    )
    agent.initialize()

    assert agent.receive() == LIST_CHANGED
    assert agent.receive() == LIST_CHANGED
    seen = [server.next() for _ in range(5)]
    assert [method for method, _, _ in seen] == ["POST", "POST", "GET", "GET", "GET"]
    assert seen[2][1]["accept"] == "text/event-stream"
    assert seen[2][1]["mcp-session-id"] == "one"


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (
            whole(401, {"error": {"class": "unauthorized", "message": "no"}}),
            "`aileron sessions new`, where the daemon is, makes another",
        ),
        (
            whole(403, b"served under another name\n", "text/plain"),
            "the daemon answered 403: served under another name",
        ),
        (
            whole(500, {"id": None, "error": {"code": -32603, "message": "the server's own words"}}),
            "the server's own words",
        ),
        (whole(302, b"", Location="http://127.0.0.1:1/mcp"), "the daemon answered 302"),
        (whole(202, b""), "the daemon answered 202"),
        (whole(200, b"<html>", "text/html"), "the daemon answered with text/html"),
        (whole(200, b"[]"), "the daemon's answer is no message"),
    ],
)
def test_the_client_gets_one_error_for_any_unusable_http_response(
    agent: Agent, server: Scripted, reply: Reply, words: str
) -> None:
    """The client gets one error, which says what to do about it."""
    server.then(reply)
    assert words in agent.ask("tools/call", envelope(**CALL))["error"]["message"]
    assert server.next()
    assert server.seen.empty()


def test_an_invalid_message_is_answered_by_the_relay(agent: Agent, server: Scripted) -> None:
    """The response equals that of the protocol's server; the next request passes."""
    agent.write(b"[1]\nnot json\n" + b'{"jsonrpc":"2.0","id":null,"method":"ping"}\n')
    assert [agent.receive()["error"]["code"] for _ in range(3)] == [-32700, -32700, -32600]

    agent.send({"jsonrpc": "2.0", "id": "x", "method": "tools/list\r\nX: y", "params": envelope()})
    assert agent.receive()["error"]["code"] == -32600
    server.then(whole(200, {"result": {}}))
    assert "result" in agent.ask("tools/list", envelope())


def test_the_relay_over_http_works_with_nonblocking_standard_streams(folder: Path, server: Scripted) -> None:
    """Some programs start a server with such pipes: the relay waits for them."""
    code = (
        "import os, sys; [os.set_blocking(fd, False) for fd in (0, 1)]; "
        "from aileron.mcp.relay import main; sys.exit(main())"
    )
    given = {"AILERON_URL": server.url, "AILERON_SESSION_TOKEN": TOKEN}
    server.then(whole(200, {"result": {"text": "x" * 500_000}}))
    with Agent(folder, program=[sys.executable, "-c", code], **given) as agent:
        number = agent.request("tools/call", envelope(**CALL))
        server.next()
        assert len(agent.answer(number)["result"]["text"]) == 500_000
        agent.close()
        assert agent.wait() == (0, "")


# The loss of the daemon


def test_a_call_whose_http_response_is_lost_is_not_sent_again(agent: Agent, server: Scripted) -> None:
    """The agent is told that the outcome is unknown; a safe request is sent again."""
    server.then(hang_up)
    error = agent.ask("tools/call", envelope(**CALL))["error"]
    assert error["data"] == {"retriable": False, "class": "outcome_unknown"}
    assert server.next()
    assert server.seen.empty()

    server.then(hang_up, stream(), whole(200, {"result": {}}))
    assert "result" in agent.ask("tools/list", envelope())
    assert [server.next()[2]["method"] for _ in range(3)] == ["tools/list"] * 3


def test_a_truncated_answer_leaves_the_outcome_of_the_call_unknown(agent: Agent, server: Scripted) -> None:
    """The body is shorter than its declared length."""

    def half(handler: Handler, _message: dict[str, Any]) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b'{"jsonrpc":"2.0","id":1,"result":{}}')
        handler.close_connection = True

    server.then(half)
    assert agent.ask("tools/call", envelope(**CALL))["error"]["data"]["class"] == "outcome_unknown"


def test_a_lost_protocol_session_is_replaced_invisibly_for_the_client(agent: Agent, server: Scripted) -> None:
    """The restarted daemon does not know the session. The refused call is not resent; its error allows a retry."""
    greeted(agent, server)
    server.then(
        whole(404, {"error": {"code": -32600, "message": "Session not found"}}),
        whole(200, {"result": {"protocolVersion": "2025-11-25"}}, Mcp_Session_Id="two"),
        accepted,
        whole(200, {"result": {}}),
    )
    error = agent.ask("tools/call", CALL)["error"]
    assert error["data"] == {"retriable": True}
    assert "nothing was done" in error["message"]
    assert "result" in agent.ask("tools/call", CALL)
    assert agent.others == [LIST_CHANGED]
    seen = [server.next() for _ in range(4)]
    assert [message["method"] for _, _, message in seen] == [
        "tools/call",
        "initialize",
        "notifications/initialized",
        "tools/call",
    ]
    assert seen[1][2]["params"] == INITIALIZE
    assert seen[3][1]["mcp-session-id"] == "two"


def test_a_safe_request_is_resent_in_the_new_session(agent: Agent, server: Scripted) -> None:
    """The restarted daemon does not know the old session; the client gets the list all the same."""
    greeted(agent, server)
    server.then(
        whole(404, b"{}"),
        whole(200, {"result": {"protocolVersion": "2025-11-25"}}, Mcp_Session_Id="two"),
        accepted,
        whole(200, {"result": {"tools": []}}),
    )
    assert agent.ask("tools/list")["result"] == {"tools": []}


def test_a_subscription_is_opened_again(agent: Agent, server: Scripted) -> None:
    """The client sees no second acknowledgement, but a notification that the tools may have changed."""
    meta = {"io.modelcontextprotocol/subscriptionId": 1}
    acknowledged = {
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": {"notifications": {"toolsListChanged": True}, "_meta": meta},
    }
    server.then(stream(acknowledged), hang_up, stream(acknowledged), stream(acknowledged, None))
    number = agent.request("subscriptions/listen", envelope(notifications={"toolsListChanged": True}))
    assert agent.receive() == acknowledged
    for _ in range(2):
        assert agent.receive() == {**LIST_CHANGED, "params": {"_meta": meta}}
    assert "result" in agent.answer(number)


def test_cancelling_a_call_in_the_2026_protocol_closes_its_connection(agent: Agent, server: Scripted) -> None:
    """The protocol of 2026 cancels this way; there is no answer, and no notification."""
    gone = threading.Event()

    def wait(handler: Handler, _message: dict[str, Any]) -> None:
        handler.connection.settimeout(DEADLINE_S)
        if handler.connection.recv(1) == b"":
            gone.set()
        handler.close_connection = True

    server.then(wait)
    number = agent.request("tools/call", envelope(**CALL))
    server.next()
    agent.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
    assert gone.wait(DEADLINE_S)
    assert agent.is_quiet(0.1)
    assert server.seen.empty()


def test_cancelling_a_call_in_the_2025_protocol_sends_a_notification(agent: Agent, server: Scripted) -> None:
    """A closed connection would mean nothing in that era."""
    greeted(agent, server)
    held = threading.Event()

    def hold(handler: Handler, message: dict[str, Any]) -> None:
        held.wait(DEADLINE_S)
        whole(200, {"result": {}})(handler, message)

    server.then(hold)
    number = agent.request("tools/call", CALL)
    server.next()
    server.then(accepted)
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}
    agent.send(cancelled)
    assert server.next()[2] == cancelled
    held.set()
    agent.answer(number)


def test_concurrent_requests_are_bounded(agent: Agent, server: Scripted) -> None:
    """The sixty-fifth request is refused, not queued."""
    held = threading.Event()

    def hold(handler: Handler, message: dict[str, Any]) -> None:
        held.wait(DEADLINE_S)
        whole(200, {"result": {}})(handler, message)

    server.then(*[hold] * 64)
    numbers = [agent.request("tools/call", envelope(**CALL)) for _ in range(64)]
    for _ in numbers:
        server.next()
    assert "at most 64 requests" in agent.ask("tools/call", envelope(**CALL))["error"]["message"]
    held.set()
    for number in numbers:
        assert "result" in agent.answer(number)


# The URL and the token


@pytest.mark.parametrize(
    "url",
    [
        "http://192.0.2.1:80",
        "http://localhost.example:80",
        "http://127.0.0.1.example",
        "ftp://localhost",
        "https://",
        "https://a/b",
        "https://a?b",
        "https://a#b",
        "https://user:hunter2@a",
        "https://a:99999",
        "https://a:b",
        "http://[::1",
        "localhost:80",
        "",
    ],
)
def test_the_relay_accepts_only_https_urls_and_loopback_http_urls(url: str) -> None:
    """HTTPS may go anywhere, HTTP only to this machine; the URL has nothing but the address."""
    with pytest.raises(Misconfigured) as told:
        Endpoint(url)
    assert "hunter2" not in str(told.value)
    for good in (
        "http://localhost:1",
        "http://127.0.0.1:1/",
        "http://[::1]:1",
        "https://aileron.test",
        "https://192.0.2.1:8443",
    ):
        assert Endpoint(good).url == good.rstrip("/")


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"AILERON_URL": "http://192.0.2.1:80"}, "https://HOST:PORT"),
        ({"AILERON_SESSION_TOKEN": ""}, "AILERON_SESSION_TOKEN is not set"),
        ({"AILERON_SESSION_TOKEN": "a b"}, "AILERON_SESSION_TOKEN is not a session's token"),
        (
            {"AILERON_URL": "https://127.0.0.1:1", "AILERON_CA_FILE": "/nowhere"},
            "AILERON_CA_FILE '/nowhere' cannot be used",
        ),
        (
            {"AILERON_URL": "https://127.0.0.1:1", "AILERON_CA_FILE": "/dev/null"},
            "AILERON_CA_FILE '/dev/null' cannot be used",
        ),
    ],
)
def test_a_mistake_in_the_environment_variables_of_the_relay_is_reported_to_the_client(
    folder: Path, environment: dict[str, str], words: str
) -> None:
    """An agent shows its person the answer to `initialize`, but seldom what is on standard error."""
    given = {"AILERON_URL": "http://127.0.0.1:1", "AILERON_SESSION_TOKEN": TOKEN, **environment}
    with Agent(folder, **given) as agent:
        assert words in agent.ask("initialize", INITIALIZE)["error"]["message"]
        agent.send(INITIALIZED)
        agent.close()
        code, said = agent.wait()
    assert code == 69
    assert words in said
    assert said.count("\n") == 1
    assert TOKEN not in said


# With a real daemon


def environment_of(home: DaemonHome) -> dict[str, str]:
    """Return the environment of a session's agent."""
    session = home.must("POST", "/v1/sessions", {"agent": "test", "folder": "/"})
    return {"AILERON_URL": home.must("GET", "/v1/status")["web"], "AILERON_SESSION_TOKEN": session["token"]}


@pytest.mark.jail
@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_the_sdk_client_survives_a_killed_daemon(home: DaemonHome, folder: Path, mode: str) -> None:
    """The client lists and calls; the daemon is killed and started again; the client lists and calls again."""
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "aileron.mcp.relay"],
        env={**os.environ, **environment_of(home), "AILERON_HOME": str(folder)},
    )

    def again() -> None:
        home.kill()
        home.unlock()

    async def agent() -> tuple[list[str], list[str]]:
        said = []
        with anyio.fail_after(60):
            async with Client(stdio_client(parameters), mode=mode) as client:
                names = [sorted(tool.name for tool in (await client.list_tools()).tools)]
                said.append((await client.call_tool("give_back", {"text": "one"})).structured_content)
                await anyio.to_thread.run_sync(again)
                names.append(sorted(tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools))
                said.append((await client.call_tool("give_back", {"text": "two"})).structured_content)
        assert names[0] == names[1]
        return names[0], [answer["result"]["text"] for answer in said if answer is not None]

    names, texts = anyio.run(agent)
    assert {"give_back", "fetch", "list_pending"} <= set(names)
    assert texts == ["one", "two"]


@pytest.mark.jail
def test_a_call_interrupted_by_a_kill_is_answered_with_outcome_unknown(
    home: DaemonHome, folder: Path, upstream: CountingServer
) -> None:
    """The call is not repeated, and the connection is usable again, as over the socket."""
    path = f"/slow?{time.monotonic_ns()}"
    with Agent(folder, **environment_of(home)) as agent:
        agent.initialize()
        number = agent.request("tools/call", {"name": "fetch", "arguments": {"path": path}})
        wait_until(lambda: path in [seen[1] for seen in upstream.requests], "the service is asked")
        home.kill()
        error = agent.answer(number)["error"]
        home.unlock()
        listed = agent.ask("tools/list")

    assert error["data"]["class"] == "outcome_unknown"
    assert "give_back" in [tool["name"] for tool in listed["result"]["tools"]]
    assert [seen[1] for seen in upstream.requests].count(path) == 1


@pytest.mark.abuse_case("A26")
@pytest.mark.jail
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_randomly_killing_the_daemon_never_causes_a_second_effect_over_http(
    home: DaemonHome, folder: Path, upstream: CountingServer
) -> None:
    """Each call has at most one effect, and an answered one exactly one; some calls were answered and some lost, as a control."""
    with Agent(folder, **environment_of(home)) as agent:
        told, lost = killed_at_random(agent, home, upstream)

    assert told
    assert lost


@pytest.mark.jail
@pytest.mark.slow
@pytest.mark.parametrize("era", ["2025", "2026"])
def test_a_new_action_is_announced_over_http_before_and_after_a_daemon_restart(
    home: DaemonHome, folder: Path, era: str
) -> None:
    """The news comes on the standing stream, or on the subscription."""
    with Agent(folder, **environment_of(home)) as agent:
        if era == "2025":
            agent.initialize()
            agent.ask("tools/list")
        else:
            agent.request("subscriptions/listen", envelope(notifications={"toolsListChanged": True}))
            assert agent.receive()["method"] == "notifications/subscriptions/acknowledged"
        until_told(agent, home)
        home.stop()
        home.unlock()
        assert agent.receive()["method"] == LIST_CHANGED["method"]
        until_told(agent, home)


def until_told(agent: Agent, home: DaemonHome) -> None:
    """Add actions until one is announced: the older era opens its stream at some time, and no message says that it stands."""

    def is_told() -> bool:
        home.add_probe_action("give_back", name=f"new-{time.monotonic_ns()}")
        with contextlib.suppress(TimeoutError):
            assert agent.receive(2.0)["method"] == LIST_CHANGED["method"]
            return True
        return False

    wait_until(is_told, "a new action is told")


@pytest.mark.jail
def test_an_agent_of_an_ended_session_is_told_what_to_do(home: DaemonHome, folder: Path) -> None:
    """The message does not contain the token."""
    environment = environment_of(home)
    with Agent(folder, **environment) as agent:
        agent.initialize()
        assert "result" in agent.ask("tools/list")
        session = home.must("GET", "/v1/sessions")["sessions"][0]
        home.must("POST", f"/v1/sessions/{session['id']}/end", {"exit_code": 0})
        error = agent.ask("tools/call", {"name": "give_back", "arguments": {"text": "x"}})["error"]

    assert "`aileron sessions new`, where the daemon is, makes another" in error["message"]
    assert environment["AILERON_SESSION_TOKEN"] not in json.dumps(error)


@pytest.mark.jail
def test_the_servers_certificate_is_verified(folder: Path) -> None:
    """The authority must be known to the relay; without it, the client is told to set AILERON_CA_FILE."""
    authority = trustme.CA()
    with daemon_home() as home, tempfile.TemporaryDirectory() as place:
        issued = authority.issue_cert("127.0.0.2")
        Path(place, "cert.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(f"{place}/key.pem")
        Path(place, "key.pem").chmod(0o600)
        authority.cert_pem.write_to_path(f"{place}/ca.pem")
        (port,) = reserve_ports(1, "127.0.0.2")
        home.configure(
            f'[daemon]\nlisten = "127.0.0.2:{port}"\n'
            f'certificate = "{place}/cert.pem"\ncertificate_key = "{place}/key.pem"\n'
        )
        environment = {**environment_of(home), "AILERON_URL": f"https://127.0.0.2:{port}"}
        with Agent(folder, **environment, AILERON_CA_FILE=f"{place}/ca.pem") as agent:
            assert "result" in agent.initialize()
        with Agent(folder, **environment) as agent:
            answer = agent.ask("initialize", INITIALIZE)
            assert "set AILERON_CA_FILE" in answer["error"]["message"]
            agent.close()
            assert agent.wait() == (69, "")


@pytest.mark.parametrize(
    ("line", "request_id"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":', 7),
        (b'{"method":"tools/call","params":{"id":1,"x":"' + b"z" * (17 << 20) + b'"},"id":"last"}', "last"),
    ],
    ids=["broken", "too long"],
)
def test_a_line_that_the_relay_refuses_is_answered_with_the_id_of_that_line(
    agent: Agent, server: Scripted, line: bytes, request_id: int | str
) -> None:
    """A client waits for a response with the id that it chose; the next request is passed on."""
    agent.write(line + b"\n")
    refused = agent.receive()
    assert (refused["id"], "error" in refused) == (request_id, True)

    server.then(whole(200, {"result": {}}))
    agent.ask("tools/call", envelope(name="x", arguments={}))
    assert server.next()[2]["params"]["name"] == "x"
