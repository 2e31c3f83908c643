"""Shared fixtures of the approver's tests: one key made once, and copied for each test that wants its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from aileron.approver_key.keyfile import ApproverKey, create
from aileron.model.failure import AileronError, FailureClass
from aileron.model.secret import Secret

PASSPHRASE = b"nine of swords, reversed"
MADE_S = 1_750_000_000.5


@contextlib.contextmanager
def refused(failure_class: FailureClass, words: str = "") -> Iterator[None]:
    """Check that the block fails with this class, and with these words in a printable message."""
    with pytest.raises(AileronError) as caught:
        yield
    assert caught.value.failure.failure_class == failure_class, caught.value.failure.message
    assert words in caught.value.failure.message
    assert caught.value.failure.message.isprintable()


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, ApproverKey]:
    """Return the bytes of a key's file, and the key."""
    path = tmp_path_factory.mktemp("made") / "approver.json"
    key = create(path, Secret(PASSPHRASE), clock_s=MADE_S)
    return path.read_bytes(), key


@pytest.fixture
def key(made: tuple[bytes, ApproverKey]) -> ApproverKey:
    """Return the key itself, open. No test wipes it."""
    return made[1]


@pytest.fixture
def path(tmp_path: Path, made: tuple[bytes, ApproverKey]) -> Path:
    """Return the path of a fresh file with the key."""
    path = tmp_path / "approver.json"
    path.touch(0o600)
    path.write_bytes(made[0])
    return path
