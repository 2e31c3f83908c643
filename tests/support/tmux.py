"""A program in a real terminal of tmux: keys go in, rows of the screen come out.

    with Tmux(["aileron", "console"], environment, size=(80, 24)) as at:
        at.until("nothing waiting")
        at.keys("q")

It has a tmux server of its own (a socket in a folder of its own), which reads no configuration and ends with the block.
"""

from __future__ import annotations

import math
import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

import pytest

from tests.support.waiting import wait_until

__all__ = ["Tmux"]

_DEADLINE_S: Final = 60.0
_REFUSED: Final = "press the key again"
"""Text that the console shows for a key that came too early."""
_KEY_S: Final = 0.7
"""Seconds between a key and the next: longer than the console ignores keys."""
_UNHEARD_S: Final = 20.0
"""Seconds for a key to take effect on a machine that stands still: pressed again earlier, it would answer the next question."""


class Tmux:
    """A window of tmux, for the length of a with block."""

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str], *, size: tuple[int, int] = (80, 24)
    ) -> None:
        self._words = words
        self._environment = environment
        self._size = size

    def __enter__(self) -> Self:
        if shutil.which("tmux") is None:
            if os.environ.get("AILERON_MUST_JAIL"):
                raise FileNotFoundError("tmux: apt-get install tmux")
            pytest.skip("no tmux here: apt-get install tmux")
        self._folder = Path(tempfile.mkdtemp(prefix="ail-tmux-"))
        (self._folder / "conf").write_text(
            "set -g default-shell /bin/sh\nset -g remain-on-exit on\nset -g default-terminal tmux-256color\n"
        )
        width, height = map(str, self._size)
        given = [f"{name}={value}" for name, value in self._environment.items()]
        command = shlex.join(["env", *given, *self._words])
        self.do("-f", str(self._folder / "conf"), "new-session", "-d", "-x", width, "-y", height, command)
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(self._tmux("kill-server"), check=False, capture_output=True, timeout=_DEADLINE_S)
        shutil.rmtree(self._folder, ignore_errors=True)

    def do(self, *words: str) -> str:
        """Run a command of tmux. Return its output."""
        done = subprocess.run(self._tmux(*words), check=True, capture_output=True, text=True, timeout=_DEADLINE_S)
        return done.stdout

    @property
    def text(self) -> str:
        """The rows of the screen."""
        return self.do("capture-pane", "-p")

    @property
    def pid(self) -> int:
        """Process id of the program in the window."""
        return int(self.do("display-message", "-p", "#{pane_pid}"))

    @property
    def is_over(self) -> bool:
        """True if the program has ended."""
        return self.do("display-message", "-p", "#{pane_dead}").strip() == "1"

    def keys(self, *names: str) -> None:
        """Press keys, given by tmux's names: `Enter`, `Escape`, `C-p`, `A`."""
        self.do("send-keys", *names)

    def type(self, text: str) -> None:
        """Type a text literally, and Enter."""
        self.do("send-keys", "-l", text)
        self.do("send-keys", "Enter")

    def until(self, *wanted: str) -> str:
        """Wait until all of these are on the screen. Return the screen."""

        def look() -> str | None:
            text = self.text
            return text if all(part in text for part in wanted) else None

        return str(wait_until(look, f"{wanted} are shown", within_s=_DEADLINE_S, seen=lambda: self.text))

    def until_over(self) -> None:
        """Wait until the program has ended."""
        wait_until(lambda: self.is_over, "the program ends", within_s=_DEADLINE_S, seen=lambda: self.text)

    def until_pressed(self, key: str, wanted: str) -> str:
        """Press a key until the screen shows `wanted`, again if it was refused or unheard. Return the screen."""
        pressed = -math.inf

        def look() -> str | None:
            nonlocal pressed
            text = self.text
            if wanted in text:
                return text
            since_s = time.monotonic() - pressed
            if since_s > (_KEY_S if _REFUSED in text else _UNHEARD_S):
                pressed = time.monotonic()
                self.keys(key)
            return None

        shown = str(wait_until(look, f"{key} shows {wanted}", within_s=_DEADLINE_S, seen=lambda: self.text))
        time.sleep(_KEY_S)  # what it brought up is as dead at first
        return shown

    def _tmux(self, *words: str) -> list[str]:
        return ["env", "-u", "TMUX", "tmux", "-S", str(self._folder / "s"), *words]
