"""The progress line while a run goes on: shown while it does, removed before any other output, and never in a script."""

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
    """Make a run of `act` continue until the returned function is called, and then end with this state."""
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
    """Make a run of `act` wait for its response until its line is painted; typing the empty answer signals that."""
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
"""Program above the command, because tmux scrolls a row away when the program ends."""


def tmux(home: Path, *words: str, below: list[str] = ROWS_ABOVE) -> Tmux:
    """Start the command in a window of 80 by 24."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AILERON_", "NO_COLOR", "TERM"))}
    return Tmux([*below, sys.executable, "-m", "aileron", *words], {**kept, "AILERON_HOME": str(home), "TZ": "UTC"})


def test_the_progress_line_is_shown_and_removed_before_the_result(fake: FakeDaemon, home: Path) -> None:
    """The line has the elapsed time and the connector's message; then only the result remains."""
    end = slow(fake, {"status": "completed", "result": "done with it"}, number=1, done=3, total=10, message="reading")
    with tmux(home, "run", "act") as at:
        shown = at.until("3 of 10  │ reading")
        assert re.search(r"act  \d+ s  3 of 10  │ reading", shown)
        end()
        at.until("done with it")

        rows = [row for row in at.text.splitlines() if row.strip()]
        assert rows[rows.index("second") + 1] == "done with it"
        assert "reading" not in at.text


def test_progress_is_requested_only_at_a_terminal(fake: FakeDaemon, aileron: Command) -> None:
    """A terminal also makes the first wait short; a script waits longer and gets no progress."""
    slow(fake, {"status": "completed", "result": 7}, number=4, done=1)()
    shown, piped = aileron.at_terminal("run", "act"), aileron("run", "act")
    first, watched, plain, unwatched = (seen.query for seen in fake.seen if seen.path in (RUN, "/v1/runs/run-1"))

    assert (first["wait"], watched["progress"]) == ("0.500", "0")
    assert (plain["wait"], "progress" in unwatched) == ("2.000", False)
    assert (piped.out, piped.err, shown.out.endswith("7\n")) == ("7\n", "", True)


@pytest.mark.parametrize(
    ("words", "more"), [(("--json",), {}), ((), {"TERM": "dumb"})], ids=["--json", "a terminal that cannot go back"]
)
def test_no_progress_line_is_shown_with_json_or_on_a_dumb_terminal(
    fake: FakeDaemon, aileron: Command, words: tuple[str, ...], more: dict[str, str]
) -> None:
    """Positive control: with the same daemon the line is painted otherwise."""
    painted = until_painted(fake, (200, {"audit_id": "run-1", "result": 7}))

    assert _LINE.search(aileron.at_terminal("run", "act", answers=[painted]).out)
    until_painted(fake, (200, {"audit_id": "run-1", "result": 7}), within_s=0.8)
    assert not _LINE.search(aileron.at_terminal("run", "act", *words, variables=more).out)


def test_an_interrupt_removes_the_progress_line(fake: FakeDaemon, home: Path) -> None:
    """The message about the interrupt alone remains after Ctrl-C."""
    slow(fake, {}, number=1, done=1, message="reading")
    with tmux(home, "run", "act") as at:
        at.until("│ reading")
        at.keys("C-c")
        at.until("interrupted; a run that has started continues")

        assert "reading" not in at.text


@pytest.mark.abuse_case("R10")
def test_a_paused_terminal_does_not_delay_the_command(fake: FakeDaemon, home: Path, tmp_path: Path) -> None:
    """Ctrl-S stops the line, not the run: the result goes to its file, and the command ends."""
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


def test_a_run_that_becomes_a_question_removes_the_progress_line(fake: FakeDaemon, aileron: Command) -> None:
    """The line is painted and erased before the text about the pending approval."""
    shown = aileron.at_terminal("run", "act", answers=[until_painted(fake, (202, PENDING))]).out

    painted, wiped, rest = shown.rpartition("\r\x1b[K")
    assert _LINE.search(painted)
    assert wiped
    assert not _LINE.search(rest)
    assert "act-1234" in rest


_NUMBERS = st.none() | st.integers() | st.floats() | st.booleans()


@pytest.mark.abuse_case("T8")
@given(st.text(max_size=99), _NUMBERS, _NUMBERS, st.text(max_size=300) | st.just(EVERYTHING), st.integers(10, 200))
def test_any_progress_report_becomes_a_single_escaped_line_that_fits_the_terminal(
    name: str, done: Any, total: Any, message: str, columns: int
) -> None:
    """The line is no wider than the terminal and has no hidden characters."""
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
def test_the_progress_line_shows_how_much_is_done(report: dict[str, Any], line: str) -> None:
    """Numbers are in the connector's own unit; an invalid total is left out."""
    assert line_of("act", 65.9, report, 80) == line
