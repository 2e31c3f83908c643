"""What the process of logins gives up before its first login, and each login more before it reads its order.

    process    files, new sockets, executing, looking into others; may fork, and confine what it forked
    login      the same, and forks no more; it has three descriptors, and ends in time whatever it does

Whoever takes a login over has the one secret that it was given, the one service and the one stream.

Source: seccomp(2), setrlimit(2), alarm(2); docs/adr/0057-logins.md. Not here: how (aileron/hidden/confine.py).
"""

from __future__ import annotations

import gc
import math
import os
import resource
import signal
from typing import Final

from aileron.hidden import confine as hidden
from aileron.hidden.process import die_with_parent
from aileron_sandbox import kernel
from aileron_sandbox.filters import compile_login

__all__ = ["Confinement"]

DATA_BYTES: Final = 256 << 20
"""RLIMIT_DATA of each process by itself. A login has a few buffers of 256 KiB; the libraries of `ssh` are 60 MiB before it."""
LOG_BYTES: Final = 32 << 20
"""RLIMIT_FSIZE: standard error is the daemon's log, which is put aside at 5 MiB."""
CPU_S: Final = 600
"""RLIMIT_CPU of each process by itself: a stream of hours costs minutes. For what goes round in circles."""
ORDER_S: Final = 60.0
"""For its order to come: what is written down and connected to meanwhile has shorter deadlines."""
_GRACE_S: Final = 5.0
_OTHERS: Final = 3  # behind standard input, output and error


class Confinement:
    """Compiled while files can be opened; applied twice."""

    def __init__(self) -> None:
        """AileronError(sandbox_unavailable) without libseccomp."""
        self._process: Final = hidden.compiled(lambda: compile_login(forks=True), "nothing logs in")
        self._login: Final = hidden.compiled(lambda: compile_login(forks=False), "nothing logs in")

    def confine_process(self) -> None:
        """Before the first login. OSError where the kernel cannot."""
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
        hidden.confine(self._process, data_bytes=DATA_BYTES, file_bytes=LOG_BYTES)
        gc.collect()
        gc.freeze()  # what is there is shared with each fork until one writes to it

    def confine_login(self, keep: int) -> None:
        """In the fork, first of all: `keep` is its one descriptor."""
        die_with_parent()
        self.end_after(ORDER_S)
        os.dup2(1, 2)  # what it has to say it says to the daemon: a traceback could quote anything
        if keep > _OTHERS:
            kernel.close_range(_OTHERS, keep - 1)
        kernel.close_range(keep + 1)
        self._login.install()

    def end_after(self, seconds: float) -> None:
        """It ends then, if it has not by itself."""
        signal.alarm(math.ceil(seconds + _GRACE_S))
