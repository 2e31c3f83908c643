"""Other programs that can type at a terminal, and keeping out those that would open it: real terminals, a real tmux,
another process of the user.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pty
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
DEADLINE_S: Final = 20.0
UID: Final = 65534
_VARIABLES: Final = {
    "TMUX": "tmux",
    "STY": "screen",
    "ZELLIJ": "zellij",
    "KITTY_LISTEN_ON": "kitty",
    "NVIM": "nvim",
    "KONSOLE_DBUS_SERVICE": "konsole",
    "WEZTERM_UNIX_SOCKET": "wezterm",
}
_OWN: Final = "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
_WHO: Final = (
    "from aileron.approver_key.terminal import who_else_can_type; print('who:', who_else_can_type(), flush=True)\n"
)
_ELSEWHERE: Final = """
import fcntl, os, struct, subprocess, sys, termios, time
subprocess.run(["mount", "-t", "devpts", "-o", "newinstance,ptmxmode=0666", "devpts", "/mnt"], check=True)
number = -1
while number != int(sys.argv[1]):
    master = os.open("/mnt/ptmx", os.O_RDWR | os.O_NOCTTY)
    number = struct.unpack("i", fcntl.ioctl(master, 0x80045430, bytes(4)))[0]  # TIOCGPTN
fcntl.ioctl(master, 0x40045431, struct.pack("i", 0))  # TIOCSPTLCK
os.setsid()
fcntl.ioctl(os.open(f"/mnt/{number}", os.O_RDWR | os.O_NOCTTY), termios.TIOCSCTTY, 0)
print("there", flush=True)
time.sleep(60)
"""
"""Program whose terminal has this number in a devpts(5) of its own, as those of containers and cells have."""
_OPEN: Final = f"""
import errno, os, sys
if os.geteuid() == 0:
    os.setgroups([]); os.setresgid({UID}, {UID}, {UID}); os.setresuid({UID}, {UID}, {UID})
try:
    os.open(sys.argv[1], os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    print("ok")
except OSError as error:
    print(errno.errorcode[error.errno])
"""


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a program at a terminal: only the given variables name a multiplexer."""
    kept = {name: value for name, value in os.environ.items() if name not in _VARIABLES}
    return {**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm", **more}


class Terminal:
    """A terminal of its own, and a program at it."""

    def __init__(self, program: str, **more: str) -> None:
        self.master, slave = pty.openpty()
        self.name = os.ttyname(slave)
        if os.geteuid() == 0:
            os.chown(self.name, UID, UID)
        words = [sys.executable, "-c", _OWN + program]
        self.process = subprocess.Popen(
            words, stdin=slave, stdout=slave, stderr=slave, env=environment(**more), cwd=ROOT
        )
        os.close(slave)
        self.shown = ""

    def until(self, wanted: str) -> str:
        """Return the row with this text, once it has been shown."""
        until = time.monotonic() + DEADLINE_S
        while not any(wanted in row for row in self.shown.split("\n")[:-1]):
            assert select.select([self.master], [], [], max(0.0, until - time.monotonic()))[0], self.shown
            self.shown += os.read(self.master, 65536).decode()
        return next(row.strip() for row in self.shown.split("\n") if wanted in row)

    def close(self) -> None:
        """End the program and close the terminal."""
        self.process.kill()
        self.process.wait(DEADLINE_S)
        os.close(self.master)


@contextlib.contextmanager
def terminal(program: str, **more: str) -> Iterator[Terminal]:
    """Yield a terminal for the length of a with block."""
    made = Terminal(program, **more)
    try:
        yield made
    finally:
        made.close()


def opened(name: str) -> str:
    """Return how another process of this user, not root, fares with opening a terminal."""
    done = subprocess.run(
        [sys.executable, "-c", _OPEN, name], capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    return done.stdout.strip()


def test_at_a_terminal_without_other_processes_no_program_is_reported_as_able_to_type() -> None:
    """This holds even if the kernel supports TIOCSTI, because no process is there to use it."""
    with terminal(_WHO) as at:
        assert at.until("who:") == "who: None"


@pytest.mark.parametrize(("variable", "program"), _VARIABLES.items())
def test_a_terminal_multiplexer_is_recognized_by_its_environment_variable(variable: str, program: str) -> None:
    """The variable alone is enough, even if no multiplexer process is visible."""
    with terminal(_WHO, **{variable: "x"}) as at:
        assert at.until("who:").startswith(
            f"who: this is a terminal of {program}, and any process of yours can press keys"
        )


def test_tmux_is_recognized_without_its_environment_variable() -> None:
    """The variable is unset, and an ancestor process has the name of tmux."""
    if shutil.which("tmux") is None:
        pytest.skip("no tmux here: apt-get install tmux")
    folder = Path(tempfile.mkdtemp(prefix="ail-"))
    tmux = ["tmux", "-S", str(folder / "s"), "-f", "/dev/null"]
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {_WHO}"
    try:
        with open(folder / "out", "w+", encoding="utf-8") as out:
            inside = (
                f"env -u TMUX {sys.executable} -c {_quoted(code)} > {folder}/out; tmux -S {folder}/s wait-for -S done"
            )
            subprocess.run([*tmux, "new-session", "-d", inside], check=True, env=environment(), timeout=DEADLINE_S)
            subprocess.run([*tmux, "wait-for", "done"], check=False, timeout=DEADLINE_S)
            said = out.read()
    finally:
        subprocess.run([*tmux, "kill-server"], check=False, capture_output=True, timeout=DEADLINE_S)
        shutil.rmtree(folder, ignore_errors=True)

    assert said.startswith("who: this is a terminal of tmux, and any process of yours can press keys in it")


def test_another_process_at_the_terminal_is_reported_if_tiocsti_is_enabled() -> None:
    """The process started there earlier and is no ancestor; on a kernel without TIOCSTI it is harmless."""
    with terminal(
        f"import subprocess; other = subprocess.Popen(['sleep', '60'])\n{_WHO}other.kill(); other.wait()\n"
    ) as at:
        said = at.until("who:")

    legacy = Path("/proc/sys/dev/tty/legacy_tiocsti")
    if legacy.exists() and legacy.read_text().strip() == "0":
        assert said == "who: None"
    else:
        assert "(sleep) is of this terminal too, and this kernel lets it press keys here (TIOCSTI)" in said


@pytest.mark.jail
def test_a_containers_process_at_a_terminal_of_the_same_number_is_ignored() -> None:
    """/proc shows equal terminal numbers, but the other process's terminal is in a container or a cell."""
    with terminal(
        "import subprocess, sys\n"
        "number = os.ttyname(0).rpartition('/')[2]\n"
        f"words = ['unshare', '--user', '--map-root-user', '--mount', sys.executable, '-c', {_ELSEWHERE!r}, number]\n"
        "other = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)\n"
        "assert other.stdout.readline() == b'there\\n'\n"
        "shown = [open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()[4] for pid in (os.getpid(), other.pid)]\n"
        f"print('numbers:', len(set(shown)), flush=True)\n{_WHO}other.kill(); other.wait()\n"
    ) as at:
        assert at.until("numbers:") == "numbers: 1"
        assert at.until("who:") == "who: None"


def test_a_terminal_in_exclusive_use_cannot_be_opened_until_it_is_released() -> None:
    """Another process of the user gets EBUSY; before and after, it can open the terminal."""
    program = (
        "from aileron.approver_key import terminal; print('ready'); input(); terminal.take(); print('held'); input(); "
        "terminal.let_go(); print('free'); input()"
    )
    with terminal(program) as at:
        said = []
        for row in ("ready", "held", "free"):
            at.until(row)
            said.append(opened(at.name))
            os.write(at.master, b"\n")

    assert said == ["ok", errno.errorcode[errno.EBUSY], "ok"]


def test_taking_exclusive_use_of_a_pipe_has_no_effect() -> None:
    """A pipe has nothing that could be held."""
    code = "from aileron.approver_key import terminal; terminal.take(); terminal.let_go(); print('in')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment(),
        cwd=ROOT,
        timeout=DEADLINE_S,
        check=True,
    )

    assert done.stdout == "in\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
