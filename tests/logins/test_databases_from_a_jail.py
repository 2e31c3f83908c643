"""Databases end to end: unmodified drivers in a jail, a daemon, the process that logs in, and real servers with TLS."""

from __future__ import annotations

import os
import shutil
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.canary import find, scan
from tests.support.home import DaemonHome, daemon_home
from tests.support.libraries import pack
from tests.support.mariadb import MariaDB
from tests.support.memories import command_of, descendants_of, memory_unless_ended
from tests.support.postgresql import PostgreSQL
from tests.support.upstream import Authority
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jail
CONNECTOR: Final = "github://aileron-tests/databases"
SOURCE: Final = Path(__file__).resolve().parents[1] / "support" / "connectors" / "databases"
PACKAGES: Final = ("pg8000", "scramp", "asn1crypto", "dateutil", "six", "pymysql")
SECRET: Final = "Zq7-canary-of-the-databases-xV2"
SHIPS: Final = [["Gorch Fock", 3], ["Passat", 4]]
TABLE: Final = (
    "CREATE TABLE ship (name varchar(100) PRIMARY KEY, masts int)",
    "INSERT INTO ship VALUES ('Gorch Fock', 3), ('Passat', 4)",
)
READ: Final = "SELECT name, masts FROM ship ORDER BY name"
WRITE: Final = "INSERT INTO ship VALUES ('Pamir', 4)"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PostgreSQL, MariaDB, Authority]]:
    """Start both servers, with a writer and a reader each, who share one password."""
    authority = Authority(tmp_path_factory.mktemp("ca"))
    with PostgreSQL(authority) as postgres, MariaDB(authority) as mariadb:
        with postgres.admin() as admin:
            for sql in (
                "CREATE DATABASE shop",
                *(f"CREATE ROLE {who} LOGIN PASSWORD '{SECRET}'" for who in ("writer", "reader")),
            ):
                admin.run(sql)
        with postgres.admin("shop") as admin:
            for sql in (*TABLE, "GRANT SELECT ON ship TO reader", "GRANT ALL ON ship TO writer"):
                admin.run(sql)
        mariadb.run("CREATE DATABASE shop", "USE shop", *TABLE)
        for who, rights in (("writer", "ALL"), ("reader", "SELECT")):
            mariadb.run(f"CREATE USER {who} IDENTIFIED BY '{SECRET}'", f"GRANT {rights} ON shop.* TO {who}")
        yield postgres, mariadb, authority


@pytest.fixture(scope="module")
def home(
    servers: tuple[PostgreSQL, MariaDB, Authority], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DaemonHome]:
    """Start a home with the connector, its drivers, both bindings, and an action for each operation."""
    postgres, mariadb, authority = servers
    source = tmp_path_factory.mktemp("connector") / "databases"
    shutil.copytree(SOURCE, source)
    for package in PACKAGES:
        pack(package, source)
    manifest = source / "manifest.toml"
    manifest.write_text(
        manifest.read_text().replace(":5432", f":{postgres.port}").replace(":3306", f":{mariadb.port}"),
        encoding="utf-8",
    )
    with daemon_home() as made:
        made.reach(f"localhost:{postgres.port}", f"localhost:{mariadb.port}", ca_file=authority.ca_file)
        made.install(source)
        made.unlock(SECRET.encode())
        for who, details in (("writer", {}), ("reader", {"read_only": True})):
            made.bind(CONNECTOR, f"login/ships/{who}", username=who, details={"database": "shop", **details})
        for op in ("postgres", "mysql", "read_postgres", "read_mysql"):
            made.add_probe_action(op, "sql:string", connector=CONNECTOR)
        yield made


def done(home: DaemonHome, op: str, *sql: str) -> Any:
    """Return the results of the statements; the password is nowhere in them."""
    answer = home.run(op, {"sql": "\n".join(sql)})
    assert answer.status == 200, answer.body
    assert SECRET not in str(answer.body)
    return answer.body["result"]


@pytest.mark.parametrize("server", ["postgres", "mysql"])
def test_a_database_driver_in_a_jail_reads_and_writes_without_the_password(home: DaemonHome, server: str) -> None:
    """The driver uses a transaction, which the writer's account may commit; the ledger has the login and its server."""
    assert done(home, server, WRITE, READ) == [[], sorted([*SHIPS, ["Pamir", 4]])]
    answer = home.run(server, {"sql": f"DELETE FROM ship WHERE name = 'Pamir'\n{READ}"})
    assert answer.body["result"] == [[], SHIPS]
    events = [event for event in home.events(answer.body["audit_id"]) if event["type"].startswith("egress.")]
    sending, finished = events[0], events[-1]
    assert (sending["method"], sending["credential"]) == (server.upper(), "login/ships/writer")
    assert "class" not in finished


@pytest.mark.parametrize("server", ["postgres", "mysql"])
def test_a_read_only_operation_is_logged_in_as_a_role_that_cannot_write(home: DaemonHome, server: str) -> None:
    """The role prevents writes, whatever the operation sends."""
    assert done(home, f"read-{server}", READ) == [SHIPS]
    (said,) = done(home, f"read-{server}", WRITE)
    assert "not passed on" in said if server == "postgres" else "denied" in said
    assert done(home, f"read-{server}", READ) == [SHIPS]


def test_a_reader_role_that_gained_the_right_to_write_is_not_logged_in(
    home: DaemonHome, servers: tuple[PostgreSQL, MariaDB, Authority]
) -> None:
    """The failure says what to do about it."""
    with servers[0].admin("shop") as admin:
        admin.run("GRANT DELETE ON ship TO reader")
        answer = home.run("read-postgres", {"sql": READ})
        admin.run("REVOKE DELETE ON ship FROM reader")
    error = answer.body["error"]
    assert (error["class"], error["details"]["reason"]) == ("binding_failed", "may_write")
    assert "REVOKE" in error["message"]
    assert done(home, "read-postgres", READ) == [SHIPS]


@pytest.mark.parametrize(("user", "form"), [("by_md5", "md5"), ("by_password", "cleartext")], ids=["md5", "cleartext"])
def test_a_login_without_scram_needs_the_bindings_permission(
    home: DaemonHome, servers: tuple[PostgreSQL, MariaDB, Authority], user: str, form: str
) -> None:
    """The failure names the command that gives it. A password that was sent is masked on its way into the jail."""
    setting = "md5" if form == "md5" else "scram-sha-256"
    with servers[0].admin("shop") as admin:
        admin.run(f"SET password_encryption = '{setting}'")
        admin.run(f"CREATE ROLE {user} LOGIN PASSWORD '{SECRET}'")
        admin.run(f"CREATE TABLE IF NOT EXISTS kept AS SELECT '{SECRET}' AS word")
        admin.run(f"GRANT SELECT ON ship, kept TO {user}")
    binding, details = f"login/ships/{user.replace('_', '-')}", {"database": "shop"}
    home.bind(CONNECTOR, binding, username=user, details=details)
    echo = ["SELECT word FROM kept"] if form == "cleartext" else []
    run = {"args": {"sql": "\n".join([READ, *echo])}, "binding": binding}
    refused = home.ask("POST", "/v1/actions/postgres/run?wait=25", run, wait_s=25).body["error"]
    changed = {"details": {**details, "weak_password": form}}
    home.must("PATCH", f"/v1/bindings/{urllib.parse.quote(binding, safe='')}", changed)
    answer = home.ask("POST", "/v1/actions/postgres/run?wait=25", run, wait_s=25)
    home.must("DELETE", f"/v1/bindings/{urllib.parse.quote(binding, safe='')}")

    assert (refused["class"], refused["details"]["reason"]) == ("network_error", "weak_login")
    assert f"aileron binding rebind {binding} --allow-password-form {form}" in refused["message"]
    assert answer.body.get("result") == [SHIPS, *([[["*" * len(SECRET)]]] if echo else [])], answer.body


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user may not read the memory of their jails")
def test_the_password_is_in_no_jail_while_it_is_used(
    home: DaemonHome, servers: tuple[PostgreSQL, MariaDB, Authority]
) -> None:
    """The memory of every jail is searched while the service works; the statement is found there, so the search works."""
    needle = "a-needle-in-the-jail"
    answers: list[Any] = []
    sql = f"SELECT pg_advisory_lock(7), '{needle}'"
    asking = threading.Thread(target=lambda: answers.append(home.run("postgres", {"sql": sql})))
    with servers[0].admin("shop") as admin:
        admin.run("SELECT pg_advisory_lock(7)")
        asking.start()
        wait_until(
            lambda: admin.run("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"),
            "the service works for it",
            seen=lambda: answers,
        )
        daemon = home.daemon_pid
        assert daemon is not None
        jails = [memory for pid in descendants_of(daemon) if (memory := _of_a_jail(pid)) is not None]
    asking.join(20)

    assert [answer.status for answer in answers] == [200], answers
    assert any(needle.encode() in memory for memory in jails), "the connector's memory was not looked at"
    for memory in jails:
        assert SECRET.encode() not in memory
        assert needle.encode() not in memory or find(memory, SECRET.encode()) == []  # in any shape


def _of_a_jail(pid: int) -> bytes | None:
    """Return the memory of a jail; None for other processes, above all the one that logs in, and for one that just ended."""
    return memory_unless_ended(pid) if b"aileron_sandbox" in command_of(pid) else None


def test_the_password_is_in_no_file_of_the_home(home: DaemonHome) -> None:
    """The search covers the whole home: ledger, log, connector, sockets; the log is not empty."""
    done(home, "postgres", READ)
    assert scan([home.path], SECRET.encode()) == {}
    assert any(path.stat().st_size for path in home.path.rglob("*.log*"))
