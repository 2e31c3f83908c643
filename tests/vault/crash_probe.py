"""Change one vault again and again, and die or fail at the n-th system call of the change. Run as a program.

    crash_probe.py VAULT DERIVED kill|fail [set|rotate|restore]

It opens the vault once, then forks for each step, so that every attempt starts from the same file and the same memory. It reports
in JSON lines what was there afterwards: `found` is "old", "new" or what was wrong; `left` names the files left beside the vault.
The derivations of its two passphrases are remembered in the folder DERIVED before the first step (tests/support/derived.py).
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

import aileron.passphrase
from aileron.model.failure import AileronError
from aileron.model.secret import Secret
from aileron.passphrase import COST, KEY_BYTES
from aileron.vault import Vault
from tests.support import derived

CALLS = ("open", "listdir", "fchmod", "write", "fsync", "rename", "unlink", "link", "close")
VALUE = b"the-new-value-of-the-secret"
OLD = b"correct horse battery"
NEW = b"another horse battery"
REPORT_FD = 9


class Steps:
    """A counter of the calls of the module `os` that acts before or after the n-th."""

    def __init__(self, number: int, when: str, how: str) -> None:
        self.left, self.when, self.how = number, when, how
        self.reached = ""

    def wrap(self, name: str) -> None:
        """Replace `os.NAME` by a function that counts its calls."""
        real = getattr(os, name)

        def called(*args: Any, **kwargs: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                self.reached = name
                return self.act(name, real, args, kwargs)
            return real(*args, **kwargs)

        setattr(os, name, called)

    def act(self, name: str, real: Any, args: Any, kwargs: Any) -> Any:
        """Die or fail at this call."""
        if self.how == "fail":
            if name == "close":
                real(*args)  # close(2): on Linux the descriptor is gone even when it fails
            raise OSError(errno.ENOSPC if name == "write" else errno.EIO, "probe")
        if self.when == "half" and name == "write":
            real(args[0], args[1][: len(args[1]) // 2])
        elif self.when == "after":
            real(*args, **kwargs)
        return die(name)


def die(name: str) -> NoReturn:
    """Die as in a power cut, as far as a process can: no handler, no cleanup."""
    os.write = _WRITE
    os.write(REPORT_FD, name.encode())
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


_WRITE = os.write


def change(vault: Vault, what: str) -> None:
    """Make the change `what`, which must happen completely or not at all."""
    match what:
        case "set":
            vault.set_secret("mail", Secret(VALUE))
        case "rotate":
            vault.rotate(Secret(OLD), Secret(NEW))
        case "restore":
            copy = vault.copy(vault.path.with_name("copy.json").read_bytes(), Secret(OLD), "the copy")
            vault.put_back(copy, 0)


def attempt(vault: Vault, number: int, when: str, how: str, what: str = "set") -> dict[str, Any]:
    """Make one change in a child process that dies or fails at step `number`; return its report."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writer, REPORT_FD)
        steps = Steps(number, when, how)
        for name in CALLS:
            steps.wrap(name)
        raised = again = ""
        try:
            change(vault, what)
        except AileronError as error:
            raised = error.failure.failure_class
        except OSError as error:
            raised = f"leaked {error!r}"
        if when == "again" and raised and what != "restore":  # which leaves it locked
            vault.set_secret("other", Secret(VALUE))  # the failure was passing: memory and file still agree
            again = "fine"
        _WRITE(REPORT_FD, json.dumps([steps.reached, raised, again]).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as report:
        said = report.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return {"call": said, "raised": "", "again": ""}
    call, raised, again = json.loads(said)
    return {"call": call, "raised": raised, "again": again}


def found(vault: Vault, path: Path, before: bytes, what: str) -> str:
    """Return which file is there, verified by the key in memory or, if the vault has another key by then, by its passphrase."""
    now = path.read_bytes()
    if now == before:
        return "old"
    if what != "set":
        again = Vault(path)
        try:
            again.unlock(Secret(NEW if what == "rotate" else OLD))
        except AileronError as error:
            return str(error)
        names = [info.name for info in again.secrets()]
        again.lock()
        return "new" if names == (["mail", "tickets"] if what == "rotate" else ["mail"]) else str(names)
    try:
        vault.remove_secret("never-stored")
    except AileronError as error:
        return "new" if error.failure.failure_class == "not_found" else str(error)
    return "removed"


def main() -> None:
    """Run all steps in order, until a change completes undisturbed."""
    path, how, what = Path(sys.argv[1]), sys.argv[3], (*sys.argv[4:], "set")[0]
    derived.remember(Path(sys.argv[2]))
    aileron.passphrase.stretch(Secret(NEW), aileron.passphrase.new_salt(), COST, bytearray(KEY_BYTES))
    vault = Vault(path)
    vault.unlock(Secret(OLD))
    before = path.read_bytes()
    for when in ("before", "half", "after") if how == "kill" else ("before", "again"):
        for number in range(1, 100):
            path.write_bytes(before)
            path.with_name("vault.json.0.tmp").touch(0o600)  # so that there is something to tidy up, too
            for aside in path.parent.glob("vault.until-*"):
                aside.unlink()
            report = attempt(vault, number, when, how, what)
            if not report["call"]:
                break
            left = beside(path)
            leaks = [name for name in left if VALUE in path.with_name(name).read_bytes()]
            report |= {"when": when, "found": found(vault, path, before, what), "left": left, "leaks": leaks}
            print(json.dumps(report), flush=True)


def beside(path: Path) -> list[str]:
    """Return the names of the files besides the vault and its lock."""
    return sorted(set(os.listdir(path.parent)) - {path.name, f"{path.name}.lock", "copy.json"})


if __name__ == "__main__":
    main()
