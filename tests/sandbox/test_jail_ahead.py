"""Children that are forked ahead of their requests: whose they are, what they hold, who can reach them, how they go."""

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
from tests.sandbox.conftest import memory_file, program
from tests.sandbox.processes import AHEAD, below, end_forked_ahead, status_of, wait_forked_ahead
from tests.support.waiting import unread, wait_ended, wait_until

pytestmark = pytest.mark.jail
ROOT = Path(__file__).resolve().parents[2]
NAMESPACES = ("user", "mnt", "pid", "ipc", "uts", "cgroup")
DEADLINE_S = 10.0


@contextlib.contextmanager
def _child(template: Template, name: str, *arguments: object, policy: Policy | None = None) -> Iterator[Child]:
    fd = memory_file(program(name, *arguments))
    try:
        with Child.open(template, fd, policy or Policy()) as child:
            yield child
    finally:
        os.close(fd)


def _report(template: Template, name: str, *arguments: object, policy: Policy | None = None) -> Any:
    with _child(template, name, *arguments, policy=policy) as child:
        child.wait(DEADLINE_S)
        return json.loads(os.read(child.frames_out, 1 << 16))


@contextlib.contextmanager
def _asleep(template: Template) -> Iterator[int]:
    """A child that has come to its own code, by its pid as the host counts."""
    with _child(template, "sleep_with_scratch", 3600) as child:
        _wait_for_word(template, child)
        yield child.pid
        child.kill()
        child.wait(DEADLINE_S)


def _kept(stack: contextlib.ExitStack, namespace: str) -> str:
    """The name of a namespace that stays as long as the stack: the number of one that has gone is given to another."""
    fd = os.open(namespace, os.O_RDONLY)
    stack.callback(os.close, fd)
    return os.readlink(f"/proc/self/fd/{fd}")


@pytest.fixture
def alone(packed: Callable[..., Template]) -> Iterator[Template]:
    """A template of the test's own."""
    with packed(preload=("json", "zipfile", "random")) as template:
        yield template


def _wait_for_word(template: Template, child: Child) -> None:
    """Wait until it has said something, and it is known which process it is."""
    assert select.select([child.frames_out], [], [], DEADLINE_S)[0], "nothing came"
    while not child.is_born:
        assert select.select([template], [], [], DEADLINE_S)[0]
        template.pump()


# Whose it is


def test_those_that_wait_are_the_next_children_and_are_used_once(alone: Template) -> None:
    """By their pids, oldest first; when they have ended others wait."""
    waiting = wait_forked_ahead(alone)
    with _asleep(alone) as first, _asleep(alone) as second:
        assert [first, second] == [process.pid for process in waiting]
    _, left = psutil.wait_procs(waiting, timeout=DEADLINE_S)

    assert left == []
    assert set(wait_forked_ahead(alone)).isdisjoint(waiting)


@pytest.mark.parametrize("how", ["looks", "connects"])
def test_one_that_asks_while_others_end_is_answered(alone: Template, how: str) -> None:
    """The template hears of all of them at once. What it opens to answer the one has the number of what the others had."""
    with _asleep(alone) as one, _asleep(alone) as other, _child(alone, "ask_when_told", how) as asking:
        _wait_for_word(alone, asking)
        wait_forked_ahead(alone)
        first = psutil.Process(alone.pid).children()[0]
        first.suspend()
        try:
            for pid in (one, other):
                os.kill(pid, signal.SIGKILL)
                wait_ended(pid)
            os.write(asking.frames_in, b"x")
            wait_until(lambda: not unread(asking.frames_in) and status_of(asking.pid)["State"][0] == "S", "it asks")
        finally:
            first.resume()
        ending = asking.wait(DEADLINE_S)

    assert isinstance(ending, Exited if how == "looks" else NetworkAttempt), ending


def test_no_more_wait_than_there_should(alone: Template) -> None:
    """However many came and went, and whoever still runs: the reserve is filled, and that is all."""
    with _asleep(alone) as one, _asleep(alone) as other:
        for _ in range(10):
            assert _report(alone, "facts")["loot"]["host"] == "jail"
        waiting = {process.pid for process in wait_forked_ahead(alone)}

        assert {process.pid for process in below(alone)} == {one, other} | waiting
    assert len(waiting) == AHEAD


def test_it_knows_no_policy_until_it_is_told(alone: Template) -> None:
    """Each has the limits of its own request: narrow, wide, narrow, whichever was forked when."""
    narrow, wide = Policy(open_files=16), Policy(open_files=64)
    opened = []
    for policy in (narrow, wide, narrow):
        wait_forked_ahead(alone)
        opened.append(_report(alone, "open_many", 100, policy=policy)["loot"][0])
    end_forked_ahead(alone)
    opened.append(_report(alone, "open_many", 100, policy=wide)["loot"][0])

    assert opened[0] == opened[2] < 16
    assert opened[1] == opened[3] > 48


def test_as_many_at_once_as_a_template_takes(alone: Template) -> None:
    """Two were forked ahead, the others are not; each ends with the status that was asked of it, and room is left again."""
    wait_forked_ahead(alone)
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(_child(alone, "leave", number)) for number in range(MAX_CHILDREN)]
        with pytest.raises(BlockingIOError):
            stack.enter_context(_child(alone, "leave", 0))
        endings = [child.wait(DEADLINE_S * 2) for child in children]

    assert [ending.code for ending in endings if isinstance(ending, Exited)] == list(range(MAX_CHILDREN))
    assert _report(alone, "facts")["loot"]["host"] == "jail"


# What it holds


def test_what_waits_can_gain_nothing_and_be_attached_to_by_nobody(alone: Template) -> None:
    """Already: an id that is not root's, an empty bounding set, no new privileges. Undumpable: its files in /proc are root's."""
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
def test_what_waits_holds_nothing_of_anybodys_invocation(alone: Template) -> None:
    """The last of them, after a child has run: no pipe but the one for failures, no program, one socket, its own namespaces."""
    with contextlib.ExitStack() as held_open:
        with _asleep(alone) as pid:
            used = {_kept(held_open, f"/proc/{pid}/ns/{name}") for name in NAMESPACES}
        waiting = wait_forked_ahead(alone)[-1].pid
        own = {os.readlink(f"/proc/{waiting}/ns/{name}") for name in NAMESPACES}
    standard_error = "2"  # the host's log, until the child gets its own
    held = [os.readlink(f"/proc/{waiting}/fd/{fd}") for fd in os.listdir(f"/proc/{waiting}/fd") if fd != standard_error]
    of_groups = [name for name in held if name.startswith("/sys/fs/cgroup")]
    libffi = [
        name for name in held if "/libffi.so" in name
    ]  # 3.5 keeps itself open, in a place that /dev/null has otherwise
    kinds = sorted(name.partition(":")[0] for name in held if name not in of_groups + libffi)

    assert kinds == ["/dev/null"] * (4 - len(libffi)) + ["/proc", "anon_inode", "pipe", "socket"]
    assert len({Path(name).parent.name for name in of_groups}) <= 1, "files of its own control group, where it has one"
    assert "anon_inode:[landlock-ruleset]" in held
    assert used.isdisjoint(own)


@pytest.mark.skipif(os.geteuid() != 0, reason="they are undumpable: only root may read these of their /proc entries")
def test_no_two_children_hold_the_same_descriptor(alone: Template) -> None:
    """One that was forked when it was asked for and two that were ahead, side by side: five each, and no pipe in common."""
    end_forked_ahead(alone)
    with _asleep(alone) as first, contextlib.ExitStack() as stack:
        wait_forked_ahead(alone)
        second, third = (stack.enter_context(_asleep(alone)) for _ in range(2))
        held = [
            {int(fd): os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
            for pid in (first, second, third)
        ]

    assert [sorted(one) for one in held] == [[0, 1, 2, 3, 4]] * 3
    pipes = [one[fd] for one in held for fd in (1, 3, 4)]
    assert len(set(pipes)) == len(pipes) == 9


def test_numbers_drawn_ahead_are_its_own(alone: Template) -> None:
    """`random` was preloaded, and is seeded before the wait: no two children draw the same, nor bytes from the kernel."""
    drawn = []
    for prepare in (wait_forked_ahead, end_forked_ahead, wait_forked_ahead):
        prepare(alone)
        drawn += [_report(alone, "random_numbers")["loot"] for _ in range(3)]

    assert len({tuple(numbers) for numbers in drawn}) == 9


def test_a_program_finds_nothing_of_the_rehearsal(alone: Template) -> None:
    """Neither its file nor its name: the program's own mount covers the one, the import system has forgotten the other."""
    wait_forked_ahead(alone)
    ahead = _report(alone, "traces_of", "rehearsal")["loot"]
    end_forked_ahead(alone)
    asked = _report(alone, "traces_of", "rehearsal")["loot"]

    assert ahead == asked == {"files": ["connector"], "names": []}


# Who can reach them


def test_no_signal_reaches_what_waits(alone: Template) -> None:
    """A program asks every number it may know or guess: only itself answers. What waited beside it is the next child."""
    first, beside = wait_forked_ahead(alone)

    answering = _report(alone, "processes_that_answer", [*range(1, 500), first.pid, beside.pid])

    assert answering == {"loot": [1]}, "itself, as pid 1 of its own namespace"
    with _asleep(alone) as pid:
        assert pid == beside.pid


@pytest.mark.parametrize(("name", "number"), [("ptrace", (101, 117)), ("process_vm_readv", (310, 270))])
def test_what_waits_cannot_be_traced_nor_read(alone: Template, name: str, number: tuple[int, int]) -> None:
    """By its number: the attempt is the end of the program that makes it. What waited beside it is the next child."""
    attach = 16
    _, beside = wait_forked_ahead(alone)

    call = number[0 if os.uname().machine == "x86_64" else 1]
    with _child(alone, "raw", call, attach if name == "ptrace" else beside.pid, beside.pid, 0, 0) as child:
        ending = child.wait(DEADLINE_S)

    assert isinstance(ending, Signalled)
    assert ending.signal == signal.SIGSYS
    with _asleep(alone) as pid:
        assert pid == beside.pid


# How it goes


@pytest.mark.parametrize("dead", [[0], [1], [0, 1]], ids=["the first", "the second", "both"])
def test_those_that_died_waiting_are_not_missed(alone: Template, dead: list[int]) -> None:
    """Killed by somebody, say for want of memory: every request is served, and after that as many wait as before."""
    waiting = wait_forked_ahead(alone)
    for number in dead:
        waiting[number].kill()
    psutil.wait_procs([waiting[number] for number in dead], timeout=DEADLINE_S)

    with _asleep(alone) as first, _asleep(alone) as second:
        served = [first, second]
    alive = [process.pid for number, process in enumerate(waiting) if number not in dead]
    assert [pid for pid in served if pid in {process.pid for process in waiting}] == alive
    assert set(wait_forked_ahead(alone)).isdisjoint(waiting)


def test_one_that_dies_with_a_request_in_hand_is_told_as_that_childs_end(alone: Template) -> None:
    """1 it is stopped · 2 the request is handed to it · 3 it is killed. SIGKILL is told once, and the next request works."""
    waiting = wait_forked_ahead(alone)[0]
    waiting.suspend()
    with _child(alone, "facts") as child:
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


def test_a_request_can_be_withdrawn_before_it_is_taken_up(alone: Template) -> None:
    """Closed at once, again and again: whoever it had been handed to is gone, and nothing is kept for the next."""
    for _ in range(20):
        waiting = wait_forked_ahead(alone)[0]
        with _child(alone, "sleep", 3600):
            pass
        while waiting.is_running():
            assert select.select([alone], [], [], DEADLINE_S)[0], "nothing was heard of it"
            alone.pump()

    assert _report(alone, "facts")["loot"]["host"] == "jail"


def test_what_waits_ends_with_the_template(packed: Callable[..., Template]) -> None:
    """When the host closes it, and when somebody kills it."""
    for end in (Template.close, lambda template: os.kill(template.pid, signal.SIGKILL)):
        with packed() as template:
            waiting = wait_forked_ahead(template)
            end(template)
            _, left = psutil.wait_procs(waiting, timeout=DEADLINE_S)

        assert left == []


def test_a_host_that_is_killed_takes_along_what_waits(template: Template) -> None:
    """SIGKILL to the host in each state of the child that is forked ahead: five hosts, side by side."""
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
        # One wait for all: whoever inherits the stubs may take its time to reap them.
        _, left = psutil.wait_procs([process for some in everybody.values() for process in some], timeout=DEADLINE_S)

    assert len(everybody["waiting"]) == 2 + AHEAD, "stub, template, and those that wait"
    assert left == []


def test_one_that_could_not_be_forked_ahead_fails_no_request_by_itself(template: Template) -> None:
    """Namespaces run out: what waits already still serves, each after it is told the reason, and with the reason it is over."""
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
