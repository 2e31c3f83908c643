"""The documents and programs, installed once; they fail where these cannot be had, because a skip would pass for a pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents.install import Servers, Tools, homeserver_installed, installed, servers_installed


@pytest.fixture(scope="session")
def tools() -> Tools:
    """Documents, node and Prism."""
    return installed()


@pytest.fixture(scope="session")
def servers() -> Servers:
    """The servers that describe themselves."""
    return servers_installed()


@pytest.fixture(scope="session")
def homeserver() -> Path:
    """The packages of a Matrix homeserver."""
    return homeserver_installed()
