"""Attacks of a connector on its limits: bombs, full queues, clocks that are set, process ids that are used again."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aileron_sandbox.policy import Policy
from tests.attacks.hostile import HostileHome, hostile_home, kind_of
from tests.attacks.inside import Jail, freely
from tests.attacks.tally import Attack
from tests.support.elf_programs import compiled
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jail

YEAR_S = 365 * 24 * 3600
BOMBS = {
    "threads": "RuntimeError",
    "processes": "EPERM",
    "descriptors": "EMFILE",
    "pipes": "EMFILE",
    "polls": "EMFILE",
    "memory": "ENOMEM",
    "files": "ENOSPC",
    "folders": {"ENOSPC", "ENAMETOOLONG"},
}


@pytest.mark.abuse_case("R1")
@pytest.mark.parametrize("kind", BOMBS)
def test_a_program_that_exhausts_a_resource_stops_at_its_limit(attack: Attack, jail: Jail, kind: str) -> None:
    """The program allocates one resource until it gets an errno; another child of the template is not affected."""
    with jail.staying("hold", 60) as other:
        count, met = jail.loot("bomb", kind, policy=Policy(scratch_files=64))
        attack.denied(f"a bomb of {kind}", BOMBS[kind], met)
        attack.control("another child goes on", None, other.ending)
    assert count < 2000, "a bound, and not the end of the machine"
    attack.control("the next child has all of it again", "jail", jail.loot("facts")["host"])


_AND_CONNECT = (
    "import socket, threading\ns = socket.socket()\n"
    "thread = threading.Thread(target=s.connect, args=(('93.184.216.34', 443),), daemon=True)\nthread.start(); thread.join(); "
)


@pytest.mark.abuse_case("J15")
def test_a_connection_attempt_after_the_result_still_makes_the_run_fail(attack: Attack) -> None:
    """A thread that connects after the result makes the run fail with a denial. A result followed by exit succeeds."""
    with hostile_home() as hostile:
        error = hostile.attack(f"result('said'); {_AND_CONNECT}os._exit(0)").body["error"]
        attack.denied("connecting and leaving", "network:93.184.216.34:443", error["requested"])
        attack.denied("without a record", True, "egress.denied" in _types(hostile, error["audit_id"]))
        attack.control("a result and the end", "said", hostile.attack("result('said'); os._exit(0)").body["result"])


def _types(hostile: HostileHome, audit_id: str) -> list[str]:
    return [event["type"] for event in hostile.home.events(audit_id)]


ENDS = {
    "sleeping for ever": ("stay()", "wall"),
    "a busy loop": ("while True: pass", {"wall", "cpu"}),
    "stopping itself": (
        "import ctypes, signal; libc = ctypes.CDLL(None)\n"
        "for name in ('SIGSTOP', 'SIGTSTP', 'SIGKILL', 'SIGTERM'): libc.syscall(234, 1, 1, int(getattr(signal, name)))\nstay()",
        "wall",
    ),
    "ignoring every signal": (
        "import contextlib, signal\nfor number in range(1, 65):\n"
        "    with contextlib.suppress(OSError, ValueError): signal.signal(number, signal.SIG_IGN)\nstay()",
        "wall",
    ),
    "closing everything": ("os.closerange(0, 4)\nstay()", "wall"),
    "never reading": ("import threading\nthreading.Thread(target=stay).start()\nstay()", "wall"),
}  # fmt: skip


@pytest.mark.abuse_case("L4", "R2")
@pytest.mark.slow
def test_a_connector_that_never_ends_is_ended_by_a_limit_named_in_the_failure(attack: Attack) -> None:
    """Several such connectors run at once with one second each, and honest runs succeed beside them."""
    with hostile_home(timeout_s=1) as hostile, ThreadPoolExecutor(len(ENDS)) as pool:
        under_way = {name: pool.submit(hostile.attack, source) for name, (source, _) in ENDS.items()}
        attack.control("an honest run beside them", "x", hostile.honest())
        for name, future in under_way.items():
            error = future.result().body["error"]
            assert error["class"] == "resource_limit_exceeded", error
            attack.denied(name, ENDS[name][1], error["details"]["limit"])


@pytest.mark.abuse_case("R4")
@pytest.mark.slow
def test_runs_beyond_a_full_queue_are_refused_as_busy(attack: Attack) -> None:
    """All 40 runs that one caller may have are under way and stay; many more are each told `busy`, and none of them runs.
    Later there is room again.

    They stay five times as long as that many responses take while other tests use both processors.
    """
    with hostile_home(timeout_s=15) as hostile, ThreadPoolExecutor(16) as pool:
        home = hostile.home
        begun = [pool.submit(home.run, "hostile", {"source": "stay()"}, wait=0) for _ in range(40)]
        attack.control("as many as it may have", {202}, {future.result().status for future in begun})
        more = [pool.submit(home.run, "hostile", {"source": "result('late')"}, wait=0) for _ in range(200)]
        for future in more:
            answer = future.result()
            attack.denied("one more", (429, "busy"), (answer.status, kind_of(answer)))
        last = begun[0].result().body["run_id"]
        ended = home.must("GET", f"/v1/runs/{last}?wait=20", wait_s=25)
        attack.control("each ends by its own limit", "failed", ended["status"])
        attack.control("and there is room again", True, wait_until(lambda: hostile.honest() == "x", "there is room"))


@pytest.mark.abuse_case("R5")
@pytest.mark.slow
def test_setting_the_system_clock_does_not_extend_a_runs_deadline(
    attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hanging run still ends by its limit after the clock was set back a year. After it was set ahead a year, runs
    still have their time, but a pending approval has expired, because that is wall-clock time.
    """
    library, file = tmp_path / "clock.so", tmp_path / "offset"
    library.write_bytes(compiled("clock", "dynamic", "-shared", "-fPIC"))
    file.write_text("0", encoding="ascii")
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("FAKE_CLOCK", str(file))
    # A jail starts, and half a second passes, where other tests have both processors.
    with hostile_home(timeout_s=5) as hostile:
        monkeypatch.delenv("LD_PRELOAD")
        home = hostile.home
        run_id = home.run("hostile", {"source": "stay()"}, wait=0).body["run_id"]
        file.write_text(str(-YEAR_S), encoding="ascii")
        ended = home.must("GET", f"/v1/runs/{run_id}?wait=20", wait_s=25)
        attack.denied("a year more, by setting it back", "wall", ended["error"]["details"]["limit"])
        stamps = [event["at"] for event in home.events(run_id)]
        attack.control("the daemon's clock was set back", True, max(stamps) > stamps[-1])

        home.add_probe_action("give_back", "text:string", name="asked", gated=True)
        question = home.asked("asked", {"text": "x"})
        file.write_text(str(YEAR_S), encoding="ascii")
        moment = hostile.attack("time.sleep(0.5); result('in time')")
        attack.control("half a second is still half a second", "in time", moment.body.get("result", moment.body))
        attack.denied("deciding a year later", "approval_expired", kind_of(home.decide(question, "approve")))


@pytest.mark.abuse_case("L6")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root chooses the next process id")
def test_killing_an_ended_child_does_not_hit_a_process_that_reused_its_pid(attack: Attack, jail: Jail) -> None:
    """A child ends, another process gets its pid, and the child is killed once more: the other process lives."""
    with jail.running("facts") as child:
        while not child.is_born:
            jail.template.pump()
        number = child.pid
        child.wait(10)
        with _process_with(number) as stranger:
            child.kill()
            child.close()
            attack.denied("killing whoever has the number now", (number, None), (stranger.pid, stranger.poll()))
            stranger.kill()
        attack.control("a kill by number would have hit it", -9, stranger.wait(10))


def _process_with(number: int) -> subprocess.Popen[bytes]:
    """Start a process with exactly this id. Other programs start processes too, so it may take several tries."""
    for _ in range(200):
        try:
            Path("/proc/sys/kernel/ns_last_pid").write_text(str(number - 1), encoding="ascii")
        except OSError as error:
            pytest.skip(f"the next process id cannot be chosen here: {error}")
        process = subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE)
        if process.pid == number:
            return process
        process.kill()
        process.communicate()
    pytest.skip("others were faster, each time")


@pytest.mark.abuse_case("R1")
def test_a_program_in_a_jail_can_use_resources_below_their_limits(attack: Attack, jail: Jail) -> None:
    """Ten threads, some descriptors and some memory all work in the jail; outside, more of each."""
    attack.control("ten threads", 10, jail.loot("threads", 10))
    attack.control("some memory", 8 << 20, jail.loot("allocate", 8))
    attack.control("some descriptors", [20, "ok"], jail.loot("open_many", 20))
    attack.denied("as many descriptors as a free process has", "EMFILE", jail.loot("open_many", 200)[1])
    attack.control("without a jail", [200, "ok"], freely("open_many", 200))
