"""Tools that the benchmarks share: taking turns, questions with a goal, percentiles, and a JSON file with every raw number.

Runs in the process of one benchmark. A benchmark measures with `interleave`, which gives samples under the name of each
variant, and answers its questions with `answer`, which prints one row for each, and keeps everything in results/FILE.

    taken = interleave({"a jail": one_jail, "bwrap python": one_bwrap}, rounds=100)
    answer("jail.json", taken, [Question("request to reaped", "a jail", "bwrap python", at_most(0.075))])

Rules
- Two variants are compared only if the same call of `interleave` measured both. Only the two p50 are judged, by their ratio or by
  their difference, never a time by itself; for what takes minutes, the p50 of the pairs' ratios, because a machine changes
  meanwhile. Memory may have a goal by itself: it is no noisier on another machine.
- A peer that is not installed is reported as left out, with the way to install it; the question stays in the table.
- AILERON_BENCH_SCALE multiplies all rounds (0.1 for a quick look); AILERON_BENCH_RESULTS is another directory for the results.

Not here: the peers (peers.py), the table in docs/reference/benchmarks.md (page.py).
"""

from __future__ import annotations

import dataclasses
import gc
import json
import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

__all__ = [
    "RESULTS",
    "Answer",
    "Goal",
    "Measured",
    "Question",
    "Samples",
    "Unit",
    "Variant",
    "adds_at_most",
    "answer",
    "at_least",
    "at_most",
    "best_of",
    "bytes_at_most",
    "in_pairs_at_most",
    "interleave",
    "judge",
    "percentiles",
    "rates",
    "report",
    "shown",
]

RESULTS: Final = Path(os.environ.get("AILERON_BENCH_RESULTS", Path(__file__).parent / "results"))
_SCALE: Final = float(os.environ.get("AILERON_BENCH_SCALE", "1"))
_LEAST_ROUNDS: Final = 3
_CORES: Final = len(os.sched_getaffinity(0))  # now: a benchmark may keep to one of them for a while

Variant = Callable[[], object]
"""A function that does the thing once. It is timed from outside, whatever it returns, unless it returns `Measured`."""
Samples = Mapping[str, Sequence[float]]
"""Numbers of each variant, by its name, in the unit that `answer` gets with them."""
Unit = Literal["s", "per s", "bytes", "count"]


class Measured(tuple[float, ...]):
    """Numbers that a variant has measured itself, in the unit of the question."""

    __slots__ = ()


@dataclasses.dataclass(frozen=True)
class Goal:
    """A bound on the ratio of the p50s, ours by the peer's; or, for "adds at most", on their difference in seconds; or, for
    "in pairs at most", on the p50 of the ratios of what was measured in one turn; or, for "bytes at most", on ours alone.
    """

    bound: Literal["at most", "at least", "below", "adds at most", "in pairs at most", "bytes at most"]
    ratio: float

    def holds(self, measured: float) -> bool:
        """Return whether a measured ratio, difference or size meets the goal."""
        if self.bound == "at least":
            return measured >= self.ratio
        return measured < self.ratio if self.bound == "below" else measured <= self.ratio

    def __str__(self) -> str:
        if self.bound == "adds at most":
            return f"≤ +{self.ratio * 1e3:g} ms"
        if self.bound == "bytes at most":
            return f"≤ {self.ratio / 1e6:g} MB"
        if self.bound == "in pairs at most":
            return f"≤ {self.ratio:g} in pairs"
        return {"at most": "≤", "at least": "≥", "below": "<"}[self.bound] + f" {self.ratio:g}"


def at_most(ratio: float) -> Goal:
    """Return a goal for times and sizes."""
    return Goal("at most", ratio)


def adds_at_most(seconds: float) -> Goal:
    """Return a goal for the wait that a part adds to something longer, however long the whole takes."""
    return Goal("adds at most", seconds)


def in_pairs_at_most(ratio: float) -> Goal:
    """Return a goal for what takes minutes, in which a machine gets slower or faster: each is compared only with its pair."""
    return Goal("in pairs at most", ratio)


def bytes_at_most(size: float) -> Goal:
    """Return a goal for memory with a fixed allowance, whatever the peer takes."""
    return Goal("bytes at most", size)


def at_least(ratio: float) -> Goal:
    """Return a goal for rates."""
    return Goal("at least", ratio)


@dataclasses.dataclass(frozen=True)
class Question:
    """A row of the table, named by `what`; `subject` and `peer` name variants. Without a goal, the ratio is only shown."""

    what: str
    subject: str
    peer: str
    goal: Goal | None = None

    @property
    def bound(self) -> str | None:
        """Kind of the goal's bound, or None without a goal."""
        return None if self.goal is None else self.goal.bound


@dataclasses.dataclass(frozen=True)
class Answer:
    """A question with its results: p50 and p99 (for a rate the low end, p1) of both sides, and the ratio of ours to the peer's:
    of the p50s, or, if pairs are judged, the p50 of the pairs' ratios.
    """

    question: Question
    unit: Unit
    ours: tuple[float, float]
    theirs: tuple[float, float]
    ratio: float

    @property
    def holds(self) -> bool | None:
        """True if the goal is met; None without a goal."""
        goal = self.question.goal
        return None if goal is None else goal.holds(self.judged)

    @property
    def judged(self) -> float:
        """Number that the goal judges: the ratio, the seconds added, or our own size."""
        bound = self.question.bound
        if bound == "adds at most":
            return self.ours[0] - self.theirs[0]
        return self.ours[0] if bound == "bytes at most" else self.ratio

    @property
    def compared(self) -> str:
        """Text for the table: the ratio, or the time added if the goal judges that."""
        if self.question.bound == "adds at most":
            return f"{self.judged * 1e3:+.2f} ms"
        return f"{self.ratio:.3f}"


def interleave(
    variants: Mapping[str, Variant],
    rounds: int,
    warm_ups: int = 5,
    before: Mapping[str, Callable[[], object]] | None = None,
) -> dict[str, list[float]]:
    """Measure each variant `rounds` times, in turns; `before` holds what to do ahead of a variant, not measured.

    The garbage collector is off meanwhile: its pauses would fall on whichever variant is running.
    """
    prepare = before or {}
    taken: dict[str, list[float]] = {name: [] for name in variants}
    rounds = max(_LEAST_ROUNDS, round(rounds * _SCALE))
    gc.collect()
    gc.disable()
    try:
        for turn in range(-warm_ups, rounds):
            for name, variant in variants.items():
                prepare.get(name, _nothing)()
                measured = _timed(variant)
                if turn >= 0:
                    taken[name] += measured
    finally:
        gc.enable()
    return taken


def rates(taken: Samples, count: int) -> dict[str, list[float]]:
    """Convert seconds for `count` things to things per second."""
    return {name: [count / value for value in seconds] for name, seconds in taken.items()}


def best_of(taken: Samples, names: Sequence[str], unit: Unit = "s") -> str:
    """Return the variant with the best p50: a side that can be set up in several ways is judged at its best."""
    best = max if unit == "per s" else min
    return best(names, key=lambda name: statistics.median(taken[name]))


def judge(question: Question, taken: Samples, unit: Unit) -> Answer:
    """Answer a question from samples that have both of its variants."""
    ours, theirs = percentiles(taken[question.subject], unit), percentiles(taken[question.peer], unit)
    ratio = ours[0] / theirs[0]
    if question.bound == "in pairs at most":
        pairs = zip(taken[question.subject], taken[question.peer], strict=True)
        ratio = statistics.median(subject / peer for subject, peer in pairs)
    return Answer(question, unit, ours, theirs, ratio)


def answer(
    file: str,
    taken: Samples,
    questions: Sequence[Question],
    unit: Unit = "s",
    missing: Mapping[str, str] | None = None,
) -> list[Answer]:
    """Print a row for each question and write results/`file`; `missing` says why a variant was not measured."""
    why = missing or {}
    answers = [
        judge(question, taken, unit) for question in questions if {question.subject, question.peer} <= set(taken)
    ]
    left_out = [question for question in questions if not {question.subject, question.peer} <= set(taken)]
    for answered in answers:
        print(_row(answered), flush=True)
    for question in left_out:
        print(f"  {question.what}: left out, {_reason(question, why)}", flush=True)
    record = {
        "machine": _machine(),
        "unit": unit,
        "questions": [_question_record(answered) for answered in answers],
        "left_out": [{**_plain(question), "why": _reason(question, why)} for question in left_out],
        "samples": {name: [_rounded(value, unit) for value in values] for name, values in taken.items()},
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / file).write_text(json.dumps(record, ensure_ascii=False) + "\n", encoding="utf-8")
    return answers


def report(
    question: str,
    taken: Samples,
    subject: str,
    peers: Sequence[str],
    file: str,
    goals: Mapping[str, Goal] | None = None,
) -> None:
    """Call `answer` for times in seconds, with one question asked of several peers, each with its goal if it has one."""
    wanted = goals or {}
    multiple = len(peers) > 1
    asked = [
        Question(f"{question}, against {peer}" if multiple else question, subject, peer, wanted.get(peer))
        for peer in peers
    ]
    answer(file, taken, asked)


def shown(value: float, unit: Unit) -> str:
    """Return a number with its unit, as people read it."""
    if unit == "per s":
        return f"{value:.0f} /s" if value >= 100 else f"{value:.1f} /s"
    if unit == "bytes":
        return f"{value / 1e6:.2f} MB"
    if unit == "count":
        return f"{value:.2f}"
    if value < 0.001:
        return f"{value * 1e6:.0f} µs"
    if value >= 10:
        return f"{value:.0f} s"
    return f"{value * 1e3:.2f} ms" if value < 0.1 else f"{value * 1e3:.0f} ms"


def _nothing() -> None:
    pass


def _timed(variant: Variant) -> list[float]:
    began = time.perf_counter()
    returned = variant()
    seconds = time.perf_counter() - began
    return list(returned) if isinstance(returned, Measured) else [seconds]


def percentiles(values: Sequence[float], unit: Unit) -> tuple[float, float]:
    """Return p50 and p99; for a rate, p50 and p1."""
    ordered = sorted(values, reverse=unit == "per s")
    return statistics.median(ordered), ordered[min(len(ordered) - 1, math.floor(len(ordered) * 0.99))]


def _row(answered: Answer) -> str:
    question, unit = answered.question, answered.unit
    sides = "   ".join(
        f"{side} {shown(p50, unit):>9} ({shown(p99, unit)})"
        for side, (p50, p99) in (("ours", answered.ours), ("peer", answered.theirs))
    )
    verdict = {True: "holds", False: "MISSED", None: ""}[answered.holds]
    goal = f"goal {question.goal}" if question.goal else "no goal"
    return f"  {question.what} | {question.peer}\n    {sides}   {answered.compared}   {goal}   {verdict}".rstrip()


def _reason(question: Question, why: Mapping[str, str]) -> str:
    reasons = [why[name] for name in (question.subject, question.peer) if name in why]
    return "; ".join(reasons) or "not measured"


def _plain(question: Question) -> dict[str, Any]:
    return dataclasses.asdict(question)


def _question_record(answered: Answer) -> dict[str, Any]:
    return {
        **_plain(answered.question),
        "p50": [_rounded(answered.ours[0], answered.unit), _rounded(answered.theirs[0], answered.unit)],
        "p99": [_rounded(answered.ours[1], answered.unit), _rounded(answered.theirs[1], answered.unit)],
        "ratio": round(answered.ratio, 4),
        "holds": answered.holds,
    }


def _rounded(value: float, unit: Unit) -> float:
    """Round to a tenth of a microsecond, a tenth per second, or a byte: finer than any of these clocks is true."""
    return round(value) if unit == "bytes" else round(value, 7 if unit == "s" else 1)


def _machine() -> dict[str, Any]:
    return {
        "cores": _CORES,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }
