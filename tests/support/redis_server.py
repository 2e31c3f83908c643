"""A real Redis server (Debian's `redis-server`), over TLS and in the clear, with users of an ACL.

It runs in a directory of the test's own, on two reserved ports, as the user of the tests; nothing is kept on disk.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.ports import reserve_ports
from tests.support.serving import Server, program
from tests.support.upstream import Authority

__all__ = ["RedisServer", "needs_redis"]

needs_redis = pytest.mark.skipif(
    shutil.which("redis-server") is None and "CI" not in os.environ,
    reason="redis-server is not installed: apt-get install redis-server",
)
"""A decorator that skips a test if redis-server is missing. In CI it must be installed, or the test fails."""


class RedisServer(Server):
    """A running server. `users` are lines of its ACL, as `me on >secret ~* +@all`; the user `default` is as they say, or off."""

    def __init__(self, directory: Path, authority: Authority, *users: str) -> None:
        self._directory: Final = directory
        self.log: Final = directory / "redis.log"
        self.port, self.tls_port = reserve_ports(2)
        key, certificate = authority.server_files(directory, "localhost", "127.0.0.1")
        acl = list(users) if any(user.startswith("default ") for user in users) else ["default off", *users]
        (directory / "redis.conf").write_text(
            "\n".join(
                [
                    f"port {self.port}",
                    f"tls-port {self.tls_port}",
                    "bind 127.0.0.1",
                    f"tls-cert-file {certificate}",
                    f"tls-key-file {key}",
                    "tls-auth-clients no",
                    'save ""',
                    "appendonly no",
                    f"dir {directory}",
                    "databases 4",
                    *(f"user {user}" for user in acl),
                ]
            ),
            encoding="utf-8",
        )

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run the server until the end of the block."""
        command, ports = ["redis-server", self._directory / "redis.conf"], (self.port, self.tls_port)
        with (
            self.log.open("wb") as log,
            program(command, *ports, says=self.log.read_text, stdout=log, stderr=subprocess.STDOUT),
        ):
            yield
