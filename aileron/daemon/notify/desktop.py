"""A question on the person's desktop: one notify-send(1) for each, and a count where there are too many.

Runs in the daemon. What is started is the notify-send that was in the daemon's PATH when it began, by its absolute path, with
arguments and never by a shell; of the daemon's environment it gets what leads to the session bus and nothing else.

Rules
- One at a time, each with a deadline; it is ended when that is over.
- In a round of a minute a handful is shown one by one; the others are counted and told as "and N more", once soon and once when
  the round is over. So a flood of questions is no flood of notifications, and what is kept meanwhile is a number.
- A notification that cannot be shown is said once in the log, until one can be shown again. Nothing waits for it.

Source: Desktop Notifications Specification; notify-send(1); sd_bus_open_user(3) for where the bus is.
Not here: what may be shown (notices.py).
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from collections import deque
from collections.abc import Mapping
from typing import Final

import anyio

from aileron.daemon.notify.notices import Notice, NotifyTiming

__all__ = ["HANDFUL", "Desktop"]

HANDFUL: Final = 5
"""Notices of a round that are shown one by one: as many as one reads."""
_PROGRAM: Final = "notify-send"
_PASSED_ON: Final = ("DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR")
_log = logging.getLogger(__name__)


class Desktop:
    """One desktop. `asked` and `serve` belong to one event loop."""

    def __init__(self, program: str, environment: Mapping[str, str], pace: NotifyTiming) -> None:
        self._program: Final = program
        self._environment: Final = {**environment, "LC_ALL": "C.UTF-8"}
        self._pace: Final = pace
        self._waiting: deque[Notice] = deque()
        self._more = 0  # beyond those
        self._some = anyio.Event()
        self._is_failing = False

    @classmethod
    def maybe_of(cls, environment: Mapping[str, str], pace: NotifyTiming) -> Desktop | None:
        """The desktop that this environment leads to; None where there is no notify-send or no session bus."""
        program = shutil.which(_PROGRAM, path=environment.get("PATH", ""))
        if program is None or not os.path.isabs(program):  # beside the daemon's working directory is nowhere
            return None
        bus = environment.get("XDG_RUNTIME_DIR")
        if not environment.get("DBUS_SESSION_BUS_ADDRESS") and not (bus and os.path.exists(os.path.join(bus, "bus"))):
            return None
        return cls(program, {name: environment[name] for name in _PASSED_ON if name in environment}, pace)

    def asked(self, notice: Notice) -> None:
        """Show it soon, or count it."""
        if len(self._waiting) < HANDFUL:
            self._waiting.append(notice)
        else:
            self._more += 1
        self._some.set()

    async def serve(self) -> None:
        """Show what is asked, round after round. Ends only by cancellation."""
        while True:
            await self._some.wait()
            until = anyio.current_time() + self._pace.round_s
            for _ in range(HANDFUL):
                if await self._is_some(until) and self._waiting:
                    await self._show(self._waiting.popleft())
            if await self._is_some(until):
                await anyio.sleep(self._pace.settle_s)
                await self._show_count()
            await anyio.sleep_until(until)
            await self._show_count()

    async def _is_some(self, until: float) -> bool:
        """Wait until something waits to be shown or counted; False when the time is over."""
        if not self._waiting and not self._more:
            self._some = anyio.Event()
            with anyio.CancelScope(deadline=until):
                await self._some.wait()
        return bool(self._waiting or self._more)

    async def _show_count(self) -> None:
        count, waiting = len(self._waiting) + self._more, list(self._waiting)
        self._waiting.clear()
        self._more = 0
        self._some = anyio.Event()
        if count == 1:
            await self._show(waiting[0])
        elif count:
            await self._notify(f"And {count} more wait", "aileron approval list")

    async def _show(self, notice: Notice) -> None:
        what = "An action waits for you" if notice.kind == "action" else "A change waits for your consent"
        await self._notify(what, f"{notice.name}\n{notice.approval_id}")

    async def _notify(self, summary: str, body: str) -> None:
        problem: str | None = f"it took over {self._pace.desktop_s:g} s"
        try:
            with anyio.move_on_after(self._pace.desktop_s):
                async with await anyio.open_process(
                    [self._program, "--app-name=Aileron", "--", summary, body],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    env=self._environment,
                    start_new_session=True,
                ) as process:
                    status = await process.wait()
                problem = f"it ended with {status}" if status else None
        except OSError as error:
            problem = str(error)
        if problem is not None and not self._is_failing:
            _log.warning("%s shows nothing on the desktop: %s", self._program, problem)
        self._is_failing = problem is not None
