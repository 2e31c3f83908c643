"""Responses that are available faster than they are sent do not keep others from their turn."""

from __future__ import annotations

import itertools
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from starlette.types import Message

from aileron.ingress.admission import Admission
from aileron.ingress.daemon_messages import Body, Head, encode
from aileron.ingress.forward import Forward

pytestmark = pytest.mark.anyio
PIECES = 64


def _scope() -> dict[str, Any]:
    return {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "path": "/v1/models",
        "raw_path": b"/v1/models",
        "query_string": b"",
        "headers": [],
        "client": ("127.0.0.1", 40000),
        "state": {},
    }


async def _received() -> Message:
    await anyio.sleep_forever()
    raise AssertionError("the client sends nothing more")


@asynccontextmanager
async def _served(send: Any) -> AsyncIterator[socket.socket]:
    """Yield the daemon's end of a forwarded request by an unknown client that accepts everything at once."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        forward = Forward("page", theirs, anyio.Lock(), Admission(["/v1/models"]))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(forward, _scope(), _received, send)
            await anyio.wait_readable(ours)
            _, (descriptor, *_), _, _ = socket.recv_fds(ours, 16, 1)
            with socket.socket(fileno=descriptor) as exchange:
                yield exchange
            tasks.cancel_scope.cancel()


async def test_other_tasks_run_between_two_parts_of_a_forwarded_response() -> None:
    """Reading never blocks because the whole response has arrived, so the task must yield explicitly."""
    passed: list[Message] = []
    ended = anyio.Event()

    async def send(message: Message) -> None:
        passed.append(message)
        if message["type"] == "http.response.body" and not message["more_body"]:
            ended.set()

    turns: list[int] = []
    async with _served(send) as exchange:
        exchange.send(encode(Head(200, [])))
        for number in range(PIECES):
            exchange.send(encode(Body(b"x", number < PIECES - 1)))
        with anyio.fail_after(30):
            while not ended.is_set():
                turns.append(len(passed))
                await anyio.lowlevel.checkpoint()
    turns.append(len(passed))
    assert turns[-1] == PIECES + 1
    assert max(now - before for before, now in itertools.pairwise(turns)) <= 1


async def test_a_response_arrives_complete_and_in_order() -> None:
    """This is the control: what the daemon sent is passed on."""
    passed: list[bytes] = []
    ended = anyio.Event()

    async def send(message: Message) -> None:
        passed.append(message.get("body", b""))
        if message["type"] == "http.response.body" and not message["more_body"]:
            ended.set()

    async with _served(send) as exchange:
        for packet in (Head(200, []), Body(b"one", True), Body(b"two", False)):
            exchange.send(encode(packet))
        with anyio.fail_after(30):
            await ended.wait()
    assert passed == [b"", b"one", b"two"]
