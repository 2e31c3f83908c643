"""The servers of `aileron demo`: a real CalDAV server over TLS, a server that echoes requests, and a listener that must receive
no connection.

Real processes and sockets on loopback, which end with the demo. Not here: what is shown (demo.py).
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import http.server
import json
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["CalDav", "EchoServer", "SilentListener"]

_START_S: Final = 20.0
_HOST: Final = "localhost"


class CalDav:
    """A Radicale server with a password and a certificate of a test authority, and a client that stores events on it."""

    def __init__(self, folder: Path, user: str, password: str) -> None:
        self._folder = folder
        self._user = user
        self._password = password
        self.port = _free_port()
        self.ca_file = folder / "ca.pem"
        self.log = folder / "radicale.log"

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Start the server, wait until it responds, and stop it at the end of the block."""
        self._folder.mkdir(parents=True)
        self._write_certificate()
        (self._folder / "users").write_text(f"{self._user}:{self._password}\n", encoding="utf-8")
        config = self._folder / "config"
        config.write_text(
            f"[server]\nhosts = 127.0.0.1:{self.port}\nssl = True\n"
            f"certificate = {self._folder / 'server.pem'}\nkey = {self._folder / 'server.key'}\n"
            f"[auth]\ntype = htpasswd\nhtpasswd_filename = {self._folder / 'users'}\nhtpasswd_encryption = plain\ndelay = 0\n"
            f"[storage]\nfilesystem_folder = {self._folder / 'data'}\n"
            "[logging]\nlevel = info\n",
            encoding="utf-8",
        )
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "radicale", "--config", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            self._wait_ready(process)
            yield
        finally:
            process.terminate()
            process.wait(_START_S)

    def put_events(self, events: dict[str, str]) -> None:
        """Create a calendar and store iCalendar objects (name → text) in it, as any CalDAV client would."""
        status, _ = self._request("MKCALENDAR", self._calendar)
        assert status == http.HTTPStatus.CREATED, "the calendar was not made"
        for name, text in events.items():
            status, _ = self._request(
                "PUT", f"{self._calendar}{name}.ics", text.encode(), {"Content-Type": "text/calendar"}
            )
            assert status == http.HTTPStatus.CREATED, f"{name} was not stored: {status}"

    def titles(self) -> list[str]:
        """Return the titles of all events on the server now, sorted, as any CalDAV client would see them."""
        status, body = self._request("GET", self._calendar)
        assert status == http.HTTPStatus.OK, f"the calendar was not given out: {status}"
        lines = body.decode("utf-8").splitlines()
        return sorted(line.removeprefix("SUMMARY:") for line in lines if line.startswith("SUMMARY:"))

    def refuses_without_password(self) -> bool:
        """Return whether the server responds with 401 to a request without a credential, as a positive control."""
        status, _ = self._request("PROPFIND", "/", None, {"Authorization": ""})
        return status == http.HTTPStatus.UNAUTHORIZED

    def accepted_logins(self) -> int:
        """Return how often the server accepted this user's password, according to its log."""
        return self.log.read_text(encoding="utf-8", errors="replace").count("Successful login: '" + self._user)

    @property
    def _calendar(self) -> str:
        return f"/{self._user}/calendar/"

    def _request(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        token = base64.b64encode(f"{self._user}:{self._password}".encode()).decode()
        sent = {"Authorization": f"Basic {token}", **(headers or {})}
        context = ssl.create_default_context(cafile=str(self.ca_file))
        connection = http.client.HTTPSConnection(_HOST, self.port, timeout=10, context=context)
        try:
            connection.request(method, path, body, {name: value for name, value in sent.items() if value})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def _wait_ready(self, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + _START_S
        while time.monotonic() < until and process.poll() is None:
            with contextlib.suppress(OSError):
                self._request("OPTIONS", "/")
                return
            time.sleep(0.05)
        raise RuntimeError(f"Radicale did not start: {self.log.read_text(encoding='utf-8', errors='replace')[-2000:]}")

    def _write_certificate(self) -> None:
        import trustme

        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.ca_file))
        certificate = authority.issue_cert(_HOST)
        certificate.private_key_pem.write_to_path(str(self._folder / "server.key"))
        with (self._folder / "server.pem").open("wb") as chain:
            for pem in certificate.cert_chain_pems:
                chain.write(pem.bytes())


class EchoServer:
    """A server that echoes each request including its header fields, the classic way to learn an injected credential."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        seen = self.seen

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                authorization = self.headers.get("Authorization", "")
                seen.append(authorization)
                decoded = base64.b64decode(authorization.removeprefix("Basic ") or b"").decode()
                body = json.dumps({"headers": dict(self.headers.items()), "decoded": decoded}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.send_header("X-Echo-Authorization", authorization)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Serve requests until the end of the block."""
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join(5)


class SilentListener:
    """A socket on loopback that counts connections. The demo asserts that there were none."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self.port = self._socket.getsockname()[1]

    def connections(self) -> int:
        """Accept the waiting connections and return their number."""
        count = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                self._socket.accept()[0].close()
                count += 1
        return count

    def hears(self) -> bool:
        """Return whether a connection from outside the jail arrives, as a positive control."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5):
            pass
        return self.connections() == 1

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
