"""The program that the daemon executes: `python -m aileron.ingress SOCKET_FD`. It hides its memory from other
processes, and serves in a child process.

The child's memory is hidden as soon as the child exists.

Source: aileron/isolated/process.py, which hides the process and forks the child. Not here: serving (process.py).
"""

from __future__ import annotations

import sys

from aileron.isolated.process import work_isolated

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Run ingress. Return 0 if the daemon sent Stop, and 1 if the child was traced or ended in another way."""
    return work_isolated(int(arguments[0]), _serve)


def _serve(control: int) -> int:
    # Imported by the child only, so that the modules are in its own memory.
    from aileron.ingress.process import serve_control

    return serve_control(control)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
