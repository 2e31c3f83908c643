"""The host side of the jail, and the only way to use one.

    with Template.start(PythonRuntime.of_this_interpreter()) as template:
        with Child.open(template, program_fd, Policy()) as child:
            os.write(child.frames_in, b"…")
            ending = child.wait(deadline_s=5)

Owns the template process, the control socket, and for each child its pidfd and the host ends of three pipes. Trusts the
template, but no data that a child writes. Blocking is opt-in: a caller with an event loop polls `Template.fileno()` for
reading, calls `pump()`, and looks at the children it returns; `Child.wait` does the same with poll(2).

Rules
- A child is dead when `ending` is set: every process in its pid namespace has been reaped. It `has_left` when none of its
  processes can make another system call: on Linux 6.11 and newer a millisecond or two before its `ending`, when the listener
  of its filter hangs up; on older kernels together with its `ending`.
- `kill` goes through the pidfd, so a recycled pid is never signalled.
- Closing a Child kills it; closing the Template kills all children. A closed child is reaped when `pump` next reads its
  message, and counts towards MAX_CHILDREN until then.
- If a template uses control groups, each of its children has one. `is_watched` says which children must be measured
  nevertheless; a caller with a loop of its own reads their `tree`, calls `judge`, and reads again after the time that
  `judge` returns (`Child.wait` does this).
- Start the template from a thread that lives as long as the template (PR_SET_PDEATHSIG fires when the parent *thread* ends,
  prctl(2)).

Not here: the contents of frames (frames/), the decision to run a program (aileron).
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

from aileron_sandbox import cgroups
from aileron_sandbox.begun import Begun
from aileron_sandbox.elf import ElfRuntime
from aileron_sandbox.ending import Ending, Exited, NetworkAttempt, OverLimit, RefusedToStart, Signalled, Usage
from aileron_sandbox.fixes import Machine, fix, is_short_of_descriptors
from aileron_sandbox.policy import Mode, Policy, Profile
from aileron_sandbox.runtime import PythonRuntime
from aileron_sandbox.template.template_messages import (
    MAX_DATAGRAM,
    MAX_REQUEST,
    Asked,
    Attempted,
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
from aileron_sandbox.unavailable import JailUnavailable
from aileron_sandbox.watch import WATCH_PERIOD_S, ProcessTree, Tree, Used

__all__ = [
    "MAX_CHILDREN",
    "MAX_PROGRAM_BYTES",
    "WATCH_PERIOD_S",
    "Child",
    "MemoryBy",
    "Starting",
    "Template",
    "TemplateGone",
    "Tree",
    "Used",
    "check_possible",
    "program_of",
]

MemoryBy = Literal["cgroup-v2", "cgroup-v1", "rlimit"]
"""The mechanism that limits the memory of a child's processes together. RLIMIT_DATA limits each process in addition."""

MAX_CHILDREN: Final = 80
"""Maximum number of children of one template: 64 that run, 8 that were started ahead, and 8 that have left and are
not reaped yet. Each has three pipes and a pidfd.
"""
MAX_PROGRAM_BYTES: Final = 64 << 20
"""Maximum size of a program in bytes, 64 MiB. It is copied into memory for every child."""
_START_DEADLINE_S: Final = 20.0  # 100 ms measured; a machine that is starting up may take a hundred times that
_SEALS: Final = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_FRAME_PIPE_BYTES: Final = 256 << 10
"""Size of a frame pipe in bytes, 256 KiB. Pipes of 1 MiB would use up the kernel's budget for an ordinary user (64
MiB, pipe(7)) after 32 children.
"""
_CPU_LIMIT_SHARE: Final = 0.75
"""Fraction of the processor time limit above which a SIGKILL is attributed to that limit. The kernel checks RLIMIT_CPU
by whole timer ticks but reports the exact time: 870 ms were seen for 1 s on a busy virtual machine, 996 on an idle one.
"""
_LEAST_PERIOD_S: Final = 0.02
"""Minimum number of seconds between two measurements. One takes up to 5 ms, and the kernel counts processor time in
ticks of up to 10 ms.
"""
_GROUPS_AHEAD: Final = 2
"""Number of children that a template forks ahead (template/__main__.py), each in its own control group."""
_NOBODYS: Final = 0
_PIDFD_AND_LISTENER: Final = 2
_ROOM_BYTES: Final = 16 << 20
"""Memory of a child's control group in addition to its policy's limit, 16 MiB. It is for the kernel's own data on 16
processes or threads with their stacks, 30 full pipes, 1024 files, and the pages of mapped files, which the kernel
reclaims first. An idle child is charged with 3.4 MiB (measured).
"""
_NEEDS_NAMESPACES: Final = 'set mode = "namespaces" under [sandbox], or use a Python connector that starts no processes'
_NO_GROUP: Final = (
    "a program that may start other programs needs a control group, which limits their memory together, "
    "but no control group can be created on this machine"
)
_NEEDS_GROUP: Final = (
    "start the daemon in one (`aileron daemon stop`, then `systemd-run --user --scope -p Delegate=yes aileron daemon start`), "
    "or use a connector without `subprocess = true`"
)


class TemplateGone(Exception):
    """Error: the template process has ended, and all its children with it. The caller must start another template."""


class Template:
    """A warm process, from which the jails of one runtime are forked. Make one with `start`. Not thread-safe: one thread or
    one event loop owns it.
    """

    def __init__(
        self,
        begun: Begun,
        news: select.epoll,
        ready: Ready,
        groups: cgroups.Groups | None,
        *,
        is_compiled: bool,
        mode: Mode,
    ) -> None:
        self._begun: Final = begun
        self._groups: Final = groups
        self._given: dict[int, cgroups.Group] = {}  # the groups that the template has, by number, until it returns them
        self._last_group = 0
        self._groups_lost = 0  # to be replaced with the next request
        self._data_bytes: Final = ready.data_bytes
        self._is_compiled: Final = is_compiled
        self._mode: Final = mode
        self._control: Final = begun.control
        self._news: Final = news
        self._listeners: dict[int, Child] = {}
        self._children: dict[int, Child] = {}
        self._orphans: set[int] = set()  # closed by their owner, not yet reaped
        self._next_child = 1
        self._layers: Final = tuple(ready.layers)

    @classmethod
    def start(
        cls,
        runtime: PythonRuntime | ElfRuntime,
        deadline_s: float = _START_DEADLINE_S,
        *,
        memory_by: Literal["kind", "groups", "rlimit"] = "kind",
        mode: Mode = "namespaces",
    ) -> Template:
        """Start a template and wait until it is confined. Raises JailUnavailable, with the step that this machine
        refuses and its fix.

        By default compiled programs get control groups if this user can make some, and Python programs get none (ADR
        16); `memory_by` overrides this. `mode="landlock"` makes no namespaces. It is weaker: only the user chooses
        it, it is never a fallback, and compiled programs do not run in it (`check_possible`).
        """
        return cls.begin(runtime, memory_by=memory_by, mode=mode).finish(deadline_s)

    @classmethod
    def begin(
        cls,
        runtime: PythonRuntime | ElfRuntime,
        *,
        memory_by: Literal["kind", "groups", "rlimit"] = "kind",
        mode: Mode = "namespaces",
        begun: Begun | None = None,
    ) -> Starting:
        """Send a template process its Preparation message, and return before the process is confined. The process is
        `begun` if given, else a new one. Errors and other parameters are those of `start`.

        `begun` must run the same interpreter as `runtime`. The returned object owns the process. After an error the
        process has ended.
        """
        with contextlib.ExitStack() as undo:
            if begun is not None:
                undo.callback(begun.end)
            is_compiled = isinstance(runtime, ElfRuntime)
            check_possible("elf" if is_compiled else "python", mode, is_compiled=is_compiled)
            wants_groups = memory_by == "groups" or (memory_by == "kind" and is_compiled)
            groups = _maybe_groups() if wants_groups else None
            if groups is not None:
                undo.callback(groups.close)
            try:
                if begun is None:
                    begun = Begun.execute(runtime.executable)
                    undo.callback(begun.end)
                preparation = _preparation(runtime, mode, has_groups=groups is not None)
                begun.control.settimeout(_START_DEADLINE_S)
                begun.control.send(preparation.encode())
            except OSError as error:
                raise _not_started(error) from error
            undo.pop_all()
            return Starting(begun, preparation, runtime.executable, groups)

    def layers(self, profile: Profile) -> tuple[str, ...]:
        """Return the confinement layers in force for every child of this profile."""
        return *self._layers, f"memory:{self.memory_by}", f"seccomp:{profile}"

    @property
    def memory_by(self) -> MemoryBy:
        """The mechanism that bounds the memory of every child of this template."""
        return "rlimit" if self._groups is None else self._groups.kind

    def fileno(self) -> int:
        """Return a descriptor that is readable when `pump` has messages to read."""
        return self._news.fileno()

    @property
    def pid(self) -> int:
        """Process id of the stub process, the parent of the template, for tests that end it."""
        return self._begun.process.pid

    def pump(self) -> list[Child]:
        """Read the template's messages without blocking. Return the children whose state changed. Raises TemplateGone
        if the template has ended.
        """
        left = [(fd, child) for fd, _ in self._news.poll(0) if (child := self._listeners.get(fd)) is not None]
        changed = self._hear()  # after the poll: a child's attempt is then read before the child counts as having left
        for fd, child in left:
            if self._listeners.get(fd) is not child:  # closed meanwhile, and the number may be reused
                continue
            child._left()
            if child not in changed:
                changed.append(child)
        return changed

    def _hear(self) -> list[Child]:
        changed: list[Child] = []
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(self._control, MAX_REQUEST, _PIDFD_AND_LISTENER)
            except BlockingIOError:
                return changed
            except ConnectionError:
                data, fds = b"", []
            if not data:
                raise TemplateGone(f"the template ended, with {len(self._children)} children")
            child = self._take(data, fds)
            if child is not None and child not in changed:
                changed.append(child)

    def close(self) -> None:
        """End the template and every child. The owner of each child must still close its descriptors. Idempotent."""
        self._news.close()
        self._begun.end()
        if self._groups is not None:
            self._groups.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # for Child

    def _adopt(self, child: Child) -> int:
        if len(self._children) + len(self._orphans) >= MAX_CHILDREN:
            raise BlockingIOError(errno.EAGAIN, f"the maximum of {MAX_CHILDREN} children is running")
        number = self._next_child
        self._next_child += 1
        self._children[number] = child
        return number

    def _forget(self, number: int, *, is_gone: bool) -> None:
        if self._children.pop(number, None) is not None and not is_gone:
            self._orphans.add(number)

    def _listen(self, listener: int, child: Child) -> None:
        """Watch the listener of the child's seccomp filter, but only to notice when it hangs up; the template answers
        the system calls.
        """
        self._news.register(listener, 0)  # EPOLLHUP is always told, epoll_ctl(2)
        self._listeners[listener] = child

    def _stop_listening(self, listener: int) -> None:
        # The template has it open, too, so closing ours alone would leave the registration behind, epoll(7).
        if self._listeners.pop(listener, None) is not None and not self._news.closed:
            self._news.unregister(listener)

    def _give_group(self) -> None:
        """Send the template one more control group, which must arrive before the host requests the child that will use it."""
        if self._groups is not None:
            with self._given_group(self._groups) as (message, fds):
                self._send_datagram(message.encode(), fds)

    @contextlib.contextmanager
    def _given_group(self, groups: cgroups.Groups) -> Iterator[tuple[Group, list[int]]]:
        """Take a control group, and yield the message that gives it to the template, with the group's descriptors. If
        the block fails, the control group becomes free again.
        """
        group, number = groups.take(), self._last_group + 1
        try:
            with group.opened() as opened:
                yield Group(number, len(opened.doors), len(opened.bounds)), list(opened.descriptors)
        except BaseException:
            groups.give_back(group)
            raise
        self._last_group = number
        self._given[number] = group

    def _replace_lost_group(self, ended: Ended) -> None:
        """Replace a control group that the template returned unused, because a child that was forked ahead was lost, or
        the template lacked descriptors for the group.
        """
        if ended.status == 0:
            self._groups_lost += 1  # a replacement sent now would be lost again
            return
        try:
            self._give_group()
        except OSError:  # the next request for a child raises the reason
            self._groups_lost += 1

    def _group_bytes(self, policy: Policy, program_bytes: int) -> int:
        """Return the memory limit of a child's control group: the policy's memory and scratch, the program, the
        template's own data, and a fixed overhead. 0 if this template has no control groups.
        """
        if self._groups is None:
            return 0
        return policy.memory_bytes + policy.scratch_bytes + program_bytes + self._data_bytes + _ROOM_BYTES

    def _release_group(self, number: int, *, was_killed: bool) -> None:
        group = self._given.pop(number, None)
        if group is not None and self._groups is not None:
            if was_killed:
                group.is_out_of_memory()  # or the next child would inherit this child's verdict
            self._groups.give_back(group)

    def _send(self, spawn: Spawn, fds: list[int]) -> None:
        if self._groups is None:
            self._send_datagram(spawn.encode(), fds)
            return
        for _ in range(self._groups_lost):
            self._give_group()
        self._groups_lost = 0
        with self._given_group(self._groups) as (message, more):
            spawn = dataclasses.replace(spawn, group=message.group, doors=message.doors, bounds=message.bounds)
            self._send_datagram(spawn.encode(), fds + more)

    def _send_datagram(self, data: bytes, fds: list[int]) -> None:
        try:
            socket.send_fds(self._control, [data], fds)
        except ConnectionError as error:
            raise TemplateGone("the template has ended") from error

    def _take(self, data: bytes, fds: list[int]) -> Child | None:
        message = decode(data)
        if isinstance(message, (Spawn, Ready, Group)):
            raise ValueError("the template does not say that")
        if isinstance(message, Born) and not fds:  # the kernel drops what exceeds RLIMIT_NOFILE, unix(7)
            self._begun.process.kill()
            raise TemplateGone(
                "no descriptor was free for the pidfd of a child, and a child that cannot be killed must not run"
            )
        child = self._children.get(message.child)
        if child is None:
            self._take_orphan(message, fds)
            return None
        match message:
            case Born():
                child._born(fds[0], self._given.get(message.group))
                child._listening(fds[1:])
            case Listening():
                child._listening(fds)
            case Asked():
                child._stop_listening()  # from here on only the ending counts, which names the destination
            case Failed():
                child._failed(message)
            case Attempted():
                child._attempted(message)
            case Ended():
                child._ended(message)
                self._release_group(message.group, was_killed=False)
        return child

    def _take_orphan(self, message: Born | Failed | Listening | Asked | Attempted | Ended, fds: list[int]) -> None:
        # 1 a child is asked for · 2 its owner closes it, with no pidfd to kill it by · 3 it is born
        if isinstance(message, Born):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fds[0], signal.SIGKILL)
        for fd in fds:
            os.close(fd)
        if isinstance(message, Ended):
            self._orphans.discard(message.child)
            self._release_group(message.group, was_killed=True)
            if message.child == _NOBODYS:
                self._replace_lost_group(message)


class Starting:
    """A template process that has received its Preparation message, and has not confirmed yet that it is confined. Call
    `finish` or `close`.
    """

    def __init__(self, begun: Begun, preparation: Preparation, executable: Path, groups: cgroups.Groups | None) -> None:
        self._begun: Final = begun
        self._preparation: Final = preparation
        self._executable: Final = executable
        self._groups: Final = groups

    def fileno(self) -> int:
        """Return a descriptor that is readable when `finish` can return without waiting."""
        return self._begun.control.fileno()

    def finish(self, deadline_s: float = _START_DEADLINE_S) -> Template:
        """Wait until the template is confined. Raises JailUnavailable, with the step that this machine refuses and
        its fix, if that fails; the template has then ended.
        """
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            try:
                ready = self._ready(deadline_s)
                news = select.epoll()
                undo.callback(news.close)
                news.register(self._begun.control, select.EPOLLIN)
                template = Template(
                    self._begun,
                    news,
                    ready,
                    self._groups,
                    is_compiled=self._preparation.is_compiled,
                    mode=self._preparation.mode,
                )
                for _ in range(_GROUPS_AHEAD):
                    template._give_group()
            except (OSError, ValueError, TemplateGone) as error:
                self._begun.process.kill()  # it may not listen either
                raise _not_started(error) from error
            undo.pop_all()
            return template

    def _ready(self, deadline_s: float) -> Ready:
        control = self._begun.control
        control.settimeout(deadline_s)
        answer = decode(control.recv(MAX_DATAGRAM))
        if not isinstance(answer, Ready):
            raise _unavailable(answer, self._executable)
        control.setblocking(False)
        return answer

    def close(self) -> None:
        """End the template. Idempotent."""
        self._begun.end()
        if self._groups is not None:
            self._groups.close()


class Child:
    """A confined program in a jail of its own. Make one with `open`, and end it with `close`.

    The host writes to `frames_in` and reads from `frames_out` and `log`; all three are non-blocking descriptors that this
    object closes. `ending` is None until every process of the child has been reaped.
    """

    def __init__(self, template: Template, policy: Policy, *, listens: bool) -> None:
        self._template = template
        self._listens: Final = listens
        self._policy = policy
        self._pidfd = -1
        self._is_asked_for = False
        self._kill_wanted = False
        self._failure: Failed | None = None
        self._attempt: Attempted | None = None
        self._over: Literal["cpu", "memory"] | None = None
        self._group: cgroups.Group | None = None
        self._tree: Tree | None = None
        self._processes: ProcessTree | None = None
        self._number = template._adopt(self)
        self._open = True
        self._has_left = False
        self._listener = -1
        self.ending: Ending | None = None
        self.frames_in = self.frames_out = self.log = -1

    @classmethod
    def open(cls, template: Template, program: int, policy: Policy, *, listens: bool = True) -> Self:
        """Request a child that runs `program`, which is a zip application or, in a template of an ElfRuntime, a
        compiled program. `program` is a descriptor that the caller keeps.

        Pass a sealed memfd (F_SEAL_WRITE, memfd_create(2)): the bytes are copied or executed later, and only a seal
        ensures that they are still the checked ones. Returns before the child exists; failed confinement shows as the
        ending `RefusedToStart`. Without `listens` the child `has_left` only when it has ended, and it needs one
        descriptor and one datagram less. Raises BlockingIOError if MAX_CHILDREN are running. Raises ValueError for a
        program that is empty or over MAX_PROGRAM_BYTES, for a compiled program that is not sealed, and for a profile
        that this template does not have. Raises JailUnavailable if no child can be requested, for example because no
        descriptor is available, which may be transient.
        """
        size = os.fstat(program).st_size
        if not 0 < size <= MAX_PROGRAM_BYTES:
            raise ValueError(f"the program has {size} bytes, expected 1 to {MAX_PROGRAM_BYTES}")
        _check_fits(template, program, policy)
        child = cls(template, policy, listens=listens)
        try:
            child._spawn(program, size)
        except BaseException as error:
            child.close()
            if isinstance(error, OSError) and not isinstance(error, BlockingIOError):  # else the template is behind
                raise JailUnavailable(f"cannot request a jail: {error}", _fix_of(error)) from error
            raise
        return child

    @property
    def is_born(self) -> bool:
        """True once the child's process exists. Data may be written to `frames_in` before that."""
        return self._pidfd >= 0

    @property
    def has_left(self) -> bool:
        """True once the child has stopped running: none of its processes can make another system call.

        The pipes then contain all data that the child will ever write. For a child that tried to reach a network, the value
        becomes True only once `ending` is set, which names the destination.
        """
        return self._has_left or self.ending is not None

    @property
    def pid(self) -> int:
        """Process id in the host's pid namespace, for inspection only; use `kill` to send a signal. 0 while there is
        no process.
        """
        if self._pidfd < 0:
            return 0
        with open(f"/proc/self/fdinfo/{self._pidfd}", encoding="ascii") as file:
            fields = dict(line.split(":", 1) for line in file)
        return max(0, int(fields["Pid"]))  # -1 once it is reaped, pidfd_open(2)

    def kill(self) -> None:
        """Send SIGKILL to the child's pid 1, and so to every process in its namespace. Returns at once; `ending` is
        set later.

        A child that has already ended by itself, but is not reaped yet, keeps the ending that it had.
        """
        self._kill_wanted = self._kill_wanted or not self._is_zombie
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def wait(self, deadline_s: float) -> Ending:
        """Block until the child has ended, for at most `deadline_s` seconds. Raises TimeoutError after that, and the
        child keeps running.
        """
        until = time.monotonic() + deadline_s
        said = select.poll()  # select(2) takes no descriptor over 1023
        said.register(self._template, select.POLLIN)
        period_s = WATCH_PERIOD_S
        while self.ending is None:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"the child is still running after {deadline_s} s")
            if said.poll((min(left, period_s) if self.is_watched else left) * 1000):
                self._template.pump()
            elif (tree := self.tree()) is not None:
                period_s = self.judge(tree.used())
        return self.ending

    @property
    def is_watched(self) -> bool:
        """True if the caller must measure this child's processes (`tree`, `judge`), because the kernel alone does not
        limit them all together, or does not report which limit was exceeded.
        """
        profile = self._policy.profile
        # If a v1 group is out of memory, the kernel ends only one process; and only we bound the processor time of a group.
        return profile == "elf-subprocess" or (profile == "elf" and self._template.memory_by == "rlimit")

    def tree(self) -> Tree | None:
        """Return the process tree to measure at intervals, in any thread. None if the child need not be watched, does
        not exist yet, or has ended.
        """
        if not self.is_watched or self.ending is not None or not self.pid:
            return None
        if self._tree is None:
            processes = ProcessTree(self.pid, self._template._data_bytes)
            if self._group is None:
                self._tree = processes
            else:
                self._tree = self._group if self._group.counts_cpu else _Both(self._group, processes)
        return self._tree

    def judge(self, used: Used) -> float:
        """End the child if its `tree` used more than a limit. Return the seconds until the next measurement is due.

        The value is WATCH_PERIOD_S, or less if the child's processes, each on its own processor, could exceed their
        processor time earlier.
        """
        if self.ending is not None or self._over is not None:
            return WATCH_PERIOD_S
        left_s = self._policy.cpu_s - used.cpu_s
        if used.is_out_of_memory or used.memory_bytes > self._policy.memory_bytes + _ROOM_BYTES:
            self._over = "memory"
        elif left_s < 0:
            self._over = "cpu"
        if self._over is not None:
            self.kill()
        return min(WATCH_PERIOD_S, max(_LEAST_PERIOD_S, left_s / (os.cpu_count() or 1)))

    def close_input(self) -> None:
        """Close the pipe of frames to the child, so that the child reads end of file. Idempotent."""
        self.frames_in = _closed(self.frames_in)

    def close(self) -> None:
        """Kill the child unless it has ended, and close all of its descriptors without waiting. Idempotent."""
        if not self._open:
            return
        self._open = False
        if self.ending is None:
            self.kill()
        self._template._forget(self._number, is_gone=not self._is_asked_for)
        self._stop_listening()
        self._pidfd = _closed(self._pidfd)
        self.frames_in, self.frames_out, self.log = map(_closed, (self.frames_in, self.frames_out, self.log))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _spawn(self, program: int, size: int) -> None:
        with contextlib.ExitStack() as theirs:
            child_in, self.frames_in = _pipe_from(theirs)
            self.frames_out, child_out = _pipe_to(theirs)
            self.log, child_log = _pipe_to(theirs)
            for fd in (self.frames_in, self.frames_out):
                _enlarge(fd)
            for fd in (self.frames_in, self.frames_out, self.log):
                os.set_blocking(fd, False)
            policy = self._policy
            spawn = Spawn(
                profile=policy.profile,
                child=self._number,
                memory_bytes=policy.memory_bytes,
                cpu_s=policy.cpu_s,
                scratch_bytes=policy.scratch_bytes,
                scratch_files=policy.scratch_files,
                processes=policy.processes,
                open_files=policy.open_files,
                file_bytes=policy.file_bytes,
                program_bytes=size,
                group_bytes=self._template._group_bytes(policy, size),
                listens=self._listens,
            )
            self._template._send(spawn, [program, child_in, child_out, child_log])
            self._is_asked_for = True

    @property
    def _is_zombie(self) -> bool:
        if self._pidfd < 0:
            return False
        ended = select.poll()
        ended.register(self._pidfd, select.POLLIN)  # pidfd_open(2)
        return bool(ended.poll(0))

    @property
    def _cpu_limit_ms(self) -> float:
        return self._policy.cpu_s * 1000 * _CPU_LIMIT_SHARE

    # for Template

    def _born(self, pidfd: int, group: cgroups.Group | None) -> None:
        self._pidfd = pidfd
        self._group = group
        if group is not None and self.is_watched:
            try:
                group.begin_to_count()
            except OSError:  # no descriptor is free: a child whose time cannot be counted must not run
                self._kill_wanted = True
        if self._kill_wanted:
            self.kill()

    def _failed(self, failure: Failed) -> None:
        self._failure = failure

    def _attempted(self, attempt: Attempted) -> None:
        self._attempt = attempt

    def _listening(self, listener: list[int]) -> None:
        if not listener:  # the kernel drops what exceeds RLIMIT_NOFILE, unix(7): then `has_left` comes with the ending
            return
        (self._listener,) = listener
        try:
            self._template._listen(self._listener, self)
        except OSError:  # ENOSPC, epoll_ctl(2): `has_left` comes with the ending here, too
            self._listener = _closed(self._listener)

    def _left(self) -> None:
        self._has_left = True
        self._stop_listening()

    def _stop_listening(self) -> None:
        self._template._stop_listening(self._listener)
        self._listener = _closed(self._listener)

    def _ended(self, ended: Ended) -> None:
        usage = Usage(ended.cpu_ms, ended.max_rss_kib)
        code = os.waitstatus_to_exitcode(ended.status)
        is_out_of_memory = self._is_out_of_memory(code)
        self._template._forget(self._number, is_gone=True)
        if self._failure is not None:
            self.ending = RefusedToStart(self._failure.step, self._failure.errno)
        elif self._attempt is not None:
            self.ending = NetworkAttempt(self._attempt.destination, usage)
        elif is_out_of_memory:
            self.ending = OverLimit("memory", usage)
        elif self._over is not None:
            self.ending = OverLimit(self._over, usage)
        elif code >= 0:
            self.ending = Exited(code, usage)
        elif -code == signal.SIGKILL and not self._kill_wanted and ended.cpu_ms >= self._cpu_limit_ms:
            # As pid 1 the child does not feel SIGXCPU; the hard limit's SIGKILL is what ends it, setrlimit(2).
            self.ending = OverLimit("cpu", usage)
        else:
            self.ending = Signalled(-code, usage)

    def _is_out_of_memory(self, code: int) -> bool:
        """Return whether the child ran out of memory. Its control group is read only if the child, or one of its
        processes, may have been killed.
        """
        is_possible = code == -signal.SIGKILL or self._policy.profile == "elf-subprocess"
        return is_possible and self._group is not None and self._group.is_out_of_memory()


@dataclasses.dataclass(frozen=True)
class _Both:
    """A `Tree` that reads memory from the child's control group, and adds up the processor time of the child's processes."""

    group: cgroups.Group
    processes: ProcessTree

    def used(self) -> Used:
        """Return the memory of the control group and the processor time of the processes."""
        return self.group.used()._replace(cpu_s=self.processes.used().cpu_s)


def _pipe_from(theirs: contextlib.ExitStack) -> tuple[int, int]:
    """Return (child's end, host's end) of a pipe that the child reads. `theirs` closes the child's end, even if a later
    step fails.
    """
    read, written = os.pipe2(os.O_CLOEXEC)
    theirs.callback(os.close, read)
    return read, written


def _pipe_to(theirs: contextlib.ExitStack) -> tuple[int, int]:
    """Return (host's end, child's end) of a pipe that the child writes. `theirs` closes the child's end."""
    read, written = os.pipe2(os.O_CLOEXEC)
    theirs.callback(os.close, written)
    return read, written


def _closed(fd: int) -> int:
    if fd >= 0:
        os.close(fd)
    return -1


def check_possible(profile: Profile, mode: Mode, *, is_compiled: bool) -> None:
    """Raise JailUnavailable, with the fix, if no jail of this mode on this machine can confine a program of this
    profile, because other processes could attach to it (ADR 34), or nothing would limit the memory of all its processes
    together (ADR 35).
    """
    if mode == "landlock" and is_compiled:
        raise JailUnavailable(
            "a compiled program cannot run without namespaces: other processes of the same user could attach to it and act as it",
            _NEEDS_NAMESPACES,
        )
    if mode == "landlock" and profile == "elf-subprocess":
        raise JailUnavailable(
            "without namespaces a program may not start other programs: nothing would be certain to end them",
            _NEEDS_NAMESPACES,
        )
    if profile == "elf-subprocess" and _find_groups() is None:
        raise JailUnavailable(_NO_GROUP, _NEEDS_GROUP)


def _check_fits(template: Template, program: int, policy: Policy) -> None:
    if policy.profile == ("python" if template._is_compiled else "elf"):
        raise ValueError(f"the profile {policy.profile!r} is not for programs of this template")
    check_possible(policy.profile, template._mode, is_compiled=template._is_compiled)
    if policy.profile == "elf-subprocess" and template.memory_by == "rlimit":
        raise ValueError("programs that may start others need a template that was started with memory_by='groups'")
    if template._is_compiled and not _is_sealed(program):
        raise ValueError("a compiled program must come in a sealed memory file: what was checked is what is executed")


def _is_sealed(program: int) -> bool:
    try:
        return fcntl.fcntl(program, fcntl.F_GET_SEALS) & _SEALS == _SEALS
    except OSError:  # EINVAL: not a memory file, so nothing keeps its bytes unchanged
        return False


def _enlarge(fd: int) -> None:
    # An ordinary user over the kernel's budget gets EPERM and keeps the default 64 KiB: slower, nothing else.
    with contextlib.suppress(OSError):
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _FRAME_PIPE_BYTES)


def _maybe_groups() -> cgroups.Groups | None:
    place = _find_groups()
    try:
        return cgroups.Groups(place) if place is not None else None
    except OSError as error:  # it was possible a moment ago
        raise JailUnavailable(f"cannot create control groups: {error}", _fix_of(error)) from error


def _find_groups() -> cgroups.Place | None:
    try:
        return cgroups.find()
    except OSError as error:  # no descriptor is free for the check
        raise JailUnavailable(f"cannot look for control groups: {error}", _fix_of(error)) from error


def _preparation(runtime: PythonRuntime | ElfRuntime, mode: Mode, *, has_groups: bool) -> Preparation:
    own: Profile = "elf" if isinstance(runtime, ElfRuntime) else "python"
    # A program that may start others needs a group (`_check_fits`). A filter takes 2 ms to compile.
    possible: tuple[Profile, ...] = (own, "elf-subprocess") if has_groups else (own,)
    try:
        from aileron_sandbox.filters import compile_network, compile_profile

        profiles = {profile: compile_profile(profile, mode).hex() for profile in possible}
        watched, unwatched = compile_network(watched=True), compile_network(watched=False)
    except (ImportError, OSError, RuntimeError) as error:
        fix = _fix_of(error) if is_short_of_descriptors(error) else "apt-get install libseccomp2"
        raise JailUnavailable(f"cannot use libseccomp: {error}", fix) from error
    libraries = [str(path) for path in runtime.libraries]
    if isinstance(runtime, ElfRuntime):
        return Preparation(
            "",
            libraries,
            {},
            None,
            [],
            profiles,
            watched.hex(),
            unwatched.hex(),
            "",
            mode,
            has_groups,
            is_compiled=True,
        )
    return Preparation(
        stdlib=str(runtime.stdlib),
        libraries=libraries,
        packages={name: str(path) for name, path in runtime.packages.items()},
        zones=str(runtime.zones) if runtime.zones is not None else None,
        preload=list(runtime.preload),
        profiles_hex=profiles,
        watched_hex=watched.hex(),
        unwatched_hex=unwatched.hex(),
        rehearsal_hex=program_of(runtime.rehearsal).hex(),
        mode=mode,
        has_groups=has_groups,
    )


def program_of(source: str) -> bytes:
    """Return a zip application that contains only this source text. It is built by hand, because zipfile takes 5 ms to
    import. PKWARE's APPNOTE.TXT, 4.3.
    """
    name, data = b"__main__.py", source.encode()
    # Version 2.0, no flags, stored, midnight of the first day that the format can express.
    described = struct.pack("<5H3I2H", 20, 0, 0, 0, 33, zlib.crc32(data), len(data), len(data), len(name), 0)
    local = b"PK\x03\x04" + described + name + data
    central = b"PK\x01\x02" + struct.pack("<H", 20) + described + struct.pack("<3H2I", 0, 0, 0, 0, 0) + name
    return local + central + b"PK\x05\x06" + struct.pack("<4H2IH", 0, 0, 1, 1, len(central), len(local), 0)


def _not_started(error: Exception) -> JailUnavailable:
    return JailUnavailable(f"the template did not start: {error}", _fix_of(error))


def _fix_of(error: Exception) -> str:
    """Return the fix for an error of the host's own system call, or of a template that did not respond."""
    number = error.errno if isinstance(error, OSError) and error.errno is not None else 0
    return fix("the host", number, Machine())


def _unavailable(answer: object, executable: Path) -> JailUnavailable:
    if not isinstance(answer, Failed):
        return JailUnavailable("the template answered out of turn", "report this as a bug")
    what = str(RefusedToStart(answer.step, answer.errno))
    return JailUnavailable(what, fix(answer.step, answer.errno, Machine.of_this(str(executable))))
