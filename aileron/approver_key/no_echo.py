"""Protection around a question for a passphrase: typed text that the question does not read is neither shown nor run
as a command.

Runs in the console in line mode, where one prompt follows another. Any process of the user can interrupt a prompt with a signal,
and a person who types does not look: the rest of the passphrase would appear on the screen, in clear, and be read as the next
line.

Rules
- Nothing is echoed in the block: neither between two tries, nor after an Enter that came too early.
- After a failed block, all input is discarded until nothing was typed for some seconds, for at most _MOST_S.
- The first SIGINT ends the block. Further ones are ignored until the terminal is restored.

Source: termios(3), tty_ioctl(2). Not here: how a passphrase is read (isolation.py), the end of the whole process.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

from aileron.approver_key.terminal import apply

__all__ = ["no_echo"]

_MOST_S: Final = 60.0
"""Longest time in seconds to discard input: nobody types a passphrase for longer, and a program that types for ever
must not block us.
"""
_PIECE: Final = 1024
_ECHO: Final = termios.ECHO | termios.ECHONL
_BY_KEY: Final = termios.ICANON | termios.ISIG
"""Local modes to clear so that each key can be read immediately, and Ctrl-C is read as a key."""


@contextlib.contextmanager
def no_echo(rest_s: float) -> Iterator[None]:
    """Turn echo off for a block that asks for a passphrase on standard input, then restore the terminal.

    If the block fails, discard input until none arrives for `rest_s` seconds. Does nothing if standard input is no terminal, or
    outside the main thread, since no prompt can be interrupted there.
    """
    before = _settings()
    if before is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    with _Once() as once:
        _set_local(before, off=_ECHO)
        try:
            yield
        except BaseException:
            once.over()
            _throw_away(before, rest_s)
            raise
        finally:
            once.over()
            with contextlib.suppress(termios.error, OSError):
                apply(sys.stdin.fileno(), before)


class _Once:
    """Handler of SIGINT for a `with` block.

    The first SIGINT raises KeyboardInterrupt; later ones, or any after `over`, do not.
    """

    def __init__(self) -> None:
        self._is_over = False
        self._before: Any = None

    def __enter__(self) -> _Once:
        self._before = signal.signal(signal.SIGINT, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL if self._before is None else self._before)

    def over(self) -> None:
        """Ignore every SIGINT from now on, even one that arrives during this call."""
        while not self._is_over:
            with contextlib.suppress(KeyboardInterrupt):
                self._is_over = True

    def _take(self, _number: int, _frame: FrameType | None) -> None:
        if not self._is_over:
            self._is_over = True
            raise KeyboardInterrupt


def _settings() -> list[Any] | None:
    try:
        return termios.tcgetattr(sys.stdin.fileno())
    except (termios.error, OSError, ValueError, AttributeError):  # closed, a file, none at all
        return None


def _throw_away(before: list[Any], rest_s: float) -> None:
    _set_local(before, off=_ECHO | _BY_KEY)
    until = time.monotonic() + _MOST_S
    with contextlib.suppress(OSError):
        while time.monotonic() < until and select.select([sys.stdin], [], [], rest_s)[0]:
            if not os.read(sys.stdin.fileno(), _PIECE):
                return  # the terminal has gone


def _set_local(before: list[Any], *, off: int) -> None:
    """Set the terminal to the settings `before` with the local modes in `off` cleared; do nothing if the terminal is gone."""
    with contextlib.suppress(termios.error, OSError):
        apply(sys.stdin.fileno(), [*before[:3], before[3] & ~off, *before[4:]])
