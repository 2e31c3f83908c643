"""Another process of the same user, without capabilities, looks into the command that asks: each way, with its control.

The control is the same done to a program that asks as programs do. Started by root, both are uid 65534.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.approver.at_terminal import Program
from tests.support.waiting import wait_until

QUESTION = "Passphrase: "

PHRASE = "nine-of-swords-reversed"
BACKWARDS = PHRASE[::-1]
REFUSED = {"EACCES", "EPERM"}


@contextlib.contextmanager
def attacked(name: str) -> Iterator[tuple[Program, Program]]:
    """A person's program that has not asked yet, and the other process."""
    with Program("attacker") as attacker, Program(name) as program:
        attacker.heard("begun")
        program.heard("begun")
        yield program, attacker


def answered(program: Program) -> None:
    """From its first step to where it has the passphrase in memory, and waits."""
    program.tell("go")
    program.wait_shown(QUESTION)
    program.type(f"{PHRASE}\n")
    assert program.heard("typed")["typed"] == PHRASE


def family(program: Program) -> list[int]:
    """The command and the process that asks."""
    command = psutil.Process(program.process.pid)
    return [command.pid, *(child.pid for child in command.children())]


def test_memory_opened_beforehand_shows_no_passphrase() -> None:
    """Opened while the command could be looked into, and searched when it has the passphrase: it is in the child's alone."""
    found = {}
    for name in ("asks_in_the_open", "asks"):
        with attacked(name) as (program, attacker):
            assert attacker.do("open", program.process.pid) == "ok"
            answered(program)
            for pid in family(program)[1:]:
                assert attacker.do("open", pid) in REFUSED
            found[name] = attacker.do("search", BACKWARDS)
    assert found == {"asks_in_the_open": True, "asks": False}


def test_no_way_leads_into_the_process_that_has_the_passphrase_or_the_one_that_waits() -> None:
    """Memory, maps, environment, descriptors, ptrace(2), pidfd_getfd(2): each refused where it leads into an ordinary program."""
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


def test_a_command_that_is_traced_asks_for_nothing() -> None:
    """A debugger that was there first follows the fork; it is seen. Without one the same command asks."""
    with attacked("asks") as (program, attacker):
        assert attacker.do("trace", program.process.pid) == "ok"
        program.tell("go")
        refused = program.heard("refused")
        assert refused["refused"] == "unauthorized"
        assert "traces this command" in refused["message"]
        assert QUESTION not in program.shown
    with attacked("asks") as (program, _):
        answered(program)


def test_nobody_else_opens_the_terminal_while_it_is_asked_at() -> None:
    """Before the question and after the answer any process of the user may; between them none."""
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
def test_who_had_the_terminal_open_and_reads_after_the_question_gets_nothing(how: str) -> None:
    """By waiting in read(2), or by trying over and over: the person's line goes to whoever waited first, which is the command."""
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
def test_nothing_is_asked_where_somebody_reads_already(name: str) -> None:
    """Who waits in read(2) first would get the answer: found by looking, or by whom the kernel lets wait; nothing is shown."""
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
    """Until one of its threads sleeps in the terminal's read: it shows as sleeping, and the other waits for the test."""

    def states() -> list[str]:
        return [(task / "stat").read_text().rpartition(") ")[2][0] for task in Path(f"/proc/{pid}/task").iterdir()]

    wait_until(lambda: states() == ["S", "S"], "it sleeps in the terminal's read", seen=states)


def test_a_terminal_that_somebody_holds_is_not_asked_at() -> None:
    """Another process with exclusive use of it could be asking for the same: the person is sent to a new terminal."""
    with attacked("asks") as (program, attacker):
        assert attacker.do("terminal", f"{program.terminal} keep") == "ok"
        attacker.do("hold")
        program.tell("go")
        refused = program.heard("refused")
        assert refused["refused"] == "unauthorized"
        assert "TIOCEXCL" in refused["message"]
