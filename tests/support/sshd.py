"""A real SSH server (Debian's `openssh-server`) on a port of 127.0.0.1, for the user who runs the tests, and other servers.

`Sshd` has its keys and its configuration in a directory of the test's own. It runs commands with the user's shell, as sshd
does. `SshPeer` runs on asyncssh: it takes a password, or does what no server should.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Self

import asyncssh
import pytest

from tests.support.ports import reserve_ports
from tests.support.serving import Server, program
from tests.support.waiting import wait_text

__all__ = ["HOST_KEYS", "USER", "SshPeer", "Sshd", "needs_sshd", "public_line"]

_SSHD: Final = "/usr/sbin/sshd"
USER: Final = pwd.getpwuid(os.getuid()).pw_name
"""Name of the user who can log in."""
HOST_KEYS: Final = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa")
needs_sshd = pytest.mark.skipif(
    not os.access(_SSHD, os.X_OK) and "CI" not in os.environ,
    reason="sshd is not installed: apt-get install openssh-server",
)
"""A decorator that skips a test if sshd is missing. In CI it must be installed, or the test fails."""


def public_line(key: asyncssh.SSHKey) -> str:
    """Return a public key as OpenSSH writes it, without a comment."""
    return key.export_public_key().decode("ascii").strip()


class Sshd(Server):
    """A running server; `host_keys` are its keys by algorithm, `client_key` is one that it accepts. `settings` come first."""

    def __init__(self, directory: Path, *settings: str) -> None:
        self._directory: Final = directory
        (self.port,) = reserve_ports(1)
        self.host_keys: Final = {name: asyncssh.generate_private_key(name) for name in HOST_KEYS}
        self.client_key: Final = asyncssh.generate_private_key("ssh-ed25519")
        self.client_secret: Final[bytes] = self.client_key.export_private_key()  # not the same each time
        self.allowed: Final = directory / "authorized_keys"
        self.allow(self.client_key)
        for name, key in self.host_keys.items():
            path = directory / name
            path.touch(mode=0o600)
            path.write_bytes(key.export_private_key())
        (directory / "sshd_config").write_text(
            "\n".join(
                [
                    *settings,
                    f"Port {self.port}",
                    "ListenAddress 127.0.0.1",
                    *(f"HostKey {directory / name}" for name in HOST_KEYS),
                    f"AuthorizedKeysFile {self.allowed}",
                    "StrictModes no",
                    "UsePAM no",
                    "PasswordAuthentication no",
                    "KbdInteractiveAuthentication no",
                    "PermitRootLogin yes",
                    "PidFile none",
                    "UseDNS no",
                    "Subsystem sftp internal-sftp",
                    "",
                ]
            ),
            encoding="utf-8",
        )

    def allow(self, *keys: asyncssh.SSHKey) -> None:
        """Accept clients with one of these keys, and no others."""
        self.allowed.write_text("".join(public_line(key) + "\n" for key in keys), encoding="ascii")

    @property
    def log(self) -> str:
        """Output of the server."""
        return (self._directory / "sshd.log").read_text(encoding="utf-8", errors="replace")

    def wait_logged(self, text: str) -> None:
        """Wait until the server has logged this text. It logs after it has responded."""
        wait_text(self._directory / "sshd.log", text)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run the server until the end of the block."""
        if os.getuid() == 0:  # the folder is compiled into Debian's sshd, which runs parts of itself there
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        with (
            (self._directory / "sshd.log").open("wb") as log,
            program(
                [_SSHD, "-D", "-e", "-f", self._directory / "sshd_config"],
                self.port,
                says=lambda: self.log,
                end=subprocess.Popen.terminate,
                stdout=log,
                stderr=subprocess.STDOUT,
            ),
        ):
            yield


class SshPeer:
    """A server of asyncssh in a thread. `server` makes its `asyncssh.SSHServer`, `options` go to `asyncssh.listen`."""

    def __init__(self, server: Callable[[], asyncssh.SSHServer] = asyncssh.SSHServer, **options: Any) -> None:
        self.host_key: Final = options.pop("host_key", None) or asyncssh.generate_private_key("ssh-ed25519")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._server: Final = server
        self._connections: list[asyncssh.SSHServerConnection] = []
        self._options = {"server_factory": self._remembered, "server_host_keys": [self.host_key], **options}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)
        self._ready = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_error: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _remembered(self) -> asyncssh.SSHServer:
        server = self._server()
        made = server.connection_made

        def connection_made(conn: asyncssh.SSHServerConnection) -> None:
            self._connections.append(conn)
            made(conn)

        server.connection_made = connection_made  # type: ignore[method-assign]
        return server

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        acceptor = self._loop.run_until_complete(asyncssh.listen(sock=self._listener, **self._options))
        self._ready.set()
        self._loop.run_forever()
        acceptor.close()
        for connection in self._connections:
            connection.abort()
            self._loop.run_until_complete(connection.wait_closed())
        pending = asyncio.all_tasks(self._loop)
        for task in pending:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
