"""A provider to sign in to and a browser to do it in, new for each test; for a module one home whose person decides on a page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.desk import Desk, desk
from tests.support.browser import Browser, needs_browser
from tests.support.home import DaemonHome
from tests.support.paged import paged_home
from tests.support.provider import Provider
from tests.support.upstream_http import CountingServer


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[Provider]:
    """Fails where it cannot be had: a skip would pass for a pass."""
    with Provider(tmp_path) as running:
        yield running


@pytest.fixture
def browser(provider: Provider) -> Iterator[Browser]:
    """With the provider's key as one it trusts."""
    needs_browser()
    with Browser([provider.certificate]) as opened:
        yield opened


@pytest.fixture
def at_desk(provider: Provider, tmp_path: Path) -> Iterator[Desk]:
    """A home with a connector for the provider, bound to nothing."""
    with desk(provider, tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def upstream() -> Iterator[CountingServer]:
    """The world outside."""
    with CountingServer() as server:
        yield server


@pytest.fixture(scope="module")
def home(upstream: CountingServer) -> Iterator[DaemonHome]:
    """Gated actions and an approver."""
    with paged_home(upstream) as made:
        yield made
