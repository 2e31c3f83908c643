"""The isolated process that holds the open key, and its question at a real terminal: what a person sees, and what is
left after.
"""

from __future__ import annotations

import signal
import termios
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from tests.approver_key.at_terminal import Program
from tests.support.waiting import wait_until

QUESTION = "Passphrase: "


def started(program: Program) -> Program:
    """Run the program as far as its question."""
    program.heard("begun")
    program.tell("go")
    program.wait_shown(QUESTION)
    return program


def asking(program: Program) -> psutil.Process:
    """Return the process that asks."""
    (child,) = psutil.Process(program.process.pid).children()
    return child


def stopped(process: psutil.Process) -> Callable[[], bool]:
    """Return a condition: a signal holds the process."""
    return lambda: process.status() == psutil.STATUS_STOPPED


# A process of its own


def test_code_after_the_process_isolation_runs_once_in_a_protected_child_process() -> None:
    """The process is a child of the command, not dumpable, without a core file; code after the isolation runs once, and
    output is printed once.
    """
    with Program("is_alone") as program:
        inside = program.heard("dumpable")
        after = program.heard("after")
        assert program.ended() == 5
    assert (inside["dumpable"], inside["core"]) == (False, [0, 0])
    assert inside["parent"] == inside["outside"] == program.process.pid
    assert inside["pid"] == inside["again"] == after["pid"] != inside["outside"]
    assert after["after"] == 5
    assert program.shown == "before, and still in a buffer, inside, after\r\n"


def test_the_command_ends_by_the_signal_that_killed_its_isolated_child() -> None:
    """The caller that waits for the command sees the signal."""
    with Program("is_killed") as program:
        assert program.ended() == -signal.SIGUSR1


def test_the_isolated_child_does_not_outlive_its_command() -> None:
    """The kernel signals the child if the command is killed, and the child still cleans up."""
    with Program("waits") as program:
        child = psutil.Process(program.heard("parent")["pid"])
        program.process.kill()
        assert program.heard("ended")["ended"] == "SystemExit"
        wait_until(lambda: not child.is_running(), "the child is gone")


def test_a_signal_to_the_command_reaches_the_isolated_child() -> None:
    """The command's pid is the only one that a person knows; both processes exit with the code that shells expect."""
    for number, how, code in ((signal.SIGTERM, "SystemExit", 143), (signal.SIGINT, "KeyboardInterrupt", -2)):
        with Program("waits") as program:
            program.heard("parent")
            program.process.send_signal(number)
            assert program.heard("ended")["ended"] == how
            assert program.ended() == code


# The question


def test_a_passphrase_is_read_without_echo_and_the_terminal_is_restored() -> None:
    """The terminal is held while the question is open, and released afterwards."""
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


def test_a_typed_passphrase_can_contain_any_bytes() -> None:
    """Blanks and other alphabets are kept as they are."""
    with Program("asks") as program:
        started(program).type("  nine\tof swörds  \n")
        assert program.heard("typed")["typed"] == "  nine\tof swörds  "


def test_a_new_passphrase_is_asked_for_until_it_is_typed_twice_alike() -> None:
    """An empty line is not accepted."""
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


def test_input_typed_before_the_passphrase_prompt_is_discarded() -> None:
    """Keys pressed while a command starts are not an answer."""
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
def test_end_of_input_and_an_overlong_line_are_refused_as_a_passphrase(typed: str, words: str) -> None:
    """The terminal is restored after Ctrl-D, and after a line longer than any passphrase."""
    with Program("asks") as program:
        before = program.settings()
        started(program).type(typed)
        refused = program.heard("refused")
        assert (refused["refused"], words in refused["message"]) == ("invalid_request", True)
        assert (program.settings(), program.is_held()) == (before, False)


def raw(settings: list[Any]) -> list[Any]:
    """Return settings as an editor leaves them: no line mode, no signals, no carriage returns turned into newlines."""
    changed = [*settings[:6], list(settings[6])]
    changed[0] &= ~(termios.ICRNL | termios.IXON)
    changed[3] &= ~(termios.ICANON | termios.ISIG | termios.ECHO)
    return changed


def test_the_passphrase_prompt_works_at_a_terminal_in_raw_mode() -> None:
    """The terminal is in raw mode again afterwards."""
    with Program("asks") as program:
        program.set(raw(program.settings()))
        before = program.settings()
        started(program).type("nine of swords\r")
        assert program.heard("typed")["typed"] == "nine of swords"
        assert program.settings() == before


@pytest.mark.parametrize(
    ("key", "how", "code"), [("\x03", "KeyboardInterrupt", -signal.SIGINT), ("\x1c", None, -signal.SIGQUIT)]
)
def test_an_interrupt_at_the_passphrase_prompt_restores_the_terminal_and_discards_input(
    key: str, how: str | None, code: int
) -> None:
    """Half a passphrase must not become the input of another program. Ctrl-C and the quit key are tried."""
    with Program("asks") as program:
        before = program.settings()
        started(program).type(f"half a pass{key}")
        if how is not None:
            assert program.heard("ended")["ended"] == how
        assert program.ended() == code
        assert (program.settings(), program.is_held(), program.unread()) == (before, False, b"")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_the_terminal_is_restored_however_the_process_with_the_passphrase_prompt_ends(number: signal.Signals) -> None:
    """Either the process restores it or the one that waits for it; half-typed input is discarded."""
    with Program("asks") as program:
        before = program.settings()
        started(program).type("half a pass")
        asking(program).send_signal(number)
        assert program.ended() == (-number if number == signal.SIGKILL else 128 + number)
        assert (program.settings(), program.is_held(), program.unread()) == (before, False, b"")


def test_killing_the_prompting_command_restores_the_terminal() -> None:
    """The command gets SIGKILL below a shell, and the child with the prompt still cleans up."""
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


def test_a_shell_can_stop_and_resume_the_passphrase_prompt() -> None:
    """Ctrl-Z restores the terminal for the shell. When it is resumed, the command prompts anew, and half-typed input is
    gone.
    """
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
    """Run the program as far as the line that has a person touch something."""
    program.heard("begun")
    program.tell("go")
    program.wait_shown("Touch it")
    return program


def test_input_typed_while_a_touch_is_awaited_is_discarded_without_echo() -> None:
    """Even Ctrl-Z has no effect; the next prompt gets only what is typed to it."""
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
def test_the_terminal_is_restored_however_the_wait_for_a_touch_ends(how: signal.Signals | str, code: int) -> None:
    """A key can end the wait, or a signal."""
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


def test_a_background_process_does_not_prompt_for_the_passphrase() -> None:
    """A process that is continued in the background stops again, and leaves the terminal alone until it is in front."""
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


def test_a_prompting_process_stopped_by_sigstop_leaves_the_terminal_with_echo() -> None:
    """SIGSTOP cannot be caught: the waiting parent restores the terminal and stops too; later the prompt returns."""
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


def test_a_process_without_a_terminal_does_not_prompt_for_the_passphrase() -> None:
    """The process is in a pipe, a daemon or a script; the error says what to do."""
    with Program("asks", has_terminal=False) as program:
        program.heard("begun")
        program.tell("go")
        refused = program.heard("refused")
    assert refused["refused"] == "unauthorized"
    assert "in a terminal of your own" in refused["message"]


def test_a_process_whose_memory_can_be_read_does_not_prompt_for_the_passphrase() -> None:
    """A developer who forgets the isolation gets an error before anything is typed."""
    with Program("asks_where_others_can_look") as program:
        refused = program.heard("refused")
        assert program.ended() == 0
    assert refused["refused"] == "unauthorized"
    assert "can read this one" in refused["message"]
    assert QUESTION not in program.shown
