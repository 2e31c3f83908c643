"""The glutton: each operation uses a given amount of one resource, and does not catch the error that results."""

import errno
import mmap
import os
import subprocess
import threading

from aileron_connector import op, run

held = []


@op
def files(amount: int):
    """Open `amount` files."""
    for _ in range(amount):
        held.append(open("/dev/null", "rb"))  # noqa: SIM115 - that they stay open is what is wanted
    return amount


@op
def file_size(amount: int):
    """Write one file of `amount` MiB."""
    with open("/tmp/large", "wb") as file:
        for _ in range(amount):
            file.write(bytes(1 << 20))
    return amount


@op
def scratch(amount: int):
    """Write `amount` files of one MiB."""
    for number in range(amount):
        with open(f"/tmp/{number}", "wb") as file:
            file.write(bytes(1 << 20))
    return amount


@op
def processes(amount: int):
    """Start `amount` threads that stay."""
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
    """Start `amount` processes that stay."""
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
    """Fork `amount` processes, then start a missing program by subprocess, whose child process discovers that it is missing."""
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
    """Allocate `amount` MiB."""
    held.append(bytearray(amount << 20))
    return amount


@op
def shared_memory(amount: int):
    """Fill `amount` MiB of an anonymous shared mapping, which RLIMIT_DATA does not count."""
    area = mmap.mmap(-1, amount << 20)
    for offset in range(0, amount << 20, 4096):
        area[offset] = 1
    return amount


@op
def output(amount: int):
    """Return `amount` KiB of text."""
    return "x" * (amount << 10)


@op
def values(amount: int):
    """Return `amount` thousand values."""
    return [0] * (amount * 1000)


@op
def wrapped(amount: int):
    """Raise a library's own error, caused by the one that occurred."""
    try:
        return files(amount)
    except OSError as error:
        raise LookupError("nothing was found") from error


@op
def grouped(amount: int):
    """Raise the error in a group, as asyncio's task groups do."""
    try:
        return files(amount)
    except OSError as error:
        raise ExceptionGroup("some tasks", [error]) from None


@op
def not_a_limit(amount: int):
    """Raise errors that no limit caused: EAGAIN of an empty pipe, or a bug met while EMFILE was being handled."""
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
