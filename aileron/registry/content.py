"""The store of installed connectors, by the hash of their bytes.

    ROOT/sha256/<hex>/connector        the program
                      manifest.toml    the capabilities that it asks for
                      meta.json        sizes of both files in bytes
    ROOT/tmp/<random>/                 an install under way

Runs in the daemon. Trusts no stored file, because another program can have changed it. So the bytes that will run are read
once, hashed, and passed on in a sealed memory file, which nobody can change.

Rules
- A pin is sha256 over the connector's bytes followed by the manifest's. The same pin with the bytes split at another place is
  not the same connector: hash_mismatch.
- An entry appears by one rename of a complete, flushed directory. After a crash, the entry is complete or absent. Two
  installs of the same bytes at once both succeed. An entry whose bytes have changed is replaced by the next install.
- Verified manifests and the bytes of small programs are cached while their files are untouched. Touched files are read and
  hashed again, so a changed file is refused. Each jail gets a memory file of its own, because two jails could signal to each
  other through the locks and times of a shared one.

Source: memfd_create(2), fcntl(2) F_ADD_SEALS, rename(2). Not here: archives (tarball.py), whether a person
consented.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import re
import threading
import time
from collections import OrderedDict
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

import msgspec

from aileron import files
from aileron.model.canonical import sha256_digest
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.manifest import ConnectorManifest
from aileron.model.names import Fqn, check_pin
from aileron.model.plan import ConnectorPin
from aileron.model.sha256 import sha256
from aileron.registry.manifest import parse_connector_manifest
from aileron.registry.program import ProgramKind, check_program, program_kind
from aileron.registry.tarball import CONNECTOR, MANIFEST, MAX_BYTES

__all__ = ["ContentStore", "Installed", "Opened", "Stamp", "content_hash", "sealed"]

_META: Final = "meta.json"
_MAX_META_BYTES: Final = 1024
_HEX: Final = re.compile(r"[0-9a-f]{64}")
_STALE_S: Final = 3600.0
"""Seconds after which the directory of an unfinished install is taken for the leftover of a crash; a real install takes well
under a minute.
"""
_MAX_REMEMBERED: Final = 512
"""Maximum number of cached manifests; a few KiB each."""
_KEPT_PROGRAM_BYTES: Final = 256 << 10
"""Maximum size in bytes of a cached program: sealing a copy takes 0.1 ms, short enough for the event loop."""
_MAX_KEPT: Final = 32
"""Maximum number of cached programs: 8 MiB in all."""

# linux/memfd.h; Python 3.11 does not name them. Since Linux 6.3, before which memfd_create answers EINVAL.
_MFD_NOEXEC_SEAL: Final = 0x0008
_MFD_EXEC: Final = 0x0010
_SEALS: Final = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


def content_hash(connector: bytes, manifest: bytes) -> str:
    """Return the hash of a pin: `sha256:…` over the connector followed by its manifest."""
    return f"sha256:{sha256(connector, manifest).hex()}"


def _remove(directory: Path) -> None:
    """Remove a directory and its contents; errors are ignored."""
    import shutil  # with bz2, lzma and zlib

    shutil.rmtree(directory, ignore_errors=True)


Stamp = tuple[files.Stamp, ...]
"""A value for the state of an entry's files: it changes whenever one of the files is written to or replaced."""


class Opened:
    """A verified connector, ready to run. Close it, or use it as a context manager.

    `program_fd` is a sealed memory file with exactly the bytes that were hashed, at offset 0, close-on-exec.
    """

    def __init__(self, program_fd: int, found: _Entry, stamp: Stamp | None) -> None:
        self.program_fd: Final = program_fd
        self.kind: Final = found.kind
        self.manifest: Final = found.manifest
        self.manifest_bytes: Final = found.manifest_bytes
        self.stamp: Final = stamp
        self._is_open = True

    def close(self) -> None:
        """Close the descriptor of the sealed program; later calls do nothing."""
        if self._is_open:
            self._is_open = False
            os.close(self.program_fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the store. It has either `pin` and `manifest`, or a `problem` that `aileron connector install` fixes."""

    hash: str
    pin: ConnectorPin | None = None
    manifest: ConnectorManifest | None = None
    problem: str | None = None


class _Meta(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    connector_bytes: int
    manifest_bytes: int


class _Entry(NamedTuple):
    """The content of a store entry, read and verified. Its hash is the name of the entry's directory."""

    connector: bytes
    manifest_bytes: bytes
    manifest: ConnectorManifest
    kind: ProgramKind


class _Known(NamedTuple):
    """The manifest and program kind of an entry that was verified, and the stamp of its files at that time."""

    stamp: Stamp
    manifest: ConnectorManifest
    kind: ProgramKind


class ContentStore:
    """The store of connectors below the directory `root`, which need not exist yet."""

    def __init__(self, root: Path) -> None:
        self._entries: Final = root / "sha256"
        self._staging: Final = root / "tmp"
        self._verified: Final[dict[str, _Known]] = {}
        self._keeping: Final = threading.Lock()
        self._kept: Final[OrderedDict[str, tuple[Stamp, _Entry]]] = OrderedDict()
        """Cached small programs by hash, the most recently opened last; guarded by the lock `_keeping`."""

    def put(self, connector: bytes, manifest: bytes) -> ConnectorPin:
        """Store a connector whose manifest passed `parse_connector_manifest`. The entry is durable on return.

        Raises AileronError(invalid_request) if it is not a connector, (hash_mismatch) if its bytes are stored with
        a different boundary between program and manifest.
        """
        parsed = _checked(connector, manifest)
        pin = ConnectorPin(str(parsed.name), parsed.version, content_hash(connector, manifest))
        entry = self._path(pin.hash)
        if not self._has(entry, manifest):
            files.make_directory(self._entries)
            files.make_directory(self._staging)
            with files.translated(entry, "cannot be stored"):
                self._sweep()
                staged = self._staging / os.urandom(8).hex()
                try:
                    _stage(staged, connector, manifest)
                    self._publish(staged, entry, manifest)
                finally:
                    _remove(staged)
        return pin

    def open(self, pin: ConnectorPin) -> Opened:
        """Read, hash and seal the connector of `pin`. Exactly the hashed bytes run.

        Raises AileronError(not_found) if it is not installed, (hash_mismatch) if its bytes are not those of the
        pin.
        """
        stamp = self.stamp(pin)
        found = self._pinned(pin)
        if stamp is not None:
            self._remember(pin.hash, stamp, found)
            self._keep(pin.hash, stamp, found)
        return Opened(sealed(found.connector, found.kind, str(pin)), found, stamp)

    def open_kept(self, pin: ConnectorPin) -> Opened | None:
        """Open a cached small program if its files are untouched since it was last opened; None for all other programs.

        Reads no file. Raises AileronError(sandbox_unavailable) if the kernel gives no memory.
        """
        with self._keeping:
            stamp, found = self._kept.get(pin.hash, (None, None))
        if found is None or stamp != self.stamp(pin):
            return None
        _named(found.manifest, pin)
        with self._keeping, contextlib.suppress(KeyError):
            self._kept.move_to_end(pin.hash)
        return Opened(sealed(found.connector, found.kind, str(pin)), found, stamp)

    def stamp(self, pin: ConnectorPin) -> Stamp | None:
        """Return a stamp that changes whenever the files of `pin` are touched; None if they are missing."""
        return _stamp(self._path(pin.hash))

    def manifest(self, pin: ConnectorPin) -> ConnectorManifest:
        """Return the verified manifest of `pin`, for resolving. Raises the same errors as `open`."""
        known = self._known(pin)
        if known is not None:
            return _named(known.manifest, pin)
        stamp = self.stamp(pin)
        found = self._pinned(pin)
        if stamp is not None:
            self._remember(pin.hash, stamp, found)
        return found.manifest

    def maybe_manifest(self, pin: ConnectorPin) -> ConnectorManifest | None:
        """Return the verified manifest of `pin`; None if the connector is missing or damaged.

        A run of the connector reports the reason.
        """
        try:
            return self.manifest(pin)
        except AileronError:
            return None

    def known_kind(self, pin: ConnectorPin) -> ProgramKind | None:
        """Return the program kind of `pin`; None unless it was verified before and its files are untouched since.

        Reads no file. Only a hint: `open` determines the kind for a run.
        """
        known = self._known(pin)
        return None if known is None else known.kind

    def at_hand(self, pin: ConnectorPin) -> ConnectorManifest | None:
        """Return the manifest of `pin`; None unless it was verified before and its files are untouched since. Reads no file."""
        known = self._known(pin)
        return None if known is None else known.manifest

    def _known(self, pin: ConnectorPin) -> _Known | None:
        known = self._verified.get(pin.hash)
        return known if known is not None and known.stamp == _stamp(self._path(pin.hash)) else None

    def list_connectors(self) -> tuple[Installed, ...]:
        """Return every entry, sorted by name, version and hash; broken ones last, with their problem."""
        try:
            names = sorted(name for name in os.listdir(self._entries) if _HEX.fullmatch(name))
        except FileNotFoundError:
            return ()
        listed = [self._listed(f"sha256:{name}") for name in names]
        return tuple(sorted(listed, key=lambda entry: (entry.pin is None, str(entry.pin), entry.hash)))

    def verify(self) -> tuple[Installed, ...]:
        """Return every entry, as `list_connectors` does, but read and hash every byte again, even if verified before."""
        self._verified.clear()
        with self._keeping:
            self._kept.clear()
        return self.list_connectors()

    def find(self, name: Fqn, version: str) -> tuple[ConnectorPin, ...]:
        """Return the intact entries of exactly this name and version: none, a single one, or several with different bytes."""
        pins = (entry.pin for entry in self.list_connectors())
        return tuple(pin for pin in pins if pin is not None and (pin.name, pin.version) == (str(name), version))

    def remove(self, pin: ConnectorPin) -> None:
        """Delete the entry of `pin`. Raises AileronError(not_found) if it is missing."""
        files.make_directory(self._staging)
        aside = self._staging / os.urandom(8).hex()
        try:
            with files.translated(self._path(pin.hash), "cannot be removed"):
                os.rename(self._path(pin.hash), aside)
        except FileNotFoundError:
            raise _not_installed(pin) from None
        _remove(aside)

    def _path(self, pin_hash: str) -> Path:
        try:
            return self._entries / check_pin(pin_hash).removeprefix("sha256:")
        except ValueError as error:
            raise _refused(f"{error}") from None

    def _pinned(self, pin: ConnectorPin) -> _Entry:
        try:
            found = _read(self._path(pin.hash), str(pin))
        except FileNotFoundError:
            raise self._absent(pin) from None
        _named(found.manifest, pin)
        return found

    def _absent(self, pin: ConnectorPin) -> AileronError:
        """Return the error that no connector with this pin is installed.

        If the version is installed with other bytes, the error is hash_mismatch: this reveals a moved tag or a tampered
        pin.
        """
        others = [found.hash for found in self.find(Fqn.parse(pin.name), pin.version)]
        return _mismatch(str(pin), pin.hash, ", ".join(others)) if others else _not_installed(pin)

    def _listed(self, pin_hash: str) -> Installed:
        path = self._path(pin_hash)
        stamp = _stamp(path)
        known = self._verified.get(pin_hash)
        try:
            manifest = known.manifest if known and known.stamp == stamp else self._verify(path, pin_hash, stamp)
        except AileronError as error:
            return Installed(hash=pin_hash, problem=error.failure.message)
        except FileNotFoundError:
            return Installed(hash=pin_hash, problem="incomplete")
        return Installed(
            hash=pin_hash, pin=ConnectorPin(str(manifest.name), manifest.version, pin_hash), manifest=manifest
        )

    def _verify(self, path: Path, pin_hash: str, stamp: Stamp | None) -> ConnectorManifest:
        found = _read(path, path.name)
        if stamp is not None:
            self._remember(pin_hash, stamp, found)
        return found.manifest

    def _remember(self, pin_hash: str, stamp: Stamp, entry: _Entry) -> None:
        if len(self._verified) >= _MAX_REMEMBERED:
            self._verified.clear()
        self._verified[pin_hash] = _Known(stamp, entry.manifest, entry.kind)

    def _keep(self, pin_hash: str, stamp: Stamp, entry: _Entry) -> None:
        if len(entry.connector) > _KEPT_PROGRAM_BYTES:
            return
        with self._keeping:
            self._kept[pin_hash] = stamp, entry
            self._kept.move_to_end(pin_hash)
            if len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)

    def _has(self, entry: Path, manifest: bytes) -> bool:
        """Return whether the store has `entry`, a directory, intact and with this manifest.

        Raises AileronError(hash_mismatch) if the entry has the same bytes, but another boundary between program and manifest.
        """
        try:
            found = _read(entry, entry.name)
        except (AileronError, FileNotFoundError):
            return False  # missing, or damaged and to be replaced
        if found.manifest_bytes != manifest:
            problem = (
                f"the content of sha256:{entry.name} is already stored with a different split of program and manifest"
            )
            raise AileronError(FailureClass.HASH_MISMATCH, problem, boundary=Boundary.CONNECTOR_MANIFEST)
        return True

    def _publish(self, staged: Path, entry: Path, manifest: bytes) -> None:
        """Publish a staged entry with one rename. The rename fails if the entry exists (rename(2): a non-empty directory
        is not replaced). In that case, either

        1. another install of the same bytes was faster: its entry is identical to ours; or
        2. the entry was damaged: it is moved away, and ours takes its place. Between these two renames the connector is
           missing, which is no worse than damaged.
        """
        if not _is_renamed(staged, entry) and not self._has(entry, manifest):
            os.rename(entry, self._staging / os.urandom(8).hex())
            _is_renamed(staged, entry)
        with files.open_directory(self._entries, files.OTHERS_MAY_WRITE) as directory:
            os.fsync(directory)

    def _sweep(self) -> None:
        """Remove leftovers of crashed installs, so that they do not fill the disk."""
        oldest = time.time() - _STALE_S
        for left in self._staging.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if left.lstat().st_mtime < oldest:
                    _remove(left)


def _stage(staged: Path, connector: bytes, manifest: bytes) -> None:
    """Write a complete entry to `staged`, a directory where no reader looks for entries, and flush it to disk."""
    staged.mkdir(mode=0o700)
    meta = msgspec.json.encode(_Meta(connector_bytes=len(connector), manifest_bytes=len(manifest)))
    with files.open_directory(staged, files.OTHERS_MAY_WRITE) as directory:
        for name, data in ((CONNECTOR, connector), (MANIFEST, manifest), (_META, meta)):
            files.create(directory, name, data, 0o400)
        os.fsync(directory)


def _is_renamed(staged: Path, entry: Path) -> bool:
    """Rename a directory to a free path. Return False if the path is taken."""
    try:
        os.rename(staged, entry)
    except OSError as error:
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
            return False
        raise
    return True


def _checked(connector: bytes, manifest: bytes) -> ConnectorManifest:
    for name, data in ((CONNECTOR, connector), (MANIFEST, manifest)):
        if len(data) > MAX_BYTES[name]:
            raise _refused(f"{name} has {len(data)} bytes; at most {MAX_BYTES[name]}")
    parsed = _parsed(manifest)
    try:
        check_program(connector)
    except ValueError as error:
        raise _refused(f"{parsed.name}@{parsed.version}: {error}") from None
    _check_provenance(parsed, connector)
    return parsed


def _read(path: Path, subject: str) -> _Entry:
    """Return the entry at `path`, whose bytes hash to its name. Raises FileNotFoundError if it is missing or incomplete."""
    with files.open_directory(path, files.OTHERS_MAY_WRITE) as directory:
        meta_bytes = files.read(directory, path / _META, _MAX_META_BYTES)
        manifest_bytes = files.read(directory, path / MANIFEST, MAX_BYTES[MANIFEST])
        connector = files.read(directory, path / CONNECTOR, MAX_BYTES[CONNECTOR])
    expected, actual = f"sha256:{path.name}", content_hash(connector, manifest_bytes)
    if actual != expected:
        raise _mismatch(subject, expected, actual)
    if _meta(meta_bytes) != _Meta(connector_bytes=len(connector), manifest_bytes=len(manifest_bytes)):
        raise _mismatch(subject, expected, "the same bytes, split elsewhere")
    try:
        kind = program_kind(connector)
    except ValueError as error:
        raise _mismatch(subject, expected, str(error)) from None
    manifest = _parsed(manifest_bytes)
    _check_provenance(manifest, connector)
    return _Entry(connector, manifest_bytes, manifest, kind)


@functools.lru_cache(maxsize=64)  # of bytes that were just hashed; at most 64 times 256 KiB
def _parsed(manifest: bytes) -> ConnectorManifest:
    return parse_connector_manifest(manifest, file=MANIFEST)


def _meta(data: bytes) -> _Meta | None:
    try:
        return msgspec.json.decode(data, type=_Meta)
    except msgspec.DecodeError:
        return None


def _check_provenance(manifest: ConnectorManifest, connector: bytes) -> None:
    """Raise AileronError(hash_mismatch) if the manifest states a `provenance_hash` that is not the program's hash."""
    if manifest.provenance_hash is not None and sha256_digest(connector) != manifest.provenance_hash:
        said, actual = manifest.provenance_hash, sha256_digest(connector)
        raise AileronError(
            FailureClass.HASH_MISMATCH,
            f"{manifest.name}@{manifest.version} contradicts itself: its manifest says provenance_hash {said}, "
            f"and its program is {actual}; only its publisher can fix that: with the hash of the program, or without one",
            boundary=Boundary.CONNECTOR_MANIFEST,
            details={"expected": said, "actual": actual, "file": MANIFEST},
        )


def _named(manifest: ConnectorManifest, pin: ConnectorPin) -> ConnectorManifest:
    """Return the manifest, after a check that it states the name and version of the pin.

    A person consented to a name and version, which the hash alone does not identify.
    """
    if (str(manifest.name), manifest.version) != (pin.name, pin.version):
        raise _mismatch(str(pin), pin.hash, f"the bytes of {manifest.name}@{manifest.version}")
    return manifest


def _stamp(path: Path) -> Stamp | None:
    """Return a stamp that changes whenever a file of the entry is written to or replaced; None if a file is missing."""
    entry = str(path)  # called three times a run, and joining paths takes longer than stat(2)
    found = [files.stamp(f"{entry}/{name}") for name in (CONNECTOR, MANIFEST, _META)]
    stamps = tuple(stamp for stamp in found if stamp is not None)
    return stamps if len(stamps) == len(found) else None


def sealed(data: bytes, kind: ProgramKind, name: str) -> int:
    """Return a descriptor of a sealed memory file with these bytes, at offset 0 and close-on-exec. Nobody can change the bytes.

    The caller closes it. Raises AileronError(sandbox_unavailable) if the kernel gives no memory file.
    """
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    # Where vm.memfd_noexec is set, only MFD_EXEC makes one that may be executed. A zip never needs it.
    wish = _MFD_EXEC if kind == "elf" else _MFD_NOEXEC_SEAL
    try:
        descriptor = os.memfd_create(name[-200:], flags | wish)  # a name has at most 249 bytes
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise _no_memory_file(error) from error
        descriptor = os.memfd_create(name[-200:], flags)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
        if kind == "elf":
            # Not readable: the process that executes it can then be neither dumped nor attached to, execve(2).
            os.fchmod(descriptor, 0o111)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except OSError as error:
        os.close(descriptor)
        raise _no_memory_file(error) from error
    return descriptor


def _no_memory_file(error: OSError) -> AileronError:
    message = f"no sealed memory file for the connector: {os.strerror(error.errno or 0)}"
    return AileronError(FailureClass.SANDBOX_UNAVAILABLE, message, boundary=Boundary.SANDBOX)


def _mismatch(subject: str, expected: str, actual: str) -> AileronError:
    return AileronError(
        FailureClass.HASH_MISMATCH,
        f"{subject}: expected {expected}, found {actual}; install the pinned bytes again with "
        f"`aileron connector install {subject}`, or pin what is installed in the action",
        boundary=Boundary.CONNECTOR_MANIFEST,
        details={"expected": expected, "actual": actual},
    )


def _not_installed(pin: ConnectorPin) -> AileronError:
    message = f"{pin} is not installed: aileron sync"
    return AileronError(
        FailureClass.NOT_FOUND, message, boundary=Boundary.CONNECTOR_MANIFEST, details={"connector": str(pin)}
    )


def _refused(problem: str) -> AileronError:
    return AileronError(FailureClass.INVALID_REQUEST, problem, boundary=Boundary.CONNECTOR_MANIFEST)
