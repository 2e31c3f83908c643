"""Around a question for a passphrase: what it does not take of what a person types is seen by nobody, and is no command.

Runs in a console in lines, where a prompt follows a prompt. Any process of the user can break one off with a signal, and who
types does not look: the rest of the passphrase would stand on the screen, in clear, and be read as the next line.

Rules
- Nothing is echoed in the block: neither between two tries, nor after an Enter that came too early.
- After a block that failed everything is thrown away until nobody has typed for some seconds, at most _MOST_S.
- One SIGINT ends the block. No other one is heard until the terminal is as it was.

Source: termios(3), tty_ioctl(2). Not here: how a passphrase is read (isolation.py), what ends the whole process.
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

from aileron.approver.terminal import apply

__all__ = ["no_echo"]

_MOST_S: Final = 60.0
"""Nobody types a passphrase for longer; what a program types for ever is not waited for."""
_PIECE: Final = 1024
_ECHO: Final = termios.ECHO | termios.ECHONL
_BY_KEY: Final = termios.ICANON | termios.ISIG
"""Without these each key is there at once, and Ctrl-C is one of them."""


@contextlib.contextmanager
def no_echo(rest_s: float) -> Iterator[None]:
    """The block in which a passphrase is asked for on standard input; `rest_s` is how long nobody types, until that is over.

    Nothing happens where standard input is no terminal, or this is not the main thread: no prompt can be broken off there.
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
    """SIGINT, for the length of a with block: the first one is a KeyboardInterrupt, and none after it, or after `over`."""

    def __init__(self) -> None:
        self._is_over = False
        self._before: Any = None

    def __enter__(self) -> _Once:
        self._before = signal.signal(signal.SIGINT, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL if self._before is None else self._before)

    def over(self) -> None:
        """None any more; also where one comes in this very moment."""
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
    """The terminal's settings without these local modes; one that has gone has none."""
    with contextlib.suppress(termios.error, OSError):
        apply(sys.stdin.fileno(), [*before[:3], before[3] & ~off, *before[4:]])
