"""The check of a connector's program: its kind (zip or ELF), and that no bytes follow it.

The pin is a hash over program and manifest joined. So a program must end exactly where its own format says: a zip after its
directory, an ELF file after the last part that its headers specify. Then the joined bytes can be divided in one way at most,
and no byte of the manifest can be passed off as part of the program.

Before `zipfile` lists a zip's entries, they are counted in its directory, because an entry of 46 bytes takes some 600 in
memory. The number of entries that the zip states is not trusted. A Zip64 directory is refused, since it has a second count and
readers differ in which they use.

Pure. Source: elf(5); PKWARE APPNOTE 6.3 sections 4.3.12 (central directory), 4.3.15 (Zip64 locator) and 4.3.16 (end of central
directory record). Not here: whether this machine can run it (aileron_sandbox.elf).

>>> program_kind(b"#!/bin/sh")
Traceback (most recent call last):
    ...
ValueError: the connector is neither a zip nor a 64-bit ELF program
"""

from __future__ import annotations

import io
import struct
from typing import Final, Literal

__all__ = ["MAX_ENTRIES", "ProgramKind", "check_program", "program_kind"]

ProgramKind = Literal["python", "elf"]

_ELF64: Final = b"\x7fELF\x02\x01"  # of 64 bits, little-endian
_ELF_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_ELF_SEGMENT: Final = struct.Struct("<IIQQQQQQ")
_ELF_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_ELF_PROGRAMS: Final = (2, 3)  # ET_EXEC, and ET_DYN, which is also what a position-independent program is
_NO_BITS: Final = 8  # SHT_NOBITS: a section that takes no place in the file
_ZIP: Final = b"PK\x03\x04"
_ZIP_END: Final = b"PK\x05\x06"
_ZIP_END_BYTES: Final = 22
_ZIP_END_RECORD: Final = struct.Struct("<4s4H2IH")
_ZIP_ENTRY: Final = struct.Struct("<4s24x3H12x")  # its signature, and how long name, extra field and comment are
_ZIP_ENTRY_MARK: Final = b"PK\x01\x02"
_ZIP64_LOCATOR: Final = b"PK\x06\x07"
_ZIP64_LOCATOR_BYTES: Final = 20  # just before the end record
MAX_ENTRIES: Final = 8192
"""Maximum number of entries in a zip, directories included: 5 MiB in memory.

The largest client libraries have some 2,000 modules, and as many data files.
"""
_MAX_DIRECTORY_BYTES: Final = 4 << 20
"""4 MiB: MAX_ENTRIES of 500 bytes each. Without this limit, a few names of 64 KiB could fill the memory."""


def program_kind(connector: bytes) -> ProgramKind:
    """Return the kind of a program by its bytes: `python` for a zip, `elf` for an ELF program.

    Raises ValueError for anything else, and if bytes follow the program.
    """
    if connector.startswith(_ELF64):
        _check_elf(connector)
        return "elf"
    end = connector[-_ZIP_END_BYTES:]
    if connector.startswith(_ZIP) and end.startswith(_ZIP_END) and end.endswith(b"\0\0"):
        return "python"
    if connector.startswith(_ZIP):
        raise ValueError(
            "the connector's zip does not end with its directory: it is truncated, or something follows it"
        )
    raise ValueError("the connector is neither a zip nor a 64-bit ELF program")


def check_program(connector: bytes) -> ProgramKind:
    """Return the kind of a program, and check that a zip can be read and has a `__main__.py`. Raises ValueError if
    the check fails.

    Runs nothing of it.
    """
    kind = program_kind(connector)
    if kind == "python":
        import zipfile  # with shutil, for commands that read manifests alone

        _check_zip_directory(connector)
        try:
            with zipfile.ZipFile(io.BytesIO(connector)) as archive:
                names = archive.namelist()
        except (zipfile.BadZipFile, ValueError, NotImplementedError, OverflowError) as error:
            raise ValueError(f"the connector's zip cannot be read: {error}") from None
        if "__main__.py" not in names:
            raise ValueError("the connector's zip has no __main__.py")
    return kind


def _check_zip_directory(connector: bytes) -> None:
    """Check that a zip's directory is where the zip says, has the stated number of entries, and is within the limits.

    Allocates no list of entries.
    """
    _, _, _, here, entries, size, start, _ = _ZIP_END_RECORD.unpack(connector[-_ZIP_END_BYTES:])
    end = len(connector) - _ZIP_END_BYTES
    if connector[max(end - _ZIP64_LOCATOR_BYTES, 0) : end].startswith(_ZIP64_LOCATOR):
        raise ValueError("the connector's zip has a Zip64 directory, which a program of that size does not need")
    if entries > MAX_ENTRIES or size > _MAX_DIRECTORY_BYTES:
        raise ValueError(
            f"the connector's zip has {entries} entries in {size} bytes; at most {MAX_ENTRIES} in {_MAX_DIRECTORY_BYTES}"
        )
    at, there = start, 0
    while at + _ZIP_ENTRY.size <= end and there < entries:
        mark, name, extra, comment = _ZIP_ENTRY.unpack_from(connector, at)
        if mark != _ZIP_ENTRY_MARK:
            break
        at, there = at + _ZIP_ENTRY.size + name + extra + comment, there + 1
    if not (here == entries == there and start + size == at == end):
        raise ValueError(f"the connector's zip does not match its directory: {entries} entries, {size} bytes")


def _check_elf(program: bytes) -> None:
    """Check that an ELF program is complete, and that it ends with the last part that its headers specify."""
    try:
        end = _elf_end(program)
    except struct.error:
        raise ValueError("the connector's ELF file is truncated") from None
    if end > len(program):
        raise ValueError(f"the connector's ELF file is truncated: it has {len(program)} bytes of {end}")
    if end < len(program):
        raise ValueError(f"the connector's ELF file has {len(program) - end} extra bytes at its end")


def _elf_end(program: bytes) -> int:
    _, kind, _, _, _, segments_at, sections_at, *rest = _ELF_HEADER.unpack_from(program)
    _, _, segment_bytes, segments, section_bytes, sections, _ = rest
    if kind not in _ELF_PROGRAMS:
        raise ValueError(f"the connector is an ELF file of type {kind}, not a program")
    is_odd = (segments and segment_bytes != _ELF_SEGMENT.size) or (sections and section_bytes != _ELF_SECTION.size)
    if is_odd or not segments or (sections_at and not sections):  # the last: more sections than the header can count
        raise ValueError("the connector's ELF header is not valid")
    tables_end: int = max(segments_at + segments * _ELF_SEGMENT.size, sections_at + sections * _ELF_SECTION.size)
    if tables_end > len(program):  # before they are read: offsets have 64 bits
        return tables_end
    ends: list[int] = [_ELF_HEADER.size, tables_end]
    for segment in range(segments):
        _, _, offset, _, _, size, _, _ = _ELF_SEGMENT.unpack_from(program, segments_at + segment * _ELF_SEGMENT.size)
        ends.append(offset + size)
    for section in range(sections):
        _, section_kind, _, _, offset, size, *_ = _ELF_SECTION.unpack_from(
            program, sections_at + section * _ELF_SECTION.size
        )
        if section_kind != _NO_BITS:
            ends.append(offset + size)
    return max(ends)
