"""Confines the process that forks logins, before its first login. Confines each login's process further, before that
process reads its order.

    process    gives up files, new sockets, executing programs, inspecting processes; may fork, and confine its forks
    login      gives up the same, and forking; it has three descriptors, and always ends by its deadline

An attacker who takes over a login has its one secret, its one service and its one stream.

Source: seccomp(2), setrlimit(2), alarm(2); docs/adr/0057-logins.md. Not here: how a process is confined
(aileron/isolated/confine.py).
"""

from __future__ import annotations

import gc
import math
import os
import resource
import signal
from typing import Final

from aileron.isolated import confine as hidden
from aileron.isolated.process import die_with_parent
from aileron_sandbox import kernel
from aileron_sandbox.filters import compile_login

__all__ = ["Confinement"]

DATA_BYTES: Final = 256 << 20
"""RLIMIT_DATA in bytes, for each process separately. A login has a few buffers of 256 KiB; the libraries of `ssh` take 60 MiB
before the login starts.
"""
LOG_BYTES: Final = 32 << 20
"""RLIMIT_FSIZE in bytes. It bounds standard error, which is the daemon's log and is rotated at 5 MiB."""
CPU_S: Final = 600
"""RLIMIT_CPU in seconds, for each process separately. It ends endless loops; a stream that lasts hours takes only
minutes of CPU time.
"""
ORDER_S: Final = 60.0
"""Seconds that a forked login waits for its order. Meanwhile the daemon writes a record and connects, with shorter deadlines."""
_GRACE_S: Final = 5.0
_OTHERS: Final = 3  # first descriptor after standard input, output and error


class Confinement:
    """The system call filters of the process that forks logins, and of a login's own process. They are compiled while
    files can still be opened, and applied in two stages.
    """

    def __init__(self) -> None:
        """Compile both filters. Raise AileronError(sandbox_unavailable) if libseccomp is missing."""
        self._process: Final = hidden.compiled(lambda: compile_login(forks=True), "nothing logs in")
        self._login: Final = hidden.compiled(lambda: compile_login(forks=False), "nothing logs in")

    def confine_process(self) -> None:
        """Confine the process that forks logins, before its first login. Raise OSError if the kernel does not support
        the confinement.
        """
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
        hidden.confine(self._process, data_bytes=DATA_BYTES, file_bytes=LOG_BYTES)
        gc.collect()
        gc.freeze()  # existing objects are shared with each fork until one writes to them

    def confine_login(self, keep: int) -> None:
        """Confine the forked process of one login before it does anything else. `keep` is the only descriptor that
        stays open.
        """
        die_with_parent()
        self.end_after(ORDER_S)
        os.dup2(1, 2)  # the login reports only to the daemon: a traceback on standard error could quote anything
        if keep > _OTHERS:
            kernel.close_range(_OTHERS, keep - 1)
        kernel.close_range(keep + 1)
        self._login.install()

    def end_after(self, seconds: float) -> None:
        """End the calling process after this many seconds and a grace period, if it has not ended by itself."""
        signal.alarm(math.ceil(seconds + _GRACE_S))
