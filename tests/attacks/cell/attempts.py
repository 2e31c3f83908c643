"""Program that runs as the agent: it tries what an agent of the same user can do, and prints the outcome of each attempt.

    python attempts.py FACTS.json      # prints {"name": "ok" | the errno's name | "absent" | …}

Standard library alone: it runs in a cell and, for the controls, outside of one, as the same user, with the same facts. An
attempt that succeeds does no harm: everything it kills, changes or reads was made for it (household.py). A file that can be
opened and is empty counts as not read: some sandboxes show an empty file in a file's place, and the outcome is then "absent".
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import signal
import socket
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)
_PTRACE_SEIZE, _PTRACE_DETACH = 0x4206, 17


def main(facts: dict[str, Any]) -> dict[str, str]:
    """Return the outcome of each attempt by its name."""
    return {name: _answer(attempt) for name, attempt in _attempts(facts).items()}


def _attempts(facts: dict[str, Any]) -> dict[str, Callable[[], object]]:
    home, victim = Path(facts["home"]), int(facts["victim"])
    return {
        # it can keep things from working
        "kill the daemon": lambda: os.kill(int(facts["daemon"]), 0),
        "stop a command of the person's": lambda: _stop_and_continue(victim),
        "delete the vault": lambda: _move_and_back(home / "vault.json"),
        "ask on the operator socket": lambda: _connect_unix(home / "run" / "operator.sock"),
        "ask on the operator socket by its address in the cell": lambda: _connect_unix(
            Path("/run/aileron/run/operator.sock")
        ),
        # it can read what is not encrypted
        "read the ledger": lambda: _read(home / "ledger.db"),
        "read the settings": lambda: _read(home / "config.toml"),
        "read the person's shell history": lambda: _read(Path(facts["history"])),
        "read an ssh key": lambda: _read(Path(facts["ssh_key"])),
        "read a token that lies in the home": lambda: _read(Path(facts["token_file"])),
        "read a variable of the person's": lambda: _read_one_of(facts["variables"]),
        # it can get the vault's passphrase: a socket in the daemon's place
        "take the place of the operator socket": lambda: _move_and_back(home / "run" / "operator.sock"),
        "listen in the home": lambda: _listen_unix(home / "run" / "another.sock"),
        # it can read your terminal from outside of our command, and press keys in it
        "open the person's terminal": lambda: os.close(os.open(facts["terminal"], os.O_RDWR | os.O_NOCTTY)),
        "push a key into its own terminal": _push_a_key,
        "reach the terminal multiplexer": lambda: _connect_unix(Path(facts["multiplexer"])),
        "reach the X server": lambda: _connect_unix(Path(facts["x_socket"])),
        "reach an abstract socket": lambda: _connect_abstract(facts["abstract"]),
        "reach the session bus": lambda: _connect_unix(Path(facts["bus"])),
        "attach to a process of the person's": lambda: _seize(victim),
        "read the memory of a process of the person's": lambda: _read_memory(victim),
        "read the environment of a process of the person's": lambda: _read(Path(f"/proc/{victim}/environ")),
        "see the processes of the person": lambda: _see(victim),
        # the browser, the page, and other ports of this machine
        "reach a port of this machine": lambda: _connect_tcp("127.0.0.1", int(facts["port"])),
        "reach a port of this machine by its own address": lambda: _connect_tcp(facts["address"], int(facts["port"])),
        "read the browser's profile": lambda: _read(Path(facts["profile"])),
        # it can replace the program
        "write the shell's startup file": lambda: _mark(Path(facts["startup"])),
        "put a program in front": lambda: _mark(Path(facts["bin"]) / "aileron"),
        "change Aileron's own code": lambda: _append(Path(facts["code"])),
        "change a system program": lambda: _append(Path("/usr/local/bin/aileron-in-front")),
        # it can put everything back; it can put connectors into the store by hand
        "copy the vault": lambda: _read(home / "vault.json"),
        "write into the store": lambda: _append(home / "store" / "connectors" / "by-hand"),
        "write an action": lambda: _append(home / "actions" / "theirs.md"),
    }


def _answer(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    except KeyError:
        return "absent"
    return "ok"


def _read(path: Path) -> None:
    if not path.read_bytes():
        raise KeyError(path)


def _read_one_of(variables: list[str]) -> str:
    found = [os.environ[name] for name in variables if name in os.environ]
    if not found:
        raise KeyError(variables[0])
    return found[0]


def _stop_and_continue(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    os.kill(pid, signal.SIGCONT)


def _move_and_back(path: Path) -> None:
    moved = path.with_name("moved")
    path.rename(moved)
    moved.rename(path)


def _connect_unix(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.settimeout(5)
        made.connect(str(path))


def _connect_abstract(name: str) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.settimeout(5)
        made.connect("\0" + name)


def _connect_tcp(address: str, port: int) -> None:
    with socket.create_connection((address, port), 5):
        pass


def _listen_unix(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))
    path.unlink()


def _push_a_key() -> None:
    fcntl.ioctl(0, termios.TIOCSTI, b" ")


def _check(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _seize(pid: int) -> None:
    _check(_LIBC.ptrace(_PTRACE_SEIZE, pid, None, None))
    _LIBC.ptrace(_PTRACE_DETACH, pid, None, None)


def _read_memory(pid: int) -> None:
    with open(f"/proc/{pid}/mem", "rb"):
        pass


def _see(pid: int) -> None:
    os.stat(f"/proc/{pid}/stat")


def _mark(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"marked")


def _append(path: Path) -> None:
    is_new = not path.exists()
    with path.open("ab"):
        pass
    if is_new:
        path.unlink()


if __name__ == "__main__":
    told = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    print(json.dumps(main(told)), flush=True)
