"""The program's side: it hides, and works in a child that no other process ever could look into.

    exec ── may be looked into ──► undumpable ── new control socket ──► fork ──► child: imports, works
                                                                         └── waits for it

Between execve(2) and the prctl(2) below, any process of the same user may open this one's memory, and keep it open: it could read
later secrets there. A fork has a memory of its own. Likewise any of them may take a descriptor of this process, with the data
that comes over it. So no secret comes over the socket that it was started with: it makes another when it is hidden, and passes
the other end to the daemon, which accepts it from this process alone. A tracer that attached in time to follow it is detected
(`TracerPid`), and then no work is done. Both processes die with the daemon, at once.

A process that wrote into this one before it hid, or traced it and let go in time, is not detected.

Source: prctl(2), ptrace(2), pidfd_getfd(2), proc_pid_mem(5); docs/adr/0017-signed-decisions.md, which does the same for the
approver's key.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from aileron_sandbox import kernel

__all__ = ["die_with_parent", "work_hidden"]


def work_hidden(seen: int, work: Callable[[int], int]) -> int:
    """Hide, and call `work` with a new control socket in a child. `seen` is the socket that the program was started with.

    `work` must import what it needs itself, so that this is in the child's own memory. Return 0 if the child ended with 0; 1 if
    it ended otherwise, or if a process was traced. In the child, return the result of `work`.
    """
    _hide()
    if _is_traced():
        return 1
    control = _control_passed_over(seen)
    here = os.getpid()
    child = os.fork()
    if child:
        os.close(control)
        return 0 if os.waitpid(child, 0)[1] == 0 else 1
    _hide()
    if os.getppid() != here or _is_traced():
        return 1
    return work(control)


def die_with_parent() -> None:
    """Make the kernel kill this process when its parent ends. A fork must call this again."""
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)


def _hide() -> None:
    """Prevent other processes from looking into this one from now on, and make it end with its parent."""
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    die_with_parent()


def _control_passed_over(seen: int) -> int:
    """Make a control socket, pass one end to the daemon, and return ours. It is passed over the first socket, which others may
    have by now, but only the daemon reads there, and the kernel tells it that this process sent it.
    """
    import socket  # not before this process is hidden: it takes time

    control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, socket.socket(fileno=seen) as with_daemon:
        socket.send_fds(with_daemon, [b"hidden"], [theirs.fileno()])
    return control.detach()


def _is_traced() -> bool:
    with open("/proc/self/status", encoding="ascii") as status:  # not by pathlib: 2 MB in a program that only waits
        return "TracerPid:\t0\n" not in status
