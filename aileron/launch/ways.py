"""Which links there are on the way to a path, and whether an agent could have laid one of them. Reads links, changes nothing.

Runs in the command that starts the cell. An agent in a cell can put a link to anywhere in the place of what it can write. The
next launch would follow it, outside, and show what it leads to. So what a launch shows by itself comes by no link that an agent
could have laid, unless it stays in the folder that the agent has anyway.

Files are opened here so that what an agent left in their place does not hold the command: a FIFO has no end.

Source: path_resolution(7), fifo(7). Not here: which folders agents write (sights.py), what is done about it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from typing import Final

from aileron.launch.places import is_within

__all__ = ["leads_away", "read_regular", "resolved_below", "resolved_unless_led_away", "way_of"]

_MAX_LINKS: Final = 40
"""MAXSYMLINKS: the kernel follows no more, path_resolution(7)."""


def way_of(path: str) -> tuple[str, ...]:
    """The links that are followed from an absolute path, each by its resolved folder and its name; last, where they lead."""
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
    """Whether a link in one of these folders, which are resolved, leads out of it on the way to what the path means."""
    return resolved_unless_led_away(path, written) is None


def resolved_unless_led_away(path: str, written: Iterable[str]) -> str | None:
    """Return what the path means; None where a link in one of these folders, which are resolved, leads out of it on the way."""
    *links, real = way_of(path)
    is_led_away = bool(links) and any(
        not is_within(real, place) and any(is_within(link, place) for link in links) for place in written
    )
    return None if is_led_away else real


def resolved_below(directory: str, names: Iterable[str]) -> Iterator[str]:
    """Resolve each name below a directory, which is resolved. Folders on the way are looked at once for all of them."""
    folders: dict[str, str] = {}
    for name in names:
        folder, last = os.path.split(f"{directory.rstrip('/')}/{name}")
        if folder not in folders:
            folders[folder] = os.path.realpath(folder)
        path = f"{folders[folder].rstrip('/')}/{last}"
        yield os.path.realpath(path) if os.path.islink(path) else path


def read_regular(path: str, limit_bytes: int) -> bytes | None:
    """The first bytes of a regular file; None where there is none, or something else in its place."""
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
