"""A connector's sources as a publisher ships them, and a store to install them in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aileron.model.failure import AileronError, Failure, FailureClass
from aileron.registry.content import ContentStore

MANIFEST = """\
[connector]
name = "github://acme/mail"
version = "1.2.0"

[capabilities.network]
hosts = ["mail.example.com:443"]

[capabilities.credential]
kind = "api_key"
scope = "Send mail"

[capabilities.runtime]
imports = ["http", "log"]
"""


def refusal(attempt: Callable[..., object], *args: object) -> Failure:
    """Return the failure of an attempt with these arguments."""
    with pytest.raises(AileronError) as caught:
        attempt(*args)
    return caught.value.failure


def refusal_as(failure_class: FailureClass, attempt: Callable[..., object], *args: object) -> str:
    """Return the message with which an attempt with these arguments is refused, in this class."""
    failure = refusal(attempt, *args)
    assert failure.failure_class is failure_class
    return failure.message


@pytest.fixture(scope="session")
def manifest_text() -> Callable[..., str]:
    """Return a builder of the valid manifest with replacements: `manifest_text(("old", "new"), …)`. Each `old` must be there."""

    def build(*replacements: tuple[str, str]) -> str:
        text = MANIFEST
        for old, new in replacements:
            assert old in text, old
            text = text.replace(old, new)
        return text

    return build


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a directory with a small Python connector of two modules."""
    directory = tmp_path / "mail"
    (directory / "parts").mkdir(parents=True)
    (directory / "manifest.toml").write_text(MANIFEST)
    (directory / "connector.py").write_text("import parts.greeting\nprint(parts.greeting.WORDS)\n")
    (directory / "parts" / "__init__.py").write_text("")
    (directory / "parts" / "greeting.py").write_text('WORDS = "hello from the zip"\n')
    return directory


@pytest.fixture
def store(tmp_path: Path) -> ContentStore:
    """Return an empty store in a fresh home."""
    return ContentStore(tmp_path / "home" / "store" / "connectors")
