"""Redis and SSH from a jail, end to end: published libraries, unmodified, at real servers; the secret is nowhere.

redis-py, dulwich ── jail ── frames ── daemon ── a login's process ── TLS or SSH ── redis-server, sshd
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.support.canary import scan
from tests.support.home import DaemonHome, daemon_home
from tests.support.libraries import pack
from tests.support.memories import command_of, descendants_of, memory_unless_ended
from tests.support.redis_server import RedisServer, needs_redis
from tests.support.sshd import USER, Sshd, needs_sshd, public_line
from tests.support.upstream import Authority
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jail
SOURCE = Path(__file__).resolve().parents[1] / "support" / "connectors" / "behind_logins"
CONNECTOR = "github://aileron-tests/{}"
OLD = ("async_timeout",) if sys.version_info < (3, 11, 3) else ()  # which redis-py needs there
PACKED = {"cache": ("redis", *OLD), "git": ("dulwich", "urllib3", "typing_extensions")}
MANIFEST = """\
[connector]
name = "{name}"
version = "1.0.0"

[capabilities.network]
hosts = ["{host}"]

[capabilities.credential]
kind = "login"
scope = "Whatever a test does"
logins = ["{protocol}://{host}"]
{more}

[capabilities.runtime]
imports = ["log", "tcp"]

[limits]
timeout_s = 60
memory_mb = 256
"""
OPERATIONS = {
    "cache": {"cache": ("protocol:integer", "placeholder:boolean", "waits:boolean?"), "ask": ("words:string",)},
    "git": {"git": ("path:string",), "sftp": (), "execute": ("command:string",)},
}
PASSWORD = b"correct-horse-battery-staple"
MARKER = b"searched-for-in-jails"


def install(home: DaemonHome, where: Path, kind: str, protocol: str, host: str, more: str = "") -> None:
    """Install the connector with its libraries, and an action for each operation."""
    source = where / kind
    shutil.copytree(SOURCE, source)
    for package in PACKED[kind]:
        pack(package, source)
    name = CONNECTOR.format(kind)
    text = MANIFEST.format(name=name, host=host, protocol=protocol, more=more)
    (source / "manifest.toml").write_text(text, encoding="utf-8")
    home.install(source)
    for op, inputs in OPERATIONS[kind].items():
        home.add_probe_action(op, *inputs, connector=name)


def bind(home: DaemonHome, kind: str, user: str, secret: bytes, **details: str) -> None:
    """Store the secret and bind a login."""
    home.store(kind, secret)
    more = {"details": details} if details else {}
    home.bind(CONNECTOR.format(kind), f"login/{kind}/me", kind, username=user, **more)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Return the authority of the server."""
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[RedisServer]:
    """Start a server with one user."""
    with RedisServer(tmp_path_factory.mktemp("redis"), authority, f"me on >{PASSWORD.decode()} ~* &* +@all") as server:
        yield server


@pytest.fixture(scope="module")
def redis_home(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority, redis_server: RedisServer
) -> Iterator[DaemonHome]:
    """Start a home that may reach the server. At the end no file there has the password."""
    with daemon_home() as home:
        place = f"localhost:{redis_server.tls_port}"
        home.reach(place, ca_file=authority.ca_file)
        home.unlock()
        install(home, tmp_path_factory.mktemp("cache"), "cache", "redis", place)
        bind(home, "cache", "me", PASSWORD)
        yield home
        assert scan([home.path], PASSWORD) == {}


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """Start an SSH server."""
    with Sshd(tmp_path_factory.mktemp("sshd")) as running:
        yield running


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository with one commit."""
    where = tmp_path_factory.mktemp("served")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-C", str(where)]
    for words in (["init", "-b", "main"], ["commit", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    subprocess.run(["git", "clone", "--bare", where, where / "served.git"], check=True, capture_output=True)
    return where / "served.git"


@pytest.fixture(scope="module")
def fifo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a pipe for which a command waits."""
    path = tmp_path_factory.mktemp("fifo") / "go"
    os.mkfifo(path)
    return path


@pytest.fixture(scope="module")
def ssh_home(tmp_path_factory: pytest.TempPathFactory, sshd: Sshd, served: Path, fifo: Path) -> Iterator[DaemonHome]:
    """Start a home that may fetch and push, use SFTP, and greet."""
    where = tmp_path_factory.mktemp("ssh")
    with daemon_home() as home:
        place = f"localhost:{sshd.port}"
        home.reach(place)
        home.unlock()
        commands = [f"git-{verb}-pack '{served.parent}/*.git'" for verb in ("upload", "receive")]
        install(
            home, where, "git", "ssh", place, f"commands = {[*commands, 'subsystem sftp', 'echo *', f'cat {fifo}']}"
        )
        bind(home, "git", USER, sshd.client_secret, host_key=public_line(sshd.host_keys["ssh-ed25519"]))
        yield home
        for line in key_lines(sshd):
            assert scan([home.path], line) == {}


def key_lines(sshd: Sshd) -> list[bytes]:
    """Return the lines of the private key that identify it: its middle ones."""
    return sshd.client_secret.splitlines()[3:5]


def memories(home: DaemonHome) -> tuple[list[bytes], list[bytes]]:
    """Return the memories of all processes below the daemon: jails and their parents, and the processes of logins."""
    assert home.daemon_pid is not None
    jails: list[bytes] = []
    logins: list[bytes] = []
    for pid in descendants_of(home.daemon_pid):
        (logins if b"aileron.logins" in command_of(pid) else jails).append(memory_unless_ended(pid))
    return jails, logins


@contextlib.contextmanager
def looked_at_while(home: DaemonHome, op: str, secrets: list[bytes], **args: Any) -> Iterator[None]:
    """Run an operation that waits behind its login until the body is done: no memory of a jail has the secrets, and that of the
    login's process has them.
    """
    found: list[Any] = []
    running = threading.Thread(target=lambda: found.append(home.run(op, args)))
    running.start()
    wait_until(lambda: any(MARKER in memory for memory in memories(home)[0]), "a jail is seen")
    jails, logins = memories(home)
    yield
    running.join(30)
    assert found[0].status == 200, found[0].body
    assert any(MARKER in memory for memory in jails)
    for secret in secrets:
        assert not any(secret in memory for memory in jails)
        assert any(secret in memory for memory in logins)  # it can be found, where it is


@needs_redis
def test_redis_py_is_logged_in_with_or_without_a_placeholder(redis_home: DaemonHome) -> None:
    """RESP 2 and 3 work; each login is on record with its binding."""
    with_placeholder = redis_home.done("cache", protocol=3, placeholder=True)
    answer = redis_home.run("cache", {"protocol": 2, "placeholder": False})
    for found in (with_placeholder, answer.body["result"]):
        assert (found["user"], found["size"]) == ("me", 1_000_000)
    sending, finished = [
        event for event in redis_home.events(answer.body["audit_id"]) if event["type"].startswith("egress.")
    ]
    assert (sending["method"], sending["credential"]) == ("REDIS", "login/cache/me")
    assert finished["bytes_up"] > 1_000_000


@needs_redis
def test_a_password_that_redis_repeats_is_masked_in_the_jail(redis_home: DaemonHome, redis_server: RedisServer) -> None:
    """Redis gets the password unencoded."""
    with redis.Redis(port=redis_server.port, username="me", password=PASSWORD.decode()) as client:
        client.set("note", b"the password is " + PASSWORD)
    assert redis_home.done("ask", words="GETRANGE note 4 99\r\n") == f"$40\r\npassword is {'*' * len(PASSWORD)}\r\n"


@needs_redis
@pytest.mark.skipif(os.geteuid() != 0, reason="a jail's memory is root's to look into")
def test_the_password_is_not_in_the_jail(redis_home: DaemonHome, redis_server: RedisServer) -> None:
    """Only the process of its login has it, of all processes below the daemon."""
    with (
        looked_at_while(redis_home, "cache", [PASSWORD], protocol=3, placeholder=True, waits=True),
        redis.Redis(port=redis_server.port, username="me", password=PASSWORD.decode()) as client,
    ):
        client.rpush("go", "x")


@needs_sshd
def test_dulwich_clones_pushes_and_fetches(ssh_home: DaemonHome, served: Path) -> None:
    """The commit made in the jail is at the server."""
    found = ssh_home.done("git", path=str(served))
    assert found["made"] == found["fetched"]
    assert found["files"] == [".git", "added"]
    log = subprocess.run(["git", "-C", served, "log", "-1", "--format=%H %s", "main"], check=True, capture_output=True)
    assert log.stdout.decode().split() == [found["made"], MARKER.decode()]


@needs_sshd
def test_only_ssh_subsystems_and_commands_that_the_manifest_declares_are_executed(
    ssh_home: DaemonHome, sshd: Sshd
) -> None:
    """A command that the manifest does not name is refused before a connection is made."""
    assert ssh_home.done("sftp") == "0200000003"
    assert ssh_home.done("execute", command="echo hello") == "hello\n"
    before = sshd.log.count("Accepted")
    for command in ("echo hello; id", "echo $HOME", "id", "echo ../x", "subsystem other", "echo -e"):
        error = ssh_home.failed("execute", command=command)
        assert error["class"] == "capability_denied", error
    assert ssh_home.failed("git", path="/etc/passwd.git")["class"] == "capability_denied"
    assert sshd.log.count("Accepted") == before


@needs_sshd
@pytest.mark.skipif(os.geteuid() != 0, reason="a jail's memory is root's to look into")
def test_the_private_key_is_not_in_the_jail(ssh_home: DaemonHome, sshd: Sshd, fifo: Path) -> None:
    """The search is for lines of the key as it is stored."""
    with looked_at_while(ssh_home, "execute", key_lines(sshd), command=f"cat {fifo}"):
        fifo.write_bytes(b"go")


@needs_sshd
def test_a_changed_host_key_is_reported_with_the_command_that_binds_again(ssh_home: DaemonHome, sshd: Sshd) -> None:
    """The failure has the new key's fingerprint. The test is the last one, since it changes the binding."""
    other = public_line(sshd.client_key)
    ssh_home.must(
        "PATCH", "/v1/bindings/login/git/me", {"username": USER, "secret": "git", "details": {"host_key": other}}
    )
    error = ssh_home.failed("execute", command="echo hello")
    assert error["class"] == "binding_failed"
    assert sshd.host_keys["ssh-ed25519"].get_fingerprint() in error["message"]
    assert error["message"].endswith("`aileron binding rebind login/git/me --host-key 'TYPE BASE64'`")
