"""The life of a test's server: until it listens, while it serves, and gone at the end. For programs, and for fakes of services.

    class Redis(Server):
        @contextlib.contextmanager
        def running(self) -> Iterator[None]:
            with self.log.open("wb") as log, program(command, self.port, says=self.log.read_text, stdout=log):
                yield

    with Redis(directory) as server: …

Not here: ports (ports.py), what a fake answers (each its own module).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Self

from tests.support.upstream import Seen, Upstream
from tests.support.waiting import wait_listening

__all__ = ["Disturbance", "Gate", "Server", "Service", "made_folder", "program"]

END_S: Final = 30.0
"""Seconds that a program has to end by itself, before it is killed."""
HELD_S: Final = 30.0
"""Longest time in seconds that a response is held back."""


@contextlib.contextmanager
def program(
    command: Sequence[object],
    *ports: int,
    says: Callable[[], str],
    end: Callable[[subprocess.Popen[Any]], None] = subprocess.Popen.kill,
    **options: Any,
) -> Iterator[subprocess.Popen[Any]]:
    """Run a server, and yield its process once it accepts connections at these ports of 127.0.0.1; at the end, `end` it.

    A failure to start has the end of what it `says`. `options` go to Popen.
    """
    with subprocess.Popen([str(word) for word in command], **{"stdin": subprocess.DEVNULL, **options}) as process:
        try:
            wait_listening(process, *ports, says=says)
            yield process
        finally:
            try:
                end(process)
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                pass
            finally:
                process.kill()  # nothing, if it has ended


@contextlib.contextmanager
def made_folder(prefix: str) -> Iterator[Path]:
    """Yield a new folder that a server's user can read, and remove it at the end."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Server:
    """A server that is there between enter and exit, which are those of the block in `running`."""

    def running(self) -> contextlib.AbstractContextManager[object]:
        """Start the server, and stop it at the end of the block."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._block = self.running()
        self._block.__enter__()
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._block.__exit__(None, None, None)


class Gate:
    """A way that responses take, which a test can close for a while."""

    def __init__(self) -> None:
        self._holding: tuple[str, threading.Event, threading.Event] | None = None

    @contextlib.contextmanager
    def held(self, where: str = "") -> Iterator[threading.Event]:
        """Hold responses at paths that end with `where` back until the block ends; set the yielded event at the first request."""
        arrived, over = threading.Event(), threading.Event()
        self._holding = (where, arrived, over)
        try:
            yield arrived
        finally:
            self._holding = None
            over.set()

    def pass_through(self, path: str = "") -> None:
        """Wait while responses at this path are held back."""
        if (holding := self._holding) is not None and path.endswith(holding[0]):
            holding[1].set()
            holding[2].wait(HELD_S)


@dataclasses.dataclass
class Disturbance:
    """A response in place of the next `times` at paths that end with `where`."""

    where: str
    status: str
    body: bytes
    fields: tuple[str, ...]
    times: int


class Service(Server):
    """A fake of a service, which answers in threads of the test. `gate` holds its responses back; `disturb` replaces some."""

    def __init__(self, tls: ssl.SSLContext | None, listener: socket.socket | None = None) -> None:
        self._upstream: Final = Upstream(self._answer, tls, listener)
        self._lock: Final = threading.RLock()
        self._disturbances: Final[list[Disturbance]] = []
        self.port: Final = self._upstream.port
        self.gate: Final = Gate()

    def running(self) -> contextlib.AbstractContextManager[object]:
        """Serve until the end of the block."""
        return self._upstream

    def disturb(self, where: str, body: Any, *fields: str, status: str = "200 OK", times: int = 1) -> None:
        """Respond so to the next `times` requests with a good token to paths that end with `where`; `body`: bytes, or JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        with self._lock:
            self._disturbances.append(Disturbance(where, status, data, fields, times))

    def _disturbance(self, path: str) -> Disturbance | None:
        """Return what replaces the response at this path, and count it."""
        for disturbance in self._disturbances:
            if path.endswith(disturbance.where) and disturbance.times > 0:
                disturbance.times -= 1
                return disturbance
        return None

    def _forget_requests(self) -> None:
        """Forget what the upstream keeps of requests: the credential in them may stay nowhere."""
        self._upstream.requests.clear()
        self._upstream.received.clear()

    def _answer(self, seen: Seen) -> bytes | Iterable[bytes]:
        raise NotImplementedError
