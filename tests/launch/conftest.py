"""Fixtures of the launch tests: a daemon for each module, a desk for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launch.desk import Desk
from tests.support.home import DaemonHome, daemon_home


@pytest.fixture(scope="module")
def home() -> Iterator[DaemonHome]:
    """Start one home with a daemon for all tests of a module. Its settings choose no cells: at a terminal, launch would ask."""
    with daemon_home() as found:
        found.configure("[launch]\njail = false\n")
        found.ask("GET", "/healthz")
        yield found


@pytest.fixture
def desk(tmp_path: Path, home: DaemonHome) -> Desk:
    """Make a new desk."""
    return Desk(tmp_path, home)
