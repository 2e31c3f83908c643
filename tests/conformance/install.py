"""The conformance suite and the Inspector as their makers publish them, in the versions of pins/, installed once into a cache.

The cache is of kind `conformance`, about 300 MB with its node. No script of a package is run.

    $ python -m tests.conformance.install       # prints where they are

Not here: where node, npm and the cache come from (support/npm.py), what is done with them (suite.py, inspector.py).
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from pathlib import Path
from typing import Final

from tests.support.npm import NODE_PIN, NotInstalled, cached, put_packages, put_program

__all__ = ["INSPECTOR_VERSION", "NODE_VERSION", "SUITE_VERSION", "NotInstalled", "Tools", "installed"]

_PINS: Final = Path(__file__).parent / "pins"
_FORM: Final = 1
"""Form of the cache; raised when something else is made from the same pins."""
_SUITE: Final = "@modelcontextprotocol/conformance"
_INSPECTOR: Final = "@modelcontextprotocol/inspector"
_WANTED: Final[dict[str, str]] = json.loads((_PINS / "package.json").read_text(encoding="utf-8"))["dependencies"]

SUITE_VERSION: Final = _WANTED[_SUITE]
INSPECTOR_VERSION: Final = _WANTED[_INSPECTOR]
NODE_VERSION: Final = NODE_PIN.read_text(encoding="ascii").partition("==")[2].split()[0]


@dataclasses.dataclass(frozen=True)
class Tools:
    """The programs to start: `node`, and two programs for it."""

    node: Path
    suite: Path
    inspector: Path


def installed() -> Tools:
    """Return all three programs; install them first if needed, or NotInstalled."""
    place = cached("conformance", _PINS, form=_FORM, build=_build)
    return Tools(
        node=place / "bin" / "node",
        suite=place / "node_modules" / _SUITE / "dist" / "index.js",
        inspector=place / "node_modules" / _INSPECTOR / "clients" / "launcher" / "build" / "index.js",
    )


def _build(at: Path) -> None:
    put_program(at, "node", put_packages(at, _PINS))
    shutil.rmtree(at / "npm-cache")


if __name__ == "__main__":
    try:
        print(installed())
    except NotInstalled as problem:
        sys.exit(f"the conformance suite could not be installed: {problem}")
