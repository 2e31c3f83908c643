"""Attempts inside a cell: each answers with a value or the name of an errno. One JSON list in, one out.

The system's Python runs it in a cell, and outside for the positive control. It knows nothing of the product.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable

LIBC = ctypes.CDLL(None, use_errno=True)


def checked(result: int) -> int:
    """Return the result of a C library function, or raise OSError with its errno."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def forked(action: object) -> object:
    """Run the attempt in a process of its own, so that its changes end with it."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, json.dumps(outcome(action)).encode())
        os._exit(0)
    os.close(write)
    with open(read, encoding="utf-8") as file:
        said = file.read()
    _, status = os.waitpid(pid, 0)
    return json.loads(said) if said else f"signal {os.WTERMSIG(status)}"


def outcome(action: object) -> object:
    """Return the action's value, or the name of its error."""
    try:
        return action()  # type: ignore[operator]
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))


def call(number: int, *arguments: int) -> int:
    """Make a raw system call."""
    return checked(LIBC.syscall(number, *(ctypes.c_ulong(argument) for argument in arguments)))


def unshare(flags: int) -> object:
    """Create new namespaces."""
    return forked(lambda: checked(LIBC.unshare(flags)))


def clone(flags: int) -> object:
    """Make a child in new namespaces with the older call (56 of x86-64, 220 of arm64)."""

    def attempt() -> str:
        pid = call(56 if os.uname().machine == "x86_64" else 220, flags | signal.SIGCHLD, 0, 0, 0, 0)
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        return "ok"

    return attempt()


def mount(path: str) -> object:
    """Mount a tmpfs on a directory."""
    return forked(lambda: checked(LIBC.mount(b"tmpfs", path.encode(), b"tmpfs", 0, None)))


def new_socket(family: int, kind: int, protocol: int = 0) -> str:
    """Make a socket of a family."""
    socket.socket(family, kind, protocol).close()
    return "ok"


def connect_abstract(name: str) -> str:
    """Connect to an abstract socket."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\0" + name)
    return "ok"


def connect_unix(path: str) -> str:
    """Connect to a socket in the file system."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
    return "ok"


def read(path: str) -> str:
    """Return the text of a file."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def listed(path: str) -> list[str]:
    """Return the names in a directory."""
    return sorted(os.listdir(path))


def write(path: str) -> str:
    """Make a file, or truncate it."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644))
    return "ok"


def open_to_write(path: str) -> str:
    """Open a file for writing without changing it."""
    os.close(os.open(path, os.O_WRONLY))
    return "ok"


def chmod(path: str, mode: int) -> str:
    """Change the mode of a file."""
    os.chmod(path, mode)
    return oct(os.stat(path).st_mode & 0o7777)


def make(path: str, mode: int) -> str:
    """Make a new file with this mode, ignoring the umask."""
    os.umask(0)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
    return oct(os.stat(path).st_mode & 0o7777)


def rename(source: str, target: str) -> str:
    """Move a file to another directory."""
    os.rename(source, target)
    return "ok"


def attach(pid: int) -> object:
    """Attach to a process with PTRACE_ATTACH."""
    return forked(lambda: checked(LIBC.ptrace(16, pid, None, None)))


def attach_child() -> object:
    """Attach to a child of this process, as a debugger does."""
    child = subprocess.Popen(["sleep", "30"])
    try:
        return forked(lambda: attach_and_leave(child.pid))
    finally:
        child.kill()
        child.wait()


def attach_and_leave(pid: int) -> str:
    """Attach to a process; a tracer that ends lets go of what it traces."""
    checked(LIBC.ptrace(16, pid, None, None))
    os.waitpid(pid, 0)
    return "ok"


def kill(pid: int, number: int) -> str:
    """Send a signal."""
    os.kill(pid, number)
    return "ok"


def terminal_input(command: int) -> object:
    """Make an ioctl on a terminal of this process's own."""
    import fcntl

    master, slave = os.openpty()
    try:
        return outcome(lambda: fcntl.ioctl(slave, command, b"x") and "ok")
    finally:
        os.close(master)
        os.close(slave)


def descriptors() -> list[int]:
    """Return the open descriptors, except the one that reads the directory."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            os.fstat(int(name))
            found.append(int(name))
    return sorted(found)


def status(name: str) -> str:
    """Return the value of a line of /proc/self/status."""
    with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
        return next(line.split(None, 1)[1].strip() for line in file if line.startswith(name + ":"))


def writable_in_proc() -> list[str]:
    """Return every file in /proc, outside those of processes, that can be opened for writing."""
    found = []
    for top, directories, files in os.walk("/proc"):
        if top == "/proc":
            directories[:] = [
                name for name in directories if not name.isdigit() and name not in ("self", "thread-self", "net")
            ]
        for name in files:
            path = os.path.join(top, name)
            if os.path.islink(path):
                continue
            with contextlib.suppress(OSError):
                os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
                found.append(path)
    return found


def limit(kind: int) -> int:
    """Return the hard limit, up to which a program can raise the soft one."""
    return resource.getrlimit(kind)[1]


def forks(most: int) -> int:
    """Return how many children there can be at once."""
    wait, end = os.pipe()
    made: list[int] = []
    try:
        while len(made) < most:
            pid = os.fork()
            if pid == 0:
                os.close(end)
                os.read(wait, 1)
                os._exit(0)
            made.append(pid)
    except BlockingIOError:  # EAGAIN
        pass
    os.close(end)
    for pid in made:
        os.waitpid(pid, 0)
    return len(made)


def timers(most: int) -> int:
    """Return how many timers there can be at once, timer_create(2)."""
    made = 0
    timer = ctypes.c_void_p()
    while made < min(most, 200_000) and LIBC.timer_create(1, None, ctypes.byref(timer)) == 0:
        made += 1
    return made


def facts() -> dict[str, object]:
    """Return the ids, names and environment of this process."""
    return {
        "uid": os.getuid(),
        "gid": os.getgid(),
        "host": os.uname().nodename,
        "folder": os.getcwd(),
        "umask": os.umask(0),
        "parent": os.getppid(),
        "environment": dict(os.environ),
    }


def personality(number: int) -> object:
    """Set the personality of a process made for it."""
    return forked(lambda: checked(LIBC.personality(ctypes.c_ulong(number))))


def lease(path: str, command: int, kind: int) -> str:
    """Take a lease on a file opened for reading, or on a directory, by fcntl(2) itself (72 of x86-64, 25 of arm64)."""
    fd = os.open(path, os.O_RDONLY)
    try:
        call(72 if os.uname().machine == "x86_64" else 25, fd, command, kind)
    finally:
        os.close(fd)
    return "ok"


def lock(path: str) -> str:
    """Lock a file that may be written, exclusively."""
    import fcntl

    with open(path, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return "ok"


def rule(what: str, pid: int) -> object:
    """Set one property of a process; 0 is a process that is made for it."""
    ioprio_set = 251 if os.uname().machine == "x86_64" else 30
    attempts: dict[str, Callable[[], object]] = {
        "affinity": lambda: os.sched_setaffinity(pid, os.sched_getaffinity(0)),
        "scheduler": lambda: os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0)),
        "parameters": lambda: os.sched_setparam(pid, os.sched_param(0)),
        "niceness": lambda: os.setpriority(os.PRIO_PROCESS, pid, 10),
        "niceness of the group": lambda: os.setpriority(os.PRIO_PGRP, pid, 10),
        "I/O priority": lambda: call(ioprio_set, 1, pid, 3 << 13),
        "a limit": lambda: resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0)),
        "who goes first": lambda: out_of_memory_score(900, pid or os.getpid()),
    }
    return forked(lambda: (attempts[what](), "ok")[1])


def out_of_memory_score(score: int, pid: int = 0) -> str:
    """Set a process's score for the out-of-memory killer: a greater number goes first."""
    with open(f"/proc/{pid or os.getpid()}/oom_score_adj", "w", encoding="ascii") as file:
        file.write(str(score))
    return "ok"


def niceness_of_all() -> object:
    """Set the niceness of each process of this user."""
    return forked(lambda: os.setpriority(os.PRIO_USER, 0, 10))


def priority() -> list[int]:
    """Return the scheduling policy and the niceness."""
    return [os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)]


def better() -> object:
    """Lower the niceness of a process made for it, which would raise its priority."""
    return forked(lambda: os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) - 1))


def namespaces_of(pid: str) -> dict[str, str]:
    """Return each namespace of a process as the text of its link."""
    return {
        name: os.readlink(f"/proc/{pid}/ns/{name}") for name in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")
    }


def use_memory(size: int) -> str:
    """Allocate memory and return its size."""
    kept = b"x" * size
    return f"{len(kept)}"


if __name__ == "__main__":
    attempts = json.loads(sys.argv[1])
    answers = [outcome(lambda name=name, rest=rest: globals()[name](*rest)) for name, *rest in attempts]
    sys.stdout.write(json.dumps(answers))
