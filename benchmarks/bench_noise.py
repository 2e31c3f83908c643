"""Measure what a run loses beside one that misbehaves: a whole `POST …/run` of the probe connector, alone and beside each kind.

The daemon is real; the timing is that of bench_run.py. A neighbour is another run of the same daemon, in a jail of its
own: one that computes (it takes a processor, as any honest connector may), and one for each way of misbehaving. Between two
measurements every neighbour has its turn, so all see the same machine.
- Beside a neighbour that misbehaves, against beside one that computes. Goal: at most 2 times.
- Beside one that computes, against alone: no goal, that is what a machine of few cores costs.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from benchmarks import page
from benchmarks.door import Door
from benchmarks.measure import Measured, Question, Variant, answer, at_most, interleave
from tests.attacks.hostile import HostileHome, hostile_home
from tests.attacks.test_hostile_frames import FLOODS
from tests.support.upstream_http import CountingServer

ROUNDS: Final = 3
RUNS: Final = 15
"""Runs in a row beside one neighbour, which was started for them and has a second."""
ALONE, COMPUTES = "alone", "beside one that computes"
_COMPUTE: Final = "while True: pass"
_BEGIN_S: Final = 0.1  # until a neighbour is at it


def main() -> None:
    """Measure and report."""
    with CountingServer() as upstream, hostile_home(upstream.port, timeout_s=1) as hostile:
        hostile.home.add_probe_action("give_back", "text:string")
        with Door(hostile.home.path) as door:
            variants: dict[str, Variant] = {ALONE: lambda: _runs(door), COMPUTES: _beside(hostile, door, _COMPUTE)}
            for name, source in FLOODS.items():
                variants[f"beside a flood: {name}"] = _beside(hostile, door, source)
            taken = interleave(variants, ROUNDS, warm_ups=0)
    asked = [Question("POST …/run beside one that computes", COMPUTES, ALONE)]
    asked += [Question(f"POST …/run {name}", name, COMPUTES, at_most(2)) for name in variants if "flood" in name]
    answer("noise.json", taken, asked)


def _runs(door: Door) -> Measured:
    taken = []
    for _ in range(RUNS):
        began = time.perf_counter()
        door.run()
        taken.append(time.perf_counter() - began)
    return Measured(taken)


def _beside(hostile: HostileHome, door: Door, source: str) -> Callable[[], Measured]:
    def window() -> Measured:
        with _neighbour(hostile, source):
            return _runs(door)

    return window


@contextlib.contextmanager
def _neighbour(hostile: HostileHome, source: str) -> Iterator[None]:
    """Run this source beside the block, until a limit of its own ends it."""
    neighbour = threading.Thread(target=hostile.attack, args=(source,))
    neighbour.start()
    try:
        time.sleep(_BEGIN_S)
        yield
    finally:
        neighbour.join()


if __name__ == "__main__":
    main()
    page.write()
