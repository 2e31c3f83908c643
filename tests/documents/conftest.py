"""The documents and programs, installed once; they fail where these cannot be had, because a skip would pass for a pass."""

from __future__ import annotations

import pytest

from tests.documents.install import Servers, Tools, installed, servers_installed


@pytest.fixture(scope="session")
def tools() -> Tools:
    """Documents, node and Prism."""
    return installed()


@pytest.fixture(scope="session")
def servers() -> Servers:
    """The servers that describe themselves."""
    return servers_installed()
