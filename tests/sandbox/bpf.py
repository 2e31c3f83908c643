"""Interpreter for the classic BPF that the kernel runs on a system call: it asks a filter about calls that no test should make.

It knows only what seccomp(2) allows and libseccomp emits. Anything else is a ValueError, so that an unreadable filter is not
taken for one that refuses. test_jail_filter.py compares the kernel's own answers with these.

Source: linux/filter.h, linux/seccomp.h.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final

__all__ = ["ALLOW", "KILL", "NOTIFY", "errno_action", "run", "strictest"]

ALLOW: Final = 0x7FFF0000
KILL: Final = 0x80000000
NOTIFY: Final = 0x7FC00000
_ERRNO: Final = 0x00050000
_DATA: Final = struct.Struct("<iIQ6Q")  # nr, arch, instruction pointer, arguments
_INSTRUCTION: Final = struct.Struct("<HBBI")
_LOAD, _JUMP, _AND, _RETURN = 0x20, 0x05, 0x54, 0x06
_TESTS: Final[dict[int, Callable[[int, int], bool]]] = {
    0x15: lambda a, k: a == k,
    0x25: lambda a, k: a > k,
    0x35: lambda a, k: a >= k,
    0x45: lambda a, k: bool(a & k),
}


def errno_action(number: int) -> int:
    """Return the value with which a filter refuses a call with this errno."""
    return _ERRNO | number


def strictest(actions: Sequence[int]) -> int:
    """Return the answer that the kernel takes if several filters answer: the lowest, read as a signed number."""
    return min(actions, key=lambda action: action - (1 << 32) if action & 0x80000000 else action)


def run(program: bytes, arch: int, number: int, arguments: Sequence[int]) -> int:
    """Return the filter's answer to a call. Each step moves forward by at least one instruction: BPF has no loops."""
    padded = [*arguments, *[0] * (6 - len(arguments))]
    data = _DATA.pack(struct.unpack("<i", struct.pack("<I", number))[0], arch, 0, *padded)
    instructions = list(_INSTRUCTION.iter_unpack(program))
    accumulator = at = 0
    while True:
        code, if_true, if_false, k = instructions[at]
        at += 1
        if code == _RETURN:
            return int(k)
        if code == _LOAD:
            accumulator = int.from_bytes(data[k : k + 4], "little")
        elif code == _AND:
            accumulator &= k
        elif code == _JUMP:
            at += k
        elif code in _TESTS:
            at += if_true if _TESTS[code](accumulator, k) else if_false
        else:
            raise ValueError(f"instruction {code:#x} at {at - 1}")
