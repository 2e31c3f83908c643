"""Tests of a whole jail's limits, with control groups and without: each limit ends it by name; within limits it goes on."""

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
from tests.sandbox.conftest import drained, memory_file, program
from tests.sandbox.processes import end_beside_a_stopped_template
from tests.support.elf_programs import compiled
from tests.support.zipped import zipped

pytestmark = pytest.mark.jail
ELF: Final = Policy(profile="elf")
FORKING: Final = Policy(profile="elf-subprocess")
DEADLINE_S: Final = 20.0
ROOT: Final = Path(__file__).resolve().parents[2]
_SEALS: Final = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK
By = Literal["groups", "rlimit"]


@dataclasses.dataclass(frozen=True)
class Said:
    """Output and ending of a program."""

    told: list[str]
    ending: Ending | None

    @property
    def over(self) -> str | None:
        """Limit that ended the program, or None."""
        return self.ending.limit if isinstance(self.ending, OverLimit) else None


@pytest.fixture(scope="module", params=["groups", "rlimit"])
def by(request: pytest.FixtureRequest) -> By:
    """Run the test with the control groups that this user can make, and without any."""
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
                    return Said(drained(child.frames_out).decode().splitlines(), ending)

            yield use
    finally:
        os.close(fd)


@pytest.fixture(scope="module")
def family(by: By, hog: Callable[..., Said]) -> Callable[..., Said]:
    """Return `hog` for programs that may start processes; skip the test without control groups."""
    if by == "rlimit":
        pytest.skip("refused: test_a_program_that_starts_processes_needs_a_control_group")
    return hog


@pytest.fixture(scope="module")
def pythons_family(by: By, python: Template) -> Template:
    """Return the Python template for programs that may start processes; skip the test without control groups."""
    if by == "rlimit":
        pytest.skip("refused: test_a_program_that_starts_processes_needs_a_control_group")
    return python


@pytest.fixture(scope="module")
def python(by: By) -> Iterator[Template]:
    """Start the warm process of Python programs."""
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
            return Said(drained(child.frames_out).decode().splitlines(), ending)
    finally:
        os.close(fd)


# Memory


def test_asking_for_too_much_memory_fails_with_an_errno(hog: Callable[..., Said]) -> None:
    """RLIMIT_DATA is reached first, with or without a control group: the program gets ENOMEM and continues."""
    asked = hog("private 96")

    assert asked.told == [f"errno {errno.ENOMEM}"]
    assert isinstance(asked.ending, Exited)
    assert hog("private 48").told == ["held 48"]


def test_exceeding_the_limit_with_memory_that_rlimits_do_not_count_ends_the_program(hog: Callable[..., Said]) -> None:
    """RLIMIT_DATA does not count a shared mapping, and compiled programs have much address space."""
    assert hog("shared-for-good 400").over == "memory"  # without a group it is measured four times a second
    assert hog("shared 48").told == ["held 48"]


@pytest.mark.abuse_case("R1")
def test_the_memory_of_all_processes_of_a_program_is_added_up(family: Callable[..., Said]) -> None:
    """Eight processes of 40 MiB exceed the limit, though each is within RLIMIT_DATA; eight of 6 MiB do not."""
    over, under = family("family 8 40", FORKING), family("brief-family 8 6", FORKING)

    assert over.over == "memory"
    assert under.told == ["held 6"] * 8 + ["left 0"]
    assert isinstance(under.ending, Exited)


def test_the_memory_of_all_processes_of_a_python_program_is_added_up(pythons_family: Template) -> None:
    """The processes are forks that share the template's memory, which does not count against the program."""
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
    over = _run(pythons_family, zipped(forks.format(count=8, mib=40, stay=60)), FORKING)
    under = _run(pythons_family, zipped(forks.format(count=8, mib=4, stay=0.6)), FORKING)

    assert over.over == "memory"
    assert under.told == ["held"] * 8
    assert isinstance(under.ending, Exited)


@pytest.mark.abuse_case("R8")
def test_socket_buffers_count_towards_the_memory_limit(pythons_family: Template) -> None:
    """Sixteen processes fill the buffers of socket pairs, which are part of no process's memory."""
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
    over = _run(pythons_family, zipped(fill.format(count=16, pairs=24, stay=20)), FORKING)
    under = _run(pythons_family, zipped(fill.format(count=2, pairs=8, stay=0.6)), FORKING)

    assert over.over == "memory"
    assert under.told[0] == "full"
    assert isinstance(under.ending, Exited)


@pytest.mark.abuse_case("R8")
def test_a_program_that_starts_processes_needs_a_control_group(
    by: By, hog: Callable[..., Said], python: Template
) -> None:
    """Rlimits bound each process alone, so the program is refused without one, with a fix; other programs still run."""
    if by == "groups":
        assert isinstance(hog("brief-family 2 6", FORKING).ending, Exited)
        return
    with pytest.raises((JailUnavailable, ValueError), match="may start others need"):
        hog("brief-family 2 6", FORKING)
    with pytest.raises((JailUnavailable, ValueError), match="may start others need"):
        _run(python, zipped("import os; os.fork()"), FORKING)
    assert hog("private 48").told == ["held 48"]
    if cgroups.find() is None:
        with pytest.raises(JailUnavailable, match="systemd-run --user --scope"):
            check_possible("elf-subprocess", "namespaces", is_compiled=True)


@pytest.mark.parametrize("what", ["a child connects", "nothing"])
def test_a_connection_attempt_by_an_orphaned_child_is_still_reported(pythons_family: Template, what: str) -> None:
    """The first process exits, which ends its child too, while the child connects: the exit waits for that verdict."""
    ending = end_beside_a_stopped_template(pythons_family, program("leave_while", what), FORKING)

    assert isinstance(ending, Exited if what == "nothing" else NetworkAttempt), ending


def test_a_full_scratch_space_takes_no_memory_from_the_program(hog: Callable[..., Said]) -> None:
    """Scratch is memory too: a program was promised 31 of its 32 MiB of scratch and 60 of its 64 MiB of memory."""
    both = hog("fill-and-hold 31 60")

    assert both.told == [f"written {31 << 20}", "held 60"]
    assert isinstance(both.ending, Exited)


def test_a_child_s_end_is_not_reported_with_the_reason_of_an_earlier_child_in_its_control_group(
    python: Template,
) -> None:
    """Control groups are reused: after an out-of-memory end, a killed child is `Signalled`, one that exits `Exited`."""
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


def test_the_processor_time_of_all_processes_of_a_program_is_added_up(family: Callable[..., Said]) -> None:
    """Three processes spin; each is still within RLIMIT_CPU when the limit ends them."""
    over = family("spin 3", dataclasses.replace(FORKING, cpu_s=1))

    assert over.over == "cpu"


def test_the_processor_time_of_ended_processes_is_counted(family: Callable[..., Said]) -> None:
    """Many short-lived processes run that no other process waits for: only a control group remembers what they used."""
    place = cgroups.find()
    if place is None or (place.kind == "cgroup-v1" and place.cpu is None):
        pytest.skip("without a group it is the wall clock that ends them (docs/explanation/limitations.md)")
    assert family("drizzle", dataclasses.replace(FORKING, cpu_s=1)).over == "cpu"


def test_processor_time_is_checked_more_often_near_its_limit(pythons_family: Template) -> None:
    """The next check comes before all processors together could use up the rest, but never at once."""
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


def test_processes_count_towards_the_limit_however_they_are_started(family: Callable[..., Said]) -> None:
    """Processes of vfork and exec count too, even unreaped ones; the policy's number includes the first."""
    assert family("crowd 600", FORKING).told == [f"crowd {FORKING.processes - 1}"]
    assert family("crowd 600", dataclasses.replace(FORKING, processes=40)).told == ["crowd 39"]


# Files


def test_a_write_beyond_the_file_size_limit_fails_with_an_errno_in_the_first_process(hog: Callable[..., Said]) -> None:
    """SIGXFSZ does not reach a first process, so its write fails with EFBIG."""
    small = dataclasses.replace(ELF, file_bytes=2 << 20)

    assert hog("fill 3", small).told == [f"errno {errno.EFBIG}", f"written {2 << 20}"]
    assert hog("fill 2", small).told == [f"written {2 << 20}"]


def test_a_write_beyond_the_file_size_limit_ends_a_process_that_is_not_the_first(family: Callable[..., Said]) -> None:
    """SIGXFSZ ends it, and the first process goes on."""
    small = dataclasses.replace(FORKING, file_bytes=2 << 20)

    assert family("fill-below 3", small).told == [f"signal {signal.SIGXFSZ}"]


# The groups themselves


@pytest.fixture
def place() -> cgroups.Place:
    """Return the place where this user can make control groups, or skip the test."""
    found = cgroups.find()
    if found is None:
        pytest.skip("this user can make no control groups here")
    return found


def _directories(place: cgroups.Place, host: int | None = None) -> set[Path]:
    """Return the control groups of one host, given its pid, or of this process: other tests make theirs meanwhile."""
    parents = [place.memory, *([place.cpu] if place.cpu else [])]
    return {path for parent in parents for path in parent.glob(f"aileron-jails-{host or os.getpid()}-*")}


def test_control_groups_are_removed_with_their_template(place: cgroups.Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds if a child still runs when the template is closed, however long its end takes."""
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


def test_control_groups_are_removed_only_if_their_host_has_ended(place: cgroups.Place) -> None:
    """A host holds a lock on its groups, which the kernel releases when the host is killed."""
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
    # They may be gone before: any host that starts removes them, and other hosts start here meanwhile.
    cgroups.Groups(place).close()
    assert not _directories(place, host.pid)


def test_removed_control_groups_cause_refusals_until_new_ones_exist(place: cgroups.Place) -> None:
    """Another program removes them: children are refused rather than run without a limit; soon there are new groups."""
    outcomes: list[object] = []
    before = _directories(place)
    with _started(lambda: Template.start(PythonRuntime.of_this_interpreter(), memory_by="groups")) as template:
        assert isinstance(_run(template, program("listing", "/"), Policy()).ending, Exited)
        for directory in _directories(place) - before:
            for group in [entry for entry in directory.iterdir() if entry.is_dir()]:
                with contextlib.suppress(OSError):  # the group of a child that waits
                    group.rmdir()
        for _ in range(8):
            try:
                outcomes.append(type(_run(template, program("listing", "/"), Policy()).ending))
            except JailUnavailable as error:
                outcomes.append(type(error))

    assert set(outcomes) <= {Exited, RefusedToStart, JailUnavailable}
    assert outcomes[-1] is Exited
