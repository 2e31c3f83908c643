"""`aileron console` in real terminals with a real daemon: tmux, where each decision needs the passphrase, and one of its own.

These tests look for words anywhere on the screen; tests/tui checks their positions.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest

from aileron.tui.key_session import REST_S
from tests.attacks.same_user.terminal import environment
from tests.cli.command import Command
from tests.cli.person import APPROVER, at_terminal
from tests.support.fake_daemon import FakeDaemon
from tests.support.home import DaemonHome, daemon_home
from tests.support.tmux import Tmux
from tests.support.waiting import DEADLINE_S

ROOT = Path(__file__).resolve().parents[2]


def words() -> list[str]:
    """Return the console's command line."""
    return [sys.executable, "-m", "aileron", "console"]


def variables(home: Path, **more: str) -> dict[str, str]:
    """Return the console's environment variables."""
    given = {
        name: value for name, value in environment(home).items() if name in ("AILERON_HOME", "TZ", "NO_COLOR", "PATH")
    }
    return {**given, "PYTHONPATH": str(ROOT), **more}


@pytest.mark.jail
def test_in_tmux_each_decision_asks_for_the_passphrase_and_the_run_completes(asking: DaemonHome) -> None:
    """The person types `A`, yes, and the passphrase at the terminal itself; then the result appears with the requests sent."""
    question = asking.asked("ask-first", {"text": "hello there"})
    with Tmux(words(), variables(asking.path)) as at:
        at.until(
            "1 waiting", "passphrase each time", "ask-first", "CANNOT BE UNDONE", "hello there", "goes to", "compared"
        )
        at.keys("L")
        at.until("the passphrase is asked for each time")
        at.keys("Enter")
        at.until_pressed("End", "▸ proof")
        at.until_pressed("A", "and press Enter")
        at.type("yes")
        at.until("Approver passphrase, to approve")
        assert asking.result(question, wait=0)["status"] == "pending_approval"
        at.type(APPROVER)
        at.until("✓ done", "REQUESTS SENT", "nothing waiting")
        assert APPROVER not in at.text
        at.keys("q")
        at.until_over()

    assert asking.result(question)["status"] == "completed"


@pytest.mark.jail
def test_a_denial_in_tmux_asks_for_the_passphrase_and_sends_its_reason(asking: DaemonHome) -> None:
    """A wrong passphrase is asked for again; an interrupt at the prompt decides nothing."""
    question = asking.asked("ask-first", {"text": "hello there"})
    with Tmux(words(), variables(asking.path)) as at:
        at.until("ask-first", "CANNOT BE UNDONE")
        at.until_pressed("d", "Reason for the agent")
        at.type("not today")
        at.until("Approver passphrase, to deny")
        at.keys("C-c")
        at.until("1 waiting")
        time.sleep(REST_S * 1.1)  # what is pressed sooner may be the rest of a passphrase
        at.until_pressed("d", "Reason for the agent")
        at.type("not today")
        at.until("Approver passphrase, to deny")
        at.type("a guess")
        at.until("Wrong passphrase, 2 left")
        at.type(APPROVER)
        at.until("denied", "nothing waiting")

    result = asking.result(question)
    assert (result["status"], result["reason"]) == ("denied", "not today")


def test_the_console_refuses_to_start_without_a_terminal(home: Path, fake: FakeDaemon) -> None:
    """The error in a pipe names the other commands, and nothing is started."""
    said = Command(home)("console").exits(6)
    assert "the console needs a terminal" in said.err
    assert "aileron approval list" in said.err


@pytest.mark.parametrize("term", ["dumb", "unknown"])
def test_a_terminal_without_a_cursor_is_refused_with_the_commands_to_use(
    home: Path, fake: FakeDaemon, term: str
) -> None:
    """The console draws nothing there; every other test of this file is the positive control."""
    said = Command(home).at_terminal("console", TERM=term).exits(1)
    assert f"this terminal cannot draw the console why: TERM={term}" in " ".join(said.out.split())
    assert "aileron approval list, then aileron approve ID" in " ".join(said.out.split())
    assert "\x1b[?1049h" not in said.out


def test_the_console_does_not_start_in_a_descendant_of_an_agents_process() -> None:
    """Every descendant of `aileron launch` is refused; an agent's session elsewhere makes no difference."""
    with daemon_home() as home, subprocess.Popen(["sleep", "100"]) as elsewhere:
        home.must("POST", "/v1/sessions", {"agent": "claude", "folder": "/w", "pid": elsewhere.pid})
        with Tmux(words(), variables(home.path)) as at:
            at.until("nothing waiting")
        session = home.must("POST", "/v1/sessions", {"agent": "claude", "folder": "/w", "pid": os.getpid()})["id"]
        said = at_terminal(Command(home.path), "console")
        elsewhere.kill()

    assert said.code == 6
    assert f"this is a terminal of claude, session {session}" in " ".join(said.out.split())


@pytest.mark.parametrize("size", [(80, 24), (60, 20)])
def test_quitting_the_console_restores_the_terminal(home: Path, fake: FakeDaemon, size: tuple[int, int]) -> None:
    """The terminal has its own screen again after `q`, reads lines and echoes input."""
    fake.script("GET", "/v1/sessions", (200, {"sessions": []}))
    script = f"echo before; {' '.join(words())}; echo after; stty -a | grep -o ' icanon'; cat"
    with Tmux(["sh", "-c", script], variables(home), size=size) as at:
        at.until("nothing waiting")
        at.keys("q")
        at.until("before", "after", "icanon")
        at.type("typed again")
        assert at.until("typed again").count("typed again") >= 1


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGALRM, signal.SIGKILL])
def test_the_terminal_is_restored_whichever_signal_ends_the_console(
    home: Path, fake: FakeDaemon, number: signal.Signals
) -> None:
    """The process that waits for the console restores screen and cursor, and turns mouse reports off."""
    fake.script("GET", "/v1/sessions", (200, {"sessions": []}))
    script = f"echo before; {' '.join(words())}; echo after; stty -a | grep -o ' icanon'; cat"
    with Tmux(["sh", "-c", script], variables(home)) as at:
        at.until("nothing waiting")
        state = "#{cursor_flag} #{alternate_on} #{mouse_any_flag}"
        assert at.do("display-message", "-p", state).split() == ["0", "1", "1"]
        psutil.Process(at.pid).children(recursive=True)[-1].send_signal(number)
        at.until("before", "after", "icanon")
        assert at.do("display-message", "-p", state).split() == ["1", "0", "0"]


_LEADS: Final = (
    "import fcntl, os, signal, subprocess, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
)
_ITSELF: Final = "os.execvp(sys.argv[1], sys.argv[1:])"
_TELLS_NOBODY: Final = "signal.signal(signal.SIGHUP, lambda *_: None); subprocess.call(sys.argv[1:])"
"""First process of a terminal's session, which the kernel tells of its end: the console, or one that passes nothing on."""


@contextlib.contextmanager
def at_pty(
    home: Path, fake: FakeDaemon, first: str = _ITSELF, **given: str
) -> Iterator[tuple[int, list[psutil.Process]]]:
    """Run a console at a terminal of this process. Yield the other end and the processes, and kill those that remain."""
    fake.script("GET", "/v1/sessions", (200, {"sessions": []}))
    master, slave = pty.openpty()
    resize(master, 24, 80)
    started = subprocess.Popen(
        [sys.executable, "-c", _LEADS + first, *words()],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=variables(home, **{"TERM": "xterm-256color", **given}),
    )
    os.close(slave)
    processes = [psutil.Process(started.pid)]
    try:
        seen, until = b"", time.monotonic() + 30
        while b"nothing waiting" not in seen:
            assert time.monotonic() < until, seen
            if select.select([master], [], [], 0.2)[0]:
                seen += os.read(master, 65536)
        processes += processes[0].children(recursive=True)
        yield master, processes
    finally:
        os.close(master)
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        started.wait(10)


def resize(terminal: int, rows: int, columns: int) -> None:
    """Give the terminal another size."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def ended(processes: list[psutil.Process]) -> bool:
    """Return whether all of these end."""
    return not psutil.wait_procs(processes, DEADLINE_S)[1]


@pytest.mark.parametrize(
    "first", [_ITSELF, _TELLS_NOBODY], ids=["first of its session", "of a session that tells nobody"]
)
def test_closing_the_consoles_terminal_ends_the_console(home: Path, fake: FakeDaemon, first: str) -> None:
    """Closing the window must not leave a console that nobody sees."""
    with at_pty(home, fake, first=first) as (master, processes):
        assert all(process.is_running() for process in processes)
        with Path(os.devnull).open() as nothing:
            os.dup2(
                nothing.fileno(), master
            )  # closes the terminal; its number could be another thread's if it were closed twice
        assert ended(processes), [process.as_dict(["pid", "cmdline", "cpu_times"]) for process in processes]


def test_ending_the_consoles_tmux_session_ends_the_console(home: Path, fake: FakeDaemon) -> None:
    """The session ends by `tmux kill-session`."""
    fake.script("GET", "/v1/sessions", (200, {"sessions": []}))
    with Tmux(words(), variables(home)) as at:
        at.until("nothing waiting")
        processes = [psutil.Process(at.pid), *psutil.Process(at.pid).children(recursive=True)]
        at.do("kill-session")
        assert ended(processes)


def test_a_signal_ends_a_console_whose_terminal_accepts_no_output(home: Path, fake: FakeDaemon) -> None:
    """The event loop blocks on a stalled line and handles nothing, so the console has some seconds to restore the terminal."""
    with at_pty(home, fake) as (master, processes):
        for number in range(200):
            resize(master, 50 + number % 2, 200)
        processes[0].terminate()
        assert ended(processes)
