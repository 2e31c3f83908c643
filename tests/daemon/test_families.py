"""A process belongs to the nearest family above it, and a process that cannot be examined is reported as such."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from aileron.daemon.http.families import UNSEEN, Families, descent_of
from tests.support.descriptors import at_most

_CHAIN = """
import os, sys
for _ in range(int(sys.argv[1])):
    if os.fork():
        os.wait()
        os._exit(0)
print(os.getpid(), flush=True)
sys.stdin.read()
"""


@contextmanager
def a_chain(depth: int) -> Iterator[tuple[int, int]]:
    """Start a process with `depth` descendants in a chain, and yield the pids of the first and the last."""
    program = [sys.executable, "-c", _CHAIN, str(depth)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        yield first.pid, int(first.stdout.readline())
        first.communicate()


def test_a_process_belongs_to_its_nearest_ancestors_session() -> None:
    """The process itself counts, and so do its parent and all further ancestors; others belong to no session."""
    families = Families()
    assert families.name_of(os.getpid()) is None
    with a_chain(5) as (first, last), a_chain(1) as (other, below):
        families.add(first, "ses-1")
        families.add(first, "ses-2")

        assert [families.name_of(pid) for pid in (first, last)] == ["ses-1", "ses-1"]
        assert [families.name_of(pid) for pid in (other, below, os.getpid())] == [None, None, None]
        nearest = descent_of(last)[1]
        families.add(nearest, "ses-3")
        assert [families.name_of(pid) for pid in (last, first)] == ["ses-3", "ses-1"]
    families.forget_gone()
    families.add(os.getpid(), "ses-4")
    assert families.name_of(os.getpid()) == "ses-4"


def test_an_unexaminable_process_is_distinguished_from_a_process_without_a_session() -> None:
    """An ended process, or one with too many ancestors, must not pass for a process without a session."""
    families = Families()
    with a_chain(80) as (first, last), a_chain(1) as (other, gone):
        families.add(first, "ses-1")

        assert families.name_of(last) == UNSEEN
        assert families.name_of(other) is None
    assert families.name_of(gone) == families.name_of(2**22 + 1) == UNSEEN


def test_a_process_family_whose_first_process_has_ended_is_forgotten() -> None:
    """Families whose first process still runs are kept."""
    families = Families()
    with a_chain(1) as (stays, _):
        with a_chain(1) as (ends, _):
            families.add(stays, "ses-1")
            families.add(ends, "ses-2")
        families.forget_gone()

        assert families.name_of(stays) == "ses-1"
    families.forget_gone()
    assert families.name_of(stays) is None, "no family is left, so nobody is looked for"


def test_no_process_family_is_forgotten_during_a_shortage_of_file_descriptors() -> None:
    """The check for ended processes cannot run then; it forgets ended families once descriptors are free."""
    families = Families()
    with a_chain(1) as (first, last), a_chain(1) as (other, gone):
        families.add(first, "ses-1")
        families.add(other, "ses-2")
        with at_most(os.getpid(), 3):
            families.forget_gone()

        assert families.names == {"ses-1", "ses-2"}
        assert [families.name_of(last), families.name_of(gone)] == ["ses-1", "ses-2"]
    families.forget_gone()
    assert families.names == frozenset()
