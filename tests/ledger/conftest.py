"""A ledger on a real disk, with a clock that only the test moves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aileron.ledger import Ledger

START_US = 1_800_000_000_000_000


class Clock:
    """Microseconds since the epoch; each look is one microsecond later, so that order can be seen."""

    def __init__(self) -> None:
        self.now_us = START_US

    def __call__(self) -> int:
        self.now_us += 1
        return self.now_us

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now_us += int(seconds * 1_000_000)


@pytest.fixture
def anyio_backend() -> str:
    """The one event loop there is."""
    return "asyncio"


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still between looks."""
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the ledger is."""
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path, clock: Clock) -> Iterator[Ledger]:
    """An open ledger with its genesis row."""
    with Ledger.open(path, path.parent, "0.1.0", clock=clock) as opened:
        yield opened
