"""The page of benchmarks against the numbers it is made from, and the judging itself."""

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
"""Bytes: a page has several, and the repository each of their versions."""
QUESTION = Question("what", "ours", "theirs", at_most(0.5))


def test_the_table_says_what_the_results_say() -> None:
    """The generated part of docs/reference/benchmarks.md, computed again from the raw samples, is what stands there."""
    text = page.PAGE.read_text(encoding="utf-8")
    _, _, rest = text.partition(page.BEGIN)
    shown, _, _ = rest.partition(page.END)

    assert shown.strip() == page.block(RESULTS).strip(), "run `python -m benchmarks --page`"


@pytest.mark.parametrize("name", page.ORDER)
def test_a_result_is_what_its_samples_say(name: str) -> None:
    """Ratio and verdict as kept beside each question are those of the samples, to a rounding; every peer is there."""
    record = json.loads((RESULTS / name).read_text(encoding="utf-8"))

    for asked in record["questions"]:
        goal = Goal(**asked["goal"]) if asked["goal"] else None
        found = judge(Question(asked["what"], asked["subject"], asked["peer"], goal), record["samples"], record["unit"])
        assert found.ratio == pytest.approx(asked["ratio"], rel=0.01, abs=0.0001)
        assert found.holds is asked["holds"] or _is_on_the_line(found)


def test_every_miss_is_explained() -> None:
    """A question that misses its goal has an entry of its own under "Where we miss"."""
    _, _, section = page.PAGE.read_text(encoding="utf-8").partition("## Where we miss")
    missed = {found.question.what for found in page.answers(RESULTS) if found.holds is False}

    assert {what for what in missed if f"**{what}**" not in section} == set()


@pytest.mark.parametrize("plot", plots.PLOTS, ids=lambda plot: plot.name)
def test_a_curve_is_of_the_results_and_on_the_page(plot: plots.Plot) -> None:
    """Its file says of which points it was drawn; the page shows it, and nothing else is in its folder."""
    drawn = (page.CURVES / f"{plot.name}.svg").read_text(encoding="utf-8")

    assert plots.mark(plot, RESULTS) in drawn, "run `python -m benchmarks --page`, with the extra `bench`"
    assert re.search(rf"!\[[^]]+\]\(benchmarks/{plot.name}\.svg\)", page.PAGE.read_text(encoding="utf-8"))
    assert len(drawn) < LARGEST_CURVE
    assert {path.stem for path in page.CURVES.iterdir()} == {known.name for known in plots.PLOTS}


def test_a_curve_that_others_were_drawn_of_is_noticed(tmp_path: Path) -> None:
    """Its points are the p50 and p99 of each size, so that other numbers have another mark, and the same numbers the same."""
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


def test_every_benchmark_is_run_and_every_answer_has_a_place() -> None:
    """`python -m benchmarks` knows each bench_*.py, and the table each file that one of them writes."""
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
def test_a_goal_is_kept_up_to_its_bound(goal: Goal, ratio: float, holds: bool) -> None:
    """At most and at least include the bound, below does not."""
    assert goal.holds(ratio) is holds


def test_what_is_added_is_judged_by_the_difference() -> None:
    """In seconds, whatever the ratio; the table shows it in milliseconds."""
    question = Question("what", "ours", "theirs", adds_at_most(0.0007))
    kept = judge(question, {"ours": [0.0107], "theirs": [0.0101]}, "s")
    missed = judge(question, {"ours": [0.0009], "theirs": [0.0001]}, "s")

    assert (kept.holds, kept.compared, str(question.goal)) == (True, "+0.60 ms", "≤ +0.7 ms")
    assert (missed.holds, missed.compared) == (False, "+0.80 ms")


def test_what_takes_minutes_is_judged_in_pairs() -> None:
    """A machine that became slower meanwhile was so for both of a pair; the p50s are shown all the same."""
    question = Question("what", "ours", "theirs", in_pairs_at_most(1.05))
    kept = judge(question, {"ours": [320.0, 280.0, 400.0], "theirs": [310.0, 290.0, 450.0]}, "s")
    missed = judge(question, {"ours": [330.0, 280.0, 430.0], "theirs": [310.0, 290.0, 400.0]}, "s")

    assert (kept.holds, kept.compared, str(question.goal)) == (True, "0.966", "≤ 1.05 in pairs")
    assert (kept.ours[0], kept.theirs[0]) == (320.0, 310.0)
    assert (missed.holds, missed.compared) == (False, "1.065")


def test_memory_is_judged_by_itself() -> None:
    """Whatever the peer takes; the table shows the ratio beside it, and the goal in megabytes."""
    question = Question("what", "ours", "theirs", bytes_at_most(1_200_000))
    kept = judge(question, {"ours": [1_200_000], "theirs": [300_000]}, "bytes")
    missed = judge(question, {"ours": [1_200_001], "theirs": [9_000_000]}, "bytes")

    assert (kept.holds, kept.compared, str(question.goal)) == (True, "4.000", "≤ 1.2 MB")
    assert missed.holds is False


def test_the_bad_end_of_a_rate_is_the_low_one() -> None:
    """p99 of a time is its slow end; of a rate too, and that is the small number."""
    samples = {"ours": [float(number) for number in range(1, 101)], "theirs": [1.0]}

    assert judge(QUESTION, samples, "s").ours == (50.5, 100.0)
    assert judge(QUESTION, samples, "per s").ours == (50.5, 1.0)


def test_the_best_of_a_side_is_taken_by_its_unit() -> None:
    """The fastest time, the highest rate."""
    samples = {"two": [2.0, 2.0], "four": [3.0, 3.0]}

    assert best_of(samples, ["two", "four"]) == "two"
    assert best_of(samples, ["two", "four"], "per s") == "four"


def test_variants_take_turns_and_may_measure_themselves() -> None:
    """One after the other in every round, warm-ups not kept; what is done before a turn is not in it."""
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


def test_a_missing_peer_is_left_out_and_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No answer, no verdict, and the words that say how to install it, on the terminal and in the table."""
    monkeypatch.setattr("benchmarks.measure.RESULTS", tmp_path)

    answered = answer("jail-rate.json", {"ours": [1.0]}, [QUESTION], missing={"theirs": "not here: get it"})

    assert answered == []
    assert "what: left out, not here: get it" in capsys.readouterr().out
    assert "- what, against theirs: not here: get it; 1000 ms" in page.block(tmp_path)


def _is_on_the_line(found: Answer) -> bool:
    """The samples are rounded to a tenth of a microsecond; a ratio that is the goal to within that may fall either way."""
    goal = found.question.goal
    return goal is not None and found.judged == pytest.approx(goal.ratio, rel=0.001)
