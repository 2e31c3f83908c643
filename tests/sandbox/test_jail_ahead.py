"""The child that is forked ahead of its request: whose it is, what it holds, what it is told, and how it goes."""

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

from aileron_sandbox.ending import Exited, Signalled
from aileron_sandbox.jail import MAX_CHILDREN, Child, Template
from aileron_sandbox.policy import Policy
from tests.sandbox.conftest import memory_file, program
from tests.sandbox.processes import below, status_of, wait_forked_ahead

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
        assert select.select([child.frames_out], [], [], DEADLINE_S)[0], "nothing came"
        while not child.is_born:
            assert select.select([template], [], [], DEADLINE_S)[0]
            template.pump()
        yield child.pid
        child.kill()
        child.wait(DEADLINE_S)


@pytest.fixture
def alone(packed: Callable[..., Template]) -> Iterator[Template]:
    """A template of the test's own."""
    with packed(preload=("json", "zipfile", "random")) as template:
        yield template


# Whose it is


def test_what_waited_is_the_next_child_and_is_used_once(alone: Template) -> None:
    """By its pid; when that one has ended another waits."""
    waiting = wait_forked_ahead(alone)
    with _asleep(alone) as pid:
        assert pid == waiting.pid
    _, left = psutil.wait_procs([waiting], timeout=DEADLINE_S)

    assert left == []
    assert wait_forked_ahead(alone).pid != waiting.pid


def test_none_waits_beside_a_program_that_runs(alone: Template) -> None:
    """A hostile program has no such sibling to reach: while one runs, others come and go and none is left waiting."""
    with _asleep(alone) as pid:
        for _ in range(5):
            assert _report(alone, "facts")["loot"]["host"] == "jail"
            assert [process.pid for process in below(alone)] == [pid]


def test_it_knows_no_policy_until_it_is_told(alone: Template) -> None:
    """Each has the limits of its own request: narrow, wide, narrow, whichever was forked when."""
    narrow, wide = Policy(open_files=16), Policy(open_files=64)
    opened = []
    for policy in (narrow, wide, narrow):
        wait_forked_ahead(alone)
        opened.append(_report(alone, "open_many", 100, policy=policy)["loot"][0])
    with _asleep(alone):
        opened.append(_report(alone, "open_many", 100, policy=wide)["loot"][0])

    assert opened[0] == opened[2] < 16
    assert opened[1] == opened[3] > 48


def test_as_many_at_once_as_a_template_takes(alone: Template) -> None:
    """One was forked ahead, the others are not; each ends with the status that was asked of it, and room is left again."""
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
    waiting = wait_forked_ahead(alone)
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
    """After one child has run: no pipe but the one for failures, no program, one socket, namespaces of its own."""
    with _asleep(alone) as pid:
        used = {name: os.readlink(f"/proc/{pid}/ns/{name}") for name in NAMESPACES}
    waiting = wait_forked_ahead(alone).pid
    standard_error = "2"  # the host's log, until the child gets its own
    held = [os.readlink(f"/proc/{waiting}/fd/{fd}") for fd in os.listdir(f"/proc/{waiting}/fd") if fd != standard_error]
    kinds = sorted(name.partition(":")[0] for name in held)

    assert kinds == ["/dev/null"] * 4 + ["/proc", "anon_inode", "pipe", "socket"]
    assert "anon_inode:[landlock-ruleset]" in held
    assert set(used.values()).isdisjoint(os.readlink(f"/proc/{waiting}/ns/{name}") for name in NAMESPACES)


@pytest.mark.skipif(os.geteuid() != 0, reason="they are undumpable: only root may read these of their /proc entries")
def test_no_two_children_hold_the_same_descriptor(alone: Template) -> None:
    """One that was forked ahead and two that were not, side by side: five descriptors each, and no pipe in common."""
    wait_forked_ahead(alone)
    with _asleep(alone) as first, _asleep(alone) as second, _asleep(alone) as third:
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
    for _ in range(3):
        wait_forked_ahead(alone)
        drawn.append(_report(alone, "random_numbers")["loot"])
        drawn.append(_report(alone, "random_numbers")["loot"])

    assert len({tuple(numbers) for numbers in drawn}) == 6


def test_a_program_finds_nothing_of_the_rehearsal(alone: Template) -> None:
    """Neither its file nor its name: the program's own mount covers the one, the import system has forgotten the other."""
    wait_forked_ahead(alone)
    ahead = _report(alone, "traces_of", "rehearsal")["loot"]
    with _asleep(alone):
        asked = _report(alone, "traces_of", "rehearsal")["loot"]

    assert ahead == asked == {"files": ["connector"], "names": []}


# How it goes


def test_one_that_died_waiting_is_not_missed(alone: Template) -> None:
    """Killed by somebody, say for want of memory: the next request gets a child of its own, and another waits after that."""
    waiting = wait_forked_ahead(alone)
    waiting.kill()
    psutil.wait_procs([waiting], timeout=DEADLINE_S)

    assert _report(alone, "facts")["loot"]["host"] == "jail"
    assert wait_forked_ahead(alone).pid != waiting.pid


def test_one_that_dies_with_a_request_in_hand_is_told_as_that_childs_end(alone: Template) -> None:
    """1 it is stopped · 2 the request is handed to it · 3 it is killed. SIGKILL is told once, and the next request works."""
    waiting = wait_forked_ahead(alone)
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
    assert ending.signal is signal.SIGKILL
    assert _report(alone, "facts")["loot"]["host"] == "jail"


def test_a_request_can_be_withdrawn_before_it_is_taken_up(alone: Template) -> None:
    """Closed at once, again and again: whoever it had been handed to is gone, and nothing is kept for the next."""
    for _ in range(20):
        waiting = wait_forked_ahead(alone)
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
            _, left = psutil.wait_procs([waiting], timeout=DEADLINE_S)

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

    assert [len(everybody[stage]) for stage in ("waiting", "running")] == [3, 3], "stub, template, child"
    assert left == []


def test_one_that_could_not_be_forked_ahead_fails_no_request_by_itself(template: Template) -> None:
    """Namespaces run out: what waits already still serves, the next is told the reason, and with the reason it is over."""
    command = [sys.executable, "-m", "tests.sandbox.hosts", "where_namespaces_run_out_and_come_back"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()

    assert json.loads(done.stdout) == {
        "before": "jail",
        "said": [
            "aileron_sandbox: a child forked ahead failed at namespaces: errno 28",
            "aileron_sandbox: a child forked ahead was lost: wait status 18176",
        ],
        "meanwhile": "confinement failed at namespaces: ENOSPC (No space left on device)",
        "afterwards": "jail",
        "waiting again": True,
    }
