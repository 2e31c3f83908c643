"""What of the machine itself a cell shows: system directories, read-only, without what is not everybody's to read.

Runs in the command that starts the cell. It looks at the file system and starts nothing.

Rules
- A file of /etc, /opt or /usr/local/etc that others cannot read, and that we can (as root, or by a group), is masked. As root
  nothing else would keep an agent from /etc/shadow: in the cell it has no capability, but it owns the file.
- A directory that is not looked at any more, because there was too much, is masked as a whole.
- Names are resolved outside of the cell only, so /etc/resolv.conf names nobody; /etc/hosts has loopback alone, because it can
  name what is in a private network; machine-id says which machine this is.

Source: file-hierarchy(7), hier(7), machine-id(5). Not here: the person's home (sights.py).
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Final, NamedTuple

__all__ = ["SYSTEM", "SystemSights", "made_files", "system_sights"]

SYSTEM: Final = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix/store", "/gnu/store", "/snap",
    "/var/lib/ca-certificates",
)  # fmt: skip
"""With the last, openSUSE's /etc/ssl/certs leads somewhere."""
_LOOKED_AT: Final = ("/etc", "/usr/local/etc", "/opt")
"""Where an administrator puts files of their own. In the rest of /usr is what packages bring."""
_MAX_ENTRIES: Final = 20_000
"""Files and directories that are looked at for each of them: 20 ms. An /etc has 3,000."""
_MAX_OF_ONE: Final = 64
"""Masks in one directory: above that, all of it is masked. Each mask is a mount of the cell."""

_HOSTS: Final = b"127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"
_RESOLV: Final = b"# Nothing resolves names in a cell. Programs reach hosts through HTTPS_PROXY.\n"
_NSSWITCH: Final = b"passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\nnetworks: files\n"


class SystemSights(NamedTuple):
    """Directories by (source, target), links of the root, what is masked in them, and what is to be said."""

    directories: tuple[tuple[str, str], ...]
    links: tuple[tuple[str, str], ...]
    masked: tuple[str, ...]
    notes: tuple[str, ...]


def system_sights(system: tuple[str, ...] = SYSTEM, looked_at: tuple[str, ...] = _LOOKED_AT) -> SystemSights:
    """Of this machine, for this process's user."""
    directories: list[tuple[str, str]] = []
    links: list[tuple[str, str]] = []
    for path in system:
        if os.path.islink(path) and not os.readlink(path).startswith("/"):
            links.append((path, os.readlink(path)))  # /bin of a merged file system
        elif os.path.isdir(path):
            directories.append((os.path.realpath(path), path))
    masked: list[str] = []
    notes: list[str] = []
    for path in looked_at:
        if os.path.isdir(path) and not os.path.islink(path):
            found, unseen = _closed_to_others(path)
            masked += [*_gathered(found), *unseen]
            notes += [f"{one} has too many files to look at, and is masked: --allow-read {one}" for one in unseen]
    return SystemSights(tuple(directories), tuple(links), tuple(masked), tuple(notes))


def made_files() -> tuple[tuple[str, bytes], ...]:
    """Files that stand in front of the machine's own, links or not."""
    return (
        ("/etc/hosts", _HOSTS),
        ("/etc/resolv.conf", _RESOLV),
        ("/etc/nsswitch.conf", _NSSWITCH),
        ("/etc/machine-id", b""),
    )


def _closed_to_others(top: str) -> tuple[list[str], list[str]]:
    """Below a directory: what only we can read, and what was not looked at because there was more than enough.

    Links are passed over: they lead to what is looked at by itself, or is not there. A directory that we cannot read either,
    nobody in the cell can.
    """
    found: list[str] = []
    directories = [top]
    left = _MAX_ENTRIES
    for number, directory in enumerate(directories):  # grows meanwhile
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_symlink():  # without a system call, readdir(3): a third of an /etc are links
                    continue
                left -= 1
                if left < 0:
                    return found, directories[number:] if directory != top else [top]
                try:
                    mode = entry.stat(follow_symlinks=False).st_mode
                except OSError:
                    continue  # gone meanwhile
                is_directory = stat.S_ISDIR(mode)
                if mode & (stat.S_IXOTH if is_directory else stat.S_IROTH):
                    if is_directory:
                        directories.append(entry.path)
                elif os.access(entry.path, os.R_OK):
                    found.append(entry.path)
    return found, []


def _gathered(paths: list[str]) -> list[str]:
    """The same, with a directory in place of what is masked in it, where that is much."""
    by_directory: dict[str, list[str]] = {}
    for path in paths:
        by_directory.setdefault(os.path.dirname(path), []).append(path)
    return [
        path
        for directory, of_one in by_directory.items()
        for path in ([directory] if len(of_one) > _MAX_OF_ONE else of_one)
    ]
