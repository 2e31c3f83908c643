"""Curves of docs/reference/benchmarks/: cost as sizes grow, drawn from results/load-*.json alone.

`write` draws them with matplotlib, of the extra `bench`; `mark` identifies the points of each, so that a test can check a curve
against the results without matplotlib. The same numbers give the same bytes. Each must be legible on white and on black: no
background, lines in colours that stand out on both, and letters in a grey that does.

Not here: the table (page.py).
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.measure import Unit, percentiles

__all__ = ["PLOTS", "Plot", "mark", "write"]

_GREY: Final = "#7d8590"
_COLOURS: Final = ("#2f81f7", "#d2691e", "#2da44e", "#a475f9", "#c93c80", "#8a7a00")
"""Colours of the lines, each with a contrast of at least 3 to white and to black."""


@dataclasses.dataclass(frozen=True)
class Plot:
    """A curve to draw. `lines` are names of measures; their samples are named `NAME, SIZE`. With `has_size_first` there is one
    measure, `SIZE NAME`, in its own unit with its p99 beside it; the others are p50s divided by that of the smallest size.
    """

    name: str
    results: str
    title: str
    across: str
    up: str
    lines: tuple[str, ...]
    has_size_first: bool = False
    is_logarithmic: bool = False
    far_end: str = "p99"
    """Label of the slow end: p1 for a rate."""

    @property
    def is_relative(self) -> bool:
        """True if values are relative to the smallest size that has samples, which is 1."""
        return not self.has_size_first


_RUN: Final = ("a run", "a run, processor time of the daemon")
PLOTS: Final = (
    Plot(
        "callers-latency",
        "load-callers.json",
        "How long a run takes, from first asking to its result",
        "callers at once",
        "milliseconds",
        ("caller",),
        has_size_first=True,
        is_logarithmic=True,
    ),
    Plot(
        "callers-rate",
        "load-rate.json",
        "How many runs there are",
        "callers at once",
        "runs a second",
        ("caller",),
        has_size_first=True,
        far_end="p1",
    ),
    Plot(
        "callers-refused",
        "load-refused.json",
        "How often a caller is told that 64 are under way",
        "callers at once",
        "refusals for each run",
        ("caller",),
        has_size_first=True,
    ),
    Plot(
        "actions",
        "load-actions.json",
        "With more actions installed",
        "installed actions",
        "times what it takes with 10 (p50)",
        (*_RUN, "GET /v1/actions", "all pages of tools/list", "the daemon's start"),
        is_logarithmic=True,
    ),
    Plot(
        "rows",
        "load-rows.json",
        "With more rows in the ledger",
        "rows in the ledger",
        "times what it takes with none (p50)",
        (*_RUN, "the daemon's start", "GET /v1/sessions", "GET /v1/audit"),
        is_logarithmic=True,
    ),
    Plot(
        "waiting",
        "load-waiting.json",
        "With more questions that wait",
        "waiting questions",
        "times what it takes with none (p50)",
        (*_RUN, "GET /v1/action-approvals"),
        is_logarithmic=True,
    ),
)


def write(folder: Path, results: Path) -> None:
    """Draw all curves into `folder`. ImportError without matplotlib."""
    folder.mkdir(parents=True, exist_ok=True)
    for plot in PLOTS:
        (folder / f"{plot.name}.svg").write_text(_svg(plot, results), encoding="utf-8")


def mark(plot: Plot, results: Path) -> str:
    """Return the mark in the file of a curve drawn from these results: a digest of its points, which are p50 and p99."""
    told = json.dumps([dataclasses.asdict(plot), _curves(plot, results)], sort_keys=True)
    return f"<!-- points: {hashlib.sha256(told.encode()).hexdigest()[:16]} -->"


_Point = tuple[int, float, float]
"""A size, and the p50 and p99 at that size, as they are drawn."""


def _curves(plot: Plot, results: Path) -> dict[str, list[_Point]]:
    record = json.loads((results / plot.results).read_text(encoding="utf-8"))
    return {line: _points(plot, record["samples"], record["unit"], line) for line in plot.lines}


def _points(plot: Plot, samples: Mapping[str, list[float]], unit: Unit, line: str) -> list[_Point]:
    found: list[_Point] = []
    for name, values in samples.items():
        size = _size(plot, name, line)
        if size is not None:
            found.append((size, *percentiles(values, unit)))
    scale = 1 / found[0][1] if plot.is_relative else 1e3 if unit == "s" else 1.0
    return [(size, round(p50 * scale, 4), round(p99 * scale, 4)) for size, p50, p99 in found]


def _size(plot: Plot, name: str, line: str) -> int | None:
    """Return the size at which the samples of this name were taken, or None if they belong to another line."""
    if plot.has_size_first:
        number, _, rest = name.partition(" ")
        return int(number) if rest.removesuffix("s") == line else None
    measure, _, number = name.rpartition(", ")
    return int(number.replace(",", "")) if measure == line else None


def _svg(plot: Plot, results: Path) -> str:
    """Return the file's text: XML with its mark behind the first line."""
    import matplotlib

    matplotlib.use("svg")
    # Text stays text: smaller, searchable, and in the reader's own letters. The salt is that of ids, which are random otherwise.
    style = {"svg.hashsalt": plot.name, "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 10}
    written = io.StringIO()
    with matplotlib.rc_context(style):
        figure = _figure(plot, _curves(plot, results))
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    lines = [line.rstrip() for line in written.getvalue().splitlines()]
    return "\n".join([lines[0], mark(plot, results), *lines[1:], ""])


def _figure(plot: Plot, curves: Mapping[str, list[_Point]]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 3.6), layout="constrained")
    axes = figure.add_subplot()
    sizes = sorted({size for points in curves.values() for size, *_ in points})
    at = {size: place for place, size in enumerate(sizes)}  # spaced evenly: the smallest size may be 0
    for colour, (name, points) in zip(_COLOURS, curves.items(), strict=False):
        places = [at[size] for size, *_ in points]
        axes.plot(places, [p50 for _, p50, _ in points], "o-", color=colour, label=name if plot.is_relative else "p50")
        if not plot.is_relative:
            axes.plot(places, [p99 for *_, p99 in points], "o--", color=_COLOURS[1], label=plot.far_end)
    axes.set_xticks(range(len(sizes)), [f"{size:,}" for size in sizes])
    _dress(axes, plot)
    return figure


def _dress(axes: Any, plot: Plot) -> None:
    axes.set_title(plot.title, color=_GREY)
    axes.set_xlabel(plot.across, color=_GREY)
    axes.set_ylabel(plot.up, color=_GREY)
    if plot.is_logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.yaxis.set_minor_formatter("")
    else:
        axes.set_ylim(0, axes.get_ylim()[1])
    axes.tick_params(which="both", colors=_GREY)
    axes.grid(color=_GREY, alpha=0.3)
    for spine in axes.spines.values():
        spine.set_color(_GREY)
    axes.patch.set_alpha(0)
    axes.legend(frameon=False, labelcolor=_GREY, fontsize=9)
