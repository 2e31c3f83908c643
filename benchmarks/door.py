"""A client that does nothing but send and receive bytes: the same request, again and again, over a kept connection.

The daemon closes a connection that sends nothing for a while, and a peer's turn may be longer; it also closes one after a
thousand requests. The client then connects again.
"""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from benchmarks.measure import Measured

__all__ = ["TEXT", "Door", "Kept"]

_WAIT_S: Final = 60
"""Seconds that the daemon may wait for a run: a virtual machine may stand still for half a minute."""
_DEADLINE_S: Final = 90.0
TEXT: Final = {"text": "x"}


class Kept:
    """A kept connection to a socket of a home's daemon, with the request that it repeats."""

    def __init__(self, path: Path, request: bytes) -> None:
        self._path = str(path)
        self._request = request
        self._received = b""
        self._socket = self._connected()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def fileno(self) -> int:
        """Return the descriptor, which is readable when part of an answer is here."""
        return self._socket.fileno()

    def run(self) -> Measured:
        """Send the request and wait for the answer. Return the seconds. Repeat once if the connection was closed that moment."""
        self._be_connected()
        try:
            return self._timed()
        except ConnectionError:
            self._connect_again()
            return self._timed()

    def ask(self) -> None:
        """Send the request."""
        self._received = b""
        self._socket.sendall(self._request)

    def has_answer(self) -> bool:
        """Read the available data. Return whether the answer is complete. It must be a 200."""
        status = self.maybe_status()
        assert status in {None, 200}, self._received.decode("utf-8", "replace")
        return status is not None

    def maybe_status(self) -> int | None:
        """Read the available data. Return the status when the answer is complete, else None.

        ConnectionResetError if the daemon closed the connection.
        """
        data = self._socket.recv(65536)
        if not data:
            raise ConnectionResetError("the daemon closed the connection")
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found:
            return None
        return int(head.split(b" ", 2)[1]) if len(body) >= int(self.fields[b"content-length"]) else None

    @property
    def fields(self) -> Mapping[bytes, bytes]:
        """Header fields of the answer, in lower case."""
        head = self._received.partition(b"\r\n\r\n")[0]
        return dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])

    @property
    def body(self) -> Any:
        """Body of the answer, decoded from JSON."""
        return json.loads(self._received.partition(b"\r\n\r\n")[2])

    def _be_connected(self) -> None:
        is_last = self._received and self.fields.get(b"connection") == b"close"
        if is_last or select.select([self._socket], [], [], 0)[0]:  # end of stream: no request is open
            self._connect_again()

    def _timed(self) -> Measured:
        began = time.perf_counter()
        self.ask()
        while not self.has_answer():
            pass
        return Measured([time.perf_counter() - began])

    def _connect_again(self) -> None:
        self._socket.close()
        self._socket = self._connected()

    def _connected(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # No timeout: with one, it would fail when more clients connect at once than the backlog holds
        made.connect(self._path)
        made.settimeout(_DEADLINE_S)
        return made


class Door(Kept):
    """A caller that requests a run of an action on the agent socket."""

    def __init__(self, home: Path, action: str = "give-back") -> None:
        body = json.dumps({"args": TEXT}).encode()
        head = f"POST /v1/actions/{action}/run?wait={_WAIT_S} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        super().__init__(home / "run" / "agent.sock", request)
