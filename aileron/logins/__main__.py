"""What the daemon executes: `python -m aileron.logins SOCKET_FD PROTOCOL…`. Hides, and forks from a child that nobody ever saw.

Source: aileron/hidden/process.py. Not here: what the child does (process.py).
"""

from __future__ import annotations

import sys

from aileron.hidden.process import work_hidden

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """0 when the daemon let go of it, 1 where the child was traced or ended otherwise."""
    seen, *protocols = arguments

    def work(control: int) -> int:
        from aileron.logins.process import serve_control  # not before: it is imported in the memory that it stays in

        return serve_control(control, protocols)

    return work_hidden(int(seen), work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
