"""Measure the cost of a login by the supervisor, against the same library logging in by itself over TLS at the same real server.

- A login, from the connection to the answer of a first command: redis-py, pg8000 and imaplib, clocked inside the jail, through
  SDK, frames, the daemon, a process that is forked for it, and two rows of the ledger, the first of which is durable before a
  packet leaves. Directly, the library has the password and, if it accepts one, a TLS context that is made already;
  at the mail server both use PLAIN. Goal: at most 2.6 times. redis-py makes a context for each connection, which takes longer
  than the login; the time with a kept context is shown as well, without a goal, since no user of redis-py has that.
- Bytes behind a login: one answer of Redis of 32 MiB over TLS. Goal: at least 0.6 of what the library reads directly.

The servers are Debian's, on loopback, started here. All of them must be installed.
"""

from __future__ import annotations

import base64
import contextlib
import imaplib
import importlib.metadata
import shutil
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pg8000.native
import redis

from benchmarks import page
from benchmarks.measure import Measured, Question, Variant, answer, at_least, at_most, interleave
from tests.support.dovecot import PASSWORD, Dovecot
from tests.support.home import DaemonHome, daemon_home
from tests.support.postgresql import ADMIN, ADMIN_PASSWORD, PostgreSQL
from tests.support.redis_server import RedisServer
from tests.support.upstream import Authority

ROUNDS: Final = 30
TIMES: Final = 5
"""Logins in one turn."""
POURS: Final = 30
MEGABYTES: Final = 32
_SECRET: Final = "hunter2-of-a-usual-length"
_KEPT: Final = "redis, direct, a TLS context that is kept"
_SOURCE: Final = Path(__file__).parent / "logins"
_OLD: Final = ("async_timeout",) if sys.version_info < (3, 11, 3) else ()
_MANIFEST: Final = """[connector]
name = "{name}"
version = "1.0.0"
[capabilities.network]
hosts = ["{host}"]
[capabilities.credential]
kind = "login"
scope = "Whatever the server of the benchmark allows"
logins = ["{protocol}+tls://{host}"]
[capabilities.runtime]
imports = ["tcp"]
[limits]
timeout_s = 120
memory_mb = 512
"""
_ACTION: Final = """+++
name = "{op}-{library}"
version = "1.0.0"
[[requires.connectors]]
name = "{name}"
version = "1.0.0"
hash = "sha256:bound-at-release"
capabilities = ["{op}"]
[match]
intent = "measure"
[[execute]]
id = "step"
connector = "{name}"
op = "{op}"
[execute.inputs]
{inputs}
+++

# A benchmark
"""


class Service(NamedTuple):
    """A running server: its library, protocol and port, the user it knows, and how the library logs in to it directly."""

    library: str
    protocol: str
    port: int
    username: str
    secret: str
    database: str | None
    packages: tuple[str, ...]
    direct: Callable[[], Callable[[], object]]


def main() -> None:
    """Measure and report."""
    with contextlib.ExitStack() as running:
        directory = Path(running.enter_context(tempfile.TemporaryDirectory()))
        directory.chmod(0o755)
        authority = Authority(directory)
        server = running.enter_context(RedisServer(directory, authority, f"me on >{_SECRET} ~* &* +@all"))
        services = [_redis(server, authority)]
        services.append(_postgres(running.enter_context(PostgreSQL(authority)), authority))
        services.append(_imap(running.enter_context(Dovecot(authority, "plain")), authority))
        home = running.enter_context(_home(services, directory, authority))
        with _client(server, authority) as client:
            _measure_logins(home, services, lambda: _first_command(client))
        _measure_bytes(home, server, authority)


def _measure_logins(home: DaemonHome, services: list[Service], kept: Callable[[], Callable[[], object]]) -> None:
    variants: dict[str, Variant] = {}
    asked = []
    for service in services:
        ours, theirs = f"{service.library}, logged in by the supervisor", f"{service.library}, direct"
        variants[ours] = _from_the_jail(home, f"log_in-{service.library}")
        variants[theirs] = _directly(service.direct)
        asked.append(
            Question(f"a login, on record, and a first command: {service.library}", ours, theirs, at_most(2.6))
        )
    variants[_KEPT] = _directly(kept)
    asked.insert(1, Question(asked[0].what, asked[0].subject, _KEPT))
    answer("logins.json", interleave(variants, ROUNDS, warm_ups=1), asked)


def _measure_bytes(home: DaemonHome, server: RedisServer, authority: Authority) -> None:
    ours, theirs = "redis-py behind a login", "redis-py over TLS, direct"
    with _client(server, authority) as client:
        client.set("blob", bytes(MEGABYTES << 20))

        def direct() -> Measured:
            began = time.perf_counter()
            assert len(client.get("blob")) == MEGABYTES << 20
            return Measured([MEGABYTES / (time.perf_counter() - began)])

        taken = interleave({ours: _from_the_jail(home, "pour-redis"), theirs: direct}, POURS, warm_ups=1)
    question = Question("MiB per second of an answer behind a login", ours, theirs, at_least(0.6))
    answer("logins-bytes.json", taken, [question], "per s")


def _from_the_jail(home: DaemonHome, action: str) -> Variant:
    def once() -> Measured:
        found = home.run(action)
        assert found.status == 200, found.body
        return Measured(found.body["result"])

    return once


def _directly(log_in: Callable[[], Callable[[], object]]) -> Variant:
    def several() -> Measured:
        taken = []
        for _ in range(TIMES):
            began = time.perf_counter()
            undo = log_in()
            taken.append(time.perf_counter() - began)
            undo()
        return Measured(taken)

    return several


def _client(server: RedisServer, authority: Authority) -> redis.Redis:
    context = ssl.create_default_context(cafile=str(authority.ca_file))

    class Ready(redis.SSLConnection):
        def _wrap_socket_with_ssl(self, sock: socket.socket) -> ssl.SSLSocket:
            return context.wrap_socket(sock, server_hostname="localhost")

    pool = redis.ConnectionPool(
        connection_class=Ready, host="localhost", port=server.tls_port, username="me", password=_SECRET
    )
    return redis.Redis(connection_pool=pool)


def _redis(server: RedisServer, authority: Authority) -> Service:
    def direct() -> Callable[[], object]:
        client = redis.Redis(
            host="localhost",
            port=server.tls_port,
            ssl=True,
            ssl_ca_certs=str(authority.ca_file),
            username="me",
            password=_SECRET,
        )
        return _first_command(client)

    return Service("redis", "redis", server.tls_port, "me", _SECRET, None, ("redis", *_OLD), direct)


def _first_command(client: redis.Redis) -> Callable[[], object]:
    client.ping()
    disconnect: Callable[[], object] = client.connection_pool.disconnect
    return disconnect


def _postgres(server: PostgreSQL, authority: Authority) -> Service:
    context = ssl.create_default_context(cafile=str(authority.ca_file))

    def direct() -> Callable[[], object]:
        client = pg8000.native.Connection(
            ADMIN, host="localhost", port=server.port, database="postgres", password=ADMIN_PASSWORD, ssl_context=context
        )
        assert client.run("SELECT 1") == [[1]]
        close: Callable[[], object] = client.close
        return close

    packages = ("pg8000", "scramp", "asn1crypto", "dateutil", "six")
    return Service("pg8000", "postgres", server.port, ADMIN, ADMIN_PASSWORD, "postgres", packages, direct)


def _imap(server: Dovecot, authority: Authority) -> Service:
    context = ssl.create_default_context(cafile=str(authority.ca_file))

    def direct() -> Callable[[], object]:
        client = imaplib.IMAP4_SSL("localhost", server.imaps, ssl_context=context)
        client.authenticate("PLAIN", lambda _challenge: b"\0mira\0" + PASSWORD.encode())
        client.noop()
        return client.logout

    return Service("imaplib", "imap", server.imaps, "mira", PASSWORD, None, (), direct)


@contextlib.contextmanager
def _home(services: list[Service], directory: Path, authority: Authority) -> Iterator[DaemonHome]:
    """Yield a home whose daemon may reach the servers, with a connector, a binding and an action for each."""
    with daemon_home() as home:
        places = [f"localhost:{service.port}" for service in services]
        home.configure(f'[egress]\nprivate = {places}\nca_file = "{authority.ca_file}"\n')
        home.ask("GET", "/healthz")
        home.unlock()
        for service in services:
            name = f"github://aileron-benchmarks/{service.library}"
            _install(home, directory, name, service)
            secret = base64.b64encode(service.secret.encode()).decode()
            home.must("PUT", f"/v1/secrets/{service.library}", {"value_base64": secret})
            binding = {"connector": name, "name": f"login/{service.library}/me", "secret": service.library}
            details = {"database": service.database} if service.database else {}
            home.must("POST", "/v1/bindings", {**binding, "username": service.username, "details": details})
            inputs = f'library = "{service.library}"\ntimes = {TIMES}'
            _act(home, name=name, op="log_in", library=service.library, inputs=inputs)
        redis_connector = f"github://aileron-benchmarks/{services[0].library}"
        _act(home, name=redis_connector, op="pour", library="redis", inputs=f"megabytes = {MEGABYTES}")
        yield home


def _act(home: DaemonHome, **fields: str) -> None:
    home.must("POST", "/v1/actions", {"text": _ACTION.format(**fields), "file": "a benchmark"})


def _install(home: DaemonHome, directory: Path, name: str, service: Service) -> None:
    source = directory / service.library
    source.mkdir()
    shutil.copy(_SOURCE / "connector.py", source)
    for package in service.packages:
        _pack(package, source)
    text = _MANIFEST.format(name=name, host=f"localhost:{service.port}", protocol=service.protocol)
    (source / "manifest.toml").write_text(text, encoding="utf-8")
    home.install(source)


def _pack(package: str, source: Path) -> None:
    """Copy an installed package to `source` with its metadata, as `pip install --target` would put it there."""
    (distribution, *_) = importlib.metadata.packages_distributions()[package]
    for file in importlib.metadata.files(distribution) or ():
        if file.parts[0] in (package, f"{package}.py") or file.parts[0].endswith(".dist-info"):
            to = source / file
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file.locate(), to)


if __name__ == "__main__":
    main()
    page.write()
