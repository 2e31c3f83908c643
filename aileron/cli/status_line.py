"""A line at a person's terminal while a run continues. It says that the run continues, for how long, and what the connector
reports.

Runs in commands, on standard error, and only on a terminal that can overwrite its line; a script gets no such line. A separate
thread repaints the line, because the main thread waits for the response in a system call.

Rules
- The line is gone before anything else is written: whether an answer, a question or Ctrl-C ends the block, the line is left
  empty.
- The connector's report is made harmless, put on one line behind a bar, and cut to the width.
- In a shell's background nothing is painted, because another process has the terminal. A paused terminal blocks nothing.

Source: docs/reference/cli.md, "While it runs". Not here: asking the daemon (run.py, decision_dialogue.py).
"""

from __future__ import annotations

import os
import select
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from aileron.cli.output import is_terminal
from aileron.model.json_value import JSONObject, dict_of
from aileron.model.text_width import narrowed, text_width, widened
from aileron.model.visible import BAR, visible, without_gaps

if TYPE_CHECKING:
    from threading import Event, Thread

__all__ = ["StatusLine", "line_of"]

_FIRST_S = 0.3
"""Seconds before the status line appears, so that no line flashes for a run that ends sooner."""
_FRAME_S = 0.1
_END_S = 1.0
"""Maximum seconds to wait for the painting thread at the end, because a paused terminal (Ctrl-S) must not block the command."""
_FRAMES = "|/-\\"
_LEAST_COLUMNS = 10
_MOST_NAME = 40
"""Maximum number of cells of the action's name, so that a terminal of 80 cells has room for more text beside the name."""
_CLEARED = "\r\x1b[K"  # ECMA-48, EL


class StatusLine:
    """A line on standard error that shows a run's progress during a `with` block. It is shown only if it is `wanted`
    and standard error is a terminal.
    """

    def __init__(self, name: str, *, wanted: bool = True) -> None:
        self.is_shown = wanted and is_terminal("stderr") and os.environ.get("TERM", "dumb") != "dumb"
        self.seen = 0
        """Number of the run's last progress report that was read; the daemon is asked for later reports."""
        self._name = name
        self._report: JSONObject = {}
        self._began = time.monotonic()
        self._is_painted = False
        self._over: Event | None = None
        self._painter: Thread | None = None

    @property
    def query(self) -> str:
        """Query parameter that makes a new report end the wait of a request; empty if no line is shown."""
        return f"&progress={self.seen}" if self.is_shown else ""

    def is_news(self, answer: JSONObject) -> bool:
        """Return whether a response has a progress report that was not seen yet. If so, the line shows it from now on."""
        report = dict_of(answer.get("progress")) if self.is_shown else {}
        number = report.get("number")
        if not isinstance(number, int) or number <= self.seen:
            return False
        self.seen, self._report = number, dict(report)
        return True

    def __enter__(self) -> Self:
        if self.is_shown:
            import threading

            self._over = threading.Event()
            self._painter = threading.Thread(target=self._paint, args=(self._over,), daemon=True)
            self._painter.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._over is None or self._painter is None:
            return
        self._over.set()
        self._painter.join(_END_S)
        if self._is_painted and not self._painter.is_alive() and _has_terminal():
            _put(_CLEARED)

    def _paint(self, over: Event) -> None:
        frame = 0
        pause_s = _FIRST_S
        while not over.wait(pause_s):
            pause_s = _FRAME_S
            columns = _columns()
            if columns < _LEAST_COLUMNS or not _has_terminal():
                continue
            line = line_of(self._name, time.monotonic() - self._began, self._report, columns - 1)
            self._is_painted = True
            if not _put(f"\r{_FRAMES[frame % len(_FRAMES)]} {line}\x1b[K"):
                return
            frame += 1


def line_of(name: str, elapsed_s: float, report: JSONObject, columns: int) -> str:
    """Return the text of the status line after the two cells of its spinner.

    It is cut so that the whole line takes at most `columns` cells.
    """
    parts = [_cut(visible(name), _MOST_NAME), _elapsed(elapsed_s)]
    if amount := _amount(report.get("done"), report.get("total")):
        parts.append(amount)
    if isinstance(message := report.get("message"), str) and message:
        parts.append(BAR + without_gaps(visible(message)))
    return _cut("  ".join(parts), columns - 2)


def _elapsed(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02} s"


def _amount(done: object, total: object) -> str:
    """Return progress such as `3 of 10`, in the connector's own unit; only the amount done if the total is invalid or smaller."""
    if not isinstance(done, (int, float)) or isinstance(done, bool):
        return ""
    if isinstance(total, (int, float)) and not isinstance(total, bool) and total > 0 and total >= done:
        return f"{_number(done)} of {_number(total)}"
    return _number(done)


def _number(value: float) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _cut(text: str, cells: int) -> str:
    return text if text_width(text) <= cells else narrowed(widened(text)[: max(cells - 1, 0)]) + "…"


def _columns() -> int:
    """Return the width of the terminal on standard error, whatever standard output is; 0 if the width is unknown."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        return 0


def _has_terminal() -> bool:
    """Return whether this process may write to its terminal; False for a job in a shell's background."""
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    except (OSError, ValueError):  # without a controlling terminal there is no background
        return True


def _put(text: str) -> bool:
    """Write a frame of the status line to the terminal. Return False if the terminal is gone. A paused terminal
    (Ctrl-S) misses the frame.

    The frame is not written through `sys.stderr`, because a thread that is stuck in a write would hold the lock of `sys.stderr`
    and block all other threads.
    """
    try:
        descriptor = sys.stderr.fileno()
        taking = select.poll()
        taking.register(descriptor, select.POLLOUT)
        if any(events & select.POLLOUT for _, events in taking.poll(0)):
            os.write(descriptor, text.encode(sys.stderr.encoding, "backslashreplace"))
    except (OSError, ValueError):
        return False
    return True
