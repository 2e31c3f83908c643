"""What a whole jail may use, by control groups and without them: each limit ends it by its name, and what keeps to it goes on."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import io
import os
import select
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal

import pytest

from aileron_sandbox import cgroups
from aileron_sandbox.elf import ElfRuntime
from aileron_sandbox.ending import Ending, Exited, NetworkAttempt, OverLimit, RefusedToStart, Signalled
from aileron_sandbox.jail import WATCH_PERIOD_S, Child, Template, Used, check_possible
from aileron_sandbox.policy import Policy
from aileron_sandbox.runtime import PythonRuntime
from aileron_sandbox.unavailable import JailUnavailable
from tests.sandbox.conftest import memory_file, program
from tests.sandbox.processes import end_beside_a_stopped_template
from tests.support.elf_programs import compiled

pytestmark = pytest.mark.jail
ELF: Final = Policy(profile="elf")
FORKING: Final = Policy(profile="elf-subprocess")
DEADLINE_S: Final = 20.0
ROOT: Final = Path(__file__).resolve().parents[2]
_SEALS: Final = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK
By = Literal["groups", "rlimit"]


@dataclasses.dataclass(frozen=True)
class Said:
    """What a program told, and how it ended."""

    told: list[str]
    ending: Ending | None

    @property
    def over(self) -> str | None:
        """The limit that ended it."""
        return self.ending.limit if isinstance(self.ending, OverLimit) else None


@pytest.fixture(scope="module", params=["groups", "rlimit"])
def by(request: pytest.FixtureRequest) -> By:
    """With the control groups that this user can make, and without any."""
    if request.param == "groups" and cgroups.find() is None:
        pytest.skip("this user can make no control groups here: the other half of these tests is what holds")
    chosen: By = request.param
    return chosen


@pytest.fixture(scope="module")
def hog(by: By) -> Iterator[Callable[..., Said]]:
    """Let tests/support/elf/hog.c use something up."""
    data = compiled("hog")
    fd = os.memfd_create("program", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, data)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    try:
        with _started(lambda: Template.start(ElfRuntime.of_program(fd), memory_by=by)) as template:
            assert (template.memory_by == "rlimit") == (by == "rlimit")

            def use(words: str, policy: Policy = ELF) -> Said:
                with Child.open(template, fd, policy) as child:
                    os.write(child.frames_in, words.encode())
                    ending = child.wait(DEADLINE_S)
                    return Said(_said(child.frames_out).splitlines(), ending)

            yield use
    finally:
        os.close(fd)


@pytest.fixture(scope="module")
def family(by: By, hog: Callable[..., Said]) -> Callable[..., Said]:
    """The same where it may start processes: with groups only."""
    if by == "rlimit":
        pytest.skip("refused: test_who_may_start_others_needs_a_group")
    return hog


@pytest.fixture(scope="module")
def pythons_family(by: By, python: Template) -> Template:
    """And in Python."""
    if by == "rlimit":
        pytest.skip("refused: test_who_may_start_others_needs_a_group")
    return python


@pytest.fixture(scope="module")
def python(by: By) -> Iterator[Template]:
    """The warm process of Python programs."""
    with _started(
        lambda: Template.start(PythonRuntime.of_this_interpreter(preload=("json",)), memory_by=by)
    ) as template:
        yield template


@contextlib.contextmanager
def _started(start: Callable[[], Template]) -> Iterator[Template]:
    try:
        template = start()
    except JailUnavailable as error:
        if os.environ.get("AILERON_MUST_JAIL"):
            raise
        pytest.skip(f"no jail here: {error}")
    with template:
        yield template


def _run(template: Template, data: bytes, policy: Policy) -> Said:
    fd = memory_file(data)
    try:
        with Child.open(template, fd, policy) as child:
            ending = child.wait(DEADLINE_S)
            return Said(_said(child.frames_out).splitlines(), ending)
    finally:
        os.close(fd)


def _zipped(main: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("__main__.py", main)
    return data.getvalue()


def _said(pipe: int) -> str:
    pieces = []
    with contextlib.suppress(BlockingIOError):
        while piece := os.read(pipe, 1 << 16):
            pieces.append(piece)
    return b"".join(pieces).decode()


# Memory


def test_a_program_that_asks_for_too_much_is_told_so(hog: Callable[..., Said]) -> None:
    """RLIMIT_DATA answers first, with or without a group: ENOMEM, and the program goes on."""
    asked = hog("private 96")

    assert asked.told == [f"errno {errno.ENOMEM}"]
    assert isinstance(asked.ending, Exited)
    assert hog("private 48").told == ["held 48"]


def test_memory_that_rlimits_do_not_count_ends_it_by_its_name(hog: Callable[..., Said]) -> None:
    """A shared mapping is not RLIMIT_DATA's, and compiled programs have much address space."""
    assert hog("shared-for-good 400").over == "memory"  # without a group it is seen four times a second
    assert hog("shared 48").told == ["held 48"]


def test_a_familys_memory_is_counted_together(family: Callable[..., Said]) -> None:
    """Eight times 40 MiB, each within its own RLIMIT_DATA; of eight times 6 the first process leaves as it likes."""
    over, under = family("family 8 40", FORKING), family("brief-family 8 6", FORKING)

    assert over.over == "memory"
    assert under.told == ["held 6"] * 8 + ["left 0"]
    assert isinstance(under.ending, Exited)


def test_pythons_family_is_counted_together(pythons_family: Template) -> None:
    """A zip application that may start processes: forks share what the template had, and that is nobody's fault."""
    forks = """
import os, sys, time
for _ in range({count}):
    if os.fork() == 0:
        held = bytearray({mib} << 20)
        os.write(4, b"held\\n")
        time.sleep({stay})
        os._exit(0)
for _ in range({count}):
    os.wait()
"""
    over = _run(pythons_family, _zipped(forks.format(count=8, mib=40, stay=60)), FORKING)
    under = _run(pythons_family, _zipped(forks.format(count=8, mib=4, stay=0.6)), FORKING)

    assert over.over == "memory"
    assert under.told == ["held"] * 8
    assert isinstance(under.ending, Exited)


def test_what_a_family_has_in_buffers_counts(pythons_family: Template) -> None:
    """Sixteen processes fill the buffers of their socket pairs, which are no process's pages: ended, by its name."""
    fill = """
import os, socket, time
for _ in range({count} - 1):
    if os.fork() == 0:
        break
kept = []
while len(kept) < {pairs}:
    kept.append(socket.socketpair())
    for one in kept[-1]:
        one.setblocking(False)
        try:
            while True:
                one.send(bytes(65536))
        except BlockingIOError:
            pass
os.write(4, b"full\\n")
time.sleep({stay})
os._exit(0)
"""
    over = _run(pythons_family, _zipped(fill.format(count=16, pairs=24, stay=20)), FORKING)
    under = _run(pythons_family, _zipped(fill.format(count=2, pairs=8, stay=0.6)), FORKING)

    assert over.over == "memory"
    assert under.told[0] == "full"
    assert isinstance(under.ending, Exited)


def test_who_may_start_others_needs_a_group(by: By, hog: Callable[..., Said], python: Template) -> None:
    """Without one nothing of it runs, since rlimits bound each process alone; what starts none does. The way out is said."""
    if by == "groups":
        assert isinstance(hog("brief-family 2 6", FORKING).ending, Exited)
        return
    with pytest.raises((JailUnavailable, ValueError), match="may start others need"):
        hog("brief-family 2 6", FORKING)
    with pytest.raises((JailUnavailable, ValueError), match="may start others need"):
        _run(python, _zipped("import os; os.fork()"), FORKING)
    assert hog("private 48").told == ["held 48"]
    if cgroups.find() is None:
        with pytest.raises(JailUnavailable, match="systemd-run --user --scope"):
            check_possible("elf-subprocess", "namespaces", is_compiled=True)


@pytest.mark.parametrize("what", ["a child connects", "nothing"])
def test_an_attempt_of_a_process_that_is_left_behind_is_the_end(pythons_family: Template, what: str) -> None:
    """Forked, connecting, and its first process leaves, which is the end of both: it waits for what was asked before it."""
    ending = end_beside_a_stopped_template(pythons_family, program("leave_while", what), FORKING)

    assert isinstance(ending, Exited if what == "nothing" else NetworkAttempt), ending


def test_a_full_scratch_takes_nothing_from_memory(hog: Callable[..., Said]) -> None:
    """Scratch is memory too: 31 of its 32 MiB and 60 of 64 beside them are what a program was promised."""
    both = hog("fill-and-hold 31 60")

    assert both.told == [f"written {31 << 20}", "held 60"]
    assert isinstance(both.ending, Exited)


def test_who_was_killed_is_not_taken_for_one_that_was_before_it(python: Template) -> None:
    """A group is used again: after one that ran out of memory, one that is killed is `Signalled`, one that ends `Exited`."""
    if python.memory_by != "rlimit":
        assert _run(python, program("hold_read_only", 192), Policy()).over == "memory"
    with (
        contextlib.closing(io.FileIO(memory_file(program("sleep", 60)))) as file,
        Child.open(python, file.fileno(), Policy()) as child,
    ):
        child.kill()
        killed = child.wait(DEADLINE_S)

    assert isinstance(killed, Signalled)
    assert isinstance(_run(python, program("listing", "/"), Policy()).ending, Exited)


# Processor time


def test_a_familys_processor_time_is_counted_together(family: Callable[..., Said]) -> None:
    """Three that spin, each within RLIMIT_CPU when they are ended."""
    over = family("spin 3", dataclasses.replace(FORKING, cpu_s=1))

    assert over.over == "cpu"


def test_processor_time_of_who_is_gone_is_counted(family: Callable[..., Said]) -> None:
    """Short processes that nobody waits for: only a control group remembers what they used."""
    place = cgroups.find()
    if place is None or (place.kind == "cgroup-v1" and place.cpu is None):
        pytest.skip("without a group it is the wall clock that ends them (docs/explanation/limitations.md)")
    assert family("drizzle", dataclasses.replace(FORKING, cpu_s=1)).over == "cpu"


def test_who_comes_close_to_its_processor_time_is_looked_at_sooner(pythons_family: Template) -> None:
    """The next look comes before all processors could use up the rest, so many processes get no more than one; never at once."""
    with (
        contextlib.closing(io.FileIO(memory_file(program("sleep", 60)))) as file,
        Child.open(pythons_family, file.fileno(), dataclasses.replace(FORKING, cpu_s=5)) as child,
    ):
        assert child.judge(Used(0, 0.0)) == WATCH_PERIOD_S
        assert child.judge(Used(0, 4.9)) == pytest.approx(min(WATCH_PERIOD_S, max(0.02, 0.1 / (os.cpu_count() or 1))))
        assert child.judge(Used(0, 5.0)) == 0.02
        child.judge(Used(0, 5.01))
        ending = child.wait(DEADLINE_S)
    assert isinstance(ending, OverLimit)
    assert ending.limit == "cpu"


def test_processes_are_counted_together_however_they_are_made(family: Callable[..., Said]) -> None:
    """Processes of vfork and exec, which nobody waits for, count as well; the policy's number includes the first."""
    assert family("crowd 600", FORKING).told == [f"crowd {FORKING.processes - 1}"]
    assert family("crowd 600", dataclasses.replace(FORKING, processes=40)).told == ["crowd 39"]


# Files


def test_a_file_that_is_too_large_is_an_errno_of_the_first_process(hog: Callable[..., Said]) -> None:
    """A first process does not feel SIGXFSZ, so it is told EFBIG."""
    small = dataclasses.replace(ELF, file_bytes=2 << 20)

    assert hog("fill 3", small).told == [f"errno {errno.EFBIG}", f"written {2 << 20}"]
    assert hog("fill 2", small).told == [f"written {2 << 20}"]


def test_a_file_that_is_too_large_ends_who_is_not_the_first(family: Callable[..., Said]) -> None:
    """By SIGXFSZ, and the first goes on."""
    small = dataclasses.replace(FORKING, file_bytes=2 << 20)

    assert family("fill-below 3", small).told == [f"signal {signal.SIGXFSZ}"]


# The groups themselves


@pytest.fixture
def place() -> cgroups.Place:
    """Where groups can be made."""
    found = cgroups.find()
    if found is None:
        pytest.skip("this user can make no control groups here")
    return found


def _directories(place: cgroups.Place, host: int | None = None) -> set[Path]:
    """Of one host, by its process, or of this one: other tests make theirs meanwhile."""
    parents = [place.memory, *([place.cpu] if place.cpu else [])]
    return {path for parent in parents for path in parent.glob(f"aileron-jails-{host or os.getpid()}-*")}


def test_groups_are_gone_with_their_template(place: cgroups.Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a child is still running when the template is closed, however long it takes to be no more."""
    monkeypatch.setattr("aileron_sandbox.cgroups._REMOVAL_DEADLINE_S", DEADLINE_S)
    before = _directories(place)
    with _started(lambda: Template.start(PythonRuntime.of_this_interpreter(), memory_by="groups")) as template:
        during = _directories(place) - before
        with contextlib.closing(io.FileIO(memory_file(program("sleep", 60)))) as file:
            child = Child.open(template, file.fileno(), Policy())
            while not child.is_born:
                assert select.select([template], [], [], DEADLINE_S)[0]
                template.pump()
    child.close()

    assert during
    assert during.isdisjoint(_directories(place))


_KILLED: Final = """
import os, sys
from aileron_sandbox import cgroups
place = cgroups.find()
groups = cgroups.Groups(place)
groups.take()
print("ready", flush=True)
sys.stdin.read()
os.kill(os.getpid(), 9)
"""


def test_what_a_killed_host_left_is_removed_and_a_living_ones_is_not(place: cgroups.Place) -> None:
    """A lock tells them apart, which ends with the host that has it."""
    with subprocess.Popen(
        [sys.executable, "-c", _KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    ) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == b"ready\n"
        theirs = _directories(place, host.pid)
        cgroups.Groups(place).close()
        assert theirs
        assert theirs == _directories(place, host.pid)
        host.communicate(b"")
    # Nobody says what becomes of them until then: any host that starts removes them, and others start here meanwhile.
    cgroups.Groups(place).close()
    assert not _directories(place, host.pid)


def test_groups_that_were_taken_away_are_refusals_until_there_are_others(place: cgroups.Place) -> None:
    """Behind the host's back: a child is refused, never run without a limit, and soon there are new groups."""
    outcomes: list[object] = []
    before = _directories(place)
    with _started(lambda: Template.start(PythonRuntime.of_this_interpreter(), memory_by="groups")) as template:
        assert isinstance(_run(template, program("listing", "/"), Policy()).ending, Exited)
        for directory in _directories(place) - before:
            for group in [entry for entry in directory.iterdir() if entry.is_dir()]:
                with contextlib.suppress(OSError):  # that of a child which waits
                    group.rmdir()
        for _ in range(8):
            try:
                outcomes.append(type(_run(template, program("listing", "/"), Policy()).ending))
            except JailUnavailable as error:
                outcomes.append(type(error))

    assert set(outcomes) <= {Exited, RefusedToStart, JailUnavailable}
    assert outcomes[-1] is Exited
