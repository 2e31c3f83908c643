"""The build of a Hub: released archives in a folder that any file server can serve.

    SITE/OWNER/…/NAME/versions.json            ["1.0.0", "1.1.0"]
    SITE/OWNER/…/NAME/1.1.0/aileron.tar.gz     beside it manifest.toml or action.md, for readers without the archive
    SITE/OWNER/REPOSITORY/keys/publisher.pub   keys/former/*.pub: earlier signing keys
    SITE/index.json

Used by `aileron hub build` on the machine of the Hub's operator.

Rules
- All problems are detected before anything is written. If there is a problem, nothing is written.
- A file that already has the right content is not written again.
- The same input gives the same bytes, whatever the time or the order of the files.
- Each file appears complete, and index.json is written last, so it never lists a file that is missing.

Source: docs/reference/hub.md. Not here: what may be published (hub_content.py), the index (hub_index.py), fetching
(forges/hub.py).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from aileron import files
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.names import precedence
from aileron.registry.artifact import ParseAction
from aileron.registry.forges.forge import ARCHIVE
from aileron.registry.hub_content import (
    FORMER,
    KEY_FILE,
    KEY_FOLDER,
    VERSIONS,
    FoundArchive,
    HubReading,
    Wrong,
    bytes_of,
)
from aileron.registry.hub_index import INDEX
from aileron.registry.tarball import ACTION, MANIFEST

__all__ = ["Done", "build_site"]

_FILE_MODE: Final = 0o644
_FOLDER_MODE: Final = 0o755
"""Permissions of folders and files that a file server of another user can read."""


class Done(NamedTuple):
    """Result of a build: the number of artifacts and versions on the Hub, of new versions, and of written files."""

    artifacts: int
    versions: int
    new_versions: int
    written: int


def build_site(directory: Path, site: Path, parse: ParseAction) -> Done:
    """Add the archives and keys in `directory` to the existing content of `site`; create `site` if it is missing.

    Raises AileronError(invalid_request) with all problems as `details["problems"]` (`file`, `reason`), (not_found) if
    `directory` does not exist, (busy) while another build is running.
    """
    if not directory.is_dir():
        raise AileronError(FailureClass.NOT_FOUND, f"no such directory: {directory}", boundary=Boundary.USER)
    if directory.resolve() != site.resolve() and directory.resolve().is_relative_to(site.resolve()):
        problem = f"{directory} is inside {site}, where everything is served: keep the sources elsewhere"
        raise AileronError(FailureClass.INVALID_REQUEST, problem, boundary=Boundary.USER)
    with contextlib.ExitStack() as stack:
        held = stack.enter_context(_held(site)) if site.exists() else None
        reading = HubReading(directory, site, parse)
        reading.read()
        index = reading.index()
        if reading.wrong:
            raise _refused(sorted(set(reading.wrong)))
        if held is None:
            _make(site)
            held = stack.enter_context(_held(site))
            if os.listdir(held):  # another build created and filled it since the check
                raise _busy(site)
        return _write(reading, index, held)


def _refused(wrong: Sequence[Wrong]) -> AileronError:
    count = "1 problem" if len(wrong) == 1 else f"{len(wrong)} problems"
    return AileronError(
        FailureClass.INVALID_REQUEST,
        f"{count} found; nothing was written",
        boundary=Boundary.USER,
        details={"problems": [{"file": problem.file, "reason": problem.reason} for problem in wrong]},
    )


# Writing


def _make(site: Path) -> None:
    with files.translated(site, "cannot be created"):
        site.mkdir(parents=True, exist_ok=True)
        site.chmod(_FOLDER_MODE)


@contextlib.contextmanager
def _held(site: Path) -> Iterator[int]:
    """Open the site and lock it against other builds; yield its descriptor.

    The lock is on the folder itself, so no lock file remains.
    """
    with files.translated(site, "cannot be opened"):
        descriptor = os.open(site, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _busy(site) from None
        yield descriptor
    finally:
        os.close(descriptor)


def _busy(site: Path) -> AileronError:
    problem = f"another process is building {site}: try again when it has finished"
    return AileronError(FailureClass.BUSY, problem, retriable=True)


def _write(reading: HubReading, index: bytes, site: int) -> Done:
    """Write each file of the Hub that `site` lacks or that differs there, the index last, and return the counts."""
    written = sum(_put(site, place, data) for place, data in _contents(reading))
    written += _put(site, (INDEX,), index)
    names = {found.wanted.name for found in reading.found.values()}
    new = sum(found.is_new for found in reading.found.values())
    return Done(artifacts=len(names), versions=len(reading.found), new_versions=new, written=written)


def _contents(reading: HubReading) -> Iterator[tuple[tuple[str, ...], bytes]]:
    """Yield path and content of each file of the Hub except the index, in the order in which the files must be written."""
    for whose, keys in reading.keys.items():
        yield (*whose.path, KEY_FOLDER, KEY_FILE), keys.current.to_pem().encode()
        for key in keys.former:
            yield (*whose.path, KEY_FOLDER, FORMER, f"{hashlib.sha256(key.raw).hexdigest()}.pub"), key.to_pem().encode()
    versions: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for wanted, found in reading.found.items():
        place = (*wanted.name.path, wanted.version)
        versions[wanted.name.path].append(wanted.version)
        if found.is_new:
            yield (*place, ARCHIVE), _unchanged(found)
        yield (*place, MANIFEST if found.kind == "connector" else ACTION), found.document
    for path, listed in versions.items():
        yield (*path, VERSIONS), json.dumps(sorted(listed, key=precedence)).encode() + b"\n"


def _unchanged(found: FoundArchive) -> bytes:
    """Read a checked archive again, since all archives together can exceed the memory. Raises AileronError if it changed."""
    archive = bytes_of(found.file)
    if hashlib.sha256(archive).hexdigest() != found.sha256:
        problem = f"{found.file} changed during the build: build again"
        raise AileronError(FailureClass.INVALID_REQUEST, problem, boundary=Boundary.USER)
    return archive


def _put(site: int, place: tuple[str, ...], data: bytes) -> bool:
    """Write `data` to the path `place` below `site`. Return False if the file already has this content.

    Raises AileronError on failure.
    """
    path = Path(*place)
    with files.translated(path, "cannot be written"), _folder(site, place[:-1]) as folder:
        try:
            if files.read(folder, path, len(data)) == data:
                return False
        except (FileNotFoundError, AileronError):
            pass  # absent, larger or no file: replace it, or raise why that fails
        files.replace(folder, path, data, _FILE_MODE)
    return True


@contextlib.contextmanager
def _folder(site: int, parts: tuple[str, ...]) -> Iterator[int]:
    """Open a folder of the site, create it and its parents if needed, and yield its descriptor.

    Each path component is opened relative to its parent's descriptor and without following links, so the folder is in the site.
    """
    with contextlib.ExitStack() as stack:
        here = site
        for part in parts:
            is_made = False
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, _FOLDER_MODE, dir_fd=here)
                is_made = True
            here = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            stack.callback(os.close, here)
            if is_made:
                os.fchmod(here, _FOLDER_MODE)
        yield here
