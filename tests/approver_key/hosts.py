"""Programs at a terminal, each a process of its own: `python -m tests.approver_key.hosts NAME TOLD TELLS`.

A program reads what to do next from one pipe (a line a step) and tells facts on another (JSON, a line each), whose descriptors
are its arguments, so that its terminal is the person's alone. Started by root it goes on as uid 65534 without capabilities, as
dumpable as any program is; what it needs of our code is imported before that. `attacker` is the other process of the same user.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import json
import os
import re
import resource
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from aileron.approver_key import isolation
from aileron.model.failure import AileronError
from aileron.model.secret import Secret
from aileron_sandbox import kernel

UID: Final = 65534
TOLD, TELLS = (int(word) for word in sys.argv[2:]) if __name__ == "__main__" else (-1, -1)
_MAX_MAPPING: Final = 64 << 20
_ATTACH, _SEIZE, _DETACH, _TRACE_FORK = 16, 0x4206, 17, 0x2 | 0x4 | 0x8
_libc: Final = ctypes.CDLL(None, use_errno=True)


def become_ordinary() -> None:
    """Become uid 65534 if root; otherwise change nothing. The change clears dumpable, which an ordinary program is: prctl(2)."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(UID, UID, UID)
        os.setresuid(UID, UID, UID)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)


def tell(**facts: Any) -> None:
    """Write a line of facts for the test."""
    os.write(TELLS, json.dumps({**facts, "pid": os.getpid()}).encode() + b"\n")


def wait_told() -> str:
    """Return the next line from the test, or an empty string if the test has ended."""
    said = bytearray()
    while not said.endswith(b"\n") and (byte := os.read(TOLD, 1)):
        said += byte
    return said.decode().strip()


def _asked(**options: Any) -> Secret | None:
    try:
        typed = isolation.ask_passphrase("Passphrase", **options)
    except AileronError as error:
        tell(refused=error.failure.failure_class.value, message=error.failure.message)
        return None
    except BaseException as error:
        tell(ended=type(error).__name__)
        raise
    tell(typed=typed.reveal().decode("latin-1"))
    return typed


# What a person runs


def asks() -> int:
    """Ask for a passphrase in an isolated process. Told to, it goes on to the end with the passphrase in memory."""
    tell(begun=True)
    wait_told()

    def work() -> int:
        typed = _asked()
        wait_told()
        return 0 if typed is None else 7

    return isolation.isolated_process(work)


def asks_without_looking() -> int:
    """Do as `asks`, without the check for other readers: as if one came between that check and the wait."""
    isolation.check_nobody_reads = lambda descriptor: None
    return asks()


def asks_twice() -> int:
    """Ask for a new passphrase, twice."""
    tell(begun=True)
    wait_told()
    return isolation.isolated_process(lambda: 7 if _asked(twice=True) is not None else 0)


def touches() -> int:
    """Have a person do something other than typing, in an isolated process, until told to go on; then ask for a passphrase."""
    tell(begun=True)
    wait_told()

    def work() -> int:
        try:
            with isolation.untyped() as show:
                show("Touch it")
                wait_told()
        except BaseException as error:
            tell(ended=type(error).__name__)
            raise
        return 0 if _asked() is None else 7

    return isolation.isolated_process(work)


def asks_in_the_open() -> int:
    """Ask as an ordinary program does, without any protection: the control."""
    tell(begun=True)
    wait_told()
    terminal = os.open("/dev/tty", os.O_RDWR)
    os.write(terminal, b"Passphrase: ")
    typed = os.read(terminal, 4096)
    tell(typed=typed.decode().strip())
    wait_told()
    os.close(terminal)
    return 7


def asks_where_others_can_look() -> int:
    """Ask without isolating the process."""
    _asked()
    return 0


def is_alone() -> int:
    """Tell what differs in an isolated process; code after it runs once."""
    print("before, and still in a buffer", end="")
    outside = os.getpid()

    def inner() -> int:
        tell(
            dumpable=kernel.is_dumpable(),
            core=resource.getrlimit(resource.RLIMIT_CORE),
            outside=outside,
            parent=os.getppid(),
            again=isolation.isolated_process(os.getpid),
        )
        print(", inside", end="")
        return 5

    code = isolation.isolated_process(inner)
    tell(after=code)
    print(", after", flush=True)
    return code


def is_killed() -> int:
    """Have the child end by a signal of its own."""
    return isolation.isolated_process(lambda: os.kill(os.getpid(), signal.SIGUSR1) or 0)  # type: ignore[func-returns-value]


def waits() -> int:
    """Have the child wait to be ended, and tell how it was."""

    def work() -> int:
        try:
            tell(parent=os.getppid())
            for _ in range(1200):  # a signal that comes before a long sleep begins is handled after it
                time.sleep(0.05)
        except BaseException as error:
            tell(ended=type(error).__name__)
            raise
        return 0

    return isolation.isolated_process(work)


def shell() -> int:
    """Act as a shell with job control: run `asks` in a process group in the foreground, and return there itself when it stops."""
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        os._exit(asks())
    while True:
        _, status = os.waitpid(child, os.WUNTRACED)
        os.tcsetpgrp(0, os.getpgrp())
        if not os.WIFSTOPPED(status):
            tell(job="ended", code=os.waitstatus_to_exitcode(status))
            return 0
        tell(job="stopped", by=os.WSTOPSIG(status), **_terminal(0))
        if wait_told() == "fg":
            os.tcsetpgrp(0, child)
        os.killpg(child, signal.SIGCONT)


def _terminal(descriptor: int) -> dict[str, Any]:
    flags = termios.tcgetattr(descriptor)[3]
    return {"echo": bool(flags & termios.ECHO), "held": isolation.is_held(descriptor)}


# Another process of the same user


def attacker() -> int:
    """Do what each line says: a JSON list of a name and arguments. It ends with its input."""
    tell(begun=True)
    deeds: dict[str, Callable[..., Any]] = {
        "open": _open_memory,
        "search": _search,
        "ways": _ways,
        "trace": _trace,
        "terminal": _open_terminal,
        "reads": _read_terminal,
        "read": lambda: _got,
        "hold": lambda: fcntl.ioctl(_held[0], termios.TIOCEXCL),
    }
    while line := wait_told():
        name, *arguments = json.loads(line)
        tell(said=deeds[name](*arguments))
    return 0


_opened: dict[int, tuple[int, int]] = {}
_held: list[int] = []
_got: list[str] = []


def _open_memory(pid: int) -> str:
    try:
        _opened[pid] = (os.open(f"/proc/{pid}/mem", os.O_RDONLY), os.open(f"/proc/{pid}/maps", os.O_RDONLY))
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "ok"


def _search(needle: str) -> bool:
    """Return whether any opened memory holds the needle now. The request has it reversed, so that it does not match itself."""
    wanted = needle[::-1].encode()
    return any(_has(memory, maps, wanted) for memory, maps in _opened.values())


def _has(memory: int, maps: int, wanted: bytes) -> bool:
    os.lseek(maps, 0, os.SEEK_SET)
    said = b""
    while piece := os.read(maps, 1 << 16):
        said += piece
    for first, last in re.findall(rb"^([0-9a-f]+)-([0-9a-f]+) rw", said, re.MULTILINE):
        begin, end = int(first, 16), int(last, 16)
        with contextlib.suppress(OSError, OverflowError):  # unmapped meanwhile
            if end - begin <= _MAX_MAPPING and wanted in os.pread(memory, end - begin, begin):
                return True
    return False


def _ways(pid: int) -> dict[str, str]:
    """Try every way into a process. Return, for each, `ok` or the name of the error."""
    found = {}
    for name in ("mem", "maps", "environ"):
        found[name] = _tried(functools.partial(_open, f"/proc/{pid}/{name}"))
    found["fd"] = _tried(lambda: os.listdir(f"/proc/{pid}/fd"))
    found["ptrace"] = _tried(lambda: _ptrace(_ATTACH, pid, 0))
    if found["ptrace"] == "ok":
        os.waitpid(pid, 0x40000000)
        _ptrace(_DETACH, pid, 0)
    found["pidfd_getfd"] = _tried(lambda: _taken_descriptor(pid))
    return found


def _open(path: str) -> None:
    os.close(os.open(path, os.O_RDONLY))


def _tried(attempt: Callable[[], Any]) -> str:
    try:
        attempt()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "ok"


def _ptrace(request: int, pid: int, data: int) -> None:
    if _libc.ptrace(ctypes.c_long(request), ctypes.c_long(pid), ctypes.c_void_p(0), ctypes.c_void_p(data)) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")


def _taken_descriptor(pid: int) -> None:
    pidfd = os.pidfd_open(pid)
    try:
        taken = _libc.syscall(438, pidfd, 0, 0)  # pidfd_getfd(2), the same number everywhere
        if taken < 0:
            raise OSError(ctypes.get_errno(), "pidfd_getfd")
        os.close(taken)
    finally:
        os.close(pidfd)


def _trace(pid: int) -> str:
    """Trace the process and all that it starts, from a thread that continues it whenever it stops."""
    answer: list[str] = []
    seized = threading.Event()

    def follow() -> None:
        answer.append(_tried(lambda: _ptrace(_SEIZE, pid, _TRACE_FORK)))
        seized.set()
        while answer == ["ok"]:
            try:
                stopped, status = os.waitpid(-1, 0x40000000)
            except ChildProcessError:
                return
            if os.WIFSTOPPED(status):
                with contextlib.suppress(OSError):
                    _ptrace(7, stopped, 0)  # PTRACE_CONT

    threading.Thread(target=follow, daemon=True).start()
    seized.wait(10)
    return answer[0]


def _open_terminal(path: str) -> str:
    """Open another program's terminal, and close it again unless it is kept (`PATH keep`)."""
    path, _, keep = path.partition(" ")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    if keep:
        _held.append(descriptor)
    else:
        os.close(descriptor)
    return "ok"


def _read_terminal(how: str) -> str:
    """Read the kept terminal in the background: `waiting` in read(2), or polling it `again` and again."""

    def read() -> None:
        while True:
            with contextlib.suppress(BlockingIOError):
                if data := os.read(_held[0], 4096):
                    _got.append(data.decode())

    os.set_blocking(_held[0], how == "waiting")
    threading.Thread(target=read, daemon=True).start()
    return "ok"


HOSTS: Final[dict[str, Callable[[], int]]] = {
    function.__name__: function
    for function in (
        asks,
        asks_without_looking,
        asks_twice,
        asks_in_the_open,
        touches,
        asks_where_others_can_look,
        is_alone,
        is_killed,
        waits,
        shell,
        attacker,
    )
}

if __name__ == "__main__":
    become_ordinary()
    sys.exit(HOSTS[sys.argv[1]]())
