"""The helper program's side: the program hides its memory, and works in a child whose memory no other process could ever read.

    exec ── may be looked into ──► undumpable ── new control socket ──► fork ──► child: imports, works
                                                                         └── waits for it

Between execve(2) and the prctl(2) below, any process of the same user can open this process's memory, and keep it open
to read later secrets. Therefore the work is done in a fork, which has memory of its own. Likewise, any such process can
copy a descriptor of this process, and receive its data. So no secret is sent over the socket with which this process
was started. Once this process is hidden, it makes another socket and passes one end to the daemon, which accepts that
end from this process alone. A tracer that attached before is detected (`TracerPid`), and then no work is done. Both
processes end at once when the daemon ends.

A process that wrote into this process's memory before it hid, or traced it and detached in time, is not detected.

Source: prctl(2), ptrace(2), pidfd_getfd(2), proc_pid_mem(5); docs/adr/0017-signed-decisions.md, which does the same for the
approver's key.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from aileron_sandbox import kernel

__all__ = ["die_with_parent", "work_isolated"]


def work_isolated(seen: int, work: Callable[[int], int]) -> int:
    """Hide this process's memory from other processes, and call `work` in a child with a new control socket to the
    daemon. `seen` is the descriptor of the socket with which the daemon started this program.

    `work` itself must import the modules that it needs, so that they are in the child's own memory. Return 0 if the
    child ended with 0; 1 if it ended otherwise, or if a process was traced. In the child, return the result of `work`.
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
    """Make the kernel kill this process when its parent ends. A child of fork(2) must call this function again."""
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)


def _hide() -> None:
    """Prevent other processes from reading this one's memory from now on, and make this process end with its parent."""
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    die_with_parent()


def _control_passed_over(seen: int) -> int:
    """Make a control socket, send one end to the daemon over the socket `seen`, and return the descriptor of the other
    end. Other processes may have copied `seen`, but the kernel tells the daemon the sender's process id.
    """
    import socket  # not before this process is hidden: it takes time

    control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, socket.socket(fileno=seen) as with_daemon:
        socket.send_fds(with_daemon, [b"hidden"], [theirs.fileno()])
    return control.detach()


def _is_traced() -> bool:
    with open("/proc/self/status", encoding="ascii") as status:  # not by pathlib: 2 MB in a program that only waits
        return "TracerPid:\t0\n" not in status
