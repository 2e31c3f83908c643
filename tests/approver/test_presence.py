"""The process in which the key is open, and its question at a real terminal: what a person sees, and what is left after."""

from __future__ import annotations

import signal
import termios
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from tests.approver.at_terminal import Program
from tests.support.waiting import wait_until

QUESTION = "Passphrase: "


def started(program: Program) -> Program:
    """As far as its question."""
    program.heard("begun")
    program.tell("go")
    program.wait_shown(QUESTION)
    return program


def asking(program: Program) -> psutil.Process:
    """The process that asks."""
    (child,) = psutil.Process(program.process.pid).children()
    return child


def stopped(process: psutil.Process) -> Callable[[], bool]:
    """Whether a signal holds it."""
    return lambda: process.status() == psutil.STATUS_STOPPED


# A process of its own


def test_the_work_is_done_once_in_a_process_nobody_looks_into() -> None:
    """Not dumpable, no core file, a child of the command; what comes after `alone` happens once, and nothing is printed twice."""
    with Program("is_alone") as program:
        inside = program.heard("dumpable")
        after = program.heard("after")
        assert program.ended() == 5
    assert (inside["dumpable"], inside["core"]) == (False, [0, 0])
    assert inside["parent"] == inside["outside"] == program.process.pid
    assert inside["pid"] == inside["again"] == after["pid"] != inside["outside"]
    assert after["after"] == 5
    assert program.shown == "before, and still in a buffer, inside, after\r\n"


def test_a_work_that_dies_by_a_signal_is_told_as_such() -> None:
    """Whoever waits for the command sees what became of it."""
    with Program("is_killed") as program:
        assert program.ended() == -signal.SIGUSR1


def test_the_work_does_not_outlive_the_command() -> None:
    """Killed outright: the kernel ends the child, which still leaves as it should."""
    with Program("waits") as program:
        child = psutil.Process(program.heard("parent")["pid"])
        program.process.kill()
        assert program.heard("ended")["ended"] == "SystemExit"
        wait_until(lambda: not child.is_running(), "the child is gone")


def test_a_signal_to_the_command_reaches_the_work() -> None:
    """SIGTERM and SIGINT, sent to the one number a person knows; both end with the code a shell expects."""
    for number, how, code in ((signal.SIGTERM, "SystemExit", 143), (signal.SIGINT, "KeyboardInterrupt", -2)):
        with Program("waits") as program:
            program.heard("parent")
            program.process.send_signal(number)
            assert program.heard("ended")["ended"] == how
            assert program.ended() == code


# The question


def test_a_passphrase_is_read_unseen_and_the_terminal_is_as_it_was() -> None:
    """What is typed is not shown; while it is asked for the terminal is held, and afterwards it is not."""
    with Program("asks") as program:
        before = program.settings()
        started(program)
        assert program.is_held()
        program.type("nine of swords\r")
        assert program.heard("typed")["typed"] == "nine of swords"
        assert (program.settings(), program.is_held()) == (before, False)
        program.tell("end")
        assert program.ended() == 7
    assert program.shown == f"{QUESTION}\r\n"


def test_any_bytes_are_a_passphrase() -> None:
    """Blanks and other alphabets are kept as they come."""
    with Program("asks") as program:
        started(program).type("  nine\tof swörds  \n")
        assert program.heard("typed")["typed"] == "  nine\tof swörds  "


def test_a_new_passphrase_is_asked_for_until_it_is_typed_twice() -> None:
    """And an empty line is no answer."""
    with Program("asks_twice") as program:
        started(program).type("\n")
        program.wait_shown(QUESTION, 2)
        program.type("one\n")
        program.wait_shown("Passphrase, again: ")
        program.type("two\n")
        program.wait_shown("not the same; try again")
        program.wait_shown(QUESTION, 3)
        program.type("one\n")
        program.wait_shown("Passphrase, again: ", 2)
        program.type("one\n")
        assert program.heard("typed")["typed"] == "one"


def test_what_was_typed_before_the_question_is_no_answer() -> None:
    """Keys pressed while a command starts go nowhere."""
    with Program("asks") as program:
        program.heard("begun")
        program.type("meant for somebody else\n")
        wait_until(lambda: program.shown.count("else") == 0 and _echoed(program), "it echoes again")
        program.tell("go")
        program.wait_shown(QUESTION)
        program.type("the answer\n")
        assert program.heard("typed")["typed"] == "the answer"


def _echoed(program: Program) -> bool:
    program.wait_shown("meant for somebody else")
    program.shown = ""
    return True


@pytest.mark.parametrize(
    ("typed", "words"),
    [("\x04", "no answer to 'Passphrase'"), (("x" * 90 + "\x04") * 50, "more than 4096 bytes")],
    ids=["the end of input", "a book"],
)
def test_what_is_no_answer_is_refused(typed: str, words: str) -> None:
    """Ctrl-D, and more than anybody types; the terminal is as it was."""
    with Program("asks") as program:
        before = program.settings()
        started(program).type(typed)
        refused = program.heard("refused")
        assert (refused["refused"], words in refused["message"]) == ("invalid_request", True)
        assert (program.settings(), program.is_held()) == (before, False)


def raw(settings: list[Any]) -> list[Any]:
    """As an editor leaves it: no lines, no signals, no carriage returns turned into line ends."""
    changed = [*settings[:6], list(settings[6])]
    changed[0] &= ~(termios.ICRNL | termios.IXON)
    changed[3] &= ~(termios.ICANON | termios.ISIG | termios.ECHO)
    return changed


def test_a_terminal_in_another_state_is_asked_at_all_the_same() -> None:
    """And is in that state again afterwards."""
    with Program("asks") as program:
        program.set(raw(program.settings()))
        before = program.settings()
        started(program).type("nine of swords\r")
        assert program.heard("typed")["typed"] == "nine of swords"
        assert program.settings() == before


@pytest.mark.parametrize(
    ("key", "how", "code"), [("\x03", "KeyboardInterrupt", -signal.SIGINT), ("\x1c", None, -signal.SIGQUIT)]
)
def test_an_interrupt_leaves_nothing_behind(key: str, how: str | None, code: int) -> None:
    """Ctrl-C, and the one that quits, after half a passphrase: the terminal is as it was, and the half is in nobody's input."""
    with Program("asks") as program:
        before = program.settings()
        started(program).type(f"half a pass{key}")
        if how is not None:
            assert program.heard("ended")["ended"] == how
        assert program.ended() == code
        assert (program.settings(), program.is_held(), program.unread()) == (before, False, b"")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_whoever_ends_the_process_that_asks_the_terminal_is_put_right(number: signal.Signals) -> None:
    """By itself, or by the one that waits for it; and a half that was typed goes nowhere."""
    with Program("asks") as program:
        before = program.settings()
        started(program).type("half a pass")
        asking(program).send_signal(number)
        assert program.ended() == (-number if number == signal.SIGKILL else 128 + number)
        assert (program.settings(), program.is_held(), program.unread()) == (before, False, b"")


def test_ending_the_command_outright_puts_the_terminal_right() -> None:
    """SIGKILL to the one that waits, in front of a shell: the one that asks leaves as it should."""
    with Program("shell") as program:
        before = program.settings()
        command = psutil.Process(program.heard("begun")["pid"])
        program.tell("go")
        program.wait_shown(QUESTION)
        (child,) = command.children()
        program.type("half a pass")
        command.kill()
        assert {"ended", "job"} == {key for _ in range(2) for key in program.heard("pid").keys() & {"ended", "job"}}
        wait_until(lambda: not child.is_running(), "the child is gone")
        assert (program.settings(), program.is_held(), program.unread()) == (before, False, b"")


def test_a_shell_stops_it_and_brings_it_back() -> None:
    """Ctrl-Z gives the terminal back as it was, job and all; in front again it asks anew, and the half is forgotten."""
    with Program("shell") as program:
        started(program).type("half a\x1a")
        was = program.heard("job")
        assert (was["job"], was["echo"], was["held"]) == ("stopped", True, False)
        assert program.unread() == b""
        program.tell("fg")
        program.wait_shown(QUESTION, 2)
        assert program.is_held()
        program.type("whole\n")
        assert program.heard("typed")["typed"] == "whole"
        program.tell("end")
        assert program.heard("job")["code"] == 7


def touching(program: Program) -> Program:
    """As far as the line that has a person touch something."""
    program.heard("begun")
    program.tell("go")
    program.wait_shown("Touch it")
    return program


def test_what_is_typed_while_something_is_touched_is_seen_by_nobody_and_answers_nothing() -> None:
    """Not echoed, not even Ctrl-Z heard, and thrown away: the question after it has the answer that is typed to it."""
    with Program("touches") as program:
        before = program.settings()
        touching(program).type("typed blind\x1a\n")
        assert program.is_held()
        program.tell("touched")
        program.wait_shown(QUESTION)
        program.type("whole\n")
        assert program.heard("typed")["typed"] == "whole"
        assert program.ended() == 7
        assert "blind" not in program.shown
        assert (program.settings(), program.is_held(), program.unread()) == (before, False, b"")


@pytest.mark.parametrize(
    ("how", "code"),
    [("Ctrl-C", -signal.SIGINT), (signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_whatever_ends_the_wait_for_a_touch_the_terminal_is_put_right(how: signal.Signals | str, code: int) -> None:
    """By a key, or by whoever ends the process."""
    with Program("touches") as program:
        before = program.settings()
        touching(program)
        if isinstance(how, signal.Signals):
            asking(program).send_signal(how)
        else:
            program.type("half\x03")
            assert program.heard("ended")["ended"] == "KeyboardInterrupt"
        assert program.ended() == code
        assert (program.settings(), program.is_held(), program.unread()) == (before, False, b"")


def test_it_does_not_ask_from_behind() -> None:
    """Continued in the background it stops once more, with the terminal left alone, until it is in front."""
    with Program("shell") as program:
        started(program).type("\x1a")
        assert program.heard("job")["job"] == "stopped"
        program.tell("bg")
        was = program.heard("job")
        assert (was["job"], was["echo"], was["held"]) == ("stopped", True, False)
        program.tell("fg")
        program.wait_shown(QUESTION, 2)
        program.type("whole\n")
        assert program.heard("typed")["typed"] == "whole"


def test_a_process_that_is_stopped_over_its_question_leaves_no_terminal_without_echo() -> None:
    """SIGSTOP cannot be caught: the one that waits puts the terminal right and stops too; then it is asked anew."""
    with Program("asks") as program:
        before = program.settings()
        started(program).type("half a")
        command, child = psutil.Process(program.process.pid), asking(program)
        child.suspend()
        wait_until(stopped(command), "it is stopped")
        assert (program.settings(), program.is_held(), program.unread()) == (before, False, b"")
        command.resume()
        program.wait_shown(QUESTION, 2)
        program.type("whole\n")
        assert program.heard("typed")["typed"] == "whole"


def test_without_a_terminal_nothing_is_asked() -> None:
    """A pipe, a daemon, a script: the message says what to do."""
    with Program("asks", has_terminal=False) as program:
        program.heard("begun")
        program.tell("go")
        refused = program.heard("refused")
    assert refused["refused"] == "unauthorized"
    assert "in a terminal of your own" in refused["message"]


def test_a_process_others_can_read_asks_for_nothing() -> None:
    """Whoever forgets `alone` is told so before anything is typed."""
    with Program("asks_where_others_can_look") as program:
        refused = program.heard("refused")
        assert program.ended() == 0
    assert refused["refused"] == "unauthorized"
    assert "can read this one" in refused["message"]
    assert QUESTION not in program.shown
