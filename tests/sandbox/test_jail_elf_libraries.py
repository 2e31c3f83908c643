"""Tests that a jail shows a compiled program the libraries it needs, and that the program cannot name a file of the user's."""

from __future__ import annotations

import io
import os
import platform
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron_sandbox.elf import ElfRuntime
from aileron_sandbox.unavailable import JailUnavailable
from tests.support.elf_programs import compiled

_MACHINE_AT, _CLASS_AT = 18, 4  # in Elf64_Ehdr, elf(5)
_LOADED = re.compile(r"(/\S+) \(0x")
_LATE = "libgcc_s.so.1"
_EXAMINED = """
import pathlib, sys, sysconfig
started = []
sys.addaudithook(lambda event, _: started.append(event) if event == "subprocess.Popen" else None)
from aileron_sandbox.runtime import PythonRuntime
if len(sys.argv) > 1:
    sysconfig.get_path = lambda name: sys.argv[1]
print(len(started), *PythonRuntime.of_this_interpreter().libraries, len(started))
"""
_LOADS_ALL = """
import importlib, pathlib, re, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(*set(re.findall(r" (/\\S+\\.so\\S*)$", pathlib.Path("/proc/self/maps").read_text(), re.MULTILINE)))
"""
_WITH_DISPLAYS = ("_tkinter", "_curses", "readline", "_dbm", "_gdbm", "nis", "_crypt", "_test", "xx", "_xx")


@contextmanager
def _file(data: bytes) -> Iterator[int]:
    with io.FileIO(os.memfd_create("program", os.MFD_CLOEXEC), "w+b") as file:
        file.write(data)
        yield file.fileno()


def _needed(data: bytes) -> ElfRuntime:
    with _file(data) as program:
        return ElfRuntime.of_program(program)


def _refusal(data: bytes) -> JailUnavailable:
    with pytest.raises(JailUnavailable) as caught:
        _needed(data)
    return caught.value


@pytest.fixture
def ghost(tmp_path: Path) -> Path:
    """Make a directory with a library that is in no directory of the system's."""
    for name, soname in (("libghost.so", "libghost.so.1"), ("libpath.so", str(tmp_path / "libpath.so"))):
        made: list[str | Path] = ["gcc", "-shared", "-xc", "/dev/null", "-o", tmp_path / name, f"-Wl,-soname,{soname}"]
        subprocess.run(made, check=True, capture_output=True, timeout=60)
    return tmp_path


def test_a_static_program_needs_no_library_in_its_jail() -> None:
    """The program's root has no library and no loader."""
    runtime = _needed(compiled("probe", "static"))

    assert (runtime.libraries, runtime.loader) == ((), None)


@pytest.mark.parametrize("program", ["probe", "connector", "/bin/ls", "/bin/bash", "/usr/bin/env"])
def test_a_dynamic_programs_jail_has_the_libraries_that_the_loader_would_load(program: str, tmp_path: Path) -> None:
    """The libraries are those that ldd(1) names by asking the loader itself, and the one that glibc loads late."""
    path = Path(program)
    if not path.is_absolute():
        path = tmp_path / program
        path.write_bytes(compiled(program, "dynamic"))
        path.chmod(0o700)
    shown = subprocess.run(["ldd", path], check=True, capture_output=True, text=True, timeout=30)
    expected = {os.path.realpath(name) for name in _LOADED.findall(shown.stdout)}

    runtime = _needed(path.read_bytes())

    found = {os.path.realpath(library) for library in runtime.libraries if library.name != _LATE}
    assert found == expected
    assert runtime.loader == runtime.libraries[0]
    assert len(set(runtime.libraries)) == len(runtime.libraries)


def test_a_missing_library_is_named(ghost: Path) -> None:
    """The author's machine may have it: the error names the library and what to do."""
    refused = _refusal(compiled("probe", "dynamic", "-Wl,--no-as-needed", f"-L{ghost}", "-lghost"))

    assert "the program needs 'libghost.so.1'" in refused.what
    assert "link the program statically" in refused.fix


@pytest.mark.parametrize(
    ("option", "place"),
    [
        ("-Wl,-rpath,$ORIGIN/lib", "$ORIGIN/lib"),
        ("-Wl,-rpath,{home}", "{home}"),
        ("-Wl,--disable-new-dtags,-rpath,{home}", "{home}"),
        ("-Wl,-rpath,/usr/lib:{home}", "{home}"),
    ],
)
def test_a_library_search_path_into_the_users_directories_is_refused(ghost: Path, option: str, place: str) -> None:
    """A RUNPATH or RPATH there would expose any file with a library's name to the program."""
    made = compiled("probe", "dynamic", option.format(home=ghost), "-Wl,--no-as-needed", f"-L{ghost}", "-lghost")

    assert repr(place.format(home=ghost)) in _refusal(made).what


def test_a_search_path_into_the_systems_directories_changes_nothing() -> None:
    """Distributions' linkers write such paths; the loader searches those directories anyway."""
    made = compiled("probe", "dynamic", "-Wl,-rpath,/usr/lib:/lib64/")

    assert _needed(made).libraries == _needed(compiled("probe", "dynamic")).libraries


def test_a_library_named_by_a_path_is_refused(ghost: Path) -> None:
    """The loader would open exactly that path, which could be any file."""
    made = compiled("probe", "dynamic", "-Wl,--no-as-needed", str(ghost / "libpath.so"))

    assert "a library is named" in _refusal(made).what


def test_a_program_for_another_loader_than_this_machines_is_refused() -> None:
    """The program names the loader that the kernel starts: only this machine's loader is shown."""
    made = compiled("probe", "dynamic", "-Wl,--dynamic-linker=/tmp/ld.so")

    assert "asks for the loader '/tmp/ld.so'" in _refusal(made).what


def test_a_program_for_another_machine_is_refused_with_the_reason() -> None:
    """The programs are for the other supported architecture, for 32 bits, and for none."""
    other = {"x86_64": (183, "aarch64"), "aarch64": (62, "x86_64")}[platform.machine()]
    program = bytearray(compiled("probe", "static"))
    program[_MACHINE_AT] = other[0]
    narrow = bytearray(compiled("probe", "static"))
    narrow[_CLASS_AT] = 1

    assert f"it is for {other[1]}" in _refusal(bytes(program)).what
    assert "64-bit" in _refusal(bytes(narrow)).what
    assert "64-bit" in _refusal(b"PK\x03\x04").what or "bytes" in _refusal(b"PK\x03\x04").what


def test_a_file_that_is_no_executable_is_refused() -> None:
    """A shared library has no loader, and an object file has no loadable segment."""
    shared = compiled("probe", "dynamic", "-shared", "-fPIC")
    unlinked = compiled("probe", "dynamic", "-c")

    assert "shared library" in _refusal(shared).what
    assert "type 1" in _refusal(unlinked).what


def _printed(*command: object) -> list[str]:
    made = [sys.executable, *map(str, command)]
    return subprocess.run(made, check=True, capture_output=True, text=True, timeout=60).stdout.split()


def test_pythons_libraries_are_found_without_starting_python() -> None:
    """All libraries that an interpreter has mapped after importing every extension module are shown."""
    modules = Path(sysconfig.get_path("stdlib"), "lib-dynload").glob("*.so")
    names = {path.name.partition(".")[0] for path in modules if not path.name.startswith(_WITH_DISPLAYS)}
    loaded = {os.path.realpath(path) for path in _printed("-I", "-S", "-c", _LOADS_ALL, *names)}

    started_before, *libraries, started = _printed("-c", _EXAMINED)

    own = os.path.realpath(sysconfig.get_path("stdlib"))
    missing = {path for path in loaded if not path.startswith(own)} - {os.path.realpath(path) for path in libraries}
    assert names
    assert missing == set()
    assert started_before == started


def test_python_with_private_libraries_is_started_to_find_them(ghost: Path) -> None:
    """The libraries lie on the interpreter's own search path, so only its loader finds them."""
    (ghost / "lib-dynload").mkdir()
    made: list[str | Path] = [
        "gcc",
        "-shared",
        "-xc",
        "/dev/null",
        "-o",
        ghost / "lib-dynload" / "own.so",
        f"-Wl,-rpath,{ghost}",
    ]
    subprocess.run([*made, "-Wl,--no-as-needed", f"-L{ghost}", "-lghost"], check=True, capture_output=True, timeout=60)

    started_before, *libraries, started = _printed("-c", _EXAMINED, ghost)

    assert int(started) == int(started_before) + 1
    assert any(path.endswith("/libc.so.6") for path in libraries)


@given(st.data())
def test_any_bytes_as_a_program_give_a_list_of_libraries_or_a_refusal(data: st.DataObject) -> None:
    """A mutated program never causes another error, and never shows a file outside the system's directories."""
    program = bytearray(compiled("probe", data.draw(st.sampled_from(["static", "dynamic"]))))
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, 1200) | st.integers(0, len(program) - 1))
        program[at] = data.draw(st.integers(0, 255))
    del program[data.draw(st.integers(1, len(program)) | st.just(len(program))) :]

    try:
        libraries = _needed(bytes(program)).libraries
    except JailUnavailable:
        return
    assert all(str(path.parent).startswith(("/lib", "/usr/lib")) for path in libraries)
