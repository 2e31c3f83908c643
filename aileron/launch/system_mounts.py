"""The parts of the machine that a cell shows: read-only system directories, without files that not every user may read.

Runs in the command that starts the cell. It reads the file system and starts no program; the process that will become
the cell does the slow part in parallel.

Rules
- A file of /etc, /opt or /usr/local/etc that other users cannot read, but this process can (as root, or by a group), is
  masked. If root starts a cell, nothing else would keep the agent from /etc/shadow: in the cell it has no capability, but it
  owns the file.
- A directory that was not examined, because there were too many entries before it, is masked completely.
- Host names are resolved outside the cell only, so the cell's /etc/resolv.conf names no server. Its /etc/hosts has only
  loopback and the cell's own name, because the machine's may name hosts of a private network. Its machine-id is empty,
  because the machine's would identify it.

Source: file-hierarchy(7), hier(7), machine-id(5). Not here: the person's home (cell_spec.py), the search for unreadable files
(aileron_sandbox/cell/closed.py).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple

from aileron.launch.credential_places import is_within

if TYPE_CHECKING:
    from aileron_sandbox.cell.closed import Closed

__all__ = ["LOOKED_AT", "SYSTEM", "SystemMounts", "made_files", "system_mounts"]

SYSTEM: Final = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix/store", "/gnu/store", "/snap",
    "/var/lib/ca-certificates",
)  # fmt: skip
"""Directories of the system that a cell shows. openSUSE's /etc/ssl/certs is a link into the last of them."""
LOOKED_AT: Final = ("/etc", "/usr/local/etc", "/opt")
"""Directories in which an administrator may put their own files. The rest of /usr comes from packages."""
_HOSTS: Final = b"127.0.0.1 localhost cell\n::1 localhost ip6-localhost ip6-loopback\n"
"""Content of /etc/hosts. `cell` is the cell's own name (aileron_sandbox/cell/init.py): programs such as Java look up their own
host. Its address is one at which `--publish` reaches a program that listens there.
"""
_RESOLV: Final = b"# Nothing resolves names in a cell. Programs reach hosts through HTTPS_PROXY.\n"
_NSSWITCH: Final = b"passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\nnetworks: files\n"


class SystemMounts(NamedTuple):
    """The mounts of the system in a cell: directories as (source, target), links in the root directory, paths in the
    directories to mask, and notes for the person.
    """

    directories: tuple[tuple[str, str], ...]
    links: tuple[tuple[str, str], ...]
    masked: tuple[str, ...]
    notes: tuple[str, ...]


def system_mounts(closed: Closed | None = None, system: tuple[str, ...] = SYSTEM) -> SystemMounts:
    """Return the system's mounts for cells of this process's user. `closed` are the paths in LOOKED_AT that other users
    cannot read; if None, they are searched for.
    """
    directories: list[tuple[str, str]] = []
    links: list[tuple[str, str]] = []
    for path in system:
        if os.path.islink(path) and not os.readlink(path).startswith("/"):
            links.append((path, os.readlink(path)))  # /bin of a merged file system
        elif os.path.isdir(path):
            directories.append((os.path.realpath(path), path))
    if closed is None:
        from aileron_sandbox.cell.closed import closed_below

        closed = closed_below(LOOKED_AT)
    found, unseen = closed
    notes = [f"{place} has too many files to look at, and is masked{_remedy(place)}" for place in unseen]
    return SystemMounts(tuple(directories), tuple(links), (*found, *unseen), tuple(notes))


def _remedy(unseen: str) -> str:
    """Return the option that shows a masked directory, as the end of a note; empty below /etc, because the machine's
    keys and passwords are there.
    """
    return "" if is_within(unseen, "/etc") else f": --allow-read {unseen}"


def made_files() -> tuple[tuple[str, bytes], ...]:
    """Return files, as (path, content), that a cell shows in place of the machine's own files, even if those are links."""
    return (
        ("/etc/hosts", _HOSTS),
        ("/etc/resolv.conf", _RESOLV),
        ("/etc/nsswitch.conf", _NSSWITCH),
        ("/etc/machine-id", b""),
    )
