"""A real CalDAV server (Radicale) in a process of its own, with one user and a password.

    with RadicaleServer(tmp_path) as server:
        server.make_calendar("work", "Work")
        server.put("work/a.ics", ICALENDAR)
        ...
        assert server.accepted_users() == ["ada"]

Data, users and configuration are in the given folder. A thread reads its log all along: `accepted_users` and `refused_users` are
the names of clients in the server's own account. Every wait has a deadline.
"""

from __future__ import annotations

import base64
import contextlib
import html
import http.client
import os
import re
import secrets
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.ports import reserve_ports
from tests.support.serving import Server, program

START_S: Final = 30.0
REQUEST_S: Final = 10.0


class RadicaleServer(Server):
    """Radicale on 127.0.0.1, at `url`."""

    def __init__(self, folder: Path, *, user: str = "ada", tls: tuple[Path, Path] | None = None) -> None:
        """Take `tls` as certificate chain and key, PEM; without it the server speaks plain HTTP."""
        self.user: Final = user
        self.password: Final = f"pass-{secrets.token_hex(16)}"
        self.port = 0
        self._folder: Final = folder
        self._tls: Final = tls
        self._lines: Final[list[str]] = []
        self._news: Final = threading.Condition()
        self._has_ended = False
        self._marks = 0

    @property
    def url(self) -> str:
        """Origin of the server, without a slash at the end."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run the server until the end of the block. TimeoutError with its log if it does not become ready."""
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "users").write_text(f"{self.user}:{self.password}\n", encoding="utf-8")
        (self.port,) = reserve_ports(1)  # it does not take port 0
        config = self._folder / "config"
        config.write_text(self._configuration(), encoding="utf-8")
        command = [sys.executable, "-I", "-m", "radicale", "--config", config]
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        with program(command, says=self.log, end=self._end, env={"PATH": os.environ["PATH"]}, **pipes) as self._process:
            self._reader.start()
            self.wait_for_log("Radicale server ready", START_S)
            yield

    def _end(self, process: subprocess.Popen[str]) -> None:
        process.kill()
        self._reader.join(REQUEST_S)

    def make_calendar(self, name: str, title: str) -> str:
        """Create a calendar of the user. Return its path."""
        path = f"/{self.user}/{name}/"
        body = (
            '<C:mkcalendar xmlns:D="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav"><D:set><D:prop>'
            f"<D:displayname>{html.escape(title)}</D:displayname></D:prop></D:set></C:mkcalendar>"
        )
        assert self.request("MKCALENDAR", path, body.encode())[0] == 201
        return path

    def put(self, name: str, text: str) -> str:
        """Store a calendar object under the user, as any other client would. Return its path."""
        path = f"/{self.user}/{name}"
        status, answer = self.request("PUT", path, text.encode(), {"Content-Type": "text/calendar"})
        assert status == 201, (status, answer)
        return path

    def get(self, path: str) -> str:
        """Return a stored object. KeyError if there is none."""
        status, answer = self.request("GET", path)
        if status != 200:
            raise KeyError(path)
        return answer.decode()

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Send a request with the user's password. Return status and body."""
        token = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        connection = self._connection()
        try:
            connection.request(method, path, body, {"Authorization": f"Basic {token}", **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def accepted_users(self) -> list[str]:
        """Return the user names whose password the server accepted, in order, by its own log. Includes requests made here."""
        return re.findall(r"Successful login: '([^']*)'", self.log())

    def refused_users(self) -> list[str]:
        """Return the user names whose password the server refused."""
        return re.findall(r"Failed login attempt from .*?: '([^']*)'", self.log())

    def requests(self) -> list[tuple[str, str]]:
        """Return method and path of every request answered so far, in order, by the server's own log."""
        self._marks += 1
        mark = f"/mark-{self._marks}"
        self.request("GET", mark)
        self.wait_for_log(f"GET request for '{mark}' received")  # and so is what came before, by the thread that reads
        found = re.findall(r"(\w+) request for '([^']*)' received", self.log())
        return [(method, path) for method, path in found if not path.startswith("/mark-")]

    def log(self) -> str:
        """Return the server's log so far."""
        with self._news:
            return "".join(self._lines)

    def wait_for_log(self, words: str, timeout_s: float = REQUEST_S) -> None:
        """Wait until the log contains these words. TimeoutError with the log."""
        deadline = time.monotonic() + timeout_s
        with self._news:
            while words not in "".join(self._lines):
                if self._has_ended or not self._news.wait(deadline - time.monotonic()):
                    raise TimeoutError(f"no {words!r} in the log of Radicale: {''.join(self._lines)[-2000:]}")

    def _configuration(self) -> str:
        certificate, key = self._tls or ("", "")
        tls = f"ssl = True\ncertificate = {certificate}\nkey = {key}\n" if self._tls else ""
        return (
            f"[server]\nhosts = 127.0.0.1:{self.port}\n{tls}"
            f"[auth]\ntype = htpasswd\nhtpasswd_filename = {self._folder / 'users'}\nhtpasswd_encryption = plain\ndelay = 0\n"
            f"[storage]\nfilesystem_folder = {self._folder / 'data'}\n"
            "[logging]\nlevel = info\n"
        )

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=REQUEST_S)
        trusting = ssl.create_default_context()
        trusting.check_hostname = False  # our own process, reached by its address
        trusting.verify_mode = ssl.CERT_NONE
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=REQUEST_S, context=trusting)

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            with self._news:
                self._lines.append(line)
                self._news.notify_all()
        with self._news:
            self._has_ended = True
            self._news.notify_all()
