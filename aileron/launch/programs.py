"""The paths of programs: the agent's program, found in PATH or given, and `aileron-mcp` of this installation.

Reads the file system, but starts no program. Runs in commands. Not here: arguments and environment (the agents' modules).
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
"""Maximum size in bytes of a configuration file that is read, 1 MiB. A person writes these files."""
_OURS = ("aileron", "aileron_sandbox", "aileron_connector")
"""The packages that Aileron's programs import. They may be in any directory: a developer's are in a source tree."""
_RELAY = "import sys; from aileron.mcp.relay import main; sys.exit(main())"


def program_of(agent: Agent, given: str | None, environment: Mapping[str, str]) -> str:
    """Return the absolute path of the agent's program: `given`, or the first in PATH. Raises AileronError(not_found)
    if there is none.
    """
    found = shutil.which(given or agent.program, path=environment.get("PATH", os.defpath))
    if found is not None:
        return os.path.abspath(found)
    if given is not None:
        raise AileronError(FailureClass.NOT_FOUND, f"{given!r} is not an executable program")
    what = f"{agent.title} is not installed: no {agent.program!r} in PATH"
    raise AileronError(FailureClass.NOT_FOUND, what)


def server_of(home: Path) -> AileronServer:
    """Return the command by which an agent starts Aileron's server for this home. Its paths are absolute, so it does
    not depend on the agent's PATH.
    """
    script = Path(sysconfig.get_path("scripts")) / "aileron-mcp"
    if os.access(script, os.X_OK):
        return AileronServer((str(script),), str(home))
    # Without the script, as in a source tree. -P: its code is not looked for in the folder that the agent works in.
    return AileronServer((os.path.abspath(sys.executable), "-P", "-c", _RELAY), str(home))


def installation() -> tuple[str, ...]:
    """Return the resolved directories of this installation of Aileron: its virtual environment, the Python that it is
    made from, and its packages.
    """
    packages = (found.origin for name in _OURS if (found := importlib.util.find_spec(name)) is not None)
    places = (sys.prefix, sys.base_prefix, *(os.path.dirname(origin) for origin in packages if origin))
    return tuple(dict.fromkeys(map(os.path.realpath, places)))


def read_files(agent: Agent, environment: Mapping[str, str]) -> dict[Path, str]:
    """Return the user's files that the agent's module needs to read. Missing files and those that are not text are left out."""
    found: dict[Path, str] = {}
    for path in agent.reads(environment):
        content = read_regular(str(path), _MAX_READ)
        if content is not None:
            with contextlib.suppress(UnicodeDecodeError):  # the agent says itself what is wrong with its files
                found[path] = content.decode()
    return found
