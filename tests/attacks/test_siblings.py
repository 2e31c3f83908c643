"""Attacks of two children of one template on each other: neither finds what the other holds, nor reaches it by any number."""

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


@pytest.mark.abuse_case("L7")
def test_a_jail_cannot_reach_the_files_or_kernel_objects_of_another_jail(attack: Attack, jail: Jail) -> None:
    """The attempts are a file of a known name, input flags, signals, limits, namespaces, names, segments, queues,
    watches, leases.

    The test tries the first child's numbers on the host and in the template's namespace, and every small number.
    """
    with jail.staying("hold", 60) as first:
        numbers = [first.pid, *_inner_numbers(first.pid), *range(2, 200)]
        found = jail.loot("siblings_things", numbers)
        attack.control("the first is still there", True, first.ending is None)
    attack.denied("its file", "ENOENT", found.pop("its file"))
    attack.denied("its flags", "own", found.pop("its flags on standard input"))
    attack.all_denied("of a sibling", {"EPERM", "EACCES", "ESRCH", "ENOENT"}, found)


@pytest.mark.abuse_case("F8")
def test_a_jail_finds_nothing_that_an_earlier_one_left(attack: Attack, jail: Jail) -> None:
    """The children run one after the other: the same name in the scratch space, and the flags of standard input."""
    with jail.staying("hold", 60) as first:
        first.kill()
        first.wait(10)
    found = jail.loot("siblings_things", [2])
    attack.denied("its file", "ENOENT", found["its file"])
    attack.denied("its flags", "own", found["its flags on standard input"])
    attack.control("scratch space works for both", 1, jail.loot("write", "/tmp/known-name"))


@pytest.mark.abuse_case("J5")
@pytest.mark.parametrize("whose", ["a sibling's", "the template's", "the supervisor's", "its own"])
def test_no_process_can_be_traced_or_read(attack: Attack, jail: Jail, whose: str) -> None:
    """ptrace, process_vm_readv and writev, pidfd_getfd, kcmp and setns end the caller, whatever the target is."""
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


@pytest.mark.abuse_case("L8")
def test_a_fault_of_one_jail_does_not_affect_another(attack: Attack, jail: Jail) -> None:
    """A child is killed for a forbidden call again and again: its sibling sleeps on, and new children start."""
    number = NUMBERS["ptrace"][0 if X86_64 else 1]
    with jail.staying("hold", 60) as other:
        for _ in range(5):
            seen = jail.attempt("raw", number, 0, 0, 0, 0)
            assert isinstance(seen.ending, Signalled)
            attack.denied("taking others along", signal.SIGSYS, seen.ending.signal)
        attack.control("the other sleeps on", None, other.ending)
    attack.control("new ones come", "jail", jail.loot("facts")["host"])


@pytest.mark.abuse_case("L10")
def test_a_lock_of_one_jail_is_visible_to_another_but_blocks_nothing(attack: Attack, jail: Jail) -> None:
    """The other sees a lock on a library file, as the threat model says; it keeps nobody from reading or running
    anything, and each child's own files are not shared.
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
    """Return a process's numbers in the namespaces below, proc_pid_status(5)."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("NSpid"))
    return [int(number) for number in line.split()[1:] if int(number) > 1]
