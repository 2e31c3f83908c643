"""Floods of requests that any client may send to the loopback port: the work that they cause is bounded, and counted here.

Real daemons, and a hostile client of 500 connections (flooder.py), as a user that owns nothing if root runs the tests.
benchmarks/bench_flood.py measures how long a person's commands take meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest

from aileron.ingress.admission import AGENTS_AT_ONCE, AGENTS_PER_S, PAGES_AT_ONCE, PAGES_PER_S
from aileron.ingress.confine import PRIORITY
from aileron.ingress.connection_places import MAX_CONNECTIONS, MAX_SILENT
from tests.attacks.flooder import CONNECTIONS
from tests.attacks.tally import Attack
from tests.support.home import DaemonHome, asking_home
from tests.support.paged import port_of
from tests.support.reused import reused
from tests.support.waiting import wait_still, wait_until

pytestmark = pytest.mark.jail
DEADLINE_S: Final = 60.0
_NOBODY: Final = 65534
_STRANGERS: Final = 200
"""Connections that are left for strangers where others have a session: a flood takes those at once."""
_KEPT: Final = 16 << 20
"""Bytes of memory that both processes may keep after a flood."""
_QUIET: Final = 0.05
"""Seconds of processor time within half a second: a process that uses less is idle."""


@pytest.fixture(scope="module")
def home() -> Iterator[DaemonHome]:
    """Provide a home with an action that runs at once; the daemon has already imported what it imports on first use."""
    with asking_home() as made:
        token = made.must("POST", "/v1/sessions", {"agent": "test", "folder": "/"})["token"]
        for path in ("/healthz", "/approvals", "/mcp", "/v1/models"):
            assert _status(port_of(made), path, f"Authorization: Bearer {token}")
        yield made


def _asked(port: int, path: str, *fields: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", f"Host: localhost:{port}", *fields, "", ""]).encode()


def _status(port: int, path: str, *fields: str) -> int:
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as connection:
        connection.sendall(_asked(port, path, *fields, "Connection: close"))
        return int(_all_of(connection).split(b" ")[1])


def _status_of_patience(port: int, path: str) -> int:
    """Return the final status for a stranger who asks again while it gets 429, because strangers' shared budget was used
    up just before.
    """
    return wait_until(lambda: None if (status := _status(port, path)) == 429 else status, f"{path} is answered") or 429


def _all_of(connection: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(ConnectionResetError):  # what we sent too much was not read
        while data := connection.recv(65536):
            found += data
    return found


def _processes(home: DaemonHome) -> tuple[psutil.Process, psutil.Process]:
    """Return the daemon, and the ingress process before its ports."""
    daemon = psutil.Process(home.daemon_pid)
    (waiting,) = [child for child in daemon.children() if "aileron.ingress" in child.cmdline()]
    (ingress,) = waiting.children()
    return daemon, ingress


def _flooded(home: DaemonHome, kind: str, for_s: float = 1.5, *, until_told: str | None = None) -> dict[str, int]:
    """Return the counts of a flood of this kind. It goes on until it gets the status `until_told`, if that is given."""
    with _flood(home, kind, for_s, *filter(None, [until_told])) as flood:
        found, _ = flood.communicate(timeout=DEADLINE_S)
    return {what: int(count) for what, _, count in (word.partition("=") for word in found.split()) if count}


@contextlib.contextmanager
def _flood(home: DaemonHome, kind: str, for_s: float = DEADLINE_S, *more: str) -> Iterator[subprocess.Popen[str]]:
    """Provide a running flood of this kind, all of whose connections have begun."""
    other = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    source = (Path(__file__).parent / "flooder.py").read_text(encoding="utf-8")
    python = "/usr/bin/python3" if other else sys.executable
    words = [python, "-c", source, str(port_of(home)), kind, str(for_s), *more]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd="/", **other) as process:  # type: ignore[call-overload] # keywords
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            yield process
        finally:
            process.kill()


def _spent(processes: Iterable[psutil.Process]) -> list[int]:
    """Return the processor time of each process, in units of what an idle one may use."""
    times = [process.cpu_times() for process in processes]
    return [round((usage.user + usage.system) / _QUIET) for usage in times]


@pytest.mark.abuse_case("A28")
def test_pipelined_requests_are_discarded(home: DaemonHome, attack: Attack) -> None:
    """The daemon sends one response and closes; a client that waits for each response can send as many requests as it
    likes.
    """
    port = port_of(home)
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as connection:
        connection.sendall(_asked(port, "/healthz") * 100)
        found = _all_of(connection)
    attack.denied("a hundred requests in one piece", 1, found.count(b"HTTP/1.1 200"))
    attack.denied("the connection goes on", True, b"connection: close" in found.lower())
    last = reused(lambda: _one_after_the_other(port, 5))
    attack.control("one after the other", True, last.startswith(b"HTTP/1.1 200"))


def _one_after_the_other(port: int, count: int) -> bytes:
    """Return the last of `count` responses on one connection. ConnectionResetError if it ends before."""
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as connection:
        for _ in range(count):
            connection.sendall(_asked(port, "/healthz"))
            head = b""
            while b"ok\n" not in head:
                if not (data := connection.recv(65536)):
                    raise ConnectionResetError(f"the connection ended after {head!r}")
                head += data
            assert b"connection: close" not in head.lower()
    return head


def _memory(processes: tuple[psutil.Process, ...]) -> int:
    return sum(int(process.memory_info().rss) for process in processes)


@pytest.mark.abuse_case("A28")
@pytest.mark.parametrize("kind", ["pipelined", "upgrades", "churn", "heads", "dripping", "bodies"])
def test_a_flood_causes_no_work_after_its_connections_have_ended(home: DaemonHome, attack: Attack, kind: str) -> None:
    """Both processes become idle. Their memory has grown by at most 64 MiB, and shrinks again within a minute."""
    processes = _processes(home)
    before = _memory(processes)
    counted = _flooded(home, kind)
    assert counted["connections"] >= CONNECTIONS
    attack.denied(f"{kind}: memory", True, _memory(processes) - before < 64 << 20)
    rested = wait_still(lambda: _spent(processes), "neither process computes", for_s=0.5, within_s=DEADLINE_S)
    attack.denied(f"{kind}: work without a connection", len(processes), len(rested))
    kept = wait_until(lambda: _memory(processes) - before <= _KEPT, "their memory comes back", within_s=DEADLINE_S)
    attack.denied(f"{kind}: memory, a minute later", True, kept)
    attack.control("somebody who asks", 200, _status_of_patience(port_of(home), "/healthz"))


@pytest.mark.abuse_case("A28")
@pytest.mark.parametrize(
    ("kind", "answered", "at_once", "per_s"),
    [("refused", "200", PAGES_AT_ONCE, PAGES_PER_S), ("agents", "401", AGENTS_AT_ONCE, AGENTS_PER_S)],
)
def test_clients_without_a_session_share_one_budget_of_requests(
    home: DaemonHome, attack: Attack, kind: str, answered: str, at_once: float, per_s: float
) -> None:
    """The ingress process passes on only what the daemon can answer; clients with a token are always served."""
    began = time.monotonic()
    counted = _flooded(home, kind, for_s=4.0, until_told="429")  # who waits is told after two
    most = at_once + per_s * (time.monotonic() - began) + 1
    attack.denied(f"{kind}: more than the budget", True, counted.get(answered, 0) <= most)
    attack.denied(f"{kind}: the others are told", True, counted.get("429", 0) > 0)
    token = home.must("POST", "/v1/sessions", {"agent": "test", "folder": "/"})["token"]
    for _ in range(round(at_once) + 5):
        assert _status(port_of(home), "/v1/actions", f"Authorization: Bearer {token}") == 200
    attack.control(
        f"{kind}: an agent with a token", 200, _status(port_of(home), "/v1/actions", f"Authorization: Bearer {token}")
    )


@pytest.mark.abuse_case("A28")
def test_the_oldest_connection_without_a_request_is_closed_to_make_room(home: DaemonHome, attack: Attack) -> None:
    """A silent connection has sent no request yet. A client that sends one at once is served."""
    port = port_of(home)
    with contextlib.ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S))
            for _ in range(MAX_SILENT + 1)
        ]
        attack.denied("the oldest", b"", _all_of(silent[0]))
        attack.control("somebody who asks", 200, _status(port, "/healthz"))


@pytest.mark.abuse_case("A32")
def test_clients_with_a_session_are_served_while_slow_clients_without_one_hold_all_places(
    home: DaemonHome, attack: Attack
) -> None:
    """They hold all places and more of them wait; a client with a session is served, at once and later."""
    port = port_of(home)
    token = f"Authorization: Bearer {home.must('POST', '/v1/sessions', {'agent': 'test', 'folder': '/'})['token']}"
    body = b'{"args": {"text": "x"}}'
    fields = (token, "Content-Type: application/json", f"Content-Length: {len(body)}", "Connection: close")
    head = _asked(port, "/v1/actions/give-back/run", *fields).replace(b"GET", b"POST", 1)
    with contextlib.ExitStack() as stack:
        before = []
        for _ in range(MAX_CONNECTIONS - _STRANGERS):
            before.append(stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)))
            before[-1].sendall(head)
        with _flood(home, "slow"):
            before[-1].sendall(body)  # first: it has seconds for that
            attack.denied("that of one who was there before", b"HTTP/1.1 200", _all_of(before[-1])[:12])
            found: list[int | None] = []
            until = time.monotonic() + DEADLINE_S
            while len(found) < 10 or (not _ended_for_others(home) and time.monotonic() < until):
                # Until its head is read it is a stranger, too, and on a slow machine its turn to go may come first: what is
                # safe is asked again, as an agent's relay does.
                answers = (_status_or_none(port, "/v1/actions", token) for _ in range(2))
                found.append(next((status for status in answers if status is not None), None))
            attack.denied("the places of callers with a session", [200], sorted(set(found), key=str))
    attack.control(
        "strangers were ended for it, and that is said at most every ten seconds", True, 0 < _ended_for_others(home) < 6
    )


def _ended_for_others(home: DaemonHome) -> int:
    """Return how often the log says that a stranger's connection was ended."""
    return (home.path / "logs" / "daemon.log").read_text(encoding="utf-8").count("oldest without an open session ends")


def _status_or_none(port: int, path: str, *fields: str) -> int | None:
    try:
        return _status(port, path, *fields)
    except (OSError, IndexError):  # it was turned away
        return None


@pytest.mark.abuse_case("A29")
def test_the_ingress_process_has_no_privileges_and_no_open_file_in_the_home_except_the_log(
    home: DaemonHome, attack: Attack
) -> None:
    """The process that accepts connections has a lower priority, cannot gain privileges, and has only the log open."""
    daemon, ingress = _processes(home)
    facts = dict(
        line.split(":\t", 1)
        for line in Path(f"/proc/{ingress.pid}/status").read_text(encoding="utf-8").splitlines()
        if ":\t" in line
    )
    attack.denied("new privileges", "1", facts["NoNewPrivs"])
    attack.denied("the daemon's priority", PRIORITY, ingress.nice() - daemon.nice())
    if os.geteuid() == 0:  # nobody else may read the names of what it has open
        opened = {process: _opened_by(process) for process in (daemon, ingress)}
        of_home = [link for link in opened[ingress] if link.startswith(str(home.path)) and "/logs/" not in link]
        attack.denied("files of the home", [], of_home)
        attack.control("the daemon's ledger", True, any("ledger" in link for link in opened[daemon]))
    attack.control("somebody who asks", 200, _status(port_of(home), "/healthz"))


def _opened_by(process: psutil.Process) -> list[str]:
    """Return the names of what a process has open; connections of the previous test may close meanwhile."""
    found = []
    for link in Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(link))
    return found


@pytest.mark.abuse_case("A29")
def test_a_killed_ingress_process_is_started_again(home: DaemonHome, attack: Attack) -> None:
    """The next connection starts it on the same port, which no other program could take in between."""
    port = port_of(home)
    daemon, before = _processes(home)
    before.send_signal(signal.SIGKILL)
    before.wait(DEADLINE_S)
    with pytest.raises(OSError, match="Address already in use"), socket.socket() as other:
        other.bind(("127.0.0.1", port))
    attack.denied("the port in between", True, True)
    attack.control("the next request", 200, _status(port, "/healthz"))
    again, after = _processes(home)
    assert again == daemon
    assert after.pid != before.pid


def test_a_connection_whose_upgrade_request_is_ignored_closes_when_idle(home: DaemonHome, attack: Attack) -> None:
    """The daemon ignores the requested upgrade, and the connection closes when it is idle."""
    with socket.create_connection(("127.0.0.1", port_of(home)), timeout=DEADLINE_S) as connection:
        connection.sendall(_asked(port_of(home), "/healthz", "Connection: upgrade", "Upgrade: websocket"))
        found = _all_of(connection)
    attack.denied("a connection that stays", True, found.startswith(b"HTTP/1.1 200"))
    attack.control("somebody who asks", 200, _status(port_of(home), "/healthz"))


@pytest.mark.abuse_case("A29")
def test_ingress_dies_with_the_daemon(attack: Attack) -> None:
    """The port is free at once for the next daemon."""
    with asking_home() as home:
        port = port_of(home)
        assert _status(port, "/healthz") == 200
        _, ingress = _processes(home)
        home.kill()
        ingress.wait(DEADLINE_S)
        attack.denied("outliving it", False, ingress.is_running())
        attack.control("the next daemon", 200, _status(port_of(home), "/healthz"))
        assert port_of(home) == port


@pytest.mark.abuse_case("A29")
def test_confined_ingress_can_open_no_file_or_connection(tmp_path: Path, attack: Attack) -> None:
    """The test applies the confinement that the ingress process uses, and compares what works before and after it."""
    tried = """
import errno, os, socket, sys
from aileron.ingress.confine import confine
listener = socket.socket(); listener.bind(("127.0.0.1", 0)); listener.listen()
def tries():
    for attempt in (lambda: os.close(os.open("/etc/hostname", os.O_RDONLY)), lambda: os.listdir("/"),
                    lambda: os.close(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)),
                    lambda: socket.create_connection(listener.getsockname()).close(), lambda: os.kill(os.getppid(), 0)):
        try:
            attempt(); yield "done"
        except OSError as error:
            yield errno.errorcode[error.errno]
print(*tries())
confine()
print(*tries())
"""
    found = subprocess.run(
        [sys.executable, "-c", tried, str(tmp_path / "written")],
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE_S,
    )
    before, after = (line.split() for line in found.stdout.splitlines())
    for what, control, denied in zip(("read", "list", "write", "connect", "signal"), before, after, strict=True):
        attack.control(what, "done", control)
        attack.denied(what, {"EACCES", "EPERM"}, denied)


_KILLED: Final = (
    "execve execveat ptrace process_vm_readv process_vm_writev bpf mount umount2 move_mount open_tree fsopen pivot_root chroot "
    "keyctl add_key request_key io_uring_setup io_uring_enter io_uring_register userfaultfd perf_event_open init_module "
    "finit_module delete_module kexec_load unshare setns"
).split()
_REFUSED: Final = dict.fromkeys("connect kill openat mkdirat sendmmsg setpriority fchmod".split(), "EPERM") | {
    "socket": "EACCES",
    "bind": "EACCES",
}
_TRIED: Final = """
import ctypes, errno, os, socket, sys, threading
import pyseccomp
from aileron.ingress.confine import confine
from aileron.ingress.daemon_messages import exchange_pair
libc = ctypes.CDLL(None, use_errno=True)

def call(name):
    # With nothing that it could be about: where it is carried out, it finds that.
    number = pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name)
    return errno.errorcode[ctypes.get_errno()] if libc.syscall(number, *[ctypes.c_long(-1)] * 5) < 0 else "done"

def fork():
    if not os.fork():
        os._exit(0)
    return "done"

def tell(what, is_confined):
    if not (child := os.fork()):
        try:
            if is_confined:
                confine()
            said = what()
        except OSError as error:
            said = errno.errorcode[error.errno]
        os.write(1, said.encode())
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    os.write(1, b"killed %d\\n" % os.WTERMSIG(status) if os.WIFSIGNALED(status) else b"\\n")

listener = socket.create_server(("127.0.0.1", 0))
def serve():
    accepted, _ = listener.accept()
    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    ours, theirs = exchange_pair()
    thread = threading.Thread(target=socket.send_fds, args=(ours, [b"x"], [accepted.fileno()]))
    thread.start()
    thread.join()
    return "served" if len(socket.recv_fds(theirs, 1, 1)[1]) == 1 else "nothing"

for name in sys.argv[1:]:
    for is_confined in (False, True):
        tell(lambda: call(name), is_confined)
for is_confined in (False, True):
    tell(fork, is_confined)
    with socket.create_connection(listener.getsockname()):
        tell(serve, is_confined)
"""


_SHUTTING: Final = """
import errno, os, socket, sys
from aileron.ingress.confine import confine
from aileron.ingress.daemon_messages import exchange_pair
listener = socket.create_server(("127.0.0.1", 0))
def listens():
    with socket.create_connection(listener.getsockname()):
        listener.accept()[0].close()
    return "listens"
def told(what):
    try:
        return what() or "done"
    except OSError as error:
        return errno.errorcode[error.errno]
for how in ([], [confine]):
    for way in (socket.SHUT_RD, socket.SHUT_RDWR, socket.SHUT_WR):
        if not (child := os.fork()):
            [one() for one in how]
            print(told(lambda: listener.shutdown(way)), told(lambda: exchange_pair()[0].shutdown(way)), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print(told(listens), flush=True)
        listener.listen()
"""


_FILLING: Final = """
import errno, os, sys
from aileron.ingress.confine import LOG_BYTES, confine
log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.truncate(log, LOG_BYTES - 1)
if sys.argv[2:]:
    confine()
for _ in range(2):
    try:
        print(os.write(log, b"x"))
    except OSError as error:
        print(errno.errorcode[error.errno])
"""


@pytest.mark.abuse_case("A39")
def test_confined_ingress_cannot_fill_the_disk(tmp_path: Path, attack: Attack) -> None:
    """The log is the only file it can write, and has a size limit. The test's file is sparse."""

    def tried(*confined: str) -> list[str]:
        command = [sys.executable, "-c", _FILLING, str(tmp_path / "-".join(["log", *confined])), *confined]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE_S).stdout.split()

    attack.control("one that is not confined", ["1", "1"], tried())
    attack.denied("past its bound", ["1", "EFBIG"], tried("confined"))


@pytest.mark.abuse_case("A36")
def test_confined_ingress_cannot_shut_down_a_listener_of_the_daemon(attack: Attack) -> None:
    """shutdown(2) on the passed descriptor would affect the daemon too. Ingress may still use it to stop sending."""
    found = subprocess.run(
        [sys.executable, "-c", _SHUTTING], capture_output=True, text=True, check=True, timeout=DEADLINE_S
    ).stdout.splitlines()
    free, confined = found[:6], found[6:]
    attack.control("ended by one that is not confined", ["done done", "ECONNREFUSED"] * 2, free[:4])
    attack.denied("to hear no more", ["EPERM EPERM", "listens"] * 2, confined[:4])
    attack.control("to say no more", ["done done", "listens"], confined[4:])


@pytest.mark.abuse_case("A33")
def test_system_calls_that_no_server_needs_fail_or_kill_the_confined_ingress_process(attack: Attack) -> None:
    """Each call runs in a process of its own: calls that no server makes kill it, calls that a library may try fail, and
    it can serve.
    """
    found = subprocess.run(
        [sys.executable, "-c", _TRIED, *_KILLED, *_REFUSED],
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE_S,
    ).stdout.splitlines()
    for name, free, confined in zip([*_KILLED, *_REFUSED], found[::2], found[1::2], strict=False):
        reason = _REFUSED.get(name, f"killed {signal.SIGSYS:d}")
        attack.denied(name, reason, confined)
        attack.control(f"{name}, where nothing is given up", True, free != reason)
    free, can_serve, confined, still_serves = found[-4:]
    attack.denied("a process of its own", ("done", "EPERM"), (free, confined))
    attack.control(
        "a connection, a pair of sockets, a descriptor passed, a thread", ("served",) * 2, (can_serve, still_serves)
    )
