"""Fixtures of the vault's tests: one vault made once, copied for each test that needs its own."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aileron.model.failure import AileronError, FailureClass
from aileron.model.manifest import CredentialNeed
from aileron.model.names import BindingName
from aileron.model.plan import CredentialUse
from aileron.model.secret import Secret
from aileron.vault import Binding, Vault
from tests.vault import page_reader

PASSPHRASE = b"correct horse battery"
CANARY = b"canary-5b1f-of-the-mail-account"
OTHER = b"another-secret-altogether"
CONNECTOR = "github://example/aileron-connector-mail"
BASIC = Binding(BindingName.parse("basic/mail/home"), CONNECTOR, "basic", "me@example.test", "mail", 1_700_000_000.25)
API_KEY = Binding(BindingName.parse("api_key/tickets/work"), CONNECTOR, "api_key", None, "tickets", 1_700_000_001.0)


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 1_750_000_000.5

    def __call__(self) -> float:
        return self.now


@dataclasses.dataclass
class Refusals:
    """The failure that a `with` block ended in."""

    failure_class: FailureClass | None = None
    message: str = ""
    details: dict[str, Any] = dataclasses.field(default_factory=dict)


@contextlib.contextmanager
def refused(failure_class: FailureClass, words: str = "") -> Iterator[Refusals]:
    """Check that the block ends in a failure of this class whose message contains `words`; yield the failure."""
    seen = Refusals()
    with pytest.raises(AileronError) as caught:
        yield seen
    failure = caught.value.failure
    seen.failure_class, seen.message, seen.details = failure.failure_class, failure.message, dict(failure.details)
    assert seen.failure_class == failure_class, seen.message
    assert words in seen.message


def use(binding: Binding, kind: str | None = None) -> CredentialUse:
    """Return a plan's use of a binding, by a connector that declares `kind` (default: the binding's own)."""
    declared = binding.kind if kind is None else kind
    need = CredentialNeed(kind=declared, scope="all")  # type: ignore[arg-type]  # any text, as in a binding
    return CredentialUse(connector=binding.connector, binding=binding.name, need=need)


def verify(vault: Vault) -> None:
    """Make an open vault read and verify its file without a change: AileronError unless the file is intact."""
    with refused(FailureClass.NOT_FOUND):
        vault.remove_secret("never-stored")


def write(path: Path, data: bytes) -> None:
    """Write a file with the vault's permissions, 0600."""
    path.touch(0o600)
    path.write_bytes(data)


def environment() -> dict[str, str]:
    """Return the environment in which another Python finds our modules, installed or not."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def python(*args: str | Path) -> str:
    """Run another Python with our modules and return its output; it must print nothing on standard error."""
    command = [sys.executable, *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, env=environment())
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the bytes of a vault with two secrets and two bindings, in generation 5."""
    path = tmp_path_factory.mktemp("made") / "vault.json"
    vault = Vault(path, clock=Clock())
    vault.create(Secret(PASSPHRASE))
    vault.set_secret("mail", Secret(CANARY))
    vault.set_secret("tickets", Secret(OTHER))
    vault.bind(BASIC)
    vault.bind(API_KEY)
    return path.read_bytes()


@pytest.fixture(scope="session")
def key(made: bytes) -> bytes:
    """Return the data key of that vault, as the second reader finds it."""
    return page_reader.data_key(json.loads(made), PASSPHRASE)


@pytest.fixture(scope="session")
def standing(made: bytes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vault]:
    """Return that vault, open, for all tests that only try refused operations: opening one takes a tenth of a second."""
    path = tmp_path_factory.mktemp("standing") / "vault.json"
    write(path, made)
    vault = Vault(path, clock=Clock())
    vault.unlock(Secret(PASSPHRASE))
    yield vault
    assert (vault.status().generation, path.read_bytes()) == (5, made)
    vault.lock()


@pytest.fixture
def path(tmp_path: Path, made: bytes) -> Path:
    """Return the path of the test's own file with those bytes."""
    write(tmp_path / "vault.json", made)
    return tmp_path / "vault.json"


@pytest.fixture
def locked(path: Path) -> Vault:
    """Return that vault, locked."""
    return Vault(path, clock=Clock())


@pytest.fixture
def vault(locked: Vault) -> Iterator[Vault]:
    """Return that vault, open."""
    locked.unlock(Secret(PASSPHRASE))
    yield locked
    locked.lock()


@pytest.fixture
def absent(tmp_path: Path) -> Iterator[Vault]:
    """Return a vault whose file and directory do not exist yet."""
    vault = Vault(tmp_path / "home" / ".aileron" / "vault.json", clock=Clock())
    yield vault
    vault.lock()
