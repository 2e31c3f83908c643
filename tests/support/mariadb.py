"""A MariaDB server of the test's own: a new data directory, a free port of 127.0.0.1, TLS by a certificate that the test trusts.

    with MariaDB(authority) as server:
        server.run("CREATE USER reader IDENTIFIED BY 'x'")

Debian's package; nothing of the machine's own server. As root it runs as `mysql`, because it refuses root. A file creates its
owner as it starts. Not here: logging in through Aileron (logins.py).
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pymysql
import pytest

from tests.support.ports import reserve_ports
from tests.support.serving import Server, made_folder, program
from tests.support.upstream import Authority
from tests.support.waiting import end_of, wait_until

__all__ = ["MariaDB", "needs_mariadb"]

_SERVER: Final = shutil.which("mariadbd", path="/usr/sbin:/usr/bin")
_TABLES: Final = [
    Path("/usr/share/mysql", name) for name in ("mysql_system_tables.sql", "mysql_system_tables_data.sql")
]
"""SQL files that mariadb-install-db runs, without those of its help and views: one second in place of seven."""
_OWNER: Final = """\
CREATE USER owner@'127.0.0.1' IDENTIFIED BY 'owner';
GRANT ALL ON *.* TO owner@'127.0.0.1' WITH GRANT OPTION;
"""
_SETTINGS: Final = """\
[mariadbd]
datadir = {directory}/data
tmpdir = {directory}/tmp
socket = {directory}/socket
pid-file = {directory}/pid
bind-address = 127.0.0.1
port = {port}
innodb-buffer-pool-size = 16M
innodb-log-file-size = 4M
innodb-flush-log-at-trx-commit = 0
innodb-flush-method = nosync
innodb-undo-tablespaces = 0
performance-schema = off
skip-name-resolve
max-connect-errors = 1000000
{tls}
"""


def needs_mariadb() -> None:
    """Skip the test if the machine has no server; with CI set, fail: a skip is not a pass."""
    if _SERVER is None or not all(path.exists() for path in _TABLES):
        words = "mariadbd is not installed: apt-get install mariadb-server"
        pytest.fail(words) if os.environ.get("CI") else pytest.skip(words)


class MariaDB(Server):
    """A server that runs between enter and exit. `port` is where it listens."""

    def __init__(self, authority: Authority, *, tls: bool = True) -> None:
        needs_mariadb()
        self._authority = authority
        self._tls = tls
        self._user = pwd.getpwnam("mysql") if os.geteuid() == 0 else None
        self.port = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Make a data directory, and run its server until the end of the block."""
        assert _SERVER is not None
        with made_folder("aileron-mariadb-") as self._directory:
            settings = self._write_settings()
            self._make_tables(settings)
            owner, log = self._directory / "owner.sql", self._directory / "log"
            owner.write_text(_OWNER)
            self._give(owner)
            command = [_SERVER, settings, f"--init-file={owner}", "--plugin-load-add=auth_ed25519"]
            options = {"end": subprocess.Popen.terminate, "cwd": "/", **self._as()}
            with (
                log.open("wb") as out,
                program(command, says=log.read_text, stdout=out, stderr=out, **options) as server,
            ):
                wait_until(self._is_ready, "mariadbd starts", seen=log.read_text, unless=end_of(server))
                yield

    def _write_settings(self) -> str:
        """Write the settings into the directory. Return the option that names them."""
        # Its own tmp, not /tmp: a server that starts removes the temporary tables that it finds, also another server's.
        for name in ("data", "tmp"):
            (self._directory / name).mkdir()
        key, certificate = self._authority.server_files(self._directory, "localhost")
        key.chmod(0o600)
        (self.port,) = reserve_ports(1)
        tls = f"ssl-key = {key}\nssl-cert = {certificate}" if self._tls else "skip-ssl"
        settings = self._directory / "my.cnf"
        settings.write_text(_SETTINGS.format(directory=self._directory, port=self.port, tls=tls))
        self._give(self._directory, self._directory / "data", self._directory / "tmp", key, certificate, settings)
        return f"--defaults-file={settings}"

    def _make_tables(self, settings: str) -> None:
        said = "CREATE DATABASE mysql;\nUSE mysql;\n" + "\n".join(path.read_text() for path in _TABLES)
        made = subprocess.run(
            [str(_SERVER), settings, "--bootstrap", "--skip-grant-tables", "--default-storage-engine=Aria"],
            input=said.encode(),
            capture_output=True,
            cwd="/",
            **self._as(),
        )
        assert made.returncode == 0, made.stderr.decode(errors="replace")[-4000:]

    def run(self, *statements: str) -> list[Any]:
        """Execute the statements as the owner. Return the rows of the last."""
        connection = pymysql.connect(
            host="localhost", port=self.port, user="owner", password="owner", ssl_disabled=True
        )
        with connection, connection.cursor() as cursor:
            for sql in statements:
                cursor.execute(sql)
            connection.commit()
            return list(cursor.fetchall())

    def _as(self) -> dict[str, Any]:
        if self._user is None:
            return {}
        return {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": ()}

    def _give(self, *paths: Path) -> None:
        if self._user is not None:
            for path in paths:
                os.chown(path, self._user.pw_uid, self._user.pw_gid)

    def _is_ready(self) -> bool:
        try:
            return bool(self.run("SELECT 1"))
        except pymysql.err.OperationalError:
            return False
