"""The program that becomes a cell: it leaves the host's namespaces, and forks the first process of the new ones.

Started by stub.py as `python -I -S -X utf8` with an empty environment and the control socket. It has one thread and no
data of the agent. It looks for files that are closed to other users, reports them, and compiles the seccomp filter:
neither depends on the cell's policy. Then it waits for the preparation. It stays outside the new pid namespace, as a
stub that waits for the first process and dies with the host; all later messages come from the first process.

    host ── exec ──> stub ── fork ──> init (pid 1) ── fork ──> agent

Source: pid_namespaces(7), user_namespaces(7). Not here: the root (mounts.py), what happens in it (init.py).
"""

from __future__ import annotations

import _socket
import os
import struct

from aileron_sandbox import kernel
from aileron_sandbox.cell import init
from aileron_sandbox.cell.cell_messages import GO, LOOKED, MAX_DATAGRAM, Preparation, pack_failed
from aileron_sandbox.cell.closed import closed_below, encode_closed
from aileron_sandbox.template import namespaces, privileges

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final, NoReturn

__all__ = ["main"]

_SIGKILL: Final = 9
_INT: Final = struct.Struct("i")
_MAX_TOLD: Final = 4
"""Maximum number of descriptors that come with `Go`: the preparation, and the agent's ends of three pipes."""
_OOM_SCORE: Final = 500
"""The oom_score_adj of a cell: the kernel kills its processes before others when the machine is out of memory,
proc_pid_oom_score_adj(5).
"""


def main(control_fd: int, look_at: list[str]) -> NoReturn:
    """Turn this process into a cell as the host orders over `control_fd`, and wait for the cell's end. `look_at` are
    the directories in which closed.py finds files that are closed to other users. Never returns.
    """
    # `_socket` and not `socket`, which imports `enum`: 8 ms of a cell's forty (measured).
    control = _socket.socket(fileno=control_fd)
    step = "start"
    try:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, _SIGKILL)
        _go_before_others()
        os.umask(0o022)  # the host's may be 077; the agent gets the host's again
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
            os.setgroups([])  # an ordinary user may not leave their groups, user_namespaces(7)
        proc = os.open("/proc", os.O_PATH | os.O_CLOEXEC)
        sockets = _sockets()
        kernel.unshare(namespaces.TEMPLATE)
        namespaces.map_ids(proc, uid, gid, inside=uid, inside_group=gid)
        os.close(proc)
        step = "pid namespace"
        privileges.set_dumpable(False)
        child = os.fork()
    except ConnectionError:  # the host has ended or no longer needs this process: there is nothing to report
        os._exit(0)
    except OSError as error:
        init.say_failed(control, pack_failed(error.errno or 0, step, str(error.strerror or error)))
    if child == 0:
        init.main(control, preparation, sockets, kernel.Filter(filter_))
    control.close()  # otherwise the socket would not end with the first process
    kernel.close_range(0)
    os.waitpid(child, 0)  # returns when everything in the namespace is gone
    os._exit(0)


def _say_closed(control: _socket.socket, look_at: list[str]) -> None:
    with open(os.memfd_create("closed", os.MFD_CLOEXEC), "w+b") as file:
        file.write(encode_closed(closed_below(look_at)))
        file.seek(0)
        control.sendmsg([LOOKED], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, _INT.pack(file.fileno()))])


def _compiled() -> tuple[bytes, str]:
    """Return the compiled seccomp filter and "", or b"" and the reason why there is none. The caller must report that
    reason only after it has received the host's Preparation, because the host may still be sending.
    """
    try:
        from aileron_sandbox.filters import compile_cell  # 20 ms with libseccomp, while the host has other things to do

        return compile_cell(), ""
    except (ImportError, RuntimeError, OSError) as error:
        return b"", f"cannot use libseccomp: {error}"


def _told(control: _socket.socket) -> Preparation:
    """Wait for the host's Preparation message, and return it with the received descriptors of the agent's pipes. Exit
    if the host has disconnected.
    """
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
    """Return the paths to which programs outside the cell have bound sockets, from the list of the host's network
    namespace, proc_net(5). Call this before the process leaves that namespace.
    """
    with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as file:
        next(file)
        found = [line.rstrip("\n").split(None, 7)[7:] for line in file]
    return [path for names in found for path in names if path.startswith("/")]


def _go_before_others() -> None:
    with open("/proc/self/oom_score_adj", "r+b", buffering=0) as file:
        if int(file.read(16)) < _OOM_SCORE:
            file.write(b"%d" % _OOM_SCORE)
