"""Who loses their place at a full door, and who never does."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream

from aileron.ingress import places
from aileron.ingress.places import place_of
from tests.ingress.conftest import Serving
from tests.support.waiting import give_turns

pytestmark = pytest.mark.anyio
DEADLINE_S = 20.0
ROOM = 12
SILENT = 4
_DRIPPING = b"POST /%s HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nx"
_ASKING = b"GET /%s HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A door of twelve places."""
    monkeypatch.setattr(places, "MAX_CONNECTIONS", ROOM)
    monkeypatch.setattr(places, "MAX_SILENT", SILENT)


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Knows whoever asks for /known; begins its answer to /answered at once, to others when it has their body."""
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
    """Those of one test."""

    def __init__(self, stack: AsyncExitStack, port: int) -> None:
        self._stack = stack
        self._port = port

    async def ask(self, first: bytes) -> SocketStream:
        """One more, whose first bytes have arrived."""
        client = await self._stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", self._port))
        if first:
            await client.send(first)
        await give_turns()
        return client

    async def fill(self, first: bytes, count: int = ROOM) -> list[SocketStream]:
        """Several, in order."""
        return [await self.ask(first) for _ in range(count)]


async def until_ended(client: SocketStream) -> None:
    """Wait until the server has ended it."""
    with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        while True:
            await client.receive()


async def are_left(*clients: SocketStream) -> bool:
    """Return whether the server has ended none of them, once it has ended those that it does."""
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
    """Whether it gets its answer, once the rest is sent."""
    if rest:
        await client.send(rest)
    found = b""
    while not found.endswith(b"ok"):
        found += await client.receive()
    return True


With = Callable[[Clients], Any]


async def at_a_door(serving: Serving, test: With) -> None:
    """With clients that are gone at the end."""
    with anyio.fail_after(DEADLINE_S):
        async with serving(app) as port, AsyncExitStack() as stack:
            await test(Clients(stack, port))


async def test_the_oldest_stranger_that_is_waited_for_goes(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    """And one more has a place; that is said once."""

    async def test(clients: Clients) -> None:
        strangers = await clients.fill(_DRIPPING % b"")
        with caplog.at_level(logging.WARNING, places.__name__):
            for _ in range(2):
                assert await is_answered(await clients.ask(_ASKING % b"known"))
        for stranger in strangers[:2]:
            await until_ended(stranger)
        assert await are_left(*strangers[2:])
        assert [record.message for record in caplog.records] == [
            "12 connections over TCP are open: for each more, the oldest without an open session ends"
        ]

    await at_a_door(serving, test)


async def test_who_shows_a_session_is_never_ended(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    """Not while they send, nor between two requests; where all do, one more is turned away."""

    async def test(clients: Clients) -> None:
        known = await clients.fill(_DRIPPING % b"known", 2)
        assert await is_answered(known[1], b"x")
        await clients.fill(_DRIPPING % b"", 2 * ROOM)
        assert await is_answered(known[0], b"x")
        assert await is_answered(known[1], _ASKING % b"known")
        await clients.fill(_DRIPPING % b"known", ROOM - 2)
        with caplog.at_level(logging.WARNING, places.__name__):
            await until_ended(await clients.ask(b""))

    await at_a_door(serving, test)


async def test_who_shows_none_afterwards_is_a_stranger_again(serving: Serving) -> None:
    """A session that was shown once keeps no place for ever."""

    async def test(clients: Clients) -> None:
        (first,) = await clients.fill(_ASKING % b"known", 1)
        assert await is_answered(first)
        await first.send(_DRIPPING % b"")
        await clients.fill(_DRIPPING % b"")
        await until_ended(first)

    await at_a_door(serving, test)


async def test_who_is_answered_goes_after_those_that_are_waited_for(serving: Serving) -> None:
    """But goes: else those that never read their answers would have all places."""

    async def test(clients: Clients) -> None:
        answered = await clients.fill(_DRIPPING % b"answered", 1)
        waited_for = await clients.fill(_DRIPPING % b"")
        await until_ended(waited_for[0])
        assert await are_left(answered[0])
        answered += await clients.fill(_DRIPPING % b"answered", ROOM)
        await until_ended(answered[0])

    await at_a_door(serving, test)


async def test_whoever_is_ended_waits_for_nothing_any_more(serving: Serving) -> None:
    """Else what they waited for would be all that bounds how many they are."""
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


async def test_of_those_that_ask_nothing_few_stay(serving: Serving) -> None:
    """However many places are left."""

    async def test(clients: Clients) -> None:
        silent = await clients.fill(b"", SILENT + 1)
        await until_ended(silent[0])
        assert await are_left(*silent[1:])
        assert await is_answered(await clients.ask(_ASKING % b""))

    await at_a_door(serving, test)
