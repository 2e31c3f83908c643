"""Measure how long an agent waits for `aileron-mcp`: from its start to its first answer, and for a tool call through it.

- How long until it is ready? From starting the process to the first answer, with the daemon up, in both eras of the protocol:
  `server/discover` and `initialize`. Against `python -c pass`, from start to end. Goal: at most 1.6 times.
- How long does a tool call take? Against the official SDK's own server as a process of the agent (stdio, low level; it returns
  its argument, and has no sandbox, no record and no checks). One call only reads (`list_pending`), which shows the cost of
  protocol, relay and daemon; the other runs an action in a jail. Both go through the same bare client. No goals.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import page
from benchmarks.measure import Measured, Question, Variant, answer, at_most, interleave
from benchmarks.peers import MCP_MISSING
from tests.support.home import DaemonHome, daemon_home
from tests.support.probed import lend_probe
from tests.support.relay import INITIALIZE, Agent, envelope

STARTS = 60
CALLS = 300
DISCOVER, HANDSHAKE, PYTHON = "aileron-mcp, server/discover", "aileron-mcp, initialize", "python -c pass"
LOOK, RUN, SDK = "list_pending through the relay", "an action through the relay", "a tool call of the MCP SDK, stdio"
GIVE_BACK = {"name": "give_back", "arguments": {"text": "x"}}


def main() -> None:
    """Measure and report."""
    command = shutil.which("aileron-mcp", path=str(Path(sys.executable).parent))
    if command is None:
        raise FileNotFoundError("no `aileron-mcp` beside this interpreter: pip install -e .")
    with daemon_home() as home:
        lend_probe(home)
        home.add_probe_action("give_back", "text:string")
        _measure_start(home, command)
        _measure_calls(home, command)


def _measure_start(home: DaemonHome, command: str) -> None:
    variants: dict[str, Variant] = {
        DISCOVER: _started(home, command, "server/discover", envelope()),
        HANDSHAKE: _started(home, command, "initialize", INITIALIZE),
        PYTHON: lambda: subprocess.run([sys.executable, "-c", "pass"], check=True, stdin=subprocess.DEVNULL),
    }
    asked = [
        Question("`aileron-mcp`: start to first answer, 2026 protocol", DISCOVER, PYTHON, at_most(1.6)),
        Question("`aileron-mcp`: start to first answer, 2025 protocol", HANDSHAKE, PYTHON, at_most(1.6)),
    ]
    answer("relay-start.json", interleave(variants, STARTS), asked)


def _started(home: DaemonHome, command: str, method: str, params: dict[str, Any]) -> Callable[[], Measured]:
    """Return a variant that measures from the start to the first answer; its end is not measured, as no agent waits for it."""

    def once() -> Measured:
        began = time.perf_counter()
        with Agent(home.path, program=[command]) as agent:
            assert "result" in agent.ask(method, params)
            taken = time.perf_counter() - began
        return Measured([taken])

    return once


def _measure_calls(home: DaemonHome, command: str) -> None:
    missing = {SDK: MCP_MISSING} if MCP_MISSING else {}
    with contextlib.ExitStack() as running:
        relayed = running.enter_context(_client(home, [command]))
        variants: dict[str, Variant] = {
            LOOK: lambda: relayed({"name": "list_pending", "arguments": {}}),
            RUN: lambda: relayed(GIVE_BACK),
        }
        if not MCP_MISSING:
            echo = running.enter_context(_client(home, [sys.executable, "-m", "benchmarks.mcp_echo"]))
            variants[SDK] = lambda: echo(GIVE_BACK)
        taken = interleave(variants, CALLS)
    asked = [
        Question("tools/call through `aileron-mcp`: one that only looks", LOOK, SDK),
        Question("tools/call through `aileron-mcp`: an action, in its jail", RUN, SDK),
    ]
    answer("relay-call.json", taken, asked, missing=missing)


@contextlib.contextmanager
def _client(home: DaemonHome, program: list[str]) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Yield a function that calls a tool of a server on pipes; the client writes a line and reads one."""
    before = os.getcwd()
    os.chdir(Path(__file__).parents[1])  # where `benchmarks` is
    try:
        agent = Agent(home.path, program=program)
    finally:
        os.chdir(before)
    with agent:
        agent.initialize()

        def call(params: dict[str, Any]) -> None:
            found = agent.ask("tools/call", params)
            assert not found["result"].get("isError"), found

        yield call


if __name__ == "__main__":
    main()
    page.write()
