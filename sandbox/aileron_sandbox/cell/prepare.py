"""The program that becomes a cell: it leaves the host's namespaces, and forks the first process of the new ones.

Started by stub.py as `python -I -S -X utf8` with an empty environment and the control socket, one thread, nothing of the agent's.
It looks for what is closed to others, says what it found, and compiles the filter: both are the same whichever cell it will be.
Then it waits to be told which. It stays outside of the new pid namespace, as a stub that waits for the first process and dies
with the host; what is said afterwards the first process says.

    host ── exec ──> stub ── fork ──> init (pid 1) ── fork ──> agent

Source: pid_namespaces(7), user_namespaces(7). Not here: the root (mounts.py), what happens in it (init.py).
"""

from __future__ import annotations

import _socket
import os
import struct
import sys

from aileron_sandbox import kernel
from aileron_sandbox.cell import init
from aileron_sandbox.cell.closed import closed_below, encode_closed
from aileron_sandbox.cell.messages import GO, LOOKED, MAX_DATAGRAM, Preparation, pack_failed
from aileron_sandbox.template import namespaces, privileges

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final, NoReturn

__all__ = ["main"]

_SIGKILL: Final = 9
_INT: Final = struct.Struct("i")
_MAX_TOLD: Final = 4
"""Descriptors that come with what is told: the preparation, and the agent's ends of three pipes."""
_OOM_SCORE: Final = 500
"""Where the whole machine is out of memory, what runs in a cell goes before what does not, proc_pid_oom_score_adj(5)."""


def main(control_fd: int, look_at: list[str]) -> NoReturn:
    """Prepare, and wait for the end of the cell. `look_at` are directories for closed.py. Never returns."""
    # `_socket` and not `socket`, which imports `enum`: 8 ms of a cell's forty (measured).
    control = _socket.socket(fileno=control_fd)
    step = "start"
    try:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, _SIGKILL)
        _go_before_others()
        os.umask(0o022)  # the host's may be 077, and comes back for the agent
        if look_at:
            _say_closed(control, look_at)
        filter_, missing = _compiled()
        # The host has put this process into its control group by then.
        preparation = _told(control)
        if missing:
            init.say_failed(control, pack_failed(0, "seccomp", missing))
        step = "namespaces and root"
        uid, gid = os.getuid(), os.getgid()  # after the unshare they read 65534
        if uid == 0:
            os.setgroups([])  # an ordinary user may not leave the groups he is in, user_namespaces(7)
        proc = os.open("/proc", os.O_PATH | os.O_CLOEXEC)
        sockets = _sockets()
        kernel.unshare(namespaces.TEMPLATE)
        namespaces.map_ids(proc, uid, gid, inside=uid, inside_group=gid)
        os.close(proc)
        step = "pid namespace"
        privileges.set_dumpable(False)
        child = os.fork()
    except ConnectionError:  # nobody needs it any more, or the host has ended: nothing that anybody has to read
        os._exit(0)
    except OSError as error:
        init.say_failed(control, pack_failed(error.errno or 0, step, str(error.strerror or error)))
    if child == 0:
        init.main(control, preparation, sockets, kernel.Filter(filter_))
    control.close()  # or the end of the first process would not be the end of the socket
    kernel.close_range(0)
    os.waitpid(child, 0)  # returns when everything in the namespace is gone
    os._exit(0)


def _say_closed(control: _socket.socket, look_at: list[str]) -> None:
    with open(os.memfd_create("closed", os.MFD_CLOEXEC), "w+b") as file:
        file.write(encode_closed(closed_below(look_at)))
        file.seek(0)
        control.sendmsg([LOOKED], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, _INT.pack(file.fileno()))])


def _compiled() -> tuple[bytes, str]:
    """The filter, or why there is none: which is said when it was told, and not while the host still writes."""
    try:
        _find_libraries_by_name()
        from aileron_sandbox.filters import compile_cell  # 20 ms with libseccomp, while the host has other things to do

        return compile_cell(), ""
    except (ImportError, RuntimeError, OSError) as error:
        return b"", f"cannot use libseccomp: {error}"


def _find_libraries_by_name() -> None:
    """Where the loader finds pyseccomp's two by their names, dlopen(3), it need not ask ctypes.util, which starts ldconfig, and
    imports for 12 ms what that takes.
    """
    import ctypes

    names = {"c": "libc.so.6", "seccomp": "libseccomp.so.2"}
    try:
        for name in names.values():
            ctypes.CDLL(name)
    except OSError:
        return  # another C library, or none of it: ctypes.util looks in more places
    util = type(ctypes)("ctypes.util")
    util.__dict__["find_library"] = names.get
    sys.modules["ctypes.util"] = util
    ctypes.__dict__["util"] = util


def _told(control: _socket.socket) -> Preparation:
    """Which cell it is, with the agent's ends of pipes by the numbers that they have here. Waits as long as the host is there."""
    rights = _socket.CMSG_SPACE(_INT.size * _MAX_TOLD)
    data, ancillary, _, _ = control.recvmsg(MAX_DATAGRAM, rights, _socket.MSG_CMSG_CLOEXEC)
    if data != GO:  # nothing: the host is gone
        os._exit(0)
    fds = [fd for _, _, packed in ancillary for (fd,) in _INT.iter_unpack(packed)]
    with open(fds.pop(0), "rb") as file:
        preparation = Preparation.decode(file.read())
    first, second, third = (fds.pop(0) if stream == "pipe" else -1 for stream in preparation.streams)
    preparation.pipes = (first, second, third)
    return preparation


def _sockets() -> list[str]:
    """The paths that programs outside are bound to, in the network namespace that this one is about to leave, proc_net(5)."""
    with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as file:
        next(file)
        found = [line.rstrip("\n").split(None, 7)[7:] for line in file]
    return [path for names in found for path in names if path.startswith("/")]


def _go_before_others() -> None:
    with open("/proc/self/oom_score_adj", "r+b", buffering=0) as file:
        if int(file.read(16)) < _OOM_SCORE:
            file.write(b"%d" % _OOM_SCORE)
