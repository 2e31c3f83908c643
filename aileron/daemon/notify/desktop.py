"""Notifications on the person's desktop: one notify-send(1) for each question, or a count if there are too many questions.

Runs in the daemon. The daemon starts the notify-send that was in its PATH when the daemon began, by its absolute path and never
through a shell. Of the daemon's environment, notify-send gets only the variables that lead to the session bus.

Rules
- One notify-send runs at a time, and is ended at its deadline.
- In a round of one minute, HANDFUL questions are shown one by one. The others are counted and shown as "and N more", once soon
  and once when the round is over. So a flood of questions causes no flood of notifications, and only a number is stored
  meanwhile.
- A failure to show a notification is logged once, until a notification can be shown again. No other work waits for a
  notification.
- If notify-send and the notification server support actions, and xdg-open(1) is installed, a notification has a button that
  opens the page of its question. Its notify-send then waits for the button: at most MAX_OPEN wait, each with a deadline. No
  data from the desktop determines which page is opened.

Source: Desktop Notifications Specification; notify-send(1) of libnotify 0.8; sd_bus_open_user(3) for the address of the bus.
Not here: the text (notices.py).
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

import anyio
import anyio.abc

from aileron.daemon.notify.notices import Asked, Describe, NotifyTiming

__all__ = ["HANDFUL", "MAX_OPEN", "Desktop"]

HANDFUL: Final = 5
"""Maximum number of notices of questions that are shown one by one in a round of one minute: as many as a person reads."""
MAX_OPEN: Final = 8
"""Maximum number of notifications that wait for a press of their button. Each takes a process of some 5 MiB. Further
notifications have no button.
"""
_PROGRAM: Final = "notify-send"
_OPENER: Final = "xdg-open"
_PASSED_ON: Final = ("DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR")
_TO_A_BROWSER: Final = (
    *_PASSED_ON,
    "BROWSER",
    "DESKTOP_SESSION",
    "DISPLAY",
    "HOME",
    "LANG",
    "PATH",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "XDG_CONFIG_HOME",
    "XDG_CURRENT_DESKTOP",
    "XDG_DATA_DIRS",
    "XDG_SESSION_TYPE",
)
"""Environment variables that are needed to find and start a browser. No session token and no passphrase is among them."""
_OPEN: Final = "open"
_NO_ACTIONS: Final = b"Actions are not supported"
"""Message of notify-send, with LC_ALL=C, if the server does not support actions. notify-send has then shown the notification,
and exits with status 1.
"""
_MAX_SAID: Final = 4096
"""Maximum number of bytes of notify-send's output that are read."""
_log = logging.getLogger(__name__)


class _Ended(NamedTuple):
    """The result of one notify-send: its output, and its exit status, or None if it was ended at its deadline."""

    status: int | None
    out: bytes
    err: bytes


class _Opener(NamedTuple):
    """The command that opens an address, without the address itself, and the command's environment."""

    command: tuple[str, ...]
    environment: Mapping[str, str]


class Desktop:
    """Channel that shows questions as notifications on one desktop. Call `asked` and `serve` in the same event loop. `opener`
    opens an address; if it is None, notifications have no buttons.
    """

    def __init__(
        self,
        program: str,
        environment: Mapping[str, str],
        pace: NotifyTiming,
        describe: Describe,
        opener: _Opener | None,
    ) -> None:
        self._program: Final = program
        self._environment: Final = {**environment, "LC_ALL": "C.UTF-8"}
        self._pace: Final = pace
        self._describe: Final = describe
        self._opener: Final = opener
        self._has_actions: bool | None = None if opener else False  # None: not checked yet
        self._open = 0
        self._waiting: deque[Asked] = deque()
        self._more = 0  # beyond _waiting
        self._some = anyio.Event()
        self._is_failing = False

    @classmethod
    def maybe_of(cls, environment: Mapping[str, str], pace: NotifyTiming, describe: Describe) -> Desktop | None:
        """Return a channel to the desktop whose session bus this environment names; None if there is no bus or no notify-send."""
        program = _found(_PROGRAM, environment)
        if program is None:
            return None
        bus = environment.get("XDG_RUNTIME_DIR")
        if not environment.get("DBUS_SESSION_BUS_ADDRESS") and not (bus and os.path.exists(os.path.join(bus, "bus"))):
            return None
        return cls(program, _some_of(environment, _PASSED_ON), pace, describe, _opener_in(environment))

    def asked(self, asked: Asked) -> None:
        """Show a notification of the question soon, or only count the question if too many arrive."""
        if len(self._waiting) < HANDFUL:
            self._waiting.append(asked)
        else:
            self._more += 1
        self._some.set()

    async def serve(self) -> None:
        """Show notifications of questions, or of their number, in one round per minute. Runs until cancelled."""
        async with anyio.create_task_group() as buttons:
            while True:
                await self._some.wait()
                until = anyio.current_time() + self._pace.round_s
                for _ in range(HANDFUL):
                    if await self._is_some(until) and self._waiting:
                        await self._show(self._waiting.popleft(), buttons)
                if await self._is_some(until):
                    await anyio.sleep(self._pace.settle_s)
                    await self._show_count(buttons)
                await anyio.sleep_until(until)
                await self._show_count(buttons)

    async def _is_some(self, until: float) -> bool:
        """Wait until a question must be shown or counted. Return False if there is none at the deadline `until`."""
        if not self._waiting and not self._more:
            self._some = anyio.Event()
            with anyio.CancelScope(deadline=until):
                await self._some.wait()
        return bool(self._waiting or self._more)

    async def _show_count(self, buttons: anyio.abc.TaskGroup) -> None:
        count, waiting = len(self._waiting) + self._more, list(self._waiting)
        self._waiting.clear()
        self._more = 0
        self._some = anyio.Event()
        if count == 1 and waiting:
            await self._show(waiting[0], buttons)
        elif count:
            await self._notify(f"And {count} more {'waits' if count == 1 else 'wait'}", "aileron approval list")

    async def _show(self, asked: Asked, buttons: anyio.abc.TaskGroup) -> None:
        notice = await self._describe(asked)
        if notice is None:
            return
        if self._open < MAX_OPEN and await self._can_have_a_button():
            self._open += 1
            buttons.start_soon(self._notify_with_button, notice.title, notice.body, notice.url)
        else:
            await self._notify(notice.title, notice.body)

    async def _can_have_a_button(self) -> bool:
        """Return whether this notify-send supports actions, as libnotify 0.8 does. The check is made only once."""
        if self._has_actions is None:
            try:
                self._has_actions = b"--action" in (await self._run(["--help"], self._pace.desktop_s)).out
            except OSError:
                self._has_actions = False
        return self._has_actions

    async def _notify_with_button(self, summary: str, body: str, url: str) -> None:
        """Show a notification with a button, and open the page if the button is pressed."""
        try:
            ended = await self._run([f"--action={_OPEN}=Open", "--", summary, body], self._pace.open_s)
            if ended.status == 1 and _NO_ACTIONS in ended.err:
                self._has_actions = False
                self._note(None)
            else:
                self._note(f"it ended with {ended.status}" if ended.status else None)
            if ended.out.strip() == _OPEN.encode():
                await self._open_page(url)
        except OSError as error:
            self._note(str(error))
        finally:
            self._open -= 1

    async def _open_page(self, url: str) -> None:
        """Open a page in the desktop's browser, which is not a child of the daemon and outlives the daemon."""
        assert self._opener is not None  # no button without an opener
        command, environment = self._opener
        try:
            with anyio.move_on_after(self._pace.desktop_s):
                async with await _started([*command, url], environment, subprocess.DEVNULL) as process:
                    await process.wait()
        except OSError as error:
            _log.warning("%s opens no page: %s", command[-1], error)

    async def _notify(self, summary: str, body: str) -> None:
        problem: str | None
        try:
            ended = await self._run(["--", summary, body], self._pace.desktop_s)
            problem = f"it ended with {ended.status}" if ended.status else None
            if ended.status is None:
                problem = f"it took over {self._pace.desktop_s:g} s"
        except OSError as error:
            problem = str(error)
        self._note(problem)

    async def _run(self, arguments: list[str], most_s: float) -> _Ended:
        """Run notify-send once, and end it after at most `most_s` seconds. Return its truncated output and its exit status.
        Raises OSError if it cannot be started.
        """
        status: int | None = None
        said: dict[str, bytes] = {"out": b"", "err": b""}

        async def read(name: str, stream: anyio.abc.ByteReceiveStream) -> None:
            async for piece in stream:
                said[name] = (said[name] + piece)[:_MAX_SAID]

        with anyio.move_on_after(most_s):
            command = [self._program, "--app-name=Aileron", *arguments]
            async with await _started(command, self._environment, subprocess.PIPE) as process:
                assert process.stdout is not None
                assert process.stderr is not None
                async with anyio.create_task_group() as reading:
                    reading.start_soon(read, "out", process.stdout)
                    reading.start_soon(read, "err", process.stderr)
                    status = await process.wait()
        return _Ended(status, said["out"], said["err"])

    def _note(self, problem: str | None) -> None:
        if problem is not None and not self._is_failing:
            _log.warning("%s shows nothing on the desktop: %s", self._program, problem)
        self._is_failing = problem is not None


async def _started(command: list[str], environment: Mapping[str, str], output: int) -> anyio.abc.Process:
    """Start a command. Its process is ended when the `async with` block of the process is left. Raises OSError if it cannot be
    started.

    The start is shielded from cancellation, which would leave a process without an owner.
    """
    with anyio.CancelScope(shield=True):
        process = await anyio.open_process(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env=environment,
            start_new_session=True,
        )
    return process  # noqa: RET504 - to mypy a scope may swallow exceptions, and return nothing


def _found(program: str, environment: Mapping[str, str]) -> str | None:
    """Return the program's absolute path, or None. A path relative to the working directory does not count."""
    found = shutil.which(program, path=environment.get("PATH", ""))
    return found if found is not None and os.path.isabs(found) else None


def _opener_in(environment: Mapping[str, str]) -> _Opener | None:
    """Return a command that runs xdg-open(1) through setsid(1), which exits at once; xdg-open may run as long as the browser
    that it opens. None if either program is missing.
    """
    detach, opener = _found("setsid", environment), _found(_OPENER, environment)
    if detach is None or opener is None:
        return None
    return _Opener((detach, "--fork", opener), _some_of(environment, _TO_A_BROWSER))


def _some_of(environment: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: environment[name] for name in names if name in environment}
