"""Fixtures: a home for the suite and the Inspector, and the tools, installed once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.home import conformance_home
from tests.conformance.install import Tools, installed
from tests.support.home import DaemonHome


@pytest.fixture(scope="session")
def tools() -> Tools:
    """Return the installed tools; fail if they cannot be installed, because a skip could be taken for a pass."""
    return installed()


@pytest.fixture(scope="module")
def home() -> Iterator[DaemonHome]:
    """Return a home with the suite's fixture tools as actions."""
    with conformance_home() as made:
        yield made


@pytest.fixture
def session(home: DaemonHome) -> dict[str, Any]:
    """Begin a new session, with its token."""
    begun: dict[str, Any] = home.must("POST", "/v1/sessions", {"agent": "inspector", "folder": "/"})
    return begun
