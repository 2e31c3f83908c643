"""What `client.start` executes: `python -m aileron.daemon HOME READY_FD`.

Says `ready` on READY_FD and closes it, or says why there is no daemon and exits 1. Without READY_FD it stays in the
foreground and says so on standard error.
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
    """0 after a clean stop or when a daemon already runs, 1 when none could be started."""
    gc.disable()  # until the rooms are built: what is imported is no garbage, and to look for some is a tenth of a start
    from aileron.daemon.begin import begin

    atexit.register(gc.freeze)  # no last search for cycles: whoever stops it waits for its end
    home = Home(Path(arguments[0]).absolute())
    ready_fd = int(arguments[1]) if len(arguments) > 1 else None

    def tell(word: str) -> None:
        line = word.encode()[: 3 << 10]  # one piece: PIPE_BUF is 4096
        if ready_fd is None:
            sys.stderr.write(word + "\n")
        else:
            with contextlib.suppress(BrokenPipeError):  # whoever asked has gone meanwhile; others may come
                os.write(ready_fd, line)
            os.close(ready_fd)

    return begin(home, tell)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
