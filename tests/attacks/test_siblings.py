"""Two children of one template against each other: what one holds the other does not find, and cannot reach by any number."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from aileron_sandbox.ending import Signalled
from tests.attacks.inside import DEADLINE_S, Jail, told
from tests.attacks.tally import Attack
from tests.sandbox.test_jail_denials import NUMBERS, X86_64

pytestmark = pytest.mark.jail

ATTACH, SEIZE = 16, 0x4206


def test_nothing_that_one_holds_is_in_the_others_reach(attack: Attack, jail: Jail) -> None:
    """Files of a known name, flags of standard input, signals, limits, namespaces, names, segments, queues, watches, leases.

    The numbers tried are those the first has on the host, in the template's namespace, and every small one.
    """
    with jail.staying("hold", 60) as first:
        numbers = [first.pid, *_inner_numbers(first.pid), *range(2, 200)]
        found = jail.loot("siblings_things", numbers)
        attack.control("the first is still there", True, first.ending is None)
    attack.denied("its file", "ENOENT", found.pop("its file"))
    attack.denied("its flags", "own", found.pop("its flags on standard input"))
    attack.all_denied("of a sibling", {"EPERM", "EACCES", "ESRCH", "ENOENT"}, found)


def test_what_one_leaves_the_next_does_not_find(attack: Attack, jail: Jail) -> None:
    """One after the other: the same name in the scratch space, the same inode number, flags of the devices, locks."""
    with jail.staying("hold", 60) as first:
        first.kill()
        first.wait(10)
    found = jail.loot("siblings_things", [2])
    attack.denied("its file", "ENOENT", found["its file"])
    attack.denied("its flags", "own", found["its flags on standard input"])
    attack.control("scratch space works for both", 1, jail.loot("write", "/tmp/known-name"))


@pytest.mark.parametrize("whose", ["a sibling's", "the template's", "the supervisor's", "its own"])
def test_nobody_can_be_traced_read_or_looked_into(attack: Attack, jail: Jail, whose: str) -> None:
    """ptrace, its seizing, process_vm_readv and writev, pidfd_getfd, kcmp, setns: the try itself is the end, whoever is meant."""
    with jail.staying("hold", 60) as sibling:
        pid = {
            "a sibling's": sibling.pid,
            "the template's": jail.template.pid,
            "the supervisor's": os.getpid(),
            "its own": 1,
        }[whose]
        calls = {
            "ptrace, attaching": ("ptrace", (ATTACH, pid)),
            "ptrace, seizing": ("ptrace", (SEIZE, pid)),
            "process_vm_readv": ("process_vm_readv", (pid,)),
            "process_vm_writev": (None, (pid,)),
            "pidfd_getfd": ("pidfd_getfd", (3, 3)),
            "kcmp": ("kcmp", (pid, pid)),
            "setns": ("setns", (3, 0)),
        }
        for what, (name, arguments) in calls.items():
            pair = NUMBERS[name] if name else (311, 271)
            seen = jail.attempt("raw", pair[0 if X86_64 else 1], *arguments, 0, 0)
            attack.denied(what, "SIGSYS", told(seen))
        attack.control("the sibling never felt it", None, sibling.ending)
        assert sibling.pid


def test_a_fault_of_one_is_not_felt_by_another(attack: Attack, jail: Jail) -> None:
    """It is killed for a call, crashes, or uses up its time, again and again: the other sleeps on, and new ones come."""
    number = NUMBERS["ptrace"][0 if X86_64 else 1]
    with jail.staying("hold", 60) as other:
        for _ in range(5):
            seen = jail.attempt("raw", number, 0, 0, 0, 0)
            assert isinstance(seen.ending, Signalled)
            attack.denied("taking others along", signal.SIGSYS, seen.ending.signal)
        attack.control("the other sleeps on", None, other.ending)
    attack.control("new ones come", "jail", jail.loot("facts")["host"])


def test_what_two_that_both_want_to_can_tell_each_other(attack: Attack, jail: Jail) -> None:
    """A lock on a library file is seen by the other, as the threat model says; it keeps nobody from reading or running anything,
    and a file of their own they do not share.
    """
    library = os.path.realpath(os.__file__)
    with jail.staying("hold_a_lock", library, 60) as first:
        attack.control("the lock is seen", "EAGAIN", jail.loot("take_a_lock", library))
        attack.control("the file is read all the same", "ok", jail.loot("look_at", [library])[f"open {library}"])
        attack.control("and programs run", "jail", jail.loot("facts")["host"])
        attack.denied("a lock on what only the other has", "ENOENT", jail.loot("take_a_lock", "/tmp/known-name"))
        assert first.ending is None
        first.kill()
        first.wait(DEADLINE_S)
    attack.control("it is gone with its holder", "ok", jail.loot("take_a_lock", library))


def _inner_numbers(pid: int) -> list[int]:
    """What a process is called in the namespaces below, proc_pid_status(5)."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("NSpid"))
    return [int(number) for number in line.split()[1:] if int(number) > 1]
