"""Published libraries, unmodified, put beside a connector as its author would: `pip install --target`."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Final

__all__ = ["pack"]

_IGNORED: Final = shutil.ignore_patterns("*.so", "*.gz", "__pycache__", "tests")


def pack(package: str, into: Path) -> None:
    """The files of a package or module that is installed here, and the metadata that says which version it is."""
    spec = importlib.util.find_spec(package)
    assert spec is not None, package
    assert spec.origin is not None, package
    origin = Path(spec.origin)
    if not spec.submodule_search_locations:
        shutil.copy(origin, into)
        return
    shutil.copytree(origin.parent, into / package, ignore=_IGNORED)
    for described in origin.parents[1].glob(f"{package}-*.dist-info"):
        shutil.copytree(described, into / described.name)
