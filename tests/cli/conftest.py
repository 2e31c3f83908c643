"""Fixtures: a home on a short path, a fake daemon in it, and the command line."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.support.fake_daemon import FakeDaemon
from tests.support.upstream_http import CountingServer


@pytest.fixture
def home() -> Iterator[Path]:
    """Path of a home that does not exist yet, short enough for the names of its sockets."""
    path = Path(tempfile.mkdtemp(prefix="ail-"))
    yield path / "h"
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def upstream() -> Iterator[CountingServer]:
    """A plain HTTP server on loopback."""
    with CountingServer() as server:
        yield server


@pytest.fixture
def fake(home: Path) -> Iterator[FakeDaemon]:
    """A daemon that answers as the test says."""
    with FakeDaemon(home) as daemon:
        yield daemon


@pytest.fixture
def aileron(home: Path) -> Command:
    """The command line of that home."""
    return Command(home)
