"""Measure the cost of a whole `POST /v1/actions/{name}/run`: resolve, record, jail, converse, reap, record.

Three questions, each interleaved in one run. The daemon is a real one in a home of its own, warm, asked over its agent socket on
connections that are kept open, by a client that does nothing but send and receive bytes.
- How long does one take? Against a tool call of the official MCP SDK (low-level server, stdio), which has no sandbox, no record
  and no check at all, called through the SDK's own client session. Goals: at most 2.5 times if a spare of its connector waits
  (ADR 48), and at most 4 times if none does.
- How many a second for 32 callers? Against bubblewrap with Python, which has no ledger and no checks, with as many callers as
  are best for it. Goal: at least 5 times.
- What does it cost that decisions are signed? A run, and one that is asked about, approved and carried out, against the same in
  a home without an approver. The command derives the key from its passphrase; that time is not counted.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from anyio.from_thread import start_blocking_portal

from benchmarks import page
from benchmarks.door import TEXT, Door
from benchmarks.measure import Measured, Question, Variant, answer, at_least, at_most, best_of, interleave
from benchmarks.peers import (
    BWRAP_MISSING,
    BWRAP_PYTHON,
    CALLERS,
    DEADLINE_S,
    MCP_MISSING,
    bwrap_echo,
    bwrap_echoes,
)
from tests.support.approver import Approver
from tests.support.home import DaemonHome, daemon_home
from tests.support.probed import lend_probe

ROUNDS = 200
RATE_ROUNDS = 6
RATE_CALLERS, RATE_RUNS, RATE_PEERS = 32, 192, 40
"""Callers, and invocations in one window of each side: about a second."""
RUN, COLD_RUN = "a run, one waits", "a run, none waits"
MCP_CALL = "a tool call of the MCP SDK"
WARM, COLD = "give-back", "give-back-cold"
"""Actions with and without a spare. The second's connector prints while it loads, and such connectors are not started ahead."""
_ECHO = Path(__file__).parent / "echo"
_PRINTS = "import select\nif not select.select([3], [], [], 0)[0]:\n    print('early')\n"
SIGNED, UNSIGNED = "a run, decisions signed", "a run, decisions unsigned"
APPROVED, LET_BY = "approved and carried out, signed", "approved and carried out, unsigned"


def main() -> None:
    """Measure and report."""
    with daemon_home() as home:
        _prepare(home)
        _measure_latency(home)
        _measure_rate(home)
        _measure_signed(home)


def _prepare(home: DaemonHome) -> None:
    """Install two actions of the same small connector, one of which is never started ahead."""
    home.ask("GET", "/healthz")  # makes the home
    home.unlock()
    home.install(_ECHO)
    home.add_probe_action("give_back", "text:string", connector="github://aileron-benchmarks/echo")
    with tempfile.TemporaryDirectory() as folder:
        cold = Path(shutil.copytree(_ECHO, Path(folder, "cold")))
        for file, changes in {
            "manifest.toml": ("benchmarks/echo", "benchmarks/cold"),
            "connector.py": ("\nrun()", f"\n{_PRINTS}run()"),
        }.items():
            (cold / file).write_text((cold / file).read_text(encoding="utf-8").replace(*changes), encoding="utf-8")
        home.install(cold)
    home.add_probe_action("give_back", "text:string", name=COLD, connector="github://aileron-benchmarks/cold")


def _measure_latency(home: DaemonHome) -> None:
    missing = {}
    with contextlib.ExitStack() as peers:
        door, cold = (peers.enter_context(Door(home.path, action)) for action in (WARM, COLD))
        variants: dict[str, Variant] = {RUN: door.run, COLD_RUN: cold.run}
        if MCP_MISSING:
            missing[MCP_CALL] = MCP_MISSING
        else:
            variants[MCP_CALL] = peers.enter_context(_mcp_tool())
        if BWRAP_MISSING:
            missing[BWRAP_PYTHON] = BWRAP_MISSING
        else:
            variants[BWRAP_PYTHON] = bwrap_echo
        taken = interleave(variants, ROUNDS)
    asked = [
        Question("POST …/run of a trivial action, one waits", RUN, MCP_CALL, at_most(2.5)),
        Question("POST …/run of a trivial action, none waits", COLD_RUN, MCP_CALL, at_most(4)),
        Question("POST …/run of a trivial action, none waits", COLD_RUN, BWRAP_PYTHON),
    ]
    answer("run.json", taken, asked, missing=missing)


def _measure_rate(home: DaemonHome) -> None:
    ours = f"runs, {RATE_CALLERS} callers"
    theirs: dict[str, Variant] = {f"{BWRAP_PYTHON}, {callers} callers": _peer_rate(callers) for callers in CALLERS}
    taken = interleave({ours: lambda: _window(home), **({} if BWRAP_MISSING else theirs)}, RATE_ROUNDS, warm_ups=1)
    peer = next(iter(theirs)) if BWRAP_MISSING else best_of(taken, list(theirs), "per s")
    question = Question(f"runs a second, {RATE_CALLERS} callers", ours, peer, at_least(5))
    answer("run-rate.json", taken, [question], "per s", dict.fromkeys(theirs, BWRAP_MISSING or ""))


def _measure_signed(unsigned: DaemonHome) -> None:
    approver = Approver()

    def approve_unsigned() -> None:
        question = unsigned.asked("ask-first", TEXT)
        unsigned.decide(question, "approve")
        assert unsigned.result(question)["status"] == "completed"

    def approve_signed() -> None:
        question = signed.asked("ask-first", TEXT)
        approver.decide(signed, question["approval_id"])
        assert signed.result(question)["status"] == "completed"

    with daemon_home() as signed:
        lend_probe(signed)
        signed.add_probe_action("give_back", "text:string")
        unsigned.install_probe()
        unsigned.bind_probe()
        for home in (signed, unsigned):
            home.add_probe_action("give_back", "text:string", name="ask-first", gated=True)
        approver.appoint(signed)
        unsigned.add_probe_action("give_back", "text:string", name="give-back-probe")
        with Door(signed.path) as ours, Door(unsigned.path, "give-back-probe") as theirs:
            runs = interleave({SIGNED: ours.run, UNSIGNED: theirs.run}, ROUNDS)
        asked = interleave({APPROVED: approve_signed, LET_BY: approve_unsigned}, ROUNDS // 5)
    questions = [
        Question("POST …/run where decisions are signed", SIGNED, UNSIGNED),
        Question("asked, approved, carried out: signed", APPROVED, LET_BY),
    ]
    answer("run-signed.json", runs | asked, questions)


def _peer_rate(callers: int) -> Callable[[], Measured]:
    def window() -> Measured:
        began = time.perf_counter()
        count = bwrap_echoes(callers, RATE_PEERS)
        return Measured([count / (time.perf_counter() - began)])

    return window


def _window(home: DaemonHome) -> Measured:
    """Measure runs a second: each caller asks again as soon as it has its answer.

    The connections are this window's own: during a peer's turn the daemon closes idle ones.
    """
    left = RATE_RUNS
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
        doors = [stack.enter_context(Door(home.path)) for _ in range(RATE_CALLERS)]
        began = time.perf_counter()
        for door in doors:
            selector.register(door, selectors.EVENT_READ, door)
            door.ask()
            left -= 1
        waiting = len(doors)
        while waiting:
            ready = selector.select(DEADLINE_S)
            if not ready:
                raise TimeoutError(f"no run ended for {DEADLINE_S} s")
            for key, _ in ready:
                if key.data.has_answer():
                    waiting -= 1
                    if left:
                        key.data.ask()
                        left -= 1
                        waiting += 1
        return Measured([RATE_RUNS / (time.perf_counter() - began)])


@contextlib.contextmanager
def _mcp_tool() -> Iterator[Callable[[], Measured]]:
    """Yield a tool call of the SDK, timed in the SDK's own event loop, so that reaching that loop is not counted."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(_mcp_session()) as session:

        async def call() -> Measured:
            began = time.perf_counter()
            result = await session.call_tool("give_back", {"text": "x"}, read_timeout_seconds=DEADLINE_S)
            seconds = time.perf_counter() - began
            assert result.structured_content == {"text": "x"}
            return Measured([seconds])

        yield lambda: portal.call(call)


@contextlib.asynccontextmanager
async def _mcp_session() -> Any:
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    server = StdioServerParameters(
        command=sys.executable, args=["-m", "benchmarks.mcp_echo"], cwd=Path(__file__).parents[1], env=dict(os.environ)
    )
    async with stdio_client(server) as (reading, writing), ClientSession(reading, writing) as session:
        await session.initialize()
        await session.list_tools()
        yield session


if __name__ == "__main__":
    main()
    page.write()
