"""Shared fixtures of the relay's tests: a home whose actions reach a server that counts requests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.home import DaemonHome, probed_home
from tests.support.upstream_http import CountingServer


@pytest.fixture(scope="module")
def upstream() -> Iterator[CountingServer]:
    """Start an HTTP service outside of the daemon that counts its requests."""
    with CountingServer() as server:
        yield server


@pytest.fixture(scope="module")
def made(upstream: CountingServer) -> Iterator[DaemonHome]:
    """Make a home with three actions."""
    with probed_home(upstream.port) as home:
        home.bind_probe()
        home.add_probe_action("give_back", "text:string")
        home.add_probe_action("effect", "path:string")
        home.add_probe_action("fetch", "path:string")
        yield home


@pytest.fixture
def home(made: DaemonHome) -> DaemonHome:
    """Return the shared home with its daemon running and its vault open, whatever the test before did to it."""
    made.unlock()
    return made
