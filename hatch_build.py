"""Put the services of the catalogue into the wheel, and dulwich, which the git connector is built with.

Runs in the environment that builds the wheel, without a network: dulwich is a requirement of the build, in one version. An
editable installation uses the services of the checkout, and dulwich is copied into its `build` folder, which git ignores.

A service is what its connector is built of: its modules, its packages and its actions. Its README, its tests and the document
that it was made from stay out.

Source: https://hatch.pypa.io/latest/plugins/build-hook/reference/, docs/adr/0079-services-come-with-aileron.md.
"""

from __future__ import annotations

import importlib.metadata
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_SERVICES = "aileron/catalogue/services"
_PACKED_FOR = "aileron/catalogue/packed/git"
_FOLDERS_LEFT_OUT = {"tests", "__pycache__"}
_FILES_LEFT_OUT = {".gitignore", "README.md", "import.json", "openapi.yaml", "requirements.txt", "suite.toml"}
"""Files that only an author of the connector needs."""
_PACKED = "dulwich"


class CatalogueHook(BuildHookInterface):
    """The hook of the wheel's build; its name is its place, in pyproject.toml."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add files to the wheel, or, for an editable installation, to the checkout."""
        connectors = Path(self.root, "connectors")
        if version == "editable":
            copy_packed(Path(self.root, "build", "packed", "git"))
            return
        self._packed = tempfile.mkdtemp()
        copy_packed(Path(self._packed))
        into: dict[str, str] = build_data["force_include"]
        for description in sorted(connectors.glob("*/catalogue.toml")):
            for path in files_of(description.parent):
                into[str(path)] = f"{_SERVICES}/{path.relative_to(connectors)}"
        for path in sorted(path for path in Path(self._packed).rglob("*") if path.is_file()):
            into[str(path)] = f"{_PACKED_FOR}/{path.relative_to(self._packed)}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary copy."""
        if version != "editable":
            shutil.rmtree(self._packed)


def files_of(service: Path) -> list[Path]:
    """Return the files of a service that its connector and its actions are made of, sorted."""
    found = []
    for path in sorted(service.rglob("*")):
        within = path.relative_to(service).parts
        is_left_out = bool(_FOLDERS_LEFT_OUT.intersection(within)) or within[0] in _FILES_LEFT_OUT
        if path.is_file() and not is_left_out:
            found.append(path)
    return found


def copy_packed(into: Path) -> None:
    """Copy dulwich as the build's environment has it: its modules and its licence, without what is compiled for one machine."""
    for file in importlib.metadata.distribution(_PACKED).files or ():
        is_module = file.parts[0] == _PACKED and file.suffix == ".py"
        is_fact = file.parts[0].endswith(".dist-info") and (file.name == "METADATA" or "licenses" in file.parts)
        if is_module or is_fact:
            target = into.joinpath(*file.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(file.locate()), target)
