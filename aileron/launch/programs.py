"""The paths of programs: the agent's, by PATH or by name, and `aileron-mcp` of this very installation.

Looks at the file system, starts no program. Runs in commands. Not here: arguments and environment (the agents' modules).
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from aileron.launch.agent import Agent, AileronServer
from aileron.launch.ways import read_regular
from aileron.model.failure import AileronError, FailureClass

__all__ = ["installation", "program_of", "read_files", "server_of"]

_MAX_READ = 1 << 20
"""1 MiB: most that is read of a configuration that a person writes."""
_OURS = ("aileron", "aileron_sandbox", "aileron_connector")
"""The packages that our programs import, wherever they lie: a developer's are in a source tree."""
_RELAY = "import sys; from aileron.mcp.relay import main; sys.exit(main())"


def program_of(agent: Agent, given: str | None, environment: Mapping[str, str]) -> str:
    """Return the absolute path of the agent's program: `given`, or the first in PATH. AileronError(not_found)."""
    found = shutil.which(given or agent.program, path=environment.get("PATH", os.defpath))
    if found is not None:
        return os.path.abspath(found)
    if given is not None:
        raise AileronError(FailureClass.NOT_FOUND, f"{given!r} is not an executable program")
    what = f"{agent.title} is not installed: no {agent.program!r} in PATH"
    raise AileronError(FailureClass.NOT_FOUND, what)


def server_of(home: Path) -> AileronServer:
    """Return the command by which an agent starts our server for this home, with absolute paths, independent of its PATH."""
    script = Path(sysconfig.get_path("scripts")) / "aileron-mcp"
    if os.access(script, os.X_OK):
        return AileronServer((str(script),), str(home))
    # Without the script, as in a source tree. -P: its code is not looked for in the folder that the agent works in.
    return AileronServer((os.path.abspath(sys.executable), "-P", "-c", _RELAY), str(home))


def installation() -> tuple[str, ...]:
    """Return the resolved directories of this installation of Aileron: its environment, the Python below it, its packages."""
    packages = (found.origin for name in _OURS if (found := importlib.util.find_spec(name)) is not None)
    places = (sys.prefix, sys.base_prefix, *(os.path.dirname(origin) for origin in packages if origin))
    return tuple(dict.fromkeys(map(os.path.realpath, places)))


def read_files(agent: Agent, environment: Mapping[str, str]) -> dict[Path, str]:
    """Return the user's files that the agent's module wants to read. Missing files and those that are not text are left out."""
    found: dict[Path, str] = {}
    for path in agent.reads(environment):
        content = read_regular(str(path), _MAX_READ)
        if content is not None:
            with contextlib.suppress(UnicodeDecodeError):  # the agent says itself what is wrong with its files
                found[path] = content.decode()
    return found
