"""Fixtures: a home on a short path, a fake daemon in it, and the command line."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.cli.person import INIT, at_terminal
from tests.support.fake_daemon import FakeDaemon
from tests.support.home import DaemonHome, asking_home


@pytest.fixture
def home() -> Iterator[Path]:
    """Path of a home that does not exist yet, short enough for the names of its sockets."""
    path = Path(tempfile.mkdtemp(prefix="ail-"))
    yield path / "h"
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def fake(home: Path) -> Iterator[FakeDaemon]:
    """A daemon that answers as the test says."""
    with FakeDaemon(home) as daemon:
        yield daemon


@pytest.fixture
def aileron(home: Path | DaemonHome) -> Command:
    """The command line of that home, or of a test's own home with a daemon."""
    return Command(home if isinstance(home, Path) else home.path)


@pytest.fixture
def asking() -> Iterator[DaemonHome]:
    """A home with an approver, created at a terminal, and an action that asks."""
    with asking_home() as home:
        at_terminal(Command(home.path), "approver", "init", answers=INIT).exits(0)
        yield home
