"""Prepare a jail's root once, then fork a confined child per request.

Started by jail.py as `python -I -S -X utf8 -c …` with an empty environment and one inherited descriptor, the control
socket. It holds no secret, has one thread, and never runs a line of a program itself: a fork of this process does,
after confine.steps. When the host ends, the control socket is closed and this process exits; as it is pid 1 of its
pid namespace, every child ends with it.

    host ── exec ──> stub ── fork ──> template (pid 1) ── fork ──> child (pid 1 of its own) ── confine ──> program

Rules
- No module may register an at-fork handler here: such handlers double the time of a fork, and a process with one thread
  needs none.
- From taking a request until its descriptors are closed, no process is forked but the child that gets them.
- Every child has the modules imported here: the standard library and the host's `preload`. Their state is the same in all
  children; a library that notices a fork by a new process id does not notice this one (both are pid 1).

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
from typing import Final, NamedTuple, NoReturn

from aileron_sandbox import kernel
from aileron_sandbox.template import (
    attempts,
    child,
    compiled,
    confine,
    descriptors,
    landlock,
    landlocked,
    limits,
    lookups,
    mounts,
    namespaces,
    privileges,
    program,
    program_places,
)
from aileron_sandbox.template.template_messages import (
    FAILED_SIZE,
    MAX_DATAGRAM,
    MAX_REQUEST,
    Asked,
    Born,
    Ended,
    Failed,
    Group,
    Listening,
    Preparation,
    Ready,
    Spawn,
    decode,
)

__all__ = ["main"]

_REHEARSALS: Final = 20
_IDLE_MS: Final = 2  # a busy host sends its next request within 0.3 ms; a fork ahead would only delay that
_IDLE_BESIDE_OTHERS_MS: Final = 10
"""Milliseconds without events after which a child is forked ahead while other children run. A child that only computes
ends before that, and a fork meanwhile would double the time that its end takes (measured). A child that runs longer is
usually waiting for its host.
"""
_LAST_ANSWER_MS: Final = 1000  # it takes 1 or less; a machine that is busy may take a hundred times that
_RESERVE: Final = 2
"""Number of children that are forked ahead and wait for a request. Two requests at once (two callers, or a step and the
next step) are more common than three. Each child takes 1.5 MiB.
"""
_NOBODYS: Final = 0  # the host counts its children from 1
_NO_GROUP: Final = 0  # and its groups
_LISTENER_AND_MEMORY: Final = 2
_MAX_DESCRIPTORS: Final = 8
"""Maximum number of descriptors attached to one datagram: those of a request, and those of a control group."""
_STATUS_BATCH: Final = 64 * FAILED_SIZE
_WATCHED: Final = "network-attempts"
"""Name of the layer that reports network attempts. It is not a protection: without it attempts fail, too, but their
destination is unknown.
"""
_PRIVATE: Final = "private-memory"
"""Name of the layer that keeps other processes of the user out of a compiled program's memory (program_places.py). It does
not confine the program. Python's memory is always private.
"""
_LAYERS: Final = (
    "user-ns", "mount-ns", "pid-ns", "net-ns", "ipc-ns", "uts-ns", "cgroup-ns", "pivoted-root",
    "no-capabilities", "no-new-privs", "rlimits",
)  # fmt: skip


class _Ready(NamedTuple):
    """The results of preparing the template: descriptors, mounts and settings that its children and its loop use."""

    prepared: confine.Prepared
    status_read: int
    own_pid_namespace: int | None
    places: program_places.Maker | None
    has_groups: bool
    announcement: Ready
    rehearsal: str | None
    """Path of the program with which the template rehearses; None if children exec their program."""


def main(control_fd: int) -> NoReturn:
    """Prepare the template, announce that it is ready, rehearse, and serve requests until the host closes the control socket."""
    control = socket.socket(fileno=control_fd)
    ready = _prepare(control, _told(control))
    with contextlib.suppress(ConnectionError):  # the host exited before it received everything
        control.send(ready.announcement.encode())
        if ready.rehearsal is not None:
            _rehearse(ready.rehearsal)
        _Template(control, ready).serve()
    os._exit(0)


def _told(control: socket.socket) -> Preparation:
    """Wait for the host's Preparation message and return it. While waiting, this process is undumpable, so no other
    process can attach. Exit if the host has closed the socket.
    """
    privileges.set_dumpable(False)
    try:
        said = control.recv(MAX_DATAGRAM)
    except ConnectionError:
        said = b""
    if not said:
        os._exit(0)
    privileges.set_dumpable(True)  # otherwise it could not write the maps of its ids
    return Preparation.decode(said)


def _prepare(control: socket.socket, preparation: Preparation) -> _Ready:
    step = "start"
    is_roots = os.geteuid() == 0  # then jails have an id of their own (namespaces.JAIL_UIDS): nobody else could attach
    try:
        kernel.use_one_malloc_arena()
        kernel.keep_freed_memory()
        os.umask(0o022)  # the host's may be 077, and the root is built by one id and read by another
        proc = descriptors.out_of_the_way(os.open("/proc", os.O_PATH | os.O_CLOEXEC))
        descriptors.reserve_targets()
        _be_first_to_go(proc)
        last_capability = kernel.last_capability()
        if preparation.is_compiled:
            compiled.get_ready()
        step = "landlock"
        abi = kernel.landlock_abi()
        own_pid_namespace = None
        if preparation.mode == "namespaces":
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
        else:
            step = "privileges"
            landlocked.become_unprivileged(_read(proc, "self/uid_map"), last_capability)
            kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        privileges.refuse_new_privileges()
        step = "landlock"
        ruleset = descriptors.out_of_the_way(_ruleset(preparation, abi))
        step = "preload"
        rehearsal = None if preparation.is_compiled else _preload(preparation)
        status_read, status_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        is_watched = _can_be_asked(kernel.Filter(bytes.fromhex(preparation.watched_hex)))
        network = kernel.Filter(bytes.fromhex(preparation.watched_hex if is_watched else preparation.unwatched_hex))
        profiles = {name: kernel.Filter(bytes.fromhex(text)) for name, text in preparation.profiles_hex.items()}
        base = compiled.BASE_BYTES if preparation.is_compiled else limits.measure_base(_read(proc, "self/statm"))
        has_namespaces = preparation.is_compiled and preparation.mode == "namespaces"
        maker = program_places.Maker.maybe_begin(proc) if has_namespaces and not is_roots else None
        privileges.set_dumpable(False)
    except OSError as error:
        print(f"aileron_sandbox: {step}: {error}", file=sys.stderr)
        control.send(Failed(0, error.errno or 0, step).encode())
        os._exit(child.CONFINEMENT_FAILED)
    status = descriptors.out_of_the_way(status_write)
    is_compiled = preparation.is_compiled
    prepared = confine.Prepared(
        proc, status, ruleset, network, is_watched, profiles, base, last_capability, preparation.mode, is_compiled
    )
    made_of = _LAYERS if preparation.mode == "namespaces" else landlocked.LAYERS
    is_private = maker is not None or (has_namespaces and is_roots)
    noted = [name for name, is_there in ((_WATCHED, is_watched), (_PRIVATE, is_private)) if is_there]
    announcement = Ready([*made_of, *noted, f"landlock:{abi}"], abi, base[1])
    return _Ready(prepared, status_read, own_pid_namespace, maker, preparation.has_groups, announcement, rehearsal)


def _rehearse(path: str) -> None:
    """Warm up the interpreter by running the program at `path`, which does nothing. This is done after `Ready` was
    sent, so that the host can continue meanwhile. It does not increase the memory that a child starts with (measured).
    """
    program.rehearse(path, _REHEARSALS)
    gc.collect()
    gc.freeze()
    gc.disable()


def _be_first_to_go(proc: int) -> None:
    """Make the kernel kill jails before the host when the machine is out of memory, proc_pid_oom_score_adj(5)."""
    fd = os.open("self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC, dir_fd=proc)
    try:
        os.write(fd, b"1000")
    finally:
        os.close(fd)


def _ruleset(preparation: Preparation, abi: int) -> int:
    if preparation.mode == "namespaces":
        return landlock.build_ruleset(abi)
    return landlocked.build_ruleset(preparation, abi)


def _can_be_asked(filter_: kernel.Filter) -> bool:
    """Return whether a child's seccomp filter can have a listener for notifications. It cannot if this process itself
    runs under a filter with one, seccomp(2) EBUSY.
    """
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(OSError):
            filter_.install_with_listener()
            kernel.exit_thread(0)  # exit_group(2) would notify the listener, which nobody reads
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _enter_as_root(preparation: Preparation, proc: int) -> None:
    """Build the jail's root with root's real privilege, because the files to bind may be below a 0700 home. Then give
    up the privilege permanently.

    The mounts made before the user namespace are locked inside it: umount(2) of such a mount fails with EINVAL,
    mount_namespaces(7).
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
    """Fork into the new pid namespace. The parent stays behind as a stub that only waits, and ends with the host."""
    child = os.fork()
    if child:
        control.close()  # otherwise the socket would not end with the host
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)


def _preload(preparation: Preparation) -> str:
    """Import, inside the root and without at-fork handlers, the modules that every child would import. Return the path of
    the program to rehearse.
    """
    sys.path[:] = [mounts.SDK, preparation.stdlib, f"{preparation.stdlib}/lib-dynload"]
    rehearsal = mounts.REHEARSAL
    if preparation.mode == "landlock":
        del sys.path[0]
        landlocked.find_packages(preparation.packages)
        rehearsal = landlocked.rehearsal(bytes.fromhex(preparation.rehearsal_hex))
    sys.path_importer_cache.clear()
    # A program that imports the frames gets them from the jail's root; our own modules, which came from a host path that
    # is gone, stay alive in what refers to them.
    for name in [name for name in sys.modules if name.partition(".")[0] == "aileron_sandbox"]:
        del sys.modules[name]
    os.environ.clear()  # PEP 538 put LC_CTYPE there
    lookups.replace()
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
    return rehearsal


def _no_hooks(**_hooks: object) -> None:
    """Ignore handlers for os.register_at_fork during the preload, because in a process with one thread no handler has
    anything to repair.
    """


def _read(proc: int, name: str) -> str:
    fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
    with open(fd, encoding="ascii") as file:
        return file.read()


def _close(fds: tuple[int, ...]) -> None:
    for fd in fds:
        os.close(fd)


class _Forked:
    """A child from its fork until it is reaped. Until it is given a request, the child waits at its end of the socket
    `door` (child.py).
    """

    def __init__(self, pidfd: int, pid: int, door: socket.socket, group: int) -> None:
        self.pidfd: Final = pidfd
        self.pid: Final = pid
        self.door: Final = door
        self.number = _NOBODYS
        self.group = group
        self.watched: attempts.Watched | None = None
        self.answered_by: tuple[int, int] | None = None  # pidfd and pid
        self.has_own_memory = True  # false once it may exec or fork
        self.is_listened_to = False  # true if the host wants the listener, too

    def close(self) -> None:
        """Close this child's descriptors."""
        os.close(self.pidfd)
        self.door.close()
        if self.watched is not None:
            self.watched.close()


class _Template:
    """The warm process while it serves: one loop, no thread, and one poll(2) for all waits.

    When there is no event for a moment, children are forked ahead, because the work that is the same for all is half of
    a child's cost. The next requests are passed to these children; each child serves only one request. Under load
    children are forked when they are requested, which is then no slower.
    """

    def __init__(self, control: socket.socket, ready: _Ready) -> None:
        self._control = control
        self._prepared = ready.prepared
        self._status_read = ready.status_read
        self._own_pid_namespace = ready.own_pid_namespace
        self._places = ready.places
        self._children: dict[int, _Forked] = {}  # by pidfd
        self._doors: dict[int, _Forked] = {}  # children whose listener is still to come
        self._listeners: dict[int, _Forked] = {}  # children that have not reached for a network yet
        self._answering: dict[int, _Forked] = {}  # those that have, by the pidfd of the answering process (attempts.py)
        self._reserve: deque[_Forked] = deque()
        self._has_groups = ready.has_groups
        self._groups: deque[tuple[int, limits.Group]] = deque()  # not in use yet
        # False until the next request after a failure: its reason would end the next child, or forbid its fork, at once.
        self._may_fork_ahead = True
        # poll(2), not epoll(7): a fork keeps an epoll registration of a closed pidfd alive (measured).
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._poll.register(self._status_read, select.POLLIN)

    def serve(self) -> None:
        """Serve requests until the host has disconnected."""
        while True:
            ready = dict(self._poll.poll(self._idle_ms()))
            if not ready:
                self._fork_ahead()
            # Look the children up before any descriptor is closed: the next one that is opened has its number.
            asking = [(self._listeners[fd], events) for fd, events in ready.items() if fd in self._listeners]
            answered = [self._answering[fd] for fd in ready if fd in self._answering]
            ended = [self._children[fd] for fd in ready if fd in self._children]
            handing_over = [self._doors[fd] for fd in ready if fd in self._doors]
            # Before any end is told, so that "could not start" always comes first.
            if self._status_read in ready:
                self._pass_on_failures()
            for forked, events in asking:
                self._let_answer(forked, is_asked=bool(events & select.POLLIN))
            for forked in answered:
                self._end_answering(forked)
            for forked in ended:
                self._pass_on_failures()
                self._reap(forked)
            for forked in handing_over:
                if self._doors.pop(forked.door.fileno(), None) is forked:  # not reaped just now
                    self._take_listener(forked)
            if self._control.fileno() in ready and not self._take_request():
                return

    def _idle_ms(self) -> int | None:
        """Return the milliseconds without events after which a child is forked ahead; None to fork none."""
        if not self._may_fork_ahead or len(self._reserve) >= _RESERVE or (self._has_groups and not self._groups):
            return None
        if any(forked.door.fileno() in self._doors for forked in self._reserve):
            return None  # one at a time: if a child fails before it waits, the next would fail for the same reason
        return _IDLE_MS if len(self._children) == len(self._reserve) else _IDLE_BESIDE_OTHERS_MS

    def _pass_on_failures(self) -> None:
        try:
            batch = os.read(self._status_read, _STATUS_BATCH)
        except BlockingIOError:
            return
        for start in range(0, len(batch), FAILED_SIZE):
            self._control.send(batch[start : start + FAILED_SIZE])

    def _let_answer(self, forked: _Forked, *, is_asked: bool) -> None:
        """Handle an event on the listener of a child's seccomp filter. If a system call waits for an answer
        (`is_asked`) and is the end of a process, allow it; at the first other call, fork a process that answers this
        child's calls from now on. If not `is_asked`, the child has no process left.
        """
        if is_asked and forked.watched is not None and forked.watched.maybe_let_end():
            return
        self._stop_listening(forked)
        watched, forked.watched = forked.watched, None
        if watched is None:
            return
        try:
            if is_asked:
                self._control.send(Asked(forked.number).encode())  # before the host can see it leave
                self._fork_answering(watched, forked)
        except OSError:  # no process can be forked, so nobody would answer
            os.kill(forked.pid, signal.SIGKILL)
        finally:
            watched.close()
            attempts.forget_question()

    def _fork_answering(self, watched: attempts.Watched, forked: _Forked) -> None:
        if self._own_pid_namespace is not None:  # otherwise the fork would be in the last child's pid namespace
            kernel.setns(self._own_pid_namespace, kernel.CLONE_NEWPID)
        pid = os.fork()
        if pid == 0:
            attempts.run(watched, forked.pidfd, forked.number, self._control.fileno())
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        forked.answered_by = (pidfd, pid)
        self._answering[pidfd] = forked
        self._poll.register(pidfd, select.POLLIN)

    def _end_answering(self, forked: _Forked, *, within_ms: int | None = None) -> None:
        """Reap the process that answered this child's system calls. If the child has ended, pass `within_ms`: wait that
        long for the answering process, and then kill that process. None means that the answering process has ended
        first; the child is then killed.
        """
        if forked.answered_by is None:
            return
        pidfd, pid = forked.answered_by
        forked.answered_by = None
        del self._answering[pidfd]
        self._poll.unregister(pidfd)
        if within_ms is None:  # it has ended by itself: a call that the child makes now would wait for ever
            os.kill(forked.pid, signal.SIGKILL)
        else:
            last = select.poll()
            last.register(pidfd, select.POLLIN)
            if not last.poll(within_ms):
                os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(pidfd)

    def _stop_listening(self, forked: _Forked) -> None:
        for fd in [fd for fd, other in self._listeners.items() if other is forked]:
            del self._listeners[fd]
            self._poll.unregister(fd)

    def _take_listener(self, forked: _Forked) -> None:
        self._poll.unregister(forked.door)
        try:
            data, fds, _, _ = socket.recv_fds(forked.door, 1, _LISTENER_AND_MEMORY)
        except ConnectionError:  # it has ended, and left a request unread
            data, fds = b"", []
        if len(fds) != _LISTENER_AND_MEMORY:
            for fd in fds:
                os.close(fd)
            if data:  # the kernel drops what exceeds RLIMIT_NOFILE, unix(7); nobody would answer this child
                self._control.send(Failed(forked.number, errno.EMFILE, "network").encode())
                os.kill(forked.pid, signal.SIGKILL)
            return
        forked.watched = attempts.Watched(*fds)
        if not forked.has_own_memory:
            forked.watched.will_change_memory()
        self._listeners[forked.watched.listener] = forked
        self._poll.register(forked.watched.listener, select.POLLIN)
        if forked.number != _NOBODYS:
            forked.door.close()
            if forked.is_listened_to:
                with contextlib.suppress(OSError):  # ETOOMANYREFS, unix(7): then only its end tells the host
                    socket.send_fds(self._control, [Listening(forked.number).encode()], [forked.watched.listener])

    def _reap(self, forked: _Forked) -> None:
        del self._children[forked.pidfd]
        # Returns once every process of the child's namespace is gone: the kernel lets its init go last.
        _, status, usage = os.wait4(forked.pid, 0)
        # The attempt is reported before the end, as the host ignores messages about the child afterwards.
        self._end_answering(forked, within_ms=_LAST_ANSWER_MS)
        if forked.number != _NOBODYS or forked.group != _NO_GROUP:
            cpu_ms = int((usage.ru_utime + usage.ru_stime) * 1000)
            self._control.send(Ended(forked.number, status, cpu_ms, usage.ru_maxrss, forked.group).encode())
        if forked in self._reserve:
            print(f"aileron_sandbox: a child forked ahead was lost: wait status {status}", file=sys.stderr)
            self._reserve.remove(forked)
            self._may_fork_ahead = False
        self._poll.unregister(forked.pidfd)
        self._stop_listening(forked)
        if self._doors.pop(forked.door.fileno(), None) is not None:
            self._poll.unregister(forked.door)
        forked.close()

    def _take_request(self) -> bool:
        try:
            data, fds, _, _ = socket.recv_fds(self._control, MAX_REQUEST, _MAX_DESCRIPTORS)
        except ConnectionResetError:
            return False
        if not data:
            return False
        spawn = decode(data)
        if isinstance(spawn, Group):
            self._take_group(spawn, fds)
            return True
        if not isinstance(spawn, Spawn):
            raise ValueError("expected a Spawn")
        if spawn.group != _NO_GROUP:
            self._take_group(Group(spawn.group, spawn.doors, spawn.bounds), fds[child.DESCRIPTORS_OF_A_SPAWN :])
            del fds[child.DESCRIPTORS_OF_A_SPAWN :]
        try:
            if len(fds) != child.DESCRIPTORS_OF_A_SPAWN:  # the kernel drops what exceeds RLIMIT_NOFILE, unix(7)
                raise OSError(errno.EMFILE, "not all descriptors arrived")
            self._spawn(spawn, fds)
        except OSError as error:
            self._control.send(Failed(spawn.child, error.errno or 0, "fork").encode())
            # The request came with a group that no child has taken.
            self._control.send(Ended(spawn.child, child.CONFINEMENT_FAILED << 8, 0, 0, self._drop_group()).encode())
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def _take_group(self, group: Group, fds: list[int]) -> None:
        if len(fds) == group.doors + group.bounds:
            doors, bounds = tuple(fds[: group.doors]), tuple(fds[group.doors :])
            self._groups.append((group.group, limits.Group(doors, bounds)))
            return
        for fd in fds:  # the kernel drops what exceeds RLIMIT_NOFILE, unix(7)
            os.close(fd)
        self._control.send(Ended(_NOBODYS, 0, 0, 0, group.group).encode())

    def _spawn(self, spawn: Spawn, fds: list[int]) -> None:
        forked = self._hand_over(spawn, fds)
        self._may_fork_ahead = True
        forked.number = spawn.child
        if spawn.profile != "python":
            forked.has_own_memory = False
            if forked.watched is not None:
                forked.watched.will_change_memory()
        if forked.door.fileno() not in self._doors:
            forked.door.close()
        forked.is_listened_to = bool(spawn.listens)
        listener = [forked.watched.listener] if forked.is_listened_to and forked.watched is not None else []
        try:
            socket.send_fds(self._control, [Born(spawn.child, forked.group).encode()], [forked.pidfd, *listener])
        except OSError:
            # The host does not know the child, so nobody else could end it.
            forked.number = _NOBODYS
            os.kill(forked.pid, signal.SIGKILL)
            raise

    def _hand_over(self, spawn: Spawn, fds: list[int]) -> _Forked:
        """Pass the host's request `spawn`, with its descriptors `fds`, to a child that waits for one, or else to a new
        child, and return that child.
        """
        while self._reserve:
            # If it has ended, `_reap` takes care of it.
            forked = self._reserve.popleft()
            with contextlib.suppress(OSError):
                socket.send_fds(forked.door, [spawn.encode()], fds)
                return forked
        forked = self._fork(ahead=False)
        try:
            socket.send_fds(forked.door, [spawn.encode()], fds)
        except OSError:
            os.kill(forked.pid, signal.SIGKILL)
            raise
        return forked

    def _fork_ahead(self) -> None:
        """Fork a child for a later request. If that fails, only time is lost: the next request forks its own child, and
        reports a failure.
        """
        self._may_fork_ahead = False
        with contextlib.suppress(OSError):
            self._reserve.append(self._fork(ahead=True))
            self._may_fork_ahead = True

    def _next_group(self) -> tuple[int, limits.Group]:
        if not self._groups:  # the request's own group was lost for lack of descriptors
            raise OSError(errno.EMFILE, "no control group is free for a child")
        return self._groups.popleft()

    def _drop_group(self) -> int:
        """Close a control group that no child uses, and return its number; _NO_GROUP if there is none."""
        if not self._groups:
            return _NO_GROUP
        number, group = self._groups.pop()
        _close(group.descriptors)
        return number

    def _fork(self, *, ahead: bool) -> _Forked:
        """Fork a child in its own pid namespace, without a request yet, and return it. `ahead` is true if it must wait
        for a later request.
        """
        if self._own_pid_namespace is not None:
            # A second unshare(CLONE_NEWPID) is EINVAL unless the first was undone, pid_namespaces(7).
            kernel.setns(self._own_pid_namespace, kernel.CLONE_NEWPID)
            kernel.unshare(kernel.CLONE_NEWPID)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, contextlib.ExitStack() as undo, contextlib.ExitStack() as given:
            undo.callback(ours.close)
            prepared, number = self._prepared, _NO_GROUP
            if self._has_groups:
                number, group = self._next_group()
                undo.callback(self._groups.appendleft, (number, group))
                prepared = prepared._replace(group=group)
            if self._places is not None:
                place = self._places.make()
                given.callback(place.close)
                prepared = prepared._replace(place=place)
            pid = os.fork()
            if pid == 0:
                child.run(prepared, theirs, ahead=ahead)
            try:
                pidfd = os.pidfd_open(pid)
            except OSError:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                raise
            undo.pop_all()
        if prepared.group is not None:
            _close(prepared.group.descriptors)
        forked = self._children[pidfd] = _Forked(pidfd, pid, ours, number)
        self._poll.register(pidfd, select.POLLIN)
        if self._prepared.is_watched:
            self._doors[ours.fileno()] = forked
            self._poll.register(ours, select.POLLIN)
        return forked
