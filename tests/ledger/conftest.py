"""Fixtures for a ledger on a real disk, with a clock that only the test moves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aileron.ledger import Ledger

START_US = 1_800_000_000_000_000


class Clock:
    """A clock in microseconds since the epoch; each reading is one microsecond later, so that order can be seen."""

    def __init__(self) -> None:
        self.now_us = START_US

    def __call__(self) -> int:
        self.now_us += 1
        return self.now_us

    def advance(self, seconds: float) -> None:
        """Let this number of seconds pass."""
        self.now_us += int(seconds * 1_000_000)


@pytest.fixture
def anyio_backend() -> str:
    """Return the only supported event loop."""
    return "asyncio"


@pytest.fixture
def clock() -> Clock:
    """Return a clock that moves only by a microsecond a reading."""
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of the ledger."""
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path, clock: Clock) -> Iterator[Ledger]:
    """Yield an open ledger with its genesis row."""
    with Ledger.open(path, path.parent, "0.1.0", clock=clock) as opened:
        yield opened
