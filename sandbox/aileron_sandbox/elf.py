"""The files that a compiled program needs to see: none, or its loader and the libraries that it needs directly or indirectly.

Runs on the host, before a template for the program is started. The program is hostile: it is only read, through a
descriptor. Unlike `ldd`, this module runs neither the program nor its loader. The program's contents decide only which
libraries of the system's own directories the program can see, read-only: a library is given as a plain file name, and
is looked for only in the directories listed in `_PLATFORMS`. A program with its own search path (RPATH, RUNPATH) could
name any file of the user, so it is refused.

>>> ElfRuntime.of_program(program).libraries                                       # doctest: +SKIP
(PosixPath('/lib64/ld-linux-x86-64.so.2'), PosixPath('/lib/x86_64-linux-gnu/libc.so.6'))

Rules
- Only the parts that the kernel and the loader use are read: the header, the program headers, PT_INTERP and PT_DYNAMIC.
  Sections are ignored, as they may say anything.
- Every read is bounded, and malformed data is refused. Whether the program starts is decided by the loader in the jail,
  which logs the libraries that it cannot find.
- A library is looked for where the loader in the jail will look, without /etc/ld.so.cache, which the jail lacks.

Source: elf(5), ld.so(8), System V ABI chapter 5. Parsed with `struct`, because Python's ELF libraries read sections
first, without bounds, and take 45 ms to import. Not here: making the files visible (template/mounts.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from aileron_sandbox.begun import interpreter
from aileron_sandbox.unavailable import JailUnavailable

__all__ = ["ElfRuntime", "libraries_of"]

_HEADER: Final = struct.Struct("<4sBBB9xHHIQQQIHHHHHH")  # Elf64_Ehdr
_SEGMENT: Final = struct.Struct("<IIQQQQQQ")  # Elf64_Phdr
_DYNAMIC: Final = struct.Struct("<qQ")  # Elf64_Dyn
_CLASS_64, _LITTLE_ENDIAN = 2, 1
_EXECUTABLE, _SHARED = 2, 3  # ET_EXEC, ET_DYN: the second is also what a position-independent program is
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_RPATH, _DT_RUNPATH = 0, 1, 5, 15, 29

_MAX_SEGMENTS: Final = 128  # linkers make about a dozen
_MAX_DYNAMIC_BYTES: Final = 64 << 10  # 4096 entries; the largest desktop programs have some 200
_MAX_TEXT_BYTES: Final = 4096  # PATH_MAX
_MAX_LIBRARIES: Final = 64
"""Maximum number of libraries of a program, including indirect ones. Each is a mount in every jail of the program's template."""
_NAME: Final = re.compile(r"[A-Za-z0-9_+.-]{1,255}")


class _Platform(NamedTuple):
    machine: int
    loader: str
    directories: tuple[str, ...]


_PLATFORMS: Final = {
    "x86_64": _Platform(
        62,
        "/lib64/ld-linux-x86-64.so.2",
        ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"),
    ),
    "aarch64": _Platform(
        183,
        "/lib/ld-linux-aarch64.so.1",
        ("/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"),
    ),
}
"""Properties of each supported machine: e_machine, the path of glibc's loader, and its default directories, Debian's first."""
_MACHINES: Final = {3: "i386", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv"}
_LATE: Final = "libgcc_s.so.1"
"""Library that glibc loads when a thread is cancelled, although no ELF file lists it as needed. The program can see it
if the machine has it.
"""


@dataclasses.dataclass(frozen=True)
class ElfRuntime:
    """Host paths of the files that a compiled program may read. They have the same paths in the jail. `libraries`
    begins with the loader, and is empty for a static program.

    Programs with equal runtimes can share a template. `executable` is the interpreter that runs the template itself. It
    is not in the jail.
    """

    executable: Path
    libraries: tuple[Path, ...] = ()

    @classmethod
    def of_program(cls, program: int) -> ElfRuntime:
        """Return the files that a program needs. `program` is a descriptor of the program; its offset does not change.

        Raises JailUnavailable, with the fix, if the program cannot run here because it is for another machine, is
        truncated, is not a program, has a search path of its own, or needs a library that is missing.
        """
        platform = _here()
        needs = _read_needs(program, "the program", platform)
        executable = interpreter()
        if needs.interpreter is None:
            if needs.libraries:
                raise JailUnavailable("the program is a shared library", "link it as an executable")
            return cls(executable)
        if needs.interpreter != platform.loader:
            raise JailUnavailable(
                f"the program asks for the loader {needs.interpreter!r}, and this machine's is {platform.loader!r}",
                "link it statically, or build it for this machine's C library",
            )
        return cls(executable, tuple(_closure(needs, platform)))

    @property
    def loader(self) -> Path | None:
        """Path of the loader, which the kernel starts in place of a dynamic program; None for a static program."""
        return self.libraries[0] if self.libraries else None


def libraries_of(files: Iterable[Path], optional: Iterable[str]) -> tuple[Path, ...]:
    """Return the loader and all libraries that `files` need, and those of `optional` that this machine has.

    Raises JailUnavailable if a file is not for this machine, cannot be opened, or needs a library outside the
    system's directories.
    """
    platform = _here()
    wanted = [name for name in optional if _find(name, platform) is not None]
    for path in files:
        with _opened(path) as file:
            wanted += _read_needs(file, str(path), platform).libraries
    return tuple(sorted(_closure(_Needs(platform.loader, tuple(wanted), ""), platform)))


class _Needs(NamedTuple):
    """The loader, the libraries and the search path that an ELF file names."""

    interpreter: str | None
    libraries: tuple[str, ...]
    search_path: str


class _Bad(Exception):
    """Error: the file is not a valid ELF file for this machine. The message says why."""


def _here() -> _Platform:
    machine = platform.machine()
    if machine not in _PLATFORMS:
        raise JailUnavailable(f"no compiled connectors on {machine}", f"use a machine of {' or '.join(_PLATFORMS)}")
    return _PLATFORMS[machine]


def _closure(needs: _Needs, platform: _Platform) -> Iterator[Path]:
    """Yield a program's loader, then each library that it needs once, in the breadth-first order in which the loader
    would load them.
    """
    loader = Path(platform.loader)
    if not loader.is_file():
        raise JailUnavailable(f"{loader} does not exist", "apt-get install libc6, or link the program statically")
    yield loader
    seen = {loader.name}
    waiting = [(name, "the program") for name in needs.libraries]
    optional = _find(_LATE, platform)
    if optional is not None:
        waiting.append((_LATE, "threads"))
    while waiting:
        name, asked_by = waiting.pop(0)
        if name in seen:
            continue
        seen.add(name)
        if len(seen) > _MAX_LIBRARIES:
            raise JailUnavailable(f"the program needs more than {_MAX_LIBRARIES} libraries", "link it statically")
        path = _find(name, platform)
        if path is None:
            raise JailUnavailable(
                f"{asked_by} needs {name!r}, which is not in {', '.join(platform.directories)}",
                "install the package that has it, or link the program statically",
            )
        yield path
        with _opened(path) as library:
            waiting += [(wanted, str(path)) for wanted in _read_needs(library, str(path), platform).libraries]


def _find(name: str, platform: _Platform) -> Path | None:
    if not _NAME.fullmatch(name) or name in {".", ".."}:
        raise JailUnavailable(f"a library is named {name[:80]!r}", "link against plain file names, without a path")
    candidates = (Path(directory, name) for directory in platform.directories)
    return next((path for path in candidates if path.is_file()), None)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise JailUnavailable(f"{path} cannot be read: {error.strerror}", "install the package that has it") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read_needs(file: int, name: str, platform: _Platform) -> _Needs:
    try:
        needs = _parse(file, platform)
    except (_Bad, struct.error, UnicodeDecodeError, OSError, OverflowError) as error:
        raise JailUnavailable(f"{name} cannot run on this machine: {error}", "build it for this machine") from error
    foreign = [
        entry for entry in needs.search_path.split(":") if entry and entry.rstrip("/") not in platform.directories
    ]
    if foreign:
        raise JailUnavailable(
            f"{name} looks for libraries in {foreign[0]!r}, but a jail contains only the system's",
            "link it statically, or without -rpath",
        )
    return needs


def _parse(file: int, platform: _Platform) -> _Needs:
    header = _HEADER.unpack(os.pread(file, _HEADER.size, 0))
    magic, elf_class, order, _, kind, machine = header[:6]
    if magic != b"\x7fELF" or elf_class != _CLASS_64 or order != _LITTLE_ENDIAN:
        raise _Bad("it is not a 64-bit little-endian ELF file")
    if machine != platform.machine:
        ours = _MACHINES.get(platform.machine, platform.machine)
        raise _Bad(f"it is for {_MACHINES.get(machine, f'machine {machine}')}, but this machine is {ours}")
    if kind not in {_EXECUTABLE, _SHARED}:
        raise _Bad(f"it is not a program but an ELF file of type {kind}")
    segments = _segments(file, table=header[8], entry_bytes=header[12], count=header[13])
    return _needs(file, segments)


class _Segment(NamedTuple):
    kind: int
    offset: int
    address: int
    file_bytes: int


def _segments(file: int, *, table: int, entry_bytes: int, count: int) -> list[_Segment]:
    if entry_bytes != _SEGMENT.size or not 1 <= count <= _MAX_SEGMENTS:
        raise _Bad(f"it has {count} program headers of {entry_bytes} bytes, expected 1 to {_MAX_SEGMENTS} of 56")
    data = os.pread(file, count * _SEGMENT.size, table)
    if len(data) != count * _SEGMENT.size:
        raise _Bad("it is truncated")
    return [
        _Segment(kind, offset, address, file_bytes)
        for kind, _, offset, address, _, file_bytes, _, _ in _SEGMENT.iter_unpack(data)
    ]


def _needs(file: int, segments: list[_Segment]) -> _Needs:
    interpreters = [segment for segment in segments if segment.kind == _PT_INTERP]
    dynamics = [segment for segment in segments if segment.kind == _PT_DYNAMIC]
    if len(interpreters) > 1 or len(dynamics) > 1:
        raise _Bad("it has two loaders or two dynamic sections")
    interpreter = _text(file, interpreters[0].offset) if interpreters else None
    entries = _dynamic_entries(file, dynamics[0]) if dynamics else []
    wanted = [value for tag, value in entries if tag == _DT_NEEDED]
    paths = [value for tag, value in entries if tag in {_DT_RPATH, _DT_RUNPATH}]
    if not wanted and not paths:
        return _Needs(interpreter, (), "")
    if len(wanted) > _MAX_LIBRARIES or len(paths) > 2:
        raise _Bad(f"it names {len(wanted)} libraries and {len(paths)} search paths")
    tables = [value for tag, value in entries if tag == _DT_STRTAB]
    if len(tables) != 1:
        raise _Bad(f"it has {len(tables)} string tables")
    strings = _file_offset(segments, tables[0])
    names = tuple(_text(file, strings + value) for value in wanted)
    return _Needs(interpreter, names, ":".join(_text(file, strings + value) for value in paths))


def _dynamic_entries(file: int, segment: _Segment) -> list[tuple[int, int]]:
    if segment.file_bytes > _MAX_DYNAMIC_BYTES or segment.file_bytes % _DYNAMIC.size:
        raise _Bad(f"its dynamic section has {segment.file_bytes} bytes")
    entries: list[tuple[int, int]] = []
    for tag, value in _DYNAMIC.iter_unpack(os.pread(file, segment.file_bytes, segment.offset)):
        if tag == _DT_NULL:
            return entries
        entries.append((tag, value))
    raise _Bad("its dynamic section has no end")


def _file_offset(segments: list[_Segment], address: int) -> int:
    """Return the offset in an ELF file of the byte that its segments load at the memory address `address`."""
    for segment in segments:
        if segment.kind == _PT_LOAD and segment.address <= address < segment.address + segment.file_bytes:
            return segment.offset + address - segment.address
    raise _Bad("its string table is outside of the file")


def _text(file: int, offset: int) -> str:
    data, end, _ = os.pread(file, _MAX_TEXT_BYTES, offset).partition(b"\0")
    if not end or not data:
        raise _Bad("a name in it is empty or has no end")
    return data.decode("ascii")
