"""The relay as an agent starts it, on two pipes; and a daemon's end of its socket that says only what a test says.

`Agent` runs `aileron-mcp` and speaks JSON-RPC to it, line by line, with a deadline on each. `FakeServer` listens where the daemon
does, in the test's own thread: the test accepts, reads and answers each connection explicitly, and so decides at which byte it
ends. The real server is started with tests/support/home.py.

>>> with FakeServer(home) as server, Agent(home) as agent:
...     agent.send({"jsonrpc": "2.0", "id": 1, "method": "ping"})
...     link = server.accept()
...     link.send({"jsonrpc": "2.0", "id": 1, "result": {}})
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

__all__ = ["INITIALIZE", "INITIALIZED", "Agent", "FakeServer", "Link", "envelope"]

DEADLINE_S: Final = 30.0
INITIALIZE: Final = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "a test", "version": "1"},
}
INITIALIZED: Final = {"jsonrpc": "2.0", "method": "notifications/initialized"}

Message = dict[str, Any]


def envelope(**params: Any) -> Message:
    """Return the parameters of a request of the 2026 protocol."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "a test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    return {**params, "_meta": meta}


class _Lines:
    """A reader of whole lines from a descriptor, each before the deadline; an empty line at its end."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._read = bytearray()

    def next(self, deadline_s: float = DEADLINE_S) -> bytes:
        until = time.monotonic() + deadline_s
        while (end := self._read.find(b"\n") + 1) == 0:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._fd], [], [], left)[0]:
                raise TimeoutError(f"no line within {deadline_s} s; so far {bytes(self._read)!r}")
            try:
                data = os.read(self._fd, 1 << 16)
            except ConnectionResetError:
                data = b""
            if not data:
                rest, self._read = bytes(self._read), bytearray()
                return rest
            self._read += data
        line = bytes(self._read[:end])
        del self._read[:end]
        return line

    def is_quiet(self, for_s: float = 0.0) -> bool:
        return not self._read and not select.select([self._fd], [], [], for_s)[0]


class Agent(contextlib.AbstractContextManager["Agent"]):
    """A client of the relay; the block's end kills the relay."""

    def __init__(self, home: Path, *, program: Sequence[str] = (), **environment: str) -> None:
        words = list(program) or [sys.executable, "-m", "aileron.mcp.relay"]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AILERON_")}
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**inherited, "AILERON_HOME": str(home), **environment},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._in = self.process.stdin.fileno()
        os.set_blocking(self._in, False)  # this end is ours alone
        self._lines = _Lines(self.process.stdout.fileno())
        self._ids = itertools.count(1)
        self.others: list[Message] = []

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(DEADLINE_S)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    def write(self, data: bytes) -> None:
        """Write bytes to the relay's standard input, all of them."""
        until = time.monotonic() + DEADLINE_S
        while data:
            if not select.select([], [self._in], [], max(0, until - time.monotonic()))[1]:
                raise TimeoutError("the relay reads nothing")
            data = data[os.write(self._in, data[: 1 << 16]) :]

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message."""
        self.write(json.dumps(message).encode() + b"\n")

    def request(self, method: str, params: Mapping[str, Any] | None = None) -> int:
        """Send a request. Return its id."""
        number = next(self._ids)
        self.send({"jsonrpc": "2.0", "id": number, "method": method, **({"params": params} if params else {})})
        return number

    def receive(self, deadline_s: float = DEADLINE_S) -> Message:
        """Return the next message; EOFError when there will be none."""
        line = self._lines.next(deadline_s)
        if not line.endswith(b"\n"):
            raise EOFError(f"standard output ended with {line!r}")
        message: Message = json.loads(line)
        return message

    def answer(self, number: int, deadline_s: float = DEADLINE_S) -> Message:
        """Return the response to a request, in whatever order they arrive; other messages before it are kept in `others`."""
        for message in self.others:
            if self._answers(message, number):
                self.others.remove(message)
                return message
        while not self._answers(message := self.receive(deadline_s), number):
            self.others.append(message)
        return message

    @staticmethod
    def _answers(message: Message, number: int) -> bool:
        return message.get("id") == number and "method" not in message

    def ask(self, method: str, params: Mapping[str, Any] | None = None, deadline_s: float = DEADLINE_S) -> Message:
        """Send a request and return the response."""
        return self.answer(self.request(method, params), deadline_s)

    def initialize(self) -> Message:
        """Perform the handshake of the 2025 protocol. Return the response to `initialize`."""
        answer = self.ask("initialize", INITIALIZE)
        self.send(INITIALIZED)
        return answer

    def is_quiet(self, for_s: float = 0.0) -> bool:
        """Return whether the relay sends nothing more within `for_s` seconds, and everything it sent was read."""
        return self._lines.is_quiet(for_s)

    def close(self) -> None:
        """Close the relay's standard input."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def wait(self) -> tuple[int, str]:
        """Wait until the relay has ended. Return its exit code and its standard error."""
        assert self.process.stderr is not None
        code = self.process.wait(DEADLINE_S)
        return code, self.process.stderr.read().decode()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the relay, as a terminal or an agent would."""
        self.process.send_signal(number)


class Link:
    """A connection of a relay, at the daemon's end."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = _Lines(connection.fileno())

    def line(self, deadline_s: float = DEADLINE_S) -> bytes:
        """Return the next line; an unfinished or empty one when the relay has closed."""
        return self._lines.next(deadline_s)

    def receive(self, deadline_s: float = DEADLINE_S) -> Message:
        """Return the next message."""
        message: Message = json.loads(self.line(deadline_s))
        return message

    def send(self, *messages: Message) -> None:
        """Send messages in the form that the daemon's server writes."""
        self.write(b"".join(json.dumps(message, separators=(",", ":")).encode() + b"\n" for message in messages))

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self._connection.settimeout(DEADLINE_S)
        self._connection.sendall(data)

    def is_quiet(self, for_s: float = 0.0) -> bool:
        """Return whether nothing more arrives within `for_s` seconds, and everything that arrived was read."""
        return self._lines.is_quiet(for_s)

    def close(self) -> None:
        """Close the connection, as a process that ends does."""
        self._connection.close()


class FakeServer:
    """A listener at `run/mcp.sock` of a home, from `__enter__` until `close`."""

    def __init__(self, home: Path) -> None:
        self._path = home / "run" / "mcp.sock"
        self._links: list[Link] = []
        self._listener: socket.socket | None = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        for link in self._links:
            link.close()

    def open(self) -> None:
        """Accept connections from now on, as a daemon that starts."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._path))
        self._listener.listen(8)

    def accept(self, deadline_s: float = DEADLINE_S) -> Link:
        """Return the next connection."""
        assert self._listener is not None
        self._listener.settimeout(deadline_s)
        link = Link(self._listener.accept()[0])
        self._links.append(link)
        return link

    def close(self) -> None:
        """Stop listening, as a daemon that ends; existing connections stay."""
        if self._listener is not None:
            self._listener.close()
            self._path.unlink(missing_ok=True)
            self._listener = None

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Stop listening for the length of the block."""
        self.close()
        yield
        self.open()
