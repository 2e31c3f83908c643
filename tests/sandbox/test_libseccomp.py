"""Importing pyseccomp starts no program, and leaves Python's search for libraries as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

COUNTED = """
import sys
started = []
sys.addaudithook(lambda event, _: started.append(event) if event in {"subprocess.Popen", "os.posix_spawn"} else None)
"""
PRINTED = """
print(len(started))
import ctypes.util
print(ctypes.util.find_library("c"), ctypes.util.find_library("z"))
"""
OURS = "from aileron_sandbox.libseccomp import import_pyseccomp"


def test_importing_libseccomp_starts_no_program_and_keeps_later_library_searches_working() -> None:
    """The control imports pyseccomp directly, whose own library search starts programs."""
    searched, found = _printed("import pyseccomp; pyseccomp.SyscallFilter")
    searched_by_us, found_later = _printed(f"{OURS}; import_pyseccomp().SyscallFilter")

    assert int(searched) >= 2
    assert searched_by_us == "0"
    assert found_later == found


def test_a_library_that_the_loader_does_not_find_by_name_is_searched_for_in_directories() -> None:
    """A system with another C library has other file names."""
    changed = "from aileron_sandbox import libseccomp; libseccomp._NAMES['c'] = 'libno-such.so'"

    searched, _ = _printed(f"{changed}; libseccomp.import_pyseccomp().SyscallFilter")

    assert int(searched) >= 2


def test_a_failed_import_leaves_the_library_search_unchanged(tmp_path: Path) -> None:
    """A daemon without libseccomp reports that, and continues."""
    (tmp_path / "pyseccomp.py").write_text("raise RuntimeError('Unable to find libseccomp')\n", encoding="ascii")
    failing = f"""
import contextlib
{OURS}
with contextlib.suppress(RuntimeError):
    import_pyseccomp()
assert "pyseccomp" not in sys.modules
"""

    assert _printed(failing, first=tmp_path)[1] == _printed("")[1]


def _printed(code: str, first: Path | None = None) -> list[str]:
    """Return the number of programs that `code` starts, and the libraries that the search finds afterwards."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, filter(None, [first, *sys.path])))}
    told = subprocess.run(
        [sys.executable, "-P", "-c", COUNTED + code + PRINTED],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return told.stdout.splitlines()
