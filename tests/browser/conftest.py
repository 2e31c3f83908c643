"""For each test a new provider to sign in to, and a browser as good as new; for a module one home that has a page."""

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
    """What providers present: a browser is told at its start whose key it takes, so all have one."""

    authority: Authority
    files: tuple[Path, Path]


@pytest.fixture(scope="session")
def known(tmp_path_factory: pytest.TempPathFactory) -> Known:
    """Made once."""
    folder = tmp_path_factory.mktemp("known")
    authority = Authority(folder)
    return Known(authority, authority.server_files(folder, "localhost", "127.0.0.1"))


@pytest.fixture
def provider(known: Known, tmp_path: Path) -> Iterator[Provider]:
    """Fails where it cannot be had: a skip would pass for a pass."""
    with Provider(tmp_path, known.authority, files=known.files) as running:
        yield running


@pytest.fixture(scope="session")
def _started(known: Known) -> Iterator[Browser]:
    needs_browser()
    with Browser([known.files[1]]) as opened:
        yield opened


@pytest.fixture
def browser(_started: Browser) -> Iterator[Browser]:
    """With the provider's key as one it trusts: one for all tests, which forgets at the end of each what it did.

    Tests about the browser itself, its profile and what others may do in it start their own.
    """
    yield _started
    _started.forget()


@pytest.fixture
def chromium(browser: Browser) -> Browser:
    """The same browser, for tests without a provider."""
    return browser


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
