"""Real servers that describe themselves, on loopback, with what they keep in a folder or in memory: Kinto and Jupyter Server.

    with kinto(servers) as server:
        server.asked("GET", "/v1/buckets")      # over HTTP, as its user, with no Aileron in between

Each is a process of its own that sees the packages of the cache and none of ours, and ends with the block.

Not here: what is done with them (test_real_servers.py).
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from tests.documents.install import KINTO_SETTINGS, Servers

__all__ = ["SECRET", "USER", "Server", "jupyter", "kinto"]

SECRET: Final = "hunter2-hunter2"
"""A password or token that no file of a home may have (tests/support/home.py)."""
USER: Final = "mira"
_START_S: Final = 60.0
_KINTO: Final = """\
import json, sys
from kinto import main
from waitress import serve

serve(main({}, **json.loads(sys.argv[1])), host="127.0.0.1", port=int(sys.argv[2]))
"""


@dataclasses.dataclass(frozen=True)
class Server:
    """One that listens. `document` is where it describes itself."""

    port: int
    authorization: str
    document: str

    @property
    def host(self) -> str:
        """As a manifest names it."""
        return f"localhost:{self.port}"

    def asked(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and JSON of a request of the test's own; None where it is no JSON."""
        status, data = self._sent(method, path, body)
        return status, json.loads(data) if data.startswith(b"{") else None

    def described(self) -> bytes:
        """Its document."""
        return self._sent("GET", self.document)[1]

    def _sent(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("localhost", self.port, timeout=20)
        headers = {"Authorization": self.authorization, "Content-Type": "application/json"}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@contextlib.contextmanager
def kinto(servers: Servers) -> Iterator[Server]:
    """A store of JSON documents, in memory."""
    port = _free_port()
    pair = base64.b64encode(f"{USER}:{SECRET}".encode()).decode()
    server = Server(port, f"Basic {pair}", "/v1/__api__")
    with _running(["-c", _KINTO, json.dumps(KINTO_SETTINGS), str(port)], servers, server):
        yield server


@contextlib.contextmanager
def jupyter(servers: Servers, files: Path) -> Iterator[Server]:
    """Notebooks and other files of a folder."""
    port = _free_port()
    server = Server(port, f"Bearer {SECRET}", "/api/spec.yaml")
    options = [
        "--no-browser",
        "--allow-root",
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={SECRET}",
        f"--ServerApp.root_dir={files}",
    ]
    with _running(["-m", "jupyter_server", *options], servers, server):
        yield server


@contextlib.contextmanager
def _running(words: Sequence[str], servers: Servers, server: Server) -> Iterator[None]:
    """The server's process, from when it answers."""
    with tempfile.TemporaryDirectory(prefix="ail-") as home, Path(home, "log").open("wb") as log:
        environment = {"PATH": os.environ["PATH"], "HOME": home, "PYTHONPATH": str(servers.packages)}
        process = subprocess.Popen(
            [sys.executable, "-S", "-W", "ignore", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            cwd=home,
            start_new_session=True,
        )
        try:
            _wait_ready(process, server, Path(home, "log"))
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_ready(process: subprocess.Popen[bytes], server: Server, log: Path) -> None:
    until = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(OSError, http.client.HTTPException):
            server.described()
            return
        time.sleep(0.1)
    raise TimeoutError(f"the server does not answer; it said: {log.read_text(errors='replace')[-2000:]}")


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port
