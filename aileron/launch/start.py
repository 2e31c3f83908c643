"""The run of an agent in the foreground of this process's terminal. The agent is started, is stopped and continued
together with this process, and is waited for.

Runs in the command, which does nothing else meanwhile. The agent is in this process's group, so both have the
terminal: typed text reaches the agent, and so does Ctrl-C.

Rules
- SIGINT and SIGQUIT are for the agent: the terminal sends them to both processes, and this one continues to wait.
- SIGTERM and SIGHUP are forwarded. Then this process waits, because the agent may want to save data.
- Ctrl-Z stops the agent. This process detects that, and stops itself, so that the shell notices. `fg` continues both. This
  process continues the agent only if `fg` did not: continued twice, some agents draw their screen twice. The key itself does
  not stop this process: otherwise it might detect the agent's stop after both were continued, and stop again.
- A signal that arrives before the agent exists is stored, and forwarded when it does.
- If a signal ended the agent before it could restore the terminal's settings, this process restores them. A shell does this
  for a program that a signal ended, but not for this process, which exits normally.
- A signal that was ignored when this process began stays ignored, for the agent as well (nohup(1)).
- Orphans of the agent become children of this process, not of the machine's first process: two forks do not lead out of the
  agent's session. This process reaps the orphans, too. Those that still run at its end become children of the first process.

Source: credentials(7) on process groups and sessions, waitpid(2), PR_SET_CHILD_SUBREAPER(2const). Not here: the session
(cli/commands/launch.py), the look-up of a process's ancestors (daemon/http/families.py).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import termios
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType

__all__ = ["child_environment", "run"]

_OURS = "AILERON_"
_KEPT_WAITING = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)
_HANDED_ON = (signal.SIGTERM, signal.SIGHUP)
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def child_environment(
    environment: Mapping[str, str], variables: Mapping[str, str], unset: Sequence[str] = ()
) -> dict[str, str]:
    """Return the user's environment without `unset` and without Aileron's own variables, and with `variables` added.

    Aileron's own variables can contain a passphrase for the vault, or an address or a token of another session.
    """
    kept = {name: value for name, value in environment.items() if not name.startswith(_OURS) and name not in unset}
    return {**kept, **variables}


def run(program: str, arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Start the agent, wait for its end, and return its exit status, or 128 plus the number of the signal that ended
    it. Raises OSError if it does not start.
    """
    terminal = _Terminal()
    _adopt_orphans()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would make waits last until all orphans end: waitpid(2)
    with _Signals() as signals:
        # The handlers are functions, so execve(2) resets them: the agent begins with the signals that we began with.
        process = subprocess.Popen([program, *arguments], env=dict(environment))
        with _opened(process.pid) as child:
            signals.hand_on_to(child)
            process.returncode = _wait(process.pid, child)
            signals.hand_on_to(None)
    if process.returncode >= 0:
        return process.returncode
    terminal.restore()
    return 128 - process.returncode


@contextlib.contextmanager
def _opened(pid: int) -> Iterator[int]:
    """Open a descriptor of a child process. Unlike a process id, a descriptor never refers to another process, pidfd_open(2)."""
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _adopt_orphans() -> None:
    """Make this process the new parent of all descendants that lose their parent. Works on every Linux since 3.4."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, *map(ctypes.c_ulong, (1, 0, 0, 0)))


def _wait(pid: int, child: int) -> int:
    """Wait until the agent has ended. Return its exit status, or minus the signal's number. Reap orphans that end meanwhile."""
    while True:
        changed, status = os.waitpid(-1, os.WUNTRACED)
        if changed != pid:
            continue
        if not os.WIFSTOPPED(status):
            return os.waitstatus_to_exitcode(status)
        os.kill(os.getpid(), signal.SIGSTOP)
        if os.waitid(os.P_PID, pid, os.WCONTINUED | os.WNOHANG) is None:
            _send(child, signal.SIGCONT)


def _send(child: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
        signal.pidfd_send_signal(child, number)


class _Terminal:
    """The settings of this process's terminal at the time of creation; empty without a terminal."""

    def __init__(self) -> None:
        self._descriptor = next((descriptor for descriptor in range(3) if os.isatty(descriptor)), None)
        self._settings = None if self._descriptor is None else termios.tcgetattr(self._descriptor)

    def restore(self) -> None:
        """Give the terminal its settings back if this process is in the foreground. In the background, setting them
        would stop the process (SIGTTOU).
        """
        if self._descriptor is None or self._settings is None:
            return
        with contextlib.suppress(OSError, termios.error):  # hung up, or no longer our terminal
            if os.tcgetpgrp(self._descriptor) == os.getpgrp():
                termios.tcsetattr(self._descriptor, termios.TCSANOW, self._settings)


class _Signals:
    """The handlers of SIGINT, SIGTERM and other signals while an agent runs, by the rules at the top of this module.
    They are in force inside the `with` block.
    """

    def __init__(self) -> None:
        self._child: int | None = None
        self._early: list[int] = []
        self._before: dict[int, signal.Handlers | None] = {}

    def __enter__(self) -> _Signals:
        for number in (*_KEPT_WAITING, *_HANDED_ON):
            if signal.getsignal(number) is not signal.SIG_IGN:
                handler = self._hand_on if number in _HANDED_ON else self._wait_on
                self._before[number] = signal.signal(number, handler)  # type: ignore[assignment]
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def hand_on_to(self, child: int | None) -> None:
        """Forward signals to the process `child` from now on, the stored ones first. If `child` is None, store signals
        for a later child.
        """
        self._child = child
        while self._early and child is not None:
            _send(child, self._early.pop())

    def _hand_on(self, number: int, _: FrameType | None) -> None:
        if self._child is None:
            self._early.append(number)
        else:
            _send(self._child, number)

    def _wait_on(self, number: int, frame: FrameType | None) -> None:
        """Ignore a signal such as SIGINT, because the terminal has sent it to the agent, too."""
