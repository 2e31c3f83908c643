"""The ways in which a child can end, one class each.

`Exited`, `Signalled`, `OverLimit` and `NetworkAttempt` are endings of a program that ran confined. `RefusedToStart`
means that the confinement could not be completed, and no line of the program ran, because the jail never starts with
a layer missing.
"""

from __future__ import annotations

import dataclasses
import errno as _errno
import os
import signal
from typing import Literal

__all__ = ["Ending", "Exited", "NetworkAttempt", "OverLimit", "RefusedToStart", "Signalled", "Usage"]


@dataclasses.dataclass(frozen=True)
class Usage:
    """Processor time and memory of the child, as counted by the kernel (getrusage(2), RUSAGE_CHILDREN for this child only)."""

    cpu_ms: int
    max_rss_kib: int


@dataclasses.dataclass(frozen=True)
class Exited:
    """Ending: the program returned or called exit; `code` is its status, 0 to 255."""

    code: int
    usage: Usage


@dataclasses.dataclass(frozen=True)
class Signalled:
    """Ending: a signal ended the program. The seccomp filter sends `SIGSYS` for a call that no honest program makes."""

    signal: int
    """The signal's number, which is in signal.Signals or is a real-time signal."""
    usage: Usage

    @property
    def name(self) -> str:
        """The signal's name, such as `SIGTERM`, or `signal 40`, because Python names only the first and last of the
        real-time signals.
        """
        try:
            return signal.Signals(self.signal).name
        except ValueError:
            return f"signal {self.signal}"


@dataclasses.dataclass(frozen=True)
class OverLimit:
    """Ending: the program exceeded a limit and was killed: by the kernel, or by the host where the kernel limits only
    single processes.
    """

    limit: Literal["cpu", "memory"]
    usage: Usage


@dataclasses.dataclass(frozen=True)
class NetworkAttempt:
    """Ending: the program tried to reach a network by itself and was ended. No byte was sent, because the call was
    never executed.

    `destination` is `network:ADDRESS:PORT`, `network:NAME:PORT` if the program looked up a name first, or
    `network:unknown`. The destination is the program's own claim, and may be false.
    """

    destination: str
    usage: Usage


@dataclasses.dataclass(frozen=True)
class RefusedToStart:
    """Ending: a step of the confinement failed, so the program was never run."""

    step: str
    errno: int

    def __str__(self) -> str:
        name = _errno.errorcode.get(self.errno, str(self.errno))
        return f"confinement failed at {self.step}: {name} ({os.strerror(self.errno)})"


Ending = Exited | Signalled | OverLimit | NetworkAttempt | RefusedToStart
