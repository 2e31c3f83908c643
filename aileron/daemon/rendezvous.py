"""The place where clients find the one daemon of a home: the lock, the sockets, `daemon.json`.

Rules
- The process that holds the lock on `run/daemon.lock` is the daemon. The kernel releases the lock when the process ends,
  however it ends, so a stale socket file is never mistaken for a running daemon.
- The directory is 0700 and the sockets 0600: on Linux connecting to a socket needs write permission on it, unix(7).
- The scope of a caller is determined by the socket that it connected to.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from aileron.api.failures import ErrorBody
from aileron.files import OTHERS_MAY_USE, make_directory, open_directory
from aileron.home import Home
from aileron.model.failure import AileronError, FailureClass

__all__ = ["AlreadyRunning", "HomeListeners", "hold", "listen_in", "refuse_all"]

_BACKLOG: Final = 128
_REQUEST_BYTES: Final = 65536
"""Maximum number of bytes that are read from a refused request: no command sends more."""
_BUG: Final = "the daemon cannot begin to work, and stops: this is a bug in aileron; see `aileron daemon logs`"


class HomeListeners(NamedTuple):
    """The listening sockets of a home."""

    operator: socket.socket
    agent: socket.socket
    cell: socket.socket
    mcp: socket.socket
    tunnel: socket.socket


class AlreadyRunning(Exception):
    """Error: another process is this home's daemon."""


@contextlib.contextmanager
def hold(home: Home, facts: dict[str, object]) -> Iterator[None]:
    """Hold the home's lock during the block, which makes this process the home's daemon. `facts`, such as the daemon's
    version, are written to `daemon.json` for clients. Raises AlreadyRunning if another process holds the lock.
    """
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
    except (AileronError, FileNotFoundError) as error:  # FileNotFoundError in /proc, where nothing can be created
        why = error.failure.message if isinstance(error, AileronError) else f"{directory} cannot be created"
        message = f"{why}: set AILERON_HOME to a directory of your own"
        raise AileronError(FailureClass.INVALID_REQUEST, message) from error


def listen_in(home: Home) -> HomeListeners:
    """Listen on every socket of a home, with mode 0600. The caller must hold the home's lock, so that any existing socket file
    is stale.
    """
    return HomeListeners(
        operator=_listen(home.operator_socket),
        agent=_listen(home.agent_socket),
        cell=_listen(home.cell_socket),
        mcp=_listen(home.mcp_socket),
        tunnel=_listen(home.tunnel_socket),
    )


def _listen(path: Path) -> socket.socket:
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


def refuse_all(listeners: HomeListeners, error: Exception) -> None:
    """Send `error` as the response to every client that waits at a socket of the home, without an HTTP server."""
    failure = (
        error.failure if isinstance(error, AileronError) else AileronError(FailureClass.INTERNAL_ERROR, _BUG).failure
    )
    body = msgspec.json.encode({"error": ErrorBody.of(failure, None)})
    head = f"HTTP/1.1 {failure.failure_class.http_status} Refused\r\nContent-Type: application/json\r\n"
    answer = f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
    for listener in listeners:
        with listener, contextlib.suppress(OSError):  # until no client waits there
            while True:
                connection, _ = listener.accept()
                if listener in (listeners.operator, listeners.agent, listeners.cell):
                    _answer(connection, answer)
                connection.close()


def _answer(connection: socket.socket, answer: bytes) -> None:
    """Send `answer` whatever the request is. Read only the bytes that have already arrived, without waiting for more."""
    connection.setblocking(False)
    with contextlib.suppress(OSError):
        connection.recv(_REQUEST_BYTES)
    with contextlib.suppress(OSError):
        connection.send(answer)
