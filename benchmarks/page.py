"""Writer of the table in docs/reference/benchmarks.md, which is made from results/*.json alone.

`write` puts the table between the marks of the page, and has the curves beside it drawn; `block` computes the table again from
the raw samples, so that a test can compare. Everything outside the marks is written by people.

Not here: measuring (measure.py), the curves (plots.py).
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks import plots
from benchmarks.measure import RESULTS, Answer, Goal, Question, judge, percentiles, shown

__all__ = ["CURVES", "ORDER", "PAGE", "answers", "block", "summary", "write"]

PAGE: Final = Path(__file__).parents[1] / "docs" / "reference" / "benchmarks.md"
CURVES: Final = PAGE.with_suffix("")
"""Folder of the curves."""
BEGIN: Final = "<!-- results: written by `python -m benchmarks`, do not edit -->"
END: Final = "<!-- end of results -->"
ORDER: Final = (
    "start-daemon.json", "start-processor.json", "start-commands.json", "start-memory.json",
    "jail-first-frame.json", "jail-reaped.json", "jail-rate.json", "jail-memory.json", "jail-faults.json",
    "peers-first.json", "peers-reaped.json", "peers-warm.json",
    "frames-64.json", "frames-4096.json", "frames-1048576.json",
    "run.json", "run-rate.json", "run-signed.json", "noise.json", "flood.json", "egress.json", "logins.json", "logins-bytes.json",
    "client.json",
    "relay-start.json", "relay-call.json",
    "cell-start.json", "cell-work.json", "cell-checks.json", "cell-bare.json",
    "console.json", "decisions.json", "decisions-keys.json",
    "gateway-first.json", "gateway-chunk.json",
    "ledger-one.json", "ledger-many.json", "ledger-size.json",
    "load-callers.json", "load-rate.json", "load-refused.json", "load-actions.json", "load-rows.json", "load-waiting.json",
)  # fmt: skip
"""Files that have rows, in order; other files in results/ are not part of this table."""
_VERDICT: Final = {True: "holds", False: "**misses**", None: ""}


def write() -> None:
    """Put the results into the page. Do nothing if results go elsewhere (AILERON_BENCH_RESULTS)."""
    if Path(__file__).parent / "results" != RESULTS:
        return
    page = PAGE.read_text(encoding="utf-8")
    before, found, rest = page.partition(BEGIN)
    _, also_found, after = rest.partition(END)
    if not found or not also_found:
        raise ValueError(f"{PAGE} has lost its marks {BEGIN} and {END}")
    PAGE.write_text(f"{before}{BEGIN}\n\n{block(RESULTS)}\n{END}{after}", encoding="utf-8")
    if importlib.util.find_spec("matplotlib") is None:
        print("curves not drawn, matplotlib is not installed: pip install -e '.[bench]'", file=sys.stderr)
    else:
        plots.write(CURVES, RESULTS)


def block(results: Path) -> str:
    """Return the generated part of the page: the machine, the table, and the questions left out."""
    lines = [_machines(results), ""]
    lines += [
        "| question | against | ours: p50 (p99) | theirs: p50 (p99) | ratio | goal | |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_row(answered) for answered in answers(results)]
    left_out = [f"- {asked.what}, against {asked.peer}: {why}; {ours}" for asked, why, ours in _left_out(results)]
    if left_out:
        lines += ["", "Left out:", "", *left_out]
    return "\n".join([*lines, ""])


def answers(results: Path) -> Iterator[Answer]:
    """Yield every answered question, computed again from the samples."""
    for record in _records(results):
        for asked in record["questions"]:
            yield judge(_question(asked), record["samples"], record["unit"])


def summary(results: Path) -> str:
    """Return the table for a terminal: question, p50 of both, ratio, goal, verdict."""
    rows = [("question", "ours p50", "peer p50", "ratio", "goal", "", "peer")]
    for found in answers(results):
        question = found.question
        rows.append(
            (
                question.what,
                shown(found.ours[0], found.unit),
                shown(found.theirs[0], found.unit),
                found.compared,
                str(question.goal or ""),
                {True: "holds", False: "MISSED", None: ""}[found.holds],
                question.peer,
            )
        )
    rows += [
        (asked.what, ours, "left out", "", str(asked.goal or ""), "", why) for asked, why, ours in _left_out(results)
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(7)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _records(results: Path) -> Iterator[dict[str, Any]]:
    for path in (results / name for name in ORDER):
        if path.exists():
            yield json.loads(path.read_text(encoding="utf-8"))


def _left_out(results: Path) -> Iterator[tuple[Question, str, str]]:
    """Yield each question that could not be answered, the reason, and our side's result if it was measured."""
    for record in _records(results):
        for asked in record["left_out"]:
            samples = record["samples"].get(asked["subject"])
            ours = shown(percentiles(samples, record["unit"])[0], record["unit"]) if samples else "not measured"
            yield _question(asked), asked["why"], ours


def _question(record: dict[str, Any]) -> Question:
    goal = None if record["goal"] is None else Goal(**record["goal"])
    return Question(record["what"], record["subject"], record["peer"], goal)


def _row(answered: Answer) -> str:
    question, unit = answered.question, answered.unit
    ours, theirs = (f"{shown(p50, unit)} ({shown(p99, unit)})" for p50, p99 in (answered.ours, answered.theirs))
    cells = [question.what, question.peer, ours, theirs, answered.compared, str(question.goal or "–")]
    return f"| {' | '.join(cells)} | {_VERDICT[answered.holds]} |".replace("|  |", "| |")


def _machines(results: Path) -> str:
    machines = [record["machine"] for record in _records(results)]
    kinds = {f"{found['cores']} cores, Linux {found['kernel']}, CPython {found['python']}" for found in machines}
    loads = [found["load"] for found in machines]
    return f"{'; '.join(sorted(kinds))}; load average when a benchmark ended {min(loads):.1f} to {max(loads):.1f}."
