"""A program of the user's that prints a secret: found, checked, run once with bounds, and ended.

Runs in the daemon; the program runs as the user, as it would in their shell. It may print anything, for as long as it likes.

Rules
- The daemon's PATH may be an agent's choice. So programs are looked for in the system's directories alone, and a program counts
  only if it and its directory belong to the system and nobody else can write them. The path that was found is pinned with the
  reference, and checked again before each use.
- No shell; nothing on standard input; no descriptor of the daemon's; an environment that names what is in it, one by one.
- What it prints is read up to MAX_OUTPUT_BYTES. At the deadline, and for more than that, it is killed with its process group.
- What it says on standard error is looked through for words that tell what is wrong, and goes nowhere.

Source: execve(2), setsid(2), kill(2). Not here: which program (password_store.py, one_password.py).
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
from collections.abc import Mapping
from typing import Final, NamedTuple

import anyio
import anyio.abc

from aileron.elsewhere.problems import unfetched

__all__ = ["MAX_OUTPUT_BYTES", "SYSTEM_DIRECTORIES", "Ended", "Programs", "chosen"]

SYSTEM_DIRECTORIES: Final = ("/usr/local/bin", "/usr/bin", "/bin", "/run/current-system/sw/bin")
MAX_OUTPUT_BYTES: Final = 64 << 10
"""64 KiB, the longest secret that a vault takes."""
_MAX_SAID_BYTES: Final = 4096
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
        """The absolute path of a program. AileronError(binding_failed) where there is none that counts."""
        for directory in self._directories:
            path = os.path.join(directory, name)
            if self._is_usable(path):
                return path
        where = ", ".join(self._directories)
        raise unfetched(reference, "not_installed", f"there is no {name} of the system's in {where}", f"install {name}")

    def check(self, path: str, reference: str) -> None:
        """Return if the pinned program is still there and still the system's. AileronError(binding_failed)."""
        if os.path.dirname(path) not in self._directories or not self._is_usable(path):
            raise unfetched(
                reference,
                "not_installed",
                f"{path} is missing, or others than the system can change it",
                "install it again, then approve the secret again with `aileron binding rebind`",
            )

    def search_path(self, path: str) -> str:
        """What the program finds its own helpers in."""
        return ":".join(dict.fromkeys((os.path.dirname(path), *self._directories)))

    async def run(
        self, command: tuple[str, ...], environment: Mapping[str, str], reference: str, deadline: float
    ) -> Ended:
        """Run it to its end. AileronError(binding_failed) where it does not start, prints too much, or takes too long.

        `deadline` as in `anyio.current_time()`.
        """
        self.check(command[0], reference)
        with anyio.CancelScope(deadline=deadline) as scope:
            try:
                return await self._run(command, environment, reference)
            except OSError as error:
                what = f"{command[0]} does not start ({error.strerror})"
                raise unfetched(reference, "not_installed", what, "see that it runs in a terminal") from None
        assert scope.cancelled_caught
        what = f"{command[0]} did not answer in time and was ended"
        raise unfetched(reference, "timed_out", what, f"see that `{_shown(command)}` answers", retriable=True)

    async def _run(self, command: tuple[str, ...], environment: Mapping[str, str], reference: str) -> Ended:
        async with await _started(command, environment) as process:
            try:
                out, said = await _read(process)
                if len(out) > MAX_OUTPUT_BYTES:
                    what = f"it prints more than {MAX_OUTPUT_BYTES >> 10} KiB"
                    raise unfetched(reference, "too_large", what, "name another secret")
                return Ended(await process.wait(), out, said)
            except BaseException:
                _end(process)
                raise

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


async def _started(command: tuple[str, ...], environment: Mapping[str, str]) -> anyio.abc.Process:
    """Not cancelled halfway: what was started then would be nobody's. OSError."""
    with anyio.CancelScope(shield=True):
        process = await anyio.open_process(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env=environment,
            start_new_session=True,
        )
    return process  # noqa: RET504 - to mypy a scope may swallow what is raised, and return nothing


async def _read(process: anyio.abc.Process) -> tuple[bytes, bytes]:
    """What it prints, up to one byte too many, and what it says, which is read to its end so that nobody waits for us."""
    printed, said = bytearray(), bytearray()
    assert process.stdout is not None
    assert process.stderr is not None

    async def listen(stream: anyio.abc.ByteReceiveStream) -> None:
        async for piece in stream:
            said.extend(piece[: _MAX_SAID_BYTES - len(said)])

    async with anyio.create_task_group() as listening:
        listening.start_soon(listen, process.stderr)
        async for piece in process.stdout:
            printed.extend(piece)
            if len(printed) > MAX_OUTPUT_BYTES:
                listening.cancel_scope.cancel()
                break
    return bytes(printed), bytes(said)


def _end(process: anyio.abc.Process) -> None:
    """Kill it with what it started: its group has its number, which is nobody else's until it is waited for."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _shown(command: tuple[str, ...]) -> str:
    return " ".join((os.path.basename(command[0]), *command[1:]))
