"""The import of pyseccomp without the slow search for the C library and libseccomp.

pyseccomp asks ctypes.util for the names of its two libraries. That module takes 12 ms to import and starts ldconfig twice, in
every process that compiles a filter, and the daemon's start waits for it. Where the loader finds both libraries by their usual
names, dlopen(3), the search is replaced for the duration of the import.

>>> import_pyseccomp().__name__
'pyseccomp'

Runs in any process, before it has a second thread, which could see the replacement. Not here: the filters (filters.py).
"""

from __future__ import annotations

import ctypes
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes 2 ms in a process that has imported nothing: a cell's (cell/prepare.py)
    from typing import Any, Final

__all__ = ["import_pyseccomp"]

_NAMES: Final = {"c": "libc.so.6", "seccomp": "libseccomp.so.2"}
_SEARCH: Final = "ctypes.util"


def import_pyseccomp() -> Any:
    """Return pyseccomp. Raises ImportError, OSError or RuntimeError if it or libseccomp is missing."""
    if "pyseccomp" not in sys.modules and _SEARCH not in sys.modules and _are_found_by_name():
        search = type(sys)(_SEARCH)
        search.__dict__["find_library"] = _NAMES.get
        sys.modules[_SEARCH] = ctypes.__dict__["util"] = search
        try:
            __import__("pyseccomp")
        finally:
            del sys.modules[_SEARCH], ctypes.__dict__["util"]
    import pyseccomp

    return pyseccomp


def _are_found_by_name() -> bool:
    """Return whether the loader finds the C library and libseccomp by the names in _NAMES. If not, with another C
    library or without libseccomp, pyseccomp's own search is needed.
    """
    try:
        for name in _NAMES.values():
            ctypes.CDLL(name)
    except OSError:
        return False
    return True
