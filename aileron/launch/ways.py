"""The symbolic links that are followed to resolve a path, and whether an agent could have made one of them. Reads
links, but changes nothing.

Runs in the command that starts the cell. An agent in a cell can replace any file that it can write to with a link to
any path. The next launch would follow the link, outside the cell, and show its target. So a launch does not, of its own
accord, show a place that it reaches by a link that an agent could have made. The exception is a link that stays in the
folder that the agent can write to anyway.

Files are opened here in such a way that a FIFO that an agent left in their place does not block the command.

Source: path_resolution(7), fifo(7). Not here: the folders that agents can write to (cell_spec.py), what follows from a link.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from typing import Final

from aileron.launch.credential_places import is_within

__all__ = ["leads_away", "read_regular", "resolved_below", "resolved_unless_led_away", "way_of"]

_MAX_LINKS: Final = 40
"""Maximum number of links followed, MAXSYMLINKS. The kernel follows no more, path_resolution(7)."""


def way_of(path: str) -> tuple[str, ...]:
    """Return the symbolic links that are followed when an absolute path is resolved, each as its resolved folder and
    name, and finally the resolved path.
    """
    links: list[str] = []
    at = "/"
    rest = path.split("/")[::-1]
    while rest:
        name = rest.pop()
        if name == "..":
            at = os.path.dirname(at)
            continue
        if name in ("", "."):
            continue
        here = f"{at.rstrip('/')}/{name}"
        try:
            said = os.readlink(here)
        except OSError:
            at = here
            continue
        links.append(here)
        if len(links) > _MAX_LINKS:
            return (*links, os.path.realpath(path))
        if said.startswith("/"):
            at = "/"
        rest += said.split("/")[::-1]
    return (*links, at)


def leads_away(path: str, written: Iterable[str]) -> bool:
    """Return whether resolving a path follows a symbolic link that is in one of the folders `written` and leads out of
    that folder. The folders are resolved.
    """
    return resolved_unless_led_away(path, written) is None


def resolved_unless_led_away(path: str, written: Iterable[str]) -> str | None:
    """Return the resolved path; None if a link in one of the folders `written` leads out of that folder. The folders
    are resolved.
    """
    *links, real = way_of(path)
    is_led_away = bool(links) and any(
        not is_within(real, place) and any(is_within(link, place) for link in links) for place in written
    )
    return None if is_led_away else real


def resolved_below(directory: str, names: Iterable[str]) -> Iterator[str]:
    """Yield each name below a resolved directory as a resolved path. Each folder in a path is resolved once for all names."""
    folders: dict[str, str] = {}
    for name in names:
        folder, last = os.path.split(f"{directory.rstrip('/')}/{name}")
        if folder not in folders:
            folders[folder] = os.path.realpath(folder)
        path = f"{folders[folder].rstrip('/')}/{last}"
        yield os.path.realpath(path) if os.path.islink(path) else path


def read_regular(path: str, limit_bytes: int) -> bytes | None:
    """Return the first bytes of a regular file; None if the file is missing, not regular or not readable."""
    try:
        # O_NONBLOCK: a FIFO in the place of a file must not hold us
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "rb") as opened:
        try:
            return opened.read(limit_bytes) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
        except OSError:
            return None
