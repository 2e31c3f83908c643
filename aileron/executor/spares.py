"""Spares: jails that are started in advance. In each, a recently used connector is loaded and confined, and waits for
its next run.

Runs in the daemon; a waiting connector is as hostile as a running one. A spare is a jail like any other (jails.py),
with one connector's verified bytes, which has not been told anything: no arguments, no hosts, no run. The run that
takes the spare sends `invoke`, and from then on the spare belongs only to that run. A spare is used only once.

Rules
- A spare is made after a successful run of the same connector, and never while other runs need the processors.
- A spare is used only if everything that it depends on is unchanged: the pin, the files, the limits, layers and
  template, and the `fence`, which covers everything else that makes a spare unusable (settings, the vault's lock, the
  actions).
- Before `invoke` a connector can only load, and send `ready` once. Another frame, output, a connection, an exit, or
  more processor time than loading takes ends the spare and is recorded, and no other spare of that connector is made
  for some time.
- A spare of a compiled connector is used only after the connector sent `ready`, in one piece, and only if that
  connector also sends `ready` in its runs.

The number and the resources of spares stay within `Bounds`.

Source: docs/adr/0048-spares.md. Not here: making a jail (jails.py), the frames of a run (conversation.py).
"""

from __future__ import annotations

import logging
import os
import select
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple, Protocol

import anyio
import msgspec
from anyio.abc import TaskGroup

from aileron.executor.jails import Jailed, Jails
from aileron.executor.programs import ConnectorStore, opened, runtime_of
from aileron.model.failure import AileronError
from aileron.model.plan import ConnectorPin
from aileron.threads import in_thread
from aileron_sandbox.elf import ElfRuntime
from aileron_sandbox.ending import NetworkAttempt, RefusedToStart
from aileron_sandbox.frames.codec import Decoder, FrameError
from aileron_sandbox.frames.frame_messages import FromJail, Ready
from aileron_sandbox.policy import Policy

__all__ = ["Bounds", "Early", "Spare", "SpareJournal", "Spares"]

_LATER_S: Final = 0.002
"""Seconds after a run until a spare for the next run is made, so that the result goes out first."""
_LAST_WORDS_S: Final = 1.0
"""Maximum seconds to wait for the report of how a spare ended, after it exited or closed its frame pipe."""
_READY_BYTES: Final = 256
"""Maximum number of bytes to read from a waiting connector's frame pipe: a `ready` frame has 20 to 40, depending on its
encoding.
"""
_PREFIX_BYTES: Final = 8
"""Number of bytes before the header of a frame. They contain the length of the header and the length of the body."""
_MOST_QUIET: Final = 256
"""Maximum number of connectors whose early acts are remembered."""

Early = Literal["frame", "output", "network", "exit", "resources"]
"""Early act of a connector, before an `invoke` frame told it what to do: it sent a frame, wrote output, used the
network, exited, or used too much processor time.
"""
_log = logging.getLogger(__name__)


class Bounds(msgspec.Struct, frozen=True):
    """The limits of spares: their number, lifetime and resources."""

    each: int = 2
    """Maximum number of spares of one connector: while one is used and the next is being made, a second is available."""
    most: int = 8
    """Maximum number of spares of all connectors together, which is enough for four actions used in turn. Each spare
    takes 2 MB in addition to the memory that it shares.
    """
    lifetime_s: float = 30.0
    """Maximum seconds that a spare waits for a run. An agent's calls follow one another within seconds, and the limit
    bounds the age of everything that the connector has loaded.
    """
    busy: int = 2
    """Number of running connectors at which no more spares are made: two connectors keep two cores busy, so a spare
    would be ready no sooner than it is needed.
    """
    look_s: float = 1.0
    """Seconds between two checks of waiting spares."""
    cpu_s: float = 2.0
    """Maximum seconds of processor time of one spare. The largest client libraries take half a second to load."""
    memory_bytes: int = 256 << 20
    """Maximum memory of all spares together, in bytes, including the part that each shares with the template (8 MiB,
    measured).
    """
    least_free: float = 0.1
    """Fraction of the machine's memory that must be free; below it all spares are ended."""
    short_s: float = 10.0
    """Seconds for which no spares are made after memory ran short."""
    quiet_s: float = 60.0
    """Seconds for which a connector gets no spares after its first early act. Each further early act doubles the time,
    up to `quietest_s`.
    """
    quietest_s: float = 3600.0


class SpareJournal(Protocol):
    """The interface to the ledger with which early acts of connectors are recorded."""

    async def acted_early(self, pin: ConnectorPin, what: Early, destination: str | None) -> None:
        """Record that a waiting spare of `pin` was ended because its connector acted before it was told to.
        `destination` is where the spare tried to connect, as the connector named it; None for other acts.
        """
        ...


class _Key(NamedTuple):
    pin: ConnectorPin
    policy: Policy


class Spare(msgspec.Struct, eq=False):
    """A spare: a jail whose connector is loaded, and waits for its next run or was just taken by one."""

    key: _Key
    jailed: Jailed
    runtime: ElfRuntime | None
    """Libraries of a compiled connector; None for Python."""
    layers: tuple[str, ...]
    stamp: object
    fence: object
    until: float
    """Time at which the spare is discarded, as in `anyio.current_time()`."""
    said_ready: bool = False
    """True once the spare has sent `ready`."""
    early: Early | None = None
    """Early act of the connector, if a check has detected one."""


class _Quiet(msgspec.Struct):
    """The time during which a connector that acted before it was told to gets no spares."""

    until: float
    lasts_s: float


class Spares:
    """The spares of one daemon. No spares are made unless `serve` is running.

    `fence` returns a value that changes whenever all waiting spares have become unusable.
    """

    def __init__(
        self,
        jails: Jails,
        store: ConnectorStore,
        journal: SpareJournal,
        fence: Callable[[], object],
        bounds: Bounds = Bounds(),  # noqa: B008 - a frozen value
    ) -> None:
        self._jails = jails
        self._store = store
        self._journal = journal
        self._fence = fence
        self._bounds: Final = bounds
        self._waiting: list[Spare] = []  # the oldest first
        self._wanted: OrderedDict[_Key, int] = OrderedDict()
        self._quiet: OrderedDict[ConnectorPin, _Quiet] = OrderedDict()
        self._short_until = 0.0
        self._tasks: TaskGroup | None = None
        self._is_wanted = anyio.Event()
        self._is_one_waiting = anyio.Event()

    @property
    def waiting(self) -> tuple[Jailed, ...]:
        """Spares that no run has taken, the oldest first."""
        return tuple(spare.jailed for spare in self._waiting)

    async def serve(self) -> None:
        """Make spares that are wanted, and check those that wait. Ends only on cancellation, and then ends all spares."""
        try:
            async with anyio.create_task_group() as self._tasks:
                self._tasks.start_soon(self._make)
                self._tasks.start_soon(self._look_after)
        finally:
            self._tasks = None
            for spare in self._waiting:
                await self._jails.end(spare.jailed)
            self._waiting.clear()
            self._wanted.clear()

    def maybe_take(self, pin: ConnectorPin, policy: Policy) -> Spare | None:
        """Take a spare of this connector with these limits; None if there is none. The caller must end the spare's jail.

        Raises AileronError(busy) if too many connectors are running.
        """
        key = _Key(pin, policy)
        for spare in [spare for spare in self._waiting if spare.key == key]:
            is_usable = self._is_usable(spare)
            if is_usable and spare.runtime is not None and not spare.said_ready:
                continue
            self._waiting.remove(spare)
            if is_usable:
                self._hand_over(spare)
                return spare
            self._discard(spare)
        return None

    def want(self, pin: ConnectorPin, policy: Policy, *, was_spare: bool) -> None:
        """Request a spare after a successful run of this connector. If that run used a spare (`was_spare`), request as
        many as are allowed.

        Ignored in the mode without namespaces, because jails there can see one another's processes.
        """
        if self._jails.mode != "namespaces":
            return
        self._wanted[_Key(pin, policy)] = self._bounds.each if was_spare else 1
        if len(self._wanted) > self._bounds.most:
            self._wanted.popitem(last=False)
        self._is_wanted.set()

    # Waiting spares

    def _is_usable(self, spare: Spare) -> bool:
        return (
            anyio.current_time() < spare.until
            and self._jails.is_current(spare.jailed, spare.runtime)
            and spare.stamp == self._store.stamp(spare.key.pin)
            and spare.fence == self._fence()
            and spare.jailed.ending is None
            and _acted(spare) is None
        )

    def _hand_over(self, spare: Spare) -> None:
        try:
            self._jails.hand_over(spare.jailed)
        except AileronError:
            self._discard(spare)
            raise

    def _discard(self, spare: Spare, early: Early | None = None) -> None:
        """End a spare that is no longer in the list of waiting spares. If its connector acted early, record that, and
        make no spares of that connector for a while.
        """
        if early is None and not spare.jailed.is_outdated:  # else its template may have ended, and the spare with it
            early = _acted(spare)
        if early is not None:
            self._keep_quiet(spare.key.pin)
        if self._tasks is not None:
            self._tasks.start_soon(self._end, spare, early)

    async def _end(self, spare: Spare, early: Early | None) -> None:
        if early is not None:
            _log.warning("%s acted before it was told what to do (%s): its spare was ended", spare.key.pin, early)
        if early == "exit":  # its ending is about to be reported, and with it the destination of a network attempt
            with anyio.move_on_after(_LAST_WORDS_S):
                await spare.jailed.wait_ended()
        await self._jails.end(spare.jailed)
        if early is None:
            return
        ending = spare.jailed.ending  # read again: the ending may have been reported late
        destination = None
        if isinstance(ending, NetworkAttempt):
            early, destination = "network", ending.destination.removeprefix("network:")
        try:
            await self._journal.acted_early(spare.key.pin, early, destination)
        except AileronError as error:
            _log.error("that %s acted early could not be recorded: %s", spare.key.pin, error)

    def _keep_quiet(self, pin: ConnectorPin) -> None:
        if self._is_quiet(pin):  # another spare of this connector did the same
            return
        before = self._quiet.pop(pin, None)
        lasts_s = self._bounds.quiet_s if before is None else min(before.lasts_s * 2, self._bounds.quietest_s)
        self._quiet[pin] = _Quiet(anyio.current_time() + lasts_s, lasts_s)
        if len(self._quiet) > _MOST_QUIET:
            self._quiet.popitem(last=False)

    def _is_quiet(self, pin: ConnectorPin) -> bool:
        quiet = self._quiet.get(pin)
        return quiet is not None and anyio.current_time() < quiet.until

    # Making

    async def _make(self) -> None:
        while True:
            await self._is_wanted.wait()
            self._is_wanted = anyio.Event()
            await anyio.sleep(_LATER_S)
            while self._wanted:
                key, count = self._wanted.popitem()
                while self._is_room(key, count) and await self._made(key):
                    pass

    def _is_room(self, key: _Key, count: int) -> bool:
        have = sum(spare.key == key for spare in self._waiting)
        is_room = have < count and len(self._waiting) < self._bounds.most and self._jails.running < self._bounds.busy
        return is_room and anyio.current_time() >= self._short_until and not self._is_quiet(key.pin)

    async def _made(self, key: _Key) -> bool:
        fence = self._fence()
        try:
            with await opened(self._store, key.pin) as program:
                if program.kind != key.policy.profile or program.stamp is None:
                    return False
                runtime = await runtime_of(key.pin, program.kind, program.program_fd)
                layers = self._jails.layers_of(key.policy, runtime)
                jailed = self._jails.begin(program.program_fd, key.policy, runtime, is_spare=True)
        except (AileronError, OSError) as error:  # the next run reports it to its caller
            _log.info("no spare of %s: %s", key.pin, error)
            return False
        until = anyio.current_time() + self._bounds.lifetime_s
        self._waiting.append(Spare(key, jailed, runtime, layers, program.stamp, fence, until))
        self._is_one_waiting.set()
        return True

    # Checking them

    async def _look_after(self) -> None:
        while True:
            await self._is_one_waiting.wait()
            self._is_one_waiting = anyio.Event()
            while self._waiting:
                await anyio.sleep(self._bounds.look_s)
                await self._look()

    async def _look(self) -> None:
        seen = list(self._waiting)
        used = await self._used(seen)
        if used.is_short:
            self._short_until = anyio.current_time() + self._bounds.short_s
        for spare, cpu_s in zip(seen, used.cpu_s, strict=True):
            if spare not in self._waiting:  # taken meanwhile
                continue
            is_greedy = cpu_s > self._bounds.cpu_s
            if is_greedy or not self._is_usable(spare) or used.is_short:
                self._waiting.remove(spare)
                self._discard(spare, "resources" if is_greedy else None)

    async def _used(self, seen: Sequence[Spare]) -> _Used:
        try:
            pids = [spare.jailed.child.pid for spare in seen]
            return await in_thread(_used, pids, self._bounds)
        # No thread or descriptor is free, and each spare holds four descriptors
        except (OSError, ImportError) as error:
            _log.warning("spares cannot be looked at, and are ended: %s", error)
            return _Used([0.0] * len(seen), is_short=True)


class _Used(NamedTuple):
    cpu_s: list[float]
    """Seconds of processor time of each spare."""
    is_short: bool
    """True if all spares together use more memory than allowed, or the machine is short of memory."""


def _used(pids: Sequence[int], bounds: Bounds) -> _Used:
    """Return the resources that these processes use. Reads files, so call it in a thread. A process that has ended, or
    has not started, counts as 0. Raises OSError.
    """
    import psutil  # 17 ms, and only where there are spares

    cpu_s: list[float] = []
    memory_bytes = 0
    for pid in pids:
        try:
            process = psutil.Process(pid)  # 0, for one that has not started yet, is no process
            times, memory = process.cpu_times(), process.memory_info()
        except psutil.Error:
            cpu_s.append(0.0)
            continue
        cpu_s.append(times.user + times.system)
        memory_bytes += memory.rss - memory.shared
    machine = psutil.virtual_memory()
    is_short = memory_bytes > bounds.memory_bytes or machine.available < bounds.least_free * machine.total
    return _Used(cpu_s, is_short)


def _acted(spare: Spare) -> Early | None:
    """Return what a spare's connector did before it was told to, or None. Do not call this after a run has taken the
    spare: it reads frames that the run needs.
    """
    spare.early = spare.early or _acts(spare)  # a frame can be read only once
    return spare.early


def _acts(spare: Spare) -> Early | None:
    jailed, ending = spare.jailed, spare.jailed.ending
    if isinstance(ending, NetworkAttempt):
        return "network"
    if isinstance(ending, RefusedToStart):  # the machine's fault, not the connector's
        return None
    if jailed.has_left:  # its ending is about to be reported
        return "exit"
    child, said = jailed.child, select.poll()
    said.register(child.frames_out, select.POLLIN)
    said.register(child.log, select.POLLIN)
    ready = dict(said.poll(0))
    if ready.get(child.frames_out, 0) & select.POLLIN and not _hears_ready(spare):
        return "frame"
    if ready.get(child.log, 0) & select.POLLIN:
        return "output"
    return "exit" if ready.get(child.frames_out, 0) & select.POLLHUP else None


def _hears_ready(spare: Spare) -> bool:
    """Read from a waiting spare's frame pipe. Return whether exactly one complete frame arrived, which is a `ready` and
    the first frame of the spare.
    """
    data = os.read(spare.jailed.child.frames_out, _READY_BYTES)
    decoder = Decoder(FromJail)
    decoder.feed(data)
    try:
        frame = decoder.next_frame()
    except FrameError:
        return False
    is_alone = len(data) == _PREFIX_BYTES + int.from_bytes(data[:4])
    if frame is None or not isinstance(frame.message, Ready) or not is_alone or spare.said_ready:
        return False
    spare.said_ready = True
    return True
