"""The program that the daemon executes: `python -m aileron.mcp SOCKET_FD`. It hides its memory from other processes,
and serves in a child process.

The child's memory is hidden as soon as the child exists.

Source: aileron/isolated/process.py, which hides the process and forks the child. Not here: serving (process.py).
"""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Callable

from aileron.isolated.process import work_isolated

__all__ = ["import_server", "main"]


def main(arguments: list[str]) -> int:
    """Run the MCP process. Return 0 when the daemon closes the control socket, 1 if the child was traced or ended otherwise."""
    return work_isolated(int(arguments[0]), _serve)


def _serve(control: int) -> int:
    gc.disable()  # imports leave no garbage, and collecting would take a fifth of the start; enabled again in process.py
    atexit.register(gc.freeze)  # no collection at the exit either
    return import_server()(control)


def import_server() -> Callable[[int], int]:
    """Import the MCP server, and little else. Return the function that serves. Call this only after the process has hidden
    itself from other processes, because imports stay in its memory.
    """
    from aileron.mcp.sdk import import_little

    import_little()
    from aileron.mcp.models import build_served, built_when_used

    with built_when_used():
        from aileron.mcp.process import serve_control
    build_served()
    return serve_control


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
