"""Published libraries, unmodified, put beside a connector as its author would: `pip install --target`."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from typing import Any, Final

__all__ = ["module_of", "pack", "pack_boto3"]

_CONNECTORS: Final = Path(__file__).resolve().parents[2] / "connectors"
_IGNORED: Final = shutil.ignore_patterns("*.so", "*.tar.gz", "__pycache__", "tests")


def module_of(connector: str, name: str) -> Any:
    """Load a module of a connector, which no package has, under a name of its own: other connectors have modules of that name."""
    spec = importlib.util.spec_from_file_location(f"{connector}_{name}", _CONNECTORS / connector / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and msgspec look their module up
    spec.loader.exec_module(module)
    return module


def pack(package: str, into: Path) -> None:
    """Copy the files of a package or module that is installed here, and the metadata with its version."""
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


def pack_boto3(into: Path, *services: str) -> None:
    """Copy boto3 and its dependencies, with the data of these services (`s3`) only: all 400 take 30 MB."""
    for package in ("boto3", "s3transfer", "jmespath", "dateutil", "six", "urllib3", "botocore"):
        pack(package, into)
    data = into / "botocore" / "data"
    for found in data.iterdir():
        if found.is_dir() and found.name not in services:
            shutil.rmtree(found)
