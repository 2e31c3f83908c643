"""Whether others than the person can type at this terminal, and keeping those out who could begin to.

Runs in the process of the console, where a key may stay open for a while: then a key press decides, and it matters whose it is. A
passphrase does not have that problem, because nobody else knows it; so where somebody else could press keys, each decision asks
for it, and no key is kept open.

Who can, of the same user (everything else needs to be root, or to have replaced the terminal itself):

1. whoever has a command of the program that holds the terminal's other end: `tmux send-keys`, `screen -X stuff`, and the remote
   control of kitty, konsole, wezterm and nvim
2. a process of the same terminal session, by TIOCSTI, where the kernel still has it (before Linux 6.2, or dev.tty.legacy_tiocsti)
3. nobody by opening it anew, while it is held exclusively (TIOCEXCL, ioctl_tty(2)); who has it open already can read what is
   typed in our place, and draw on the screen

What is not seen here: a display server that lets every client press keys (X11), and the remote control of a terminal program that
tells what it starts nothing of it.

Source: ioctl_tty(2), proc_pid_stat(5), the kernel's sysctl/kernel.rst; docs/explanation/threat-model.md. Not here: how a
passphrase is asked for (isolation.py).
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

__all__ = ["ancestors", "apply", "held", "let_go", "take", "who_else_can_type"]

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
"""Each is set by the program for what it starts, and says where it takes commands: `send-keys`, `kitten @ send-text`,
`nvim --server … --remote-send`, `qdbus … sendText`, `wezterm cli send-text`."""
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
"""By the kernel's name of a process (15 characters, proc_pid_comm(5)): programs that type for whoever asks them."""
_MOST_ANCESTORS: Final = 64


class _Process(NamedTuple):
    """What /proc says of one."""

    pid: int
    name: str
    parent: int
    session: int
    terminal: int


def who_else_can_type() -> str | None:
    """Why a key press at this terminal may be somebody else's, for a person; None where nobody was found who could."""
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
    others = [one for one in _processes() if own and _shares_terminal(one, own) and one.pid not in family]
    if own is None or others:
        who = f"process {others[0].pid} ({others[0].name})" if others else "another process"
        return f"{who} is of this terminal too, and this kernel lets it press keys here (TIOCSTI)"
    return None


def _shares_terminal(one: _Process, other: _Process) -> bool:
    """Return whether a terminal is that of both. It is one session's; its number alone is that of others in other devpts(5)."""
    return (one.terminal, one.session) == (other.terminal, other.session)


def ancestors() -> list[_Process]:
    """The processes this one descends from, the nearest first, as far as /proc shows them."""
    found: list[_Process] = []
    process = _stat_of(os.getpid())
    while process is not None and process.parent > 0 and len(found) < _MOST_ANCESTORS:
        process = _stat_of(process.parent)
        if process is not None:
            found.append(process)
    return found


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Nobody opens this terminal meanwhile (but root). Nothing happens where there is none."""
    take()
    try:
        yield
    finally:
        let_go()


def apply(descriptor: int, settings: list[Any]) -> None:
    """A terminal's settings (tcsetattr(3)), when what was written has been shown; what was typed so far is thrown away."""
    while True:
        try:
            return termios.tcsetattr(descriptor, termios.TCSAFLUSH, settings)
        except termios.error as error:  # which PEP 475 forgot
            if error.args[0] != errno.EINTR:
                raise


def take() -> None:
    """Hold it."""
    _control(termios.TIOCEXCL)


def let_go() -> None:
    """Hold it no more: whoever asks for a passphrase holds it for themselves."""
    _control(termios.TIOCNXCL)


def _control(request: int) -> None:
    for stream in (0, 1, 2):  # ours already: /dev/tty cannot be opened while it is held
        with contextlib.suppress(OSError):
            if os.isatty(stream):
                fcntl.ioctl(stream, request)
                return


def _has_tiocsti() -> bool:
    """Whether a process may still press keys at its own terminal; a kernel that does not say so is one that always lets it."""
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
