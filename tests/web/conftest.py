"""Fixtures of the page's tests: one home for a module, whose person decides in a browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.home import DaemonHome
from tests.support.paged import PageClient, paged_home
from tests.support.upstream_http import CountingServer


@pytest.fixture(scope="module")
def home(upstream: CountingServer) -> Iterator[DaemonHome]:
    """Make a home with gated actions, an approver and an open vault."""
    with paged_home(upstream) as made:
        yield made


@pytest.fixture
def stranger(home: DaemonHome) -> PageClient:
    """Return a browser that has not unlocked the page."""
    return PageClient(home)


@pytest.fixture
def person(home: DaemonHome) -> PageClient:
    """Return a browser that has unlocked the page."""
    client = PageClient(home)
    assert client.unlock().status == 200
    return client
