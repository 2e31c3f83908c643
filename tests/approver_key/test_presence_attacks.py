"""Attacks by another process of the same user, without capabilities, on the command that asks: each has a control.

The control is the same attack on a program that asks as programs usually do. Started by root, both run as uid 65534.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.approver_key.at_terminal import Program
from tests.support.waiting import wait_until

QUESTION = "Passphrase: "

PHRASE = "nine-of-swords-reversed"
BACKWARDS = PHRASE[::-1]
REFUSED = {"EACCES", "EPERM"}


@contextlib.contextmanager
def attacked(name: str) -> Iterator[tuple[Program, Program]]:
    """Yield a person's program that has not asked yet, and the attacking process."""
    with Program("attacker") as attacker, Program(name) as program:
        attacker.heard("begun")
        program.heard("begun")
        yield program, attacker


def answered(program: Program) -> None:
    """Run the program from its first step to where it waits with the passphrase in memory."""
    program.tell("go")
    program.wait_shown(QUESTION)
    program.type(f"{PHRASE}\n")
    assert program.heard("typed")["typed"] == PHRASE


def family(program: Program) -> list[int]:
    """Return the pids of the command and of the process that asks."""
    command = psutil.Process(program.process.pid)
    return [command.pid, *(child.pid for child in command.children())]


def test_process_memory_that_an_attacker_opened_before_the_prompt_has_no_passphrase() -> None:
    """The memory is opened while the command can still be read, and searched once the passphrase is there: only the
    child has it.
    """
    found = {}
    for name in ("asks_in_the_open", "asks"):
        with attacked(name) as (program, attacker):
            assert attacker.do("open", program.process.pid) == "ok"
            answered(program)
            for pid in family(program)[1:]:
                assert attacker.do("open", pid) in REFUSED
            found[name] = attacker.do("search", BACKWARDS)
    assert found == {"asks_in_the_open": True, "asks": False}


def test_every_way_to_read_the_prompting_or_waiting_process_is_refused() -> None:
    """Memory, maps, environment, descriptors, ptrace(2) and pidfd_getfd(2) are all refused, and all work on an ordinary
    program.
    """
    with attacked("asks_in_the_open") as (program, attacker):
        answered(program)
        ways = attacker.do("ways", program.process.pid)
        assert set(ways.values()) == {"ok"}, ways
    with attacked("asks") as (program, attacker):
        answered(program)
        pids = family(program)
        assert len(pids) == 2
        for pid in pids:
            refused = attacker.do("ways", pid)
            assert refused.keys() == ways.keys()
            assert set(refused.values()) <= REFUSED, refused


def test_a_command_traced_by_a_debugger_does_not_prompt_for_the_passphrase() -> None:
    """The debugger follows the fork, and is detected. Untraced, the same command prompts."""
    with attacked("asks") as (program, attacker):
        assert attacker.do("trace", program.process.pid) == "ok"
        program.tell("go")
        refused = program.heard("refused")
        assert refused["refused"] == "unauthorized"
        assert "traces this command" in refused["message"]
        assert QUESTION not in program.shown
    with attacked("asks") as (program, _):
        answered(program)


def test_no_other_process_can_open_the_terminal_during_the_prompt() -> None:
    """Every process of the user can open it before the prompt and after the answer, but not between."""
    with attacked("asks") as (program, attacker):
        said = [attacker.do("terminal", program.terminal)]
        program.tell("go")
        program.wait_shown(QUESTION)
        said.append(attacker.do("terminal", program.terminal))
        program.type(f"{PHRASE}\n")
        program.heard("typed")
        said.append(attacker.do("terminal", program.terminal))
    assert said == ["ok", errno.errorcode[errno.EBUSY], "ok"]


@pytest.mark.parametrize("how", ["waiting", "again"])
def test_a_process_that_reads_the_terminal_after_the_prompt_gets_no_passphrase(how: str) -> None:
    """The attacker had the terminal open and waits in read(2) or polls: the kernel gives the line to the first reader,
    which is the command.
    """
    with attacked("asks") as (program, attacker):
        assert attacker.do("terminal", f"{program.terminal} keep") == "ok"
        program.tell("go")
        program.wait_shown(QUESTION)
        assert attacker.do("reads", how) == "ok"
        program.type(f"{PHRASE}\n")
        assert program.heard("typed")["typed"] == PHRASE
        assert attacker.do("read") == []
        program.type("for anybody\n")  # nobody asks now: the control
        while not (got := attacker.do("read")):
            os.sched_yield()
        assert got == ["for anybody\n"]


@pytest.mark.parametrize("name", ["asks", "asks_without_looking"])
def test_there_is_no_passphrase_prompt_at_a_terminal_that_another_process_is_reading(name: str) -> None:
    """The process that waits in read(2) first would get the passphrase. The command finds it by its check, or by the
    kernel's order.
    """
    with attacked(name) as (program, attacker):
        assert attacker.do("terminal", f"{program.terminal} keep") == "ok"
        assert attacker.do("reads", "waiting") == "ok"
        _wait_in_read(attacker.process.pid)
        program.tell("go")
        refused = program.heard("refused")
        assert refused["refused"] == "unauthorized"
        assert "another process reads" in refused["message"]
        assert QUESTION not in program.shown
        assert not program.is_held()


def _wait_in_read(pid: int) -> None:
    """Wait until a thread of the process sleeps in the terminal's read: it shows as sleeping, and the other waits for
    the test.
    """

    def states() -> list[str]:
        return [(task / "stat").read_text().rpartition(") ")[2][0] for task in Path(f"/proc/{pid}/task").iterdir()]

    wait_until(lambda: states() == ["S", "S"], "it sleeps in the terminal's read", seen=states)


def test_there_is_no_passphrase_prompt_at_a_terminal_in_exclusive_use_of_another_process() -> None:
    """The other process could be prompting for the passphrase too: the person is sent to a new terminal."""
    with attacked("asks") as (program, attacker):
        assert attacker.do("terminal", f"{program.terminal} keep") == "ok"
        attacker.do("hold")
        program.tell("go")
        refused = program.heard("refused")
        assert refused["refused"] == "unauthorized"
        assert "TIOCEXCL" in refused["message"]
