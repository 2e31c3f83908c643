"""Network connections with one total deadline, however slowly the other side responds.

Ordinary timeouts apply to each step, so a service that sends a byte every few seconds could hold a client forever.
Here each step gets the rest of the total time.

Not here: what is requested (fetching.py, mcp_listing.py).
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable
from typing import Any

import httpcore2

__all__ = ["Backend"]


class Backend(httpcore2.NetworkBackend):
    """A network backend that connects as httpcore2's own does, but only until `until` on the monotonic clock."""

    def __init__(self, until: float) -> None:
        self._until = until
        self._inner = httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        """Connect, and return a connection whose every step ends before the deadline."""
        left = _left(self._until, timeout, httpcore2.ConnectTimeout)
        return _Stream(self._inner.connect_tcp(host, port, left, local_address, socket_options), self._until)


class _Stream(httpcore2.NetworkStream):
    def __init__(self, inner: httpcore2.NetworkStream, until: float) -> None:
        self._inner = inner
        self._until = until

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, _left(self._until, timeout, httpcore2.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, _left(self._until, timeout, httpcore2.WriteTimeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        left = _left(self._until, timeout, httpcore2.ConnectTimeout)
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, left), self._until)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


def _left(until: float, timeout: float | None, error: type[Exception]) -> float:
    """Return the seconds that one step of a connection can take: `timeout`, or the time until the deadline `until` if
    that is shorter. Raises `error` if no time is left.
    """
    left = until - time.monotonic()
    if left <= 0:
        raise error("no time is left")
    return left if timeout is None else min(left, timeout)
