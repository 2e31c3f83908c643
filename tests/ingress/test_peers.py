"""The process that connected to a socket of the home: exactly that one, and none that has its pid later."""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aileron.ingress.peers import PeerProcess, peer_of_connection, started_of
from tests.support.descriptors import at_most

ROOT = Path(__file__).resolve().parents[2]
TELLS_WHO_HAS_ENDED = tuple(map(int, platform.release().split(".")[:2])) >= (6, 5)
_REUSED = """
import json, os, socket, sys, time
from pathlib import Path
from aileron.ingress.peers import peer_of_connection, started_of

def fork(number, path):  # a process of that number which connects, as root of its pid namespace can have it
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(number - 1))
    child = os.fork()
    if child == 0:
        made = socket.socket(socket.AF_UNIX)
        made.connect(path)
        made.recv(1)
        os._exit(0)
    return child

listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
numbers, found = [], []
for _ in range(2):  # the second process while the first one's connection is still there
    numbers.append(fork(300, sys.argv[1]))
    accepted = listener.accept()[0]
    found.append((accepted, peer_of_connection(accepted)))
    if len(numbers) == 1:
        accepted.sendall(b"x")
        os.waitpid(numbers[0], 0)
        while time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK") < found[0][1].started + 1:
            pass  # beginnings are told apart by hundredths of a second
first, second = (one for _, one in found)
late = peer_of_connection(found[0][0])
print(json.dumps([numbers, first, second, late, started_of(300)]))
found[1][0].sendall(b"x")
"""


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    """Yield a listening socket of the home."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "s"))
        made.listen()
        yield made


def connected(listener: socket.socket) -> tuple[int, socket.socket]:
    """Return a child that has connected and waits for a byte before it ends, and our end of the connection."""
    child = os.fork()
    if child == 0:
        try:
            made = socket.socket(socket.AF_UNIX)
            made.connect(listener.getsockname())
            made.recv(1)
        finally:
            os._exit(0)
    return child, listener.accept()[0]


def test_a_connections_peer_is_identified_by_pid_and_start_time(listener: socket.socket) -> None:
    """The start time in /proc tells a process from a later one with the same pid."""
    child, accepted = connected(listener)
    with accepted:
        found = peer_of_connection(accepted)
        beginning = int(Path(f"/proc/{child}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()[19])
        accepted.sendall(b"x")
        os.waitpid(child, 0)

    assert found == PeerProcess(child, beginning)


def test_a_process_that_has_ended_is_not_a_connections_peer(listener: socket.socket) -> None:
    """This holds before and after its parent has reaped it."""
    child, accepted = connected(listener)
    with accepted:
        assert peer_of_connection(accepted) is not None
        accepted.sendall(b"x")
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        assert (started_of(child), peer_of_connection(accepted)) == (None, None)
        os.waitpid(child, 0)
        assert (started_of(child), peer_of_connection(accepted)) == (None, None)


def test_looking_up_a_peer_without_a_free_descriptor_is_an_error(listener: socket.socket) -> None:
    """The process is not reported as ended; with a descriptor the same connection has its peer."""
    child, accepted = connected(listener)
    with accepted:
        with at_most(os.getpid(), 3):
            with pytest.raises(OSError, match="Too many open files"):
                started_of(child)
            with pytest.raises(OSError, match="Too many open files"):
                peer_of_connection(accepted)
        found = peer_of_connection(accepted)
        accepted.sendall(b"x")
        os.waitpid(child, 0)

    assert found is not None
    assert found.pid == child


@pytest.mark.jail
def test_a_process_with_a_reused_pid_is_another_peer(tmp_path: Path) -> None:
    """A connection of the earlier process then has no peer, if the kernel can tell (Linux 6.5)."""
    inside = ["unshare", *(["--user", "--map-root-user"] if os.geteuid() else []), "--pid", "--fork", "--mount-proc"]
    said = subprocess.run(
        [*inside, sys.executable, "-c", _REUSED, str(tmp_path / "s")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    numbers, first, second, late, beginning = json.loads(said.stdout)

    assert numbers == [300, 300]
    assert first != second
    assert second == [300, beginning]
    assert late == (None if TELLS_WHO_HAS_ENDED else second)
