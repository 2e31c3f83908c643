"""Each protocol at a real server through the real processes: it has the kernel calls and files that it needs, confined.

What the protocols do is tested beside it, without processes; here a login, a few words, and the end.
"""

from __future__ import annotations

import importlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import pg8000.native
import pymysql
import pytest

from aileron.logins.child import CLASSES
from aileron.logins.keeper import Keeper
from aileron.logins.login_messages import CAN_READ_ONLY, LoggedIn, Order, Over
from aileron.model.login import LoginDetails, LoginProtocol, LoginTarget
from tests.support.dovecot import PASSWORD, Dovecot
from tests.support.mariadb import MariaDB
from tests.support.postgresql import ADMIN, ADMIN_PASSWORD, PostgreSQL
from tests.support.redis_server import RedisServer, needs_redis
from tests.support.sshd import USER, Sshd, needs_sshd, public_line
from tests.support.upstream import Authority

pytestmark = [pytest.mark.anyio, pytest.mark.jail]
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Return the backend of the daemon."""
    return "asyncio"


@pytest.fixture(scope="module")
async def keeper(authority: Authority) -> AsyncIterator[Keeper]:
    """Yield one keeper for all of these tests."""
    login_keeper = Keeper(authority.ca_pem)
    yield login_keeper
    await login_keeper.aclose()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Return the authority of all servers here."""
    return Authority(tmp_path_factory.mktemp("ca"))


@asynccontextmanager
async def logged_in(
    keeper: Keeper, target: str, username: str, secret: bytes, mechanism: str, **more: Any
) -> AsyncIterator[socket.socket]:
    """Log in; yield the blocking stream. The login must end well on leaving the block."""
    where = LoginTarget.parse(target)
    order = Order(
        target=where,
        credential="password",
        username=username,
        secret=secret,
        details=more.pop("details", LoginDetails()),
        command=more.pop("command", None),
        login_s=20.0,
        stream_s=40.0,
    )
    with anyio.fail_after(DEADLINE_S):
        service = socket.create_connection(("127.0.0.1", where.destination.port))
        begun = await keeper.prepare(where.protocol)
        await begun.begin(order, service)
        assert await begun.hear() == LoggedIn(mechanism=mechanism)
        begun.stream.settimeout(DEADLINE_S)
        yield begun.stream
        begun.stream.close()
        assert await begun.hear() == Over(scrubbed=0)
        begun.close()


async def said(stream: socket.socket, *lines: bytes) -> bytes:
    """Send the lines; return the answer to the last one."""

    def talk() -> bytes:
        answer = b""
        for line in lines:
            stream.sendall(line)
            answer = stream.recv(10_000)
        return answer

    return await anyio.to_thread.run_sync(talk)


@needs_redis
async def test_a_confined_process_logs_in_at_redis_over_tls(
    keeper: Keeper, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Certificates must be read before the confinement, because no file can be opened afterwards."""
    with RedisServer(tmp_path_factory.mktemp("redis"), authority, "me on >hunter22 ~* &* +@all") as server:
        target = f"redis://localhost:{server.tls_port}"
        async with logged_in(keeper, target, "me", b"hunter22", "AUTH") as stream:
            assert await said(stream, b"PING\r\n") == b"+PONG\r\n"


async def test_a_confined_process_logs_in_at_imap_with_starttls(keeper: Keeper, authority: Authority) -> None:
    """The login uses SASL, and TLS begins within the connection."""
    with Dovecot(authority) as server:
        target = f"imap+starttls://localhost:{server.imap}"
        async with logged_in(keeper, target, "mira", PASSWORD.encode(), "SCRAM-SHA-256") as stream:
            assert (await anyio.to_thread.run_sync(stream.recv, 1000)).startswith(b"* ")
            assert b"a OK" in await said(stream, b"a LOGIN any any\r\n")
            assert b"b OK" in await said(stream, b"b NOOP\r\n")


async def test_a_confined_process_logs_in_at_postgresql_with_channel_binding(
    keeper: Keeper, authority: Authority
) -> None:
    """Channel binding ties the login to the server's certificate."""
    with PostgreSQL(authority) as server:
        target, details = f"postgres://localhost:{server.port}", LoginDetails(database="postgres")
        secret = ADMIN_PASSWORD.encode()
        async with logged_in(keeper, target, ADMIN, secret, "SCRAM-SHA-256-PLUS", details=details) as stream:

            def ask() -> object:
                connection = pg8000.native.Connection("any", sock=stream, password="any")
                try:
                    return connection.run("SELECT 6 * 7")
                finally:
                    connection.close()

            assert await anyio.to_thread.run_sync(ask) == [[42]]


async def test_a_confined_process_logs_in_at_mysql_with_a_signature(keeper: Keeper, authority: Authority) -> None:
    """A library computes the signature, and must do so within the confinement."""
    with MariaDB(authority) as server:
        server.run("CREATE USER edwards IDENTIFIED VIA ed25519 USING PASSWORD('hunter22')")
        target = f"mysql://localhost:{server.port}"
        async with logged_in(keeper, target, "edwards", b"hunter22", "client_ed25519") as stream:

            def ask() -> object:
                connection = pymysql.connect(user="any", password="any", defer_connect=True)
                connection.connect(stream)
                with connection, connection.cursor() as cursor:
                    cursor.execute("SELECT 6 * 7")
                    return cursor.fetchall()

            assert await anyio.to_thread.run_sync(ask) == ((42,),)


@needs_sshd
async def test_a_confined_process_logs_in_by_ssh(keeper: Keeper, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A process of its own loads the SSH library and logs in."""
    with Sshd(tmp_path_factory.mktemp("sshd")) as server:
        details = LoginDetails(host_key=public_line(server.host_keys["ssh-ed25519"]))
        secret = server.client_key.export_private_key()
        target = f"ssh://127.0.0.1:{server.port}"
        async with logged_in(keeper, target, USER, secret, "publickey", details=details, command="head -c 5") as stream:
            assert await said(stream, b"hello") == b"hello"


@pytest.mark.parametrize("protocol", sorted(CLASSES))
def test_the_daemon_s_list_of_protocols_with_read_only_logins_matches_the_protocol_classes(
    protocol: LoginProtocol,
) -> None:
    """The daemon's list lets egress refuse a read-only login at other protocols without asking."""
    module, name = CLASSES[protocol]
    found = getattr(importlib.import_module(f"aileron.logins.protocols.{module}"), name)
    assert found.can_read_only is (protocol in CAN_READ_ONLY)
