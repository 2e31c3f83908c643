"""The program that `client.start` executes: `python -m aileron.daemon HOME READY_FD`.

Writes `ready` to READY_FD and closes it, or writes why the daemon cannot start and exits with status 1. Without READY_FD, the
program stays in the foreground and writes the same text to standard error.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
from pathlib import Path

from aileron.home import Home

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Run the daemon. Return 0 after a clean stop or if a daemon already runs, 1 if the daemon could not be started."""
    gc.disable()  # until the rooms are built: imports make no garbage, and searching for it takes a tenth of a start
    from aileron.daemon.begin import begin

    atexit.register(gc.freeze)  # no last search for cycles: the command that stops the daemon waits for its end
    home = Home(Path(arguments[0]).absolute())
    ready_fd = int(arguments[1]) if len(arguments) > 1 else None

    def tell(word: str) -> None:
        line = word.encode()[: 3 << 10]  # one piece: PIPE_BUF is 4096
        if ready_fd is None:
            sys.stderr.write(word + "\n")
        else:
            with contextlib.suppress(BrokenPipeError):  # the client that started it has gone; others may come
                os.write(ready_fd, line)
            os.close(ready_fd)

    return begin(home, tell)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
