"""The compiled deny list of a cell, asked about every system call."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection
from typing import Final

import pyseccomp
from hypothesis import example, given
from hypothesis import strategies as st

from aileron_sandbox import filters
from tests.sandbox import bpf

X86_64, I386, AARCH64, ARM = 0xC000003E, 0x40000003, 0xC00000B7, 0x40000028  # linux/audit.h
NATIVE: Final = X86_64 if os.uname().machine == "x86_64" else AARCH64
X32_BIT: Final = 0x40000000
HIGH: Final = 1 << 32
HIGHEST: Final = 600
NEW: Final = 0x7E020000
FILTER: Final = filters.compile_cell()
SET_ID: Final = 0o6000
MAKES: Final = os.O_CREAT | 0o20000000

Answers = Collection[int]


def _mode(argument: int) -> Callable[[list[int]], Answers]:
    return lambda a: {errno.EPERM} if a[argument] & SET_ID else ()


def _open(flags: int) -> Callable[[list[int]], Answers]:
    return lambda a: {errno.EPERM} if a[flags] & MAKES and a[flags + 1] & SET_ID else ()


def _socket(a: list[int]) -> Answers:
    family, kind, protocol = a[0] % HIGH, a[1] & 0xF, a[2]
    found = set()
    if (family not in {0, 1, 2, 10, 16}) or a[0] > 16:
        found.add(errno.EAFNOSUPPORT)
    if family in {2, 10} and kind in {3, 4, 5, 6, 10}:
        found.add(errno.EPERM)
    if (family in {2, 10} and protocol > 17) or (family == 16 and protocol > 0):
        found.add(errno.EPROTONOSUPPORT)
    return found


def _of_the_first(arguments: list[int]) -> Answers:
    return {errno.EPERM} if arguments[0] % HIGH == 1 else ()


FOR_SOME_ARGUMENTS: Final[dict[str, Callable[[list[int]], Answers]]] = {
    "clone": lambda a: {errno.EPERM} if a[0] & NEW else (),
    "unshare": lambda a: {errno.EPERM} if a[0] & (NEW | 0x80) else (),
    "chmod": _mode(1),
    "fchmod": _mode(1),
    "fchmodat": _mode(2),
    "fchmodat2": _mode(2),
    "creat": _mode(1),
    "mkdir": _mode(1),
    "mkdirat": _mode(2),
    "mknod": _mode(1),
    "mknodat": _mode(2),
    "open": _open(1),
    "openat": _open(2),
    "socket": _socket,
    "socketpair": lambda a: {errno.EAFNOSUPPORT} if a[0] != 1 else (),
    "fcntl": lambda a: {errno.EPERM} if a[1] % HIGH in {1024, 1040} else (),
    "ioctl": lambda a: {errno.EPERM} if a[1] % HIGH in {0x5412, 0x541C, 0x541D, 0x5423} else (),
    "prlimit64": lambda a: {errno.EPERM} if a[0] % HIGH == 1 and a[2] else (),
    "sched_setaffinity": _of_the_first,
    "sched_setattr": _of_the_first,
    "sched_setparam": _of_the_first,
    "sched_setscheduler": _of_the_first,
    "setpriority": lambda a: {errno.EPERM} if a[0] % HIGH == 2 or (a[0] % HIGH < 2 and a[1] % HIGH == 1) else (),
    "ioprio_set": lambda a: {errno.EPERM} if a[0] % HIGH == 3 or (a[0] % HIGH in {1, 2} and a[1] % HIGH == 1) else (),
    "personality": lambda a: {errno.EPERM} if a[0] % HIGH not in {0, 0x40000, 0xFFFFFFFF} else (),
}
"""Refusals by arguments, written anew from the page: the errnos that any row of a call gives."""
NEWER: Final = {"quotactl_fd": 443, "memfd_secret": 447, "fchmodat2": 452, "open_tree_attr": 467}


def number_of(name: str) -> int:
    """Return the number of a call; negative if this architecture has no such call."""
    found = int(pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name))
    return NEWER.get(name, found) if found < 0 else found


NAMES: Final = {number_of(name): name for name in [*filters.CELL_REFUSED, *FOR_SOME_ARGUMENTS]}


def promised(number: int, arguments: list[int]) -> set[int]:
    """Return the answers that the filter may give: if two rows apply, either."""
    name = NAMES.get(number, "")
    if number > 469:
        return {bpf.errno_action(errno.ENOSYS)}
    if name in filters.CELL_REFUSED:
        return {bpf.errno_action(filters.CELL_REFUSED[name])}
    refusals = FOR_SOME_ARGUMENTS[name](arguments) if name in FOR_SOME_ARGUMENTS else ()
    return {bpf.errno_action(refusal) for refusal in refusals} or {bpf.ALLOW}


WORDS = st.one_of(
    st.integers(0, 64),
    st.integers(0, HIGH * HIGH - 1),
    st.sampled_from([0x5412, 0x541C, 0x5423, 0x40000, 0xFFFFFFFF, 0o4755, 0o2755, 0o102, 0o20200002]),
    st.integers(0, 63).map(lambda bit: 1 << bit),
)
ARGUMENTS = st.lists(st.one_of(WORDS, WORDS.map(lambda word: (word | HIGH) % (HIGH * HIGH))), min_size=6, max_size=6)


def test_the_cell_filter_gives_every_system_call_its_documented_result() -> None:
    """The filter is asked about every number, future ones included, with all argument bits clear and all set."""
    for number in range(HIGHEST):
        for arguments in ([0] * 6, [HIGH * HIGH - 1] * 6):
            assert bpf.run(FILTER, NATIVE, number, arguments) in promised(number, arguments), NAMES.get(number, number)


@given(st.sampled_from(sorted(FOR_SOME_ARGUMENTS)), ARGUMENTS)
@example("ioctl", [0, 0x5412 | HIGH, 0, 0, 0, 0])
@example("fcntl", [0, 1024, 0, 0, 0, 0])
@example("fcntl", [0, 1040 | HIGH, 0, 0, 0, 0])
@example("socket", [40, 1, 0, 0, 0, 0])
@example("socket", [40 | HIGH, 1, 0, 0, 0, 0])
@example("socket", [2, 3, 0, 0, 0, 0])
@example("socket", [2 | HIGH, 3, 0, 0, 0, 0])
@example("socket", [16, 3, 4, 0, 0, 0])
@example("personality", [0xFFFFFFFF, 0, 0, 0, 0, 0])
@example("personality", [0xFFFFFFFE, 0, 0, 0, 0, 0])
@example("personality", [0x80000000, 0, 0, 0, 0, 0])
@example("openat", [0, 0, os.O_CREAT, 0o4755, 0, 0])
@example("openat", [0, 0, 0, 0o4755, 0, 0])
@example("openat", [0, 0, 0o20200002, 0o2755, 0, 0])
@example("clone", [0x10000000 | 17, 0, 0, 0, 0, 0])
@example("unshare", [0x80, 0, 0, 0, 0, 0])
def test_a_conditional_system_call_is_judged_by_all_bits_of_its_arguments(name: str, arguments: list[int]) -> None:
    """Exactly the documented conditions hold, for any 64-bit arguments."""
    number = number_of(name)
    if number >= 0:
        assert bpf.run(FILTER, NATIVE, number, arguments) in promised(number, arguments)


def test_the_cell_filter_returns_kill_for_system_calls_of_other_architectures() -> None:
    """A 32-bit or x32 call has other numbers, so a list of native numbers would judge the wrong call."""
    foreign = I386 if NATIVE == X86_64 else ARM
    for number in range(470):
        assert bpf.run(FILTER, foreign, number, [0] * 6) == bpf.KILL
        if NATIVE == X86_64:
            assert bpf.run(FILTER, NATIVE, number | X32_BIT, [0] * 6) == bpf.KILL


def test_no_system_call_is_in_two_tables_of_the_cell_filter() -> None:
    """Each call is refused by exactly one table."""
    assert not filters.CELL_REFUSED.keys() & filters.CELL_REFUSED_WHERE.keys()
    assert filters.CELL_REFUSED_WHERE.keys() == FOR_SOME_ARGUMENTS.keys()
