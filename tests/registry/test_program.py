"""The bytes decide what counts as a program, and a program ends where its own format says."""

from __future__ import annotations

import contextlib
import io
import re
import struct
import tracemalloc
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.registry.program import MAX_ENTRIES, check_program, program_kind

_ECHO = Path("/bin/echo").read_bytes()
_MANIFEST = b'[connector]\nname = "github://acme/mail"\nversion = "1.0.0"\n'


def _zip() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("__main__.py", "print('hello')")
    return packed.getvalue()


PROGRAMS = {"elf": _ECHO, "python": _zip()}


# Hostile directories, made by hand: `zipfile` writes no lies.
_ENTRY = struct.pack("<4s24x3H12x", b"PK\x01\x02", 1, 0, 0) + b"d"


def _end(entries: int, size: int, start: int) -> bytes:
    return struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, entries, entries, size, start, 0)


def _zip_of(directory: bytes, said: int, *, size: int | None = None, before: bytes = b"") -> bytes:
    """Return a zip whose end record says what is given here about a directory that stands after 64 bytes."""
    head = b"PK\x03\x04".ljust(64, b"\0")
    return head + directory + before + _end(said, len(directory) if size is None else size, len(head))


def _zip64(directory: bytes, entries: int) -> bytes:
    """Return a zip whose old end record says one entry, and whose Zip64 record says more."""
    start = 64
    end64 = struct.pack("<4sQ2H2I4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, entries, entries, len(directory), start)
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, start + len(directory), 1)
    return _zip_of(directory, 1, size=len(_ENTRY), before=end64 + locator)


MANY = _ENTRY * 100_000


@pytest.mark.abuse_case("B26")
@pytest.mark.parametrize(
    ("program", "why"),
    [
        (_zip_of(MANY, 100_000 % 65536), "has 34464 entries in 4700000 bytes; at most 8192"),
        (_zip_of(MANY, 1), "has 1 entries in 4700000 bytes; at most"),
        (_zip_of(MANY, 1, size=len(_ENTRY)), "does not match its directory: 1 entries, 47 bytes"),
        (_zip_of(_ENTRY * 20_000, 1), "does not match its directory: 1 entries, 940000 bytes"),
        (_zip_of(_ENTRY * 3, 2), "does not match its directory"),
        (_zip_of(_ENTRY * 2, 3), "does not match its directory"),
        (_zip_of(_ENTRY * 2 + b"x", 2), "does not match its directory"),
        (_zip_of(_ENTRY * 2, 2, size=2 * len(_ENTRY) - 1), "does not match its directory"),
        (_zip_of(_ENTRY[:-1] + b"x" * 300, 1), "does not match its directory"),
        (
            _zip_of(struct.pack("<4s24x3H12x", b"PK\x01\x02", 65535, 0, 0) + b"d" * 9, 1),
            "does not match its directory",
        ),
        (_zip64(MANY, 100_000), "has a Zip64 directory"),
        (_zip64(_ENTRY, 1), "has a Zip64 directory"),
        (_end(0, 0, 0).replace(b"PK\x05\x06", b"PK\x03\x04"), "does not end with its directory"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_zip_with_too_many_entries_is_refused_before_they_are_parsed(program: bytes, why: str) -> None:
    """A zip can claim any number of entries, and each takes 600 bytes. The refusal allocates less than 1 MiB."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=re.escape(why)):
            check_program(program)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_zip_with_the_maximum_number_of_entries_is_read() -> None:
    """The positive control is the largest allowed zip, with directories among its entries, as other tools write them."""
    for count, is_read in ((MAX_ENTRIES, True), (MAX_ENTRIES + 1, False)):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("__main__.py", "")
            for number in range(count - 1):
                archive.writestr(f"{number}/", "")
        if is_read:
            assert check_program(packed.getvalue()) == "python"
        else:
            with pytest.raises(ValueError, match=f"has {MAX_ENTRIES + 1} entries"):
                check_program(packed.getvalue())


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_whole_program_is_recognized(kind: str) -> None:
    """This is the positive control of the module."""
    assert program_kind(PROGRAMS[kind]) == check_program(PROGRAMS[kind]) == kind


def test_the_compiled_programs_in_usr_bin_are_accepted() -> None:
    """The test reads the programs in /usr/bin from a to f; each ends where its ELF header says."""
    programs = [data for path in Path("/usr/bin").glob("[a-f]*") if (data := path.read_bytes()).startswith(b"\x7fELF")]

    assert len(programs) > 10
    assert {program_kind(data) for data in programs} == {"elf"}


@pytest.mark.parametrize("kind", PROGRAMS)
@given(st.data())
def test_joined_program_and_manifest_bytes_split_into_a_connector_in_only_one_way(
    kind: str, data: st.DataObject
) -> None:
    """Wherever the joined bytes are cut, the program ends at one place at most."""
    program = PROGRAMS[kind]
    joined = program + _MANIFEST
    near = st.integers(-len(_MANIFEST), len(_MANIFEST)).map(lambda by: len(program) + by)
    cut = data.draw((near | st.integers(0, len(joined))).filter(lambda at: at != len(program)))

    with pytest.raises(ValueError, match="connector"):
        check_program(joined[:cut])


def test_elf_files_that_are_not_programs_are_refused() -> None:
    """Object files and core dumps are ELF files too."""
    for kind in (1, 4):
        data = bytearray(_ECHO)
        struct.pack_into("<H", data, 16, kind)

        with pytest.raises(ValueError, match=f"of type {kind}, not a program"):
            program_kind(bytes(data))


@given(st.data())
def test_any_elf_header_is_accepted_or_refused(data: st.DataObject) -> None:
    """Offsets and counts of any size raise nothing but ValueError."""
    program = bytearray(_ECHO)
    for _ in range(data.draw(st.integers(1, 8))):
        program[data.draw(st.integers(6, 700) | st.integers(len(program) - 2048, len(program) - 1))] = data.draw(
            st.integers(0, 255)
        )
    with contextlib.suppress(ValueError):
        assert program_kind(bytes(program)) == "elf"
