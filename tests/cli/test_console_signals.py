"""Signals between the console and a real terminal besides its screen: the title, notifications, and a change of size."""

from __future__ import annotations

import os
import select
import signal
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.cli.test_console_terminal import at_pty, variables, words
from tests.support.fake_daemon import FakeDaemon
from tests.support.tmux import Tmux
from tests.support.waiting import wait_until
from tests.tui.consoles import World, named

TITLE = "#{pane_title}"


@pytest.mark.parametrize("ends", ["a key", "SIGKILL"])
def test_the_terminals_title_counts_pending_requests_until_the_console_ends(
    home: Path, fake: FakeDaemon, ends: str
) -> None:
    """The process that waits for the console restores the old title, even if the console is killed."""
    world = World(home, fake)
    world.ask(named("one"), named("two"))
    script = f"printf '\\033]2;mine\\033\\\\'; {' '.join(words())}; cat"
    with Tmux(["sh", "-c", script], variables(home)) as at:
        at.until("2 waiting")
        wait_title(at, "(2) aileron console")
        world.ask(named("three"))
        at.until("3 waiting")
        wait_title(at, "(3) aileron console")
        if ends == "a key":
            at.keys("q")
        else:
            psutil.Process(at.pid).children(recursive=True)[-1].send_signal(signal.SIGKILL)
        wait_title(at, "mine")


def wait_title(at: Tmux, wanted: str) -> None:
    """Wait until the terminal has this title."""
    wait_until(
        lambda: at.do("display-message", "-p", TITLE).strip() == wanted,
        f"the title is {wanted}",
        seen=lambda: at.do("display-message", "-p", TITLE),
    )


def read_for(master: int, wanted: bytes, within_s: float) -> bytes:
    """Return the terminal's output until it contains `wanted` or the time is over."""
    seen, until = b"", time.monotonic() + within_s
    while wanted not in seen and time.monotonic() < until:
        if select.select([master], [], [], 0.1)[0]:
            seen += os.read(master, 65536)
    return seen


def test_a_terminal_notification_has_only_the_names_of_the_agent_and_the_action(home: Path, fake: FakeDaemon) -> None:
    """The agent's name tries to end the escape sequence and to begin another one."""
    world = World(home, fake)
    with at_pty(home, fake, TERM="foot") as (master, _):
        world.ask(named("one", agent="cl\x1b\\\x1b]0;gone\x07", args={"to": "who@secret.example"}))
        told = read_for(master, b"\x1b]777;", 10)
        told += read_for(master, b"\x1b\\", 2)

    notice = told[told.index(b"\x1b]777;") :].partition(b"\x1b\\")[0]
    assert notice.startswith(b"\x1b]777;notify;aileron;cl")
    assert notice.endswith(b" asks: one")
    assert notice.count(b"\x1b") == 1
    assert b"\x1b]0;" not in told
    assert b"secret" not in notice


def test_a_terminal_without_notifications_gets_only_a_window_title(home: Path, fake: FakeDaemon) -> None:
    """The terminal does not support notifications: their escape sequences could appear as text."""
    world = World(home, fake)
    with at_pty(home, fake, TERM="xterm-256color") as (master, _):
        world.ask(named("one", agent="claude"))
        told = read_for(master, b"One", 10)
        told += read_for(master, b"\x1b]777;", 1.5)

    assert b"One" in told
    assert b"\x1b]777" not in told
    assert b"\x1b]9" not in told
    assert b"\x1b]2;" in told


def test_the_console_adapts_to_a_new_terminal_size(home: Path, fake: FakeDaemon) -> None:
    """A real terminal becomes smaller and larger; exported COLUMNS and LINES with an old size do not matter."""
    World(home, fake).ask(named("one"))
    with Tmux(words(), variables(home, COLUMNS="80", LINES="24"), size=(80, 24)) as at:
        at.until("1 waiting", "▸ proof")  # what the first card needs is imported by now
        for columns, rows in ((120, 40), (60, 20), (100, 30), (80, 24)):
            at.do("resize-window", "-x", str(columns), "-y", str(rows))
            wait_until(partial(is_laid_out, at, rows, columns), f"{columns} by {rows}", seen=lambda: at.text)


def is_laid_out(at: Tmux, rows: int, columns: int) -> bool:
    """Return whether the keys are at the end, with list and card side by side if there is room for both."""
    lines = at.text.rstrip("\n").split("\n")
    keys = [number for number, line in enumerate(lines, start=1) if "? help" in line]
    is_beside = any("│" in line[:60] and "One" in line for line in lines[2:4])
    return bool(keys) and rows - keys[-1] <= (1 if columns < 80 else 0) and is_beside == (columns >= 104)
