"""The first process of a cell. It builds the root, makes the descriptors for the host, starts the agent, reaps
processes, and reports how the agent ended.

It is pid 1, so everything in the namespace ends with it, and it ends when the agent does, when the host closes the
control socket, or with the stub that forked it. It is not dumpable, has no capability by the time the agent exists,
and is outside the agent's Landlock domain: no process in the cell can attach to it or signal it. It reads nothing
from the agent but wait statuses.

With a terminal, this process is the leader of the terminal's session, and the agent has a process group of its own in
that session, in the foreground. So the agent's parent is in the same session but in another group; otherwise the
agent's group would be orphaned, and could not be stopped (setpgid(2)). If the agent is stopped, this process reports
that to the host. The host then stops itself too, and when it continues, it sends SIGCONT to the agent.

Rules
- One thread, one poll(2), no other blocking call.
- Every import happens before the root changes: afterwards the standard library is no longer at its path.
- If a step fails, its name is reported and the agent is not started.

Source: pid_namespaces(7), credentials(7), tty_ioctl(4), wait(2). Not here: the mounts (mounts.py), the lists of system
calls (filters.py).
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # not `signal`, which imports `enum`: prepare.py
import _socket
import errno
import fcntl
import os
import resource
import select
import struct

from aileron_sandbox import kernel
from aileron_sandbox.cell import landlock, mounts
from aileron_sandbox.cell.cell_messages import (
    BEGIN,
    BEGUN,
    CONNECT,
    CONNECTED,
    CONTINUED,
    ENDED,
    MAX_DATAGRAM,
    NOT_STARTED,
    READY,
    SIGNAL,
    STOPPED,
    Preparation,
    number_of,
    pack_failed,
    pack_number,
    pack_numbers,
)
from aileron_sandbox.template import privileges

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final, NoReturn

__all__ = ["main", "say_failed"]

_SCRATCH: Final = "/tmp"  # noqa: S108 - the cell's own
_TIOCSCTTY: Final = 0x540E
_TIOCGPTPEER: Final = 0x5441
_TIOCSPTLCK: Final = 0x40045431
_AF_NETLINK, _NETLINK_SOCK_DIAG = 16, 4
_LOOK: Final = os.O_RDONLY | os.O_CLOEXEC
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1
_IFREQ: Final = struct.Struct("16sh14x")
_BACKLOG: Final = 128
"""Backlog of the listeners: the maximum number of connections that wait to be accepted. The kernel's limit is 4096
(net.core.somaxconn).
"""
_LOOPBACK: Final = ((_socket.AF_INET, "127.0.0.1"), (_socket.AF_INET6, "::1"))
_IGNORED: Final = tuple(
    getattr(_signal, name) for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTSTP", "SIGTTIN", "SIGTTOU")
)
"""Signals that a terminal sends to the leader of its session. pid 1 receives none of them by default, but must ignore
SIGTTOU to be able to choose the foreground group.
"""
_RESTORED: Final = (_signal.SIGPIPE, _signal.SIGXFSZ, _signal.SIGCHLD)
"""Other signals whose handling Python or this module changes, so that it must be reset for the agent."""
_FAILED: Final = 3
"""Descriptor number of the pipe that reports that the agent's program could not be executed. A successful exec closes it."""
_SCHED_DEADLINE: Final = 6  # sched(7)
_ASIDE: Final = 64  # above every target, so that no dup2 overwrites a source
_NOT_FOUND: Final = (errno.ENOENT, errno.ENOTDIR, errno.EACCES)
_DEFAULT_PATH: Final = "/usr/local/bin:/usr/bin:/bin"


def main(control: _socket.socket, preparation: Preparation, sockets: list[str], filter_: kernel.Filter) -> NoReturn:
    """Run the first process of the cell, right after the fork. `sockets` are the paths to which programs on the host
    have bound Unix sockets. Never returns.
    """
    root = mounts.Root(preparation, sockets)
    step = "pid namespace"
    try:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, _signal.SIGKILL)
        if os.getppid() != 0:
            raise OSError(errno.EINVAL, "the parent is in the same pid namespace")
        os.setsid()
        kernel.join_new_session_keyring()
        kernel.set_hostname(b"cell")
        last_capability = kernel.last_capability()  # now, while the host's /proc is visible
        step = "loopback"
        _set_loopback_up()
        step = ""  # `root` has its own steps
        root.build()
        root.enter()
        step = "landlock"
        abi = kernel.landlock_abi()
        ruleset = landlock.maybe_ruleset(abi, _writable(preparation))
        if ruleset is not None:
            ruleset = fcntl.fcntl(ruleset, fcntl.F_DUPFD_CLOEXEC, _ASIDE)
        step = "terminal"
        terminal, master = _make_terminal() if "terminal" in preparation.streams else (-1, -1)
        step = "listeners"
        listeners = _listen(preparation)
        step = "folder"
        os.chdir(preparation.folder)
        os.chdir("/")
        step = "privileges"
        kernel.drop_bounding_set(last_capability)
        kernel.drop_capabilities()
        privileges.refuse_new_privileges()
        step = "init"
        first = _Init(control, preparation, terminal, ruleset, filter_)
        scratch = [os.open(path, os.O_PATH | os.O_CLOEXEC) for path in (_SCRATCH, preparation.home)]
        own = [os.pidfd_open(os.getpid()), *scratch, *_held(), *([master] if master >= 0 else [])]
        passed = own + [listener.fileno() for _, made in listeners for listener in made]
        counts = tuple(len(made) for _, made in listeners)
        _send(control, pack_numbers(READY, (abi, int(root.bounds_processes), *counts)), passed)
        for fd in own:
            os.close(fd)
        for _, made in listeners:
            for listener in made:
                listener.close()
    except ConnectionError:  # the host has ended
        os._exit(0)
    except OSError as error:
        say_failed(control, pack_failed(error.errno or 0, step or root.step, error.strerror or str(error)))
    except Exception as error:  # noqa: BLE001 - the end of a process: its last message is all that the host learns
        say_failed(control, pack_failed(0, step or root.step, repr(error)))
    first.serve()
    os._exit(0)


def say_failed(control: _socket.socket, failure: bytes) -> NoReturn:
    """Send `failure`, a datagram of `pack_failed`, to the host, if the host still exists, and end this process."""
    try:
        control.send(failure)
    finally:  # even if the host has ended
        os._exit(1)


class _Init:
    """The event loop of a cell's first process, from the time when the cell's root is built until the agent ends."""

    def __init__(
        self,
        control: _socket.socket,
        preparation: Preparation,
        terminal: int,
        ruleset: int | None,
        filter_: kernel.Filter,
    ) -> None:
        self._control = control
        self._preparation = preparation
        self._terminal = terminal
        self._ruleset = ruleset
        self._filter = filter_
        self._agent = 0
        self._is_stopped = False
        for number in _IGNORED:
            _signal.signal(number, _signal.SIG_IGN)
        self._woken, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        _signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        _signal.signal(_signal.SIGCHLD, _nothing)

    def serve(self) -> None:
        """Handle the host's messages and ended processes until the agent has ended or the host has disconnected."""
        poll = select.poll()
        poll.register(self._control.fileno(), select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            try:
                if self._woken in ready:
                    os.read(self._woken, 4096)
                    if self._reap():
                        return
                if self._control.fileno() in ready and not self._take(self._control.recv(MAX_DATAGRAM)):
                    return
            except ConnectionError:
                return

    def _take(self, data: bytes) -> bool:
        """Handle one datagram from the host. Return False if the host has disconnected, or the agent could not start."""
        kind = data[:1]
        if kind == BEGIN:
            return self._has_begun()
        if kind == SIGNAL:
            self._signal(number_of(data))
        elif kind == CONNECT:
            self._connect(number_of(data))
        return bool(data)

    def _reap(self) -> bool:
        """Reap all processes that have ended, and report when the agent stops, continues or ends. Return True if the
        agent has ended.
        """
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:
                return False
            if pid == 0:
                return False
            if pid != self._agent:
                continue
            if os.WIFSTOPPED(status):
                self._is_stopped = True
                self._control.send(pack_number(STOPPED, os.WSTOPSIG(status)))
            elif os.WIFCONTINUED(status):
                self._is_stopped = False
                self._control.send(CONTINUED)
            else:
                self._control.send(pack_number(ENDED, status))
                return True

    def _has_begun(self) -> bool:
        """Start the agent. Return False if its program cannot be executed; the cell then ends."""
        if self._agent:
            return True
        read, write = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            os.close(read)
            _become_agent(self._preparation, self._terminal, self._ruleset, self._filter, write)
        os.close(write)
        failure = os.read(read, 4)  # returns at the exec or at a failure; the agent's program has not run before that
        os.close(read)
        if failure:
            self._control.send(NOT_STARTED + failure)
            return False
        self._agent = pid
        for fd in self._preparation.pipes:  # while the agent's ends are open here, too, the host reads no end of file
            if fd >= 0:
                os.close(fd)
        self._control.send(BEGUN)
        return True

    def _signal(self, number: int) -> None:
        if not self._agent:
            return
        group = self._agent
        try:
            if number == _signal.SIGCONT:
                if self._terminal >= 0 and self._is_stopped:
                    os.tcsetpgrp(self._terminal, group)
            elif self._terminal >= 0:
                group = os.tcgetpgrp(self._terminal) or group
            os.killpg(group, number)
        except ProcessLookupError:
            pass  # it has just ended, which is about to be reported
        except OSError:
            os.kill(self._agent, number)

    def _connect(self, port: int) -> None:
        """Begin to connect to this port of the cell's loopback, once for each address family, and send the sockets to
        the host. The host, not this process, waits until they are connected.
        """
        started = []
        number = errno.EAFNOSUPPORT
        for family, address in _LOOPBACK:
            try:
                made = _socket.socket(family, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC | _socket.SOCK_NONBLOCK)
                number = made.connect_ex((address, port))
            except OSError as error:
                number = error.errno or 0
                continue
            if number in (0, errno.EINPROGRESS):
                started.append(made)
            else:
                made.close()
        _send(self._control, pack_number(CONNECTED, 0 if started else number), [made.fileno() for made in started])
        for made in started:
            made.close()


def _nothing(_number: int, _frame: object) -> None:
    """Do nothing at SIGCHLD. This must be a handler, because without one Python does not write to the wakeup descriptor
    (signal.set_wakeup_fd).
    """


# Before the agent


def _set_loopback_up() -> None:
    with _Closing(_socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM | _socket.SOCK_CLOEXEC)) as device:
        answer = fcntl.ioctl(device.fileno(), _SIOCGIFFLAGS, _IFREQ.pack(b"lo", 0))
        _, flags = _IFREQ.unpack(answer)
        fcntl.ioctl(device.fileno(), _SIOCSIFFLAGS, _IFREQ.pack(b"lo", flags | _IFF_UP))


class _Closing:
    """A context manager that closes a raw `_socket.socket`, because that class is not a context manager."""

    def __init__(self, socket: _socket.socket) -> None:
        self._socket = socket

    def __enter__(self) -> _socket.socket:
        return self._socket

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def _writable(preparation: Preparation) -> tuple[str, ...]:
    targets = [target for _, target, is_writable, _ in preparation.binds if is_writable]
    if preparation.overlay is not None:
        targets.append(preparation.overlay[3])
    return (*mounts.WRITABLE, preparation.home, *targets)


def _held() -> list[int]:
    """Open the descriptors with which the host measures the memory of this network and IPC namespace (held.py):
    sock_diag, and the lists of System V objects. The lists are empty files if the kernel lacks System V IPC.
    """
    diagnostics = _socket.socket(_AF_NETLINK, _socket.SOCK_RAW | _socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG).detach()
    lists = [f"/proc/sysvipc/{name}" for name in ("shm", "sem", "msg")]
    return [diagnostics, *(os.open(path if os.path.exists(path) else "/dev/null", _LOOK) for path in lists)]


def _make_terminal() -> tuple[int, int]:
    """Make a terminal for the agent, and become the leader of its session. Return the descriptors of (the agent's end,
    the host's end).
    """
    master = os.open("/dev/pts/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    fcntl.ioctl(master, _TIOCSPTLCK, struct.pack("i", 0))
    terminal = fcntl.ioctl(master, _TIOCGPTPEER, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    fcntl.ioctl(terminal, _TIOCSCTTY, 0)
    return terminal, master


def _listen(preparation: Preparation) -> list[tuple[str, list[_socket.socket]]]:
    listeners = []
    for name, port in preparation.tcp_listeners:
        listeners.append((name, [made for at in _LOOPBACK if (made := _maybe_listener(*at, port)) is not None]))
    for name, path in preparation.unix_listeners:
        made = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
        made.bind(path)
        os.chmod(path, 0o600)
        made.listen(_BACKLOG)
        listeners.append((name, [made]))
    return listeners


def _maybe_listener(family: int, address: str, port: int) -> _socket.socket | None:
    """Return a socket that listens on this address, or None if it would need IPv6 and the machine or the cell has none."""
    try:
        made = _socket.socket(family, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
        made.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
        if family == _socket.AF_INET6:
            made.setsockopt(_socket.IPPROTO_IPV6, _socket.IPV6_V6ONLY, 1)
        made.bind((address, port))
    except OSError as error:
        if family == _socket.AF_INET6 and error.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
            return None
        raise
    made.listen(_BACKLOG)
    return made


def _send(control: _socket.socket, data: bytes, descriptors: list[int]) -> None:
    rights = struct.pack(f"{len(descriptors)}i", *descriptors)
    control.sendmsg([data], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)] if descriptors else [])


# The agent


def _become_agent(
    preparation: Preparation, terminal: int, ruleset: int | None, filter_: kernel.Filter, failed: int
) -> NoReturn:
    """Confine this child, and execute the agent. If that fails, write the errno to the pipe `failed`. Never returns."""
    try:
        os.setpgid(0, 0)
        if terminal >= 0:
            os.tcsetpgrp(terminal, os.getpid())  # SIGTTOU is ignored still
        fds = [
            terminal if stream == "terminal" else preparation.pipes[n] for n, stream in enumerate(preparation.streams)
        ]
        _arrange([*fds, failed])
        failed = _FAILED
        for number in (*_IGNORED, *_RESTORED):
            _signal.signal(number, _signal.SIG_DFL)
        os.chdir(preparation.folder)
        os.umask(preparation.umask)
        for kind, value in preparation.limits.items():
            most = resource.getrlimit(kind)[1]  # the host's own, which only a privileged process can raise
            value = value if most == resource.RLIM_INFINITY else min(value, most)
            resource.setrlimit(kind, (value, value))
        _be_no_better_than_others()
        if ruleset is not None:
            kernel.landlock_restrict_self(ruleset)
        filter_.install()
        kernel.close_range(_FAILED + 1)
        _execute(preparation.command, preparation.environment)
    except OSError as error:
        os.write(failed, struct.pack("!i", error.errno or errno.EIO))
    finally:
        os._exit(127)


def _be_no_better_than_others() -> None:
    """Reset a raised priority or real-time scheduling that this process has because root started it, so that the agent
    does not inherit it.
    """
    if os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR, _SCHED_DEADLINE):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    if os.getpriority(os.PRIO_PROCESS, 0) < 0:
        os.setpriority(os.PRIO_PROCESS, 0, 0)


def _arrange(sources: list[int]) -> None:
    """Move the source descriptors to 0, 1, 2 and `_FAILED`. Only `_FAILED` is closed by exec."""
    aside = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ASIDE) for fd in sources]
    for target, fd in enumerate(aside):
        os.dup2(fd, target, inheritable=target != _FAILED)


def _execute(command: tuple[str, ...], environment: dict[str, str]) -> NoReturn:
    """Execute a program that is looked up in the PATH of `environment`, execve(2). `os.execvpe` would import
    `warnings`, whose file is no longer visible.
    """
    name = command[0]
    if "/" in name:
        os.execve(name, command, environment)  # noqa: S606 - what a cell is for
    failure = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    for directory in environment.get("PATH", _DEFAULT_PATH).split(":"):
        try:
            os.execve(f"{directory or '.'}/{name}", command, environment)  # noqa: S606
        except OSError as error:
            if error.errno not in _NOT_FOUND:
                raise
            if error.errno == errno.EACCES:
                failure = error
    raise failure
