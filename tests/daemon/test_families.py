"""Whose child a process is: the nearest counts, and what cannot be seen is said to be so."""

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
    """A process, and one that descends from it with so many below."""
    program = [sys.executable, "-c", _CHAIN, str(depth)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        yield first.pid, int(first.stdout.readline())
        first.communicate()


def test_a_process_belongs_to_the_nearest_family_above_it() -> None:
    """Itself, its parent, or further up; beside them is nobody's."""
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


def test_what_cannot_be_seen_descends_from_nobody_and_is_told_apart() -> None:
    """One that has gone, and one with more processes above it than are looked at: neither is as one that no session started."""
    families = Families()
    with a_chain(80) as (first, last), a_chain(1) as (other, gone):
        families.add(first, "ses-1")

        assert families.name_of(last) == UNSEEN
        assert families.name_of(other) is None
    assert families.name_of(gone) == families.name_of(2**22 + 1) == UNSEEN


def test_a_family_whose_first_process_has_ended_is_forgotten() -> None:
    """And one whose first process goes on is not."""
    families = Families()
    with a_chain(1) as (stays, _):
        with a_chain(1) as (ends, _):
            families.add(stays, "ses-1")
            families.add(ends, "ses-2")
        families.forget_gone()

        assert families.name_of(stays) == "ses-1"
    families.forget_gone()
    assert families.name_of(stays) is None, "no family is left, so nobody is looked for"


def test_nobody_leaves_a_family_because_no_descriptor_is_free() -> None:
    """Whoever takes every descriptor is still of it afterwards; a process that has ended is not."""
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
