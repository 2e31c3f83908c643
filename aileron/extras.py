"""Extras: optional packages that only some users need, and the command that adds them to the running Python
environment.

Used in commands and in the daemon, only if such a package is missing; `importlib.metadata` is imported only then.

Rules
- The command names the packages, never `aileron[EXTRA]`: a package index may have another program under the name `aileron`.
- The command adds the packages to exactly this environment, whether it was created by pipx, by uv (which installs no
  pip), or with pip.

Source: pyproject.toml, as the installed distribution repeats it. Not here: the use of each extra.
"""

from __future__ import annotations

import importlib.util
import shlex
import sys
from pathlib import Path

__all__ = ["install_command", "repair_command"]

_DISTRIBUTION = "aileron"


def install_command(extra: str) -> str:
    """Return the shell command that adds the packages of `extra`. Raises ValueError if there is no such extra."""
    return shlex.join([*_installer(), *_requirements(extra)])


def repair_command(*packages: str) -> str:
    """Return the shell command that reinstalls packages that every installation of Aileron needs."""
    return shlex.join([*_installer(), *packages])


def _installer() -> list[str]:
    environment = Path(sys.prefix)
    if (environment / "pipx_metadata.json").exists():
        return ["pipx", "inject", environment.name]
    if importlib.util.find_spec("pip") is None:
        return ["uv", "pip", "install", "--python", sys.executable]
    return [sys.executable, "-m", "pip", "install"]


def _requirements(extra: str) -> list[str]:
    from importlib.metadata import PackageNotFoundError, requires

    try:
        lines = requires(_DISTRIBUTION) or []
    except PackageNotFoundError:  # the sources, on the module path and not installed
        return [f".[{extra}]"]
    found = []
    for line in lines:
        requirement, _, marker = line.partition(";")
        if marker.replace("'", '"').strip() == f'extra == "{extra}"':
            found.append(requirement.strip())
    if not found:
        raise ValueError(f"{_DISTRIBUTION} has no extra {extra!r}")
    return found
