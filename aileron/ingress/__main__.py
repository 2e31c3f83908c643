"""The program that the daemon executes: `python -m aileron.ingress SOCKET_FD`. It hides, and serves in a child.

Nobody can have looked into that child before it hides.

Source: aileron/hidden/process.py, which does both. Not here: serving (process.py).
"""

from __future__ import annotations

import sys

from aileron.hidden.process import work_hidden

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Run ingress. Return 0 when the daemon sent Stop, 1 if the child was traced or ended otherwise."""
    return work_hidden(int(arguments[0]), _serve)


def _serve(control: int) -> int:
    from aileron.ingress.process import (
        serve_control,  # not before: imports belong in the memory of the process that keeps them
    )

    return serve_control(control)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
