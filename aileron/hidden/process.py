"""The program's side: hides, and works in a child that nobody ever saw.

    exec ── may be looked into ──► undumpable ── new control socket ──► fork ──► child: imports, works
                                                                         └── waits for it

Between execve(2) and the prctl(2) below, any process of the same user may open this one's memory, and keep it open: what comes
later would be read there. A fork has a memory of its own. Likewise any of them may take a descriptor of this process, with what
comes over it. So nothing comes over the socket that it was started with: it makes another when it is hidden, and passes its end
to the daemon, which takes it from this process alone. Whoever attached in time to follow it is seen (`TracerPid`), and nothing
is done. Both die with the daemon, at once.

Who wrote into this process before it hid, or traced it and let go in time, is not found out.

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
    """`seen` is the socket that the program was started with. `work` gets the control socket, in the child, and imports what it
    needs there: in the memory that it stays in. 0 when that returned 0, 1 where the child was traced or ended otherwise.
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
    """From now on; a fork has to say it anew."""
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)


def _hide() -> None:
    """Nobody may look into it from now on, and it ends with whoever started it."""
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    die_with_parent()


def _control_passed_over(seen: int) -> int:
    """Our end of a new control socket. The other goes over the one that others may have by now, from which only the daemon
    reads; the kernel tells it that it was we who sent it.
    """
    import socket  # not before this process is hidden: it takes time

    control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, socket.socket(fileno=seen) as with_daemon:
        socket.send_fds(with_daemon, [b"hidden"], [theirs.fileno()])
    return control.detach()


def _is_traced() -> bool:
    with open("/proc/self/status", encoding="ascii") as status:  # not by pathlib: 2 MB in a program that only waits
        return "TracerPid:\t0\n" not in status
