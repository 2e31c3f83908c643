"""What the benchmarks share: interleaved rounds, percentiles, a JSON file with the raw numbers."""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["interleave", "report"]

_RESULTS = Path(__file__).parent / "results"


def interleave(variants: dict[str, Callable[[], None]], rounds: int, warm_ups: int = 5) -> dict[str, list[float]]:
    """Seconds of each variant, `rounds` times, taking turns."""
    for variant in variants.values():
        for _ in range(warm_ups):
            variant()
    taken: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, variant in variants.items():
            began = time.perf_counter()
            variant()
            taken[name].append(time.perf_counter() - began)
    return taken


def report(question: str, taken: dict[str, list[float]], subject: str, peers: list[str], file: str) -> None:
    """Print p50, p99 and the ratios; keep the raw numbers."""
    print(question)
    for name, seconds in taken.items():
        ordered = sorted(seconds)
        p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
        print(f"  {name:<42} p50 {statistics.median(ordered) * 1000:8.2f} ms   p99 {p99 * 1000:8.2f} ms")
    ratios = {}
    for peer in peers:
        if peer in taken:
            ratios[peer] = statistics.median(taken[subject]) / statistics.median(taken[peer])
            print(f"  {subject} / {peer} = {ratios[peer]:.3f}")
    _RESULTS.mkdir(exist_ok=True)
    facts = {"question": question, "kernel": platform.release(), "python": platform.python_version(), "ratios": ratios}
    microseconds = {name: [round(value * 1e6) for value in seconds] for name, seconds in taken.items()}
    (_RESULTS / file).write_text(json.dumps({**facts, "us": microseconds}) + "\n", encoding="utf-8")
