"""Fixtures: an action file as third parties write them, and an empty store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aileron.actions.store import ActionStore

PIN = "sha256:" + "ab" * 32

ACTION = f"""\
+++
name = "send-email"
version = "1.2.0"
source = "github://acme/mail/actions/send-email@1.2.0"

[[requires.connectors]]
name = "github://acme/mail"
version = "1.2.0"
hash = "{PIN}"
capabilities = ["send_email"]

[match]
intent = "send an email"

[[execute]]
id = "send"
connector = "github://acme/mail"
op = "send_email"
idempotent = false

[execute.inputs]
to = "${{args.to}}"
count = "${{args.count}}"
subject = "From ${{args.to}}: hello"

[[inputs]]
name = "to"
type = "string"
description = "Who gets it."

[[inputs]]
name = "count"
type = "integer"
description = "How many."
required = false

[approval]
required = true
expires_in = "10m"
+++

# Send an email

Sends it.
"""


@pytest.fixture(scope="session")
def action_text() -> Callable[..., str]:
    """Return a function that builds the valid file with replacements: `action_text(("old", "new"), …)`. Each old text
    must exist.
    """

    def build(*replacements: tuple[str, str]) -> str:
        text = ACTION
        for old, new in replacements:
            assert old in text, old
            text = text.replace(old, new)
        return text

    return build


@pytest.fixture
def store(tmp_path: Path) -> ActionStore:
    """Return an empty store in a fresh home."""
    return ActionStore(tmp_path / "actions", tmp_path / "action-state.json")
