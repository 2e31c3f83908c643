"""Measure how many keys and how much time a decision takes in the console: five decisions, at a terminal of its own and in tmux.

The console, the daemon and both terminals are real (80 by 24), and decisions are signed. Each sample has a console of its own, in
which the question has been on the screen long enough for keys to count. The approver's key is open, except in tmux, which needs a
passphrase for each approval, and after an edit, because the editor had the terminal.

A key is pressed as soon as the console takes it, so the time is the program's share and not a person's: from the first key to the
time of the last decision in the record. Most of it is the 0.4 seconds in which a second step takes no key. A passphrase is typed
as soon as it is asked for and does not count as keys; deriving the key from it is part of the time. A program that takes no keys
makes the edit, and of a reason only Enter counts. Goal: no more keys than the console was built for.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from aileron.tui.guard import SETTLED_S
from benchmarks import page
from benchmarks.measure import Measured, Question, Variant, answer, at_most, interleave
from benchmarks.terminal import at_own_terminal
from tests.cli.command import Command
from tests.cli.person import APPROVER, INIT, at_terminal
from tests.support.home import DaemonHome, asking_home, probe_action

ROUNDS: Final = 5
"""Rounds, each with ten consoles, which start, settle and end: some four seconds each."""
OWN, TMUX = "at a terminal of its own", "in tmux"
_DEADLINE_S: Final = 30.0
_REST_S: Final = SETTLED_S * 1.2
"""Seconds to wait, longer than keys are dead after a change: the benchmark sees a change a moment after it was drawn."""
_CARD: Final = "expires in"
"""Text that is on the card, but not in the list."""
_ACTION: Final = "send-note"
_END, _ENTER = "\x1b[F", "\r"
_PROMPT: Final = "Approver passphrase, to "
_DRAWN: Final = re.compile(r"\x1b\[[0-9;?<>=$]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\x1b[@-Z\\^_=>c()][B0]?")


@dataclasses.dataclass(frozen=True)
class Step:
    """A key to press, the text that it brings on the screen, and whether the next key is dead for SETTLED_S from then on."""

    key: str
    shows: str = ""
    rests: bool = False
    typed: str = ""
    """Text typed after the key; it does not count as keys."""


@dataclasses.dataclass(frozen=True)
class Decision:
    """A decision that is measured: its keys, the most keys it may take, and the number of requests it is about."""

    what: str
    steps: tuple[Step, ...]
    target: int
    requests: int = 1
    lines: int = 1
    """Lines of the question; with nine of them it takes a second screen."""


_YES: Final = (Step("A", "any other key", rests=True), Step("y"))
_READ: Final = Step(_END, "WHAT DIFFERS", rests=True)
DECISIONS: Final = (
    Decision("approve one", _YES, 3),
    Decision("approve one of two screens", (Step(" ", "▸ proof"), *_YES), 3, lines=9),
    Decision("deny one with a reason", (Step("d", "Reason for the agent", typed="not today"), Step(_ENTER)), 4),
    Decision("edit and approve", (Step("e", "edited", rests=True), *_YES), 4),
    Decision("approve three alike", (Step("a", "●"), Step("A", "approve all 3"), _READ, Step("y")), 6, requests=3),
)


def main() -> None:
    """Measure and report."""
    pressed: dict[str, list[float]] = {decision.what: [] for decision in DECISIONS}
    with asking_home() as home:
        _add_action(home)
        assert at_terminal(Command(home.path), "approver", "init", answers=INIT).code == 0
        variants: dict[str, Variant] = {
            f"{decision.what}, {where}": _decided(home, decision, where, pressed[decision.what])
            for decision in DECISIONS
            for where in _places()
        }
        taken = interleave(variants, ROUNDS, warm_ups=1)
    seconds = [
        Question(f"a decision: {decision.what}", f"{decision.what}, {OWN}", f"{decision.what}, {TMUX}")
        for decision in DECISIONS
    ]
    answer(
        "decisions.json",
        taken,
        seconds,
        missing={f"{decision.what}, {TMUX}": "apt-get install tmux" for decision in DECISIONS},
    )
    targets = {f"the target: {decision.what}": [float(decision.target)] for decision in DECISIONS}
    keys = [
        Question(f"keys: {decision.what}", decision.what, f"the target: {decision.what}", at_most(1))
        for decision in DECISIONS
    ]
    answer("decisions-keys.json", pressed | targets, keys, unit="count")


def _places() -> tuple[str, ...]:
    return (OWN, TMUX) if shutil.which("tmux") else (OWN,)


def _add_action(home: DaemonHome) -> None:
    """Add an action that declares its effect, so that `y` approves it."""
    text = probe_action("give_back", "text:string", name=_ACTION, gated=True)
    text = text.replace('op = "give_back"\n', 'op = "give_back"\neffect = "send"\n')
    home.must("POST", "/v1/actions", {"text": text, "file": "a benchmark"})


def _decided(home: DaemonHome, decision: Decision, where: str, pressed: list[float]) -> Variant:
    def once() -> Measured:
        more = "".join(f"\ncourse {number}" for number in range(1, decision.lines))
        asked = [home.asked(_ACTION, {"text": f"lunch {number}{more}"}) for number in range(decision.requests)]
        with _console(home.path, is_tmux=where == TMUX) as terminal:
            terminal.until(f"{decision.requests} waiting", _CARD)
            if where == OWN:
                terminal.press("L")
                terminal.type_passphrase()
                terminal.until("key open", _CARD)
            terminal.rest()
            terminal.keys = 0
            began = time.time()  # the clock of the record
            for step in decision.steps:
                terminal.take(step)
            terminal.until("nothing waiting")
            pressed.append(float(terminal.keys))
        return Measured([max(_decided_at(home, str(request["approval_id"])) for request in asked) - began])

    return once


def _decided_at(home: DaemonHome, approval_id: str) -> float:
    """Return the time of the decision in seconds since 1970, to a millisecond."""
    rows = home.must("GET", "/v1/audit?type=approval.decided&limit=10")["events"]
    (at,) = (row["at"] for row in rows if row["approval"] == approval_id)
    return datetime.fromisoformat(at).timestamp()


@contextlib.contextmanager
def _console(home: Path, *, is_tmux: bool) -> Iterator[_Terminal]:
    """Start a console in a terminal of its own or in tmux. End it afterwards."""
    words = [sys.executable, "-m", "aileron", "console"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AILERON_")}
    for name in ("TMUX", "STY", "ZELLIJ", "NO_COLOR", "VISUAL"):
        kept.pop(name, None)
    environment = {**kept, "AILERON_HOME": str(home), "TERM": "xterm-256color", "EDITOR": "sed -i s/lunch/dinner/"}
    with contextlib.ExitStack() as stack:
        if is_tmux:
            words = stack.enter_context(_tmux(words))
        yield _Terminal(stack.enter_context(at_own_terminal(words, environment)))


@contextlib.contextmanager
def _tmux(words: Sequence[str]) -> Iterator[list[str]]:
    """Yield the command line of a tmux server of its own, with one window of 24 rows, which runs these words."""
    folder = Path(tempfile.mkdtemp(prefix="ail-tmux-"))
    (folder / "conf").write_text("set -g status off\nset -g default-terminal tmux-256color\n", encoding="utf-8")
    server = ["tmux", "-S", str(folder / "s")]
    try:
        yield [*server, "-f", str(folder / "conf"), "new-session", "-x", "80", "-y", "24", shlex.join(words)]
    finally:
        subprocess.run([*server, "kill-server"], check=False, capture_output=True, timeout=_DEADLINE_S)
        shutil.rmtree(folder, ignore_errors=True)


class _Terminal:
    """A terminal that takes keys and returns the drawn text, without colours and positions. It types the passphrase if asked."""

    def __init__(self, master: int) -> None:
        self._master = master
        self._raw = ""
        self.keys = 0

    def take(self, step: Step) -> None:
        """Press the step's key, and wait until the next one counts."""
        self._raw = ""
        self.press(step.key)
        if step.shows:
            self.until(step.shows)
        if step.rests:
            time.sleep(_REST_S)
        if step.typed:
            os.write(self._master, step.typed.encode())

    def press(self, key: str) -> None:
        """Press a key."""
        self.keys += 1
        os.write(self._master, key.encode())

    def type_passphrase(self) -> None:
        """Type the passphrase when it is asked for."""
        self._read_until(_PROMPT)
        self._raw = ""
        os.write(self._master, f"{APPROVER}\r".encode())

    def until(self, *wanted: str) -> None:
        """Wait until all of these were drawn since the last key. TimeoutError after _DEADLINE_S."""
        while self._read_until(*wanted, or_at=_PROMPT):
            self.type_passphrase()

    def rest(self) -> None:
        """Wait until nothing was drawn for so long that keys count; a countdown draws once a second. TimeoutError."""
        until = time.monotonic() + _DEADLINE_S
        while select.select([self._master], [], [], _REST_S)[0]:
            os.read(self._master, 65536)
            if time.monotonic() > until:
                raise TimeoutError("the screen does not come to rest")

    def _read_until(self, *wanted: str, or_at: str | None = None) -> bool:
        """Read until all of `wanted` were drawn. Return whether `or_at` was drawn instead. TimeoutError."""
        until = time.monotonic() + _DEADLINE_S
        while not all(part in (text := _DRAWN.sub("", self._raw)) for part in wanted):
            if or_at is not None and or_at in text:
                return True
            if not select.select([self._master], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError(f"{wanted} are not to be seen: {text[-4000:]}")
            self._raw += os.read(self._master, 65536).decode("utf-8", "replace")
        return False


if __name__ == "__main__":
    main()
    page.write()
