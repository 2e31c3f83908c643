"""Finds and checks a program that prints a secret, such as pass(1), runs it once with a deadline and an output limit, and ends
it.

Runs in the daemon; the program runs as the user, as it would in their shell. Its output is untrusted and can be endless.

Rules
- An agent may have set the daemon's PATH. So programs are searched for only in the system's directories, and a program is
  accepted only if it and its directory belong to the system and nobody else can write them. The path that was found is pinned
  with the reference, and checked again before each use.
- A program runs without a shell, with empty standard input, without descriptors of the daemon, and with only the listed
  environment variables.
- The program's output is read up to MAX_OUTPUT_BYTES. When the program has ended, at the deadline, or when it prints more, its
  whole process group is killed before the program itself is reaped, because until then no other process can have its process
  id. A process that has left the group, as gpg-agent(1) does, continues; even if it has the pipes open, nothing waits for it.
- The program's standard error is searched for words that indicate the fault, and is then discarded.

Source: execve(2), setsid(2), kill(2), pidfd_open(2). Not here: the choice of the program (password_store.py, one_password.py).
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
from collections.abc import AsyncIterator, Mapping
from typing import Final, NamedTuple, Self

import anyio
import anyio.to_thread

from aileron.secret_stores.problems import unfetched

__all__ = ["MAX_OUTPUT_BYTES", "SYSTEM_DIRECTORIES", "Ended", "Programs", "chosen"]

SYSTEM_DIRECTORIES: Final = ("/usr/local/bin", "/usr/bin", "/bin", "/run/current-system/sw/bin")
MAX_OUTPUT_BYTES: Final = 64 << 10
"""64 KiB: maximum size of a program's output, equal to that of the longest secret that a vault accepts."""
_MAX_SAID_BYTES: Final = 4096
_PIECE_BYTES: Final = 16 << 10
_KILLED_S: Final = 2.0
"""Seconds to wait for a killed program to end. It takes microseconds, unless the program hangs in the kernel; then it is left
running.
"""
_WRITABLE: Final = stat.S_IWGRP | stat.S_IWOTH


class Ended(NamedTuple):
    """The result of one run of a program: its exit status, its standard output (at most MAX_OUTPUT_BYTES + 1), and the
    beginning of its standard error.
    """

    status: int
    out: bytes
    said: bytes

    def __repr__(self) -> str:
        return f"<ended with {self.status}>"

    def says(self, *words: bytes) -> bool:
        """Return whether standard error contains one of these words, ignoring case."""
        said = self.said.lower()
        return any(word in said for word in words)


class Programs:
    """The programs that can be run, that is, those in `directories` that belong to the user id `owner`."""

    def __init__(self, directories: tuple[str, ...] = SYSTEM_DIRECTORIES, owner: int = 0) -> None:
        self._directories: Final = directories
        self._owner: Final = owner

    def found(self, name: str, reference: str) -> str:
        """Return the absolute path of a program. Raises AileronError(binding_failed) if there is no trusted program with
        this name. Reads the file system.
        """
        for directory in self._directories:
            path = os.path.join(directory, name)
            if self._is_usable(path):
                return path
        where = ", ".join(self._directories)
        raise unfetched(reference, "not_installed", f"there is no {name} of the system's in {where}", f"install {name}")

    def search_path(self, path: str) -> str:
        """Return the value of PATH with which the program at `path` finds its helper programs."""
        return ":".join(dict.fromkeys((os.path.dirname(path), *self._directories)))

    async def run(
        self, command: tuple[str, ...], environment: Mapping[str, str], reference: str, deadline: float
    ) -> Ended:
        """Run a command to its end and return its result. Raises AileronError(binding_failed) if it does not start,
        prints too much, or takes too long.

        `deadline` is in the time of `anyio.current_time()`.
        """
        with anyio.CancelScope(deadline=deadline):
            try:
                started = await anyio.to_thread.run_sync(self._start, command, environment, reference)
            except OSError as error:
                fault = f"{command[0]} does not start ({error.strerror})"
                raise unfetched(reference, "not_installed", fault, "see that it runs in a terminal") from None
            async with started as running:
                return await _ended(running, reference)
        fault = f"{command[0]} did not answer in time and was ended"
        raise unfetched(reference, "timed_out", fault, f"see that `{_shown(command)}` answers", retriable=True)

    def _start(self, command: tuple[str, ...], environment: Mapping[str, str], reference: str) -> _Running:
        """Start the pinned program if it still exists and still belongs to the system. Raises AileronError(binding_failed)
        if it does not, and OSError if the start fails.

        Waits for the disk. The start cannot be cancelled halfway, because the started process would then never be ended.
        """
        path = command[0]
        if os.path.dirname(path) not in self._directories or not self._is_usable(path):
            fault = f"{path} is missing, or others than the system can change it"
            fix = (
                f"install it there again; or approve another with `aileron secret set NAME --from '{reference}'`, with the name "
                "that `aileron secret list` shows"
            )
            raise unfetched(reference, "not_installed", fault, fix)
        process = subprocess.Popen(
            command,
            bufsize=0,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env=environment,
            start_new_session=True,
        )
        try:
            return _Running(process)
        except OSError:  # no descriptor is left to watch it with; end it, as it has the token
            _kill_group(process)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_KILLED_S)
            _close_pipes(process)
            raise

    def _is_usable(self, path: str) -> bool:
        """Return whether `path` is an executable file that only the system (the user `owner`) can have put there."""
        try:
            found, directory = os.stat(path), os.stat(os.path.dirname(path))
        except OSError:
            return False
        is_theirs = all(
            status.st_uid == self._owner and not status.st_mode & _WRITABLE for status in (found, directory)
        )
        return is_theirs and stat.S_ISREG(found.st_mode) and os.access(path, os.X_OK)


def chosen(environment: Mapping[str, str], *names: str) -> dict[str, str]:
    """Return the environment variables in `names` that are set in `environment`."""
    return {name: environment[name] for name in names if environment.get(name)}


class _Running:
    """A started program, as a context manager. When its block has ended, the program and its process group are killed,
    and the program is reaped.

    Raises OSError if the program cannot be watched; the caller must then end it.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process: Final = process
        assert process.stdout is not None
        assert process.stderr is not None
        self.out: Final = process.stdout.fileno()
        self.said: Final = process.stderr.fileno()
        for pipe in (self.out, self.said):
            os.set_blocking(pipe, False)
        self._pidfd: Final = os.pidfd_open(process.pid)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.kill_group()
        with anyio.move_on_after(_KILLED_S, shield=True):
            await self.end()
        self._process.poll()  # subprocess reaps one that hangs, when it starts another
        os.close(self._pidfd)
        _close_pipes(self._process)

    async def end(self) -> None:
        """Wait until the program has ended, without reaping it."""
        await anyio.wait_readable(self._pidfd)

    def kill_group(self) -> None:
        """Kill the program and every process that it started and that is still in its group."""
        _kill_group(self._process)

    @property
    def status(self) -> int:
        """The exit code of a program that has ended, or minus the signal's number. Reading this property does not reap the
        program.
        """
        ended = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOWAIT)
        assert ended is not None, "it has ended"
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group of a program that is not reaped yet, so that its process id cannot belong to another process."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdout, process.stderr):
        assert pipe is not None
        pipe.close()


async def _ended(running: _Running, reference: str) -> Ended:
    """Collect the program's output until it has ended, and return the result of the run.

    Raises AileronError(binding_failed) if it prints too much; the rest is not read.
    """
    printed, said = bytearray(), bytearray()

    async def collect() -> None:
        async for piece in _pieces(running.out):
            printed.extend(piece)
            if len(printed) > MAX_OUTPUT_BYTES:
                reading.cancel_scope.cancel()

    async def listen() -> None:
        async for piece in _pieces(running.said):  # read to its end, so that the program never blocks on us
            said.extend(piece[: _MAX_SAID_BYTES - len(said)])

    async with anyio.create_task_group() as reading:
        reading.start_soon(collect)
        reading.start_soon(listen)
        await running.end()
        reading.cancel_scope.cancel()  # another process may keep its pipes open for ever
    if len(printed) <= MAX_OUTPUT_BYTES:
        running.kill_group()
        _drain(running.out, printed, MAX_OUTPUT_BYTES + 1)
        _drain(running.said, said, _MAX_SAID_BYTES)
    if len(printed) > MAX_OUTPUT_BYTES:
        fault = f"it prints more than {MAX_OUTPUT_BYTES >> 10} KiB"
        raise unfetched(reference, "too_large", fault, "name another secret")
    return Ended(running.status, bytes(printed), bytes(said))


async def _pieces(pipe: int) -> AsyncIterator[bytes]:
    """Yield data from a pipe until its other end is closed by all processes."""
    while True:
        await anyio.wait_readable(pipe)
        piece = os.read(pipe, _PIECE_BYTES)
        if not piece:
            return
        yield piece


def _drain(pipe: int, into: bytearray, most: int) -> None:
    """Read the bytes that are now in a pipe and append them to `into`, until it has `most` bytes.

    After the program has ended, these bytes are everything that was left of its output.
    """
    with contextlib.suppress(BlockingIOError):
        while len(into) < most and (piece := os.read(pipe, _PIECE_BYTES)):
            into.extend(piece[: most - len(into)])


def _shown(command: tuple[str, ...]) -> str:
    return " ".join((os.path.basename(command[0]), *command[1:]))
