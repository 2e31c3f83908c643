"""A connector made from a document is published, installed by name and updated like any other, at a forge of the test."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Command, Said
from tests.cli.test_new_from_a_document import DOCUMENT, NAME
from tests.support.forge import ForgeServer
from tests.support.home import daemon_home
from tests.support.upstream import Authority

pytestmark = pytest.mark.jail


@dataclasses.dataclass(frozen=True)
class World:
    """The author's working copy, a forge, and the commands of both author and user."""

    folder: Path
    forge: ForgeServer
    aileron: Command

    def imported(self, document: dict[str, Any], *words: str) -> Said:
        """Run `connector import` with the document."""
        file = self.folder / "api.json"
        file.write_text(json.dumps(document))
        return self.aileron("connector", "import", str(file), NAME, str(self.folder / "made"), *words).exits(0)

    def released(self, version: str) -> None:
        """Release the connector as the workflow of its repository does for a tag."""
        made, dist = self.folder / "made", self.folder / f"dist-{version}"
        key = str(self.folder / "made.signing-key")
        self.aileron("connector", "release", str(made), "--version", version, "--key", key, "-o", str(dist)).exits(0)
        for archive in sorted(dist.rglob("aileron.tar.gz")):
            place = archive.parent.parent.relative_to(dist).as_posix()
            self.forge.publish(NAME if place == "." else f"{NAME}/{place}", version, archive.read_bytes())
        self.forge.keys[NAME] = (made / "keys" / "publisher.pub").read_text()

    def installed(self) -> tuple[list[str], list[str]]:
        """Return the connector's versions, and the actions with theirs."""
        connectors = self.aileron("connector", "list", "--json").json["connectors"]
        actions = self.aileron("action", "list", "--json").json["actions"]
        return sorted(connector["version"] for connector in connectors), [
            f"{action['name']} {action['version']}" for action in actions
        ]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A working copy and a home with nothing imported and nothing installed."""
    with ForgeServer(Authority(tmp_path)) as forge, daemon_home() as home:
        home.configure(forge.toml())
        yield World(tmp_path, forge, Command(home.path))


def test_an_imported_connector_is_published_installed_by_name_and_updated(world: World) -> None:
    """The newer document has another host and another input: the update says that the new version allows more."""
    world.imported(DOCUMENT, "--ops", "listPets,addPet")
    world.released("1.0.0")
    name = f"{NAME}/actions/pets-add-pet"
    early = world.aileron("action", "add", f"{name}@1.0.0", "--yes")
    trusted = world.aileron("keyring", "trust", NAME, "--yes")
    added = world.aileron("action", "add", f"{name}@1.0.0", "--yes")
    before = world.installed()

    newer = copy.deepcopy(DOCUMENT)
    newer["servers"] = [{"url": "https://api.example.org/v2"}]
    body = newer["paths"]["/pets"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    body["properties"] = {**body["properties"], "owner": {"type": "string"}}
    told = world.imported(newer, "--update")
    world.released("1.1.0")
    updated = world.aileron("action", "update", "pets-add-pet", "--yes")

    assert (early.code, f"aileron keyring trust {NAME}" in early.err) == (9, True), early
    assert (trusted.code, added.code) == (0, 0), (trusted, added)
    assert before == (["1.0.0"], ["pets-add-pet 1.0.0"])
    assert "api.example.org:443" in told.err
    assert updated.code == 0, updated
    assert "ALLOWS MORE: reaches: new, api.example.org:443" in " ".join(updated.err.split())
    assert world.installed() == (["1.0.0", "1.1.0"], ["pets-add-pet 1.1.0"])
    shown = world.aileron("action", "show", "pets-add-pet", "--json").json
    assert {spec["name"] for spec in shown["inputs"]} == {"id", "name", "owner"}
