"""What of the machine itself a cell shows: system directories, read-only, without what is not everybody's to read.

Runs in the command that starts the cell. It looks at the file system and starts nothing: what takes long of it, the process that
will be the cell does meanwhile.

Rules
- A file of /etc, /opt or /usr/local/etc that others cannot read, and that we can (as root, or by a group), is masked. As root
  nothing else would keep an agent from /etc/shadow: in the cell it has no capability, but it owns the file.
- A directory that was not looked at, because there was too much before it, is masked as a whole.
- Names are resolved outside of the cell only, so /etc/resolv.conf names nobody; /etc/hosts has loopback alone, and the cell's own
  name for it, because it can name what is in a private network; machine-id says which machine this is.

Source: file-hierarchy(7), hier(7), machine-id(5). Not here: the person's home (sights.py), how it is looked for
(aileron_sandbox/cell/closed.py).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple

from aileron.launch.places import is_within

if TYPE_CHECKING:
    from aileron_sandbox.cell.closed import Closed

__all__ = ["LOOKED_AT", "SYSTEM", "SystemSights", "made_files", "system_sights"]

SYSTEM: Final = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix/store", "/gnu/store", "/snap",
    "/var/lib/ca-certificates",
)  # fmt: skip
"""With the last, openSUSE's /etc/ssl/certs leads somewhere."""
LOOKED_AT: Final = ("/etc", "/usr/local/etc", "/opt")
"""Where an administrator puts files of their own. In the rest of /usr is what packages bring."""
_HOSTS: Final = b"127.0.0.1 localhost cell\n::1 localhost ip6-localhost ip6-loopback\n"
"""`cell` is the cell's own name (aileron_sandbox/cell/init.py): programs look up what machine they are on, Java among them. It
is at an address at which `--publish` finds who listens there."""
_RESOLV: Final = b"# Nothing resolves names in a cell. Programs reach hosts through HTTPS_PROXY.\n"
_NSSWITCH: Final = b"passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\nnetworks: files\n"


class SystemSights(NamedTuple):
    """Directories by (source, target), links of the root, what is masked in them, and what is to be said."""

    directories: tuple[tuple[str, str], ...]
    links: tuple[tuple[str, str], ...]
    masked: tuple[str, ...]
    notes: tuple[str, ...]


def system_sights(closed: Closed | None = None, system: tuple[str, ...] = SYSTEM) -> SystemSights:
    """Of this machine, for this process's user; `closed` is what of LOOKED_AT is, and looked for where it is not given."""
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
    return SystemSights(tuple(directories), tuple(links), (*found, *unseen), tuple(notes))


def _remedy(unseen: str) -> str:
    """Return how it is shown, but for /etc: the keys and passwords of a machine lie there."""
    return "" if is_within(unseen, "/etc") else f": --allow-read {unseen}"


def made_files() -> tuple[tuple[str, bytes], ...]:
    """Files that stand in front of the machine's own, links or not."""
    return (
        ("/etc/hosts", _HOSTS),
        ("/etc/resolv.conf", _RESOLV),
        ("/etc/nsswitch.conf", _NSSWITCH),
        ("/etc/machine-id", b""),
    )
