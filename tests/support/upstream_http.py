"""A plain HTTP server on loopback that counts effects and remembers what it was sent: the outside world of a test."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator
from typing import Final, Self

__all__ = ["CountingServer"]

_HELD_S: Final = 120.0
"""Seconds that a request waits for its response at most: as long as any connector of a test has."""


class CountingServer:
    """A server: `/status/N` responds with N, `/slow` never, whatever its query, `/big` is 32 MiB, `/read` is `page`.

    A GET of `/held` gets its response when no block is `holding` it. A POST counts as an effect; every other request gets
    hello.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, str]] = []
        """Method, path and Authorization of each request."""
        self.effects = 0
        self.page = "a page"
        """Body of the response to `/read`."""
        self.failures_left = 0
        """Number of times that `/flaky` still responds with 503, before 200."""
        self.keeps_waiting = False
        """True while a counted POST gets no response."""
        outer = self
        release = threading.Event()
        self._release = release
        self._is_let_go = threading.Event()
        self._is_let_go.set()
        counting = threading.Lock()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = (
                True  # head and body are two writes: the second would wait 40 ms for an acknowledgement
            )

            def do_GET(self) -> None:
                outer.requests.append((self.command, self.path, self.headers.get("Authorization", "")))
                if self.path.partition("?")[0] == "/slow":
                    release.wait(_HELD_S)
                if self.path == "/held":
                    outer._is_let_go.wait(_HELD_S)
                if self.path == "/big":
                    self._answer(200, bytes(32 << 20))
                    return
                status = 200
                if self.path.startswith("/status/"):
                    status = int(self.path.rpartition("/")[2])
                elif self.path == "/flaky" and outer.failures_left > 0:
                    outer.failures_left -= 1
                    status = 503
                self._answer(status, outer.page.encode() if self.path == "/read" else b"hello")

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", "0")))
                outer.requests.append((self.command, self.path, self.headers.get("Authorization", "")))
                with counting:
                    outer.effects += 1
                if outer.keeps_waiting:
                    release.wait(_HELD_S)
                self._answer(200, b"done")

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128  # a burst beyond it would wait a second for its next SYN, tcp(7)

            def handle_error(self, *_: object) -> None:
                """Ignore a client that goes away."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Hold responses to `/held` back until the block ends: a run that requested it lasts as long as a test needs."""
        self._is_let_go.clear()
        try:
            yield
        finally:
            self._is_let_go.set()

    def __exit__(self, *_: object) -> None:
        self._release.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
