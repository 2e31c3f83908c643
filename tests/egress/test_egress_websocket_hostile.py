"""Services that break the WebSocket protocol on purpose: each ends with its reason, and none blocks the engine."""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import given
from hypothesis import strategies as st
from wsproto.connection import Connection as Frames
from wsproto.connection import ConnectionType
from wsproto.events import BytesMessage, Event, Ping, Pong

from aileron.egress import Meter
from aileron.egress.dial import Wire
from aileron.egress.scrub import Needles
from aileron.egress.websocket_messages import Closed, Opened, Part, WebSocket
from aileron.model.failure import AileronError, Failure, FailureClass
from aileron.model.names import HostPort
from aileron.model.plan import Budget, Grant
from tests.egress.conftest import CANARY, HOST, World, use
from tests.egress.test_egress_websocket import broken, opened
from tests.support.upstream import CLOSE, Seen, Upstream, answer
from tests.support.waiting import wait_until_async

pytestmark = pytest.mark.anyio
MakeUpstream = Callable[..., Upstream]
TEXT, BINARY, CONTINUATION, CLOSING, PING = 0x81, 0x82, 0x00, 0x88, 0x89


def frame(head: int, payload: bytes = b"", *, length: int | None = None, mask: bytes = b"") -> bytes:
    """Return one frame, valid or not: `length` is its claimed length."""
    size = len(payload) if length is None else length
    masked = 0x80 if mask else 0
    if size < 126:
        return bytes([head, masked | size]) + mask + payload
    if size < 1 << 16:
        return bytes([head, masked | 126]) + struct.pack("!H", size) + mask + payload
    return bytes([head, masked | 127]) + struct.pack("!Q", size) + mask + payload


def upgraded(seen: Seen, *fields: str, accept: str | None = None) -> bytes:
    """Return the response to a handshake; it is right unless `accept` says otherwise."""
    (key,) = seen.values("Sec-WebSocket-Key")
    digest = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode(), usedforsecurity=False).digest()
    right = base64.b64encode(digest).decode()
    lines = ["HTTP/1.1 101 Switching Protocols", f"Sec-WebSocket-Accept: {right if accept is None else accept}"]
    return "\r\n".join([*lines, *(fields or ("Upgrade: websocket", "Connection: Upgrade"))]).encode() + b"\r\n\r\n"


def says(*frames: bytes) -> Callable[[Seen], Iterable[bytes]]:
    """Return a script that sends a handshake and these frames in one piece."""
    return lambda seen: [upgraded(seen) + b"".join(frames), CLOSE]


async def test_websocket_frames_that_arrive_with_the_handshake_are_read(
    world: World, tls_upstream: MakeUpstream
) -> None:
    """Positive control: a message and a close frame arrive in one packet with the response head."""
    with tls_upstream(says(frame(TEXT, b"hello"), frame(CLOSING, struct.pack("!H", 1000) + b"bye"))) as upstream:
        url, grant = f"wss://{HOST}:{upstream.port}/", world.grant_for(upstream)
        async with opened(world, url, grant) as talk:
            assert [await talk.receive(), await talk.receive()] == ["hello", Closed(1000, "bye")]


HANDSHAKES: dict[str, tuple[Callable[[Seen], bytes], str]] = {
    "a wrong accept": (lambda seen: upgraded(seen, accept="x" * 28), "does not fit this handshake"),
    "no accept": (lambda seen: upgraded(seen).replace(b"Sec-WebSocket-Accept", b"X-Accept"), "does not fit this handshake"),
    "compression": (
        lambda seen: upgraded(
            seen, "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Extensions: permessage-deflate"
        ),
        "extension",
    ),
    "another protocol": (lambda seen: upgraded(seen, "Upgrade: h2c", "Connection: Upgrade"), "another protocol"),
    "no upgrade": (lambda seen: upgraded(seen, "Connection: Upgrade"), "another protocol"),
    "no connection": (lambda seen: upgraded(seen, "Upgrade: websocket"), "another protocol"),
    "a subprotocol nobody asked for": (
        lambda seen: upgraded(seen, "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Protocol: x"),
        "not offered",
    ),
    "a line that ends in two ways": (
        lambda seen: upgraded(seen).replace(b"101 Switching Protocols\r\n", b"101 Switching Protocols\n"), "violated HTTP",
    ),
    "a head without end": (lambda seen: b"HTTP/1.1 101 Switching Protocols\r\nx: " + b"y" * 300_000, "violated HTTP"),
    "an undefined status": (lambda _seen: answer(b"", status="700 What"), "does not define"),
}  # fmt: skip


@pytest.mark.abuse_case("X4")
@pytest.mark.parametrize(("script", "words"), HANDSHAKES.values(), ids=HANDSHAKES)
async def test_a_bad_handshake_opens_no_websocket(
    world: World, tls_upstream: MakeUpstream, script: Callable[[Seen], bytes], words: str
) -> None:
    """The failure is a network_error, and recorded as one."""
    with tls_upstream(script) as upstream:
        error = await broken(world, f"wss://{HOST}:{upstream.port}/", world.grant_for(upstream))
    assert error.failure.failure_class is FailureClass.NETWORK_ERROR
    assert words in str(error)
    assert world.journal.last.failure is FailureClass.NETWORK_ERROR


def endless() -> Iterator[bytes]:
    """Yield fragments without content, for ever."""
    yield frame(0x01, b"a")
    while True:
        yield frame(CONTINUATION) * 1000


FRAMES: dict[str, tuple[Iterable[bytes], str]] = {
    "a masked frame": ([frame(TEXT, b"abcd", mask=b"\0\0\0\0")], "violated the WebSocket protocol"),
    "a reserved bit": ([frame(0xC1, b"x")], "violated the WebSocket protocol"),
    "an unknown opcode": ([frame(0x83, b"x")], "violated the WebSocket protocol"),
    "a continuation of nothing": ([frame(0x80, b"x")], "violated the WebSocket protocol"),
    "a message inside of a message": ([frame(0x01, b"x"), frame(TEXT, b"y")], "violated the WebSocket protocol"),
    "a ping in parts": ([frame(0x09, b"x")], "violated the WebSocket protocol"),
    "a long ping": ([frame(PING, b"x" * 126)], "violated the WebSocket protocol"),
    "a close of one byte": ([frame(CLOSING, b"x")], "violated the WebSocket protocol"),
    "a close with a reserved code": ([frame(CLOSING, struct.pack("!H", 1005))], "violated the WebSocket protocol"),
    "a reason that is no text": (
        [frame(CLOSING, struct.pack("!H", 1000) + b"\xff")],
        "violated the WebSocket protocol",
    ),
    "a text that is no text": ([frame(TEXT, b"\xff\xfe")], "violated the WebSocket protocol"),
    "a text that is cut": ([frame(TEXT, "€".encode()[:2])], "violated the WebSocket protocol"),
    "a length with the top bit": ([frame(BINARY, length=1 << 63)], "violated the WebSocket protocol"),
    "a huge frame": ([frame(BINARY, length=1 << 40), *([bytes(1 << 20)] * 20)], "more than 16 MiB"),
    "a huge message": ([frame(0x02), *([frame(CONTINUATION, bytes(1 << 20))] * 20)], "more than 16 MiB"),
    "a cut": ([frame(BINARY, b"xx", length=10), CLOSE], "without closing|connection was lost"),
}


@pytest.mark.abuse_case("X5")
@pytest.mark.parametrize(("frames", "words"), FRAMES.values(), ids=FRAMES)
async def test_a_service_that_breaks_the_protocol_is_disconnected(
    world: World, tls_upstream: MakeUpstream, frames: Iterable[bytes], words: str
) -> None:
    """The failure is a network_error, in Aileron's own words."""
    with tls_upstream(lambda seen: iter([upgraded(seen), *frames, CLOSE])) as upstream:
        error = await broken(world, f"wss://{HOST}:{upstream.port}/", world.grant_for(upstream))
    assert error.failure.failure_class is FailureClass.NETWORK_ERROR
    assert re.search(words, str(error)), error


@pytest.mark.abuse_case("X5")
@pytest.mark.parametrize("flood", [endless, lambda: iter(lambda: frame(PING) * 1000, b"")], ids=["fragments", "pings"])
async def test_empty_websocket_frames_count_against_the_byte_budget(
    world: World, tls_upstream: MakeUpstream, flood: Callable[[], Iterator[bytes]]
) -> None:
    """A flood of them would otherwise never end."""

    def script(seen: Seen) -> Iterator[bytes]:
        yield upgraded(seen)
        yield from flood()

    with tls_upstream(script) as upstream:
        grant = world.grant_for(upstream, budget=Budget(bytes_down=100_000))
        error = await broken(world, f"wss://{HOST}:{upstream.port}/", grant)
    assert error.failure.details["limit"] == "bytes_down"


@pytest.mark.abuse_case("X6")
@pytest.mark.parametrize("size", [1, 7, 1000], ids=str)
async def test_a_secret_split_over_many_fragments_is_masked(
    world: World, tls_upstream: MakeUpstream, size: int
) -> None:
    """The frames of a message are searched as one text, even with pings between them."""
    text = b"it is " + CANARY + b", he said"
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    frames = [frame(0x01, parts[0]), *(frame(PING) + frame(CONTINUATION, part) for part in parts[1:]), frame(0x80)]
    with tls_upstream(says(*frames, frame(CLOSING))) as upstream:
        world.vault.bound[HostPort(HOST, upstream.port)] = Needles([CANARY])
        async with opened(world, f"wss://{HOST}:{upstream.port}/", world.grant_for(upstream)) as talk:
            assert await talk.receive() == "it is " + "*" * len(CANARY) + ", he said"
            assert await talk.receive() == Closed(None, "")


@pytest.mark.abuse_case("X6")
async def test_a_compressed_message_with_a_secret_is_an_error(world: World, tls_upstream: MakeUpstream) -> None:
    """An HTTP body that is compressed without a label is treated alike; a message without a secret arrives."""
    for secret, is_let_in in ((CANARY, False), (b"nothing of the kind", True)):
        packed = gzip.compress(b"it is " + secret)
        with tls_upstream(says(frame(BINARY, packed), frame(CLOSING))) as upstream:
            world.vault.bound[HostPort(HOST, upstream.port)] = Needles([CANARY])
            url, grant = f"wss://{HOST}:{upstream.port}/", world.grant_for(upstream)
            if is_let_in:
                async with opened(world, url, grant) as talk:
                    assert await talk.receive() == packed
            else:
                assert "contains a secret" in str(await broken(world, url, grant))


@pytest.mark.abuse_case("X5")
async def test_a_service_that_does_not_answer_a_ping_is_disconnected(
    world: World, tls_upstream: MakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The WebSocket was open, and the service sent nothing."""
    monkeypatch.setattr("aileron.egress.websocket_messages.PING_EVERY_S", 0.05)
    monkeypatch.setattr("aileron.egress.websocket_messages.PONG_WITHIN_S", 0.1)
    with tls_upstream(upgraded) as upstream:
        error = await broken(world, f"wss://{HOST}:{upstream.port}/", world.grant_for(upstream))
    assert "did not answer a ping" in str(error)


async def test_incoming_websocket_frames_are_read_while_a_large_message_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The service reads nothing until its own message is read. One ping and one pong are owed, and follow the large message."""
    monkeypatch.setattr("aileron.egress.websocket_messages.PING_EVERY_S", 0.0)
    monkeypatch.setattr("aileron.egress.websocket_messages.PONG_WITHIN_S", 0.0)  # from when the ping is written
    near, service = socket.socketpair()
    near.setblocking(False)
    wire, meter, deadline = Wire(near), Meter(Budget()), anyio.current_time() + 10
    websocket = WebSocket(wire, wire, Opened((), None), HostPort(HOST, 443), meter, deadline, lambda: Needles([]))
    failures: list[AileronError] = []

    async def attend() -> None:
        try:
            await websocket.attend()
        except AileronError as error:
            failures.append(error)

    def has_read(pings: int) -> bool:
        return websocket.bytes_down == 3 * pings

    with near, service, anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(websocket.send, Part(bytes(1 << 20), is_text=False, is_last=True))
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(attend)
            for size, said in enumerate([frame(PING, b"1"), frame(PING, b"2")], 1):
                service.sendall(said)
                await wait_until_async(partial(has_read, size), "the ping is read")
            service.sendall(frame(BINARY, b"an answer"))
            assert await websocket.receive() == Part(b"an answer", is_text=False, is_last=True)

            frames, events = Frames(ConnectionType.SERVER), list[Event]()
            while Ping() not in events:
                await anyio.wait_readable(service)
                frames.receive_data(service.recv(1 << 20))
                events += frames.events()
    assert sum(len(event.data) for event in events if isinstance(event, BytesMessage)) == 1 << 20
    assert events[-2:] == [Pong(payload=b"2"), Ping()]
    assert ["did not answer a ping" in str(error) for error in failures] == [True]
    websocket.end()


@pytest.mark.parametrize("is_open", [False, True], ids=["in the handshake", "while it is open"])
async def test_a_websocket_that_is_cancelled_while_nothing_arrives_is_recorded(
    world: World, tls_upstream: MakeUpstream, is_open: bool
) -> None:
    """The row has the bytes so far, and the loan of the secret ends."""
    asked, over, reached = threading.Event(), threading.Event(), anyio.Event()

    def script(seen: Seen) -> Iterator[bytes]:
        if is_open:
            yield upgraded(seen)
        asked.set()
        over.wait(10)

    async def talk(url: str, grant: Grant) -> None:
        async with opened(world, url, grant, credential="api_key") as open_one:
            reached.set()
            await open_one.receive()

    with tls_upstream(script) as upstream:
        grant = world.grant_for(upstream, credential=use())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(talk, f"wss://{HOST}:{upstream.port}/", grant)
            assert await anyio.to_thread.run_sync(asked.wait, 10)
            if is_open:
                await reached.wait()
            tasks.cancel_scope.cancel()
        over.set()
    assert (world.journal.last.status, world.journal.last.failure) == (101 if is_open else None, FailureClass.CANCELLED)
    assert world.vault.out == 0


heads = st.sampled_from([0x01, TEXT, 0x02, BINARY, CONTINUATION, 0x80, CLOSING, PING, 0x8A, 0x83, 0xC1]) | st.integers(
    0, 255
)
payloads = st.binary(max_size=130) | st.sampled_from([b"\x03\xe8", b"\x03\xed", "€".encode()[:2], CANARY, bytes(3000)])
frames = st.builds(frame, heads, payloads) | st.builds(
    frame, heads, payloads, length=st.integers(0, 200), mask=st.sampled_from([b"", b"abcd"])
)


@pytest.fixture(scope="module")
def portal() -> Iterator[BlockingPortal]:
    """Start one event loop for all examples."""
    with start_blocking_portal() as running:
        yield running


@given(data=st.lists(frames | st.binary(max_size=20), max_size=8).map(b"".join), was_closed=st.booleans())
def test_any_bytes_of_a_service_give_websocket_messages_or_a_network_error(
    portal: BlockingPortal, data: bytes, was_closed: bool
) -> None:
    """The error has printable words only, and no secret comes out, even after this side has closed."""
    got, failure = portal.call(heard, data, was_closed)
    assert CANARY not in got
    assert failure is None or failure.failure_class is FailureClass.NETWORK_ERROR
    assert failure is None or failure.message.isprintable()


async def heard(data: bytes, was_closed: bool) -> tuple[bytes, Failure | None]:
    """Return the bytes that are given out of this data, and the failure, if there was one."""
    near, far = socket.socketpair()
    near.setblocking(False)
    far.sendall(data)
    far.shutdown(socket.SHUT_WR)
    needles, wire, meter, deadline = Needles([CANARY]), Wire(near), Meter(Budget()), anyio.current_time() + 5
    websocket = WebSocket(wire, wire, Opened((), None), HostPort(HOST, 443), meter, deadline, lambda: needles)
    got, failures = bytearray(), []

    async def attend() -> None:
        try:
            await websocket.attend()
        except AileronError as error:
            failures.append(error.failure)

    if was_closed:
        await websocket.close(1000, "")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(attend)
        with contextlib.suppress(anyio.EndOfStream):
            while isinstance(part := await websocket.receive(), Part):
                got += part.data + b"|" * part.is_last
    websocket.end()
    far.close()
    return bytes(got), failures[0] if failures else None
