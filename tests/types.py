"""Check the types of this repository with mypy, as `make lint` does: `python -m tests.types`.

The packages of pyproject.toml are checked together. Each connector is a program of its own, whose modules import each other by
bare names that other connectors have, too: each is checked by itself, with its folder as the place of these names. All is done
in one process, which has to load mypy only once.

Source: https://mypy.readthedocs.io/en/stable/extending_mypy.html#integrating-mypy-into-another-python-application
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from mypy import api

__all__ = ["main"]

_CONNECTORS: Final = Path("connectors")


def main() -> int:
    """Print mypy's errors. Return its exit status, the worst of all runs."""
    statuses = [_checked([])]
    for folder in sorted(_CONNECTORS.iterdir()):
        if (folder / "manifest.toml").is_file():
            os.environ["MYPYPATH"] = str(folder)
            statuses.append(_checked([str(folder)]))
    return max(statuses)


def _checked(arguments: list[str]) -> int:
    out, error, status = api.run(arguments)
    if status != 0 or not arguments:
        print(out, end="")
    print(error, end="", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
