"""Measure the cost of size: many callers, installed actions, ledger rows and waiting questions, each against few.

Four questions, each interleaved in one run, with a real daemon for each size:
- With 8, 64 and 256 callers: how long does one wait, and how many runs a second are there? At most 64 runs are in progress; a
  caller that is told `busy` asks again after a pause. Goals, against one caller: for N callers at most N times as long, and no
  fewer runs a second.
- With 1,000 actions, the most that can be installed, against 10: a run and its processor time, the list, an agent's tools, and
  the daemon's start. Goals: 1.5 times for a run; 100 times, by as much as there are more, for a list; 2 times for a start.
- With 1,000,000 rows in the ledger against none: a run, the daemon's start, and what people read. Goals: 1.5 times.
- With 100 waiting questions: a run, against none, and their list, against 10 of them. Goals: 1.5 times, and 10 times.

The sizes between are in the curves of the page. The homes lie in `AILERON_BENCH_DIR` (/var/tmp) and are removed at the end.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Final

from aileron.client import Client
from benchmarks import page
from benchmarks.door import Door
from benchmarks.loads import Crowd, ToolList, echo_home, processor_s, reads, with_actions
from benchmarks.measure import Goal, Measured, Question, Variant, answer, at_least, at_most, interleave
from tests.support.home import DaemonHome

CALLERS: Final = (1, 8, 64, 256)
ACTIONS: Final = (10, 100, 1000)
ROWS: Final = (0, 10_000, 100_000, 1_000_000)
WAITING: Final = (0, 10, 100)
WINDOWS, LEAST_RUNS, RUNS_EACH = 3, 64, 2
"""Settings for the callers: rounds, least runs in one window, and runs in one window for each caller."""
ROUNDS, STARTS, COUNTED_RUNS = 30, 5, 5
PAUSE_S: Final = 0.03
"""Pause before each measurement: a daemon that has just run something starts the next jail, on processors that all share."""
_GROWS: Final = 1.5


def main() -> None:
    """Measure and report."""
    _measure_callers()
    _measure_actions()
    _measure_rows()
    _measure_waiting()


def _measure_callers() -> None:
    with echo_home() as home:
        crowds = {_callers(count): Crowd(home, count) for count in CALLERS}
        Crowd(home, CALLERS[1]).window(LEAST_RUNS)  # the daemon is warm
        windows: dict[str, Variant] = {
            name: lambda crowd=crowd, name=name: crowd.window(_runs(name))  # type: ignore[misc]
            for name, crowd in crowds.items()
        }
        taken = interleave(windows, WINDOWS, warm_ups=0)
    alone = _callers(1)
    answer(
        "load-callers.json",
        {name: crowd.latencies for name, crowd in crowds.items()},
        [Question(f"a run, {_callers(count)}", _callers(count), alone, at_most(count)) for count in CALLERS[1:]],
    )
    asked = [
        Question(f"runs a second, {_callers(count)}", _callers(count), alone, at_least(1)) for count in CALLERS[1:]
    ]
    answer("load-rate.json", taken, asked, "per s")
    answer("load-refused.json", {name: crowd.refused for name, crowd in crowds.items()}, [], "count")


def _callers(count: int) -> str:
    return f"{count} caller{'s' * (count > 1)}"


def _runs(name: str) -> int:
    return max(LEAST_RUNS, int(name.split()[0]) * RUNS_EACH)


def _measure_actions() -> None:
    with contextlib.ExitStack() as stack:
        homes = {count: stack.enter_context(echo_home()) for count in ACTIONS}
        for count, home in homes.items():
            with_actions(home, count)
        measures = {
            "a run": _run,
            "a run, processor time of the daemon": _run_processor,
            "GET /v1/actions": lambda stack, home: _read(stack, home, "/v1/actions"),
            "all pages of tools/list": _tools,
        }
        taken = _measured(stack, homes, measures)
        taken |= _starts(homes)
    goals = {
        "a run": at_most(_GROWS),
        "a run, processor time of the daemon": at_most(_GROWS),
        "GET /v1/actions": at_most(ACTIONS[-1] / ACTIONS[0]),
        "all pages of tools/list": at_most(ACTIONS[-1] / ACTIONS[0]),
        START: at_most(2),
        START_PROCESSOR: at_most(2),
    }
    answer("load-actions.json", taken, _asked(goals, "installed actions", ACTIONS[-1], ACTIONS[0]))


def _measure_rows() -> None:
    with contextlib.ExitStack() as stack:
        homes = {count: stack.enter_context(echo_home(rows=count)) for count in ROWS}
        measures = {
            "a run": _run,
            "a run, processor time of the daemon": _run_processor,
            "GET /v1/sessions": lambda stack, home: _read(stack, home, "/v1/sessions"),
            "GET /v1/audit": lambda stack, home: _read(stack, home, "/v1/audit"),
        }
        taken = _measured(stack, homes, measures)
        taken |= _starts(homes)
    goals = dict.fromkeys((*measures, START, START_PROCESSOR), at_most(_GROWS))
    # An empty list is none: what is read is held against the first size at which the answer is full.
    lists = {name: goals.pop(name) for name in ("GET /v1/sessions", "GET /v1/audit")}
    asked = _asked(goals, "rows", ROWS[-1], ROWS[0]) + _asked(lists, "rows", ROWS[-1], ROWS[2])
    answer("load-rows.json", taken, asked)


def _measure_waiting() -> None:
    listing = "GET /v1/action-approvals"
    with contextlib.ExitStack() as stack:
        homes = {count: stack.enter_context(echo_home(waiting=count)) for count in WAITING}
        measures = {
            "a run": _run,
            "a run, processor time of the daemon": _run_processor,
            listing: lambda stack, home: _read(stack, home, "/v1/action-approvals"),
        }
        taken = _measured(stack, homes, measures)
    goals = dict.fromkeys(("a run", "a run, processor time of the daemon"), at_most(_GROWS))
    asked = _asked(goals, "waiting questions", WAITING[-1], WAITING[0])
    asked += _asked({listing: at_most(WAITING[-1] / WAITING[1])}, "waiting questions", WAITING[-1], WAITING[1])
    answer("load-waiting.json", taken, asked)


# Measurements of each home

START, START_PROCESSOR = "the daemon's start", "the daemon's start, processor time"
_Measure = Callable[[contextlib.ExitStack, DaemonHome], Variant]


def _measured(
    stack: contextlib.ExitStack, homes: Mapping[int, DaemonHome], measures: Mapping[str, _Measure]
) -> dict[str, list[float]]:
    variants = {
        _sized(name, count): measure(stack, home) for name, measure in measures.items() for count, home in homes.items()
    }
    return interleave(variants, ROUNDS, warm_ups=3, before=dict.fromkeys(variants, lambda: time.sleep(PAUSE_S)))


def _sized(name: str, count: int) -> str:
    return f"{name}, {count:,}"


def _asked(goals: Mapping[str, Goal], things: str, much: int, little: int) -> list[Question]:
    return [
        Question(f"{name}, with {much:,} {things}", _sized(name, much), _sized(name, little), goal)
        for name, goal in goals.items()
    ]


def _run(stack: contextlib.ExitStack, home: DaemonHome) -> Variant:
    return stack.enter_context(Door(home.path)).run


def _run_processor(stack: contextlib.ExitStack, home: DaemonHome) -> Variant:
    """Return a variant that measures the daemon's processor time for one run, as the mean of a few; the jail's is not counted."""
    door, pid = stack.enter_context(Door(home.path)), home.daemon_pid
    assert pid is not None

    def few() -> Measured:
        before = processor_s(pid)
        for _ in range(COUNTED_RUNS):
            door.run()
        return Measured([(processor_s(pid) - before) / COUNTED_RUNS])

    return few


def _read(stack: contextlib.ExitStack, home: DaemonHome, path: str) -> Variant:
    return stack.enter_context(reads(home, path)).run


def _tools(stack: contextlib.ExitStack, home: DaemonHome) -> Variant:
    return stack.enter_context(ToolList(home)).walk


def _starts(homes: Mapping[int, DaemonHome]) -> dict[str, list[float]]:
    """Measure the daemon's own start command until `ready`, and the processor time that the daemon has used by then."""
    used: dict[str, list[float]] = {_sized(START_PROCESSOR, count): [] for count in homes}

    def start(count: int, home: DaemonHome) -> Variant:
        def once() -> Measured:
            began = time.perf_counter()
            Client(home.path).start()
            seconds = time.perf_counter() - began
            assert home.daemon_pid is not None
            used[_sized(START_PROCESSOR, count)].append(processor_s(home.daemon_pid))
            return Measured([seconds])

        return once

    variants = {_sized(START, count): start(count, home) for count, home in homes.items()}
    before = {_sized(START, count): home.stop for count, home in homes.items()}
    return interleave(variants, STARTS, warm_ups=0, before=before) | used


if __name__ == "__main__":
    main()
    page.write()
