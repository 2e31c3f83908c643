"""A program of the user's that prints a secret: found, checked, run once with bounds, and ended.

Runs in the daemon; the program runs as the user, as it would in their shell. It may print anything, for as long as it likes.

Rules
- The daemon's PATH may be an agent's choice. So programs are looked for in the system's directories alone, and a program counts
  only if it and its directory belong to the system and nobody else can write them. The path that was found is pinned with the
  reference, and checked again before each use.
- No shell; nothing on standard input; no descriptor of the daemon's; an environment that names what is in it, one by one.
- What it prints is read up to MAX_OUTPUT_BYTES. When it has ended, at the deadline, and for more than that, its whole process
  group is killed, before the program itself is reaped: until then the number is nobody else's. What has left the group, as
  gpg-agent(1) does, goes on.
- What it says on standard error is looked through for words that tell what is wrong, and goes nowhere.

Source: execve(2), setsid(2), kill(2), pidfd_open(2). Not here: which program (password_store.py, one_password.py).
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

from aileron.elsewhere.problems import unfetched

__all__ = ["MAX_OUTPUT_BYTES", "SYSTEM_DIRECTORIES", "Ended", "Programs", "chosen"]

SYSTEM_DIRECTORIES: Final = ("/usr/local/bin", "/usr/bin", "/bin", "/run/current-system/sw/bin")
MAX_OUTPUT_BYTES: Final = 64 << 10
"""64 KiB, the longest secret that a vault takes."""
_MAX_SAID_BYTES: Final = 4096
_PIECE_BYTES: Final = 16 << 10
_KILLED_S: Final = 2.0
"""For the end of what was killed: microseconds, but for one that hangs in the kernel, which is left to it."""
_WRITABLE: Final = stat.S_IWGRP | stat.S_IWOTH


class Ended(NamedTuple):
    """One run: its status; what it printed, at most MAX_OUTPUT_BYTES + 1; and the beginning of what it said."""

    status: int
    out: bytes
    said: bytes

    def __repr__(self) -> str:
        return f"<ended with {self.status}>"

    def says(self, *words: bytes) -> bool:
        """Whether it said one of these, in any case."""
        said = self.said.lower()
        return any(word in said for word in words)


class Programs:
    """Where programs may be, and whose they must be: user `owner`'s, by number."""

    def __init__(self, directories: tuple[str, ...] = SYSTEM_DIRECTORIES, owner: int = 0) -> None:
        self._directories: Final = directories
        self._owner: Final = owner

    def found(self, name: str, reference: str) -> str:
        """The absolute path of a program. AileronError(binding_failed) where there is none that counts. Looks at files."""
        for directory in self._directories:
            path = os.path.join(directory, name)
            if self._is_usable(path):
                return path
        where = ", ".join(self._directories)
        raise unfetched(reference, "not_installed", f"there is no {name} of the system's in {where}", f"install {name}")

    def search_path(self, path: str) -> str:
        """What the program finds its own helpers in."""
        return ":".join(dict.fromkeys((os.path.dirname(path), *self._directories)))

    async def run(
        self, command: tuple[str, ...], environment: Mapping[str, str], reference: str, deadline: float
    ) -> Ended:
        """Run it to its end. AileronError(binding_failed) where it does not start, prints too much, or takes too long.

        `deadline` as in `anyio.current_time()`.
        """
        with anyio.CancelScope(deadline=deadline):
            try:
                process = await anyio.to_thread.run_sync(self._start, command, environment, reference)
            except OSError as error:
                what = f"{command[0]} does not start ({error.strerror})"
                raise unfetched(reference, "not_installed", what, "see that it runs in a terminal") from None
            async with _Running(process) as running:
                return await _ended(running, reference)
        what = f"{command[0]} did not answer in time and was ended"
        raise unfetched(reference, "timed_out", what, f"see that `{_shown(command)}` answers", retriable=True)

    def _start(
        self, command: tuple[str, ...], environment: Mapping[str, str], reference: str
    ) -> subprocess.Popen[bytes]:
        """Start it, if the pinned program is still there and still the system's. AileronError(binding_failed), OSError.

        Waits for the disk, and is not cancelled halfway: what was started then would be nobody's.
        """
        path = command[0]
        if os.path.dirname(path) not in self._directories or not self._is_usable(path):
            what = f"{path} is missing, or others than the system can change it"
            cure = (
                f"install it there again; or approve another with `aileron secret set NAME --from '{reference}'`, with the name "
                "that `aileron secret list` shows"
            )
            raise unfetched(reference, "not_installed", what, cure)
        return subprocess.Popen(
            command,
            bufsize=0,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env=environment,
            start_new_session=True,
        )

    def _is_usable(self, path: str) -> bool:
        """Whether it is a program that nobody but the system can have put there."""
        try:
            found, directory = os.stat(path), os.stat(os.path.dirname(path))
        except OSError:
            return False
        is_theirs = all(one.st_uid == self._owner and not one.st_mode & _WRITABLE for one in (found, directory))
        return is_theirs and stat.S_ISREG(found.st_mode) and os.access(path, os.X_OK)


def chosen(environment: Mapping[str, str], *names: str) -> dict[str, str]:
    """Those of these variables that are set."""
    return {name: environment[name] for name in names if environment.get(name)}


class _Running:
    """A program that was started, which is at an end when the block is: with its group, and reaped."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process: Final = process
        self._pidfd: Final = os.pidfd_open(process.pid)
        assert process.stdout is not None
        assert process.stderr is not None
        self.out: Final = process.stdout.fileno()
        self.said: Final = process.stderr.fileno()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with anyio.move_on_after(_KILLED_S, shield=True):
            await anyio.wait_readable(self._pidfd)
        self._process.poll()  # what hangs is reaped by subprocess, when another is started
        os.close(self._pidfd)
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()

    async def status(self) -> int:
        """Its status once it has ended, which is not reaped by this; of one that was killed, the signal, negated."""
        await anyio.wait_readable(self._pidfd)
        ended = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222 - it has ended
        assert ended is not None, "a pidfd is readable once its process has ended"
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


async def _ended(running: _Running, reference: str) -> Ended:
    """What became of it. AileronError(binding_failed) for one that prints too much, of which no more is read."""
    printed, said = bytearray(), bytearray()

    async def listen() -> None:
        async for piece in _pieces(running.said):  # to its end, so that it never waits for us
            said.extend(piece[: _MAX_SAID_BYTES - len(said)])

    async with anyio.create_task_group() as listening:
        listening.start_soon(listen)
        async for piece in _pieces(running.out):
            printed.extend(piece)
            if len(printed) > MAX_OUTPUT_BYTES:
                listening.cancel_scope.cancel()
                break
    if len(printed) > MAX_OUTPUT_BYTES:
        what = f"it prints more than {MAX_OUTPUT_BYTES >> 10} KiB"
        raise unfetched(reference, "too_large", what, "name another secret")
    return Ended(await running.status(), bytes(printed), bytes(said))


async def _pieces(pipe: int) -> AsyncIterator[bytes]:
    """What comes out of a pipe, until nobody has its other end."""
    while True:
        await anyio.wait_readable(pipe)
        piece = os.read(pipe, _PIECE_BYTES)
        if not piece:
            return
        yield piece


def _shown(command: tuple[str, ...]) -> str:
    return " ".join((os.path.basename(command[0]), *command[1:]))
