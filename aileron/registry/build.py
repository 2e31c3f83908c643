"""A connector's source directory into `aileron.tar.gz`.

A Python connector becomes a zip with a `__main__.py`; a compiled one brings its own file `connector`. The
same sources give the same bytes on any machine: no clock, umask, owner, file order or compression library has
a say in what is hashed. Reads the directory and runs nothing of it. Used by `aileron connector build` and by
an install from a directory.

What goes in: every `.py` file, except under `actions/`, `tests/`, `__pycache__/` and in what starts with a
dot. `connector.py` becomes the `__main__.py` of a directory that has none.

Source: docs/reference/connector-manifest.md; PKWARE APPNOTE 6.3 for the zip. Not here: signing.
"""

from __future__ import annotations

import io
import os
import re
import stat
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from aileron import files
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.names import HostPort
from aileron.registry.manifest import UNBOUND_HOSTS, parse_connector_manifest
from aileron.registry.program import check_program
from aileron.registry.tarball import CONNECTOR, MANIFEST, MAX_BYTES, pack

__all__ = ["Built", "build"]

_LEFT_OUT: Final = frozenset({"actions", "tests", "__pycache__"})
_MAX_FILES: Final = 4096
"""Python files of one connector, vendored packages included; the largest SDKs have about 2,000."""
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest time a zip can say."""
_UNIX: Final = 3
"""What the zip says it was made on, so that it does not say where it really was."""
_MAIN: Final = "__main__.py"
_CONNECTOR_PY: Final = "connector.py"


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact and its parts: the pin covers `connector` followed by `manifest`."""

    connector: bytes
    manifest: bytes
    archive: bytes


def build(directory: Path, hosts: Sequence[HostPort] = ()) -> Built:
    """Build what is in `directory`; `hosts` replace `hosts = ["bound-at-build"]` in the built manifest.

    AileronError(invalid_request) for a manifest that does not parse, no program, links, or too much.
    """
    found = _collected(directory)
    if MANIFEST not in found:
        raise _refused(directory, f"there is no {MANIFEST}")
    manifest = _bound(found.pop(MANIFEST), directory / MANIFEST, hosts)
    program = _program(found, directory)
    return Built(connector=program, manifest=manifest, archive=pack({CONNECTOR: program, MANIFEST: manifest}))


def _collected(directory: Path) -> dict[str, bytes]:
    """What goes in by relative path, with the manifest. Links are refused: they would bring in another
    directory.
    """
    if not directory.is_dir():
        raise _refused(directory, "not a directory")
    found: dict[str, bytes] = {}
    room = MAX_BYTES[CONNECTOR]
    for top, directories, names, descriptor in os.fwalk(directory):
        here = Path(top).relative_to(directory)
        directories[:] = [name for name in directories if name not in _LEFT_OUT and name[0] != "."]
        for name in directories:
            if stat.S_ISLNK(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
                raise _refused(directory / here / name, "a symbolic link; put the files themselves there")
        for name in names:
            if _is_wanted(name, is_top=not here.parts):
                data = files.read(descriptor, directory / here / name, room)
                found[(here / name).as_posix()] = data
                room -= len(data)
        if len(found) > _MAX_FILES:
            raise _refused(directory, f"more than {_MAX_FILES} files")
    return found


def _is_wanted(name: str, *, is_top: bool) -> bool:
    return (name.endswith(".py") and name[0] != ".") or (is_top and name in {CONNECTOR, MANIFEST})


def _program(found: dict[str, bytes], directory: Path) -> bytes:
    entries = [name for name in (CONNECTOR, _MAIN, _CONNECTOR_PY) if name in found]
    if not entries:
        raise _refused(directory, f"there is no {_MAIN}, {_CONNECTOR_PY} or compiled {CONNECTOR}")
    if CONNECTOR in entries and len(entries) > 1:
        raise _refused(directory, f"{' and '.join(entries)}: which is the program? Remove one")
    if _MAIN not in entries and _CONNECTOR_PY in entries:
        found[_MAIN] = found.pop(_CONNECTOR_PY)
    program = found[CONNECTOR] if CONNECTOR in entries else _zipped(found)
    try:
        check_program(program)
    except ValueError as error:
        raise _refused(directory, str(error)) from None
    return program


def _zipped(sources: dict[str, bytes]) -> bytes:
    """Stored, not deflated: imports are faster, and the bytes do not depend on a compression library."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for name, data in sorted(sources.items()):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.create_system = _UNIX
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(info, data)
    return packed.getvalue()


def _bound(data: bytes, path: Path, hosts: Sequence[HostPort]) -> bytes:
    """The manifest with its placeholder replaced and nothing else; checked as an install would."""
    if hosts:
        pieces = re.split(rb"""["']bound-at-build["']""", data)
        if len(pieces) != 2:
            problem = f'{len(pieces) - 1} places say "{UNBOUND_HOSTS}"; --host binds exactly one'
            raise _refused(path, problem)
        data = b", ".join(f'"{host}"'.encode() for host in hosts).join(pieces)
    manifest = parse_connector_manifest(data, file=str(path))
    if hosts and manifest.hosts != tuple(hosts):
        raise _refused(path, f'"{UNBOUND_HOSTS}" is not what [capabilities.network] hosts is')
    return data


def _refused(path: Path, problem: str) -> AileronError:
    return AileronError(FailureClass.INVALID_REQUEST, f"{path}: {problem}", boundary=Boundary.CONNECTOR_MANIFEST)
