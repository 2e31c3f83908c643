"""The person's terminal while an agent runs in a cell: it is put into raw mode, is restored in every case, and has no
pending input when another program gets it.

Owns a separate open file of the terminal (so that `O_NONBLOCK` does not affect the shell), and the terminal's original
settings. Typed input is not read here, except that input that arrives while the terminal is being restored is discarded.

Rules
- The terminal is raw only if standard input is a terminal. Otherwise typed input is not for the cell, and Ctrl-C is a signal.
- Before another program gets the terminal, this program sends the query `CSI 5 n`, which the filter does not let an
  agent send. A terminal answers queries in order, so once that answer has arrived, no answer to a query of the agent is
  pending that would appear as typed text in the person's shell. All input up to then is discarded.
- If this process is in the background, changing the terminal's settings stops the process (SIGTTOU), as with any
  program. A terminal that has disconnected is not changed.

Source: termios(3), tty_ioctl(4), credentials(7). Not here: which output is safe for the terminal (terminal_filter.py).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import struct
import termios
import time
import tty
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aileron_sandbox.cell.door import Streams

__all__ = ["Terminal", "speaks_utf8", "streams_of_ours"]

_QUESTION: Final = b"\x1b[5n"
_ANSWER: Final = b"\x1b[0n"
_ANSWER_S: Final = 1.0
"""Seconds to wait for the terminal's answer to the query `CSI 5 n`. A terminal behind a slow connection takes half a
second; all terminals know the query.
"""
_WRITE_S: Final = 2.0
"""Seconds to wait until a terminal has accepted the bytes that restore it."""
_READ: Final = 65536


def streams_of_ours() -> Streams:
    """Return the kind, `terminal` or `pipe`, of each of this process's descriptors 0, 1 and 2, for `Cell.start`."""
    kinds = ["terminal" if os.isatty(number) else "pipe" for number in range(3)]
    return kinds[0], kinds[1], kinds[2]  # type: ignore[return-value]


class Terminal:
    """The person's terminal: the first of standard input, output and error that is a terminal."""

    def __init__(self, number: int, *, is_input: bool) -> None:
        self.is_input: Final = is_input
        self.descriptor: Final = _opened(number)
        self._settings = termios.tcgetattr(self.descriptor)
        self._is_raw = False

    @classmethod
    def maybe(cls, streams: Sequence[str]) -> Terminal | None:
        """Return the terminal among this process's streams, whose kinds are given, or None if no stream is a terminal."""
        numbers = [number for number, kind in enumerate(streams) if kind == "terminal"]
        return cls(numbers[0], is_input=numbers[0] == 0) if numbers else None

    @property
    def is_ours(self) -> bool:
        """True if this process can change the terminal without being stopped: it is in the foreground, or the terminal
        is not its controlling terminal.
        """
        try:
            return os.tcgetpgrp(self.descriptor) == os.getpgrp()
        except OSError as error:
            return error.errno == errno.ENOTTY

    def copy_to(self, cell_terminal: int) -> None:
        """Copy the terminal's settings and size to the cell's own terminal."""
        termios.tcsetattr(cell_terminal, termios.TCSANOW, self._settings)
        self.copy_size_to(cell_terminal)

    def copy_size_to(self, cell_terminal: int) -> None:
        """Copy the terminal's size to the cell's own terminal. If the size differs, the kernel notifies the agent."""
        with contextlib.suppress(OSError):
            size = fcntl.ioctl(self.descriptor, termios.TIOCGWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
            fcntl.ioctl(cell_terminal, termios.TIOCSWINSZ, size)

    def make_raw(self) -> None:
        """Make the terminal raw if it is the input, so that typed bytes arrive unchanged and at once."""
        if not self.is_input:
            return
        settings = [*self._settings]
        settings[tty.CC] = [*self._settings[tty.CC]]
        settings[tty.IFLAG] &= ~(
            termios.IGNBRK | termios.BRKINT | termios.PARMRK | termios.ISTRIP
            | termios.INLCR | termios.IGNCR | termios.ICRNL | termios.IXON
        )  # fmt: skip
        settings[tty.OFLAG] &= ~termios.OPOST
        settings[tty.LFLAG] &= ~(termios.ECHO | termios.ECHONL | termios.ICANON | termios.ISIG | termios.IEXTEN)
        settings[tty.CC][termios.VMIN] = 1
        settings[tty.CC][termios.VTIME] = 0
        self._is_raw = True
        self._set(settings)

    def put_back(self, undone: bytes, *, was_asked: bool) -> None:
        """Restore the terminal: write `undone`, which reverts the agent's changes, wait until no answer is pending, and restore
        the settings. `was_asked` is true if the agent's output has made the terminal send answers. Never raises OSError.
        """
        with contextlib.suppress(OSError):
            if self._is_raw and was_asked and self.is_ours:
                self.write(undone + _QUESTION)
                self._wait_for_answer()
            else:
                self.write(undone)
        if self._is_raw:
            self._is_raw = False
            if self.is_ours:
                with contextlib.suppress(OSError, termios.error):
                    termios.tcflush(self.descriptor, termios.TCIFLUSH)
                    self._set(self._settings)

    def write(self, data: bytes) -> None:
        """Write the data, or the part that the terminal accepts within _WRITE_S seconds. Raises OSError if the write fails."""
        until = time.monotonic() + _WRITE_S
        while data and (left := until - time.monotonic()) > 0:
            if self._is_ready(select.POLLOUT, left):
                with contextlib.suppress(BlockingIOError):
                    data = data[os.write(self.descriptor, data) :]

    def close(self) -> None:
        """Close this object's open file of the terminal."""
        os.close(self.descriptor)

    def _set(self, settings: list[int | list[bytes | int]]) -> None:
        while True:
            try:
                termios.tcsetattr(self.descriptor, termios.TCSANOW, settings)
                return
            except termios.error as error:
                if error.args[0] == errno.EINTR:  # this process was stopped, and continues in the foreground
                    continue
                if error.args[0] == errno.EIO:  # in the background of an orphaned group, or disconnected
                    return
                raise

    def _is_ready(self, events: int, most_s: float) -> bool:
        poll = select.poll()
        poll.register(self.descriptor, events)
        return bool(poll.poll(most_s * 1000))

    def _wait_for_answer(self) -> None:
        """Read and discard the terminal's input up to its answer to `CSI 5 n`, for at most _ANSWER_S seconds."""
        until = time.monotonic() + _ANSWER_S
        kept = b""
        while _ANSWER not in kept and (left := until - time.monotonic()) > 0:
            if self._is_ready(select.POLLIN, left):
                with contextlib.suppress(BlockingIOError):
                    read = os.read(self.descriptor, _READ)
                    if not read:
                        return
                    kept = kept[-len(_ANSWER) :] + read


def speaks_utf8(environment: Mapping[str, str]) -> bool:
    """Return whether the terminal uses UTF-8. Today's terminals do, unless a locale names another character set, locale(7)."""
    name = next((found for key in ("LC_ALL", "LC_CTYPE", "LANG") if (found := environment.get(key))), "")
    _, _, charset = name.partition(".")
    return charset.partition("@")[0].lower().replace("-", "") in ("", "utf8")


def _opened(number: int) -> int:
    """Open the terminal of descriptor `number` again, and return the new descriptor, which has its own flags. Open it
    by its name or, if that is another device, by `number`. Raises OSError if both fail.
    """
    flags = os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
    for path in (_name_of(number), f"/proc/self/fd/{number}"):
        if path is not None:
            with contextlib.suppress(OSError):
                opened = os.open(path, flags)
                if os.fstat(opened).st_rdev == os.fstat(number).st_rdev:
                    return opened
                os.close(opened)
    raise OSError(errno.ENXIO, f"cannot open the terminal that is descriptor {number}")


def _name_of(number: int) -> str | None:
    try:
        return os.ttyname(number)
    except OSError:  # a terminal of another mount namespace
        return None
