"""Tries of the attack suite, several in each function; main() of tests/sandbox/probes/attempts.py runs them.

They run in a jail or, for the control, in an ordinary process. Standard library only; the returned value is reported as JSON.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import select
import socket
import struct
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)
X86_64 = os.uname().machine == "x86_64"


def outcome(act):
    """Return `ok`, or the name of the errno."""
    try:
        act()
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))
    except (RuntimeError, MemoryError) as error:
        return type(error).__name__
    return "ok"


def call(number, *arguments):
    """Make a raw system call; OSError with its errno."""
    result = libc.syscall(ctypes.c_long(number), *(ctypes.c_ulong(value % (1 << 64)) for value in arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), "syscall")
    return result


def look_at(paths):
    """Try open, stat and listdir of each path."""
    got = {}
    for path in paths:
        got[f"open {path}"] = outcome(lambda path=path: os.close(os.open(path, os.O_RDONLY)))
        got[f"stat {path}"] = outcome(lambda path=path: os.stat(path))
        got[f"list {path}"] = outcome(lambda path=path: os.listdir(path))
    return got


def write_at(paths):
    """Try to create a file in each of these folders."""
    return {path: outcome(lambda path=path: open(path.rstrip("/") + "/planted", "w").close()) for path in paths}


def ways_out(target):
    """Make symbolic links, hard links and chains of dots that end at a file of the host, and try to read through each."""
    os.symlink(target, "/tmp/absolute")
    os.symlink("../" * 40 + target.lstrip("/"), "/tmp/relative")
    os.symlink("/tmp/absolute", "/tmp/twice")
    os.symlink("/", "/tmp/root")
    paths = {
        "an absolute link": "/tmp/absolute",
        "a relative link": "/tmp/relative",
        "a link to a link": "/tmp/twice",
        "a link to the root": "/tmp/root" + target,
        "dots": "/tmp" + "/.." * 40 + target,
        "the root of /proc/self": "/proc/self/root" + target,
        "the root of /proc/1": "/proc/1/root" + target,
        "its working directory": "/proc/self/cwd/../../.." + target,
        "a descriptor of /proc": "/proc/self/fd/0",
    }
    got = {what: outcome(lambda path=path: os.close(os.open(path, os.O_RDONLY))) for what, path in paths.items()}
    got["a hard link"] = outcome(lambda: os.link(target, "/tmp/hard"))
    folder = os.open("/", os.O_RDONLY)
    got["dots from a descriptor of the root"] = outcome(lambda: os.open("../" * 9 + target, os.O_RDONLY, dir_fd=folder))
    return got


def move_mounts():
    """Try to rename, remove or replace what something is mounted on."""
    return {
        "rename the scratch space": outcome(lambda: os.rename("/w/tmp", "/w/other")),
        "remove the scratch space": outcome(lambda: os.rmdir("/w/tmp")),
        "rename the program's folder": outcome(lambda: os.rename("/app", "/other")),
        "replace the program": outcome(lambda: os.replace(made("/tmp/other"), "/app/connector")),
        "remove the program": outcome(lambda: os.unlink("/app/connector")),
        "truncate the program": outcome(lambda: os.truncate("/app/connector", 0)),
        "open the program for writing": outcome(lambda: os.open("/app/connector", os.O_RDWR)),
        "a link where the devices are": outcome(lambda: os.symlink("/tmp", "/dev/shm")),
        "a file where /proc would be": outcome(lambda: os.mkdir("/proc")),
    }


def made(path):
    """Make a file, and return its path."""
    with open(path, "w") as file:
        file.write("x")
    return path


def run_a_setuid_program():
    """Make a program with the setuid bit in the scratch space, and try to execute, map and load it."""
    fd = os.open("/tmp/setuid", os.O_CREAT | os.O_WRONLY, 0o6755)
    os.write(fd, b"#!/bin/true\n")
    os.close(fd)
    got = {"execute it": outcome(lambda: os.execv("/tmp/setuid", ["setuid"]))}
    got["map it as code"] = outcome(lambda: mmap.mmap(os.open("/tmp/setuid", os.O_RDONLY), 8, prot=5))
    got["give it the bit afterwards"] = outcome(lambda: os.chmod("/tmp/setuid", 0o6755))
    got["load it as a library"] = "ok" if loads("/tmp/setuid") else "refused"
    return got


def loads(path):
    """Return whether the loader accepts the file as a library."""
    try:
        ctypes.CDLL(path)
    except OSError:
        return False
    return True


def fill(path, limit):
    """Write files until a write is refused or `limit` is reached. Return the number of bytes written and the errno."""
    written, number = 0, 0
    while written < limit:
        try:
            with open(f"{path}/{number}", "wb") as file:
                while written < limit:
                    written += file.write(b"x" * (1 << 20))
        except OSError as error:
            if error.errno != errno.EFBIG:
                return [written, errno.errorcode[error.errno]]
        number += 1
    return [written, "ok"]


def pass_descriptors():
    """Try SCM_RIGHTS in both directions over the only sockets that a jail has, and over the frame pipes."""
    sender, receiver = socket.socketpair()
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", 0))]
    return {
        "send one to itself": outcome(lambda: sender.sendmsg([b"x"], rights)),
        "receive with ancillary data": outcome(lambda: receiver.recvmsg(1, 100)),
        "receive one over the frames": outcome(lambda: call(47 if X86_64 else 212, 3, 0, 0)),
        "take one of a process": outcome(lambda: call(434, 1, 0)),
    }


def harmless_bytes():
    """Return whether bytes go through a pair: the control of `pass_descriptors`."""
    sender, receiver = socket.socketpair()
    sender.send(b"x")
    return receiver.recv(1) == b"x"


def hold(seconds):
    """Hold what another jail could notice or take (a file of a known name, changed flags, memory, a pair), say so, and stay."""
    with open("/tmp/known-name", "w") as file:
        file.write("of the first")
    fcntl.fcntl(0, fcntl.F_SETFL, os.O_NONBLOCK | os.O_APPEND)
    area = mmap.mmap(-1, 4096)
    area.write(b"canary-of-a-sibling")
    left, right = socket.socketpair()
    os.write(4, b'"ready"\n')
    time.sleep(seconds)
    return [file.name, len(area), left.fileno(), right.fileno()]


def hold_a_lock(path, seconds):
    """Hold an exclusive lock on a file that can only be read, flock(2)."""
    fd = os.open(path, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.write(4, b'"ready"\n')
    time.sleep(seconds)


def take_a_lock(path):
    """Try to take the same lock without waiting."""
    return outcome(lambda: fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB))


def siblings_things(pids):
    """Try to find what `hold` holds in a sibling: by name, number, signal, trace and lock."""
    null_flags = fcntl.fcntl(0, fcntl.F_GETFL)
    tgkill = 234 if X86_64 else 131
    return {
        "its file": outcome(lambda: os.stat("/tmp/known-name")),
        "its flags on standard input": "ok" if null_flags & (os.O_NONBLOCK | os.O_APPEND) else "own",
        "a signal to all": outcome(lambda: call(62 if X86_64 else 129, -1, 9)),
        "its number": "ok" if any(outcome(lambda n=n: call(tgkill, n, n, 0)) == "ok" for n in pids) else "ESRCH",
        "its limits": outcome(lambda: call(302 if X86_64 else 261, pids[0], 7, 0, 0)),
        "its priority": outcome(lambda: call(141 if X86_64 else 140, 0, pids[0], 0)),
        "its processor": outcome(lambda: call(203 if X86_64 else 122, pids[0], 8, 0)),
        "its session": outcome(lambda: os.getsid(pids[0])),
        "its namespaces": outcome(lambda: os.open(f"/proc/{pids[0]}/ns/net", os.O_RDONLY)),
        "its descriptors": outcome(lambda: os.listdir(f"/proc/{pids[0]}/fd")),
        "an abstract name": outcome(lambda: socket.socketpair()[0].connect("\0sibling")),
        "a shared memory segment": outcome(lambda: call(29 if X86_64 else 194, 1, 4096, 0o1777)),
        "a message queue": outcome(lambda: call(240 if X86_64 else 180, b"/x".__len__(), 0, 0, 0)),
        "a watch on its files": outcome(lambda: call(294 if X86_64 else 26, 0)),
        "a lease on a library": outcome(lambda: fcntl.fcntl(os.open(os.__file__, os.O_RDONLY), 1024, 0)),
        "a notification of a folder": outcome(lambda: fcntl.fcntl(os.open("/", os.O_RDONLY), 1026, 0)),
        "a larger pipe": outcome(lambda: fcntl.fcntl(os.pipe()[1], 1031, 1 << 20)),
    }


def descriptors_are():
    """Return the kind of each open descriptor."""
    import stat

    kinds = {}
    for fd in range(4096):
        try:
            mode = os.fstat(fd).st_mode
        except OSError:
            continue
        kinds[fd] = "pipe" if stat.S_ISFIFO(mode) else "device" if stat.S_ISCHR(mode) else oct(mode)
    return kinds


def surroundings():
    """Return environment, arguments, and what the loader or the interpreter would have taken from the host's."""
    return {
        "environment": dict(os.environ),
        "arguments": sys.argv[1:],
        "path": [entry for entry in sys.path if "host" in entry],
        "flags": [sys.flags.isolated, sys.flags.ignore_environment, sys.flags.no_site],
    }


def bomb(kind):
    """Take one kind of resource until it is refused. Return how much there was and the error's name."""
    import threading

    held = []
    try:
        if kind == "threads":
            release = threading.Event()
            while True:
                thread = threading.Thread(target=release.wait, daemon=True)
                thread.start()
                held.append(thread)
        elif kind == "descriptors":
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        elif kind == "processes":
            os.fork()
        elif kind == "pipes":
            while True:
                held += os.pipe()
        elif kind == "memory":
            held.append(mmap.mmap(-1, 100 << 30))
        elif kind == "files":
            while True:
                held.append(0)
                open(f"/tmp/{len(held)}", "w").close()
        elif kind == "folders":
            path = "/tmp"
            while True:
                held.append(0)
                path += "/d"
                os.mkdir(path)
        elif kind == "polls":
            while True:
                held.append(select.epoll())
    except OSError as error:
        return [len(held), errno.errorcode[error.errno]]
    except RuntimeError:
        return [len(held), "RuntimeError"]
    return [len(held), "ok"]
