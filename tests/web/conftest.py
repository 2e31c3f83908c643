"""One home for a module, whose person decides in a browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.home import DaemonHome
from tests.support.paged import PageClient, paged_home
from tests.support.upstream_http import CountingServer


@pytest.fixture(scope="module")
def upstream() -> Iterator[CountingServer]:
    """A plain HTTP server on loopback that counts what reaches it."""
    with CountingServer() as server:
        yield server


@pytest.fixture(scope="module")
def home(upstream: CountingServer) -> Iterator[DaemonHome]:
    """Gated actions, an approver, an open vault."""
    with paged_home(upstream) as made:
        yield made


@pytest.fixture
def stranger(home: DaemonHome) -> PageClient:
    """Who has not unlocked."""
    return PageClient(home)


@pytest.fixture
def person(home: DaemonHome) -> PageClient:
    """Who has."""
    client = PageClient(home)
    assert client.unlock().status == 200
    return client
