"""A person's home with all that a cell must consider, and the cell of one launch there, as values. No process is started."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from aileron.launch.agent import AileronServer, Gateway, LaunchRequest
from aileron.launch.agents import AGENTS
from aileron.launch.cell_spec import CellOptions, CellSpec, Machine, make_cell_spec, server_in_cell
from aileron.launch.git_settings import PersonSettings
from aileron.launch.programs import read_files
from aileron.launch.system_mounts import SystemMounts
from aileron.model.placeholder import CELL_PLACEHOLDER

__all__ = ["Place"]

_SYSTEM = SystemMounts((("/usr", "/usr"), ("/etc", "/etc")), (("/bin", "usr/bin"),), (), ())


class Place:
    """Home of a person: `project` is a folder in it, `bin` is in PATH and has the agents."""

    def __init__(self, path: Path) -> None:
        self.root = Path(os.path.realpath(path))
        self.home = self.root / "home"
        self.project = self.home / "src" / "app"
        self.aileron = self.home / ".aileron"
        self.bin = self.home / ".local" / "bin"
        for directory in (self.project, self.aileron, self.bin):
            directory.mkdir(parents=True)
        for name in AGENTS:
            self.program(self.bin / name)
        self.environment = {"HOME": str(self.home), "PATH": f"{self.bin}:/usr/bin:/bin"}

    def program(self, path: Path) -> Path:
        """Write an executable file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        return path

    def file(self, name: str, text: str = "") -> Path:
        """Write a file in the home."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def cell(
        self,
        agent: str = "claude",
        *,
        folder: Path | None = None,
        program: Path | None = None,
        kept: frozenset[str] = frozenset(),
        options: CellOptions | None = None,
        installation: tuple[str, ...] = (),
        git_settings: Mapping[str, str] | None = None,
        git_files: Mapping[str, str] | None = None,
        system: SystemMounts = _SYSTEM,
        earlier: tuple[Path, ...] = (),
        arguments: tuple[str, ...] = ("run",),
        variables: Mapping[str, str] | None = None,
        **environment: str,
    ) -> CellSpec:
        """Return what the agent's cell shows there. The environment gets `variables` too."""
        machine = Machine(
            home=str(self.home),
            aileron_home=str(self.aileron),
            installation=installation,
            gateway_port=8721,
            git_settings=PersonSettings(git_settings or {}, git_files or {}),
            system=lambda: system,
            earlier_projects=tuple(map(str, earlier)),
        )
        server = server_in_cell(AileronServer(("/opt/aileron/bin/aileron-mcp",), str(self.aileron)))
        gateway = Gateway("http://localhost:8721", kept)
        found = AGENTS[agent]
        around = {**self.environment, **(variables or {}), **environment}
        files = read_files(found, around)
        asked = LaunchRequest(server, CELL_PLACEHOLDER, gateway, around, arguments, files)
        where = str(folder or self.project)
        return make_cell_spec(
            found, str(program or self.bin / agent), asked, found.setup(asked), where, options or CellOptions(), machine
        )

    def shows(self, cell: CellSpec, path: Path | str) -> str:
        """Return `writable`, `read-only`, `masked`, `made` or `nothing`: as in the policy, the later of two binds counts."""
        said = str(path)
        if any(_is_in(said, masked) for masked in cell.policy.masked):
            return "masked"
        if any(said == made for made, _ in cell.policy.files):
            return "made"
        found = "nothing"
        for bind in cell.policy.binds:
            if _is_in(said, bind.target):
                found = "writable" if bind.writable else "read-only"
        return found


def _is_in(path: str, place: str) -> bool:
    return path == place or path.startswith(f"{place}/")
