"""The compiled filter, asked about every call there is, and the kernel's own answers beside it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Final

import pyseccomp
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aileron_sandbox import filters
from tests.sandbox import bpf
from tests.sandbox.seen import Seen

X86_64, I386, AARCH64, ARM = 0xC000003E, 0x40000003, 0xC00000B7, 0x40000028  # linux/audit.h
NATIVE: Final = X86_64 if os.uname().machine == "x86_64" else AARCH64
X32_BIT: Final = 0x40000000
HIGHEST: Final = 600  # Linux 6.12 has 467 calls; the rest are those of kernels to come
FILTER: Final = filters.compile_python()
HIGH: Final = 1 << 32

PAST_EVERY_FILTER: Final = {335, 336} if NATIVE == X86_64 else set()
"""uretprobe and uprobe, which newer kernels let past every filter (__secure_computing, kernel/seccomp.c). They serve only the
kernel's own trampoline pages: from anywhere else the first is SIGILL and the second ENXIO."""

CLONE_VM, CLONE_THREAD, CLONE_NEWUSER, CLONE_NEWTIME = 0x100, 0x10000, 0x10000000, 0x80
FOR_SOME_ARGUMENTS: Final[dict[str, Callable[[list[int]], bool]]] = {
    "clone": lambda a: bool(a[0] & CLONE_THREAD) and not a[0] & 0x7E020080,
    "prlimit64": lambda a: a[0] == 0 and a[2] == 0,
    "fcntl": lambda a: a[1] <= 7 or a[1] in {1030, 1032},
    "ioctl": lambda a: a[1] % HIGH in {0x5451, 0x5450, 0x5401, 0x541B, 0x5421, 0x5413},
    "prctl": lambda a: a[0] in {15, 16},
    "socketpair": lambda a: a[0] == 1,
    "sendto": lambda a: a[4] == 0,
}


def number_of(name: str) -> int:
    """Negative where this architecture has no such call."""
    return int(pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name))


NAMES: Final = {
    number_of(name): name for name in [*filters.ALLOWED, *filters.ANSWERED, *filters.KILLED, *FOR_SOME_ARGUMENTS]
}


def promised(number: int, arguments: list[int]) -> int:
    """What docs/reference/jail.md says of a call, as a filter would return it."""
    name = NAMES.get(number, "")
    if name in filters.ALLOWED:
        return bpf.ALLOW
    if name in filters.KILLED:
        return bpf.KILL
    if name in FOR_SOME_ARGUMENTS and FOR_SOME_ARGUMENTS[name](arguments):
        return bpf.ALLOW
    return bpf.errno_action(filters.ANSWERED.get(name, errno.EPERM))


WORDS = st.one_of(
    st.integers(0, 64),
    st.integers(0, HIGH * HIGH - 1),
    st.sampled_from([0x5412, 0x541C, 0x5401, 0x541B, 1030, 1032, 1033, CLONE_THREAD, CLONE_NEWUSER, CLONE_NEWTIME]),
)
ARGUMENTS = st.lists(st.one_of(WORDS, WORDS.map(lambda word: (word | HIGH) % (HIGH * HIGH))), min_size=6, max_size=6)


def test_every_call_gets_the_answer_that_is_published() -> None:
    """Allowed, refused or killed: number by number, also those of kernels to come, with no arguments and with all bits set."""
    for number in range(HIGHEST):
        for arguments in ([0] * 6, [HIGH * HIGH - 1] * 6):
            assert bpf.run(FILTER, NATIVE, number, arguments) == promised(number, arguments), NAMES.get(number, number)


@given(st.sampled_from(sorted(FOR_SOME_ARGUMENTS)), ARGUMENTS)
@example("ioctl", [0, 0x5412 | HIGH, 0, 0, 0, 0])
@example("ioctl", [0, 0x541C | HIGH, 0, 0, 0, 0])
@example("fcntl", [0, 8, 0, 0, 0, 0])
@example("fcntl", [0, 1030 | HIGH, 0, 0, 0, 0])
@example("clone", [CLONE_THREAD | CLONE_NEWUSER, 0, 0, 0, 0, 0])
@example("clone", [CLONE_THREAD | CLONE_NEWTIME, 0, 0, 0, 0, 0])
@example("clone", [CLONE_VM, 0, 0, 0, 0, 0])
@example("clone", [CLONE_VM | CLONE_THREAD, 0, 0, 0, 0, 0])
@example("prlimit64", [0, 0, 1, 0, 0, 0])
@example("sendto", [0, 0, 0, 0, HIGH, 0])
def test_a_call_that_depends_on_its_arguments_depends_on_all_their_bits(name: str, arguments: list[int]) -> None:
    """The table's conditions and no others, for any sixty-four bits."""
    number = number_of(name)
    assert bpf.run(FILTER, NATIVE, number, arguments) == promised(number, arguments)


@given(st.integers(0, HIGH - 1), ARGUMENTS)
def test_no_other_architecture_gets_past_the_first_instructions(number: int, arguments: list[int]) -> None:
    """Native entries only: the number of a harmless call there may be that of another call here."""
    for arch in {X86_64, I386, AARCH64, ARM} - {NATIVE}:
        assert bpf.run(FILTER, arch, number, arguments) == bpf.KILL


@pytest.mark.skipif(NATIVE != X86_64, reason="x32 is an ABI of x86-64")
@given(st.integers(0, HIGHEST), ARGUMENTS)
def test_no_x32_call_gets_past_either(number: int, arguments: list[int]) -> None:
    """x32 calls come under the native architecture, with a bit in the number."""
    assert bpf.run(FILTER, NATIVE, number | X32_BIT, arguments) == bpf.KILL


@given(st.integers(HIGHEST, HIGH - 1), ARGUMENTS)
@example(HIGH - 1, [0] * 6)
def test_no_number_that_is_no_call_is_allowed(number: int, arguments: list[int]) -> None:
    """Refused or killed, whatever the kernel would make of it."""
    assert bpf.run(FILTER, NATIVE, number, arguments) in {bpf.errno_action(errno.EPERM), bpf.KILL}


@pytest.mark.jail
def test_the_kernel_refuses_in_a_jail_what_the_filter_says_it_does(jailed: Callable[..., Seen]) -> None:
    """Every number that is neither allowed nor killed, made for real: the answers are the published ones."""
    refused = [
        number
        for number in range(HIGHEST)
        if promised(number, [0] * 6) not in {bpf.ALLOW, bpf.KILL}
        and NAMES.get(number) not in FOR_SOME_ARGUMENTS
        and number not in PAST_EVERY_FILTER
    ]

    got = jailed("raw_all", refused).report["loot"]

    assert len(refused) > 300
    assert got == {str(number): _errno_name(number) for number in refused}


def _errno_name(number: int) -> str:
    return errno.errorcode[promised(number, [0] * 6) & 0xFFFF]
