"""The process at the other end of a loopback connection: exactly one is named, or none."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from aileron.daemon.http.peer import NoPeer, Peer, peer_of, variable_of
from tests.support.descriptors import at_most, room_for

CLIENT = """
import encodings.idna, os, socket, sys
if "hidden" in sys.argv:
    import ctypes
    assert ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) == 0
if "other" in sys.argv:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
child = os.fork() if "shared" in sys.argv else 0
if child or "shared" not in sys.argv:
    print(connection.getsockname()[1], flush=True)
sys.stdin.read()
"""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user takes root")
as_a_user = pytest.mark.skipif(os.geteuid() == 0, reason="root looks into every process")


@pytest.fixture(params=["127.0.0.1", "::1"])
def server(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    """Start a listener on loopback."""
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.socket(family) as listener:
        listener.bind((request.param, 0))
        listener.listen()
        yield listener


@contextlib.contextmanager
def client(server: socket.socket, *how: str) -> Iterator[tuple[subprocess.Popen[str], tuple[str, int]]]:
    """Start a process with a connection, and yield it with its end's address."""
    address, port = server.getsockname()[:2]
    words = [sys.executable, "-c", CLIENT, address, str(port), *how]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        own = int(process.stdout.readline())
        accepted, _ = server.accept()
        with accepted:
            yield process, (address, own)
        process.communicate()


def place(server: socket.socket) -> tuple[str, int]:
    """Return the address of the listener."""
    found: Any = server.getsockname()
    return found[0], found[1]


def test_the_connected_process_is_identified_by_pid_and_start_time(server: socket.socket) -> None:
    """A process can choose its name, so that does not count; a second lookup gives the same result."""
    with client(server) as (process, end):
        found = peer_of(end, place(server))
        assert isinstance(found, Peer)
        assert found.pid == process.pid
        again = peer_of(end, place(server))
        assert isinstance(again, Peer)
        assert found.is_same(again)
        assert not found.is_same(found._replace(started=found.started + 1))
        assert found.is_same(found._replace(name="chromium"))
        with client(server) as (_, other):
            second = peer_of(other, place(server))
            assert isinstance(second, Peer)
            assert not found.is_same(second)


def test_a_process_can_be_the_peer_of_its_own_connection(server: socket.socket) -> None:
    """The process that asks holds the other end too."""
    with socket.create_connection(place(server)) as own:
        found = peer_of(own.getsockname()[:2], place(server))

    assert isinstance(found, Peer)
    assert found.pid == os.getpid()


def test_a_connection_that_two_processes_hold_has_no_identified_peer(server: socket.socket) -> None:
    """A forked child holds the connection as well, so either process may have sent the request."""
    with client(server, "shared") as (_, end):
        assert peer_of(end, place(server)) is NoPeer.SEVERAL


def test_looking_up_a_peer_without_a_free_descriptor_raises_an_error(server: socket.socket) -> None:
    """A result of `no peer` would be wrong: without a descriptor the list of processes cannot be read."""
    with client(server) as (process, end):
        with room_for(1), pytest.raises(OSError, match="Too many open files"):
            peer_of(end, place(server))
        with at_most(os.getpid(), 3), pytest.raises(OSError, match="Too many open files"):
            variable_of(process.pid, "PATH")
        found = peer_of(end, place(server))

    assert isinstance(found, Peer)
    assert found.pid == process.pid


def test_a_closed_connection_is_reported_as_gone(server: socket.socket) -> None:
    """The connection was closed by its process, or never existed."""
    own = socket.create_connection(place(server))
    end = own.getsockname()[:2]
    accepted, _ = server.accept()
    with accepted:
        assert isinstance(peer_of(end, place(server)), Peer)
        own.close()
        assert peer_of(end, place(server)) is NoPeer.GONE
    assert peer_of((end[0], 1), place(server)) is NoPeer.GONE


def test_each_end_of_a_connection_has_its_own_peer(server: socket.socket) -> None:
    """The listener's end belongs to this process, the other end to the client."""
    with client(server) as (process, end):
        there, here = peer_of(end, place(server)), peer_of(place(server), end)

    assert isinstance(there, Peer)
    assert isinstance(here, Peer)
    assert (there.pid, here.pid) == (process.pid, os.getpid())


@as_root
def test_a_connection_of_another_users_process_has_no_identified_peer(server: socket.socket) -> None:
    """The result says only that, and not which user it is."""
    with client(server, "other") as (_, end):
        assert peer_of(end, place(server)) is NoPeer.ANOTHER_USER


@as_a_user
def test_a_connection_of_a_process_that_is_not_dumpable_has_no_identified_peer(server: socket.socket) -> None:
    """Other processes cannot examine its descriptors."""
    with client(server, "hidden") as (_, end):
        assert peer_of(end, place(server)) is NoPeer.UNSEEN


@pytest.mark.parametrize("address", ["", "localhost", "127.0.0.1:80", "1.2.3"])
def test_a_peer_address_that_is_no_ip_address_is_refused(address: str) -> None:
    """The web server provides the address, and a host name there must not cause a lookup."""
    with pytest.raises(ValueError, match="IPv4 or IPv6"):
        peer_of((address, 80), ("127.0.0.1", 80))
