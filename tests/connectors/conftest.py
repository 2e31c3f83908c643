"""Fixture for connectors' tests: they have no proxy of the person's environment, as in a jail."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from aileron_connector import operation, transports


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove proxy variables: libraries would use them, and a cell and many a company's machine have one."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture
def own_operations() -> Iterator[None]:
    """Remove the operations and the transport that a test declares."""
    known = dict(operation.OPERATIONS)
    yield
    operation.OPERATIONS.clear()
    operation.OPERATIONS.update(known)
    transports.use(None)
