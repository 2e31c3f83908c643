"""Connectors that send any frames on a WebSocket, in any order: each ends in a known way, and the service stays reachable.

The path is the daemon's, from the bytes of a frame to the wire: the decoder, the session, the broker, and egress.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

import anyio
import msgspec
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aileron.egress import Meter
from aileron.executor.broker import Broker
from aileron.model.failure import AileronError, FailureClass
from aileron.model.manifest import LimitsSpec
from aileron.model.names import HostPort
from aileron.model.plan import ConnectorPin, Grant, Step
from aileron_sandbox.frames import (
    Cancel,
    Decoder,
    FrameError,
    FromJail,
    HostSession,
    HttpRequest,
    Invoke,
    Refused,
    TcpOpen,
    ToJail,
    WebSocketClose,
    WebSocketOpen,
    WebSocketOpened,
)
from tests.egress.conftest import HOST, World
from tests.support.websocket_server import WebSocketServer

Said = dict[str, Any]
Script = list[tuple[Said, bytes]]
ENDS: Final = {"closed", "refused", "broke the protocol", FailureClass.RESOURCE_LIMIT_EXCEEDED.value}
INVOKE: Final = Invoke(protocol=1, op="x", args={}, hosts=[], invocation="i", deadline_ms=1000)


class Daemon:
    """An egress with an event loop of its own, and a service that echoes."""

    def __init__(self, world: World, port: int, portal: BlockingPortal) -> None:
        self._grant: Final = world.grant(HostPort(HOST, port), plain=True)  # TLS would be most of the time
        self._url: Final = f"ws://{HOST}:{port}/echo/c"
        self._world: Final = world
        self._portal: Final = portal

    def run(self, script: Script) -> str:
        """Return how a connector ends that opens a WebSocket and then sends this."""
        return self._portal.call(self._run, script)

    async def _run(self, script: Script) -> str:
        with anyio.fail_after(15):
            return await Jail(self._world, self._grant).say([framed(*said) for said in script], self._url)


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """Start one for all examples."""
    with WebSocketServer(None) as server, start_blocking_portal() as portal:
        world = portal.call(World, None)
        yield Daemon(world, server.port, portal)
        portal.call(world.egress.aclose)
        assert world.vault.out == 0, "a loan was not given back"


def framed(header: Said, body: bytes) -> bytes:
    """Pack a frame with any header."""
    packed = msgspec.msgpack.encode(header)
    return struct.pack("!II", len(packed), len(body)) + packed + body


class Jail:
    """A connector's end of a broker: its frames go in as bytes, and the messages to it are tracked."""

    def __init__(self, world: World, grant: Grant) -> None:
        pin = ConnectorPin("github://a/b", "1.0.0", "sha256:" + "0" * 64)
        step = Step(id="s", connector=pin, op="x", args={}, idempotent=True, grant=grant, limits=LimitsSpec())
        self._session, self._decoder = HostSession(), Decoder(FromJail)
        self._session.sending(INVOKE)
        deadline = anyio.current_time() + world.timeout_s
        self._broker = Broker(world.egress, step, Meter(grant.budget), world.journal, deadline, self._told)
        self._opened = anyio.Event()
        self._is_over = anyio.Event()
        self._said_end = False
        self.end = ""

    async def say(self, frames: list[bytes], url: str) -> str:
        """Open a WebSocket, send these frames once it is open, leave as a process does, and return how it ended."""
        opening: Said = {"type": "websocket_open", "id": 1, "url": url, "headers": []}
        async with anyio.create_task_group() as tasks:
            await self._act(framed(opening, b""), tasks)
            await self._opened.wait()
            try:
                for frame in frames:
                    await self._act(frame, tasks)
            except FrameError:
                self.end = "broke the protocol"
            else:
                if not self._said_end:
                    await self._broker.finish()
                await self._is_over.wait()
            tasks.cancel_scope.cancel()
        return self.end

    async def _act(self, data: bytes, tasks: anyio.abc.TaskGroup) -> None:
        self._decoder.feed(data)
        frame = self._decoder.next_frame()
        assert frame is not None
        self._session.received(frame)
        match frame.message:
            case WebSocketOpen() | HttpRequest() | TcpOpen() as request:
                self._broker.accept(request)
                tasks.start_soon(self._serve, request)
            case message:
                self._said_end |= isinstance(message, WebSocketClose | Cancel) and message.id == 1
                await self._broker.deliver(frame)

    async def _serve(self, request: Any) -> None:
        try:
            await self._broker.serve(request, b"")
        except AileronError as error:
            self.end = error.failure.failure_class.value
        self._opened.set()
        self._is_over.set()

    async def _told(self, message: ToJail, body: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        self._session.sending(message)
        match message:
            case WebSocketOpened():
                self._opened.set()
            case WebSocketClose():
                self.end = "closed"
            case Refused():
                self.end = "refused"


ids = st.sampled_from([1, 1, 1, 1, 1, 2])
messages = st.tuples(
    st.fixed_dictionaries(
        {"type": st.just("websocket_message"), "id": ids, "text": st.booleans(), "more": st.booleans()}
    ),
    st.binary(max_size=8) | st.text(max_size=4).map(str.encode) | st.just(bytes(200)),
)
codes = st.none() | st.integers(998, 5002) | st.integers(-(2**63), 2**64 - 1)
closes = st.fixed_dictionaries(
    {"type": st.just("websocket_close"), "id": ids}, optional={"code": codes, "reason": st.text(max_size=200)}
)
others = st.fixed_dictionaries({"type": st.sampled_from(["cancel", "chunk"]), "id": ids})
scripts = st.lists(messages | messages | st.tuples(closes | others, st.just(b"")), max_size=6)


def close(**said: object) -> Script:
    """Return a script that closes the WebSocket like this."""
    return [({"type": "websocket_close", "id": 1, **said}, b"")]


WELL: Final[Script] = [
    ({"type": "websocket_message", "id": 1, "text": True}, b"hello"),
    *close(code=1000, reason="done"),
]


@pytest.mark.abuse_case("X1")
@given(scripts)
@example(close(reason="a reason without a code"))
@settings(deadline=None)
def test_any_frames_of_a_connector_end_in_one_of_the_known_outcomes(daemon: Daemon, script: Script) -> None:
    """Afterwards, a well-behaved WebSocket through the same egress still works."""
    assert daemon.run(script) in ENDS
    assert daemon.run(WELL) == "closed"


ODD: Final[dict[str, tuple[Script, str]]] = {
    "a reason without a code": (close(reason="x"), "broke the protocol"),
    "a code that means no code": (close(code=1005), "broke the protocol"),
    "a code of a broken connection": (close(code=1006), "broke the protocol"),
    "a code nobody has defined": (close(code=2000), "broke the protocol"),
    "a code that does not fit": (close(code=65536), "broke the protocol"),
    "no code": (close(), "closed"),
    "a code of IANA's": (close(code=1013), "closed"),
    "a code of its own, and a long reason": (close(code=4999, reason="€" * 100), "closed"),
    "text and binary in one message": (
        [({"type": "websocket_message", "id": 1, "text": text, "more": text}, b"x") for text in (True, False)],
        "broke the protocol",
    ),
    "text that is none": ([({"type": "websocket_message", "id": 1, "text": True}, b"\xff")], "refused"),
}


@pytest.mark.parametrize(("script", "end"), ODD.values(), ids=ODD)
def test_a_message_that_a_websocket_cannot_carry_is_refused_on_arrival(
    daemon: Daemon, script: Script, end: str
) -> None:
    """Each case has its own end; odd but legal messages are the control."""
    assert daemon.run(script) == end
