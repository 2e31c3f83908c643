"""Links and virtual environments of a project that lead out of the project. A virtual environment does not work
without its Python.

Runs in the command that starts the cell. Everything in the project is hostile, and a place is never shown only because the
project refers to it: cell_spec.py shows places that belong to a toolchain of the table, and lists the others in notes.

Rules
- Links are found by a bounded walk. In a package manager's folders only links that usually lead out are examined.
- Folders that cannot be read, or are beyond the bounds, are skipped. In that case only a note is missing.

Source: PEP 405 on pyvenv.cfg, npm-link(1). Not here: which links may be followed (ways.py), which places are shown
(cell_spec.py).
"""

from __future__ import annotations

import collections
import itertools
import os
from collections.abc import Iterator
from typing import Final, NamedTuple

from aileron.launch.credential_places import is_within
from aileron.launch.toolchains import python_of
from aileron.launch.ways import way_of

__all__ = ["Lead", "leads_of"]

_MAX_ENTRIES: Final = 5000
"""Maximum number of directory entries of a project that are examined: 5 ms. Entries near the top are examined first,
because an environment is near the top.
"""
_MAX_IN_FOLDER: Final = 2000
_MAX_DEPTH: Final = 6
"""Maximum depth of nested folders that are examined: a repository with many packages has three."""
_MAX_LEADS: Final = 64
_PYTHONS: Final = ("python3", "python")
_DATA: Final = frozenset({".git", ".hg", ".svn", ".jj", ".sl", "__pycache__", "site-packages", "target"})
"""Names of folders that have many files, but no virtual environment."""


class Lead(NamedTuple):
    """A symbolic link or a pyvenv.cfg in the project that leads out of the project, with its resolved target. `links`
    are the links outside the project on the path to the target. This class is also used for a symbolic link in the
    agent's settings (cell_spec.py); `links` is then empty.
    """

    path: str
    target: str
    links: tuple[str, ...] = ()


def leads_of(project: str) -> list[Lead]:
    """Return the leads (links out of a project) of the project at the resolved path `project`. Leads nearer to the
    project's top come first.
    """
    leads = (lead for path in _links_and_environments(project) for lead in _leads(path, project))
    return list(itertools.islice(leads, _MAX_LEADS))


def _leads(path: str, project: str) -> Iterator[Lead]:
    said = path
    if os.path.basename(path) == "pyvenv.cfg":
        folder = python_of(path)
        if folder is None:
            return
        said = next((program for name in _PYTHONS if os.path.exists(program := f"{folder}/{name}")), folder)
    *links, target = way_of(said)
    if not is_within(target, project) and os.path.exists(target):
        yield Lead(path, target, tuple(link for link in links if not is_within(link, project)))


def _links_and_environments(project: str) -> Iterator[str]:
    left = _MAX_ENTRIES
    folders = collections.deque([(project, 0)])
    while folders and left > 0:
        folder, depth = folders.popleft()
        entries = _entries(folder)
        left -= len(entries)
        yield from (entry.path for entry in entries if entry.is_symlink() or entry.name == "pyvenv.cfg")
        below = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        if any(entry.name in ("pyvenv.cfg", "conda-meta") for entry in entries):
            folders.extendleft((f"{folder}/{name}", depth) for name in below if name == "bin")
        elif os.path.basename(folder) == "node_modules":
            folders.extend((f"{folder}/{name}", _MAX_DEPTH) for name in below if name == ".bin" or name.startswith("@"))
        elif depth < _MAX_DEPTH:
            kept = [name for name in below if name not in _DATA]
            folders.extendleft((f"{folder}/{name}", depth + 1) for name in kept if "env" in name)
            folders.extend((f"{folder}/{name}", depth + 1) for name in kept if "env" not in name)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(itertools.islice(entries, _MAX_IN_FOLDER))
    except OSError:
        return []
