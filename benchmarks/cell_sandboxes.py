"""Sandboxes for an agent, the cell among them: which are installed, their versions, and the commands that start a program.

Each may write one project, and reach no host but the one that its `Place` lists (one sandbox shares the whole network). Each is
set up as its own documentation says for that, and to hide the person's other files. An agent's own sandbox is here twice: as its
maker starts it, and with all that can be configured.

    for sandbox in SANDBOXES:
        sandbox.missing         # None, or how to install it
        sandbox.command(place)  # the arguments before the program's

- bubblewrap has no policy: this is the list of its demo (`demos/bubblewrap-shell.sh`) with a project, and with all restrictions
  that its manual offers: `--unshare-all`, `--new-session`, `--clearenv`, an empty home. It has no proxy, so an agent in it needs
  `--share-net` to reach its model: that variant is here as well.
- srt is the sandbox of Claude Code as a package of its own; its two settings are recipes of its README.
- Codex runs a command in its sandbox with `codex sandbox`; `:workspace` is built in, `:minimal` is in its page on permissions.

Runs in the process of the benchmark. Not here: the attempts (tests/attacks/cell), the two libraries (cell_library.py).
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from benchmarks.peers import BWRAP_MISSING
from benchmarks.sandboxes import NONO_MISSING, SANDLOCK_MISSING
from tests.attacks.cell.household import Household

__all__ = ["BARE", "BUBBLEWRAP", "CELL", "SANDBOXES", "Place", "Sandbox"]

BARE: Final = "no sandbox"
BUBBLEWRAP: Final = "bubblewrap"
CELL: Final = "cell"
_VERSION_S: Final = 30.0
"""Seconds for one `--version`; node takes 0.1 s to print it."""
_LIBRARY: Final = Path(__file__).with_name("cell_library.py")
_LINKS: Final = ("/bin", "/sbin", "/lib", "/lib64")


@dataclasses.dataclass(frozen=True)
class Place:
    """Paths for setting up a sandbox: the project, the person's home, their other files; and the listed port of localhost."""

    project: Path
    person: Path
    elsewhere: Path
    variables: tuple[str, ...]
    listed: int | None = None

    @classmethod
    def of(cls, house: Household) -> Place:
        """Return the place of a household."""
        return cls(house.project, house.person, Path(house.facts["home"]).parent, tuple(house.facts["variables"]))


@dataclasses.dataclass(frozen=True)
class Sandbox:
    """A sandbox to compare. `version` needs `missing` to be None; `command` may write settings into the person's home."""

    name: str
    missing: str | None
    version: Callable[[], str]
    command: Callable[[Place], list[str]]


def _said(*words: str) -> str:
    """Run a program and return the version number in its output. ValueError without one."""
    said = subprocess.run(words, capture_output=True, text=True, timeout=_VERSION_S, check=True).stdout
    found = re.search(r"\d+(?:\.\d+)+", said)
    if not found:
        raise ValueError(f"{' '.join(words)} said no version: {said.strip()!r}")
    return found[0]


def _without(program: str, fix: str) -> str | None:
    return None if shutil.which(program) else f"{program} is not installed: {fix}"


def _missing_of_srt() -> str | None:
    needs = {
        "srt": "npm install -g @anthropic-ai/sandbox-runtime",
        "bwrap": "apt-get install bubblewrap",
        "socat": "apt-get install socat",
        "rg": "apt-get install ripgrep",
    }
    return next((why for why in (_without(program, fix) for program, fix in needs.items()) if why), None)


def _bare(_place: Place) -> list[str]:
    return []


def _cell(place: Place) -> list[str]:
    listed = [] if place.listed is None else ["--allow-host", f"localhost:{place.listed}"]
    return [*Household.in_a_cell(*listed), "--program"]


def _bwrap(place: Place, *network: str) -> list[str]:
    words = ["bwrap", "--unshare-all", *network, "--die-with-parent", "--new-session", "--clearenv"]
    kept = {"HOME": str(place.person), "PATH": "/usr/local/bin:/usr/bin:/bin", "TERM": "xterm"}
    words += [word for name, value in kept.items() for word in ("--setenv", name, value)]
    words += ["--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc"]
    for link in filter(os.path.exists, _LINKS):
        words += ["--symlink", os.readlink(link), link] if os.path.islink(link) else ["--ro-bind", link, link]
    words += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", str(place.person)]
    words += ["--ro-bind", sys.base_prefix, sys.base_prefix]
    return [*words, "--bind", str(place.project), str(place.project), "--chdir", str(place.project), "--"]


def _bwrap_with_network(place: Place) -> list[str]:
    return _bwrap(place, "--share-net")


def _library(name: str) -> Callable[[Place], list[str]]:
    return lambda place: [sys.executable, str(_LIBRARY), name, str(place.project), str(place.listed or 0)]


def _srt(place: Place, filesystem: dict[str, list[str]], **more: object) -> list[str]:
    settings = place.person / ".srt-settings.json"
    listed = [] if place.listed is None else ["localhost", f"127.0.0.1:{place.listed}"]
    network: dict[str, list[str]] = {"allowedDomains": listed, "deniedDomains": []}
    settings.write_text(json.dumps({"network": network, "filesystem": filesystem, **more}), encoding="utf-8")
    return ["srt", "--settings", str(settings), "--"]


def _srt_as_it_is(place: Place) -> list[str]:
    return _srt(place, {"denyRead": ["~/.ssh"], "allowWrite": ["."], "denyWrite": []})


def _srt_project_only(place: Place) -> list[str]:
    hidden = [str(place.person), str(place.elsewhere)]
    withheld = {"envVars": [{"name": name, "mode": "deny"} for name in place.variables]}
    filesystem = {"denyRead": hidden, "allowRead": ["."], "allowWrite": ["."], "denyWrite": []}
    return _srt(place, filesystem, credentials=withheld)


def _codex(place: Place, settings: str, *options: str) -> list[str]:
    folder = place.person / ".codex"
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(settings, encoding="utf-8")
    return ["codex", "sandbox", *options, "--"]


def _codex_as_it_is(place: Place) -> list[str]:
    if place.listed is None:
        return _codex(place, "", "-P", ":workspace")
    return _codex(
        place, "\n".join(['default_permissions = "project"', *_codex_network(place, 'extends = ":workspace"')])
    )


def _codex_project_only(place: Place) -> list[str]:
    program = Path(shutil.which("codex") or "codex").resolve()
    readable = ["~/.codex/tmp", str(program.parents[1]), sys.base_prefix]
    lines = [
        'default_permissions = "project"',
        "[shell_environment_policy]",
        'inherit = "core"',
        "[permissions.project.filesystem]",
        '":minimal" = "read"',
        *(f'"{path}" = "read"' for path in readable),
        '[permissions.project.filesystem.":workspace_roots"]',
        '"." = "write"',
        *_codex_network(place),
    ]
    return _codex(place, "\n".join(lines))


def _codex_network(place: Place, *profile: str) -> list[str]:
    lines = ["[permissions.project]", *profile, "[permissions.project.network]"]
    if place.listed is None:
        return [*lines, "enabled = false"]
    lines += ["enabled = true", "allow_local_binding = true"]
    return [
        *lines,
        "[permissions.project.network.domains]",
        '"localhost" = "allow"',
        "[features]",
        "network_proxy = true",
    ]


def _package(name: str) -> Callable[[], str]:
    return lambda: importlib.metadata.version(name)


def _program(name: str) -> Callable[[], str]:
    return lambda: _said(name, "--version")


def _no_version() -> str:
    return ""


_CODEX_MISSING: Final = _without("codex", "npm install -g @openai/codex")
_SRT_MISSING: Final = _missing_of_srt()

SANDBOXES: Final[Sequence[Sandbox]] = (
    Sandbox(CELL, None, _package("aileron"), _cell),
    Sandbox(BUBBLEWRAP, BWRAP_MISSING, _program("bwrap"), _bwrap),
    Sandbox("bubblewrap, --share-net", BWRAP_MISSING, _program("bwrap"), _bwrap_with_network),
    Sandbox("sandlock", SANDLOCK_MISSING, _package("sandlock"), _library("sandlock")),
    Sandbox("nono-py", NONO_MISSING, _package("nono-py"), _library("nono")),
    Sandbox("srt", _SRT_MISSING, _program("srt"), _srt_as_it_is),
    Sandbox("srt, project only", _SRT_MISSING, _program("srt"), _srt_project_only),
    Sandbox("codex", _CODEX_MISSING, _program("codex"), _codex_as_it_is),
    Sandbox("codex, project only", _CODEX_MISSING, _program("codex"), _codex_project_only),
    Sandbox(BARE, None, _no_version, _bare),
)
"""All sandboxes, in the order of the page. The control comes last: an attempt may change files there, and none runs after it."""
