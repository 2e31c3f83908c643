"""What the daemon executes: `python -m aileron.mcp SOCKET_FD`. Hides, and serves in a child that nobody ever saw.

Source: aileron/hidden/process.py, which does both. Not here: serving (process.py).
"""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Callable

from aileron.hidden.process import work_hidden

__all__ = ["import_server", "main"]


def main(arguments: list[str]) -> int:
    """0 when the daemon let go of it, 1 where the child was traced or ended otherwise."""
    return work_hidden(int(arguments[0]), _serve)


def _serve(control: int) -> int:
    gc.disable()  # what is imported is no garbage, and to look for some is a fifth of the start; on again in process.py
    atexit.register(gc.freeze)  # no last search either
    return import_server()(control)


def import_server() -> Callable[[int], int]:
    """Import what serves, and little else. Not before the process has hidden: it stays in the memory that it is done in."""
    from aileron.mcp.sdk import import_little

    import_little()
    from aileron.mcp.models import build_served, built_when_used

    with built_when_used():
        from aileron.mcp.process import serve_control
    build_served()
    return serve_control


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
