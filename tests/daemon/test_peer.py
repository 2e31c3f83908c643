"""Who holds the other end of a connection on loopback: one process, or nobody can be named."""

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
    """A listener on loopback."""
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.socket(family) as listener:
        listener.bind((request.param, 0))
        listener.listen()
        yield listener


@contextlib.contextmanager
def client(server: socket.socket, *how: str) -> Iterator[tuple[subprocess.Popen[str], tuple[str, int]]]:
    """A process with a connection, and where its end is."""
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
    """Where it listens."""
    found: Any = server.getsockname()
    return found[0], found[1]


def test_one_process_is_named_with_its_beginning(server: socket.socket) -> None:
    """By its number, not by what it says; the same one again is the same."""
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


def test_its_own_process_is_one_too(server: socket.socket) -> None:
    """Whoever asks may be who is asked about."""
    with socket.create_connection(place(server)) as own:
        found = peer_of(own.getsockname()[:2], place(server))

    assert isinstance(found, Peer)
    assert found.pid == os.getpid()


def test_a_connection_that_two_processes_hold_is_nobodys(server: socket.socket) -> None:
    """A child that was forked with it may have sent what came."""
    with client(server, "shared") as (_, end):
        assert peer_of(end, place(server)) is NoPeer.SEVERAL


def test_a_holder_that_cannot_be_looked_at_is_not_left_out(server: socket.socket) -> None:
    """The list of processes takes the only free descriptor: none of them can be told to hold the connection, or not to."""
    with client(server) as (process, end):
        with room_for(1), pytest.raises(OSError, match="Too many open files"):
            peer_of(end, place(server))
        with at_most(os.getpid(), 3), pytest.raises(OSError, match="Too many open files"):
            variable_of(process.pid, "PATH")
        found = peer_of(end, place(server))

    assert isinstance(found, Peer)
    assert found.pid == process.pid


def test_a_connection_that_has_gone_is_said_to_have(server: socket.socket) -> None:
    """Closed by its process, and one that never was."""
    own = socket.create_connection(place(server))
    end = own.getsockname()[:2]
    accepted, _ = server.accept()
    with accepted:
        assert isinstance(peer_of(end, place(server)), Peer)
        own.close()
        assert peer_of(end, place(server)) is NoPeer.GONE
    assert peer_of((end[0], 1), place(server)) is NoPeer.GONE


def test_the_two_ends_are_not_confused(server: socket.socket) -> None:
    """The row of the other end is this process's, and is not what was asked for."""
    with client(server) as (process, end):
        there, here = peer_of(end, place(server)), peer_of(place(server), end)

    assert isinstance(there, Peer)
    assert isinstance(here, Peer)
    assert (there.pid, here.pid) == (process.pid, os.getpid())


@as_root
def test_another_users_connection_is_nobodys(server: socket.socket) -> None:
    """Whoever it is."""
    with client(server, "other") as (_, end):
        assert peer_of(end, place(server)) is NoPeer.ANOTHER_USER


@as_a_user
def test_a_process_that_hides_is_nobody(server: socket.socket) -> None:
    """One that is not dumpable cannot be looked into."""
    with client(server, "hidden") as (_, end):
        assert peer_of(end, place(server)) is NoPeer.UNSEEN


@pytest.mark.parametrize("address", ["", "localhost", "127.0.0.1:80", "1.2.3"])
def test_what_is_no_address_is_refused(address: str) -> None:
    """It is the server's word, and still no name is looked up."""
    with pytest.raises(ValueError, match="IPv4 or IPv6"):
        peer_of((address, 80), ("127.0.0.1", 80))
