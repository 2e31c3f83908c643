"""A try in a jail of its own, and the same try as an ordinary process of this user: the attack and its control.

The tries are the functions of probes/tries.py and of tests/sandbox/probes/attempts.py, by name. `Seen.report` is `{"loot":
…}` or `{"errno": …}`; `told` reduces it, or the way the program ended, to one word.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from aileron_sandbox.ending import NetworkAttempt, OverLimit, Signalled
from aileron_sandbox.jail import Child, Template
from aileron_sandbox.policy import Policy
from tests.sandbox.conftest import memory_file
from tests.sandbox.seen import Seen
from tests.support.zipped import zipped

__all__ = ["DEADLINE_S", "Jail", "drained", "freely", "program", "told"]

DEADLINE_S: Final = 30.0
_TRIES: Final = Path(__file__).parent / "probes" / "tries.py"
_ATTEMPTS: Final = Path(__file__).parents[1] / "sandbox" / "probes" / "attempts.py"
_MAIN: Final = """
import attempts, tries
vars(attempts).update({name: value for name, value in vars(tries).items() if not name.startswith("_")})
attempts.main()
"""
_AT_FOUR: Final = """
import os, runpy, sys
os.dup2(int(sys.argv[1]), 4, inheritable=True)
runpy.run_path(sys.argv[2], run_name="__main__")
"""


def program(name: str, *arguments: Any) -> bytes:
    """Return a zip application that makes one try."""
    modules = {path.name: path.read_text(encoding="utf-8") for path in (_TRIES, _ATTEMPTS)}
    return zipped(_MAIN, {**modules, "attempts.json": json.dumps([name, arguments])})


class Jail:
    """Maker of tries in jails of one template."""

    def __init__(self, template: Template) -> None:
        self.template = template

    def attempt(self, name: str, *arguments: Any, policy: Policy | None = None) -> Seen:
        """Make a try, and wait for its end."""
        with self.running(name, *arguments, policy=policy) as child:
            ending = child.wait(DEADLINE_S)
            said, log = drained(child.frames_out), drained(child.log)
        return Seen(json.loads(said.splitlines()[-1]) if said else None, ending, log.decode("utf-8", "replace"))

    def loot(self, name: str, *arguments: Any, policy: Policy | None = None) -> Any:
        """Return what the try reports. AssertionError if it reports nothing."""
        seen = self.attempt(name, *arguments, policy=policy)
        assert seen.report is not None, f"{name}: {seen.ending}, {seen.log}"
        return seen.report.get("loot", seen.report)

    @contextlib.contextmanager
    def running(self, name: str, *arguments: Any, policy: Policy | None = None) -> Iterator[Child]:
        """Provide the child while it runs."""
        fd = memory_file(program(name, *arguments))
        try:
            with Child.open(self.template, fd, policy or Policy()) as child:
                yield child
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def staying(self, name: str, *arguments: Any) -> Iterator[Child]:
        """Provide a child that has sent something, which shows that it reached its own code, and that stays."""
        with self.running(name, *arguments) as child:
            assert select.select([child.frames_out], [], [], DEADLINE_S)[0], "nothing came"
            while not child.is_born:
                assert select.select([self.template], [], [], DEADLINE_S)[0]
                self.template.pump()
            yield child


def freely(name: str, *arguments: Any) -> Any:
    """Make the same try as an ordinary process, in an empty folder of its own, and return what it reports."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "try.pyz")
        path.write_bytes(program(name, *arguments))
        read, written = os.pipe()
        with open(read, "rb") as pipe:
            try:
                subprocess.run(
                    [sys.executable, "-I", "-S", "-c", _AT_FOUR, str(written), str(path)],
                    pass_fds=[written],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=DEADLINE_S,
                    cwd=folder,
                    check=False,
                )
            finally:
                os.close(written)
            said = pipe.read()
    report = json.loads(said.splitlines()[-1]) if said else {}
    return report.get("loot", report)


def told(seen: Seen) -> Any:
    """Return the errno or the loot that was reported, or how the program ended without a report."""
    if seen.report is not None:
        return seen.report.get("errno", seen.report.get("loot"))
    match seen.ending:
        case Signalled():
            return seen.ending.name
        case OverLimit():
            return f"over {seen.ending.limit}"
        case NetworkAttempt():
            return seen.ending.destination
        case _:
            return str(seen.ending)


def drained(fd: int) -> bytes:
    """Return what is in a pipe that has no more writer."""
    pieces = []
    with contextlib.suppress(BlockingIOError):
        while piece := os.read(fd, 1 << 16):
            pieces.append(piece)
    return b"".join(pieces)
