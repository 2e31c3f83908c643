"""The page of benchmarks against the numbers it is made from, and the judging of goals."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks import page, plots
from benchmarks.__main__ import BENCHMARKS
from benchmarks.bench_frames import SIZES
from benchmarks.measure import (
    Answer,
    Goal,
    Measured,
    Question,
    adds_at_most,
    answer,
    at_least,
    at_most,
    best_of,
    bytes_at_most,
    in_pairs_at_most,
    interleave,
    judge,
)

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
LARGEST_CURVE = 40_000
"""Most bytes of a curve: a page has several, and the repository keeps each of their versions."""
QUESTION = Question("what", "ours", "theirs", at_most(0.5))


def test_the_table_on_the_benchmarks_page_matches_the_results() -> None:
    """The generated part of docs/reference/benchmarks.md equals the one computed again from the raw samples."""
    text = page.PAGE.read_text(encoding="utf-8")
    _, _, rest = text.partition(page.BEGIN)
    shown, _, _ = rest.partition(page.END)

    assert shown.strip() == page.block(RESULTS).strip(), "run `python -m benchmarks --page`"


@pytest.mark.parametrize("name", page.ORDER)
def test_the_stored_ratio_and_verdict_of_each_benchmark_match_its_samples(name: str) -> None:
    """The ratio and the verdict kept with each question follow from the samples, up to rounding; both sides have samples."""
    record = json.loads((RESULTS / name).read_text(encoding="utf-8"))

    for asked in record["questions"]:
        goal = Goal(**asked["goal"]) if asked["goal"] else None
        found = judge(Question(asked["what"], asked["subject"], asked["peer"], goal), record["samples"], record["unit"])
        assert found.ratio == pytest.approx(asked["ratio"], rel=0.01, abs=0.0001)
        assert found.holds is asked["holds"] or _is_on_the_line(found)


def test_every_missed_goal_is_explained() -> None:
    """Each such question has an entry of its own under "Where we miss"."""
    _, _, section = page.PAGE.read_text(encoding="utf-8").partition("## Where we miss")
    missed = {found.question.what for found in page.answers(RESULTS) if found.holds is False}

    assert {what for what in missed if f"**{what}**" not in section} == set()


@pytest.mark.parametrize("plot", plots.PLOTS, ids=lambda plot: plot.name)
def test_a_curve_is_drawn_from_the_results_and_shown_on_the_benchmarks_page(plot: plots.Plot) -> None:
    """The file carries the mark of its points; the page shows it, and the folder holds no other file."""
    drawn = (page.CURVES / f"{plot.name}.svg").read_text(encoding="utf-8")

    assert plots.mark(plot, RESULTS) in drawn, "run `python -m benchmarks --page`, with the extra `bench`"
    assert re.search(rf"!\[[^]]+\]\(benchmarks/{plot.name}\.svg\)", page.PAGE.read_text(encoding="utf-8"))
    assert len(drawn) < LARGEST_CURVE
    assert {path.stem for path in page.CURVES.iterdir()} == {known.name for known in plots.PLOTS}


def test_different_benchmark_results_give_a_curve_another_checksum(tmp_path: Path) -> None:
    """The checksum in the file covers the p50 and p99 of each size; equal numbers give an equal one."""
    plot = next(plot for plot in plots.PLOTS if plot.name == "callers-rate")
    (tmp_path / plot.results).write_text(
        json.dumps({"unit": "per s", "samples": {"1 caller": [90.0, 100.0, 110.0], "8 callers": [200.0]}}),
        encoding="utf-8",
    )
    first, again = plots.mark(plot, tmp_path), plots.mark(plot, tmp_path)
    (tmp_path / plot.results).write_text(
        json.dumps({"unit": "per s", "samples": {"1 caller": [90.0, 101.0, 110.0], "8 callers": [200.0]}}),
        encoding="utf-8",
    )

    assert first == again != plots.mark(plot, tmp_path)


def test_every_benchmark_is_run_and_every_result_is_in_the_table() -> None:
    """The command `python -m benchmarks` knows each bench_*.py, and the table knows each file that one of them writes."""
    assert {path.stem.removeprefix("bench_") for path in (ROOT / "benchmarks").glob("bench_*.py")} == set(BENCHMARKS)
    paths = [*(ROOT / "benchmarks").glob("bench_*.py"), ROOT / "benchmarks" / "checks.py"]
    sources = "".join(path.read_text(encoding="utf-8") for path in paths)
    written = set(re.findall(r'"([a-z0-9-]+\.json)"', sources)) | {f"frames-{size}.json" for size, *_ in SIZES.values()}
    assert written == set(page.ORDER)


@pytest.mark.parametrize(
    ("goal", "ratio", "holds"),
    [
        (at_most(0.5), 0.5, True),
        (at_most(0.5), 0.51, False),
        (at_least(12), 12.0, True),
        (at_least(12), 11.9, False),
        (Goal("below", 1.0), 0.99, True),
        (Goal("below", 1.0), 1.0, False),
    ],
)
def test_a_result_exactly_at_its_goals_bound_meets_an_at_most_or_at_least_goal(
    goal: Goal, ratio: float, holds: bool
) -> None:
    """The goals "at most" and "at least" include the bound; "below" does not."""
    assert goal.holds(ratio) is holds


def test_a_goal_for_added_time_is_judged_by_the_difference_in_seconds() -> None:
    """The difference in seconds is judged, whatever the ratio; the table shows it in milliseconds."""
    question = Question("what", "ours", "theirs", adds_at_most(0.0007))
    kept = judge(question, {"ours": [0.0107], "theirs": [0.0101]}, "s")
    missed = judge(question, {"ours": [0.0009], "theirs": [0.0001]}, "s")

    assert (kept.holds, kept.compared, str(question.goal)) == (True, "+0.60 ms", "≤ +0.7 ms")
    assert (missed.holds, missed.compared) == (False, "+0.80 ms")


def test_long_measurements_are_compared_in_pairs() -> None:
    """A machine that became slower meanwhile did so for both sides of a pair."""
    question = Question("what", "ours", "theirs", in_pairs_at_most(1.05))
    kept = judge(question, {"ours": [320.0, 280.0, 400.0], "theirs": [310.0, 290.0, 450.0]}, "s")
    missed = judge(question, {"ours": [330.0, 280.0, 430.0], "theirs": [310.0, 290.0, 400.0]}, "s")

    assert (kept.holds, kept.compared, str(question.goal)) == (True, "0.966", "≤ 1.05 in pairs")
    assert (kept.ours[0], kept.theirs[0]) == (320.0, 310.0)
    assert (missed.holds, missed.compared) == (False, "1.065")


def test_a_goal_for_memory_is_judged_by_megabytes_and_not_by_the_ratio() -> None:
    """The table shows the ratio beside it, and the goal in megabytes."""
    question = Question("what", "ours", "theirs", bytes_at_most(1_200_000))
    kept = judge(question, {"ours": [1_200_000], "theirs": [300_000]}, "bytes")
    missed = judge(question, {"ours": [1_200_001], "theirs": [9_000_000]}, "bytes")

    assert (kept.holds, kept.compared, str(question.goal)) == (True, "4.000", "≤ 1.2 MB")
    assert missed.holds is False


def test_the_second_number_in_a_row_is_the_largest_time_or_the_smallest_rate() -> None:
    """The second number of a row is the largest of times, but the smallest of rates."""
    samples = {"ours": [float(number) for number in range(1, 101)], "theirs": [1.0]}

    assert judge(QUESTION, samples, "s").ours == (50.5, 100.0)
    assert judge(QUESTION, samples, "per s").ours == (50.5, 1.0)


def test_the_best_variant_is_the_one_with_the_shortest_time_or_the_highest_rate() -> None:
    """The best is the shortest time or the highest rate."""
    samples = {"two": [2.0, 2.0], "four": [3.0, 3.0]}

    assert best_of(samples, ["two", "four"]) == "two"
    assert best_of(samples, ["two", "four"], "per s") == "four"


def test_the_variants_of_a_benchmark_run_in_turns_and_can_measure_themselves() -> None:
    """Each round runs every variant once. Warm-ups are discarded, and preparation is not measured."""
    turns: list[str] = []

    def ours() -> Measured:
        turns.append("ours")
        return Measured([1.0, 2.0])

    taken = interleave(
        {"ours": ours, "theirs": lambda: turns.append("theirs")},
        rounds=3,
        warm_ups=1,
        before={"ours": lambda: turns.append("before")},
    )

    assert turns == ["before", "ours", "theirs"] * 4
    assert taken["ours"] == [1.0, 2.0] * 3
    assert len(taken["theirs"]) == 3


def test_a_peer_program_that_is_not_installed_is_reported_as_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The question gets no answer and no verdict; the terminal and the table say how to install the peer."""
    monkeypatch.setattr("benchmarks.measure.RESULTS", tmp_path)

    answered = answer("jail-rate.json", {"ours": [1.0]}, [QUESTION], missing={"theirs": "not here: get it"})

    assert answered == []
    assert "what: left out, not here: get it" in capsys.readouterr().out
    assert "- what, against theirs: not here: get it; 1000 ms" in page.block(tmp_path)


def _is_on_the_line(found: Answer) -> bool:
    """Return whether the result is so close to its goal that the rounding of the samples may decide the verdict."""
    goal = found.question.goal
    return goal is not None and found.judged == pytest.approx(goal.ratio, rel=0.001)
