"""The process of a connector that is forked and not started (forks.py): it runs the program as the template does.

Runs in such a process only. Not here: descriptors and environment (forks.py), the host's end (plain_host.py).
"""

from __future__ import annotations

import runpy
import sys

__all__ = ["main"]


def main(arguments: list[str]) -> None:
    """Run the program at `arguments[0]`, which finds its frames on descriptors 3 and 4."""
    (program,) = arguments
    sys.argv[:] = [program]
    sys.path.insert(0, program)
    runpy.run_path(program, run_name="__main__")
