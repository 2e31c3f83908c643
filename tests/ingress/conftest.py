"""A fixture for an ingress server in the test's own loop, at a port of the loopback device."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio
import pytest
from starlette.types import ASGIApp

from aileron.ingress.server import serve

Serving = Callable[..., AbstractAsyncContextManager[int]]


@pytest.fixture
def anyio_backend() -> str:
    """Return the daemon's backend."""
    return "asyncio"


@pytest.fixture
def serving() -> Serving:
    """Return a function for `async with serving(app) as port`."""

    @asynccontextmanager
    async def begin(app: ASGIApp, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
        listener = socket.create_server(("127.0.0.1", 0))
        over = anyio.Event()
        stopped: Callable[[], Awaitable[None]] = over.wait
        async with anyio.create_task_group() as tasks:
            port: int = listener.getsockname()[1]
            tasks.start_soon(serve, app, [listener], stopped, tls)
            yield port
            over.set()

    return begin
