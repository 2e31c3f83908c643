"""Jails that were started ahead: a connector that was used lately waits, loaded and shut in, for the next run that needs it.

Runs in the daemon; what waits is as hostile as what runs. A spare is a jail like any other (jails.py), of one connector's
verified bytes, that has not been told anything: no arguments, no hosts, no run. Whoever takes it sends `invoke`, and from then
on it is that run's alone. It is used once.

Rules
- A spare is made after a run of the same connector that worked, and never while others run that need the processors.
- It is used only if all that it depends on is as it was: the same pin, files that nobody touched, the same limits, layers and
  template, and the same `fence`: what the daemon says makes a spare worthless (settings, the vault's lock, the actions).
- Before `invoke` a connector has nothing to do but to load, and may say once that it is `ready`. Another frame, output, a
  connection, an end, or more processor time than loading takes ends the spare and is on record, and no other is made of that
  connector for some time.
- One that is compiled is used only once it has said so, in one piece, and only if it says so in its runs.

All of it within `Bounds`.

Source: docs/adr/0048-spares.md. Not here: how a jail is made (jails.py), what a run says to it (conversation.py).
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
from aileron_sandbox.frames.messages import FromJail, Ready
from aileron_sandbox.policy import Policy

__all__ = ["Bounds", "Early", "Spare", "SpareJournal", "Spares"]

_LATER_S: Final = 0.002
"""After a run before its successor is made: the answer goes first."""
_LAST_WORDS_S: Final = 1.0
"""From a spare's closing its frames until it has ended."""
_READY_BYTES: Final = 256
"""Read of what one that waits has said: `ready` is 20 to 40, as it is spelled."""
_PREFIX_BYTES: Final = 8
"""Before the header of a frame: its length, and that of its body."""
_MOST_QUIET: Final = 256
"""Connectors whose early acts are remembered."""

Early = Literal["frame", "output", "network", "exit", "resources"]
"""What a connector did before it was told what to do."""
_log = logging.getLogger(__name__)


class Bounds(msgspec.Struct, frozen=True):
    """How many there are, for how long, and what they may use."""

    each: int = 2
    """Of one connector: while one is used and the next one is made, there is another."""
    most: int = 8
    """In all: the connectors of four actions in turn; 2 MB each beside what they share."""
    lifetime_s: float = 30.0
    """An agent's calls follow one another within seconds; and what a connector has loaded is never older than this."""
    busy: int = 2
    """Others that run at the same time: two take two cores, and a spare would be ready no sooner than it is wanted."""
    look_s: float = 1.0
    """Between two looks at those that wait."""
    cpu_s: float = 2.0
    """Processor time of one: the largest client libraries take half a second to load."""
    memory_bytes: int = 256 << 20
    """Of all together, with what each shares with the template (8 MiB, measured)."""
    least_free: float = 0.1
    """Of the machine's memory, which has to be free for one to be kept."""
    short_s: float = 10.0
    """Without any after memory was short."""
    quiet_s: float = 60.0
    """Without any, for a connector that has acted early; twice as long each time, up to `quietest_s`."""
    quietest_s: float = 3600.0


class SpareJournal(Protocol):
    """The ledger, as spares see it."""

    async def acted_early(self, pin: ConnectorPin, what: Early, destination: str | None) -> None:
        """A spare of `pin` was ended for this; `destination` is where it wanted to go, as it says."""
        ...


class _Key(NamedTuple):
    pin: ConnectorPin
    policy: Policy


class Spare(msgspec.Struct, eq=False):
    """One that waits, or that somebody has just taken."""

    key: _Key
    jailed: Jailed
    runtime: ElfRuntime | None
    """Of one that is compiled."""
    layers: tuple[str, ...]
    stamp: object
    fence: object
    until: float
    """Discarded then; as `anyio.current_time()`."""
    said_ready: bool = False
    """It has told that it waits."""
    early: Early | None = None
    """What it did too early, as far as that was looked at."""


class _Quiet(msgspec.Struct):
    """How long a connector that acted early has no spares."""

    until: float
    lasts_s: float


class Spares:
    """One for each daemon. None are made while `serve` does not run.

    `fence` is other whenever those that wait may no longer be used, whatever their connector.
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
        """Those that nobody has taken, the oldest first."""
        return tuple(spare.jailed for spare in self._waiting)

    async def serve(self) -> None:
        """Make those that are wanted, and look at those that wait. Ends only by cancellation, and all spares with it."""
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
        """One for a try of this connector under these limits; the caller has to end its jail. None where there is none.

        AileronError(busy) where too many are running.
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
        """A run of this connector has worked: have one ready for the next, or as many as may be where the last one used one.

        In the mode without namespaces none: there a process that waits is one more that others can see.
        """
        if self._jails.mode != "namespaces":
            return
        self._wanted[_Key(pin, policy)] = self._bounds.each if was_spare else 1
        if len(self._wanted) > self._bounds.most:
            self._wanted.popitem(last=False)
        self._is_wanted.set()

    # One that waits

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
        """End one that is no longer in the list; where it has acted early, on record and with consequences."""
        if early is None and not spare.jailed.is_outdated:  # otherwise its template may have ended, and it with that
            early = _acted(spare)
        if early is not None:
            self._keep_quiet(spare.key.pin)
        if self._tasks is not None:
            self._tasks.start_soon(self._end, spare, early)

    async def _end(self, spare: Spare, early: Early | None) -> None:
        if early is not None:
            _log.warning("%s acted before it was told what to do (%s): its spare was ended", spare.key.pin, early)
        if early == "exit":  # it is about to be heard of, and where it wanted to go with it
            with anyio.move_on_after(_LAST_WORDS_S):
                await spare.jailed.wait_ended()
        await self._jails.end(spare.jailed)
        if early is None:
            return
        ending = spare.jailed.ending  # now: it may have been slow to be heard of
        destination = None
        if isinstance(ending, NetworkAttempt):
            early, destination = "network", ending.destination.removeprefix("network:")
        try:
            await self._journal.acted_early(spare.key.pin, early, destination)
        except AileronError as error:
            _log.error("that %s acted early could not be recorded: %s", spare.key.pin, error)

    def _keep_quiet(self, pin: ConnectorPin) -> None:
        if self._is_quiet(pin):  # the other one of it did the same
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
        except (AileronError, OSError) as error:  # the next run says so to whoever wants it
            _log.info("no spare of %s: %s", key.pin, error)
            return False
        until = anyio.current_time() + self._bounds.lifetime_s
        self._waiting.append(Spare(key, jailed, runtime, layers, program.stamp, fence, until))
        self._is_one_waiting.set()
        return True

    # Looking after them

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
        except (OSError, ImportError) as error:  # no thread or descriptor is free, and each holds four
            _log.warning("spares cannot be looked at, and are ended: %s", error)
            return _Used([0.0] * len(seen), is_short=True)


class _Used(NamedTuple):
    cpu_s: list[float]
    """Of each."""
    is_short: bool
    """All of them have more than they may, or the machine has little left of what they need."""


def _used(pids: Sequence[int], bounds: Bounds) -> _Used:
    """What these processes use. In a thread: it reads files. Who is gone, or not born yet, uses nothing. OSError."""
    import psutil  # 17 ms, and only where there are spares

    cpu_s: list[float] = []
    memory_bytes = 0
    for pid in pids:
        try:
            process = psutil.Process(pid)  # 0, where it is not born yet, is no process
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
    """What it did, though nobody told it anything. What it writes from now on is the affair of whoever takes it."""
    spare.early = spare.early or _acts(spare)  # a frame is there only once
    return spare.early


def _acts(spare: Spare) -> Early | None:
    jailed, ending = spare.jailed, spare.jailed.ending
    if isinstance(ending, NetworkAttempt):
        return "network"
    if isinstance(ending, RefusedToStart):  # the machine's affair
        return None
    if jailed.has_left:  # its end is about to be heard of
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
    """Take what it has said: whether that is `ready`, whole, for the first time, and nothing else."""
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
