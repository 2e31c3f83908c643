"""A login end to end: a connector in the jail, the daemon, the login processes, and a real Redis behind TLS."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.descendants import read_descendants
from tests.support.home import SECRET, DaemonHome, daemon_home
from tests.support.redis_server import RedisServer, needs_redis
from tests.support.upstream import Authority
from tests.support.waiting import wait_ended, wait_until

pytestmark = [pytest.mark.jail, needs_redis]
CONNECTOR = "github://aileron-tests/cache"
BINDING = "login/cache/me"
MANIFEST = """\
[connector]
name = "github://aileron-tests/cache"
version = "1.0.0"

[capabilities.network]
hosts = ["bound-at-build"]

[capabilities.credential]
kind = "login"
scope = "Read and write one cache"
logins = ["redis://bound-at-build"]

[capabilities.runtime]
imports = ["log", "tcp", "http"]

[limits]
timeout_s = 20
"""
PROGRAM = '''\
"""Redis, in its own words."""
import time

from aileron_connector import http, hosts, op, run, tcp


def connected():
    host = hosts()[0]
    return tcp.connect(host.host, host.port, tls=False, timeout_s=15)


def ask(stream, *words):
    stream.sendall(b"*%d\\r\\n" % len(words) + b"".join(b"$%d\\r\\n%s\\r\\n" % (len(one), one) for one in words))
    return stream.recv(10_000).decode()


@op
def whoami():
    with connected() as stream:
        return [ask(stream, b"AUTH", b"any", b"placeholder"), ask(stream, b"ACL", b"WHOAMI")]


@op
def late(seconds: float):
    time.sleep(seconds)
    with connected() as stream:
        return ask(stream, b"ACL", b"WHOAMI")


@op
def echo(text: str):
    with connected() as stream:
        return ask(stream, b"ECHO", bytes(one - 1 for one in text.encode()))


@op
def hold():
    with connected() as stream:
        ask(stream, b"SET", b"held", b"yes")
        time.sleep(15)


@op
def by_http():
    host = hosts()[0]
    return http.request("GET", f"https://{host.host}:{host.port}/").status


run()
'''
OPERATIONS = {"whoami": (), "echo": ("text:string",), "late": ("seconds:number",), "hold": (), "by_http": ()}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[RedisServer]:
    """Start a server with one user, whose password is in the vault."""
    with RedisServer(tmp_path_factory.mktemp("redis"), authority, f"me on >{SECRET.decode()} ~* &* +@all") as running:
        yield running


@contextlib.contextmanager
def home_at(server: RedisServer, authority: Authority, tmp_path: Path, secret: bytes = SECRET) -> Iterator[DaemonHome]:
    """Provide a home whose connector may log in at the server."""
    source = tmp_path / "cache"
    source.mkdir()
    (source / "manifest.toml").write_text(MANIFEST)
    (source / "connector.py").write_text(PROGRAM)
    with daemon_home() as made:
        at = f"localhost:{server.tls_port}"
        made.reach(at, ca_file=authority.ca_file)
        made.install(source, at)
        for op, inputs in OPERATIONS.items():
            made.add_probe_action(op, *inputs, connector=CONNECTOR)
        made.unlock(secret)
        made.bind(CONNECTOR, BINDING, username="me")
        yield made


@pytest.mark.abuse_case("LP7")
def test_the_supervisor_logs_a_connector_in_and_the_connector_never_sees_the_secret(
    server: RedisServer, authority: Authority, tmp_path: Path
) -> None:
    """The user name is the binding's, not the library's; an echoed secret is masked, and all of this is recorded."""
    with home_at(server, authority, tmp_path) as home:
        answer = home.run("whoami", {})
        assert answer.status == 200, answer.body
        assert answer.body["result"] == ["+OK\r\n", "$2\r\nme\r\n"]
        sending, finished = [
            event for event in home.events(answer.body["audit_id"]) if event["type"].startswith("egress.")
        ]
        assert (sending["method"], sending["host"], sending["port"]) == ("REDIS", "localhost", server.tls_port)
        assert (sending["path"], sending["credential"]) == ("", BINDING)
        assert (finished["address"], finished["bytes_down"]) == ("127.0.0.1", 13)
        answer = home.run("echo", {"text": "".join(chr(ord(letter) + 1) for letter in f"it is {SECRET.decode()}.")})
        assert answer.body["result"] == f"$22\r\nit is {'*' * len(SECRET)}.\r\n"
        finished = home.events(answer.body["audit_id"])[-2]
        assert (finished["type"], finished["scrubbed"]) == ("egress.finished", 1)
        error = home.failed("by-http")
        assert (error["class"], error["details"].get("reason")) == ("capability_denied", "login_request"), error
        home.must("POST", "/v1/vault/lock")
        assert home.failed("whoami")["class"] == "vault_locked"


@pytest.mark.abuse_case("LP5")
def test_a_wrong_password_is_tried_only_once(server: RedisServer, authority: Authority, tmp_path: Path) -> None:
    """Neither the step nor the next run repeats the login; no file has the secret, and a new password works at once."""
    wrong = b"wrong-password-of-somebody"
    with home_at(server, authority, tmp_path, wrong) as home:
        error = home.failed("whoami")
        assert (error["class"], error["details"]["reason"]) == ("binding_failed", "refused_credential")
        assert "aileron secret set" in error["message"]
        again = home.failed("whoami")
        assert "is not tried again for" in again["message"]
        assert not [event for event in home.events(again["audit_id"]) if event["type"] == "egress.sending"]
        for path in home.path.rglob("*"):
            if path.is_file():
                assert wrong not in path.read_bytes(), path
        home.store("pw", SECRET)
        assert home.run("whoami", {}).status == 200


@pytest.mark.abuse_case("LP11")
@pytest.mark.parametrize("is_other", [True, False], ids=["another database", "the same"])
def test_rebinding_a_login_during_a_step_does_not_change_the_steps_login(
    is_other: bool, server: RedisServer, authority: Authority, tmp_path: Path
) -> None:
    """Rebinding to another database fails the step before anything is sent; rebinding to the same one changes nothing."""
    with home_at(server, authority, tmp_path) as home:
        run_id = home.run("late", {"seconds": 5 if is_other else 0.5}, wait=0).body["run_id"]
        home.must("PATCH", f"/v1/bindings/{BINDING}", {"details": {"database": "1"} if is_other else {}})
        ended = home.must("GET", f"/v1/runs/{run_id}?wait=20", wait_s=20)
        sent = [event for event in home.events(ended["audit_id"]) if event["type"] == "egress.sending"]

    if not is_other:
        assert (ended["status"], ended["result"], len(sent)) == ("completed", "$2\r\nme\r\n", 1)
        return
    assert (ended["status"], ended["error"]["class"], sent) == ("failed", "binding_failed", [])
    assert ended["error"]["details"]["reason"] == "binding_changed"
    assert f"{BINDING} was bound anew since the run was planned, with another database" in ended["error"]["message"]


def logins_of(daemon: int) -> set[int]:
    """Return the login processes of a daemon: the program, the one that forks, and its forks."""
    commands = read_descendants(daemon, psutil.Process.cmdline)
    return {process.pid for process, command in commands.items() if "aileron.logins" in command}


@pytest.mark.abuse_case("LP2")
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_no_login_process_outlives_the_daemon(
    how: str, server: RedisServer, authority: Authority, tmp_path: Path
) -> None:
    """The daemon ends while a stream is open."""
    with home_at(server, authority, tmp_path) as home:
        home.run("hold", {}, wait=0)
        assert home.daemon_pid is not None
        daemon = home.daemon_pid
        wait_until(lambda: len(logins_of(daemon)) >= 3, "a login is there", seen=lambda: logins_of(daemon))
        there = logins_of(daemon)
        os.kill(daemon, signal.SIGKILL if how == "killed" else signal.SIGTERM)
        for pid in there:
            wait_ended(pid)
