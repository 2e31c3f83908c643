"""Adapter for dulwich over `ssh://`. Instead of starting `ssh`, it opens a stream of the host, which has logged in (tcp.py).

    porcelain.clone("ssh://git@git.example.com/team/website.git", ".")

opens a stream to git.example.com:22 with the command `git-upload-pack '/team/website.git'`, as `ssh` would execute it.
The manifest has to name the login and the command. User name, password and key come from the binding, outside the jail;
any that are passed to dulwich are ignored.

Runs inside the jail. Source: https://www.dulwich.io/api/dulwich.client.html#dulwich.client.SSHVendor. Not here: Git over HTTPS,
which is a request like any other (transports/http_client.py).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any, Final

from aileron_connector import loop, tcp

__all__ = ["change_dulwich", "change_modes"]

_SSH_PORT: Final = 22


def change_dulwich(module: Any) -> None:
    """Make dulwich execute commands for `ssh://` over a stream of the host within an invocation, by replacing
    get_ssh_vendor, which every client for `ssh://` calls.
    """
    original: Callable[[], Any] = module.get_ssh_vendor
    module.get_ssh_vendor = lambda: original() if loop.maybe_current() is None else _Vendor()


def change_modes(module: Any) -> None:
    """Make dulwich.object_store or dulwich.repo ignore a refused chmod. In a jail a file keeps the mode with which it was
    created, which is sufficient.
    """
    module.os = _OsInAJail()


class _OsInAJail:
    """The module `os` with a `chmod` that ignores PermissionError."""

    @staticmethod
    def chmod(path: str, mode: int) -> None:
        with contextlib.suppress(PermissionError):
            os.chmod(path, mode)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


class _Vendor:
    """A replacement for dulwich's SSHVendor, which would start the program `ssh`."""

    def run_command(
        self, host: str, command: bytes, username: str | None = None, port: int | None = None, **_others: object
    ) -> _Command:
        return _Command(tcp.connect(host, port or _SSH_PORT, command=command.decode("utf-8")))


class _Command:
    """A command that runs on the SSH server, at the other end of the stream. If it fails, the error contains its standard
    error.
    """

    stderr = None

    def __init__(self, stream: tcp.Stream) -> None:
        self._stream: Final = stream
        self.write: Final = stream.sendall
        self.can_read: Final = stream.can_read
        self.close: Final = stream.close

    def read(self, size: int = -1) -> bytes:
        """Read `size` bytes, or all bytes if `size` is negative. Fewer are returned at the end."""
        found = bytearray()
        while size < 0 or len(found) < size:
            piece = self._stream.recv((1 << 16) if size < 0 else size - len(found))
            if not piece:
                break
            found += piece
        return bytes(found)
