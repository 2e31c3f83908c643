"""Fixtures that tests of several folders use: servers that stand for services outside."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.forge import ForgeServer
from tests.support.published import Publisher
from tests.support.upstream import Authority
from tests.support.upstream_http import CountingServer

__all__ = ["forge", "publisher", "upstream"]


@pytest.fixture(scope="module")
def upstream() -> Iterator[CountingServer]:
    """Start a plain HTTP server on loopback that counts and keeps what reaches it: one for a module."""
    with CountingServer() as server:
        yield server


@pytest.fixture
def forge(authority: Authority) -> Iterator[ForgeServer]:
    """Start an empty forge."""
    with ForgeServer(authority) as server:
        yield server


@pytest.fixture
def publisher(forge: ForgeServer) -> Publisher:
    """Return the publisher Acme, who signs."""
    return Publisher(forge)
