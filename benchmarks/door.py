"""A client that does nothing but send and receive bytes: one request, again and again, over a connection that is kept.

The daemon closes a connection that says nothing for a while, and a peer's turn may be longer; it also closes one that has asked
a thousand times. Then there is another one.
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
"""For a run: a virtual machine may stand still for half a minute."""
_DEADLINE_S: Final = 90.0
TEXT: Final = {"text": "x"}


class Kept:
    """One request to a socket of a home's daemon."""

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
        """Readable when there is something of an answer."""
        return self._socket.fileno()

    def run(self) -> Measured:
        """Ask, and wait for the answer; seconds from one to the other. Once more where the connection was closed that moment."""
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
        """Read what is there; True when the answer is whole. It must be a 200."""
        status = self.maybe_status()
        assert status in {None, 200}, self._received.decode("utf-8", "replace")
        return status is not None

    def maybe_status(self) -> int | None:
        """Read what is there; the status when the answer is whole."""
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
        """Those of the answer, their names in lower case."""
        head = self._received.partition(b"\r\n\r\n")[0]
        return dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])

    @property
    def body(self) -> Any:
        """That of the answer."""
        return json.loads(self._received.partition(b"\r\n\r\n")[2])

    def _be_connected(self) -> None:
        is_last = self._received and self.fields.get(b"connection") == b"close"
        if is_last or select.select([self._socket], [], [], 0)[0]:  # the end: nothing was asked for
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
        made.connect(self._path)  # without a deadline, which would be an error where more connect at once than may wait
        made.settimeout(_DEADLINE_S)
        return made


class Door(Kept):
    """One caller, who asks an agent's socket to run an action."""

    def __init__(self, home: Path, action: str = "give-back") -> None:
        body = json.dumps({"args": TEXT}).encode()
        head = f"POST /v1/actions/{action}/run?wait={_WAIT_S} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        super().__init__(home / "run" / "agent.sock", request)
