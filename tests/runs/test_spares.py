"""Spares, which are jails started ahead: which run gets one, when one becomes invalid, and what happens to one that
acts early.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import psutil
import pytest

from aileron.executor.jails import Jailed, Jails
from aileron.executor.spares import Bounds, Early, Spare, Spares
from aileron.model.failure import AileronError, FailureClass
from aileron.model.plan import ConnectorPin
from aileron.registry.content import ContentStore
from aileron_sandbox.elf import ElfRuntime
from aileron_sandbox.policy import Policy
from aileron_sandbox.runtime import PythonRuntime
from aileron_sandbox.unavailable import JailUnavailable
from tests.support.elf_programs import compiled
from tests.support.waiting import give_turns, jump, unread, wait_ended, wait_still_async, wait_until_async
from tests.support.zipped import zipped

pytestmark = [pytest.mark.jail, pytest.mark.anyio]
_DEADLINE_S = 20.0
_WAITS = "import os\nos.write(4, os.read(3, 100))\n"
"""Program that returns what it is sent."""


class _Room:
    """A daemon's jails and spares, with a store of its own."""

    def __init__(self, jails: Jails, path: Path, bounds: Bounds) -> None:
        self.jails = jails
        self.path = path
        self.store = ContentStore(path)
        self.noted: list[tuple[ConnectorPin, Early, str | None]] = []
        self.fence: object = None
        self.others: set[int] = set()
        self.spares = Spares(jails, self.store, self, lambda: self.fence, bounds)

    def templates(self) -> set[int]:
        """Return the processes that this room has started."""
        return _children() - self.others

    async def acted_early(self, pin: ConnectorPin, what: Early, destination: str | None) -> None:
        """Record the early act, in place of the ledger."""
        self.noted.append((pin, what, destination))

    def installed(self, source: str = _WAITS, version: str = "1.0.0") -> ConnectorPin:
        """Install a connector with this program."""
        return self._put(zipped(source), version)

    def installed_program(self, *options: str, version: str = "1.0.0") -> ConnectorPin:
        """Install a compiled connector that reports that it is ready, built from waits.c."""
        return self._put(compiled("waits", "static", *options), version)

    def _put(self, program: bytes, version: str) -> ConnectorPin:
        manifest = f'[connector]\nname = "github://acme/mail"\nversion = "{version}"\n'
        pin = self.store.put(program, manifest.encode())
        self.store.open(pin).close()
        return pin

    async def take(self, pin: ConnectorPin, policy: Policy = Policy()) -> Spare:  # noqa: B008
        """Wait for a spare of this connector and take it."""
        found: Spare = await wait_until_async(lambda: self.spares.maybe_take(pin, policy), f"a spare of {pin}")
        return found

    async def until_made(self, pin: ConnectorPin, *, wanted: bool = False) -> None:
        """Wait until a spare exists, if it is `wanted` now or was before, and end it."""
        if wanted:
            self.spares.want(pin, Policy(), was_spare=False)
        await self.jails.end((await self.take(pin)).jailed)

    async def until_noted(self, count: int = 1) -> None:
        """Wait until this number of early acts is on record."""
        await wait_until_async(lambda: len(self.noted) >= count, f"{count} are noted", seen=lambda: self.noted)

    async def until_waiting(self, count: int) -> None:
        """Wait until this number of processes wait in jails."""
        await wait_until_async(
            lambda: len(self.spares.waiting) == count, f"{count} wait", seen=lambda: self.spares.waiting
        )

    async def wants(
        self,
        pin: ConnectorPin,
        policy: Policy = Policy(),  # noqa: B008
        *,
        was_spare: bool,
        until: int,
    ) -> None:
        """Report a run of this connector, in a spare or not, and wait until this number of processes wait in jails."""
        self.spares.want(pin, policy, was_spare=was_spare)
        await self.until_waiting(until)

    async def still_waiting(self) -> int:
        """Return the number that wait, once none was made or ended for a while."""
        return await wait_still_async(lambda: len(self.spares.waiting), "none is made or ended")


def _children() -> set[int]:
    return {process.pid for process in psutil.Process().children() if process.status() != psutil.STATUS_ZOMBIE}


@asynccontextmanager
async def _room(path: Path, bounds: Bounds = Bounds(look_s=0.1), *, renew_after: int = 1000) -> AsyncIterator[_Room]:  # noqa: B008
    others = _children()
    try:
        jails = Jails(PythonRuntime.of_this_interpreter(), renew_after=renew_after)
        jails.wait_until_ready()
    except JailUnavailable as error:
        if os.environ.get("AILERON_MUST_JAIL"):
            raise
        pytest.skip(f"no jail here: {error}")
    room = _Room(jails, path / "connectors", bounds)
    room.others = others
    try:
        async with anyio.create_task_group() as tasks, anyio.create_task_group() as spares:
            tasks.start_soon(jails.serve)
            spares.start_soon(room.spares.serve)
            await anyio.lowlevel.checkpoint()
            yield room
            spares.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await room.until_waiting(0)
            tasks.cancel_scope.cancel()
    finally:
        jails.close()


async def _said(jailed: Jailed, text: bytes) -> bytes:
    """Send the text and return the response; the program ends then."""
    os.write(jailed.child.frames_in, text)
    with anyio.fail_after(_DEADLINE_S):
        await anyio.wait_readable(jailed.child.frames_out)
    return os.read(jailed.child.frames_out, 100)


async def test_a_spare_waits_and_is_used_once(tmp_path: Path) -> None:
    """The spare exists before it is sent anything, answers as any jail, and is then gone for others."""
    async with _room(tmp_path) as room:
        pin = room.installed()
        assert room.spares.maybe_take(pin, Policy()) is None, "nobody has used it yet"
        await room.wants(pin, was_spare=False, until=1)
        (waiting,) = room.spares.waiting
        async with room.jails.ended((await room.take(pin)).jailed) as jailed:
            assert jailed is waiting
            assert await _said(jailed, b"told") == b"told"
            assert room.spares.maybe_take(pin, Policy()) is None
        assert not room.noted


async def test_a_connector_whose_spare_was_used_gets_two_spares_and_all_connectors_together_eight_at_most(
    tmp_path: Path,
) -> None:
    """The limits are two for a connector and eight in all."""
    async with _room(tmp_path) as room:
        pins = [room.installed(version=f"1.0.{number}") for number in range(6)]
        await room.wants(pins[0], was_spare=True, until=2)
        room.spares.want(pins[0], Policy(), was_spare=True)
        assert await room.still_waiting() == 2
        for pin in pins:
            room.spares.want(pin, Policy(), was_spare=True)
        await room.until_waiting(8)
        assert await room.still_waiting() == 8


async def test_a_spare_serves_only_its_own_program_and_limits(tmp_path: Path) -> None:
    """Another program under the same name gets no spare, nor does the same program with other limits."""
    async with _room(tmp_path) as room:
        pin, other = room.installed(), room.installed(_WAITS + "#\n")
        await room.wants(pin, was_spare=False, until=1)
        assert room.spares.maybe_take(other, Policy()) is None
        assert room.spares.maybe_take(pin, Policy(cpu_s=5)) is None
        await room.until_made(pin)


def _touched(room: _Room, pin: ConnectorPin) -> None:
    os.utime(room.path / "sha256" / pin.hash.removeprefix("sha256:") / "connector")


def _removed(room: _Room, pin: ConnectorPin) -> None:
    room.store.remove(pin)


def _fenced(room: _Room, _pin: ConnectorPin) -> None:
    room.fence = "other"


@pytest.mark.parametrize("change", [_touched, _removed, _fenced])
async def test_a_spare_ends_when_its_files_or_the_settings_change(
    tmp_path: Path, change: Callable[[_Room, ConnectorPin], None]
) -> None:
    """The spare's files are touched or removed, or settings changed: no run gets it, it ends in a moment, and no early
    act is recorded. A spare of an unchanged connector is still there.
    """
    async with _room(tmp_path) as room:
        pin, control = room.installed(), room.installed(version="2.0.0")
        for connector in (pin, control):
            room.spares.want(connector, Policy(), was_spare=True)
        await room.until_waiting(4)
        waiting = room.spares.waiting
        change(room, pin)
        assert room.spares.maybe_take(pin, Policy()) is None
        await room.until_waiting(0 if change is _fenced else 2)
        with anyio.fail_after(_DEADLINE_S):
            for jailed in set(waiting) - set(room.spares.waiting):
                await jailed.wait_ended()
        if change in (_touched, _removed):
            await room.until_made(control)
        assert not room.noted


async def test_a_new_template_has_its_own_spares(tmp_path: Path) -> None:
    """The template is replaced after a number of children: spares of the old one are not used, and the old one ends."""
    async with _room(tmp_path, renew_after=4) as room:
        pin, before = room.installed(), room.templates()
        await room.wants(pin, was_spare=True, until=2)
        old = room.spares.waiting
        with room.store.open(pin) as program:
            for _ in range(2):
                await room.jails.end(room.jails.begin(program.program_fd, Policy(), None))
        assert room.spares.maybe_take(pin, Policy()) is None
        with anyio.fail_after(_DEADLINE_S):
            for jailed in old:
                await jailed.wait_ended()
            await wait_until_async(lambda: not before & room.templates(), "the old one ends")
        await room.until_made(pin, wanted=True)
        assert not room.noted


async def test_a_spare_ends_when_its_lifetime_is_over(tmp_path: Path) -> None:
    """The spare ends though no run asks for it; before that it exists."""
    async with _room(tmp_path, Bounds(lifetime_s=1.0, look_s=0.1)) as room:
        began = anyio.current_time()
        await room.wants(room.installed(), was_spare=False, until=1)
        await room.until_waiting(0)
        assert anyio.current_time() - began >= 1.0
        assert not room.noted


@pytest.mark.parametrize(
    "bounds", [Bounds(least_free=1.1, look_s=0.1), Bounds(memory_bytes=1, look_s=0.1)], ids=["the machine's", "theirs"]
)
async def test_spares_end_when_memory_is_short(tmp_path: Path, bounds: Bounds) -> None:
    """The next check ends them without recording an early act, and none is made for a while."""
    async with _room(tmp_path, bounds) as room:
        pin = room.installed()
        room.spares.want(pin, Policy(), was_spare=True)
        await wait_until_async(lambda: room.spares.waiting, "some wait")
        await room.until_waiting(0)
        room.spares.want(pin, Policy(), was_spare=True)
        assert await room.still_waiting() == 0
        assert not room.noted


async def test_spares_that_cannot_be_checked_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check imports a module, which fails if no file descriptor is free. Once it works, a new spare stays."""
    async with _room(tmp_path, Bounds(short_s=0.0, look_s=0.1)) as room:
        pin = room.installed()
        with monkeypatch.context() as without:
            without.setitem(sys.modules, "psutil", None)  # its import raises ImportError
            await room.wants(pin, was_spare=False, until=1)
            await room.until_waiting(0)
        await room.until_made(pin, wanted=True)
        assert not room.noted


_SPEAKS = "import os, time\n{}\ntime.sleep(60)\n"
EARLY: dict[str, tuple[str, Early, str | None]] = {
    "a frame": (_SPEAKS.format("os.write(4, b'x')"), "frame", None),
    "words": (_SPEAKS.format("print('loading')"), "output", None),
    "a connection": (
        "import socket\nsocket.create_connection(('93.184.216.34', 443))",
        "network",
        "93.184.216.34:443",
    ),
    "an end": ("import os\nos._exit(0)", "exit", None),
    "an exception": ("raise SystemExit(3)", "exit", None),
    "no longer listening": (_SPEAKS.format("os.close(4)"), "exit", None),
    "a call that ends it": ("import ctypes\nctypes.CDLL(None).ptrace(0, 0, 0, 0)", "exit", None),
    "a computation": ("while True: pass", "resources", None),
}


@pytest.mark.abuse_case("W2")
@pytest.mark.parametrize("name", EARLY)
async def test_a_spare_that_acts_before_a_run_uses_it_is_ended_and_recorded(tmp_path: Path, name: str) -> None:
    """The record has the reason; no run gets the spare, and no other is made for a while. A spare that does nothing is
    used as usual.
    """
    source, what, destination = EARLY[name]
    async with _room(tmp_path, Bounds(cpu_s=0.5, look_s=0.1)) as room:
        pin, control = room.installed(source), room.installed()
        room.spares.want(pin, Policy(), was_spare=False)
        await room.until_noted()
        room.spares.want(pin, Policy(), was_spare=True)
        room.spares.want(control, Policy(), was_spare=False)
        await room.until_made(control)
        assert room.spares.maybe_take(pin, Policy()) is None
        assert room.noted == [(pin, what, destination)]


_SPEAKS_AND_CONNECTS = """
import os, socket
probe = socket.socket()
os.read(3, 1)
os.read(3, 1)
os.write(4, b"x")
probe.connect(("93.184.216.34", 443))
"""


async def test_the_destination_to_which_an_unused_spare_connects_is_recorded_even_if_reported_late(
    tmp_path: Path,
) -> None:
    """The stopped template reports the end only after the check has found a frame of the spare."""
    async with _room(tmp_path, Bounds(look_s=_DEADLINE_S)) as room:
        await room.wants(pin := room.installed(_SPEAKS_AND_CONNECTS), was_spare=False, until=1)
        child = room.spares.waiting[0].child
        os.write(child.frames_in, b"1")
        await wait_until_async(lambda: not unread(child.frames_in), "it has its socket")
        template = psutil.Process(child.pid).parents()[0]
        template.suspend()
        try:
            os.write(child.frames_in, b"2")
            await anyio.to_thread.run_sync(wait_ended, child.pid)
            assert room.spares.maybe_take(pin, Policy()) is None
            await give_turns()
        finally:
            template.resume()
        await room.until_noted()
        assert room.noted == [(pin, "network", "93.184.216.34:443")]


async def test_after_a_second_early_act_a_connector_gets_no_spare_for_twice_as_long(tmp_path: Path) -> None:
    """A connector that acts early a second time gets no spare for twice as long."""
    async with _room(tmp_path, Bounds(quiet_s=0.5, look_s=0.1)) as room:
        pin, began = room.installed("import os\nos._exit(0)"), anyio.current_time()

        def is_wanted_until_three_are_noted() -> bool:
            room.spares.want(pin, Policy(), was_spare=False)
            return len(room.noted) == 3

        await wait_until_async(is_wanted_until_three_are_noted, "three act early", seen=lambda: room.noted)
        assert anyio.current_time() - began >= 0.5 + 1.0


async def test_no_spare_is_made_while_runs_need_the_processors(tmp_path: Path) -> None:
    """Two running programs are enough; when they have ended, the next request makes spares."""
    async with _room(tmp_path) as room:
        pin = room.installed()
        with room.store.open(pin) as program:
            busy = [room.jails.begin(program.program_fd, Policy(), None) for _ in range(2)]
        room.spares.want(pin, Policy(), was_spare=True)
        assert await room.still_waiting() == 0
        for jailed in busy:
            await room.jails.end(jailed)
        await room.wants(pin, was_spare=True, until=2)


async def test_spares_do_not_count_against_the_limit_of_running_programs(tmp_path: Path) -> None:
    """Sixty-four programs run beside two spares. A further run is `busy`, even if a spare is waiting for it."""
    async with _room(tmp_path) as room:
        pin = room.installed()
        await room.wants(pin, was_spare=True, until=2)
        with room.store.open(pin) as program:
            running = [room.jails.begin(program.program_fd, Policy(), None) for _ in range(64)]
            with pytest.raises(AileronError) as afresh:
                room.jails.begin(program.program_fd, Policy(), None)
        with pytest.raises(AileronError) as spare:
            room.spares.maybe_take(pin, Policy())
        assert {error.value.failure.failure_class for error in (afresh, spare)} == {FailureClass.BUSY}
        for jailed in running:
            await room.jails.end(jailed)


async def test_a_template_that_dies_takes_its_spares_and_no_early_act_is_recorded(tmp_path: Path) -> None:
    """The next template has spares of its own."""
    async with _room(tmp_path) as room:
        pin = room.installed()
        await room.wants(pin, was_spare=True, until=2)
        waiting = room.spares.waiting
        for template in room.templates():
            psutil.Process(template).kill()
        with anyio.fail_after(_DEADLINE_S):
            for jailed in waiting:
                await jailed.wait_ended()
            assert room.spares.maybe_take(pin, Policy()) is None

        def is_there_when_it_is_wanted() -> bool:
            room.spares.want(pin, Policy(), was_spare=False)
            return bool(room.spares.waiting)

        await wait_until_async(is_there_when_it_is_wanted, "the next template has one")
        assert not room.noted


# Compiled connectors

ELF = Policy(profile="elf")
_EARLY_ELF: dict[str, tuple[str, Early]] = {
    "ready, twice": ("say(READY, sizeof READY)", "frame"),
    "ready, later again": ("(sleep(1), say(READY, sizeof READY))", "frame"),
    "ready, and a byte": ('say("x", 1)', "frame"),
    "words": ('puts("loaded"), fflush(stdout)', "output"),
    "an end": ("_exit(0)", "exit"),
    "no longer listening": ("(close(4), pause())", "exit"),
    "a computation": ("for (;;) continue", "resources"),
}


async def test_a_compiled_spare_waits_once_it_has_reported_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spare answers as any jail. One that never reports ready is not used, and nothing is recorded when its time is over."""
    bounds = Bounds(look_s=0.1, lifetime_s=600.0)
    async with _room(tmp_path, bounds) as room:
        pin, silent = (
            room.installed_program("-DEARLY="),
            room.installed_program("-DEARLY=", "-DIS_SILENT=1", version="2.0.0"),
        )
        await room.wants(silent, ELF, was_spare=False, until=1)
        room.spares.want(pin, ELF, was_spare=False)
        spare = await room.take(pin, ELF)
        async with room.jails.ended(spare.jailed) as jailed:
            assert spare.said_ready
            assert await _said(jailed, b"told") == b"told"
        assert room.spares.maybe_take(pin, ELF) is None
        assert room.spares.maybe_take(silent, ELF) is None
        assert len(room.spares.waiting) == 1
        jump(monkeypatch, bounds.lifetime_s)
        await room.until_waiting(0)
        assert not room.noted


@pytest.mark.abuse_case("W5")
@pytest.mark.parametrize("name", _EARLY_ELF)
async def test_a_compiled_spare_may_report_ready_and_nothing_else(tmp_path: Path, name: str) -> None:
    """Anything else is recorded with the reason. A spare that only reports ready is used."""
    does, what = _EARLY_ELF[name]
    async with _room(tmp_path, Bounds(cpu_s=0.5, look_s=0.1)) as room:
        pin, control = room.installed_program(f"-DEARLY={does}"), room.installed_program("-DEARLY=", version="2.0.0")
        room.spares.want(pin, ELF, was_spare=False)
        await room.until_noted()
        room.spares.want(control, ELF, was_spare=False)
        await room.jails.end((await room.take(control, ELF)).jailed)
        assert room.spares.maybe_take(pin, ELF) is None
        assert room.noted == [(pin, what, None)]


async def test_a_python_connector_in_a_spare_may_report_that_it_is_ready(tmp_path: Path) -> None:
    """The connector writes the bytes of the documentation; taking the spare tells the session that it is ready."""
    says = "import os\nos.write(4, bytes.fromhex('0000000c0000000081a474797065a57265616479'))\n"
    async with _room(tmp_path, Bounds(look_s=60.0)) as room:  # what it says is there until somebody takes it
        pin = room.installed(says + _WAITS)
        await room.wants(pin, was_spare=False, until=1)
        (waiting,) = room.spares.waiting
        await wait_until_async(lambda: waiting.child.is_born, "it is born")
        with anyio.fail_after(_DEADLINE_S):
            await anyio.wait_readable(waiting.child.frames_out)
        spare = await room.take(pin)
        async with room.jails.ended(spare.jailed) as jailed:
            assert spare.said_ready
            assert await _said(jailed, b"told") == b"told"
        assert not room.noted


async def test_a_template_with_only_a_spare_makes_room_for_another_template(tmp_path: Path) -> None:
    """Four sets of libraries are kept, and a run needs a fifth."""
    async with _room(tmp_path) as room:
        pin = room.installed_program("-DEARLY=")
        await room.wants(pin, ELF, was_spare=False, until=1)
        with room.store.open(pin) as program:
            bare = ElfRuntime.of_program(program.program_fd)
            for shown in ("/bin/sh", "/bin/ls", "/bin/cat", "/bin/mv"):
                async with room.jails.open(
                    program.program_fd, ELF, ElfRuntime(bare.executable, (Path(shown),))
                ) as jailed:
                    jailed.child.close_input()
                    await jailed.wait_ended()
        await room.until_waiting(0)
        assert room.spares.maybe_take(pin, ELF) is None
        assert not room.noted
