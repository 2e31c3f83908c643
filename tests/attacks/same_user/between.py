"""A socket of the attacker's in the place of the daemon's: it passes requests on, and can change or keep them.

A process of the same user can rename `run/operator.sock` and listen under its name. `Between` does this: each request goes on
to the real socket, and `alter` sees request and response before the person's command does.

    with Between(home, alter) as between:
        at_terminal(home, PERSON, "approve", approval_id)
    between.passed          # what was said, both ways
"""

from __future__ import annotations

import dataclasses
import http.client
import http.server
import json
import os
import socket
import socketserver
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

__all__ = ["Between", "Passed"]


@dataclasses.dataclass(frozen=True)
class Passed:
    """A request and the daemon's response."""

    method: str
    path: str
    body: Any
    status: int
    """HTTP status; 0 if the request was not passed on."""
    answer: Any


_NOTHING: Final = {
    "error": {
        "class": "not_found",
        "message": "gone",
        "retriable": False,
        "boundary": "user",
        "audit_id": None,
        "details": {},
    }
}
Alter = Callable[[Passed], Any]
"""Function that returns the body of the response; it returns the same object to change nothing."""


class Between:
    """A listener that takes the place of the operator socket of `home` for the length of a with block."""

    def __init__(
        self,
        home: Path,
        alter: Alter = lambda passed: passed.answer,
        *,
        keeps: Callable[[str, str], bool] | None = None,
    ) -> None:
        """Create the listener. It keeps each request (method, path) for which `keeps` is true, and responds with 404
        not_found.
        """
        self.passed: list[Passed] = []
        self._keeps = keeps or (lambda _method, _path: False)
        self._name = home / "run" / "operator.sock"
        self._real = home / "run" / "moved.sock"
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _handle(self) -> None:
                raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                path = self.path.partition("?")[0]
                is_kept = outer._keeps(self.command, path)
                status, answer = (0, _NOTHING) if is_kept else outer._asked(self.command, self.path, raw)
                passed = Passed(
                    method=self.command,
                    path=path,
                    body=json.loads(raw) if raw else None,
                    status=status,
                    answer=answer,
                )
                outer.passed.append(passed)
                data = json.dumps(alter(passed)).encode()
                self.send_response(status or 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle  # noqa: N815 - the names http.server looks for

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                """Ignore the error: a command went away."""

        self._make: Callable[[], socketserver.BaseServer] = lambda: Server(str(self._name), Handler)

    @property
    def heard(self) -> bytes:
        """All that came through, in both directions, as one text to search in."""
        return json.dumps([dataclasses.asdict(exchange) for exchange in self.passed]).encode()

    def heard_of(self, end: str) -> bytes:
        """Return the same text for requests whose path ends with `end`."""
        return json.dumps(
            [dataclasses.asdict(exchange) for exchange in self.passed if exchange.path.endswith(end)]
        ).encode()

    def __enter__(self) -> Self:
        os.rename(self._name, self._real)
        self._server = self._make()
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
        self._name.unlink()
        os.rename(self._real, self._name)

    def _asked(self, method: str, path: str, raw: bytes) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("localhost", timeout=60)
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.settimeout(60)
        connection.sock.connect(str(self._real))
        try:
            connection.request(method, path, raw or None, {"Content-Type": "application/json"} if raw else {})
            response = connection.getresponse()
            data = response.read()
        finally:
            connection.close()
        return response.status, json.loads(data) if data else None
