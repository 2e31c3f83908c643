"""Prepare a jail's root once, then fork a confined child per request.

Started by jail.py as `python -I -S -X utf8 -c …` with an empty environment and one inherited descriptor, the control
socket. It holds no secret, has one thread, and never runs a line of a program itself: a fork of it does, after
confine.steps. When the host goes away the control socket ends, this process exits, and as pid 1 of its pid namespace it
takes every child with it.

    host ── exec ──> stub ── fork ──> template (pid 1) ── fork ──> child (pid 1 of its own) ── confine ──> program

Rules
- Nothing that registers an at-fork handler may do so here: they double the price of a fork, and one thread needs none.
- Between taking a request and having closed its descriptors, nothing is forked but the child that gets them.
- What is imported here is in every child: the standard library and the host's `preload`. Its state is the same in all of
  them; a library that notices a fork by a new process id does not notice this one (both are pid 1).

Source: docs/explanation/jail.md; pid_namespaces(7) for the order of setns, unshare and fork.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import os
import select
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, NoReturn

from aileron_sandbox import kernel
from aileron_sandbox.template import (
    child,
    confine,
    descriptors,
    landlock,
    limits,
    mounts,
    namespaces,
    privileges,
    program,
)
from aileron_sandbox.template.messages import (
    FAILED_SIZE,
    MAX_DATAGRAM,
    MAX_REQUEST,
    Born,
    Ended,
    Failed,
    Preparation,
    Ready,
    Spawn,
    decode,
)

__all__ = ["main"]

_REHEARSALS: Final = 20
_IDLE_MS: Final = 2  # a host that asks again at once does so in 0.3; then a fork ahead would only be in the way
_IDLE_BESIDE_OTHERS_MS: Final = 10
"""A child that computes is done in less, and a fork beside it makes its end twice as long (measured). One that is still there
waits for its host."""
_RESERVE: Final = 2
"""Children that wait: two callers, or a step and the next one, come together more often than three. 1.5 MiB each."""
_NOBODYS: Final = 0  # the host counts its children from 1
_STATUS_BATCH: Final = 64 * FAILED_SIZE
_LAYERS: Final = (
    "user-ns", "mount-ns", "pid-ns", "net-ns", "ipc-ns", "uts-ns", "cgroup-ns", "pivoted-root",
    "no-capabilities", "no-new-privs", "rlimits", "seccomp:python",
)  # fmt: skip


class _Ready(NamedTuple):
    """What `_prepare` made: for the children, and for the loop."""

    prepared: confine.Prepared
    status_read: int
    own_pid_namespace: int
    announcement: Ready


def main(control_fd: int) -> NoReturn:
    """Prepare, say so, serve until the host closes the control socket."""
    control = socket.socket(fileno=control_fd)
    ready = _prepare(control)
    control.send(ready.announcement.encode())
    with contextlib.suppress(ConnectionError):  # the host went away while it was being told something
        _Template(control, ready).serve()
    os._exit(0)


def _prepare(control: socket.socket) -> _Ready:
    step = "start"
    try:
        preparation = Preparation.decode(control.recv(MAX_DATAGRAM))
        kernel.use_one_malloc_arena()
        os.umask(0o022)  # the host's may be 077, and the root is built by one id and read by another
        proc = descriptors.out_of_the_way(os.open("/proc", os.O_PATH | os.O_CLOEXEC))
        descriptors.reserve_targets()
        last_capability = kernel.last_capability()
        step = "landlock"
        abi = kernel.landlock_abi()
        step = "namespaces and root"
        if os.geteuid() == 0:
            _enter_as_root(preparation, proc)
        else:
            _enter_as_user(preparation, proc)
        kernel.set_hostname(b"jail")
        step = "pid namespace"
        _become_first_process(control)
        own_pid_namespace = os.open("self/ns/pid", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
        privileges.leave_session()
        privileges.refuse_new_privileges()
        step = "landlock"
        ruleset = descriptors.out_of_the_way(landlock.build_ruleset(abi))
        step = "preload"
        _preload(preparation)
        status_read, status_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        filter_ = kernel.Filter(bytes.fromhex(preparation.filter_hex))
        base = limits.measure_base(_read(proc, "self/statm"))
        privileges.set_dumpable(False)
    except OSError as error:
        print(f"aileron_sandbox: {step}: {error}", file=sys.stderr)
        control.send(Failed(0, error.errno or 0, step).encode())
        os._exit(child.CONFINEMENT_FAILED)
    status = descriptors.out_of_the_way(status_write)
    prepared = confine.Prepared(proc, status, ruleset, filter_, base, last_capability)
    return _Ready(prepared, status_read, own_pid_namespace, Ready([*_LAYERS, f"landlock:{abi}"], abi))


def _enter_as_root(preparation: Preparation, proc: int) -> None:
    """Build the root with real privilege (its sources may be below a 0700 home), then give the privilege up for good.

    The mounts made before the user namespace are locked in it: umount(2) of one is EINVAL there, mount_namespaces(7).
    """
    uid = namespaces.available_jail_uid(_read(proc, "self/uid_map"))
    kernel.unshare(kernel.CLONE_NEWNS)
    mounts.build_root(preparation)
    mounts.enter_root()
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    privileges.set_dumpable(True)  # lost with the ids, and needed to write the maps
    kernel.unshare(namespaces.TEMPLATE)
    namespaces.map_ids(proc, uid, uid)


def _enter_as_user(preparation: Preparation, proc: int) -> None:
    uid, gid = os.getuid(), os.getgid()  # after the unshare they read 65534
    kernel.unshare(namespaces.TEMPLATE)
    namespaces.map_ids(proc, uid, gid)
    mounts.build_root(preparation)
    mounts.enter_root()


def _become_first_process(control: socket.socket) -> None:
    """Fork into the new pid namespace; the parent stays behind as a stub that only waits, and dies with the host."""
    child = os.fork()
    if child:
        control.close()  # or the end of the host would not be the end of the socket
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)


def _preload(preparation: Preparation) -> None:
    """Import what every child would, from inside the root, without letting at-fork handlers in."""
    sys.path[:] = [mounts.SDK, preparation.stdlib, f"{preparation.stdlib}/lib-dynload"]
    sys.path_importer_cache.clear()
    # A program that imports the frames gets them from the jail's root; our own modules, which came from a host path that
    # is gone, stay alive in what refers to them.
    for name in [name for name in sys.modules if name.partition(".")[0] == "aileron_sandbox"]:
        del sys.modules[name]
    os.environ.clear()  # PEP 538 put LC_CTYPE there
    register = os.register_at_fork
    os.register_at_fork = _no_hooks
    try:
        for name in preparation.preload:
            __import__(name)
    except ImportError as error:
        raise OSError(errno.ENOENT, f"cannot import a preloaded module: {error}") from error
    finally:
        os.register_at_fork = register
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")
    program.rehearse(mounts.REHEARSAL, _REHEARSALS)
    gc.collect()
    gc.freeze()
    gc.disable()


def _no_hooks(**_hooks: object) -> None:
    """Stands in for os.register_at_fork during the preload: with one thread there is nothing to put right."""


def _read(proc: int, name: str) -> str:
    fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
    with open(fd, encoding="ascii") as file:
        return file.read()


class _Spare(NamedTuple):
    """A child that waits at its end of `door` to be told what it will run (child.py)."""

    pidfd: int
    pid: int
    door: socket.socket


class _Template:
    """The warm process while it serves: one loop, no thread, every wait in one poll.

    When nothing happens for a moment, children are forked ahead: what is the same for all is half of a child's price. The next
    requests are handed to them, and each is used once. Under load children are forked when they are asked for, which
    is no slower than it would be otherwise.
    """

    def __init__(self, control: socket.socket, ready: _Ready) -> None:
        self._control = control
        self._prepared = ready.prepared
        self._status_read = ready.status_read
        self._own_pid_namespace = ready.own_pid_namespace
        self._children: dict[int, tuple[int, int]] = {}  # pidfd -> (child, pid)
        self._reserve: deque[_Spare] = deque()
        # Until the next request: what ends a child ahead of its time, or forbids the fork, would do so again at once.
        self._may_fork_ahead = True
        # poll(2), not epoll(7): a fork keeps an epoll registration of a closed pidfd alive (measured).
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._poll.register(self._status_read, select.POLLIN)

    def serve(self) -> None:
        """Return when the host is gone."""
        while True:
            ready = [fd for fd, _ in self._poll.poll(self._idle_ms())]
            if not ready:
                self._fork_ahead()
            ended = [fd for fd in ready if fd in self._children]
            if ended or self._status_read in ready:
                # Before any end is told, so that "could not start" always comes first.
                self._pass_on_failures()
            for pidfd in ended:
                self._reap(pidfd)
            if self._control.fileno() in ready and not self._take_request():
                return

    def _idle_ms(self) -> int | None:
        """How long nothing must happen until a child is forked ahead; None for not at all."""
        if not self._may_fork_ahead or len(self._reserve) >= _RESERVE:
            return None
        return _IDLE_MS if len(self._children) == len(self._reserve) else _IDLE_BESIDE_OTHERS_MS

    def _pass_on_failures(self) -> None:
        try:
            batch = os.read(self._status_read, _STATUS_BATCH)
        except BlockingIOError:
            return
        for start in range(0, len(batch), FAILED_SIZE):
            self._control.send(batch[start : start + FAILED_SIZE])

    def _reap(self, pidfd: int) -> None:
        number, pid = self._children.pop(pidfd)
        # Returns once every process of the child's namespace is gone: the kernel lets its init go last.
        _, status, usage = os.wait4(pid, 0)
        if number != _NOBODYS:
            cpu_ms = int((usage.ru_utime + usage.ru_stime) * 1000)
            self._control.send(Ended(number, status, cpu_ms, usage.ru_maxrss).encode())
        for spare in [spare for spare in self._reserve if spare.pidfd == pidfd]:
            print(f"aileron_sandbox: a child forked ahead was lost: wait status {status}", file=sys.stderr)
            spare.door.close()
            self._reserve.remove(spare)
            self._may_fork_ahead = False
        self._poll.unregister(pidfd)
        os.close(pidfd)

    def _take_request(self) -> bool:
        try:
            data, fds, _, _ = socket.recv_fds(self._control, MAX_REQUEST, child.DESCRIPTORS_OF_A_SPAWN)
        except ConnectionResetError:
            return False
        if not data:
            return False
        spawn = decode(data)
        if not isinstance(spawn, Spawn):
            raise ValueError("expected a Spawn")
        try:
            if len(fds) != child.DESCRIPTORS_OF_A_SPAWN:  # the kernel drops what exceeds RLIMIT_NOFILE, unix(7)
                raise OSError(errno.EMFILE, "not all descriptors arrived")
            self._spawn(spawn, fds)
        except OSError as error:
            self._control.send(Failed(spawn.child, error.errno or 0, "fork").encode())
            self._control.send(Ended(spawn.child, child.CONFINEMENT_FAILED << 8, 0, 0).encode())
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def _spawn(self, spawn: Spawn, fds: list[int]) -> None:
        pidfd, pid = self._hand_over(spawn, fds) or self._fork(lambda: child.run(self._prepared, spawn, fds))
        self._may_fork_ahead = True
        self._children[pidfd] = (spawn.child, pid)
        try:
            socket.send_fds(self._control, [Born(spawn.child).encode()], [pidfd])
        except OSError:
            # The host does not know it, so nobody else could end it.
            self._children[pidfd] = (_NOBODYS, pid)
            os.kill(pid, signal.SIGKILL)
            raise

    def _hand_over(self, spawn: Spawn, fds: list[int]) -> tuple[int, int] | None:
        """(pidfd, pid) of a child that waited, which has its program now; None if there is none."""
        while self._reserve:
            pidfd, pid, door = self._reserve.popleft()
            try:
                socket.send_fds(door, [spawn.encode()], fds)
            except OSError:  # it has ended, or does now that its door is closed: `_reap` will hear of it
                continue
            finally:
                door.close()
            return pidfd, pid
        return None

    def _fork_ahead(self) -> None:
        """Should it fail, nothing is lost but time: the next request forks for itself, and is told if that fails too."""
        self._may_fork_ahead = False
        with contextlib.suppress(OSError), contextlib.ExitStack() as undo:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            undo.callback(ours.close)
            with theirs:
                spare = _Spare(*self._fork(lambda: child.wait_and_run(self._prepared, theirs)), ours)
            self._reserve.append(spare)
            self._may_fork_ahead = True
            undo.pop_all()

    def _fork(self, become: Callable[[], NoReturn]) -> tuple[int, int]:
        """(pidfd, pid) of a child in a pid namespace of its own, which is nobody's yet."""
        # A second unshare(CLONE_NEWPID) is EINVAL unless the first was taken back, pid_namespaces(7).
        kernel.setns(self._own_pid_namespace, kernel.CLONE_NEWPID)
        kernel.unshare(kernel.CLONE_NEWPID)
        pid = os.fork()
        if pid == 0:
            become()
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        self._children[pidfd] = (_NOBODYS, pid)
        self._poll.register(pidfd, select.POLLIN)
        return pidfd, pid
