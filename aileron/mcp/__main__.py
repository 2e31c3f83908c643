"""The program that the daemon executes: `python -m aileron.mcp SOCKET_FD`. It hides itself, and serves in a child process.

No other process can have looked into the child before the child hides.

Source: aileron/isolated/process.py, which hides and forks. Not here: serving (process.py).
"""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Callable

from aileron.isolated.process import work_isolated

__all__ = ["import_server", "main"]


def main(arguments: list[str]) -> int:
    """Run the process that serves the protocol (MCP). Return 0 when the daemon closes the control socket, 1 if the child
    was traced or ended otherwise.
    """
    return work_isolated(int(arguments[0]), _serve)


def _serve(control: int) -> int:
    gc.disable()  # imports leave no garbage, and collections are a fifth of the start; on again in process.py
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
