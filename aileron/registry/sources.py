"""Selection of the files in a connector's source directory that become its program; each omitted file has a reason.

Reads the directory and runs nothing of it. A package, laid out as by `pip install --target`, is included with its modules, its
data files, and the metadata that `importlib.metadata` reads. Files that cannot work from a zip in the jail, and files outside
packages, are omitted. Omitted files are listed by name, because the error for a missing module does not say why it is missing.

Rules
- Only a package (a folder with `__init__.py`, and what is below one) has data files. Other files beside the connector, such as
  a key or a note, are not published, nor are files whose name begins with a dot.
- A link is refused, because it could lead to another directory.

Source: docs/reference/connector-manifest.md; PyPA specifications, "Recording installed projects" (`.dist-info`). Not here: the
zip (connector_build.py).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from aileron import files
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.registry.program import MAX_ENTRIES
from aileron.registry.tarball import CONNECTOR, MANIFEST, MAX_BYTES

__all__ = ["LeftOut", "Sources", "collected"]

_BESIDE: Final = frozenset({"actions", "tests"})
"""Names of top-level folders that are left out of the program. Deeper folders with these names are not special."""
_CACHE: Final = "__pycache__"
_COMPILED: Final = (".so", ".pyd", ".dll", ".dylib", ".a", ".o", ".pyc", ".pyo")
_METADATA: Final = frozenset({"METADATA", "entry_points.txt", "top_level.txt"})
"""Files that `importlib.metadata` reads. Other metadata is omitted: it says how the package was installed on this machine."""
_LICENCES: Final = ("LICENSE", "LICENCE", "COPYING", "NOTICE", "AUTHORS")
_MAX_NAMED: Final = 1000
"""Maximum number of omitted files that are named; the rest are counted.

An unrelated folder in a repository can have thousands.
"""

_NOT_THE_PROGRAM: Final = "not part of the program"
_HIDDEN: Final = "starts with a dot"
_IS_COMPILED: Final = (
    "compiled: a zip loads Python source only; take a version in pure Python, or make the connector a compiled program"
)
_HOW_INSTALLED: Final = "describes how a package was installed here"
_IN_NO_PACKAGE: Final = "not in a package: put data files below a folder with an __init__.py"
_ONE_FILE: Final = "a compiled program is one file"


class LeftOut(msgspec.Struct, frozen=True):
    """An omitted file or folder (with a slash at its end), and the reason."""

    path: str
    reason: str


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a connector's directory: `found` are the included ones by relative path, with the manifest; `left_out` are
    the omitted ones.
    """

    found: dict[str, bytes]
    left_out: tuple[LeftOut, ...]
    unnamed: int = 0
    """Number of omitted files and folders that are not in `left_out`."""


class _Folder(NamedTuple):
    """A folder of the sources: relative path, file names and open descriptor.

    `is_package` is true if it or a parent below the top folder has an `__init__.py`.
    """

    here: Path
    names: list[str]
    descriptor: int
    is_package: bool


def collected(directory: Path) -> Sources:
    """Return the sources in `directory`. Raises AileronError(invalid_request) for links, special files, or too much data."""
    if not directory.is_dir():
        raise _refused(directory, "not a directory")
    found: dict[str, bytes] = {}
    left_out: list[LeftOut] = []
    room = MAX_BYTES[CONNECTOR]
    for folder in _walked(directory, left_out):
        for name in sorted(folder.names):
            path = folder.here / name
            reason = _reason(path, is_package=folder.is_package)
            if reason is not None:
                left_out.append(LeftOut(path.as_posix(), reason))
                continue
            data = files.read(folder.descriptor, directory / path, room)
            found[path.as_posix()] = data
            room -= len(data)
            if len(found) > MAX_ENTRIES:
                raise _refused(directory, f"more than {MAX_ENTRIES} files")
    if CONNECTOR in found:
        left_out += [LeftOut(path, _ONE_FILE) for path in sorted(found) if path not in (CONNECTOR, MANIFEST)]
    left_out.sort(key=lambda entry: entry.path)
    return Sources(found=found, left_out=tuple(left_out[:_MAX_NAMED]), unnamed=max(len(left_out) - _MAX_NAMED, 0))


def _walked(directory: Path, left_out: list[LeftOut]) -> Iterator[_Folder]:
    packages: set[Path] = set()
    for top, directories, names, descriptor in os.fwalk(directory):
        here = Path(top).relative_to(directory)
        is_package = bool(here.parts) and ("__init__.py" in names or here.parent in packages)
        if is_package:
            packages.add(here)
        for name in directories:
            reason = _HIDDEN if name[0] == "." else _NOT_THE_PROGRAM if not here.parts and name in _BESIDE else None
            if reason is not None:
                left_out.append(LeftOut(f"{(here / name).as_posix()}/", reason))
        directories[:] = [name for name in directories if name != _CACHE and name[0] != "."]
        if not here.parts:
            directories[:] = [name for name in directories if name not in _BESIDE]
        for name in directories:
            if stat.S_ISLNK(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
                raise _refused(directory / here / name, "a symbolic link; use the files themselves")
        yield _Folder(here, names, descriptor, is_package)


def _reason(path: Path, *, is_package: bool) -> str | None:
    """Return the reason why a file is omitted from the program; None if it is included. `is_package`: its folder is a
    Python package.
    """
    name, top = path.name, path.parts[0]
    if name[0] == ".":
        return _HIDDEN
    if name.endswith(".py") or (len(path.parts) == 1 and name in (CONNECTOR, MANIFEST)):
        return None
    if name.endswith(_COMPILED) or ".so." in name:
        return _IS_COMPILED
    if len(path.parts) > 1 and top.endswith(".dist-info"):
        is_wanted = name in _METADATA or name.startswith(_LICENCES) or path.parts[1] == "licenses"
        return None if is_wanted else _HOW_INSTALLED
    return None if is_package else _IN_NO_PACKAGE


def _refused(path: Path, problem: str) -> AileronError:
    return AileronError(FailureClass.INVALID_REQUEST, f"{path}: {problem}", boundary=Boundary.CONNECTOR_MANIFEST)
