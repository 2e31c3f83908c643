"""Tests of the connections of a cell's doors, relayed between real sockets: every byte, both ways, within bounded memory."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aileron.cell.loop import BUFFER, Loop
from aileron.cell.publish import Publish, Published, PublishRefused, parse_publish
from aileron.cell.relays import Door, Relays, unix_target
from tests.support.ports import reserve_ports
from tests.support.waiting import wait_still, wait_until

DEADLINE_S = 20.0


class Place:
    """Loop with doors, in a thread of its own; TCP or Unix listeners stand for those of a cell."""

    def __init__(self, *, most: int = 8) -> None:
        self.loop = Loop()
        self.relays = Relays(self.loop, most=most)
        self._undo = contextlib.ExitStack()
        self._wake, wake = socket.socketpair()
        self._undo.enter_context(self._wake)
        self._undo.enter_context(wake)
        self._is_over = False
        self.turns = 0
        self.loop.watch(wake.fileno(), 1, lambda _: self._end())
        self._thread = threading.Thread(target=self._run)

    def listener(self, path: Path | None = None) -> socket.socket:
        """Open a listener."""
        made = self._undo.enter_context(socket.socket(socket.AF_UNIX if path else socket.AF_INET))
        made.bind(str(path) if path else ("127.0.0.1", 0))
        made.listen(128)
        return made

    def published(self, publish: Publish) -> Published:
        """Publish a port until the place is closed."""
        return self._undo.enter_context(Published(publish))

    def start(self) -> None:
        """Start the loop."""
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over:
            self.loop.turn()
            self.turns += 1
        self.relays.close()
        self.loop.close()

    def _end(self) -> None:
        self._is_over = True

    def close(self) -> None:
        """Stop the loop and close everything."""
        self._wake.send(b"x")
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()
        self._undo.close()


@pytest.fixture
def place() -> Iterator[Place]:
    """Make a place for one test."""
    made = Place()
    yield made
    made.close()


def reached(listener: socket.socket) -> socket.socket:
    """Return a client's connection to the listener."""
    made = socket.socket(listener.family)
    made.settimeout(DEADLINE_S)
    made.connect(listener.getsockname())
    return made


def accepted(listener: socket.socket) -> socket.socket:
    """Return the listener's next connection."""
    listener.settimeout(DEADLINE_S)
    made, _ = listener.accept()
    made.settimeout(DEADLINE_S)
    return made


def everything(connection: socket.socket) -> bytes:
    """Return the bytes that arrive until the end of the stream."""
    parts = []
    while part := connection.recv(1 << 20):
        parts.append(part)
    return b"".join(parts)


def test_an_event_of_a_closed_descriptor_is_not_delivered_to_a_new_descriptor_with_its_number() -> None:
    """A handler closes two descriptors that have events too, and opens new ones that get their numbers."""
    loop, told = Loop(), list[int]()
    with contextlib.ExitStack() as stack:
        pairs = [stack.enter_context(end) for _ in range(3) for end in socket.socketpair()]
        watched, first, second = [pair.fileno() for pair in pairs[::2]]

        def replace(_: int) -> None:
            for end in pairs[2::2]:
                loop.watch(end.fileno(), 0, told.append)
                end.close()
            opened = [stack.enter_context(end) for end in socket.socketpair()]
            assert {end.fileno() for end in opened} == {first, second}
            for end in opened:
                loop.watch(end.fileno(), 1, told.append)

        loop.watch(watched, 1, replace)
        for descriptor in (first, second):
            loop.watch(descriptor, 1, told.append)
        for end in pairs[1::2]:
            end.send(b"x")
        loop.turn()
        assert told == []
        loop.close()


@pytest.fixture(params=["tcp", "unix"])
def door(request: pytest.FixtureRequest, place: Place, tmp_path: Path) -> tuple[socket.socket, socket.socket]:
    """Return (the cell's listener, the target's listener), with a door between them and the loop running."""
    inside = place.listener(tmp_path / "in" if request.param == "unix" else None)
    target = place.listener(tmp_path / "out")
    place.relays.serve([inside], Door("agent", unix_target(str(tmp_path / "out"))))
    place.start()
    return inside, target


def test_every_byte_arrives_in_both_directions_at_once(door: tuple[socket.socket, socket.socket]) -> None:
    """32 MiB go up and down at the same time, each followed by the end of the stream."""
    up, down = os.urandom(1 << 20) * 32, os.urandom(1 << 20) * 32
    inside, target = door
    with reached(inside) as client, accepted(target) as server:
        got: dict[str, bytes] = {}

        def send(connection: socket.socket, data: bytes) -> None:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)

        threads = [
            threading.Thread(target=send, args=(client, up)),
            threading.Thread(target=send, args=(server, down)),
            threading.Thread(target=lambda: got.update(up=everything(server))),
            threading.Thread(target=lambda: got.update(down=everything(client))),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)

    assert hashlib.sha256(got["up"]).digest() == hashlib.sha256(up).digest()
    assert hashlib.sha256(got["down"]).digest() == hashlib.sha256(down).digest()


def test_a_client_that_has_finished_sending_still_gets_its_answer(
    place: Place, door: tuple[socket.socket, socket.socket]
) -> None:
    """The end of one direction reaches the other side, and the answer comes back; then no connection is left."""
    inside, target = door
    with reached(inside) as client, accepted(target) as server:
        client.sendall(b"question")
        client.shutdown(socket.SHUT_WR)
        asked = everything(server)
        server.sendall(b"answer")
        server.shutdown(socket.SHUT_WR)

        assert (asked, everything(client)) == (b"question", b"answer")
        wait_until(lambda: place.relays.connections == 0, "no connection is left")


@pytest.mark.parametrize("goes", ["client", "server"])
def test_closing_one_end_of_a_relayed_connection_closes_the_other_end(
    place: Place, door: tuple[socket.socket, socket.socket], goes: str
) -> None:
    """The close arrives even if the closed end had unread data."""
    inside, target = door
    with reached(inside) as client, accepted(target) as server:
        gone, other = (client, server) if goes == "client" else (server, client)
        other.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                other.send(b"x" * 65536)
        gone.close()

        def is_over() -> bool:
            try:
                return other.send(b"x") < 0
            except BlockingIOError:
                return False
            except (BrokenPipeError, ConnectionResetError):
                return True

        wait_until(is_over, "the other end is closed")
    wait_until(lambda: place.relays.connections == 0, "no connection is left")


@pytest.mark.parametrize("goes", ["client", "server"])
def test_data_sent_before_a_close_arrives(place: Place, tmp_path: Path, goes: str) -> None:
    """An early error response, for example, arrives even if the request's rest can no longer be delivered."""
    inside, target = place.listener(tmp_path / "in"), place.listener(tmp_path / "out")
    place.relays.serve([inside], Door("agent", unix_target(str(tmp_path / "out"))))
    with reached(inside) as client:
        place.loop.turn(DEADLINE_S)
        with accepted(target) as server:
            going, other = (client, server) if goes == "client" else (server, client)
            other.sendall(b"more")  # so that it is passed on before the answer is
            going.sendall(b"a last word")
            going.close()
            place.start()

            assert everything(other) == b"a last word"
    wait_until(lambda: place.relays.connections == 0, "no connection is left")


def test_a_slow_reader_makes_the_sender_wait(door: tuple[socket.socket, socket.socket]) -> None:
    """Each direction buffers a bounded amount (backpressure), and the other direction continues."""
    inside, target = door
    with reached(inside) as client, accepted(target) as server:
        client.setblocking(False)
        sizes: list[int] = []

        def send() -> int:
            with contextlib.suppress(BlockingIOError):
                while True:
                    sizes.append(client.send(b"x" * 65536))
            return sum(sizes)

        sent = wait_still(send, "the sender waits")
        server.sendall(b"the other way")
        client.settimeout(DEADLINE_S)

        assert client.recv(100) == b"the other way"
        assert sent < 16 * (1 << 20) + BUFFER
        client.shutdown(socket.SHUT_WR)
        assert len(everything(server)) == sent


def test_a_doors_preamble_reaches_the_target_first_and_never_enters_the_cell(place: Place, tmp_path: Path) -> None:
    """The target reads it before the client's bytes. Printing a door does not show it."""
    inside, target = place.listener(), place.listener(tmp_path / "out")
    door = Door("mcp", unix_target(str(tmp_path / "out")), preamble=b"token ail_secret\n")
    place.relays.serve([inside], door)
    place.start()
    with reached(inside) as client, accepted(target) as server:
        assert server.recv(17, socket.MSG_WAITALL) == b"token ail_secret\n"
        client.sendall(b"hello")
        assert server.recv(5, socket.MSG_WAITALL) == b"hello"
        server.sendall(b"back")
        server.close()
        assert everything(client) == b"back"
    assert "ail_secret" not in repr(door)


def test_a_doors_target_that_restarts_within_the_timeout_is_reached(place: Place, tmp_path: Path) -> None:
    """The relay retries, so a client does not notice that the daemon restarts."""
    inside = place.listener()
    place.relays.serve([inside], Door("agent", unix_target(str(tmp_path / "late"))))
    place.start()
    with reached(inside) as client:
        client.sendall(b"early")
        wait_until(lambda: place.relays.connections == 1, "the connection is accepted")
        target = place.listener(tmp_path / "late")
        with accepted(target) as server:
            assert server.recv(5, socket.MSG_WAITALL) == b"early"


def test_a_target_that_stays_unreachable_closes_the_connection(place: Place, tmp_path: Path) -> None:
    """The connection closes after the door's timeout and not before."""
    inside = place.listener()
    place.relays.serve([inside], Door("agent", unix_target(str(tmp_path / "never")), patience_s=0.3))
    place.start()
    began = time.monotonic()
    with reached(inside) as client:
        assert everything(client) == b""
    assert time.monotonic() - began >= 0.3
    wait_until(lambda: place.relays.connections == 0, "no connection is left")


def test_a_door_limits_its_connections_and_queues_the_next(place: Place, tmp_path: Path) -> None:
    """The queued connection is not lost, and other doors are not affected."""
    inside, target = place.listener(), place.listener(tmp_path / "out")
    other = place.listener()
    to_target = unix_target(str(tmp_path / "out"))
    place.relays.serve([inside], Door("tunnel", to_target))
    place.relays.serve([other], Door("mcp", to_target))
    place.start()
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(reached(inside)) for _ in range(9)]
        servers = [stack.enter_context(accepted(target)) for _ in range(8)]
        target.settimeout(0.3)
        with pytest.raises(TimeoutError):
            target.accept()
        assert place.relays.connections == 8
        with reached(other) as through, accepted(target) as answering:
            through.sendall(b"x")
            assert answering.recv(1) == b"x"
        for end in (clients[0], servers[0]):
            end.close()
        with accepted(target) as ninth:
            clients[8].sendall(b"ninth")
            assert ninth.recv(5, socket.MSG_WAITALL) == b"ninth"


def test_a_new_connection_waits_until_a_file_descriptor_is_free(place: Place, tmp_path: Path) -> None:
    """The loop does not spin, and accepts the connection once descriptors are free."""
    inside, target = place.listener(), place.listener(tmp_path / "out")
    place.relays.serve([inside], Door("agent", unix_target(str(tmp_path / "out"))))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with reached(inside) as client:
        lowest = os.dup(0)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
        try:
            place.start()
            wait_still(lambda: place.turns, "the loop rests")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        client.sendall(b"x")
        with accepted(target) as server:
            assert server.recv(1) == b"x"


def test_each_turn_of_the_relays_event_loop_passes_many_bytes(
    place: Place, door: tuple[socket.socket, socket.socket]
) -> None:
    """Bytes per turn do not depend on the machine's load: a turn takes some 20 µs."""
    inside, target = door
    size = 32 << 20
    with reached(inside) as client, accepted(target) as server:
        reader = threading.Thread(target=lambda: everything(server))
        reader.start()
        before = place.turns
        client.sendall(b"x" * size)
        client.shutdown(socket.SHUT_WR)
        reader.join(DEADLINE_S)

    assert size / (place.turns - before) > 16_384


# --publish


@pytest.mark.parametrize(
    ("text", "publish"),
    [("3000", Publish(3000, 3000)), ("8080:3000", Publish(8080, 3000)), ("1:65535", Publish(1, 65535))],
)
def test_a_port_to_publish_is_parsed(text: str, publish: Publish) -> None:
    """A port, or a pair of ports, is accepted."""
    assert parse_publish(text) == publish


@pytest.mark.parametrize(
    "text", ["", "0", "65536", "1:0", "a", "3000:", ":3000", "1:2:3", "-1", "127.0.0.1:80", "１", " 1", "1\n"]
)
def test_an_invalid_port_is_refused(text: str) -> None:
    """The error says what is expected."""
    with pytest.raises(ValueError, match="is not a port: use "):
        parse_publish(text)


def test_a_published_port_is_reached_only_from_loopback(place: Place) -> None:
    """Both loopback addresses lead to the given port in the cell; another address of this machine does not."""
    server = place.listener()
    asked: list[int] = []

    def connect(port: int) -> socket.socket:
        asked.append(port)
        return socket.create_connection(server.getsockname(), 5)

    published = place.published(Publish(reserve_ports(1)[0], 3000))
    place.relays.serve(published.listeners, published.door(connect))
    place.start()
    for listener in published.listeners:
        with reached(listener) as client, accepted(server) as answering:
            client.sendall(b"GET")
            assert answering.recv(3, socket.MSG_WAITALL) == b"GET"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", published.publish.host_port), 5)
    assert asked == [3000] * len(published.listeners)


def test_a_connection_to_a_published_port_without_a_server_closes_at_once(place: Place) -> None:
    """A connection to a port without a server fails outside a cell, too; it is not retried."""
    asked: list[int] = []

    def connect(port: int) -> socket.socket:
        asked.append(port)
        raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody")

    published = place.published(Publish(reserve_ports(1)[0], 3000))
    place.relays.serve(published.listeners, published.door(connect))
    place.start()
    with reached(published.listeners[0]) as client:
        assert everything(client) == b""
    assert asked == [3000]


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_port_in_use_is_reported_with_the_next_port_as_a_fix(address: str) -> None:
    """Either address may be in use; a socket that was opened for the other is closed again."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as taken:
        taken.bind((address, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PublishRefused) as refused:
            Published(Publish(port, 3000))

    assert refused.value.what == f"port {port} is in use on this machine"
    assert refused.value.fix == f"choose another, such as --publish {port + 1}:3000"
    Published(Publish(port, 3000)).close()
