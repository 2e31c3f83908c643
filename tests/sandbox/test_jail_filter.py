"""The compiled filter, asked about every system call, beside the kernel's own answers."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable
from typing import Final, get_args

import pyseccomp
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aileron_sandbox import filters
from aileron_sandbox.policy import Profile
from tests.sandbox import bpf
from tests.sandbox.seen import Seen

X86_64, I386, AARCH64, ARM = 0xC000003E, 0x40000003, 0xC00000B7, 0x40000028  # linux/audit.h
NATIVE: Final = X86_64 if os.uname().machine == "x86_64" else AARCH64
X32_BIT: Final = 0x40000000
HIGHEST: Final = 600  # Linux 6.12 has 467 calls; the rest are those of kernels to come
HIGH: Final = 1 << 32
WATCHED: Final = filters.compile_network(watched=True)
PAIRS: Final = {profile: (WATCHED, filters.compile_profile(profile)) for profile in get_args(Profile)}
"""Both filters of each profile."""

PAST_EVERY_FILTER: Final = {335, 336} if NATIVE == X86_64 else set()
"""uretprobe and uprobe, which newer kernels let past every filter (__secure_computing, kernel/seccomp.c). They serve only the
kernel's own trampoline pages: from any other place the first is SIGILL and the second ENXIO.
"""

CLONE_VM, CLONE_THREAD, CLONE_NEWUSER, CLONE_NEWTIME = 0x100, 0x10000, 0x10000000, 0x80
CLONE_PIDFD, CLONE_PTRACE, CLONE_PARENT, CLONE_UNTRACED, CLONE_IO = 0x1000, 0x2000, 0x8000, 0x800000, 0x80000000
CLONE_NEW_ANY: Final = 0x7E020080
CLONE_REFUSED: Final = CLONE_NEW_ANY | CLONE_PIDFD | CLONE_PTRACE | CLONE_PARENT | CLONE_UNTRACED | CLONE_IO
O_REFUSED: Final = os.O_DIRECT | os.O_ASYNC | os.O_NOATIME
PROTECTIONS: Final = 0x7 if NATIVE == X86_64 else 0x37
MAP_REFUSED: Final = (HIGH * HIGH - 1) & ~(
    0x10 | 0x20 | 0x40 | 0x800 | 0x1000 | 0x4000 | 0x8000 | 0x10000 | 0x20000 | 0x100000
)
FOR_SOME_ARGUMENTS: Final[dict[str, Callable[[list[int]], bool]]] = {
    "pipe2": lambda a: a[1] % HIGH in {0, os.O_CLOEXEC, os.O_NONBLOCK, os.O_CLOEXEC | os.O_NONBLOCK},
    "open": lambda a: not a[1] & O_REFUSED,
    "openat": lambda a: not a[2] & O_REFUSED,
    "close_range": lambda a: a[2] in {0, 4},
    "fcntl": lambda a: a[1] in {0, 1, 2, 3, 5, 6, 7, 1030, 1032} or (a[1] == 4 and not a[2] & O_REFUSED),
    "ioctl": lambda a: a[1] % HIGH in {0x5451, 0x5450, 0x5401, 0x541B, 0x5421, 0x5413},
    "renameat2": lambda a: a[4] in {0, 1},
    "fallocate": lambda a: a[1] % HIGH < 4,
    "fadvise64": lambda a: a[3] < 3,
    "mmap": lambda a: not a[2] & ~PROTECTIONS and a[3] & MAP_REFUSED in {1, 2},
    "mprotect": lambda a: not a[2] & ~PROTECTIONS,
    "mremap": lambda a: a[3] in {0, 1},
    "madvise": lambda a: a[2] in {*range(5), 8, 10, 11, *range(14, 20), 102, 103},
    "membarrier": lambda a: a[0] in {0, 8, 16},
    "futex": lambda a: a[1] % HIGH & ~0x180 in {0, 1, 3, 4, 5, 9, 10},
    "arch_prctl": lambda a: a[0] in {0x1002, 0x1003},
    "clock_gettime": lambda a: a[0] % HIGH < 16,
    "clock_getres": lambda a: a[0] % HIGH < 16,
    "clock_nanosleep": lambda a: a[0] % HIGH < 16,
    "clone": lambda a: bool(a[0] & CLONE_THREAD) and not a[0] & CLONE_REFUSED,
    "prlimit64": lambda a: a[0] == 0 and a[2] == 0,
    "prctl": lambda a: a[0] in {15, 16},
    "socketpair": lambda a: a[0] == 1 and a[1] % HIGH & ~0o2004000 == 1,
    "recvfrom": lambda a: not a[3] % HIGH & ~0x4162,
    "sendto": lambda a: a[4] == 0 and not a[3] % HIGH & ~0x4040,
    "getsockopt": lambda a: a[1] == 1 and a[2] in {3, 4, 7, 8, 30, 38, 39},
}
"""Conditions on arguments, written anew from the page, bit by bit."""
ASKED_ABOUT: Final[dict[str, Callable[[list[int]], bool]]] = {
    "socket": lambda a: a[0] in {2, 10},
    "connect": lambda a: True,
    "sendto": lambda a: a[4] != 0,
    "sendmsg": lambda a: a[0] != 63,
    "sendmmsg": lambda a: True,
    "setsockopt": lambda a: a[1] == 6,
}


def number_of(name: str) -> int:
    """Return the number of a call; negative if this architecture has no such call."""
    return int(pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name))


NAMES: Final = {
    number_of(name): name
    for name in [
        *filters.ALLOWED,
        *itertools.chain(*filters.ALLOWED_MORE.values()),
        *filters.ANSWERED,
        *filters.KILLED,
        *FOR_SOME_ARGUMENTS,
        *ASKED_ABOUT,
    ]
}


def promised(profile: Profile, number: int, arguments: list[int]) -> int:
    """Return the answer that docs/reference/jail.md promises for a call, in the form that a filter returns."""
    name = NAMES.get(number, "")
    if name == filters.ENDS:
        return bpf.NOTIFY
    if name in (*filters.ALLOWED, *filters.ALLOWED_MORE[profile]):
        return bpf.ALLOW
    if name in filters.KILLED:
        return bpf.KILL
    if name in ASKED_ABOUT and ASKED_ABOUT[name](arguments):
        return bpf.NOTIFY
    if name == "clone" and "fork" in filters.ALLOWED_MORE[profile] and not arguments[0] & CLONE_REFUSED:
        return bpf.ALLOW
    if name in FOR_SOME_ARGUMENTS and FOR_SOME_ARGUMENTS[name](arguments):
        return bpf.ALLOW
    return bpf.errno_action(filters.ANSWERED.get(name, errno.EPERM))


def answered(profile: Profile, arch: int, number: int, arguments: list[int]) -> int:
    """Return the kernel's answer to a call: the stricter answer of the two filters."""
    return bpf.strictest([bpf.run(program, arch, number, arguments) for program in PAIRS[profile]])


PROFILES = st.sampled_from(sorted(PAIRS))
every_profile = pytest.mark.parametrize("profile", sorted(PAIRS))
WORDS = st.one_of(
    st.integers(0, 64),
    st.integers(0, HIGH * HIGH - 1),
    st.sampled_from([0x5412, 0x541C, 0x5401, 0x541B, 1030, 1032, 1033, CLONE_THREAD, CLONE_NEWUSER, CLONE_NEWTIME]),
    st.integers(0, 63).map(lambda bit: 1 << bit),
)
ARGUMENTS = st.lists(st.one_of(WORDS, WORDS.map(lambda word: (word | HIGH) % (HIGH * HIGH))), min_size=6, max_size=6)


@pytest.mark.abuse_case("J12")
@every_profile
def test_the_jail_filter_gives_every_system_call_its_documented_result(profile: Profile) -> None:
    """Each number, future ones included, is allowed, passed to the template, refused or killed."""
    for number in range(HIGHEST):
        for arguments in ([0] * 6, [HIGH * HIGH - 1] * 6):
            expected = promised(profile, number, arguments)
            assert answered(profile, NATIVE, number, arguments) == expected, NAMES.get(number, number)


@pytest.mark.abuse_case("J12", "J14")
@given(PROFILES, st.sampled_from(sorted({*FOR_SOME_ARGUMENTS, *ASKED_ABOUT})), ARGUMENTS)
@example("python", "ioctl", [0, 0x5412 | HIGH, 0, 0, 0, 0])
@example("python", "ioctl", [0, 0x541C | HIGH, 0, 0, 0, 0])
@example("python", "fcntl", [0, 8, 0, 0, 0, 0])
@example("python", "fcntl", [0, 1030 | HIGH, 0, 0, 0, 0])
@example("python", "clone", [CLONE_THREAD | CLONE_NEWUSER, 0, 0, 0, 0, 0])
@example("python", "clone", [CLONE_THREAD | CLONE_NEWTIME, 0, 0, 0, 0, 0])
@example("python", "sendto", [0, 0, 0, 1, 0, 0])
@example("python", "sendto", [0, 0, 0, 0x4040, 0, 0])
@example("python", "recvfrom", [0, 0, 0, 1, 0, 0])
@example("python", "mmap", [0, 0, 3, 0x22, 0, 0])
@example("python", "mmap", [0, 0, 3, 0x122, 0, 0])
@example("python", "mmap", [0, 0, 3, 0x40022, 0, 0])
@example("python", "mmap", [0, 0, 3, 0x23, 0, 0])
@example("python", "futex", [0, 6 | 128, 0, 0, 0, 0])
@example("python", "fcntl", [0, 4, os.O_ASYNC, 0, 0, 0])
@example("python", "pipe2", [0, 0x80, 0, 0, 0, 0])
@example("python", "clone", [CLONE_VM, 0, 0, 0, 0, 0])
@example("python", "clone", [CLONE_VM | CLONE_THREAD, 0, 0, 0, 0, 0])
@example("elf-subprocess", "clone", [CLONE_NEWUSER, 0, 0, 0, 0, 0])
@example("python", "prlimit64", [0, 0, 1, 0, 0, 0])
@example("python", "sendto", [0, 0, 0, 0, HIGH, 0])
@example("python", "sendmsg", [63, 0, 0, 0, 0, 0])
@example("python", "sendmsg", [63 | HIGH, 0, 0, 0, 0, 0])
@example("python", "setsockopt", [0, 6 | HIGH, 0, 0, 0, 0])
def test_a_conditional_system_call_is_judged_by_all_bits_of_its_arguments(
    profile: Profile, name: str, arguments: list[int]
) -> None:
    """Exactly the documented conditions hold, for any 64-bit arguments."""
    number = number_of(name)
    assert answered(profile, NATIVE, number, arguments) == promised(profile, number, arguments)


@given(PROFILES, st.integers(0, HIGH * HIGH - 1))
@example("python", 2 | HIGH)
@example("python", 10 | HIGH)
@example("python", 11)
def test_every_socket_family_is_refused_or_passed_to_the_template(profile: Profile, family: int) -> None:
    """The kernel reads 32 bits of the family but the filter 64: the upper bits allow nothing."""
    expected = bpf.NOTIFY if family in {2, 10} else bpf.errno_action(errno.EACCES)
    assert answered(profile, NATIVE, number_of("socket"), [family, 1, 0, 0, 0, 0]) == expected


def test_network_calls_are_refused_if_the_template_cannot_judge_them() -> None:
    """The alternative filter answers EACCES to exactly the calls that the template would otherwise judge."""
    unwatched = filters.compile_network(watched=False)
    for number in range(HIGHEST):
        for arguments in ([2, 6, 0, 0, 1, 0], [1, 0, 0, 0, 0, 0], [63, 0, 0, 0, 0, 0]):
            asked = bpf.run(WATCHED, NATIVE, number, arguments) == bpf.NOTIFY and NAMES.get(number) != filters.ENDS
            expected = bpf.errno_action(errno.EACCES) if asked else bpf.ALLOW
            assert bpf.run(unwatched, NATIVE, number, arguments) == expected
    for name in ASKED_ABOUT:
        assert bpf.run(WATCHED, NATIVE, number_of(name), [2, 6, 0, 0, 1, 0]) == bpf.NOTIFY


@given(PROFILES, st.integers(0, HIGH - 1), ARGUMENTS)
def test_the_jail_filter_returns_kill_for_every_system_call_of_another_architecture(
    profile: Profile, number: int, arguments: list[int]
) -> None:
    """A harmless call's number there may be that of another call here."""
    for arch in {X86_64, I386, AARCH64, ARM} - {NATIVE}:
        assert answered(profile, arch, number, arguments) == bpf.KILL


@pytest.mark.abuse_case("J3")
@pytest.mark.skipif(NATIVE != X86_64, reason="x32 is an ABI of x86-64")
@given(PROFILES, st.integers(0, HIGHEST), ARGUMENTS)
def test_the_jail_filter_returns_kill_for_every_x32_system_call(
    profile: Profile, number: int, arguments: list[int]
) -> None:
    """x32 calls come under the native architecture, with a bit in the number."""
    assert answered(profile, NATIVE, number | X32_BIT, arguments) == bpf.KILL


@given(PROFILES, st.integers(HIGHEST, HIGH - 1), ARGUMENTS)
@example("python", HIGH - 1, [0] * 6)
def test_no_unknown_call_number_is_allowed(profile: Profile, number: int, arguments: list[int]) -> None:
    """Future kernels may give such a number a meaning."""
    assert answered(profile, NATIVE, number, arguments) in {bpf.errno_action(errno.EPERM), bpf.KILL}


@every_profile
def test_without_namespaces_threads_of_other_processes_cannot_be_signalled(profile: Profile) -> None:
    """The filter of that mode differs only in tgkill, which could reach other processes."""
    other = filters.compile_profile(profile, "landlock")
    for number in range(HIGHEST):
        for arguments in ([0] * 6, [HIGH * HIGH - 1] * 6):
            expected = bpf.run(PAIRS[profile][1], NATIVE, number, arguments)
            if NAMES.get(number) in filters.ONLY_ALONE:
                expected = bpf.errno_action(errno.EPERM)
            assert bpf.run(other, NATIVE, number, arguments) == expected, NAMES.get(number, number)


@pytest.mark.abuse_case("J12")
@pytest.mark.jail
def test_the_kernels_answers_in_a_jail_match_the_filter(jailed: Callable[..., Seen]) -> None:
    """The probe makes every call that the filter refuses with an errno, in a real jail."""
    refused = [
        number
        for number in range(HIGHEST)
        if promised("python", number, [0] * 6) not in {bpf.ALLOW, bpf.KILL, bpf.NOTIFY}
        and NAMES.get(number) not in FOR_SOME_ARGUMENTS
        and number not in PAST_EVERY_FILTER
    ]

    got = jailed("raw_all", refused).report["loot"]

    assert len(refused) > 300
    assert got == {str(number): _errno_name(number) for number in refused}


def _errno_name(number: int) -> str:
    return errno.errorcode[promised("python", number, [0] * 6) & 0xFFFF]
