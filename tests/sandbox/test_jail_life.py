"""Tests of a jail from birth to death: what it is given, what it may use, how it ends, and that nothing is left."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import psutil
import pytest

from aileron_sandbox.ending import Ending, Exited, OverLimit, RefusedToStart, Signalled
from aileron_sandbox.jail import MAX_CHILDREN, Child, Template, TemplateGone
from aileron_sandbox.policy import Policy
from aileron_sandbox.runtime import PythonRuntime
from aileron_sandbox.unavailable import JailUnavailable
from tests.sandbox.conftest import DEADLINE_S, TELLS_WHO_LEFT, memory_file, program, trying
from tests.sandbox.processes import AHEAD, below
from tests.sandbox.seen import Seen
from tests.support.waiting import wait_ended, wait_still

pytestmark = pytest.mark.jail
Jailed = Callable[..., Seen]
ROOT = Path(__file__).resolve().parents[2]
NAMESPACES = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")


def _heard(child: Child) -> bytes:
    assert select.select([child.frames_out], [], [], 10)[0], "nothing came"
    return os.read(child.frames_out, 1 << 16)


@contextlib.contextmanager
def _asleep(template: Template) -> Iterator[int]:
    """Yield the host's pid of a child that has reached its own code and sleeps."""
    with trying(template, "sleep_with_scratch", 30) as child:
        assert _heard(child) == b'"ready"\n'
        while not child.is_born:
            assert select.select([template], [], [], 10)[0]
            template.pump()
        yield child.pid


def _report(template: Template, name: str, *arguments: object) -> Any:
    with trying(template, name, *arguments) as child:
        child.wait(10)
        return json.loads(os.read(child.frames_out, 1 << 16))


def _settle(template: Template) -> None:
    """Process the ends of children, like an event loop does, until there is room again."""
    while True:
        with contextlib.suppress(BlockingIOError), trying(template, "listing", "/") as child:
            child.wait(10)
            return
        assert select.select([template], [], [], 10)[0], "nobody ended"
        template.pump()


# What it is given


def test_a_program_finds_no_other_process_and_no_environment_in_its_jail(jailed: Jailed) -> None:
    """The program is pid 1 with an empty environment, a meaningless host name, an unprivileged id and five devices."""
    facts = jailed("facts").report["loot"]

    assert facts["environment"] == {}
    assert facts["host"] == "jail"
    assert facts["ids"][:4] == [1, 0, 1000, 1000]
    assert facts["session"] == [1, 1]
    assert facts["working_directory"] == "/w/tmp"
    assert facts["devices"] == ["full", "null", "random", "urandom", "zero"]
    assert {"proc", "sys", "etc", "home"}.isdisjoint(facts["root"])
    assert not any("site-packages" in entry or "dist-packages" in entry for entry in facts["path"])


def test_two_programs_get_different_random_bytes(jailed: Jailed) -> None:
    """Both are children of one template."""
    assert jailed("facts").report["loot"]["random"] != jailed("facts").report["loot"]["random"]


def test_a_preloaded_random_module_is_seeded_anew_for_each_child(packed: Callable[..., Template]) -> None:
    """The module's state is in the template, and thus would be the same in all its forks."""
    with packed(preload=("random",)) as template:
        first, second = (_report(template, "random_numbers") for _ in range(2))

    assert first != second


def test_two_programs_share_no_open_file(jailed: Jailed) -> None:
    """File flags belong to the open file description: a shared standard input would pass them on."""
    first, second = (jailed("null_flags").report["loot"] for _ in range(2))

    assert first == second


def test_the_templates_modules_are_neither_loaded_nor_importable_in_a_program(jailed: Jailed) -> None:
    """The template's modules are neither loaded nor importable unless the host named them."""
    assert jailed("modules_of_the_jail").report == {"loot": []}


def test_only_five_descriptors_are_open_in_a_jail(jailed: Jailed) -> None:
    """The probe tries each number below 1024; the host's descriptors, inheritable ones included, are not among them."""
    opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(200)]
    for fd in opened:
        os.set_inheritable(fd, True)
    try:
        assert jailed("descriptors").report == {"loot": [0, 1, 2, 3, 4]}
    finally:
        for fd in opened:
            os.close(fd)


@pytest.mark.abuse_case("J8")
def test_the_host_sees_a_child_without_privilege(template: Template) -> None:
    """The child has no capability, no new privileges, a filter, one non-root id, and no group that its host does not have."""
    with _asleep(template) as pid:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
        maps = Path(f"/proc/{pid}/uid_map").read_text(encoding="utf-8").split()

    status = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    assert [status[f"Cap{name}"] for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")] == [["0" * 16]] * 5
    assert status["NoNewPrivs"] == ["1"]
    assert status["Seccomp"] == ["2"]
    assert status["NSpid"][-1] == "1"
    assert "0" not in status["Uid"] + status["Gid"]
    assert maps == ["1000", status["Uid"][0], "1"]
    # An ordinary user cannot drop groups, setgroups(2); the files that they give access to are not in the jail.
    assert status["Groups"] == ([] if os.geteuid() == 0 else [str(group) for group in sorted(os.getgroups())])


@pytest.mark.skipif(os.geteuid() != 0, reason="the child is undumpable: only root may read these of its /proc entries")
def test_a_childs_namespaces_and_descriptors_are_its_own(template: Template) -> None:
    """Seven namespaces differ from the host's, six from a sibling's (the empty network is shared); five descriptors are open."""
    with _asleep(template) as sleeper, _asleep(template) as other:
        ours, ones, others = (
            {name: os.readlink(f"/proc/{pid}/ns/{name}") for name in NAMESPACES} for pid in ("self", sleeper, other)
        )
        descriptors = {int(fd): os.readlink(f"/proc/{sleeper}/fd/{fd}") for fd in os.listdir(f"/proc/{sleeper}/fd")}
        devices = Path(f"/proc/{sleeper}/net/dev").read_text(encoding="utf-8").splitlines()[2:]

    assert set(ours.values()).isdisjoint(ones.values())
    assert {name for name in NAMESPACES if ones[name] == others[name]} == {"net"}
    assert sorted(descriptors) == [0, 1, 2, 3, 4]
    assert descriptors[0] == "/dev/null"
    assert all(descriptors[fd].startswith("pipe:") for fd in (1, 2, 3, 4))
    assert [line.split(":")[0].strip() for line in devices] == ["lo"]


@pytest.mark.abuse_case("F8")
def test_scratch_is_private_and_gone_with_its_program(template: Template) -> None:
    """Another program does not see the file in its /tmp, neither while both run nor afterwards."""
    with trying(template, "sleep_with_scratch", 30) as child:
        assert _heard(child) == b'"ready"\n'
        assert _report(template, "listing", "/tmp") == {"loot": []}

    assert _report(template, "listing", "/tmp") == {"loot": []}


def test_printed_text_cannot_be_mistaken_for_frames(jailed: Jailed) -> None:
    """print goes to the log, byte for byte, even if it looks like a frame."""
    seen = jailed("noise", 1024)

    assert seen.report == {"loot": True}
    assert "to stdout" in seen.log
    assert "to stderr" in seen.log
    assert "\0\0\0\x02" in seen.log


# What it may use


def test_each_limit_of_a_jail_stops_only_attempts_that_exceed_it(jailed: Jailed) -> None:
    """Scratch bytes and files, file size, descriptors and memory fail with an errno; below the limit the same attempt works."""
    small = Policy(scratch_bytes=1 << 20, scratch_files=16, file_bytes=1 << 16, open_files=32)

    assert jailed("write", "/tmp/x", 2 << 20, policy=Policy(scratch_bytes=1 << 20)).report == {"errno": "ENOSPC"}
    assert jailed("write", "/tmp/x", 1 << 17, policy=small).report == {"errno": "EFBIG"}
    assert jailed("make_files", "/tmp", 32, policy=small).report == {"errno": "ENOSPC"}
    assert jailed("open_many", 100, policy=small).report["loot"][1] == "EMFILE"
    assert jailed("allocate", 256).report == {"errno": "MemoryError"}
    assert jailed("write", "/tmp/x", 1 << 15, policy=small).report == {"loot": 1 << 15}
    assert jailed("allocate", 16).report == {"loot": 16 << 20}


@pytest.mark.parametrize("kind", ["private", "shared", "shared zeros"])
def test_every_kind_of_memory_has_a_limit(jailed: Jailed, kind: str) -> None:
    """RLIMIT_DATA counts private writable pages only; RLIMIT_AS ends what it misses; memory that grows down is refused."""
    assert jailed("hold", kind, 192).report == {"errno": "ENOMEM"}
    assert jailed("hold", kind, 16).report == {"loot": 16 << 20}
    assert jailed("hold", "grows down", 16).report == {"errno": "EPERM"}


def test_memory_made_read_only_is_still_counted(jailed: Jailed, template: Template) -> None:
    """mprotect(2) takes pages out of RLIMIT_DATA, but not out of RLIMIT_AS or a control group."""
    seen = jailed("hold_read_only", 192)

    if template.memory_by == "rlimit":
        assert seen.report == {"errno": "ENOMEM"}
    else:
        assert isinstance(seen.ending, OverLimit)
        assert seen.ending.limit == "memory"
    assert jailed("hold_read_only", 16).report == {"loot": 16}


def test_a_program_that_exceeds_its_processor_time_ends_with_that_limit_as_the_reason(template: Template) -> None:
    """An endless loop has one second. A kill after its end does not change the reported reason."""
    with trying(template, "spin", policy=Policy(cpu_s=1)) as child:
        while not child.is_born:
            assert select.select([template], [], [], 10)[0]
            template.pump()
        stopped = psutil.Process(child.pid).parents()[0]
        stopped.suspend()
        try:
            wait_ended(child.pid)
            child.kill()
        finally:
            stopped.resume()
        ending = child.wait(10)

    assert isinstance(ending, OverLimit)
    assert ending.limit == "cpu"
    assert 750 <= ending.usage.cpu_ms <= 3000


def test_a_policy_value_out_of_range_is_refused() -> None:
    """The value is never clamped."""
    with pytest.raises(ValueError, match="memory_bytes is 0"):
        Policy(memory_bytes=0)
    with pytest.raises(ValueError, match="processes"):
        Policy(processes=10_000)


# How it ends


def test_each_way_in_which_a_program_can_exit_or_crash_is_reported_differently(jailed: Jailed) -> None:
    """The program calls sys.exit, raises an exception whose traceback is in the log, or returns."""
    left, crashed, done = jailed("leave", 7), jailed("crash"), jailed("facts")

    assert isinstance(left.ending, Exited)
    assert left.ending.code == 7
    assert isinstance(crashed.ending, Exited)
    assert crashed.ending.code == 1
    assert "ValueError: a bug of the program" in crashed.log
    assert isinstance(done.ending, Exited)
    assert done.ending.code == 0


def test_killing_a_child_is_reported_at_once_as_a_signal(template: Template) -> None:
    """The child sleeps for ever until the host kills it."""
    with trying(template, "sleep", 3600) as child:
        child.kill()
        ending = child.wait(DEADLINE_S)

    assert isinstance(ending, Signalled)
    assert ending.signal == signal.SIGKILL


def test_a_wait_that_times_out_leaves_the_child_running(template: Template) -> None:
    """TimeoutError is raised, and the child can still be killed."""
    with trying(template, "sleep", 3600) as child:
        while not child.is_born:
            assert select.select([template], [], [], DEADLINE_S)[0]
            template.pump()
        with pytest.raises(TimeoutError):
            child.wait(0.1)
        assert child.ending is None
        child.kill()
        child.wait(DEADLINE_S)


def _has_left(template: Template, child: Child) -> bool:
    if select.select([template], [], [], 0)[0]:
        template.pump()
    return child.has_left


@pytest.mark.skipif(not TELLS_WHO_LEFT, reason="Linux before 6.11: a listener hangs up when the last process is reaped")
def test_a_child_counts_as_ended_before_the_kernel_has_freed_its_memory(template: Template) -> None:
    """The kernel needs some 50 ms to free 300 MiB after the last system call. A busy machine may check too late."""
    for _ in range(5):
        with trying(template, "hold_and_leave", 300, policy=Policy(memory_bytes=512 << 20)) as child:
            while not child.has_left:
                assert select.select([template], [], [], 10)[0]
                template.pump()
            was_early = child.ending is None

            assert isinstance(child.wait(10), Exited)
            assert json.loads(os.read(child.frames_out, 1 << 16)) == {"loot": "said"}
        if was_early:
            break
    assert was_early


def test_a_child_whose_first_thread_has_ended_but_another_runs_is_not_reported_as_ended(template: Template) -> None:
    """The process looks like one that has ended, but another of its threads still runs."""
    with trying(template, "leave_a_thread") as child:
        assert json.loads(_heard(child)) == {"loot": "said"}
        assert not wait_still(lambda: _has_left(template, child), "it leaves or stays", for_s=0.2)
        os.write(child.frames_in, b"x")
        ending = child.wait(10)

        assert isinstance(ending, Exited)
        assert ending.code == 7
        assert child.has_left


def test_no_program_runs_if_its_confinement_fails(template: Template, tmp_path: Path) -> None:
    """The program cannot be copied: RefusedToStart names the step and the errno, and no line of it ran."""
    path = tmp_path / "program"
    path.write_bytes(program("facts"))
    unreadable = os.open(path, os.O_WRONLY)
    try:
        with Child.open(template, unreadable, Policy()) as child:
            ending = child.wait(DEADLINE_S)
            said = os.read(child.frames_out, 100)
    finally:
        os.close(unreadable)

    assert ending == RefusedToStart("program", errno.EBADF)
    assert str(ending) == "confinement failed at program: EBADF (Bad file descriptor)"
    assert said == b""


def test_a_program_that_closes_its_frame_descriptors_can_be_killed(template: Template) -> None:
    """The host sees the frames end while the program lives on."""
    with trying(template, "hang_up_and_sleep", 3600) as child:
        assert _heard(child) == b""
        assert child.ending is None
        child.kill()
        assert isinstance(child.wait(DEADLINE_S), Signalled)


def test_a_template_refuses_more_than_its_maximum_number_of_children(template: Template) -> None:
    """The child after MAX_CHILDREN gets EAGAIN, and there is room again once one has ended."""
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(trying(template, "sleep", 60)) for _ in range(MAX_CHILDREN)]
        with pytest.raises(BlockingIOError):
            stack.enter_context(trying(template, "sleep", 60))
        children[0].kill()
        children[0].wait(10)
        stack.enter_context(trying(template, "sleep", 60))
        with pytest.raises(BlockingIOError):
            stack.enter_context(trying(template, "sleep", 60))
    # A closed child still counts until the host has heard of its end.
    _settle(template)


@pytest.mark.abuse_case("L9")
def test_two_hundred_jails_leak_no_descriptor_and_no_process(template: Template) -> None:
    """Half are waited for and half are closed before they start: host and template have as many as before."""
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(100):
        with trying(template, "sleep", 3600):
            pass
        with trying(template, "listing", "/") as child:
            child.wait(10)
    while len(below(template)) > AHEAD:
        assert select.select([template], [], [], 10)[0], "a process is left of which nothing was heard"
        template.pump()

    assert len(os.listdir("/proc/self/fd")) == before


def test_no_descriptor_is_leaked_however_a_jail_ends(template: Template, tmp_path: Path) -> None:
    """Programs exit, crash, exceed a limit, try to connect, or are killed, closed or refused."""
    path = tmp_path / "program"
    path.write_bytes(program("facts"))
    before, endings = len(os.listdir("/proc/self/fd")), set()
    ends: dict[str, tuple[object, ...]] = {
        "leave": (7,),
        "crash": (),
        "connect_to": ("192.0.2.1", 443),
        "spin": (),
    }
    for name, arguments in ends.items():
        with trying(template, name, *arguments, policy=Policy(cpu_s=1)) as child:
            endings.add(type(child.wait(10)))
    with trying(template, "sleep", 3600) as child:
        child.kill()
        endings.add(type(child.wait(10)))
    unreadable = os.open(path, os.O_WRONLY)
    with Child.open(template, unreadable, Policy()) as child:
        endings.add(type(child.wait(10)))
    os.close(unreadable)
    with _asleep(template):
        pass
    with trying(template, "sleep", 3600), pytest.raises(ValueError, match="the program has 0 bytes"):
        Child.open(template, memory := memory_file(b""), Policy())
    os.close(memory)
    while len(below(template)) > AHEAD:
        assert select.select([template], [], [], 10)[0], "a process is left of which nothing was heard"
        template.pump()

    assert endings == set(get_args(Ending))
    assert len(os.listdir("/proc/self/fd")) == before


# If the others die


def test_killing_the_template_ends_every_child() -> None:
    """SIGKILL to the template: pid_namespaces(7) ends the processes below it, and the host is told."""
    with Template.start(PythonRuntime.of_this_interpreter()) as template:
        fd = memory_file(program("sleep_with_scratch", 3600))
        try:
            with Child.open(template, fd, Policy()) as child:
                assert _heard(child) == b'"ready"\n'
                all_below = psutil.Process(template.pid).children(recursive=True)
                os.kill(template.pid, signal.SIGKILL)
                _, left = psutil.wait_procs(all_below, timeout=DEADLINE_S)
                with pytest.raises(TemplateGone):
                    child.wait(DEADLINE_S)
        finally:
            os.close(fd)

    assert len(all_below) >= 2
    assert left == []


def test_a_template_that_cannot_start_reports_why_and_leaves_no_process(tmp_path: Path) -> None:
    """A package to preload does not exist: the error names the step."""
    before = len(psutil.Process().children(recursive=True))

    with pytest.raises(JailUnavailable, match="confinement failed at namespaces and root: ENOENT"):
        Template.start(PythonRuntime.of_this_interpreter(packages={"gone": tmp_path / "gone"}))

    assert len(psutil.Process().children(recursive=True)) == before
