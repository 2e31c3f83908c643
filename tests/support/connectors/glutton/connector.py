"""The glutton: each operation uses so much of one thing. What it then meets it does not catch."""

import errno
import mmap
import os
import subprocess
import threading

from aileron_connector import op, run

held = []


@op
def files(amount: int):
    """Open so many."""
    for _ in range(amount):
        held.append(open("/dev/null", "rb"))  # noqa: SIM115 - that they stay open is what is wanted
    return amount


@op
def file_size(amount: int):
    """Write one file of so many MiB."""
    with open("/tmp/large", "wb") as file:
        for _ in range(amount):
            file.write(bytes(1 << 20))
    return amount


@op
def scratch(amount: int):
    """Write so many files of one MiB."""
    for number in range(amount):
        with open(f"/tmp/{number}", "wb") as file:
            file.write(bytes(1 << 20))
    return amount


@op
def processes(amount: int):
    """Start so many threads that stay."""
    enough = threading.Event()
    try:
        for _ in range(amount):
            thread = threading.Thread(target=enough.wait, daemon=True)
            thread.start()
            held.append(thread)
    finally:
        enough.set()
    return amount


@op
def forks(amount: int):
    """Start so many processes that stay."""
    for _ in range(amount):
        pid = os.fork()
        if pid == 0:
            os.read(os.pipe()[0], 1)
            os._exit(0)
        held.append(pid)
    for pid in held:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    return amount


@op
def programs(amount: int):
    """The same by subprocess; there is no program to start, which is found out in a process of its own."""
    forks_left = amount
    while forks_left:
        pid = os.fork()
        if pid == 0:
            os.read(os.pipe()[0], 1)
        held.append(pid)
        forks_left -= 1
    try:
        subprocess.Popen(["/nothing"])
    except FileNotFoundError:
        return amount
    return None


@op
def memory(amount: int):
    """Allocate so many MiB."""
    held.append(bytearray(amount << 20))
    return amount


@op
def shared_memory(amount: int):
    """Share so many MiB with nobody, a kind that RLIMIT_DATA does not count."""
    area = mmap.mmap(-1, amount << 20)
    for offset in range(0, amount << 20, 4096):
        area[offset] = 1
    return amount


@op
def output(amount: int):
    """Return so many KiB."""
    return "x" * (amount << 10)


@op
def values(amount: int):
    """Return so many thousand values."""
    return [0] * (amount * 1000)


@op
def wrapped(amount: int):
    """As a library does: its own error, from the one that was met."""
    try:
        return files(amount)
    except OSError as error:
        raise LookupError("nothing was found") from error


@op
def grouped(amount: int):
    """As asyncio's task groups do."""
    try:
        return files(amount)
    except OSError as error:
        raise ExceptionGroup("some tasks", [error]) from None


@op
def not_a_limit(amount: int):
    """EAGAIN of a pipe that has nothing to read is no limit's, nor is what was being handled when a bug was met."""
    reading, _ = os.pipe()
    os.set_blocking(reading, False)
    if amount:
        return os.read(reading, 1)
    try:
        raise OSError(errno.EMFILE, "handled")
    except OSError:
        return {}["nothing"]


if __name__ == "__main__":
    run()
