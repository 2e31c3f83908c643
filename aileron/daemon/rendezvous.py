"""Where clients and the one daemon of a home find each other: the lock, the sockets, `daemon.json`.

Rules
- Whoever holds the lock on `run/daemon.lock` is the daemon. The kernel gives it back when the process ends, however it ends,
  so a stale socket file never means a running daemon.
- The directory is 0700 and the sockets 0600: on Linux connecting to a socket needs write permission on it, unix(7).
- The scope of a caller is the socket it came in on.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from aileron.files import OTHERS_MAY_USE, make_directory, open_directory
from aileron.home import Home
from aileron.model.failure import AileronError, FailureClass

__all__ = ["AlreadyRunning", "hold", "listen"]

_BACKLOG: Final = 128


class AlreadyRunning(Exception):
    """Another process is this home's daemon."""


@contextlib.contextmanager
def hold(home: Home, facts: dict[str, Any]) -> Iterator[None]:
    """Be the daemon of this home for the length of the block. AlreadyRunning if another is."""
    for directory in (home.path, home.run, home.logs):
        _make(directory)
        with open_directory(directory, OTHERS_MAY_USE):
            pass
    lock = os.open(home.run / "daemon.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AlreadyRunning(f"a daemon already runs for {home.path}") from error
        announcement = home.run / "daemon.json"
        announcement.write_text(json.dumps({"pid": os.getpid(), **facts}) + "\n", encoding="utf-8")
        announcement.chmod(0o600)
        try:
            yield
        finally:
            sockets = (home.agent_socket, home.cell_socket, home.operator_socket, home.mcp_socket, home.tunnel_socket)
            for path in (announcement, *sockets):
                path.unlink(missing_ok=True)
    finally:
        os.close(lock)


def _make(directory: Path) -> None:
    try:
        make_directory(directory)
    except (AileronError, FileNotFoundError) as error:  # the latter in /proc, which has what it has
        why = error.failure.message if isinstance(error, AileronError) else f"{directory} cannot be created"
        message = f"{why}: set AILERON_HOME to a directory of your own"
        raise AileronError(FailureClass.INVALID_REQUEST, message) from error


def listen(path: Path) -> socket.socket:
    """A listening socket at `path`, 0600. Only for the holder of the lock: what was there is stale."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        raise AileronError(FailureClass.INTERNAL_ERROR, f"cannot listen on {path}: {error}") from error
    finally:
        os.umask(before)
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener
