"""Kill -9 of the daemon while a service carries out an effect: nobody is told that nothing happened, nothing repeats it unasked.

The effect has happened, its response has not arrived, and the waiting caller loses the daemon. The caller is told that the
outcome is unknown, and where to look; the same request is refused with the run that may have done it, until the caller names
that run.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

import psutil
import pytest

from tests.cli.command import Command, Said
from tests.support.home import DaemonHome
from tests.support.probed import probed_home
from tests.support.relay import Agent
from tests.support.upstream_http import CountingServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jail

_RUN = re.compile(r"run-[0-9T]{15}-[0-9a-f]{20}")


class World(NamedTuple):
    """A home, the effects of its actions outside, and the command."""

    home: DaemonHome
    upstream: CountingServer
    aileron: Command

    def killed(self, process: subprocess.Popen[str], *, in_second_request: bool = False) -> Said:
        """Kill the daemon once one more effect has happened, in this request of the command or in its next one. Return
        what the command then says.
        """
        before = self.upstream.effects
        self.wait_effects(before + 1)
        if in_second_request:
            first = _sockets(process.pid)
            wait_until(lambda: _waits_beyond(process.pid, first), "the command asks again")
        self.home.kill()
        self.upstream.keeps_waiting = False
        out, err = process.communicate(timeout=30)
        return Said(process.returncode, out, err)

    def wait_effects(self, count: int) -> None:
        """Wait until the service has done `count` effects."""
        wait_until(lambda: self.upstream.effects >= count, f"{count} effects", seen=lambda: self.upstream.effects)

    def ready(self) -> None:
        """Start the daemon, open its vault, and withhold the response to the next effect."""
        self.home.unlock()
        self.upstream.keeps_waiting = True


def _sockets(pid: int) -> set[str]:
    """Return the sockets of a process; a command has one for each request."""
    folder = f"/proc/{pid}/fd"
    found: set[str] = set()
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(f"{folder}/{name}"))
    return {target for target in found if target.startswith("socket:")}


def _waits_beyond(pid: int, earlier: set[str]) -> bool:
    """Return whether the process sleeps and has a socket that is not in `earlier`: it has sent its next request."""
    return bool(_sockets(pid) - earlier) and psutil.Process(pid).status() == psutil.STATUS_SLEEPING


@pytest.fixture
def world() -> Iterator[World]:
    """Provide a home with `effect`, which runs at once, and `asked-first`, which asks; neither may be repeated."""
    with CountingServer() as upstream, probed_home(upstream.port) as home:
        home.add_probe_action("effect")
        home.add_probe_action("effect", name="asked-first", gated=True)
        yield World(home, upstream, Command(home.path))


def test_repeating_an_interrupted_command_does_not_repeat_its_run(world: World) -> None:
    """The command exits with 8 and says how to look. The same request is refused until it names the unknown run."""
    world.ready()
    with world.aileron.start("run", "effect") as process:
        said = world.killed(process)

    assert (said.code, said.out) == (8, "")
    assert "so it is unknown whether this was done" in said.err
    assert "fix: aileron audit list --action effect" in said.err
    key = said.err.partition("--idempotency-key ")[2].split()[0]
    (lost,) = {
        found[0]
        for line in world.aileron("audit", "list", "--action", "effect").out.splitlines()
        if "unknown" in line and (found := _RUN.search(line))
    }

    world.home.unlock()
    for repeated in ((), ("--idempotency-key", key), ("--idempotency-key", "another"), ("--again", "run-none")):
        said = world.aileron("run", "effect", *repeated)
        assert (said.code, said.out, world.upstream.effects) == (8, "", 1), said
        assert f"not run again: {lost} made the same request" in said.err
        assert f"look: aileron audit show {lost}" in said.err
    refused = world.home.agent.request("POST", "/v1/actions/effect/run", {"args": {}})
    assert (refused.status, refused.body["error"]["class"]) == (500, "outcome_unknown")
    assert refused.body["error"]["details"]["run_id"] == lost
    assert [event["type"] for event in world.home.events(refused.body["error"]["audit_id"])] == ["run.refused"]

    with Agent(world.home.path) as agent:
        agent.initialize()
        told = agent.ask("tools/call", {"name": "effect", "arguments": {}})["result"]
    assert (told["isError"], told["structuredContent"]["do_not_retry"]) == (True, True)
    assert told["structuredContent"]["error"]["details"] == {"run_id": lost}
    assert (lost in told["structuredContent"]["message"], world.upstream.effects) == (True, 1)

    assert world.aileron("run", "effect", "--again", lost).code == 0
    assert world.upstream.effects == 2
    said = world.aileron("run", "effect", "--again", lost)
    assert (said.code, world.upstream.effects) == (2, 2)
    assert world.aileron("run", "effect").code == 0, "and without it as ever"


def test_an_interrupted_command_names_the_run_it_waited_for(world: World) -> None:
    """The daemon is killed after its first response said that the run goes on: exit code 8, and the command that shows
    the run.
    """
    world.ready()
    with world.aileron.start("run", "effect") as process:
        said = world.killed(process, in_second_request=True)

    assert (said.code, said.out) == (8, "")
    (lost,) = set(_RUN.findall(said.err))
    assert f"look: aileron audit show {lost}" in said.err
    assert world.home.must("GET", f"/v1/runs/{lost}")["status"] == "unknown"


def test_approving_a_run_that_is_then_interrupted_says_where_to_look(world: World) -> None:
    """The command that approved exits with 8, and the question says that the outcome is unknown."""
    world.home.unlock()
    question = world.home.asked("asked-first")
    world.ready()
    with world.aileron.start("approve", question["approval_id"], "--yes") as process:
        said = world.killed(process)

    assert said.code == 8, said
    assert f"fix: aileron approval show {question['approval_id']}" in said.err
    assert world.home.result(question)["status"] == "unknown"
    world.home.unlock()
    again = world.aileron("run", "asked-first", "--json")
    assert (again.code, world.upstream.effects) == (8, 1)
    assert again.json["error"]["details"]["run_id"] == question["audit_id"]
    assert world.home.must("GET", "/v1/action-approvals")["approvals"] == [], "and no person is asked"


def test_a_command_that_reaches_no_daemon_exits_with_code_69_and_causes_no_effect(world: World) -> None:
    """This is the control: no daemon can be started, so the exit code is 69 and not 8. Later the run works, once."""
    world.home.stop()
    settings = world.home.path / "config.toml"
    written = settings.read_text()
    settings.write_text("[egress\n")

    world.aileron("run", "effect").exits(69)
    settings.write_text(written)
    world.home.unlock()
    assert world.aileron("run", "effect").code == 0
    assert world.upstream.effects == 1
