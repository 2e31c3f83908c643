"""Shared parts of the tests of fetching: a way to the tests' servers, and programs in a private directory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from aileron.config import LiveSettings, Settings
from aileron.egress import Egress
from aileron.model.failure import AileronError, FailureClass
from aileron.model.names import HostPort
from aileron.model.secret import Secret
from aileron.model.secret_reference import SecretReference
from aileron.secret_stores.fetch import Fetcher
from aileron.secret_stores.key_value import KeyValueStores
from aileron.secret_stores.programs import SYSTEM_DIRECTORIES, Programs
from tests.support.upstream import Authority


class Nobody:
    """A lender that is never asked: fetching a secret uses no connector's credential."""

    def lend(self, use: object) -> Any:
        raise AssertionError("a secret is fetched with no connector's credential")


@contextlib.asynccontextmanager
async def fetching(
    authority: Authority | None = None,
    *allowed: str,
    environment: Mapping[str, str] | None = None,
    directories: tuple[str, ...] = SYSTEM_DIRECTORIES,
) -> AsyncIterator[Fetcher]:
    """Yield a fetcher. Servers at `allowed` may be on this machine, and `directories` count as the system's."""
    settings = Settings(
        egress_private=frozenset(HostPort.parse(address) for address in allowed),
        egress_ca_pem=None if authority is None else authority.ca_pem,
    )
    egress = Egress(settings, Nobody())  # type: ignore[arg-type]
    owner = 0 if directories == SYSTEM_DIRECTORIES else os.getuid()
    try:
        yield Fetcher(KeyValueStores(egress, LiveSettings(settings)), Programs(directories, owner), environment or {})
    finally:
        await egress.aclose()


async def fetched(fetcher: Fetcher, reference: str, token: bytes | None = None, within_s: float = 10.0) -> bytes:
    """Return the value at a reference, read by the program that is found now."""
    elsewhere = fetcher.pinned(SecretReference.parse(reference), None if token is None else "the-token")
    given = None if token is None else Secret(token)
    return (await fetcher.fetch(elsewhere, given, anyio.current_time() + within_s)).reveal()


@contextlib.contextmanager
def unfetched(
    code: str, *words: str, failure_class: FailureClass = FailureClass.BINDING_FAILED
) -> Iterator[pytest.ExceptionInfo[AileronError]]:
    """Check that the block ends in this failure, and that its message has these words."""
    with pytest.raises(AileronError) as caught:
        yield caught
    failure = caught.value.failure
    assert (failure.failure_class, failure.details.get("code")) == (failure_class, code), failure.message
    for word in words:
        assert word in failure.message, failure.message


def program(directory: Path, name: str, *lines: str) -> Path:
    """Write a program to a directory that nobody else can write."""
    path = directory / name
    path.write_text("\n".join(["#!/bin/sh", "PATH=/usr/bin:/bin", *lines, ""]))
    path.chmod(0o755)
    directory.chmod(0o755)
    return path
