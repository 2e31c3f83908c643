"""Fixtures of the console's tests: a home with a fake daemon, and a console that reacts quickly."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual import _wait

from tests.support.fake_daemon import FakeDaemon
from tests.tui.consoles import World


@pytest.fixture(autouse=True)
def looked_at_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the time for which Pilot waits, after each key, for the process to idle."""
    monkeypatch.setattr(_wait, "SLEEP_GRANULARITY", 0.004)
    monkeypatch.setattr(_wait, "SLEEP_IDLE", 0.0004)


@pytest.fixture(autouse=True)
def a_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give every test the same terminal wherever it runs: UTC, colours, and no browser."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    for name in ("NO_COLOR", "DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def world() -> Iterator[World]:
    """Make a home at a path short enough for sockets, without an approver."""
    path = Path(tempfile.mkdtemp(prefix="ail-"))
    with FakeDaemon(path / "h") as fake:
        yield World(path / "h", fake)
    shutil.rmtree(path, ignore_errors=True)
