"""The Matrix connector, imported and then changed by hand: its cases, and updates that keep the changes.

A real homeserver is in tests/documents/test_matrix.py.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from aileron.actions.manifest import parse_action
from aileron.model.manifest import ActionFile
from tests.cli.command import Command
from tests.support.plain_host import ROOT

SOURCES: Final = ROOT / "connectors" / "matrix"
NAME: Final = "github://aileron/connector-matrix"


@pytest.fixture
def aileron(tmp_path: Path) -> Command:
    """Return the command, with an empty home."""
    return Command(tmp_path / "home")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the sources, to be changed."""
    return Path(shutil.copytree(SOURCES, tmp_path / "matrix"))


def actions(folder: Path) -> dict[str, ActionFile]:
    """Return all action files by their names."""
    found = sorted(folder.glob("actions/*/action.md"))
    parsed = [parse_action(path.read_text(), file=str(path), allow_placeholder=True) for path in found]
    return {action.name: action for action in parsed}


def curated(action: ActionFile) -> Any:
    """Return the parts of an action that were decided by hand."""
    labels = [(spec.name, spec.label) for spec in action.inputs]
    return action.summary, action.intent, action.steps, action.approval, action.preview, labels


def newer(aileron: Command, folder: Path, document: Any) -> Any:
    """Import a newer document; return what the command said."""
    (folder / "newer.json").write_text(json.dumps(document))
    return aileron("connector", "import", str(folder / "newer.json"), NAME, str(folder), "--update")


@pytest.mark.jail
def test_the_cases_pass_in_the_jail(aileron: Command) -> None:
    """The cases are one of each operation, and those of what connector.py adds."""
    said = aileron("connector", "test", str(SOURCES), "--json")

    assert said.code == 0, said
    assert (said.json["passed"], said.json["failed"]) == (29, 0)


def test_the_packed_document_matches_the_document_beside_the_sources(aileron: Command, copy: Path) -> None:
    """Importing it again changes no file; otherwise somebody changed only one of the two."""
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    said = aileron("connector", "import", str(copy / "openapi.yaml"), NAME, str(copy), "--update")

    assert said.code == 0, said
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


def test_importing_a_newer_document_keeps_changes_made_by_hand(aileron: Command, copy: Path) -> None:
    """The newer document has another limit and description. Gates, previews, fixed inputs and labels stay."""
    document = yaml.safe_load((copy / "openapi.yaml").read_text())
    send = document["paths"]["/_matrix/client/v3/rooms/{roomId}/send/m.room.message/{txnId}"]["put"]
    body = send["requestBody"]["content"]["application/json"]["schema"]["properties"]["body"]
    body |= {"maxLength": 9000, "description": "What is said."}
    before = actions(copy)
    said = newer(aileron, copy, document)

    assert said.code == 0, said
    after = actions(copy)
    text = {spec.name: spec for spec in after["matrix-send-message"].inputs}["body"]
    assert (text.label, text.rule["maxLength"], text.description) == ("Message", 9000, "What is said.")
    assert {name: curated(action) for name, action in after.items()} == {
        name: curated(action) for name, action in before.items()
    }


def test_only_reads_run_without_approval() -> None:
    """Actions that cannot be undone have the effect `delete`."""
    effects = {
        action.name: action.steps[0].effect.value for action in actions(SOURCES).values() if action.steps[0].effect
    }
    gated = {action.name for action in actions(SOURCES).values() if action.approval.required}

    assert gated == {name for name, effect in effects.items() if effect != "read"}
    assert {name for name, effect in effects.items() if effect == "delete"} == {
        "matrix-kick-user",
        "matrix-redact-event",
    }
    assert len(effects) == len(actions(SOURCES))
