"""What is a program and what is not, told by its bytes; and that it ends where it says."""

from __future__ import annotations

import contextlib
import io
import struct
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.registry.program import check_program, program_kind

_ECHO = Path("/bin/echo").read_bytes()
_MANIFEST = b'[connector]\nname = "github://acme/mail"\nversion = "1.0.0"\n'


def _zip() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("__main__.py", "print('hello')")
    return packed.getvalue()


PROGRAMS = {"elf": _ECHO, "python": _zip()}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_whole_program_is_of_its_kind(kind: str):
    """The positive control of this page."""
    assert program_kind(PROGRAMS[kind]) == check_program(PROGRAMS[kind]) == kind


def test_programs_as_linkers_make_them_end_where_they_say():
    """The compiled programs of this machine that begin with a to f: none is refused."""
    programs = [data for path in Path("/usr/bin").glob("[a-f]*") if (data := path.read_bytes()).startswith(b"\x7fELF")]

    assert len(programs) > 10
    assert {program_kind(data) for data in programs} == {"elf"}


@pytest.mark.parametrize("kind", PROGRAMS)
@given(st.data())
def test_no_other_split_of_program_and_manifest_is_a_connector(kind: str, data: st.DataObject):
    """Wherever the joined bytes are cut, there is one place at most where the program ends."""
    program = PROGRAMS[kind]
    joined = program + _MANIFEST
    near = st.integers(-len(_MANIFEST), len(_MANIFEST)).map(lambda by: len(program) + by)
    cut = data.draw((near | st.integers(0, len(joined))).filter(lambda at: at != len(program)))

    with pytest.raises(ValueError, match="connector"):
        check_program(joined[:cut])


def test_what_is_linked_but_no_program_is_refused():
    """An object file and a core dump are ELF files too."""
    for kind in (1, 4):
        data = bytearray(_ECHO)
        struct.pack_into("<H", data, 16, kind)

        with pytest.raises(ValueError, match=f"of type {kind}, and not a program"):
            program_kind(bytes(data))


@given(st.data())
def test_any_elf_header_is_understood_or_refused(data: st.DataObject):
    """Offsets and counts of any size: never another error than ValueError."""
    program = bytearray(_ECHO)
    for _ in range(data.draw(st.integers(1, 8))):
        program[data.draw(st.integers(6, 700) | st.integers(len(program) - 2048, len(program) - 1))] = data.draw(
            st.integers(0, 255)
        )
    with contextlib.suppress(ValueError):
        assert program_kind(bytes(program)) == "elf"
