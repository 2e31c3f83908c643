"""What the daemon executes: `python -m aileron.ingress CONTROL_FD`. Hides, and serves in a child that nobody ever saw.

    exec ── may be looked into ──► undumpable ── fork ──► child: imports, serves (process.py)
                                        └── waits for it

Between execve(2) and the prctl(2) below, any process of the same user may open this one's memory, and keep it open: what is
typed into the page would be read there. A fork has a memory of its own. Whoever attached in time to follow it is seen
(`TracerPid`), and nothing is served. Both die with the daemon, at once: they have its ports.

Source: prctl(2), ptrace(2), proc_pid_mem(5); docs/adr/0017-signed-decisions.md, which does the same for the approver's key.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from aileron_sandbox import kernel

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """0 when the daemon said stop, 1 where the child was traced or ended otherwise."""
    control = int(arguments[0])
    _hide()
    here = os.getpid()
    child = os.fork()
    if child:
        os.close(control)
        return 0 if os.waitpid(child, 0)[1] == 0 else 1
    _hide()
    if os.getppid() != here or _is_traced():
        return 1
    from aileron.ingress.process import (
        serve_control,  # not before: what is imported is done in the memory that it stays in
    )

    return serve_control(control)


def _hide() -> None:
    """Nobody may look into it from now on, and it ends with whoever started it; a fork has to say the latter anew."""
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)


def _is_traced() -> bool:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return "TracerPid:\t0\n" not in status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
