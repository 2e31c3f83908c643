"""Connections that lose their place when a port is full, and those that never do."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream

from aileron.ingress import connection_places
from aileron.ingress.connection_places import Bounded, Places, place_of
from tests.ingress.conftest import Serving
from tests.support.waiting import give_turns

pytestmark = [pytest.mark.anyio, pytest.mark.abuse_case("A32")]
DEADLINE_S = 20.0
ROOM = 12
SILENT = 4
_DRIPPING = b"POST /%s HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nx"
_ASKING = b"GET /%s HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the bounds to twelve connections and four silent ones."""
    monkeypatch.setattr(connection_places, "MAX_CONNECTIONS", ROOM)
    monkeypatch.setattr(connection_places, "MAX_SILENT", SILENT)


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Show a session for /known. Begin the response to /answered at once, and to other paths after their body."""
    if scope["path"] == "/known":
        place = place_of(scope)
        assert place is not None
        place.shows_session()
    head = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
    if scope["path"] == "/answered":
        await send(head)
        await send({"type": "http.response.body", "body": b"o", "more_body": True})
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        if not message["more_body"]:
            break
    if scope["path"] != "/answered":
        await send(head)
        await send({"type": "http.response.body", "body": b"o", "more_body": True})
    await send({"type": "http.response.body", "body": b"k"})


class Clients:
    """The clients of a test."""

    def __init__(self, stack: AsyncExitStack, port: int) -> None:
        self._stack = stack
        self._port = port

    async def ask(self, first: bytes) -> SocketStream:
        """Connect a further client, and return it once its first bytes have arrived."""
        client = await self._stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", self._port))
        if first:
            await client.send(first)
        await give_turns()
        return client

    async def fill(self, first: bytes, count: int = ROOM) -> list[SocketStream]:
        """Connect several clients, in order."""
        return [await self.ask(first) for _ in range(count)]


async def until_ended(client: SocketStream) -> None:
    """Wait until the server has closed the connection."""
    with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        while True:
            await client.receive()


async def are_left(*clients: SocketStream) -> bool:
    """Return whether the server keeps all of these connections open, once it has closed others."""
    ended = []

    async def note(client: SocketStream) -> None:
        await until_ended(client)
        ended.append(client)

    with anyio.move_on_after(0.1):
        async with anyio.create_task_group() as tasks:
            for client in clients:
                tasks.start_soon(note, client)
    return not ended


async def is_answered(client: SocketStream, rest: bytes = b"") -> bool:
    """Return whether the client gets its response after it has sent the rest."""
    if rest:
        await client.send(rest)
    found = b""
    while not found.endswith(b"ok"):
        found += await client.receive()
    return True


With = Callable[[Clients], Any]


async def at_a_door(serving: Serving, test: With) -> None:
    """Run the test with clients that are closed at the end."""
    with anyio.fail_after(DEADLINE_S):
        async with serving(app) as port, AsyncExitStack() as stack:
            await test(Clients(stack, port))


async def test_the_oldest_waiting_unknown_client_is_disconnected_for_a_new_one(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    """A further client gets the place; the log says so once."""

    async def test(clients: Clients) -> None:
        strangers = await clients.fill(_DRIPPING % b"")
        with caplog.at_level(logging.WARNING, connection_places.__name__):
            for _ in range(2):
                assert await is_answered(await clients.ask(_ASKING % b"known"))
        for stranger in strangers[:2]:
            await until_ended(stranger)
        assert await are_left(*strangers[2:])
        assert [record.message for record in caplog.records] == [
            "12 connections over TCP are open: for each more, the oldest without an open session ends"
        ]

    await at_a_door(serving, test)


async def test_a_client_with_a_session_is_never_disconnected(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    """This holds while it sends and between two requests; if all clients are known, a further one is turned away."""

    async def test(clients: Clients) -> None:
        known = await clients.fill(_DRIPPING % b"known", 2)
        assert await is_answered(known[1], b"x")
        await clients.fill(_DRIPPING % b"", 2 * ROOM)
        assert await is_answered(known[0], b"x")
        assert await is_answered(known[1], _ASKING % b"known")
        await clients.fill(_DRIPPING % b"known", ROOM - 2)
        with caplog.at_level(logging.WARNING, connection_places.__name__):
            await until_ended(await clients.ask(b""))

    await at_a_door(serving, test)


async def test_a_client_whose_later_request_has_no_session_is_unknown_again(serving: Serving) -> None:
    """Presenting a session once must not protect a connection forever."""

    async def test(clients: Clients) -> None:
        (first,) = await clients.fill(_ASKING % b"known", 1)
        assert await is_answered(first)
        await first.send(_DRIPPING % b"")
        await clients.fill(_DRIPPING % b"")
        await until_ended(first)

    await at_a_door(serving, test)


async def test_clients_with_a_response_in_progress_are_disconnected_last(serving: Serving) -> None:
    """They can be ended too: otherwise clients that never read their responses would take all places."""

    async def test(clients: Clients) -> None:
        answered = await clients.fill(_DRIPPING % b"answered", 1)
        waited_for = await clients.fill(_DRIPPING % b"")
        await until_ended(waited_for[0])
        assert await are_left(answered[0])
        answered += await clients.fill(_DRIPPING % b"answered", ROOM)
        await until_ended(answered[0])

    await at_a_door(serving, test)


async def test_the_application_of_an_ended_connection_is_cancelled(serving: Serving) -> None:
    """Otherwise only the end of its wait would bound their number."""
    waiting: list[str] = []
    over = anyio.Event()

    async def waits(scope: Any, receive: Any, send: Any) -> None:
        waiting.append(scope["path"])
        try:
            await over.wait()
        finally:
            waiting.remove(scope["path"])

    with anyio.fail_after(DEADLINE_S):
        async with serving(waits) as port, AsyncExitStack() as stack:
            clients = Clients(stack, port)
            for number in range(2 * ROOM):
                await clients.ask(_ASKING % str(number).encode())
            assert waiting == [f"/{number}" for number in range(ROOM, 2 * ROOM)]
            over.set()


async def test_only_a_few_connections_that_have_sent_no_request_are_kept(serving: Serving) -> None:
    """This limit applies even if there is room for more connections."""

    async def test(clients: Clients) -> None:
        silent = await clients.fill(b"", SILENT + 1)
        await until_ended(silent[0])
        assert await are_left(*silent[1:])
        assert await is_answered(await clients.ask(_ASKING % b""))

    await at_a_door(serving, test)


def test_a_connection_that_waited_for_the_server_has_tcp_nodelay_set() -> None:
    """A connection gets a listener's options when it is made, and a daemon's listeners listen before they are served."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()),
        Bounded(listener, Places()) as bounded,
        bounded.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
