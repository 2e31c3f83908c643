"""Clients that disconnect are noticed while their response is made, whatever they sent ahead; a further request in time
is answered.
"""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream

from aileron.ingress.one_at_a_time import MAX_AHEAD
from tests.ingress.conftest import Serving
from tests.support.waiting import give_turns

pytestmark = pytest.mark.anyio
DEADLINE_S = 20.0
_PLAIN = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
_UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n"
)


class Endless:
    """A response without an end, until the application is told that its client has gone."""

    def __init__(self, fields: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        self.begun = anyio.Event()
        self.heard = anyio.Event()
        self._fields = fields

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle the ASGI request."""
        while (await receive()).get("more_body", False):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": list(self._fields)})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        self.begun.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        self.heard.set()


async def _asked(port: int, first: bytes) -> SocketStream:
    client = await anyio.connect_tcp("127.0.0.1", port)
    await client.send(first)
    return client


@pytest.mark.abuse_case("A32")
@pytest.mark.parametrize(
    ("first", "then"),
    [(_PLAIN, b""), (_UPGRADE, b""), (_PLAIN * 2, b""), (_PLAIN, _PLAIN), (_UPGRADE, b"\0" * 100)],
    ids=["a request", "an upgrade", "two at once", "one and then another", "an upgrade and its frames"],
)
async def test_the_application_is_told_when_its_client_disconnects(serving: Serving, first: bytes, then: bytes) -> None:
    """The application is told; otherwise it would send forever."""
    app = Endless()
    with anyio.fail_after(DEADLINE_S):
        async with serving(app) as port:
            async with await _asked(port, first) as client:
                await app.begun.wait()
                if then:
                    await client.send(then)
            await app.heard.wait()


async def test_a_client_that_pipelines_too_much_data_is_disconnected(serving: Serving) -> None:
    """Reading and discarding pipelined data costs time."""
    app = Endless()
    with anyio.fail_after(DEADLINE_S):
        async with serving(app) as port, await _asked(port, _PLAIN) as client:
            await app.begun.wait()
            await client.send(b"x" * MAX_AHEAD)
            with anyio.move_on_after(0.2) as waited:
                await app.heard.wait()
            assert waited.cancelled_caught, "as much as is allowed"
            await client.send(b"x")
            await app.heard.wait()


class Lingering:
    """An application that sends its whole response, but says that it is complete only when told to go on."""

    def __init__(self) -> None:
        self.go_on = anyio.Event()
        self.asked = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle the ASGI request."""
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body", False):
                break
        self.asked += 1
        said = b"%d bytes" % len(body)
        fields = [(b"content-length", b"%d" % len(said))]
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        if scope["method"] != "HEAD":
            await send({"type": "http.response.body", "body": said, "more_body": True})
        await self.go_on.wait()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
async def test_a_client_with_the_whole_response_can_send_another_request(serving: Serving, method: bytes) -> None:
    """The application has not yet reported the end of the response; the next request's body is not truncated."""
    app = Lingering()
    size = 300_000
    with anyio.fail_after(DEADLINE_S):
        async with (
            serving(app) as port,
            await _asked(port, method + b" / HTTP/1.1\r\nHost: a\r\n\r\n") as client,
            anyio.create_task_group() as tasks,
        ):
            found = await _until(client, b"0 bytes" if method == b"GET" else b"\r\n\r\n")
            assert b"connection: close" not in found.lower()
            again = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size
            tasks.start_soon(client.send, again)
            await give_turns()  # until it is at the server
            assert app.asked == 1
            app.go_on.set()
            found = await _until(client, b"%d bytes" % size)
            assert b"connection: close" not in found.lower()
    assert app.asked == 2


async def _until(client: SocketStream, end: bytes) -> bytes:
    found = b""
    while not found.endswith(end):
        found += await client.receive()
    return found
