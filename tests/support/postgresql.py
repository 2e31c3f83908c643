"""A PostgreSQL server of the test's own: a new cluster on a free port of 127.0.0.1, TLS by a certificate that the test trusts.

    with PostgreSQL(authority) as server:
        with server.admin() as admin:
            admin.run("CREATE ROLE reader LOGIN PASSWORD 'x'")

Debian's package; no unix socket, nothing of the machine's own cluster. As root it runs as `postgres`, because the server refuses
root. `_HBA` has each user's way to log in: SCRAM by default. Not here: logging in through Aileron (logins.py).
"""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pg8000.native
import pytest

from tests.support.ports import reserve_ports
from tests.support.serving import Server, made_folder, program
from tests.support.upstream import Authority
from tests.support.waiting import end_of, wait_until

__all__ = ["ADMIN", "ADMIN_PASSWORD", "PostgreSQL", "needs_postgresql"]

ADMIN: Final = "postgres"
ADMIN_PASSWORD: Final = "of the cluster's owner"
_PROGRAMS: Final = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), None)
_HBA: Final = """\
host     all  by_md5       127.0.0.1/32  md5
host     all  by_password  127.0.0.1/32  password
host     all  by_trust     127.0.0.1/32  trust
host     all  nobody_else  127.0.0.1/32  reject
host     all  all          127.0.0.1/32  scram-sha-256
"""
_SETTINGS: Final = """\
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
ssl_min_protocol_version = 'TLSv1.2'
fsync = off
full_page_writes = off
max_connections = 20
shared_buffers = '16MB'
autovacuum = off
timezone = 'UTC'
"""


def needs_postgresql() -> None:
    """Skip the test if the machine has no server; with CI set, fail: a skip is not a pass."""
    if _PROGRAMS is None:
        words = "postgres is not installed: apt-get install postgresql"
        pytest.fail(words) if os.environ.get("CI") else pytest.skip(words)


class PostgreSQL(Server):
    """A server that runs between enter and exit. `port` is where it listens, `log` the file of its log."""

    def __init__(self, authority: Authority, *, tls: bool = True, settings: str = "") -> None:
        needs_postgresql()
        self._authority = authority
        self._tls = tls
        self._settings = settings
        self._user = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
        self.port = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Make a cluster, and run its server until the end of the block."""
        assert _PROGRAMS is not None
        with made_folder("aileron-postgresql-") as self._directory:
            data, self.log = self._directory / "data", self._directory / "log"
            password = self._directory / "password"
            password.write_text(ADMIN_PASSWORD)
            self._give(self._directory, password)
            self._run(
                *(_PROGRAMS / "initdb", "-D", data, "-U", ADMIN, "--pwfile", password, "-A", "scram-sha-256"),
                *("--locale=C", "-E", "UTF8", "--no-sync", "--no-instructions"),
            )
            self._write_settings(data)
            command, options = [_PROGRAMS / "postgres", "-D", data], {"cwd": "/", **self._as()}
            with (
                self.log.open("wb") as log,
                program(command, says=self.log.read_text, end=_end, stdout=log, stderr=log, **options) as server,
            ):
                wait_until(self._is_ready, "postgres starts", seen=self.log.read_text, unless=end_of(server))
                yield

    def _write_settings(self, data: Path) -> None:
        key, certificate = self._authority.server_files(self._directory, "localhost")
        key.chmod(0o600)
        self._give(key, certificate)
        (self.port,) = reserve_ports(1)
        settings = f"{_SETTINGS}port = {self.port}\n{self._settings}"
        if self._tls:
            settings += f"ssl = on\nssl_key_file = '{key}'\nssl_cert_file = '{certificate}'\n"
        (data / "postgresql.conf").write_text(settings)
        (data / "pg_hba.conf").write_text(_HBA)

    @contextlib.contextmanager
    def admin(self, database: str = "postgres") -> Iterator[pg8000.native.Connection]:
        """Yield a session of the cluster's owner, by the library directly."""
        context = ssl.create_default_context(cafile=str(self._authority.ca_file)) if self._tls else None
        connection = pg8000.native.Connection(
            ADMIN, host="localhost", port=self.port, database=database, password=ADMIN_PASSWORD, ssl_context=context
        )
        try:
            yield connection
        finally:
            connection.close()

    def _as(self) -> dict[str, Any]:
        if self._user is None:
            return {}
        return {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": ()}

    def _give(self, *paths: Path) -> None:
        if self._user is not None:
            for path in paths:
                os.chown(path, self._user.pw_uid, self._user.pw_gid)

    def _run(self, *command: object) -> None:
        subprocess.run([str(word) for word in command], check=True, capture_output=True, cwd="/", **self._as())

    def _is_ready(self) -> bool:
        try:
            with self.admin():
                return True
        except (pg8000.exceptions.Error, OSError):
            return False


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)  # fast shutdown
