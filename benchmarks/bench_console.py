"""Measure how soon `aileron console` is on the screen: first frame with 200 waiting questions, against a bare Textual app.

Both are programs at a terminal of their own (a pty of 80 by 24), timed from exec(2): to the console's first frame, which says
that it asks the daemon, to the first row of its list, and to the first row of the bare app's table, which is in its first frame.
The daemon is a test's fake, warm, on real sockets. Goal, for the first frame: at most 1.15 times.
"""

from __future__ import annotations

import os
import select
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks import page
from benchmarks.measure import Measured, Question, answer, at_most, interleave
from benchmarks.terminal import at_own_terminal
from tests.cli.questions import plan, question
from tests.support.fake_daemon import FakeDaemon
from tests.tui.consoles import World

ROUNDS = 30
ROWS = 200
FRAME, ROW, BARE = "first frame", "first row of the list", "a bare Textual app with a table"
_DEADLINE_S: Final = 30.0
_BARE: Final = f"""
from textual.app import App
from textual.widgets import DataTable
class Bare(App):
    def compose(self):
        yield DataTable()
    def on_mount(self):
        table = self.query_one(DataTable)
        table.add_columns("action", "agent", "left")
        for number in range({ROWS}):
            table.add_row(f"send-mail-{{number:03}}", "claude", "4:41")
Bare().run()
"""


def main() -> None:
    """Measure and report."""
    folder = Path(tempfile.mkdtemp(prefix="ail-"))
    try:
        with FakeDaemon(folder / "h") as fake:
            world = World(folder / "h", fake)
            world.ask(*(_waiting(number) for number in range(ROWS)))
            environment = {**os.environ, "AILERON_HOME": str(folder / "h"), "TERM": "xterm-256color"}
            for name in ("TMUX", "STY", "ZELLIJ", "NO_COLOR"):
                environment.pop(name, None)
            console = [sys.executable, "-m", "aileron", "console"]
            variants = {
                FRAME: _first_frame(console, b"queue", environment),
                ROW: _first_frame(console, b"send-mail-000", environment),
                BARE: _first_frame([sys.executable, "-c", _BARE], b"send-mail-000", environment),
            }
            taken = interleave(variants, ROUNDS)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    asked = [
        Question(f"`aileron console`: first frame, {ROWS} that wait", FRAME, BARE, at_most(1.15)),
        Question(f"`aileron console`: first row, {ROWS} that wait", ROW, BARE),
    ]
    answer("console.json", taken, asked)


def _waiting(number: int) -> dict[str, object]:
    return question(
        plan(action=f"send-mail-{number:03}"), approval_id=f"act-20261121T040000-{number:020}", agent="claude"
    )


def _first_frame(words: list[str], wanted: bytes, environment: dict[str, str]) -> Callable[[], Measured]:
    def once() -> Measured:
        began = time.perf_counter()
        with at_own_terminal(words, environment) as master:
            return Measured([_shown(master, wanted) - began])

    return once


def _shown(master: int, wanted: bytes) -> float:
    seen = b""
    until = time.monotonic() + _DEADLINE_S
    while select.select([master], [], [], max(0.0, until - time.monotonic()))[0]:
        seen += os.read(master, 65536)
        if wanted in seen:
            return time.perf_counter()
    raise TimeoutError(f"{wanted!r} is not to be seen: {seen[-2000:]!r}")


if __name__ == "__main__":
    main()
    page.write()
