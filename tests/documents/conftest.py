"""The documents and programs, installed once; they fail if these cannot be installed, because a skip could be taken
for a pass.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents.install import Servers, Tools, homeserver_installed, installed, servers_installed


@pytest.fixture(scope="session")
def tools() -> Tools:
    """Return the documents, node and Prism."""
    return installed()


@pytest.fixture(scope="session")
def servers() -> Servers:
    """Return the servers that describe themselves."""
    return servers_installed()


@pytest.fixture(scope="session")
def homeserver() -> Path:
    """Return the packages of a Matrix homeserver."""
    return homeserver_installed()
