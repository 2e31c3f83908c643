"""The processes for logins start before the first login if an installed connector has one; otherwise none starts."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import cast

import pytest

from aileron.daemon.secrets import logins
from aileron.logins.keeper import Keeper
from aileron.registry.connector_build import build
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


class Starting:
    """A keeper that remembers which protocols were to be started."""

    def __init__(self, problem: str | None = None) -> None:
        self.asked: list[frozenset[str]] = []
        self._problem = problem

    async def start(self, protocols: frozenset[str]) -> None:
        self.asked.append(protocols)
        if self._problem is not None:
            raise OSError(self._problem)


def installed(where: Path, **credentials: str) -> ContentStore:
    """Return a store with these connectors."""
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
    """Return the credential section for a connector's login."""
    return f'kind = "login"\nscope = "all"\nlogins = ["{protocol}://{name}.example:443"]'


async def test_login_processes_start_early_for_the_protocols_of_installed_connectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home whose connectors have no logins starts no process."""
    monkeypatch.setattr(logins, "EARLY_S", 0)
    store = installed(tmp_path, one=API_KEY, two=login("two", "imap"), three=login("three", "redis"))
    starting = Starting()
    await logins.start_early(store, cast(Keeper, starting))
    assert starting.asked == [frozenset({"imap", "redis"})]
    (tmp_path / "other").mkdir()
    nothing = Starting()
    await logins.start_early(installed(tmp_path / "other", one=API_KEY), cast(Keeper, nothing))
    assert nothing.asked == [frozenset()]


async def test_a_failed_early_start_of_a_login_process_is_only_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The next login tries again and reports the problem to its caller."""
    monkeypatch.setattr(logins, "EARLY_S", 0)
    with caplog.at_level(logging.ERROR):
        await logins.start_early(installed(tmp_path, two=login("two", "imap")), cast(Keeper, Starting("no memory")))
    assert [record.message for record in caplog.records] == ["the process that logs in could not be started: no memory"]
