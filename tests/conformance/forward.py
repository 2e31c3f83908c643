"""A door for a client that cannot show a session token: it passes every request on to the daemon's `/mcp`, with the token added.

The suite has an option for the address of the server and none for a header. So it is given this address, and what it sends
reaches the daemon byte for byte, but for the heads of requests: `Authorization` is added; a `Host` or `Origin` that is this
address becomes the daemon's (any other passes, so that the daemon's own check is what is tested); `Connection: close`, because
a connection carries one request here. The daemon's answer is passed back unchanged, as it comes, and the end of either side
ends the other. Runs in threads of the test process, on loopback.

    with Forward(20480, token) as forward:
        ...the suite, with --url http://127.0.0.1:{forward.port}/mcp...

Source: RFC 9110, section 7.2 (Host); RFC 9112, section 9.6 (close). Not here: what is said (suite.py).
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Final, Self

__all__ = ["Forward"]

_HEAD_BYTES: Final = 64 << 10
"""Bytes of one request's head; the suite sends less than 1 KiB."""
_CONNECT_S: Final = 10.0


class Forward:
    """A running forwarder; a context manager that leaves no thread and no socket behind. `port` is on 127.0.0.1."""

    def __init__(self, daemon_port: int, token: str) -> None:
        self._daemon_port = daemon_port
        self._token = token
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *exc_info: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept
        with self._lock:
            _end(*self._open)
        while self._threads:
            self._threads.pop().join(timeout=10)
        self._listener.close()

    def _start(self, run: object, *args: object) -> None:
        thread = threading.Thread(target=run, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _address = self._listener.accept()
            except OSError:
                return
            self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        """Serve one connection, which is one request and its answer."""
        with contextlib.suppress(OSError), client:
            head, rest = _request_head(client)
            if not head:
                return
            with socket.create_connection(("127.0.0.1", self._daemon_port), _CONNECT_S) as daemon:
                daemon.settimeout(None)  # a stream of events may be silent for as long as the suite wants it
                with self._lock:
                    self._open |= {client, daemon}
                daemon.sendall(self._rewritten(head) + rest)
                up = threading.Thread(target=_pass_on, args=(client, daemon), daemon=True)
                up.start()
                _pass_on(daemon, client)
                up.join()
                with self._lock:
                    self._open -= {client, daemon}

    def _rewritten(self, head: bytes) -> bytes:
        first, *fields = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
        theirs = f"localhost:{self._daemon_port}".encode()
        mine = [f"{name}:{self.port}".encode() for name in ("127.0.0.1", "localhost")]
        said = {
            b"host": dict.fromkeys(mine, theirs),
            b"origin": {b"http://" + host: b"http://" + theirs for host in mine},
        }
        kept = []
        for field in fields:
            name, _, value = field.partition(b":")
            instead = said.get(name.lower(), {}).get(value.strip().lower())
            if name.lower() != b"connection":
                kept.append(field if instead is None else name + b": " + instead)
        added = [f"Authorization: Bearer {self._token}".encode(), b"Connection: close"]
        return b"\r\n".join([first, *kept, *added]) + b"\r\n\r\n"


def _request_head(client: socket.socket) -> tuple[bytes, bytes]:
    """Return a request's head with its end, and what came after it; two empty strings if the client went away before."""
    data = b""
    while b"\r\n\r\n" not in data and len(data) < _HEAD_BYTES:
        piece = client.recv(65536)
        if not piece:
            return b"", b""
        data += piece
    head, end, rest = data.partition(b"\r\n\r\n")
    return head + end, rest


def _pass_on(reading: socket.socket, writing: socket.socket) -> None:
    """Pass on one direction until it ends, then end both."""
    with contextlib.suppress(OSError):
        while piece := reading.recv(65536):
            writing.sendall(piece)
    _end(reading, writing)


def _end(*sockets: socket.socket) -> None:
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
