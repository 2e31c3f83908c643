"""Installer of the OpenID provider `oidc-provider` as its maker publishes it, in the version of pins/, once into a cache.

The cache is of kind `browser`, about 210 MB with its node. No script of a package runs.

    $ python -m tests.browser.install       # prints where it is

Not here: where node, npm and the cache come from (support/npm.py), how it is started (support/provider.py), Chromium, which is
Debian's (support/browser.py).
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from pathlib import Path
from typing import Final

from tests.support.npm import NotInstalled, cached, put_packages, put_program

__all__ = ["PROVIDER_VERSION", "NotInstalled", "Tools", "installed"]

_PINS: Final = Path(__file__).parent / "pins"
_FORM: Final = 1
"""Number to raise when something else is made of the same pins."""
_PROVIDER: Final = "oidc-provider"

PROVIDER_VERSION: Final[str] = json.loads((_PINS / "package.json").read_text(encoding="utf-8"))["dependencies"][
    _PROVIDER
]


@dataclasses.dataclass(frozen=True)
class Tools:
    """Programs to start: `node`, with `modules` as the folder where it finds the provider."""

    node: Path
    modules: Path


def installed() -> Tools:
    """Return both, installed first if need be. Raise NotInstalled if they cannot be."""
    place = cached("browser", _PINS, form=_FORM, build=_build)
    return Tools(node=place / "bin" / "node", modules=place / "node_modules")


def _build(at: Path) -> None:
    put_program(at, "node", put_packages(at, _PINS))
    shutil.rmtree(at / "npm-cache")


if __name__ == "__main__":
    try:
        print(installed())
    except NotInstalled as problem:
        sys.exit(f"the OpenID provider could not be installed: {problem}")
