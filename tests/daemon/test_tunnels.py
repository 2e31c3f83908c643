"""`run/tunnel.sock` of a real daemon: whose connection it is, what is on record, and how it ends.

The process of the cell is this one: it opens the session and connects, as `aileron launch` does.
"""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.home import DaemonHome, daemon_home
from tests.support.tunnels import DEADLINE_S, Answer, Door, read_answer
from tests.support.upstream import Authority, Upstream, answer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jail
PAGE = b"what the host says"


@pytest.fixture(scope="module")
def upstream(authority: Authority) -> Iterator[Upstream]:
    """Start a host on loopback, with a certificate."""
    with Upstream(lambda _: answer(PAGE), authority.server_context("localhost")) as running:
        yield running


@pytest.fixture(scope="module")
def home(upstream: Upstream) -> Iterator[DaemonHome]:
    """Start a home whose settings allow that host to be on loopback."""
    with daemon_home() as made:
        made.configure(f'[egress]\nprivate = ["localhost:{upstream.port}"]\n')
        made.must("GET", "/v1/status")
        yield made


@pytest.fixture
def session(home: DaemonHome, upstream: Upstream) -> Iterator[str]:
    """Open a cell of this process that lists the host."""
    body = {"agent": "claude", "folder": "/srv/work", "pid": os.getpid()}
    opened = home.must("POST", "/v1/sessions", {**body, "cell": {"hosts": [f"localhost:{upstream.port}"]}})
    yield opened["id"]
    home.must("POST", f"/v1/sessions/{opened['id']}/end", {})


@pytest.fixture
def door(home: DaemonHome) -> Iterator[Door]:
    """Start the cell's door."""
    with Door(home.path) as made:
        yield made


def ask(door: Door, destination: str) -> tuple[socket.socket, Answer]:
    """Connect to the socket, request the destination, and return the connection and the response."""
    client = door.connected()
    client.sendall(f"CONNECT {destination} HTTP/1.1\r\n\r\n".encode())
    return client, read_answer(client)


def on_record(home: DaemonHome, session: str, is_so: Callable[[list[dict[str, Any]]], object]) -> list[dict[str, Any]]:
    """Wait until the session's recorded tunnel events fulfil a condition, and return them, oldest first."""

    def rows() -> list[dict[str, Any]]:
        events = home.must("GET", f"/v1/audit?session={session}&limit=1000")["events"]
        return [event for event in reversed(events) if event["type"].startswith("tunnel.")]

    return wait_until(lambda: found if is_so(found := rows()) else [], "it is on record", seen=rows)


def test_curl_in_a_cell_reaches_only_listed_hosts_through_the_proxy(
    home: DaemonHome, session: str, door: Door, upstream: Upstream, authority: Authority
) -> None:
    """The listed host is reached and another is not; both are on record."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")

    def curl(host: str) -> subprocess.CompletedProcess[bytes]:
        options = ["-sS", "--max-time", "20", "--cacert", str(authority.ca_file), "-x", f"http://127.0.0.1:{door.port}"]
        environment = {"PATH": os.environ["PATH"]}
        return subprocess.run(
            ["curl", *options, f"https://{host}:{upstream.port}/"], env=environment, capture_output=True, check=False
        )

    assert curl("localhost").stdout == PAGE
    refused = curl("example.com")
    assert (refused.returncode, refused.stdout) == (56, b"")
    curl("example.com")

    rows = {event["type"]: event for event in on_record(home, session, lambda found: len(found) == 3)}
    opened, closed, denied = (
        rows[f"tunnel.{what}"] for what in ("opened", "closed", "refused")
    )  # the last two in any order
    assert (opened["host"], opened["port"]) == ("localhost", upstream.port)
    assert (closed["tunnel"], closed["reason"]) == (opened["tunnel"], "closed")
    assert closed["address"] == "127.0.0.1"
    assert min(closed["bytes_up"], closed["bytes_down"]) > len(PAGE)
    assert (denied["reason"], denied["count"]) == ("host_not_listed", 1)
    assert denied["destination"] == f"example.com:{upstream.port}"
    shown = home.must("GET", f"/v1/sessions/{session}")["connections"]
    (reached,) = shown["reached"]
    assert (reached["host"], reached["connections"], reached["not_ended"]) == (f"localhost:{upstream.port}", 1, 0)
    assert (reached["bytes_up"], reached["bytes_down"]) == (closed["bytes_up"], closed["bytes_down"])
    assert [(refusal["host"], refusal["reason"]) for refusal in shown["refused"]] == [
        (denied["destination"], "host_not_listed")
    ]
    assert home.must("GET", "/v1/audit/verify")["ok"] is True


@pytest.mark.abuse_case("CO5")
@pytest.mark.parametrize("by", ["another process", "a child", "no session"])
def test_only_the_process_of_a_cell_gets_a_tunnel(
    home: DaemonHome, session: str, door: Door, upstream: Upstream, by: str
) -> None:
    """A child and another process are refused, and so is the cell's process once its session has ended."""
    client, control = ask(door, f"localhost:{upstream.port}")
    client.close()
    assert control.status == 200
    program = (
        "import socket, sys\n"
        "made = socket.socket(socket.AF_UNIX); made.settimeout(20); made.connect(sys.argv[1])\n"
        "made.sendall(b'CONNECT localhost:443 HTTP/1.1\\r\\n\\r\\n')\n"
        "print(made.recv(4096).decode())\n"
    )
    if by == "no session":
        home.must("POST", f"/v1/sessions/{session}/end", {})
        client, answered = ask(door, f"localhost:{upstream.port}")
        client.close()
        said = f"HTTP/1.1 {answered.status} {answered.phrase} {answered.reason}"
    else:
        command = [sys.executable, "-c", program, str(home.path / "run" / "tunnel.sock")]
        command = ["setsid", "--fork", *command] if by == "another process" else command
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE_S).stdout

    assert said.startswith("HTTP/1.1 403 only the process that started a cell")
    assert "tunnel_caller" in said
    refused = home.must("GET", "/v1/audit?type=caller.refused")["events"]
    assert {(event["scope"], event["route"], event["session"]) for event in refused} == {("agent", "CONNECT", "local")}


@pytest.mark.abuse_case("CO5")
def test_a_session_without_a_cell_gets_no_tunnel(home: DaemonHome, door: Door, upstream: Upstream) -> None:
    """The session's own process is refused too."""
    body = {"agent": "claude", "folder": "/srv/work", "pid": os.getpid()}
    opened = home.must("POST", "/v1/sessions", body)
    client, answered = ask(door, f"localhost:{upstream.port}")
    client.close()
    assert answered.reason == "tunnel_caller"
    home.must("POST", f"/v1/sessions/{opened['id']}/end", {})


@pytest.mark.abuse_case("CO6")
def test_a_tunnel_ends_with_its_session(
    home: DaemonHome, session: str, door: Door, upstream: Upstream, authority: Authority
) -> None:
    """The tunnel is open and in use; the record has the reason."""
    client, answered = ask(door, f"localhost:{upstream.port}")
    assert answered.status == 200
    with ssl.create_default_context(cadata=authority.ca_pem).wrap_socket(client, server_hostname="localhost") as tls:
        tls.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert tls.recv(65536).endswith(PAGE)
        home.must("POST", f"/v1/sessions/{session}/end", {})
        assert tls.recv(1) == b""
    *_, closed = on_record(home, session, lambda found: found[-1:] and found[-1]["type"] == "tunnel.closed")
    assert closed["reason"] == "session ended"


def test_many_silent_connections_do_not_block_a_cells_tunnels(
    home: DaemonHome, session: str, door: Door, upstream: Upstream
) -> None:
    """Another process holds four hundred connections and sends nothing: the cell's own are served meanwhile."""
    program = (
        "import socket, sys\n"
        "held = []\n"
        "for _ in range(400):\n"
        "    held.append(socket.socket(socket.AF_UNIX)); held[-1].connect(sys.argv[1])\n"
        "print('held', flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, str(home.path / "run" / "tunnel.sock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as crowd:
        assert crowd.stdout is not None
        assert crowd.stdout.readline() == "held\n"
        for _ in range(3):
            client, answered = ask(door, f"localhost:{upstream.port}")
            client.close()
            assert answered.status == 200
        crowd.communicate("")
    assert crowd.returncode == 0


@pytest.mark.abuse_case("CO7")
def test_a_flood_of_refused_hosts_is_recorded_in_few_events(home: DaemonHome, session: str, door: Door) -> None:
    """Three hundred hosts are refused; the record counts those that it does not list."""
    for number in range(300):
        client, answered = ask(door, f"a{number}.example.com:443")
        client.close()
        assert answered.reason == "host_not_listed"
    found = on_record(home, session, lambda found: found)

    assert 1 <= len(found) <= 64
    assert all(event["type"] == "tunnel.refused" for event in found)


def test_only_the_user_can_open_the_tunnel_socket(home: DaemonHome) -> None:
    """The socket has mode 0600, and is gone when the daemon is."""
    path = home.path / "run" / "tunnel.sock"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    home.stop()
    assert not path.exists()


def test_a_stopping_daemon_ends_and_records_its_tunnels(
    home: DaemonHome, session: str, door: Door, upstream: Upstream, authority: Authority
) -> None:
    """An open tunnel is closed and recorded with the reason; the next daemon still knows the session."""
    client, _ = ask(door, f"localhost:{upstream.port}")
    with ssl.create_default_context(cadata=authority.ca_pem).wrap_socket(client, server_hostname="localhost") as tls:
        tls.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert tls.recv(65536).endswith(PAGE)
        home.stop()
        assert tls.recv(1) == b""
    *_, closed = on_record(home, session, lambda found: found[-1:] and found[-1]["type"] == "tunnel.closed")
    assert closed["reason"] == "stopping"
    client, answered = ask(door, f"localhost:{upstream.port}")
    client.close()
    assert answered.status == 200
