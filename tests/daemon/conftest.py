"""Fixtures with one daemon for a module: a start costs half a second, and most tests only need a running daemon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aileron.ledger import Ledger
from tests.gateway.conftest import Provider
from tests.support.approver import Approver
from tests.support.home import DaemonHome, daemon_home
from tests.support.probed import probed_home
from tests.support.signed_in import World, signed_world
from tests.support.upstream import Authority
from tests.support.upstream_http import CountingServer


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """Return an empty ledger, without a daemon."""
    with Ledger.open(tmp_path / "ledger.db", tmp_path, "1") as made:
        yield made


@pytest.fixture(scope="module")
def approver() -> Approver:
    """Return the approver of those homes of this module that name one."""
    return Approver()


@pytest.fixture(scope="module")
def home(upstream: CountingServer) -> Iterator[DaemonHome]:
    """Start a home with the probe connector granted the upstream, its credential bound and the vault open."""
    with probed_home(upstream.port) as made:
        yield made


@pytest.fixture
def bare_home() -> Iterator[DaemonHome]:
    """Start a home with nothing in it, for tests that break it."""
    with daemon_home() as made:
        yield made


@pytest.fixture
def world(authority: Authority, tmp_path: Path) -> Iterator[World]:
    """Start a provider, a service and a home; nobody has signed in yet."""
    with signed_world(authority, tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    """Start a server with the APIs of both providers."""
    with Provider() as listening:
        yield listening


@pytest.fixture(scope="module")
def gateway_home(provider: Provider) -> Iterator[DaemonHome]:
    """Start a home with Anthropic's key in the open vault; OpenAI's key is the client's own."""
    with daemon_home() as made:
        made.configure(
            f'[gateway.upstreams]\nanthropic = {{ url = "{provider.url}/a", secret = "pw" }}\n'
            f'openai = {{ url = "{provider.url}/o" }}\n'
        )
        made.unlock()
        yield made
