"""Real servers on loopback, which keep their data in a folder or in memory: Kinto and Jupyter Server, which describe themselves,
Synapse, a Matrix homeserver, and localstripe, which behaves like Stripe.

    with kinto(servers) as server:
        server.asked("GET", "/v1/buckets")      # over HTTP, as its user, with no Aileron in between

Each is a process of its own that sees the packages of the cache and none of ours, and ends with the block.

Not here: what is done with them (test_real_servers.py).
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import hmac
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from tests.documents.install import KINTO_SETTINGS, Servers
from tests.support.ports import reserve_ports
from tests.support.waiting import end_of, wait_until

__all__ = ["SECRET", "STRIPE_KEY", "USER", "Homeserver", "Server", "jupyter", "kinto", "localstripe", "synapse"]

SECRET: Final = "hunter2-hunter2"
"""A password or token that no file of a home may have (tests/support/home.py)."""
STRIPE_KEY: Final = f"sk_test_{SECRET}"
USER: Final = "mira"
_START_S: Final = 60.0
_KINTO: Final = """\
import json, sys
from kinto import main
from waitress import serve

serve(main({}, **json.loads(sys.argv[1])), host="127.0.0.1", port=int(sys.argv[2]))
"""
_REGISTER: Final = "/_synapse/admin/v1/register"
_SYNAPSE_LOG: Final = """\
version: 1
handlers: {all: {class: logging.StreamHandler}}
root: {level: WARNING, handlers: [all]}
"""
_LOCALSTRIPE: Final = """\
import sys
from aiohttp import web
from localstripe.resources import Store
from localstripe.server import app

Store.dump_to_disk = lambda store: None  # a file that every localstripe of this machine has
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None)
"""


@dataclasses.dataclass(frozen=True)
class Server:
    """A server that listens. `document` is where it describes itself, or a path that it answers as soon as it listens."""

    port: int
    authorization: str
    document: str

    @property
    def host(self) -> str:
        """The server's host as a manifest names it."""
        return f"localhost:{self.port}"

    def asked(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Send a request of the test's own; return status and JSON, or None instead if it is no JSON."""
        status, data = self._sent(method, path, body)
        return status, json.loads(data) if data.startswith(b"{") else None

    def described(self) -> bytes:
        """Return the server's document."""
        return self._sent("GET", self.document)[1]

    def is_ready(self) -> bool:
        """Return whether the server answers."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            self.described()
            return True
        return False

    def _sent(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("localhost", self.port, timeout=20)
        headers = {"Content-Type": "application/json"}
        if self.authorization:
            headers["Authorization"] = self.authorization
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@contextlib.contextmanager
def kinto(servers: Servers) -> Iterator[Server]:
    """Run Kinto, a store of JSON documents, in memory."""
    (port,) = reserve_ports(1)
    pair = base64.b64encode(f"{USER}:{SECRET}".encode()).decode()
    server = Server(port, f"Basic {pair}", "/v1/__api__")
    with _running(["-c", _KINTO, json.dumps(KINTO_SETTINGS), str(port)], servers.packages, server):
        yield server


@contextlib.contextmanager
def jupyter(servers: Servers, files: Path) -> Iterator[Server]:
    """Run Jupyter Server with the notebooks and other files of a folder."""
    (port,) = reserve_ports(1)
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
    with _running(["-m", "jupyter_server", *options], servers.packages, server):
        yield server


@dataclasses.dataclass(frozen=True)
class Homeserver(Server):
    """A Matrix server; its requests have no user except through `as_user`."""

    def as_user(self, name: str) -> Server:
        """Return this server as seen by a new user of this name, who is `@NAME:localhost`."""
        nonce = self.asked("GET", _REGISTER)[1]["nonce"]
        words = (nonce, name, f"password of {name}", "notadmin")
        mac = hmac.new(SECRET.encode(), "\0".join(words).encode(), hashlib.sha1).hexdigest()
        body = {"nonce": nonce, "username": name, "password": words[2], "admin": False, "mac": mac}
        status, made = self.asked("POST", _REGISTER, body)
        assert status == 200, made
        return dataclasses.replace(self, authorization=f"Bearer {made['access_token']}")


@contextlib.contextmanager
def synapse(packages: Path, files: Path) -> Iterator[Homeserver]:
    """Run a homeserver of one machine: SQLite in the folder, no federation, users by a shared secret."""
    (port,) = reserve_ports(1)
    (files / "log.yaml").write_text(_SYNAPSE_LOG)
    settings = {
        "server_name": "localhost",
        "registration_shared_secret": SECRET,
        "signing_key_path": str(files / "signing.key"),
        "database": {"name": "sqlite3", "args": {"database": str(files / "homeserver.db")}},
        "media_store_path": str(files / "media"),
        "log_config": str(files / "log.yaml"),
        "pid_file": str(files / "pid"),
        "report_stats": False,
        "trusted_key_servers": [],
        "bcrypt_rounds": 4,
        "rc_message": {"per_second": 1000, "burst_count": 1000},
        "listeners": [
            {"port": port, "bind_addresses": ["127.0.0.1"], "type": "http", "resources": [{"names": ["client"]}]}
        ],
    }
    (files / "homeserver.yaml").write_text(json.dumps(settings))  # JSON is YAML
    (files / "signing.key").write_text(f"ed25519 a_one {base64.b64encode(os.urandom(32)).decode().rstrip('=')}\n")
    server = Homeserver(port, "", "/_matrix/client/versions")
    words = ["-m", "synapse.app.homeserver", "-c", str(files / "homeserver.yaml")]
    with _running(words, packages, server):
        yield server


@contextlib.contextmanager
def localstripe(servers: Servers) -> Iterator[Server]:
    """Run a server with Stripe's API, its customers and payments in memory."""
    (port,) = reserve_ports(1)
    server = Server(port, f"Bearer {STRIPE_KEY}", "/v1/customers")
    with _running(["-c", _LOCALSTRIPE, str(port)], servers.packages, server):
        yield server


@contextlib.contextmanager
def _running(words: Sequence[str], packages: Path, server: Server) -> Iterator[None]:
    """Run the server's process; enter the block when it answers."""
    with tempfile.TemporaryDirectory(prefix="ail-") as home, Path(home, "log").open("wb") as log:
        environment = {"PATH": os.environ["PATH"], "HOME": home, "PYTHONPATH": str(packages)}
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
            says = Path(home, "log").read_text
            wait_until(server.is_ready, "the server answers", within_s=_START_S, seen=says, unless=end_of(process))
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
