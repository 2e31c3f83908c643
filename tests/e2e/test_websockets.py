"""WebSockets end to end: the SDK and the library `websockets` in the jail, a real server, the key in egress alone.

Not here: the search for the key (test_every_credential_leaves_nothing.py).
"""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.canary import scan
from tests.support.home import SECRET, DaemonHome
from tests.support.jailed_office import USERS, office
from tests.support.libraries import pack
from tests.support.upstream import Authority
from tests.support.websocket_server import LARGE_BYTES, WebSocketServer

pytestmark = pytest.mark.jail
CONNECTOR = "github://aileron-tests/websockets"
FIRST = "github://aileron-tests/websockets-first"
WITHOUT = "github://aileron-tests/without-websockets"
SOURCE = Path(__file__).resolve().parents[1] / "support" / "connectors" / "websockets"
OPERATIONS = {
    "talk": ("path:string", "messages:integer?", "credential:string?"),
    "listen": ("path:string", "credential:string?"),
    "large": ("path:string",),
    "wait": ("path:string", "seconds:integer"),
    "compute": ("path:string",),
    "leave": ("path:string",),
    "library": ("path:string", "key:string?", "subprotocol:string?"),
    "library_iterates": ("path:string",),
    "library_async": ("path:string", "messages:integer?", "subprotocol:string?"),
    "library_async_breaks": ("path:string",),
    "out_of_turn": ("path:string",),
    "elsewhere": ("url:string",),
}
_names = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[WebSocketServer, Authority]]:
    """Start one server for all tests of this file."""
    authority = Authority(tmp_path_factory.mktemp("ca"))
    with WebSocketServer(authority.server_context("localhost")) as running:
        running.accepted_token = SECRET.decode()
        yield running, authority


@pytest.fixture(scope="module", params=USERS)
def home(
    request: pytest.FixtureRequest,
    server: tuple[WebSocketServer, Authority],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[DaemonHome]:
    """Provide a home with the connector twice, with its key in a header and in the first message; an action for each
    operation.
    """
    running, authority = server
    source = tmp_path_factory.mktemp("connector") / "websockets"
    shutil.copytree(SOURCE, source)
    pack("websockets", source)
    with office(request, authority, f"localhost:{running.port}") as made:
        made.unlock()
        made.install(source, f"localhost:{running.port}")
        manifest = (source / "manifest.toml").read_text().replace(CONNECTOR, FIRST)
        manifest = re.sub(r"header = .*\nformat = .*", 'first_message = \'{"token": "{key}"}\'', manifest)
        (source / "manifest.toml").write_text(manifest)
        made.install(source, f"localhost:{running.port}")
        manifest = re.sub(r"\[capabilities.credential\][^\[]*", "", manifest.replace(FIRST, WITHOUT))
        (source / "manifest.toml").write_text(manifest.replace(', "websocket"', ""))
        made.install(source, f"localhost:{running.port}")
        for connector, name in ((CONNECTOR, "api_key/ws/me"), (FIRST, "api_key/wsfirst/me")):
            made.bind(connector, name)
        for op, inputs in OPERATIONS.items():
            made.add_probe_action(op, *inputs, connector=CONNECTOR)
        made.add_probe_action("first", "path:string", connector=FIRST)
        made.add_probe_action("elsewhere", "url:string", name="not-imported", connector=WITHOUT)
        yield made
        made.stop()
        assert scan([made.folder], SECRET) == {}


def path_to(what: str, query: str = "") -> tuple[str, str]:
    """Return the path of something that the server does, under a name used only once, and that name."""
    name = f"e{next(_names)}"
    return f"/{what}/{name}{query}", name


def done(home: DaemonHome, op: str, **args: Any) -> Any:
    """Run an operation that must succeed, and return its output."""
    found = home.run(op.replace("_", "-"), args)
    assert found.status == 200, found.body
    assert SECRET.decode() not in str(found.body)
    return found.body["result"]


def test_the_sdk_sends_and_receives_messages(home: DaemonHome, server: tuple[WebSocketServer, Authority]) -> None:
    """Text and binary messages pass; the record has the handshake's path, and no word of a message."""
    path, name = path_to("echo")
    found = home.run("talk", {"path": path, "messages": 3})

    assert found.body["result"] == {
        "heard": ["message 0", "message 1", "message 2", {"binary": 10}],
        "subprotocol": None,
    }
    assert server[0].asked[name].messages[0] == "message 0"
    events = home.events(found.body["audit_id"])
    (sending,) = [event for event in events if event["type"] == "egress.sending"]
    (finished,) = [event for event in events if event["type"] == "egress.finished"]
    assert (sending["method"], sending["path"]) == ("WEBSOCKET", path)
    assert finished["status"] == 101
    assert "message 0" not in str(events)


def test_the_key_is_added_to_the_websocket_handshake(home: DaemonHome) -> None:
    """The server accepts it; without the key its refusal is a response that the connector can read."""
    assert done(home, "talk", path=path_to("token")[0], credential="api_key")["heard"][0] == "message 0"
    assert done(home, "listen", path=path_to("token")[0]) == {"status": 401, "body": "who are you?"}


@pytest.mark.abuse_case("X7")
def test_the_key_is_added_to_the_first_websocket_message(
    home: DaemonHome, server: tuple[WebSocketServer, Authority]
) -> None:
    """The connector neither sends nor sees it."""
    path, name = path_to("first")
    assert done(home, "first", path=path) == {"heard": "welcome"}
    assert server[0].asked[name].messages == [f'{{"token": "{SECRET.decode()}"}}']


def test_a_key_echoed_by_the_websocket_server_is_masked(home: DaemonHome) -> None:
    """The server echoes the handshake. Pings never reach the jail; the connector learns why the stream closed."""
    reflected = done(home, "listen", path=path_to("reflect-once")[0], credential="api_key")
    assert "authorization: " + "*" * len(SECRET) in reflected["heard"][0].lower()
    assert done(home, "listen", path=path_to("ping-once")[0]) == {"heard": ["you are"], "code": 1000}
    closed = path_to("close", "?code=4001&reason=later")[0]
    assert done(home, "listen", path=closed) == {"code": 4001, "reason": "later"}


def test_websocket_messages_can_be_larger_than_a_frame_of_the_connector_protocol(home: DaemonHome) -> None:
    """Messages pass in parts, in both directions."""
    found = done(home, "large", path=path_to("large")[0])
    assert found == {"binary": LARGE_BYTES, "text": LARGE_BYTES // 3000 * 1000, "same": True}


def test_a_websocket_stays_open_while_the_connector_waits_or_computes(home: DaemonHome) -> None:
    """The stream stays open when no message comes in time; messages that are not read at once are kept."""
    assert done(home, "wait", path=path_to("echo")[0], seconds=1) == {"heard": "still there"}
    assert done(home, "compute", path=path_to("many", "?count=2000")[0]) == {"last": "1999"}


def test_websocket_messages_arrive_although_the_connector_ends_right_after_sending_them(
    home: DaemonHome, server: tuple[WebSocketServer, Authority]
) -> None:
    """The last message is still delivered, and the service sees that the connector went away."""
    path, name = path_to("echo")
    assert done(home, "leave", path=path) == "gone"
    assert server[0].closed(name) == 1001  # waited for: what was said came before
    assert server[0].asked[name].messages == ["good bye"]


@pytest.mark.parametrize("key", ["header", "query"])
def test_the_placeholder_that_the_websocket_library_sends_is_replaced_by_the_key(
    home: DaemonHome, server: tuple[WebSocketServer, Authority], key: str
) -> None:
    """The library has a placeholder; the server gets the real key, where the manifest puts it."""
    path, name = path_to("token")
    found = done(home, "library", path=path, key=key, subprotocol="chat.v1")

    heard = ["hello", {"binary": 2}, "in parts"]
    assert found == {"heard": heard, "status": 101, "subprotocol": "chat.v1", "code": 1000}
    assert server[0].asked[name].headers["Authorization"] == SECRET.decode()
    assert server[0].asked[name].headers["User-Agent"].startswith("Python/")


def test_the_websockets_library_raises_its_own_errors(home: DaemonHome) -> None:
    """The library raises for a refused handshake and a close with a code, and ends its loop at the end."""
    assert done(home, "library", path=path_to("token")[0], key="none") == {"status": 401, "body": "who are you?"}
    closing = path_to("close", "?code=4001&reason=later")[0]
    assert done(home, "library", path=closing) == {"error": 4001, "reason": "later"}
    assert done(home, "library_iterates", path=path_to("ping-once")[0]) == {"heard": ["you are"], "code": 1000}


def test_the_asynchronous_websockets_library_runs_several_websockets_in_one_event_loop(
    home: DaemonHome, server: tuple[WebSocketServer, Authority]
) -> None:
    """Five run in one event loop, with messages of several sizes; a refusal and a close raise the library's exceptions."""
    path, name = path_to("token")
    found = done(home, "library_async", path=path, messages=5, subprotocol="chat.v2")
    assert found == {"heard": [[True, True, True, "in parts", 4000, "chat.v2"]] * 5}
    assert server[0].closed(f"{name}4") == 4000
    assert server[0].asked[f"{name}4"].close_reason == "enough of 4"
    refused = done(home, "library_async", path=path_to("refuse", "?status=403&")[0])
    assert (refused["status"], refused["body"]) == (403, "no: " + "*" * len(SECRET))
    closing = path_to("close", "?code=4001&reason=later&")[0]
    assert done(home, "library_async", path=closing) == {"code": 4001, "reason": "later"}


def test_an_invalid_frame_raises_an_error_in_the_asynchronous_client_at_once(home: DaemonHome) -> None:
    """The bytes after an invalid frame cannot be parsed, so the client gets an error instead of waiting."""
    error = home.failed("library_async_breaks", path=path_to("echo")[0])
    assert error["class"] == "connector_runtime_error"
    assert "ConnectionClosedError: " in error["message"]


def test_a_websocket_to_a_destination_that_is_not_granted_ends_the_run(
    home: DaemonHome, server: tuple[WebSocketServer, Authority]
) -> None:
    """The cases are another host, a missing TLS, and a URL whose scheme is not a WebSocket's."""
    port = server[0].port
    for url, reason in (
        (f"wss://127.0.0.1:{port}/", "host_not_granted"),
        (f"ws://localhost:{port}/", "plain_http"),
        (f"https://localhost:{port}/", "url_scheme"),
    ):
        error = home.failed("elsewhere", url=url)
        assert (error["class"], error["details"]["reason"]) == ("capability_denied", reason)


@pytest.mark.abuse_case("X8")
def test_a_connector_that_does_not_declare_the_host_function_websocket_cannot_open_a_websocket(
    home: DaemonHome, server: tuple[WebSocketServer, Authority]
) -> None:
    """The tests above make the same request with a connector that imports it."""
    error = home.failed("not_imported", url=f"wss://localhost:{server[0].port}/echo/x")
    assert (error["class"], error["requested"]) == ("capability_denied", "function:websocket")


def test_a_message_sent_before_the_websocket_is_open_fails_the_run(home: DaemonHome) -> None:
    """The SDK never sends one, but a connector that is not in Python could."""
    error = home.failed("out_of_turn", path=path_to("echo")[0])
    assert "does not expect one" in error["message"]
