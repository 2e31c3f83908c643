"""The host side of a cell, and the only way to use one: start a cell, begin the agent in it, read its events, end it.

    with Cell.start(policy, ["bash"], {"PATH": "/usr/bin"}, ("terminal", "terminal", "terminal")) as cell:
        cell.begin()
        select.select([cell.control, cell.terminal], [], [])
        event = cell.event()

Owns the stub process, the control socket, the listeners and the host's ends of the streams. Blocks while it starts
(40 ms) and in `connect`; everything else returns at once. Trusts the first process of the cell, which runs our code;
trusts no data from a stream, a listener or a connection.

Rules
- A cell has ended when `event` returns `Ended` or `NotStarted`. The agent's remaining processes are then being killed.
- `close` kills all processes of the cell and waits for their end. If the host dies, the kernel kills them: the stub
  dies with the thread that started it (PR_SET_PDEATHSIG, prctl(2)), and the first process with the stub.
- Not thread-safe: one thread or one event loop owns a cell.

Not here: filtering the agent's output for a terminal, serving the listeners (aileron/cell).
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self

import msgspec

from aileron_sandbox.cell import cell_messages
from aileron_sandbox.cell.cell_messages import Preparation
from aileron_sandbox.cell.landlock import LEAST_ABI
from aileron_sandbox.cell.policy import CellPolicy
from aileron_sandbox.cell.stub import Stub
from aileron_sandbox.fixes import Machine, fix_cell, is_short_of_descriptors
from aileron_sandbox.unavailable import JailUnavailable

if TYPE_CHECKING:  # only a cell without a group needs these at run time, and imports them there (2 ms)
    from aileron_sandbox import cgroups
    from aileron_sandbox.cell.held import Held
    from aileron_sandbox.cell.memory import MemoryWatch

__all__ = ["Cell", "Continued", "Ended", "Event", "Kind", "NotStarted", "Stopped", "Streams"]

Kind = Literal["terminal", "pipe"]
Streams = tuple[Kind, Kind, Kind]
"""Kinds of the streams 0, 1 and 2. All streams of kind "terminal" share one terminal."""


class Stopped(msgspec.Struct, frozen=True):
    """Event: the agent was stopped, for example by Ctrl-Z. It continues after `signal(SIGCONT)`."""

    signal: int


class Continued(msgspec.Struct, frozen=True):
    """Event: the stopped agent has continued."""


class Ended(msgspec.Struct, frozen=True):
    """Event: the agent has ended, with exit status `code` or by `signal`, and the cell with it. `why` is the reason if
    the host or the kernel ended it because of its memory; else None.
    """

    code: int | None
    signal: int | None
    why: str | None


class NotStarted(msgspec.Struct, frozen=True):
    """Event: the agent's program could not be executed, and the cell has ended."""

    errno: int


Event = Stopped | Continued | Ended | NotStarted

_START_DEADLINE_S: Final = 20.0  # 40 ms measured; a machine that is starting up may take a hundred times that
_STOP_DEADLINE_S: Final = 10.0  # a namespace with thousands of processes takes a second to be killed
_CONNECT_DEADLINE_S: Final = 5.0  # on the cell's own loopback, where a program that does not accept makes others wait
_ANSWER_DEADLINE_S: Final = 5.0
_FIRST: Final = 7
"""Number of descriptors that come with every cell: its first process, its two private file systems, its socket
diagnostics, and its three lists of System V objects.
"""
_MAX_EVENTS: Final = 1024
"""Maximum number of events that are stored while `connect` waits for its response. An agent that stops and continues
repeatedly causes many.
"""
_TCP_SHARE: Final = 4
"""Divisor of the memory limit that gives the additional limit for TCP buffers, where the kernel counts them separately
(v1): a quarter. Servers on loopback need less.
"""
_SEES_SOCKETS: Final = (
    "load the kernel modules unix_diag, tcp_diag, udp_diag and netlink_diag, or start it where control groups can be made: "
    "systemd-run --user --scope -p Delegate=yes aileron launch …"
)
_LAYERS: Final = (
    "user-ns", "mount-ns", "pid-ns", "net-ns", "ipc-ns", "uts-ns", "cgroup-ns", "pivoted-root",
    "no-capabilities", "no-new-privs", "rlimits",
)  # fmt: skip


class Cell:
    """The host's handle of a running cell (the jail of a development session). Make one with `start`."""

    def __init__(self, policy: CellPolicy, streams: Streams) -> None:
        self._policy = policy
        self._streams = streams
        self.listeners: Mapping[str, tuple[socket.socket, ...]] = MappingProxyType({})
        """The listening sockets by name. They are bound inside the cell, and the host accepts their connections."""
        self.terminal: int | None = None
        """Descriptor of the master side of the cell's terminal; None if no stream is a terminal."""
        self.pipes: tuple[int | None, int | None, int | None] = (None, None, None)
        """The host's ends of the pipes: 0 is written to, 1 and 2 are read from. None if the stream is a terminal or closed."""
        self.layers: tuple[str, ...] = ()
        """Names of the confinement layers in force, as doctor and the audit trail list them."""
        self._undo = contextlib.ExitStack()
        self._group: cgroups.Group | None = None
        self._memory_by = "watched"
        self._watch: MemoryWatch | None = None
        self._pidfd = -1
        self._has_begun = False
        self._is_over = False
        self._events: deque[bytes] = deque()

    @classmethod
    def start(
        cls,
        policy: CellPolicy,
        command: Sequence[str],
        environment: Mapping[str, str],
        streams: Streams,
        *,
        stub: Stub | None = None,
    ) -> Self:
        """Prepare a cell, without executing the agent yet. Raises JailUnavailable, with the step that this machine
        refuses and its fix.

        `stub` is the process that will become the cell, if it was started earlier. The caller may close `stub` in any case.
        """
        cell = cls.prepare(policy, command, environment, streams, stub=stub)
        cell.wait()
        return cell

    @classmethod
    def prepare(
        cls,
        policy: CellPolicy,
        command: Sequence[str],
        environment: Mapping[str, str],
        streams: Streams,
        *,
        stub: Stub | None = None,
    ) -> Self:
        """Begin the work of `start`, and return after about 10 ms, before the cell is ready. The caller must call `wait` next."""
        if not command:
            raise ValueError("there is no command to execute")
        if any("\0" in text for text in (*command, *environment.keys(), *environment.values())):
            raise ValueError("a NUL in the command or its environment")
        if any("=" in name or not name for name in environment):
            raise ValueError("a name in the environment is empty, or has a '='")
        cell = cls(policy, streams)
        with cell._or_closed():
            cell._tell(command, environment, stub)
        return cell

    def wait(self) -> None:
        """Wait until the cell is ready. Raises JailUnavailable, like `start`, if it cannot be made; the cell is then closed."""
        with self._or_closed():
            self._hear()

    @contextlib.contextmanager
    def _or_closed(self) -> Iterator[None]:
        """Close the cell if the block raises an error. An OSError is raised as JailUnavailable."""
        try:
            yield
        except OSError as error:
            self.close()
            step = "descriptors" if is_short_of_descriptors(error) else "the host"
            raise _unavailable(step, error.errno or 0, str(error)) from error
        except BaseException:
            self.close()
            raise

    def _tell(self, command: Sequence[str], environment: Mapping[str, str], stub: Stub | None) -> None:
        self._stub = Stub.start() if stub is None else stub
        self._control = self._stub.control
        self._undo.callback(self._stub.close)
        self._undo.callback(self._end)  # runs before that: the group can only be removed when its processes are gone
        self._bound()
        with contextlib.ExitStack() as theirs:
            ends = [self._pipe(number, theirs) for number, kind in enumerate(self._streams) if kind == "pipe"]
            self._stub.tell(_preparation(self._policy, command, environment, self._streams), ends)

    def _hear(self) -> None:
        self._control.settimeout(_START_DEADLINE_S)
        try:
            data, fds, _, _ = socket.recv_fds(self._control, cell_messages.MAX_DATAGRAM, cell_messages.MAX_DESCRIPTORS)
        except TimeoutError as error:
            raise _unavailable("start", errno.ETIMEDOUT, f"no answer after {_START_DEADLINE_S:.0f} s") from error
        except ConnectionError as error:
            raise _unavailable("start", errno.EPIPE, "the cell's first process ended") from error
        self._control.setblocking(False)
        if data[:1] == cell_messages.FAILED:
            raise _unavailable(*_failure(data))
        if data[:1] != cell_messages.READY:
            raise _unavailable("start", errno.EPIPE, "the cell's first process ended")
        self._take_over(cell_messages.unpack_numbers(data), fds)

    def _take_over(self, numbers: tuple[int, ...], fds: list[int]) -> None:
        """Store the descriptors that the cell sent with its message `Ready`, in the order in which init.py sends them.
        `numbers` are Landlock's ABI, whether the cell itself limits its processes, and how many sockets each listener
        has.
        """
        abi, bounds_processes, *counts = numbers
        rest = deque(fds)
        names = [name for name, _ in (*self._policy.tcp_listeners, *self._policy.unix_listeners)]
        if len(counts) != len(names) or len(fds) != _FIRST + ("terminal" in self._streams) + sum(counts):
            for fd in fds:
                os.close(fd)
            raise _unavailable("descriptors", errno.EMFILE, "not all descriptors of the cell arrived")
        self._pidfd = rest.popleft()  # closed by `_end`
        scratch = (rest.popleft(), rest.popleft())
        diagnostics = rest.popleft()
        system_v = (rest.popleft(), rest.popleft(), rest.popleft())
        for fd in (*scratch, diagnostics, *system_v):
            self._undo.callback(os.close, fd)
        if "terminal" in self._streams:
            self.terminal = rest.popleft()
            self._undo.callback(os.close, self.terminal)
        self.listeners = MappingProxyType(
            {
                name: tuple(_listener(rest.popleft()) for _ in range(count))
                for name, count in zip(names, counts, strict=True)
            }
        )
        for made in self.listeners.values():
            for listener in made:
                self._undo.callback(listener.close)
        if self._group is None:
            from aileron_sandbox.cell.held import Held
            from aileron_sandbox.cell.memory import MemoryWatch

            held = Held(diagnostics, system_v)
            self._watch = MemoryWatch(self._pidfd, scratch, held, self._policy.memory_bytes)
            self._undo.callback(self._watch.close)
            _check_seen(held)
            self._watch.start()
        self.layers = (
            *_LAYERS,
            f"landlock:{abi}" if abi >= LEAST_ABI else "landlock:none",
            f"memory:{self._memory_by}",
            f"processes:{_processes_by(bounds_processes)}",
            "seccomp:cell",
        )

    def _bound(self) -> None:
        """Set the policy's memory limit on the control group of the process that becomes the cell, if it is in one."""
        taken = self._stub.group()
        if taken is None:
            return
        groups, group = taken
        with group.opened() as opened:
            opened.bound(self._policy.memory_bytes)
        group.bound_tcp(self._policy.memory_bytes // _TCP_SHARE)
        self._group, self._memory_by = group, groups.kind

    @property
    def control(self) -> int:
        """Descriptor to wait on with epoll(7) or poll(2). When it is readable, call `event`."""
        return self._control.fileno()

    def begin(self) -> None:
        """Execute the agent. `event` reports success or failure. Raises ValueError if the agent was begun before."""
        if self._has_begun:
            raise ValueError("the agent was begun before")
        self._has_begun = True
        self._send(cell_messages.BEGIN)

    def event(self) -> Event | None:
        """Return the next event of the cell (the agent has stopped, continued, ended or not started), or None if there
        is none. Does not block.
        """
        while not self._is_over:
            data = self._events.popleft() if self._events else self._maybe_datagram()
            if data is None:
                return None
            event = self._event_of(data)
            if event is not None:
                self._is_over = isinstance(event, Ended | NotStarted)
                return event
        return None

    def signal(self, number: int) -> None:
        """Send a signal to the agent's foreground job. SIGCONT goes to the agent itself, which becomes the foreground
        job again. Does nothing if the agent has ended.
        """
        self._send(cell_messages.pack_number(cell_messages.SIGNAL, number))

    def connect(self, port: int) -> socket.socket:
        """Connect to a port of the cell's own loopback, trying IPv4 before IPv6, and return the socket. Raises OSError
        as connect(2) does, or TimeoutError.
        """
        if not 1 <= port <= 65535:
            raise ValueError(f"port is {port}, expected 1 to 65535")
        self._send(cell_messages.pack_number(cell_messages.CONNECT, port))
        number, fds = self._answer()
        with contextlib.ExitStack() as undo:
            made = [undo.enter_context(socket.socket(fileno=fd)) for fd in fds]
            for candidate in made:
                number = _connected(candidate)
                if number == 0:
                    kept = socket.socket(fileno=candidate.detach())
                    kept.setblocking(True)
                    return kept
        raise OSError(number, f"port {port} of the cell: {os.strerror(number)}")

    def close_input(self) -> None:
        """Close the pipe to the agent's stream 0, so that the agent reads end of file. Idempotent; does nothing if
        stream 0 is the terminal.
        """
        self._close_pipe(0)

    def close(self) -> None:
        """Kill every process in the cell, wait for their end, and close every descriptor. Idempotent."""
        self._is_over = True
        self._undo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Starting

    def _pipe(self, number: int, theirs: contextlib.ExitStack) -> int:
        """Make a pipe for the agent's stream `number`, store the host's end, and return the agent's end, which `theirs`
        closes.
        """
        read, write = os.pipe2(os.O_CLOEXEC)
        their, our = (read, write) if number == 0 else (write, read)
        theirs.callback(os.close, their)
        self._undo.callback(self._close_pipe, number)
        pipes = list(self.pipes)
        pipes[number] = our
        self.pipes = (pipes[0], pipes[1], pipes[2])
        return their

    def _close_pipe(self, number: int) -> None:
        pipes = list(self.pipes)
        fd, pipes[number] = pipes[number], None
        self.pipes = (pipes[0], pipes[1], pipes[2])
        if fd is not None:
            os.close(fd)

    def _end(self) -> None:
        """Kill the cell's first process, if it exists, and with it every process in the cell. Its parent (the stub)
        then ends, or is killed.
        """
        if self._pidfd < 0:
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._stub.process.wait(_STOP_DEADLINE_S)
        os.close(self._pidfd)
        self._pidfd = -1

    # Talking

    def _send(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):  # the cell has ended, which comes as an event
            self._control.send(data)

    def _maybe_datagram(self) -> bytes | None:
        """Return the next datagram from the cell, None if none has arrived yet, or b"" if no more will arrive."""
        try:
            return self._control.recv(cell_messages.MAX_DATAGRAM)
        except BlockingIOError:
            return None
        except ConnectionError:
            return b""

    def _answer(self) -> tuple[int, list[int]]:
        """Wait for the cell's response to the message `Connect`, and return its errno and its sockets' descriptors.
        Events that arrive before the response are stored for `event`.
        """
        until = time.monotonic() + _ANSWER_DEADLINE_S
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        while (left := until - time.monotonic()) > 0 and len(self._events) < _MAX_EVENTS:
            if not poll.poll(left * 1000):
                continue
            data, fds, _, _ = socket.recv_fds(self._control, cell_messages.MAX_DATAGRAM, cell_messages.MAX_DESCRIPTORS)
            if data[:1] == cell_messages.CONNECTED:
                return cell_messages.number_of(data), list(fds)
            self._events.append(data)
            if not data:
                raise ConnectionRefusedError(errno.ECONNREFUSED, "the cell has ended")
        raise TimeoutError(errno.ETIMEDOUT, f"the cell did not answer within {_ANSWER_DEADLINE_S:.0f} s")

    def _event_of(self, data: bytes) -> Event | None:
        match data[:1]:
            case cell_messages.STOPPED:
                return Stopped(cell_messages.number_of(data))
            case cell_messages.CONTINUED:
                return Continued()
            case cell_messages.NOT_STARTED:
                return NotStarted(cell_messages.number_of(data))
            case cell_messages.ENDED:
                return self._ended(cell_messages.number_of(data))
            case b"":
                return self._ended(signal.SIGKILL)
            case _:
                return None

    def _ended(self, status: int) -> Ended:
        code = os.waitstatus_to_exitcode(status)
        if code >= 0:
            return Ended(code, None, None)
        return Ended(None, -code, self._why_killed() if -code == signal.SIGKILL else None)

    def _why_killed(self) -> str | None:
        if self._watch is not None:
            return self._watch.why
        if self._group is not None and self._group.is_out_of_memory():
            return f"over its limit of {self._policy.memory_bytes >> 20} MiB of memory"
        return None


def _check_seen(held: Held) -> None:
    try:
        held.look_at_kernel()
    except OSError as error:
        raise JailUnavailable(f"cannot see the memory of a cell's sockets: {error}", _SEES_SOCKETS) from error


def _processes_by(bounds: int) -> str:
    if bounds:
        return "pid-ns"
    return "rlimit" if os.getuid() else "memory"


def _preparation(
    policy: CellPolicy,
    command: Sequence[str],
    environment: Mapping[str, str],
    streams: Streams,
) -> Preparation:
    overlay = policy.overlay
    return Preparation(
        binds=tuple((bind.source, bind.target, bind.writable, bind.mounts) for bind in policy.binds),
        command=tuple(command),
        environment=dict(environment),
        files=policy.files,
        folder=policy.folder,
        home=policy.home,
        limits={
            resource.RLIMIT_NPROC: policy.processes,
            resource.RLIMIT_NOFILE: policy.open_files,
            resource.RLIMIT_FSIZE: policy.file_bytes,
            resource.RLIMIT_CORE: 0,
            resource.RLIMIT_NICE: 0,
            resource.RLIMIT_RTPRIO: 0,
            **{kind: _half_of(kind) for kind in (resource.RLIMIT_SIGPENDING, resource.RLIMIT_MSGQUEUE)},
        },
        links=policy.links,
        masked=policy.masked,
        overlay=msgspec.structs.astuple(overlay) if overlay is not None else None,
        pipes=(-1, -1, -1),  # their numbers are known only on arrival
        scratch_bytes=policy.scratch_bytes,
        streams=streams,
        tcp_listeners=policy.tcp_listeners,
        umask=_umask(),
        unix_listeners=policy.unix_listeners,
    )


def _half_of(kind: int) -> int:
    """Return half of this user's limit `kind` (RLIMIT_…), because what a cell uses counts towards the user's own limit,
    too.
    """
    most = resource.getrlimit(kind)[1]
    return most if most == resource.RLIM_INFINITY else most // 2


def _umask() -> int:
    """Return this process's umask, read from proc_pid_status(5): umask(2) can only read it by changing it, which
    other threads could notice.
    """
    with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
        return next(int(line.split()[1], 8) for line in file if line.startswith("Umask:"))


def _listener(fd: int) -> socket.socket:
    listener = socket.socket(fileno=fd)
    listener.setblocking(False)
    return listener


def _connected(candidate: socket.socket) -> int:
    """Wait until the connection of the socket `candidate` has succeeded or failed. Return 0 if it is connected, else
    the errno.
    """
    poll = select.poll()
    poll.register(candidate, select.POLLOUT)
    if not poll.poll(_CONNECT_DEADLINE_S * 1000):
        return errno.ETIMEDOUT
    return candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def _failure(data: bytes) -> tuple[str, int, str]:
    try:
        number, step, what = cell_messages.unpack_failed(data)
    except struct.error:
        return "start", errno.EBADMSG, "its answer has no form"
    return step, number, what


def _unavailable(step: str, number: int, what: str) -> JailUnavailable:
    said = f"cannot make a cell, {step}: {what}"
    return JailUnavailable(said, fix_cell(step, number, Machine.of_this(sys.executable)))
