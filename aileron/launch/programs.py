"""Where programs are: the agent, by PATH or by name, and `aileron-mcp` of this very installation.

Looks at the file system, starts nothing. Runs in commands. Not here: what they are started with (the agents' modules).
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
"""1 MiB of a configuration that a person writes."""
_OURS = ("aileron", "aileron_sandbox", "aileron_connector")
"""What is imported by our programs, wherever it is: an author's is in a source tree."""
_RELAY = "import sys; from aileron.mcp.relay import main; sys.exit(main())"


def program_of(agent: Agent, given: str | None, environment: Mapping[str, str]) -> str:
    """The absolute path of the agent's program: `given`, or the first in PATH. AileronError(not_found)."""
    found = shutil.which(given or agent.program, path=environment.get("PATH", os.defpath))
    if found is not None:
        return os.path.abspath(found)
    if given is not None:
        raise AileronError(FailureClass.NOT_FOUND, f"{given!r} is not an executable program")
    what = f"{agent.title} is not installed: no {agent.program!r} in PATH"
    raise AileronError(FailureClass.NOT_FOUND, what)


def server_of(home: Path) -> AileronServer:
    """How an agent starts our server for this home, wherever it is and whatever its PATH is by then."""
    script = Path(sysconfig.get_path("scripts")) / "aileron-mcp"
    if os.access(script, os.X_OK):
        return AileronServer((str(script),), str(home))
    # Without its script, as in a source tree. -P: the folder the agent works in is not where its code is looked for.
    return AileronServer((os.path.abspath(sys.executable), "-P", "-c", _RELAY), str(home))


def installation() -> tuple[str, ...]:
    """Where this Aileron is, resolved: its environment, the Python below it, its packages."""
    packages = (found.origin for name in _OURS if (found := importlib.util.find_spec(name)) is not None)
    places = (sys.prefix, sys.base_prefix, *(os.path.dirname(origin) for origin in packages if origin))
    return tuple(dict.fromkeys(map(os.path.realpath, places)))


def read_files(agent: Agent, environment: Mapping[str, str]) -> dict[Path, str]:
    """The user's files that the agent's module wants to see, as far as they are there and are text."""
    found: dict[Path, str] = {}
    for path in agent.reads(environment):
        content = read_regular(str(path), _MAX_READ)
        if content is not None:
            with contextlib.suppress(UnicodeDecodeError):  # the agent says itself what is wrong with its files
                found[path] = content.decode()
    return found
