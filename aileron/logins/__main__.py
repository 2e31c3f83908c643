"""The program that the daemon executes: `python -m aileron.logins SOCKET_FD PROTOCOL…`. The program hides itself (no other
process can inspect it), and does its work in a child process that was hidden from its first moment.

Source: aileron/isolated/process.py. Not here: what the child does (process.py).
"""

from __future__ import annotations

import sys

from aileron.isolated.process import work_isolated

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Run the program. Return 0 when the daemon closed the socket, or 1 if the child process was traced or ended in another
    way.
    """
    seen, *protocols = arguments

    def work(control: int) -> int:
        from aileron.logins.process import serve_control  # not earlier: the child imports it into its own memory

        return serve_control(control, protocols)

    return work_isolated(int(seen), work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
