"""Fixtures of the browser tests: a new provider and a clean browser for each test, and one home with a page for a module."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.desk import Desk, desk
from tests.support.browser import Browser, needs_browser
from tests.support.home import DaemonHome
from tests.support.paged import paged_home
from tests.support.provider import Provider
from tests.support.upstream import Authority
from tests.support.upstream_http import CountingServer


@dataclasses.dataclass(frozen=True)
class Known:
    """Keys that all providers present: a browser is told at its start which key it trusts, so they share one."""

    authority: Authority
    files: tuple[Path, Path]


@pytest.fixture(scope="session")
def known(tmp_path_factory: pytest.TempPathFactory) -> Known:
    """Make the authority and the server's files once."""
    folder = tmp_path_factory.mktemp("known")
    authority = Authority(folder)
    return Known(authority, authority.server_files(folder, "localhost", "127.0.0.1"))


@pytest.fixture
def provider(known: Known, tmp_path: Path) -> Iterator[Provider]:
    """Start a provider. If it cannot be had the test fails, because a skip would count as a pass."""
    with Provider(tmp_path, known.authority, files=known.files) as running:
        yield running


@pytest.fixture(scope="session")
def _started(known: Known) -> Iterator[Browser]:
    needs_browser()
    with Browser([known.files[1]]) as opened:
        yield opened


@pytest.fixture
def browser(_started: Browser) -> Iterator[Browser]:
    """Return the one browser of all tests, which trusts the provider's key and forgets at the end of each test what it did.

    Tests about the browser itself, its profile and attacks from within it start their own.
    """
    yield _started
    _started.forget()


@pytest.fixture
def chromium(browser: Browser) -> Browser:
    """Return the same browser for tests without a provider."""
    return browser


@pytest.fixture
def at_desk(provider: Provider, tmp_path: Path) -> Iterator[Desk]:
    """Provide a home with a connector for the provider, bound to nothing."""
    with desk(provider, tmp_path) as made:
        yield made


# Of its own: the stamp of this group (tests/support/pinned.py) covers what its modules import, which a plugin's fixtures are not.
@pytest.fixture(scope="module")
def upstream() -> Iterator[CountingServer]:
    """Start a server that stands for all services outside."""
    with CountingServer() as server:
        yield server


@pytest.fixture(scope="module")
def home(upstream: CountingServer) -> Iterator[DaemonHome]:
    """Provide a home with gated actions and an approver."""
    with paged_home(upstream) as made:
        yield made
