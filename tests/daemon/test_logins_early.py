"""The processes that log in are there before the first login, where an installed connector has one; else there is none."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import cast

import pytest

from aileron.daemon.secrets import logins
from aileron.logins.keeper import Keeper
from aileron.registry.build import build
from aileron.registry.content import ContentStore

pytestmark = pytest.mark.anyio
MANIFEST = """\
[connector]
name = "github://aileron-tests/{name}"
version = "1.0.0"

[capabilities.network]
hosts = ["{name}.example:443"]

[capabilities.credential]
{credential}

[capabilities.runtime]
imports = ["tcp", "http"]
"""
API_KEY = 'kind = "api_key"\nscope = "all"'


@pytest.fixture
def anyio_backend() -> str:
    """The daemon's."""
    return "asyncio"


class Starting:
    """A keeper that remembers what was to be started."""

    def __init__(self, problem: str | None = None) -> None:
        self.asked: list[frozenset[str]] = []
        self._problem = problem

    async def start(self, protocols: frozenset[str]) -> None:
        self.asked.append(protocols)
        if self._problem is not None:
            raise OSError(self._problem)


def installed(where: Path, **credentials: str) -> ContentStore:
    """A store with these connectors."""
    store = ContentStore(where / "store")
    for name, credential in credentials.items():
        source = where / name
        source.mkdir()
        (source / "manifest.toml").write_text(MANIFEST.format(name=name, credential=credential))
        (source / "connector.py").write_text("from aileron_connector import run\nrun()\n")
        built = build(source)
        store.put(built.connector, built.manifest)
    return store


def login(name: str, protocol: str) -> str:
    """Of that connector."""
    return f'kind = "login"\nscope = "all"\nlogins = ["{protocol}://{name}.example:443"]'


async def test_what_is_started_is_what_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing where nothing logs in."""
    monkeypatch.setattr(logins, "EARLY_S", 0)
    store = installed(tmp_path, one=API_KEY, two=login("two", "imap"), three=login("three", "redis"))
    starting = Starting()
    await logins.start_early(store, cast(Keeper, starting))
    assert starting.asked == [frozenset({"imap", "redis"})]
    (tmp_path / "other").mkdir()
    nothing = Starting()
    await logins.start_early(installed(tmp_path / "other", one=API_KEY), cast(Keeper, nothing))
    assert nothing.asked == [frozenset()]


async def test_what_cannot_be_started_is_said_and_nothing_else_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The next login says it to whoever needs it."""
    monkeypatch.setattr(logins, "EARLY_S", 0)
    with caplog.at_level(logging.ERROR):
        await logins.start_early(installed(tmp_path, two=login("two", "imap")), cast(Keeper, Starting("no memory")))
    assert [record.message for record in caplog.records] == ["the process that logs in could not be started: no memory"]
