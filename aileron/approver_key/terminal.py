"""Detection of programs that could type at this terminal in place of the person, and the exclusive hold of the
terminal.

Runs in the process of the console, where the approver's key may stay open for a while. There, a key press is enough to decide,
so it matters who pressed the key. A passphrase does not have that problem, because nobody else knows the passphrase. So if
another program could press keys, each decision asks for the passphrase, and the approver's key is not kept open.

Programs of the same user that can type (any other program must be root, or have replaced the terminal itself):

1. a program that controls the program at the terminal's other end: by `tmux send-keys`, `screen -X stuff`, and the remote
   control of kitty, konsole, wezterm and nvim
2. a process of the same terminal session, by TIOCSTI, if the kernel still has it (before Linux 6.2, or dev.tty.legacy_tiocsti)

While the terminal is held exclusively (TIOCEXCL, ioctl_tty(2)), a process that would have to open the terminal first cannot
type. But a process that opened the terminal before can read input in our place, and draw on the screen.

Not detected: a display server that lets every client press keys (X11), and the remote control of a terminal program that does not
reveal it to the programs that it starts.

Source: ioctl_tty(2), proc_pid_stat(5), the kernel's sysctl/kernel.rst; docs/explanation/threat-model.md. Not here: the
passphrase prompt (isolation.py).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

__all__ = ["ancestors", "apply", "let_go", "take", "who_else_can_type"]

_PROC: Final = Path("/proc")
_LEGACY: Final = Path("/proc/sys/dev/tty/legacy_tiocsti")
_VARIABLES: Final = {
    "TMUX": "tmux",
    "STY": "screen",
    "ZELLIJ": "zellij",
    "KITTY_LISTEN_ON": "kitty",
    "NVIM": "nvim",
    "KONSOLE_DBUS_SERVICE": "konsole",
    "WEZTERM_UNIX_SOCKET": "wezterm",
}
"""Terminal programs in which other processes can type, by the environment variable that each sets for its child processes. They
accept input by commands: `send-keys`, `kitten @ send-text`, `nvim --server … --remote-send`, `qdbus … sendText`, `wezterm cli
send-text`."""
_MULTIPLEXERS: Final = {
    "tmux: server": "tmux",
    "screen": "screen",
    "SCREEN": "screen",
    "zellij": "zellij",
    "dtach": "dtach",
    "abduco": "abduco",
    "wezterm-mux-ser": "wezterm",
    "expect": "expect",
    "script": "script",
}
"""Programs that type on behalf of any caller, by the kernel's name of their process (15 characters, proc_pid_comm(5))."""
_MOST_ANCESTORS: Final = 64


class _Process(NamedTuple):
    """Facts about a process, from /proc."""

    pid: int
    name: str
    parent: int
    session: int
    terminal: int


def who_else_can_type() -> str | None:
    """Return why another program could press keys at this terminal, as text for a person; None if no such program was found."""
    for variable, program in _VARIABLES.items():
        if os.environ.get(variable):
            return f"this is a terminal of {program}, and any process of yours can press keys in it"
    chain = ancestors()
    for process in chain:
        if process.name in _MULTIPLEXERS:
            return f"this is a terminal of {_MULTIPLEXERS[process.name]}, and any process of yours can press keys in it"
    if not _has_tiocsti():
        return None
    family = {process.pid for process in chain} | {os.getpid()}
    own = _stat_of(os.getpid())
    others = [other for other in _processes() if own and _shares_terminal(other, own) and other.pid not in family]
    if own is None or others:
        typist = f"process {others[0].pid} ({others[0].name})" if others else "another process"
        return f"{typist} is of this terminal too, and this kernel lets it press keys here (TIOCSTI)"
    return None


def _shares_terminal(process: _Process, other: _Process) -> bool:
    """Return whether two processes have the same terminal and session. Comparing terminals alone is not enough, because
    their numbers repeat in other devpts(5) instances.
    """
    return (process.terminal, process.session) == (other.terminal, other.session)


def ancestors() -> list[_Process]:
    """Return the ancestors of this process that /proc shows, the nearest first."""
    found: list[_Process] = []
    process = _stat_of(os.getpid())
    while process is not None and process.parent > 0 and len(found) < _MOST_ANCESTORS:
        process = _stat_of(process.parent)
        if process is not None:
            found.append(process)
    return found


def apply(descriptor: int, settings: list[Any]) -> None:
    """Set a terminal's settings (tcsetattr(3)) after all output was written; discard unread input."""
    while True:
        try:
            return termios.tcsetattr(descriptor, termios.TCSAFLUSH, settings)
        except termios.error as error:  # PEP 475 does not cover tcsetattr
            if error.args[0] != errno.EINTR:
                raise


def take() -> None:
    """Hold this process's terminal exclusively, so that other processes of the user cannot open it, ioctl_tty(2)."""
    _control(termios.TIOCEXCL)


def let_go() -> None:
    """Release the exclusive hold of the terminal, for example before a passphrase prompt, which takes its own hold."""
    _control(termios.TIOCNXCL)


def _control(request: int) -> None:
    for stream in (0, 1, 2):  # they are open: /dev/tty cannot be opened while the terminal is held
        with contextlib.suppress(OSError):
            if os.isatty(stream):
                fcntl.ioctl(stream, request)
                return


def _has_tiocsti() -> bool:
    """Return whether the kernel lets a process push input into its own terminal (TIOCSTI). A kernel without a setting
    for that always does.
    """
    try:
        return _LEGACY.read_text(encoding="ascii").strip() != "0"
    except OSError:
        return True


def _processes() -> Iterator[_Process]:
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (process := _stat_of(int(entry.name))) is not None:
            yield process


def _stat_of(pid: int) -> _Process | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    begin, end = text.find("("), text.rfind(")")
    facts = text[end + 2 :].split()
    try:
        return _Process(pid, text[begin + 1 : end], int(facts[1]), int(facts[3]), int(facts[4]))
    except (IndexError, ValueError):
        return None
