"""Connectors have no proxy: what the person's environment says of one is not there, as in a jail."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries would go to it, and a cell and many a company's machine have one."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
