"""A plain HTTP server on loopback that counts effects and remembers what it was sent: the outside world of a test."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Final

from tests.support.serving import Service
from tests.support.upstream import Seen, answer

__all__ = ["CountingServer"]

_HELD_S: Final = 120.0
"""Seconds that a request waits for its response at most: as long as any connector of a test has."""


class CountingServer(Service):
    """A server: `/status/N` responds with N, `/slow` never, whatever its query, `/big` is 32 MiB, `/read` is `page`.

    A GET of `/held` gets its response when no block is `holding` it. A POST counts as an effect; every other request gets
    hello.
    """

    def __init__(self) -> None:
        super().__init__(None)
        self.requests: list[tuple[str, str, str]] = []
        """Method, path and Authorization of each request."""
        self.effects = 0
        self.page = "a page"
        """Body of the response to `/read`."""
        self.failures_left = 0
        """Number of times that `/flaky` still responds with 503, before 200."""
        self.keeps_waiting = False
        """True while a counted POST gets no response."""
        self._release = threading.Event()
        self._is_let_go = threading.Event()
        self._is_let_go.set()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Serve until the end of the block, and then let every response go."""
        with self._upstream:
            yield
            self._release.set()

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Hold responses to `/held` back until the block ends: a run that requested it lasts as long as a test needs."""
        self._is_let_go.clear()
        try:
            yield
        finally:
            self._is_let_go.set()

    def _answer(self, seen: Seen) -> bytes:
        self._forget_requests()
        path, is_effect = seen.target, seen.method == "POST"
        self.requests.append((seen.method, path, next(iter(seen.values("authorization")), "")))
        if is_effect:
            with self._lock:
                self.effects += 1
        if path.partition("?")[0] == "/slow" or (is_effect and self.keeps_waiting):
            self._release.wait(_HELD_S)
        if path == "/held":
            self._is_let_go.wait(_HELD_S)
        status = int(path.rpartition("/")[2]) if path.startswith("/status/") else 200
        if path == "/flaky" and self.failures_left > 0:
            self.failures_left -= 1
            status = 503
        if path == "/big":
            return answer(bytes(32 << 20))
        body = self.page.encode() if path == "/read" else b"hello"
        return answer(b"done" if is_effect else body, status=f"{status} Whatever")
