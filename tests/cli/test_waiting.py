"""The line that a person sees while a run goes on: there while it does, gone before anything else, and never in a script."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.cli.status_line import line_of
from aileron.model.text import hidden_at
from aileron.model.text_width import text_width
from tests.cli.command import Answer, Command
from tests.support.fake_daemon import FakeDaemon, Reply, Seen
from tests.support.hostile_text import EVERYTHING
from tests.support.tmux import Tmux
from tests.support.waiting import DEADLINE_S, wait_until

RUN = "/v1/actions/act/run"
GOES_ON = (202, {"status": "running", "run_id": "run-1", "poll_after_ms": 50})
PENDING = {
    "status": "pending_approval",
    "approval_id": "act-1234",
    "audit_id": "run-1",
    "message": "A person must decide.",
    "expires_at": "2099-01-01T00:00:00.000Z",
}


def slow(fake: FakeDaemon, end: Any, **report: Any) -> Callable[[], None]:
    """A run of `act` that goes on until the returned function is called, and then so."""
    is_over = threading.Event()

    def state(seen: Seen) -> Reply:
        if is_over.wait(0.1):
            return 200, end
        return 200, {"status": "running", "run_id": "run-1", **({"progress": report} if report else {})}

    fake.add_action("act")
    fake.script("POST", RUN, GOES_ON)
    fake.script("GET", "/v1/runs/run-1", state)
    return is_over.set


def until_painted(fake: FakeDaemon, reply: Reply, *, within_s: float = DEADLINE_S) -> Answer:
    """A run of `act` that is answered so once its line is on the terminal, to which the returned function types an empty one."""
    is_painted = threading.Event()

    def answered(seen: Seen) -> Reply:
        is_painted.wait(within_s)
        return reply

    def note() -> str:
        is_painted.set()
        return ""

    fake.add_action("act")
    fake.script("POST", RUN, answered)
    return "act  ", note


_LINE = re.compile(r"act  \d+ s")
ROWS_ABOVE = ["sh", "-c", 'echo first; echo second; exec "$@"', "sh"]
"""tmux scrolls a row away when the program ends."""


def tmux(home: Path, *words: str, below: list[str] = ROWS_ABOVE) -> Tmux:
    """The command in a window of 80 to 24."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AILERON_", "NO_COLOR", "TERM"))}
    return Tmux([*below, sys.executable, "-m", "aileron", *words], {**kept, "AILERON_HOME": str(home), "TZ": "UTC"})


def test_the_line_is_there_while_it_runs_and_gone_before_the_result(fake: FakeDaemon, home: Path):
    """With the elapsed time and what the connector says; then the result alone stands there."""
    end = slow(fake, {"status": "completed", "result": "done with it"}, number=1, done=3, total=10, message="reading")
    with tmux(home, "run", "act") as at:
        shown = at.until("3 of 10  │ reading")
        assert re.search(r"act  \d+ s  3 of 10  │ reading", shown)
        end()
        at.until("done with it")

        rows = [row for row in at.text.splitlines() if row.strip()]
        assert rows[rows.index("second") + 1] == "done with it"
        assert "reading" not in at.text


def test_later_reports_are_asked_for_and_the_first_wait_is_short(fake: FakeDaemon, aileron: Command):
    """Only where somebody looks: a script asks as it always did, and sees nothing of it."""
    slow(fake, {"status": "completed", "result": 7}, number=4, done=1)()
    shown, piped = aileron.at_terminal("run", "act"), aileron("run", "act")
    first, watched, plain, unwatched = (seen.query for seen in fake.seen if seen.path in (RUN, "/v1/runs/run-1"))

    assert (first["wait"], watched["progress"]) == ("0.500", "0")
    assert (plain["wait"], "progress" in unwatched) == ("2.000", False)
    assert (piped.out, piped.err, shown.out.endswith("7\n")) == ("7\n", "", True)


@pytest.mark.parametrize(
    ("words", "more"), [(("--json",), {}), ((), {"TERM": "dumb"})], ids=["--json", "a terminal that cannot go back"]
)
def test_where_it_does_not_belong_nothing_is_painted(
    fake: FakeDaemon, aileron: Command, words: tuple[str, ...], more: dict[str, str]
):
    """As a pair: with the same daemon the line is there without them."""
    painted = until_painted(fake, (200, {"audit_id": "run-1", "result": 7}))

    assert _LINE.search(aileron.at_terminal("run", "act", answers=[painted]).out)
    until_painted(fake, (200, {"audit_id": "run-1", "result": 7}), within_s=0.8)
    assert not _LINE.search(aileron.at_terminal("run", "act", *words, **more).out)


def test_an_interrupt_leaves_an_empty_line(fake: FakeDaemon, home: Path):
    """Ctrl-C: the line goes, the words about it stay."""
    slow(fake, {}, number=1, done=1, message="reading")
    with tmux(home, "run", "act") as at:
        at.until("│ reading")
        at.keys("C-c")
        at.until("interrupted; a run that has started continues")

        assert "reading" not in at.text


def test_a_terminal_that_is_paused_keeps_nobody_waiting(fake: FakeDaemon, home: Path, tmp_path: Path):
    """Ctrl-S stops the line, not the run: its result is where it was sent, and the command ends."""
    end = slow(fake, {"status": "completed", "result": "done with it"}, number=1, done=1, message="reading")
    out = tmp_path / "out"
    to_file = ["sh", "-c", 'out=$1; shift; exec "$@" > "$out"', "sh", str(out)]
    with tmux(home, "run", "act", below=to_file) as at:
        at.until("│ reading")
        at.keys("C-s")
        asked = len(fake.seen)
        wait_until(lambda: len(fake.seen) > asked + 5, "some frames are painted")
        end()
        at.until_over()

    assert out.read_text() == "done with it\n"


def test_a_run_that_turns_into_a_question_leaves_an_empty_line(fake: FakeDaemon, aileron: Command):
    """Painted, wiped, and then the words about the question."""
    shown = aileron.at_terminal("run", "act", answers=[until_painted(fake, (202, PENDING))]).out

    painted, wiped, rest = shown.rpartition("\r\x1b[K")
    assert _LINE.search(painted)
    assert wiped
    assert not _LINE.search(rest)
    assert "act-1234" in rest


_NUMBERS = st.none() | st.integers() | st.floats() | st.booleans()


@given(st.text(max_size=99), _NUMBERS, _NUMBERS, st.text(max_size=300) | st.just(EVERYTHING), st.integers(10, 200))
def test_whatever_a_connector_says_is_one_harmless_line(name: str, done: Any, total: Any, message: str, columns: int):
    """No wider than the terminal, and without anything that it would obey."""
    line = line_of(name, 75.0, {"done": done, "total": total, "message": message}, columns)

    assert text_width(line) <= columns - 2
    assert hidden_at(line) is None


@pytest.mark.parametrize(
    ("report", "line"),
    [
        ({}, "act  1 min 05 s"),
        ({"done": 3, "total": 10}, "act  1 min 05 s  3 of 10"),
        ({"done": 0.5, "total": 1.0, "message": "a\nb"}, "act  1 min 05 s  0.5 of 1  │ a\\nb"),
        ({"done": 3, "total": 0}, "act  1 min 05 s  3"),
        ({"done": 3, "total": -1}, "act  1 min 05 s  3"),
        ({"done": True, "message": 7}, "act  1 min 05 s"),
    ],
)
def test_the_line_says_how_far_it_is(report: dict[str, Any], line: str):
    """In the connector's own unit; a total that is none is left out."""
    assert line_of("act", 65.9, report, 80) == line
