"""Tests of children that are forked ahead: which request gets them, what they hold, which processes reach them, how they end."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from aileron_sandbox.ending import Exited, NetworkAttempt, Signalled
from aileron_sandbox.jail import MAX_CHILDREN, Child, Template
from aileron_sandbox.policy import Policy
from tests.sandbox.conftest import trying
from tests.sandbox.processes import AHEAD, below, end_forked_ahead, status_of, wait_forked_ahead
from tests.support.waiting import unread, wait_ended, wait_until

pytestmark = pytest.mark.jail
ROOT = Path(__file__).resolve().parents[2]
NAMESPACES = ("user", "mnt", "pid", "ipc", "uts", "cgroup")
DEADLINE_S = 10.0


def _report(template: Template, name: str, *arguments: object, policy: Policy | None = None) -> Any:
    with trying(template, name, *arguments, policy=policy) as child:
        child.wait(DEADLINE_S)
        return json.loads(os.read(child.frames_out, 1 << 16))


@contextlib.contextmanager
def _asleep(template: Template) -> Iterator[int]:
    """Yield the host's pid of a child that has reached its own code and sleeps."""
    with trying(template, "sleep_with_scratch", 3600) as child:
        _wait_for_word(template, child)
        yield child.pid
        child.kill()
        child.wait(DEADLINE_S)


def _kept(stack: contextlib.ExitStack, namespace: str) -> str:
    """Return the name of a namespace and keep it open for the stack: the number of a closed one is given to another."""
    fd = os.open(namespace, os.O_RDONLY)
    stack.callback(os.close, fd)
    return os.readlink(f"/proc/self/fd/{fd}")


@pytest.fixture
def alone(packed: Callable[..., Template]) -> Iterator[Template]:
    """Start a template of the test's own."""
    with packed(preload=("json", "zipfile", "random")) as template:
        yield template


def _wait_for_word(template: Template, child: Child) -> None:
    """Wait until the child has written its word and the host knows its pid."""
    assert select.select([child.frames_out], [], [], DEADLINE_S)[0], "nothing came"
    while not child.is_born:
        assert select.select([template], [], [], DEADLINE_S)[0]
        template.pump()


# Which request gets them


def test_each_child_forked_ahead_serves_exactly_one_of_the_next_requests(alone: Template) -> None:
    """Requests get them oldest first, as their pids show; when they have ended, others are ready."""
    waiting = wait_forked_ahead(alone)
    with _asleep(alone) as first, _asleep(alone) as second:
        assert [first, second] == [process.pid for process in waiting]
    _, left = psutil.wait_procs(waiting, timeout=DEADLINE_S)

    assert left == []
    assert set(wait_forked_ahead(alone)).isdisjoint(waiting)


@pytest.mark.parametrize("how", ["looks", "connects"])
def test_the_template_answers_a_childs_network_check_while_other_children_end(alone: Template, how: str) -> None:
    """The template gets all events at once. The descriptor for its answer reuses the number of an ended child's."""
    with _asleep(alone) as sleeper, _asleep(alone) as other, trying(alone, "ask_when_told", how) as asking:
        _wait_for_word(alone, asking)
        wait_forked_ahead(alone)
        first = psutil.Process(alone.pid).children()[0]
        first.suspend()
        try:
            for pid in (sleeper, other):
                os.kill(pid, signal.SIGKILL)
                wait_ended(pid)
            os.write(asking.frames_in, b"x")
            wait_until(lambda: not unread(asking.frames_in) and status_of(asking.pid)["State"][0] == "S", "it asks")
        finally:
            first.resume()
        ending = asking.wait(DEADLINE_S)

    assert isinstance(ending, Exited if how == "looks" else NetworkAttempt), ending


def test_no_more_children_are_forked_ahead_than_configured(alone: Template) -> None:
    """The template only refills its reserve, however many children run or have ended."""
    with _asleep(alone) as sleeper, _asleep(alone) as other:
        for _ in range(10):
            assert _report(alone, "facts")["loot"]["host"] == "jail"
        waiting = {process.pid for process in wait_forked_ahead(alone)}

        assert {process.pid for process in below(alone)} == {sleeper, other} | waiting
    assert len(waiting) == AHEAD


def test_a_child_forked_ahead_takes_the_policy_of_its_request(alone: Template) -> None:
    """Each child has the limits of its own request (narrow, wide, narrow), whenever it was forked."""
    narrow, wide = Policy(open_files=16), Policy(open_files=64)
    opened = []
    for policy in (narrow, wide, narrow):
        wait_forked_ahead(alone)
        opened.append(_report(alone, "open_many", 100, policy=policy)["loot"][0])
    end_forked_ahead(alone)
    opened.append(_report(alone, "open_many", 100, policy=wide)["loot"][0])

    assert opened[0] == opened[2] < 16
    assert opened[1] == opened[3] > 48


def test_a_template_runs_its_maximum_number_of_children_at_once(alone: Template) -> None:
    """Two were forked ahead and the others on request; each returns its own status, and then there is room again."""
    wait_forked_ahead(alone)
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(trying(alone, "leave", number)) for number in range(MAX_CHILDREN)]
        with pytest.raises(BlockingIOError):
            stack.enter_context(trying(alone, "leave", 0))
        endings = [child.wait(DEADLINE_S * 2) for child in children]

    assert [ending.code for ending in endings if isinstance(ending, Exited)] == list(range(MAX_CHILDREN))
    assert _report(alone, "facts")["loot"]["host"] == "jail"


# What they hold


def test_a_waiting_child_has_no_privilege_and_cannot_be_attached_to(alone: Template) -> None:
    """The child has an unprivileged id and an empty bounding set; root owns its files in /proc, as it is undumpable."""
    waiting = wait_forked_ahead(alone)[-1]
    status = status_of(waiting.pid)

    assert "0" not in status["Uid"] + status["Gid"]
    assert status["CapBnd"] == ["0" * 16]
    assert status["NoNewPrivs"] == ["1"]
    assert status["NSpid"][-1] == "1"
    assert os.stat(f"/proc/{waiting.pid}/environ").st_uid == 0, (
        "proc(5): of the process's own user while it is dumpable"
    )
    if os.geteuid() != 0:
        with pytest.raises(PermissionError):
            os.open(f"/proc/{waiting.pid}/mem", os.O_RDWR)


@pytest.mark.skipif(os.geteuid() != 0, reason="it is undumpable: only root may read these of its /proc entries")
def test_a_child_forked_ahead_holds_nothing_of_an_earlier_run(alone: Template) -> None:
    """The last child, forked after another has run, has only the failure pipe, no program, one socket, its own namespaces."""
    with contextlib.ExitStack() as held_open:
        with _asleep(alone) as pid:
            used = {_kept(held_open, f"/proc/{pid}/ns/{name}") for name in NAMESPACES}
        waiting = wait_forked_ahead(alone)[-1].pid
        own = {os.readlink(f"/proc/{waiting}/ns/{name}") for name in NAMESPACES}
    standard_error = "2"  # the host's log, until the child gets its own
    held = [os.readlink(f"/proc/{waiting}/fd/{fd}") for fd in os.listdir(f"/proc/{waiting}/fd") if fd != standard_error]
    of_groups = [name for name in held if name.startswith("/sys/fs/cgroup")]
    libffi = [name for name in held if "/libffi.so" in name]  # 3.5 keeps its file open in the place of a /dev/null
    kinds = sorted(name.partition(":")[0] for name in held if name not in of_groups + libffi)

    assert kinds == ["/dev/null"] * (4 - len(libffi)) + ["/proc", "anon_inode", "pipe", "socket"]
    assert len({Path(name).parent.name for name in of_groups}) <= 1, "files of its own control group, where it has one"
    assert "anon_inode:[landlock-ruleset]" in held
    assert used.isdisjoint(own)


@pytest.mark.abuse_case("L7")
@pytest.mark.skipif(os.geteuid() != 0, reason="they are undumpable: only root may read these of their /proc entries")
def test_no_two_children_hold_the_same_descriptor(alone: Template) -> None:
    """A child was forked on request and two ahead: each has five descriptors, and they share no pipe."""
    end_forked_ahead(alone)
    with _asleep(alone) as first, contextlib.ExitStack() as stack:
        wait_forked_ahead(alone)
        second, third = (stack.enter_context(_asleep(alone)) for _ in range(2))
        held = [
            {int(fd): os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
            for pid in (first, second, third)
        ]

    assert [sorted(descriptors) for descriptors in held] == [[0, 1, 2, 3, 4]] * 3
    pipes = [descriptors[fd] for descriptors in held for fd in (1, 3, 4)]
    assert len(set(pipes)) == len(pipes) == 9


def test_children_forked_ahead_draw_different_random_numbers(alone: Template) -> None:
    """`random` was preloaded and is seeded before the wait: no two children draw the same numbers."""
    drawn = []
    for prepare in (wait_forked_ahead, end_forked_ahead, wait_forked_ahead):
        prepare(alone)
        drawn += [_report(alone, "random_numbers")["loot"] for _ in range(3)]

    assert len({tuple(numbers) for numbers in drawn}) == 9


def test_a_program_finds_no_trace_of_the_warm_up_program(alone: Template) -> None:
    """Each child runs a dummy program first; the real program's mount covers its file, and Python forgot its name."""
    wait_forked_ahead(alone)
    ahead = _report(alone, "traces_of", "rehearsal")["loot"]
    end_forked_ahead(alone)
    asked = _report(alone, "traces_of", "rehearsal")["loot"]

    assert ahead == asked == {"files": ["connector"], "names": []}


# Which processes can reach them


@pytest.mark.abuse_case("L7")
def test_no_signal_from_a_jail_reaches_a_child_forked_ahead(alone: Template) -> None:
    """A program signals every number that it may know or guess: only itself is reached. The waiting child runs next."""
    first, beside = wait_forked_ahead(alone)

    answering = _report(alone, "processes_that_answer", [*range(1, 500), first.pid, beside.pid])

    assert answering == {"loot": [1]}, "itself, as pid 1 of its own namespace"
    with _asleep(alone) as pid:
        assert pid == beside.pid


@pytest.mark.abuse_case("J5")
@pytest.mark.parametrize(("name", "number"), [("ptrace", (101, 117)), ("process_vm_readv", (310, 270))])
def test_a_waiting_child_cannot_be_traced_or_read(alone: Template, name: str, number: tuple[int, int]) -> None:
    """The attempt kills the program that makes it, even with the right pid. The waiting child runs next."""
    attach = 16
    _, beside = wait_forked_ahead(alone)

    call = number[0 if os.uname().machine == "x86_64" else 1]
    with trying(alone, "raw", call, attach if name == "ptrace" else beside.pid, beside.pid, 0, 0) as child:
        ending = child.wait(DEADLINE_S)

    assert isinstance(ending, Signalled)
    assert ending.signal == signal.SIGSYS
    with _asleep(alone) as pid:
        assert pid == beside.pid


# How they end


@pytest.mark.parametrize("dead", [[0], [1], [0, 1]], ids=["the first", "the second", "both"])
def test_children_forked_ahead_that_die_are_replaced(alone: Template, dead: list[int]) -> None:
    """They may be killed for lack of memory: every request is still served, and later as many wait as before."""
    waiting = wait_forked_ahead(alone)
    for number in dead:
        waiting[number].kill()
    psutil.wait_procs([waiting[number] for number in dead], timeout=DEADLINE_S)

    with _asleep(alone) as first, _asleep(alone) as second:
        served = [first, second]
    alive = [process.pid for number, process in enumerate(waiting) if number not in dead]
    assert [pid for pid in served if pid in {process.pid for process in waiting}] == alive
    assert set(wait_forked_ahead(alone)).isdisjoint(waiting)


def test_killing_a_child_forked_ahead_as_it_gets_a_request_fails_only_that_request(alone: Template) -> None:
    """1 it is stopped · 2 the request is handed to it · 3 it is killed. SIGKILL is reported once, and the next request works."""
    waiting = wait_forked_ahead(alone)[0]
    waiting.suspend()
    with trying(alone, "facts") as child:
        while not child.is_born:
            assert select.select([alone], [], [], DEADLINE_S)[0]
            alone.pump()
        assert child.pid == waiting.pid
        waiting.kill()
        ending = child.wait(DEADLINE_S)
        assert os.read(child.frames_out, 100) == b"", "nothing of the program ran"

    assert isinstance(ending, Signalled)
    assert ending.signal == signal.SIGKILL
    assert _report(alone, "facts")["loot"]["host"] == "jail"


def test_a_request_for_a_jail_can_be_cancelled_before_its_program_runs(alone: Template) -> None:
    """Each request is closed at once: its child ends, and the next request sees nothing of it."""
    for _ in range(20):
        waiting = wait_forked_ahead(alone)[0]
        with trying(alone, "sleep", 3600):
            pass
        while waiting.is_running():
            assert select.select([alone], [], [], DEADLINE_S)[0], "nothing was heard of it"
            alone.pump()

    assert _report(alone, "facts")["loot"]["host"] == "jail"


def test_waiting_children_end_with_the_template(packed: Callable[..., Template]) -> None:
    """The host closes the template, or another process kills it."""
    for end in (Template.close, lambda template: os.kill(template.pid, signal.SIGKILL)):
        with packed() as template:
            waiting = wait_forked_ahead(template)
            end(template)
            _, left = psutil.wait_procs(waiting, timeout=DEADLINE_S)

        assert left == []


@pytest.mark.abuse_case("L5")
def test_killing_the_host_ends_its_waiting_children(template: Template) -> None:
    """Five hosts, side by side, get SIGKILL, each in another state of the child that is forked ahead."""
    with contextlib.ExitStack() as stack:
        hosts = {
            stage: stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "tests.sandbox.hosts", "that_is_killed_at", stage],
                    cwd=ROOT,
                    stdout=subprocess.PIPE,
                )
            )
            for stage in ("just started", "waiting", "asked", "running", "ended")
        }
        everybody = {}
        for stage, host in hosts.items():
            assert host.stdout is not None
            everybody[stage] = [psutil.Process(pid) for pid in json.loads(host.stdout.readline())]
            host.kill()
        # One wait for all: the process that inherits the stubs may be slow to reap them.
        _, left = psutil.wait_procs([process for some in everybody.values() for process in some], timeout=DEADLINE_S)

    assert len(everybody["waiting"]) == 2 + AHEAD, "stub, template, and those that wait"
    assert left == []


def test_a_failed_fork_ahead_does_not_fail_requests_that_waiting_children_can_serve(template: Template) -> None:
    """Namespaces run out: waiting children still serve requests, later ones fail with the reason for a while."""
    command = [sys.executable, "-m", "tests.sandbox.hosts", "where_namespaces_run_out_and_come_back"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()

    assert json.loads(done.stdout) == {
        "before": ["jail"] * AHEAD,
        "said": [
            "aileron_sandbox: a child forked ahead failed at namespaces: errno 28",
            "aileron_sandbox: a child forked ahead was lost: wait status 18176",
        ],
        "meanwhile": ["confinement failed at namespaces: ENOSPC (No space left on device)"],
        "afterwards": "jail",
        "waiting again": True,
    }
