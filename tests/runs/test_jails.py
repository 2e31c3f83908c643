"""Templates in an event loop: one for each set of libraries, a bounded number at once, and a new one when one dies."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import resource
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from aileron.connector_tests.stub import Stub
from aileron.egress.journal import Unrecorded
from aileron.egress.meter import Meter
from aileron.executor.conversation import Claims, HostConversation
from aileron.executor.jails import IDLE_S, Jailed, Jails
from aileron.model.failure import AileronError, FailureClass
from aileron.model.manifest import LimitsSpec
from aileron.model.plan import ConnectorPin, Grant, Step
from aileron_sandbox.elf import ElfRuntime
from aileron_sandbox.ending import Exited, Signalled
from aileron_sandbox.policy import Policy
from aileron_sandbox.runtime import PythonRuntime
from aileron_sandbox.unavailable import JailUnavailable
from tests.sandbox.conftest import TELLS_WHO_LEFT
from tests.support.elf_programs import compiled
from tests.support.refusals import refusal_of
from tests.support.waiting import give_turns, jump, wait_still_async, wait_until, wait_until_async
from tests.support.zipped import zipped

pytestmark = [pytest.mark.jail, pytest.mark.anyio]
ELF = Policy(profile="elf")
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK
_DEADLINE_S = 20.0


@pytest.fixture(scope="module")
def program() -> Iterator[int]:
    """Yield a static program that stays until its input ends, or does what it is told."""
    fd = os.memfd_create("program", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, compiled("probe", "static"))
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    yield fd
    os.close(fd)


@pytest.fixture(scope="module")
def python_program() -> Iterator[int]:
    """Yield a program that stays until its input ends."""
    with _zipped("import os\nos.read(3, 1)\n") as file:
        yield file.fileno()


def _zipped(source: str) -> io.FileIO:
    file = io.FileIO(os.memfd_create("program", os.MFD_CLOEXEC), "w")
    file.write(zipped(source))
    return file


@asynccontextmanager
async def _served(renew_after: int = 1000, clock: Callable[[], float] = time.monotonic) -> AsyncIterator[Jails]:
    try:
        jails = Jails(PythonRuntime.of_this_interpreter(), renew_after=renew_after, clock=clock)
        jails.wait_until_ready()
    except JailUnavailable as error:
        if os.environ.get("AILERON_MUST_JAIL"):
            raise
        pytest.skip(f"no jail here: {error}")
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(jails.serve)
            await anyio.lowlevel.checkpoint()
            yield jails
            tasks.cancel_scope.cancel()
    finally:
        jails.close()


def _runtimes(program: int) -> list[ElfRuntime]:
    """Return five sets of libraries; a static program runs with any of them."""
    bare = ElfRuntime.of_program(program)
    shown = [Path("/bin/sh"), Path("/bin/ls"), Path("/bin/cat"), Path("/bin/mv")]
    return [bare, *(ElfRuntime(bare.executable, (path,)) for path in shown)]


def _templates() -> set[int]:
    children = psutil.Process().children()
    return {process.pid for process in children if any("aileron_sandbox" in word for word in _words(process))}


def _words(process: psutil.Process) -> list[str]:
    """Return the arguments of a process. A new process has none for a moment: vfork(2) returns before it has them."""
    try:
        return wait_until(process.cmdline, f"process {process.pid} has its arguments")
    except psutil.NoSuchProcess:
        return []


async def _ran(jails: Jails, program: int, runtime: ElfRuntime) -> None:
    async with jails.open(program, ELF, runtime) as jailed:
        jailed.child.close_input()
        with anyio.fail_after(_DEADLINE_S):
            ending = await jailed.wait_ended()
    assert isinstance(ending, Exited), ending


async def _until_gone(pids: set[int]) -> None:
    await wait_until_async(lambda: not pids & _templates(), f"{pids} are gone", seen=_templates)


async def test_programs_with_the_same_libraries_share_a_template(program: int) -> None:
    """The second run starts no template; other libraries need another one."""
    async with _served() as jails:
        bare, other, *_ = _runtimes(program)
        before = _templates()
        await _ran(jails, program, bare)
        first = _templates() - before
        await _ran(jails, program, ElfRuntime.of_program(program))
        again = _templates() - before
        await _ran(jails, program, other)

        assert len(first) == 1
        assert again == first
        assert len(_templates() - before) == 2


async def test_the_next_run_gets_a_new_template_if_a_dead_template_could_not_be_replaced_at_once(
    python_program: int,
) -> None:
    """The template dies while no descriptor is free: one run fails because there is no jail, and the next one has
    another template.
    """
    async with _served() as jails, AsyncExitStack() as filled:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        (template,) = _templates()
        filled.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, hard))
        with contextlib.suppress(OSError):
            while True:
                filled.callback(os.close, os.open("/dev/null", os.O_RDONLY))
        os.kill(template, signal.SIGKILL)

        def is_noticed() -> bool:
            try:
                return not jails.layers
            except AileronError:
                return True

        await wait_until_async(is_noticed, "the end of the template is noticed")
        assert await _why_not(jails, python_program) == FailureClass.SANDBOX_UNAVAILABLE
        await filled.aclose()

        assert await _why_not(jails, python_program) is None
        assert _templates() - {template}


async def _why_not(jails: Jails, program: int) -> FailureClass | None:
    try:
        async with jails.open(program, Policy(), None) as jailed:
            jailed.child.close_input()
            await jailed.wait_ended()
    except AileronError as error:
        return error.failure.failure_class
    return None


async def test_the_least_recently_used_template_is_ended_to_make_room_for_another(program: int) -> None:
    """Four are kept; a fifth ends the least recently used one, which comes back when it is needed."""
    async with _served() as jails:
        runtimes = _runtimes(program)
        started: list[set[int]] = []
        for runtime in runtimes[:4]:
            before = _templates()
            await _ran(jails, program, runtime)
            started.append(_templates() - before)
        await _ran(jails, program, runtimes[0])  # so that the second is the idlest
        await _ran(jails, program, runtimes[4])
        await _until_gone(started[1])

        assert started[0] | started[2] | started[3] <= _templates()
        await _ran(jails, program, runtimes[1])


async def test_no_template_is_ended_while_a_program_runs_in_it(program: int) -> None:
    """A fifth set of libraries gets a retriable failure while all four are in use; later it is served."""
    async with _served() as jails, AsyncExitStack() as running:
        runtimes = _runtimes(program)
        jailed: list[Jailed] = [
            await running.enter_async_context(jails.open(program, ELF, runtime)) for runtime in runtimes[:4]
        ]
        with pytest.raises(AileronError) as caught:
            jails.layers_of(ELF, runtimes[4])
        assert (caught.value.failure.failure_class, caught.value.failure.retriable) == (FailureClass.BUSY, True)

        jailed[2].child.close_input()
        with anyio.fail_after(_DEADLINE_S):
            await jailed[2].wait_ended()
        assert all(each.child.ending is None for each in (jailed[0], jailed[1], jailed[3]))
        await running.aclose()
        await _ran(jails, program, runtimes[4])


async def test_a_template_that_dies_ends_only_its_own_programs(program: int) -> None:
    """Their end is reported as a kill. Other programs continue, and the next run gets another template."""
    async with _served() as jails:
        bare, other, *_ = _runtimes(program)
        before = _templates()
        async with jails.open(program, ELF, bare) as dying:
            victim = _templates() - before
            async with jails.open(program, ELF, other) as living:
                for pid in victim:
                    os.kill(pid, signal.SIGKILL)
                with anyio.fail_after(_DEADLINE_S):
                    ending = await dying.wait_ended()
                assert isinstance(ending, Signalled)
                assert living.child.ending is None
        await _until_gone(victim)
        await _ran(jails, program, bare)


async def test_a_template_that_cannot_be_started_fails_the_run(program: int, tmp_path: Path) -> None:
    """A library has disappeared since it was found: the failure is sandbox_unavailable, and the daemon lives."""
    async with _served() as jails:
        gone = ElfRuntime(ElfRuntime.of_program(program).executable, (tmp_path / "libgone.so",))
        assert refusal_of(jails.layers_of, ELF, gone).failure_class is FailureClass.SANDBOX_UNAVAILABLE
        await _ran(jails, program, ElfRuntime.of_program(program))


async def test_every_template_ends_when_the_jails_are_closed(program: int) -> None:
    """Templates of Python and of compiled programs both end with their owner."""
    before = _templates()
    async with _served() as jails:
        for runtime in _runtimes(program)[:3]:
            await _ran(jails, program, runtime)
        assert len(_templates() - before) == 4

    assert _templates() == before


async def test_a_template_is_replaced_after_a_number_of_children(program: int) -> None:
    """A program in the old template runs to its end, and then the template ends; new children use the new template."""
    async with _served(renew_after=2) as jails:
        bare = ElfRuntime.of_program(program)
        before = _templates()
        async with jails.open(program, ELF, bare) as stays:
            await _ran(jails, program, bare)
            first = _templates() - before
            await _ran(jails, program, bare)
            both = _templates() - before
            stays.child.close_input()
            with anyio.fail_after(_DEADLINE_S):
                assert isinstance(await stays.wait_ended(), Exited)
        await _until_gone(first)

        assert len(first) == 1
        assert len(both) == 2


async def test_the_python_template_is_replaced_after_a_number_of_children_too(python_program: int) -> None:
    """The template is replaced twice, without disturbing a child that outlasts both."""
    others = _templates()
    async with _served(renew_after=1) as jails:
        before = _templates() - others
        async with jails.open(python_program, Policy(), None) as first:
            for _ in range(2):
                async with jails.open(python_program, Policy(), None) as jailed:
                    jailed.child.close_input()
                    with anyio.fail_after(_DEADLINE_S):
                        assert isinstance(await jailed.wait_ended(), Exited)
            first.child.close_input()
            with anyio.fail_after(_DEADLINE_S):
                assert isinstance(await first.wait_ended(), Exited)
        await _until_gone(before)

        assert len(_templates() - others) == 1


class _Clock:
    """A clock that returns the time that it is set to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def _ran_python(jails: Jails, program: int, between: Callable[[], None] = lambda: None) -> None:
    """Run as a try of a run does: wait for the template, get its layers, then open a jail."""
    await jails.prepare(Policy(), None)
    between()
    jails.layers_of(Policy(), None)
    between()
    await anyio.lowlevel.checkpoint()
    async with jails.open(program, Policy(), None) as jailed:
        between()
        jailed.child.close_input()
        with anyio.fail_after(_DEADLINE_S):
            ending = await jailed.wait_ended()
    assert isinstance(ending, Exited), ending


async def test_unused_templates_end_and_the_next_run_gets_new_ones(program: int, python_program: int) -> None:
    """Python's template and those of compiled programs are tried; none ends before its idle time is over."""
    clock, others = _Clock(), _templates()
    async with _served(clock=clock) as jails:
        await _ran_python(jails, python_program)
        await _ran(jails, program, ElfRuntime.of_program(program))
        before = _templates() - others
        clock.now += IDLE_S - 1
        jails.end_unused()
        await anyio.wait_all_tasks_blocked()
        early = _templates() - others
        clock.now += 1
        jails.end_unused()
        await _until_gone(before)
        after = _templates() - others
        assert jails.layers_ahead(Policy()) is None
        await _ran_python(jails, python_program)
        await _ran(jails, program, ElfRuntime.of_program(program))

        assert (len(before), early, after) == (2, before, set())
        assert len(_templates() - others) == 2
        assert jails.layers_ahead(Policy()) == jails.layers


async def test_an_unused_template_ends_soon_after_its_idle_time(
    python_program: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checks are more frequent than the idle time; otherwise a template used just after a check would last twice as long."""
    clock, others = _Clock(), _templates()
    async with _served(clock=clock) as jails:
        await _ran_python(jails, python_program)
        clock.now += IDLE_S
        jump(monkeypatch, IDLE_S / 2)
        with anyio.fail_after(_DEADLINE_S):
            await _until_gone(_templates() - others)


async def test_a_template_with_a_running_program_is_not_ended_as_unused(python_program: int) -> None:
    """The program may run for any time, and a waiting spare counts as a running program."""
    clock = _Clock()
    async with _served(clock=clock) as jails:
        before = _templates()
        async with jails.open(python_program, Policy(), None) as jailed:
            clock.now += 10 * IDLE_S
            jails.end_unused()
            await anyio.wait_all_tasks_blocked()
            jailed.child.close_input()
            with anyio.fail_after(_DEADLINE_S):
                assert isinstance(await jailed.wait_ended(), Exited)

        assert _templates() == before


async def test_runs_that_start_while_their_template_ends_get_another_template(python_program: int) -> None:
    """The template is told to end between all steps of three runs at once, and while they wait for another."""
    clock = _Clock()
    async with _served(clock=clock) as jails:

        def end() -> None:
            clock.now += 2 * IDLE_S
            jails.end_unused()

        end()
        async with anyio.create_task_group() as runs:
            for _ in range(3):
                runs.start_soon(_ran_python, jails, python_program, end)
            await anyio.wait_all_tasks_blocked()
            was_waited_for = not jails.running
            end()

    assert was_waited_for


async def test_a_template_whose_run_was_cancelled_during_its_start_serves_the_next_run(python_program: int) -> None:
    """The template ends as an unused one if there is no next run."""
    clock, others = _Clock(), _templates()
    async with _served(clock=clock) as jails:
        clock.now += IDLE_S
        jails.end_unused()
        await _until_gone(_templates() - others)
        with anyio.CancelScope() as gives_up:
            gives_up.cancel()
            await jails.prepare(Policy(), None)
        started = _templates() - others
        await _ran_python(jails, python_program)
        assert _templates() - others == started
        clock.now += IDLE_S
        jails.end_unused()
        assert jails.layers_ahead(Policy()) is None
        clock.now += IDLE_S
        jails.end_unused()
        await _until_gone(_templates() - others)

        assert len(started) == 1


async def test_a_waiting_run_continues_if_another_caller_finds_the_template_ready(python_program: int) -> None:
    """The other caller, a synchronous one, reads the template's message, so the waiting run gets no event for it."""
    clock, others = _Clock(), _templates()
    async with _served(clock=clock) as jails:
        clock.now += IDLE_S
        jails.end_unused()
        await _until_gone(_templates() - others)
        async with anyio.create_task_group() as waiting:
            waiting.start_soon(_ran_python, jails, python_program)
            await anyio.wait_all_tasks_blocked()
            assert jails.layers
        assert len(_templates() - others) == 1


def _is_born(jailed: Jailed) -> bool:
    return jailed.child.is_born


async def _ended(jails: Jails, jailed: Jailed, ended: list[Jailed]) -> None:
    await jails.end(jailed)
    ended.append(jailed)


@pytest.mark.skipif(not TELLS_WHO_LEFT, reason="Linux before 6.11: a listener hangs up when the last process is reaped")
async def test_processes_that_closed_their_output_are_reaped_in_the_background_up_to_a_bound(
    python_program: int,
) -> None:
    """The template, which reaps, is stopped: eight ends are not waited for, the ninth is; processes that have left do
    not count as running.
    """
    async with _served() as jails, anyio.create_task_group() as tasks:
        (stub,) = _templates()
        (template,) = psutil.Process(stub).children()
        before = len(os.listdir("/proc/self/fd"))
        left = [jails.begin(python_program, Policy(), None, is_spare=True) for _ in range(9)]
        for jailed in left:
            jails.hand_over(jailed)
            await wait_until_async(partial(_is_born, jailed), "it is born")
        # until the template has been given the last listener, and handed it on
        await wait_still_async(lambda: len(os.listdir("/proc/self/fd")), "nothing is handed on")
        ended: list[Jailed] = []
        template.suspend()
        try:
            for jailed in left:
                jailed.child.close_input()
                with anyio.fail_after(_DEADLINE_S):
                    await jailed.wait_left()
                tasks.start_soon(_ended, jails, jailed, ended)
            await wait_still_async(lambda: len(ended), "no more are ended")
            assert ended == left[:8]
            assert [jailed.ending for jailed in left] == [None] * 9
            assert jails.running == 1
        finally:
            template.resume()
        await wait_until_async(
            lambda: len(ended) == 9 and len(os.listdir("/proc/self/fd")) <= before, "all are ended", seen=lambda: ended
        )
        assert all(isinstance(jailed.ending, Exited) for jailed in left)
        assert jails.running == 0


_TOLD_TO_END = "import os, socket\nprobe = socket.socket()\nos.write(2, b'ready')\nos.read(3, 1)\n"
"""Program whose calls are supervised from here on; the test decides when it ends."""
_STEP = Step(
    id="step",
    connector=ConnectorPin("github://acme/probe", "1.0.0", "sha256:" + "ab" * 32),
    op="end",
    args={},
    idempotent=False,
    grant=Grant(),
    limits=LimitsSpec(),
)


class _Unwritten(Unrecorded):
    async def connector_event(self, event: str, fields: dict[str, Any]) -> None:
        """Ignore the event; none comes."""

    def progressed(self, done: int | float, total: int | float | None, message: str | None) -> None:
        """Ignore the progress; none comes."""


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("probe.connect(('93.184.216.34', 443))", "tried to connect to 93.184.216.34:443 directly"),
        ("os._exit(3)", "exited with status 3"),
        ("os.close(4)\nwhile True: os.read(3, 100)", "kept running"),
    ],
)
async def test_a_process_exit_that_is_reported_late_still_has_its_reason(end: str, words: str) -> None:
    """The template, which reaps it, is stopped for longer than a connector that closed its output has time to leave."""
    with _zipped(_TOLD_TO_END + end) as file:
        async with _served() as jails, jails.open(file.fileno(), Policy(), None) as jailed:
            await anyio.wait_readable(jailed.child.log)
            await wait_until_async(lambda: jailed.child.is_born, "it is known which process it is")
            template = psutil.Process(jailed.child.pid).parents()[0]
            template.suspend()
            try:
                os.write(jailed.child.frames_in, b"x")
                await anyio.wait_readable(jailed.child.frames_out)  # its end
                meter, journal = Meter(_STEP.grant.budget), _Unwritten()
                talk = HostConversation(jailed, Stub((), None), _STEP, meter, Claims(), journal, "run", leave_s=0)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_resume_later, template)
                    with pytest.raises(AileronError, match=words):
                        await talk.run(anyio.current_time() + _DEADLINE_S)
            finally:
                template.resume()


async def _resume_later(stopped: psutil.Process) -> None:
    await give_turns()
    stopped.resume()
