"""Attacks of connectors by a WebSocket: by its messages, by its handshake, and by never coming to an end.

A connector without the SDK writes frames of its choosing (connectors/hostile); a real server is at the other end. Attacks by
a hostile service are in tests/egress/test_egress_websocket_hostile.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from aileron.client import Answer
from tests.attacks.hostile import HostileHome, hostile_home, is_ended_for, kind_of
from tests.attacks.tally import Attack
from tests.support.websocket_server import WebSocketServer

pytestmark = pytest.mark.jail
BROKEN: Final = "connector_runtime_error"
TALK: Final = 'send(websocket(1, "/echo/control")); receive(); send(said(1, b"hello")); result(receive()[1].decode())'
"""Source of an honest connector."""


@pytest.fixture(scope="module")
def server() -> Iterator[WebSocketServer]:
    """Start the server that the hostile connector may reach, without TLS."""
    with WebSocketServer(None) as running:
        yield running


@pytest.fixture(scope="module")
def hostile(server: WebSocketServer) -> Iterator[HostileHome]:
    """Provide one daemon for all tests, so that each meets what an earlier attack left behind."""
    with hostile_home(server.port) as home:
        yield home


def opened(then: str) -> str:
    """Return the source of a connector that does this once its WebSocket is open."""
    return f'send(websocket(1, "/echo/x")); receive(); {then}; stay()'


def closing(said: str) -> str:
    """Return the source of a connector that closes its WebSocket with these fields."""
    return opened(f'send(framed({{"type": "websocket_close", "id": 1, {said}}}))')


STREAMS: Final = {
    "text and binary in one message": (
        opened('send(said(1, b"x", more=True) + said(1, b"x", text=False))'), "text and binary",
    ),
    "a reason without a code": (closing('"reason": "r"'), "reason but without a code"),
    "a code that stands for none": (closing('"code": 1005'), "1005, which no end may send"),
    "a code that is reserved": (closing('"code": 2000, "reason": "r"'), "2000, which no end may send"),
    "a code that does not fit": (closing('"code": 65536'), "<= 4999"),
    "a message before it is open": (
        'send(websocket(1, "/echo/x") + said(1, b"x")); stay()', "does not expect one",
    ),
    "a message after its close": (
        opened('send(framed({"type": "websocket_close", "id": 1}) + said(1, b"x"))'), "does not expect one",
    ),
    "bytes of a body on it": (opened('send(framed({"type": "chunk", "id": 1}, b"x"))'), "does not expect one"),
    "33 of them at once": (
        'send(b"".join(websocket(n, "/echo/x") for n in range(1, 34))); stay()', "more than 32",
    ),
}  # fmt: skip


@pytest.mark.abuse_case("X1")
def test_an_invalid_websocket_frame_ends_its_own_run_with_a_reason(attack: Attack, hostile: HostileHome) -> None:
    """The failure is connector_runtime_error with the reason; the daemon serves the same connector right after it."""
    for name, (source, words) in STREAMS.items():
        attack.denied(name, BROKEN, is_ended_for(hostile.attack(source), words))
        attack.control("a message and its echo", "hello", _output(hostile.attack(TALK)))


HANDSHAKES: Final = {
    "another upgrade": ('headers=[("Upgrade", "h2c")]', "upgrade"),
    "a key of its own": ('headers=[("Sec-WebSocket-Key", "x")]', "upgrade"),
    "compression": ('headers=[("sec-websocket-extensions", "permessage-deflate")]', "upgrade"),
    "a field in a field": ('headers=[("X", "a\\r\\nSec-WebSocket-Key: x")]', "header_value"),
    "a field in a subprotocol": ('subprotocols=["chat.v1\\r\\nX-Injected: 1"]', "header_value"),
    "subprotocols in one": ('subprotocols=["chat.v1, chat.v2"]', "header_value"),
    "a host that is not granted": ('url="ws://127.0.0.2:80/"', "host_not_granted"),
    "a host in the userinfo": ('url="ws://localhost@127.0.0.2/"', "url_userinfo"),
    "another scheme": ('url="http://localhost/"', "url_scheme"),
    "a credential that is not there": ('credential="mtls"', "credential_not_granted"),
}


@pytest.mark.abuse_case("X2")
def test_a_websocket_handshake_contains_only_checked_header_fields(
    attack: Attack, hostile: HostileHome, server: WebSocketServer
) -> None:
    """The denial has its reason, and no connection is made; an allowed field and subprotocol arrive."""
    for name, (field, reason) in HANDSHAKES.items():
        answer = hostile.attack(f'send(websocket(1, "/echo/denied", {field})); stay()')
        attack.denied(name, ("capability_denied", reason), (kind_of(answer), _reason(answer)))
    attack.denied("reaching the server with one of these", False, "denied" in server.asked)
    allowed = 'headers=[("Origin", "https://app.example.com")], subprotocols=["chat.v1"]'
    answer = hostile.attack(f'send(websocket(1, "/echo/allowed", {allowed})); result(receive()[0]["subprotocol"])')
    attack.control("a subprotocol that the server chose", "chat.v1", _output(answer))
    attack.control("the field", "https://app.example.com", server.asked["allowed"].headers["Origin"])


FLOODS: Final = {
    "large messages that nobody reads": (
        'send(websocket(1, "/deaf/x")); receive()\nd = said(1, bytes(1 << 20), text=False)\nwhile True: send(d)'
    ),
    "a message without an end": (
        'send(websocket(1, "/echo/x")); receive()\nd = said(1, b"x" * 60000, more=True)\nwhile True: send(d)'
    ),
    "empty parts": (
        'send(websocket(1, "/echo/x")); receive()\nd = said(1, b"", more=True) * 5000\nwhile True: send(d)'
    ),
    "messages whose echo is not taken": (
        'send(websocket(1, "/echo/x")); receive()\nd = said(1, bytes(1 << 18), text=False)\nwhile True: send(d)'
    ),
    "as many as there may be, all kept open": (
        'for n in range(1, 33): send(websocket(n, "/echo/x"))\nstay()'
    ),
    "opened and left": (
        'n = 0\nwhile True:\n    n += 1\n'
        '    send(websocket(n, "/echo/x") + framed({"type": "cancel", "id": n})); receive()'
    ),
}  # fmt: skip


@pytest.mark.abuse_case("X3")
@pytest.mark.slow
def test_connectors_that_flood_by_websocket_are_ended_by_a_limit_and_honest_runs_finish(
    attack: Attack, hostile: HostileHome, server: WebSocketServer
) -> None:
    """All run at once: each ends by a limit, and an honest run of another connector succeeds meanwhile."""
    hurried = hostile.hurried(server.port, timeout_s=3)
    with ThreadPoolExecutor(len(FLOODS)) as pool:
        under_way = {name: pool.submit(hurried.attack, source) for name, source in FLOODS.items()}
        attack.control("an honest run beside all of them", "beside", hostile.honest("beside"))
        for name, future in under_way.items():
            answer = future.result()
            attack.denied(f"a flood of {name}", "resource_limit_exceeded", kind_of(answer))
    attack.control("a message and its echo after them", "hello", _output(hostile.attack(TALK)))


def _output(answer: Answer) -> object:
    return answer.body.get("result", answer.body)


def _reason(answer: Answer) -> object:
    error = answer.body.get("error", {})
    return error.get("reason") or error.get("details", {}).get("reason")
