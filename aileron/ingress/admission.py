"""Admission of requests: which callers are known, and how much work unknown callers may cause in the daemon.

Runs in ingress. A caller with the token or cookie of an open session is known (known.py); every other caller is a
stranger. Strangers share a budget: requests per second, by the kind of request, and uploaded bytes per second. So the
work that they cause is bounded, however many they are. A request that would wait longer than WAIT_S is refused here.

Rules
- Known callers never wait.
- Strangers are served in the order of their requests; at most MAX_WAITING wait, and at most MAX_UNDER_WAY have a turn.
- The rates are low enough for this machine, and high enough that a person does not notice them: a browser that opens
  the page sends five requests, a coding agent with its own key a few per second.

Source: docs/adr/0031-ingress.md, which has the cost of a request. Not here: connections (server.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Final

from starlette.types import Scope

from aileron.ingress.known import digest_of

__all__ = ["Admission", "BusyError", "TokenBucket", "candidates"]

WAIT_S: Final = 2.0
"""Maximum number of seconds that a request without an open session waits for its turn: as long as a person would look
at an empty page.
"""
MAX_WAITING: Final = 64
"""Maximum number of requests without an open session that wait for their turn, each with a head of at most 64 KiB."""
MAX_UNDER_WAY: Final = 256
"""Maximum number of requests without an open session that are admitted and not answered yet: half of what the daemon
accepts at once (daemon/http/ingress.py). So the daemon always accepts requests of known callers, even if others are
slow.
"""
PAGES_PER_S, PAGES_AT_ONCE = 20.0, 100.0
"""Maximum requests for pages without an open session, per second and in a burst. Each takes 2 ms of the daemon's time,
so they take 4 % of it. A form counts as FORM requests, because its browser is looked up in /proc, which takes 20 ms.
"""
FORM: Final = 5.0
AGENTS_PER_S, AGENTS_AT_ONCE = 20.0, 100.0
"""Maximum requests below /v1 and at /mcp without a known token, per second and in a burst. Each is refused, in 1 ms."""
MODELS_PER_S, MODELS_AT_ONCE = 40.0, 200.0
"""Maximum requests through the gateway without a session's token, per second and in a burst. Each takes 3 ms, and a
connection to the provider.
"""
BYTES_PER_S, BYTES_AT_ONCE = 8.0 * (1 << 20), 32.0 * (1 << 20)
"""Maximum bytes in bodies of requests without an open session, per second and in a burst. 8 KiB take 0.15 ms of the
daemon's time, so this is 15 % of it. A long conversation with pictures is 32 MiB.
"""
_MAX_SHOWN: Final = 8
"""Maximum number of tokens and cookies in one request that are checked: a browser sends the cookies of every port of
localhost.
"""
_MAX_SHOWN_BYTES: Final = 4096


class BusyError(Exception):
    """Error: too many requests without an open session wait or are in progress, so this one is refused."""


class TokenBucket:
    """A rate limiter (token bucket): it refills with `rate` tokens per second, up to `most`. A caller that takes more
    tokens than the bucket holds must wait.
    """

    def __init__(self, rate: float, most: float) -> None:
        self._rate: Final = rate
        self._most: Final = most
        self._left = most
        self._at = 0.0

    def take(self, cost: float, within_s: float) -> float | None:
        """Take `cost` tokens, and return the seconds to wait until the bucket has refilled. If that is more than
        `within_s`, take nothing and return None.
        """
        now = asyncio.get_running_loop().time()
        self._left = min(self._most, self._left + (now - self._at) * self._rate)
        self._at = now
        wait_s = max(0.0, (cost - self._left) / self._rate)
        if wait_s > within_s:
            return None
        self._left -= cost
        return wait_s


class Admission:
    """The admission of all requests to this ingress process. `models` are the gateway's paths, on which agents call models."""

    def __init__(self, models: Sequence[str]) -> None:
        self._models: Final = tuple(models)
        self._known: frozenset[str] = frozenset()
        self._waiting = 0
        self._under_way = 0
        self._for_models = TokenBucket(MODELS_PER_S, MODELS_AT_ONCE)
        self._for_agents = TokenBucket(AGENTS_PER_S, AGENTS_AT_ONCE)
        self._for_pages = TokenBucket(PAGES_PER_S, PAGES_AT_ONCE)
        self._bytes = TokenBucket(BYTES_PER_S, BYTES_AT_ONCE)
        self._uploading = asyncio.Lock()

    def know(self, digests: Collection[str]) -> None:
        """Replace the known callers: `digests` are those of the tokens and cookies of all open sessions."""
        self._known = frozenset(digests)

    def is_known(self, scope: Scope) -> bool:
        """Return whether the request has a token or cookie of an open session."""
        return bool(self._known) and any(digest_of(shown) in self._known for shown in candidates(scope["headers"]))

    @contextlib.asynccontextmanager
    async def turn(self, scope: Scope) -> AsyncIterator[None]:
        """Wait for the turn of a request without an open session. The turn lasts until the block ends, when the
        response is sent. Raises BusyError if the wait would be longer than WAIT_S, or if too many such requests wait or
        have a turn (MAX_WAITING, MAX_UNDER_WAY).
        """
        bucket, cost = self._budget(scope)
        has_room = self._waiting < MAX_WAITING and self._under_way < MAX_UNDER_WAY
        wait_s = bucket.take(cost, WAIT_S) if has_room else None
        if wait_s is None:
            raise BusyError
        self._under_way += 1
        try:
            await self._wait(wait_s)
            yield
        finally:
            self._under_way -= 1

    async def upload(self, size: int) -> None:
        """Wait until the limit on body bytes of requests without an open session allows `size` more."""
        # No time limit: an admitted request is served, as fast as the budget allows. Only one upload at a time overdraws the
        # budget, so that no request waits for the bytes of clients that have disconnected.
        async with self._uploading:
            await asyncio.sleep(self._bytes.take(size, float("inf")) or 0.0)

    async def _wait(self, wait_s: float) -> None:
        if wait_s <= 0:
            return
        self._waiting += 1
        try:
            await asyncio.sleep(wait_s)
        finally:
            self._waiting -= 1

    def _budget(self, scope: Scope) -> tuple[TokenBucket, float]:
        path: str = scope["path"]
        if any(_is_below(path, prefix) for prefix in self._models):
            return self._for_models, 1.0
        if _is_below(path, "/v1") or _is_below(path, "/mcp"):
            return self._for_agents, 1.0
        return self._for_pages, FORM if scope.get("method") == "POST" else 1.0


def candidates(fields: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
    """Return the values in a request's header fields that may be a session's secret: bearer tokens, API keys, values of
    cookies. At most _MAX_SHOWN are returned.
    """
    found: list[bytes] = []
    for name, value in fields:
        match name.lower():
            case b"authorization":
                found.append(value.partition(b" ")[2].strip())
            case b"x-api-key":
                found.append(value.strip())
            case b"cookie":
                found += [pair.partition(b"=")[2].strip() for pair in value[:_MAX_SHOWN_BYTES].split(b";", _MAX_SHOWN)]
    return [candidate for candidate in found[:_MAX_SHOWN] if 0 < len(candidate) <= _MAX_SHOWN_BYTES]


def _is_below(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(prefix + "/")
