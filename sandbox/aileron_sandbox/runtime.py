"""The files that a Python program needs to see: the standard library, its shared libraries, time zones, and packages.

Runs on the host, once per start. The libraries are read from the headers of the interpreter and of every extension
module of the standard library (elf.py; 5 ms). If an interpreter has libraries outside the system's directories, a
short-lived instance of it loads every extension module and reads back the paths of everything that the loader mapped,
dl_iterate_phdr(3), which takes ten times as long.

Not here: making them visible (template/mounts.py).
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import subprocess
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from aileron_sandbox.begun import interpreter
from aileron_sandbox.elf import libraries_of
from aileron_sandbox.unavailable import JailUnavailable

__all__ = ["PythonRuntime"]

_PROBE_DEADLINE_S: Final = 20  # 0.1 s measured; a machine that is starting up may take a hundred times that
_ZONES: Final = Path("/usr/share/zoneinfo")
# Extension modules with no use in a jail, whose libraries (X11, curses, databases, NIS) would be bound for nothing.
_LEFT_OUT: Final = (
    "_tkinter", "_curses", "_curses_panel", "readline", "_dbm", "_gdbm", "nis", "spwd", "_crypt", "ossaudiodev",
)  # fmt: skip
# Former parts of glibc that extension modules built elsewhere still name, and the library that thread cancellation loads late.
_SONAMES: Final = ("libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1", "libm.so.6", "libgcc_s.so.1")
_PROBE: Final = """
import ctypes, importlib, json, sys
modules, sonames = json.loads(sys.argv[1])
for name in modules:
    try:
        importlib.import_module(name)
    except ImportError:
        pass
for name in sonames:
    try:
        ctypes.CDLL(name)
    except OSError:
        pass
class Info(ctypes.Structure):  # struct dl_phdr_info, dl_iterate_phdr(3)
    _fields_ = [("addr", ctypes.c_void_p), ("name", ctypes.c_char_p)]
names = []
@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Info), ctypes.c_size_t, ctypes.c_void_p)
def collect(info, size, data):
    names.append(info.contents.name.decode(errors="surrogateescape"))
    return 0
ctypes.CDLL(None).dl_iterate_phdr(collect, None)
print(json.dumps(sorted({name for name in names if name.startswith("/")})))
"""


@dataclasses.dataclass(frozen=True)
class PythonRuntime:
    """Host paths of the files that a jailed Python program may read, and names of the modules that are imported beforehand.

    `packages` maps a path below `/sdk`, which is on the program's `sys.path`, to a host file or directory. `preload`
    are modules that the template imports once for all children. `rehearsal` is the source of a program that the
    template and its waiting children run ahead of the real one, so that the work common to all programs is already
    done. The rehearsal must leave no changes behind.
    """

    executable: Path
    stdlib: Path
    libraries: tuple[Path, ...]
    packages: Mapping[str, Path]
    preload: tuple[str, ...] = ()
    rehearsal: str = ""

    @classmethod
    def of_this_interpreter(
        cls, packages: Mapping[str, Path] | None = None, preload: tuple[str, ...] = (), rehearsal: str = ""
    ) -> PythonRuntime:
        """Return the runtime of the running interpreter, without site-packages. Raises JailUnavailable if the
        interpreter cannot be examined.
        """
        executable, stdlib, libraries = _examine()
        return cls(executable, stdlib, libraries, dict(packages or {}), preload, rehearsal)

    @property
    def zones(self) -> Path | None:
        """Path of the time zone database, which `zoneinfo` reads; None if the machine has none."""
        return _ZONES if _ZONES.is_dir() else None


@functools.cache
def _examine() -> tuple[Path, Path, tuple[Path, ...]]:
    executable = interpreter()
    stdlib = Path(os.path.realpath(sysconfig.get_path("stdlib")))
    modules = _extension_modules(stdlib)
    try:
        libraries = libraries_of([executable, *modules], _SONAMES)
    except (JailUnavailable, OSError):  # it has libraries of its own, which only it can find
        names = sorted({path.name.partition(".")[0] for path in modules})
        libraries = tuple(path for path in _loaded(executable, names) if not path.is_relative_to(stdlib))
    return executable, stdlib, libraries


def _extension_modules(stdlib: Path) -> list[Path]:
    left_out = (*(f"{name}." for name in _LEFT_OUT), "_test", "xx", "_xx")
    return [path for path in (stdlib / "lib-dynload").glob("*.so") if not path.name.startswith(left_out)]


def _loaded(executable: Path, modules: list[str]) -> list[Path]:
    """Return the shared objects that an interpreter maps when it imports `modules`. Raises JailUnavailable if it
    cannot be run.
    """
    try:
        answer = subprocess.run(
            [str(executable), "-I", "-S", "-W", "ignore", "-c", _PROBE, json.dumps([modules, _SONAMES])],
            env={},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_DEADLINE_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise JailUnavailable(f"{executable} cannot be examined: {error}", "run it yourself to see why") from error
    return [Path(name) for name in json.loads(answer.stdout)]
