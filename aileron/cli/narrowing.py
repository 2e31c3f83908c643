"""Finds files and directories in the home that other users can use or write, and removes that permission. `aileron doctor --fix`
changes nothing else by itself.

Runs in commands, and trusts nothing that it finds: an agent with a shell may replace a part of the home by a link or by another
hard link to a file, even between the check and the change.

Rules
- A path is walked from the home down, name by name, without following a link. The check and the change use the same open
  descriptor, never a path a second time.
- Only this user's own directories and files are changed, and a file only if it has no second name (hard link). Everything
  else is left as it is, and reported.
- Permission bits are only removed, never added.

Source: path_resolution(7), open(2) O_PATH, proc_pid_fd(5). Not here: asking (commands/doctor.py), refusing such files (files.py,
and the code that reads them).
"""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple

from aileron.files import OTHERS_MAY_USE, OTHERS_MAY_WRITE
from aileron.home import Home

__all__ = ["LoosePermission", "Narrow", "NotNarrowed", "narrow", "wide"]


class NotNarrowed(Exception):
    """Exception for a file or directory whose permissions were not changed; the message says why."""


class LoosePermission(NamedTuple):
    """A file or directory of the home, and the permission bits that it must not have."""

    path: Path
    kind: Literal["directory", "file"]
    forbidden: int


class Narrow(NamedTuple):
    """A fix that removes forbidden permission bits.

    `mode` is the mode at the time of the check; `narrow` uses the current mode.
    """

    home: Path
    kept: LoosePermission
    mode: int

    @property
    def command(self) -> str:
        """The fix as a command that a person can type."""
        return f"chmod {self.mode & ~self.kept.forbidden:o} {shlex.quote(str(self.kept.path))}"


def wide(home: Path) -> Iterator[Narrow | tuple[Path, str]]:
    """Yield a fix for each path in the home that is too open, the home itself first.

    For a path that cannot be checked or fixed, yield the path and the reason.
    """
    for kept in _kept(Home(home)):
        try:
            with _opened(home, kept) as descriptor:
                mode = _mode_of(descriptor, kept)
        except FileNotFoundError:
            continue
        except (OSError, NotNarrowed) as error:
            yield kept.path, _words(error)
            continue
        if mode & kept.forbidden:
            yield Narrow(home, kept, mode)


def narrow(repair: Narrow) -> None:
    """Apply a fix: remove the forbidden permission bits of its file or directory.

    Raises NotNarrowed with the reason, without a change, if the path is not this user's own or cannot be changed.
    """
    try:
        with _opened(repair.home, repair.kept) as descriptor:
            mode = _mode_of(descriptor, repair.kept)
            # The open thing, whatever its name means by now: fchmod(2) refuses O_PATH, but the link in /proc leads to it.
            os.chmod(f"/proc/self/fd/{descriptor}", mode & ~repair.kept.forbidden)
    except OSError as error:
        raise NotNarrowed(_words(error)) from None


def _kept(home: Home) -> tuple[LoosePermission, ...]:
    """Return the paths that the daemon and commands refuse to read if other users can use or write them."""
    used: Final = OTHERS_MAY_USE
    written: Final = OTHERS_MAY_WRITE
    return (
        LoosePermission(home.path, "directory", used),
        LoosePermission(home.run, "directory", used),
        LoosePermission(home.logs, "directory", used),
        LoosePermission(home.ledger, "file", used),
        LoosePermission(home.vault, "file", used),
        LoosePermission(home.approver_key, "file", used),
        LoosePermission(home.path / "keyring.json", "file", written),
        LoosePermission(home.actions, "directory", written),
        LoosePermission(home.agreed, "directory", written),
        LoosePermission(home.connectors.parent, "directory", written),
        LoosePermission(home.connectors, "directory", written),
        LoosePermission(home.fetched, "directory", written),
        LoosePermission(home.published, "directory", written),
    )


@contextlib.contextmanager
def _opened(home: Path, kept: LoosePermission) -> Iterator[int]:
    """Yield an O_PATH descriptor of the file or directory in `kept`. Opening it has no side effect, whatever its kind
    is.

    Raises OSError if it cannot be opened, and NotNarrowed for a link on the way to it.
    """
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(home, flags)
    try:
        for name in kept.path.relative_to(home).parts:
            _check_directory(descriptor, "its directory")
            below = os.open(name, flags, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def _check_directory(descriptor: int, what: str) -> None:
    if stat.S_ISLNK(os.fstat(descriptor).st_mode):  # O_PATH and O_NOFOLLOW open the link itself, open(2)
        raise NotNarrowed(f"{what} is a symbolic link; replace it with the real file or directory")


def _mode_of(descriptor: int, kept: LoosePermission) -> int:
    found = os.fstat(descriptor)
    _check_directory(descriptor, "it")
    is_kind = stat.S_ISDIR if kept.kind == "directory" else stat.S_ISREG
    if not is_kind(found.st_mode):
        raise NotNarrowed(f"it is not a {'directory' if kept.kind == 'directory' else 'regular file'}")
    if found.st_uid != os.geteuid():
        raise NotNarrowed(f"it belongs to uid {found.st_uid}")
    if kept.kind == "file" and found.st_nlink != 1:
        raise NotNarrowed("it has other hard links, which may belong somewhere else")
    return stat.S_IMODE(found.st_mode)


def _words(error: OSError | NotNarrowed) -> str:
    return str(error) if isinstance(error, NotNarrowed) else f"{error.strerror}"
