"""Runner of tests/support/elf/attacker.c, in a jail and as an ordinary process: it reports the outcome of each try.

The program runs below every library and interpreter: what is denied here is denied by the kernel.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from aileron_sandbox.elf import ElfRuntime
from aileron_sandbox.ending import Ending, Exited
from aileron_sandbox.jail import Child, Template
from aileron_sandbox.policy import Policy
from tests.attacks.inside import DEADLINE_S, drained, told
from tests.sandbox.seen import Seen
from tests.sandbox.test_jail_elf import _sealed as sealed
from tests.support.elf_programs import compiled

__all__ = ["Native", "NativeSeen"]

_POLICY: Final = Policy(profile="elf")
_AT_THREE_AND_FOUR: Final = """
import fcntl, os, sys
read, written = (fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3])  # they may be 4 and 3
os.dup2(read, 3, inheritable=True), os.dup2(written, 4, inheritable=True)
os.execv(sys.argv[3], ["attacker"])
"""


@dataclasses.dataclass(frozen=True)
class NativeSeen:
    """The errno of each try by the try's name (`ok` for none), and how the program ended."""

    tries: dict[str, str]
    ending: Ending | None

    @property
    def told(self) -> object:
        """The outcome of a program that makes one try, or the program's end if it reported nothing more."""
        for name, met in self.tries.items():
            if name != "over":
                return met
        return "over" if isinstance(self.ending, Exited) else told(Seen(None, self.ending, ""))


class Native:
    """The attacker, in a template of its own."""

    def __init__(self, template: Template, program: int) -> None:
        self._template = template
        self.program = program

    @classmethod
    @contextlib.contextmanager
    def started(cls) -> Iterator[Native]:
        """Compile the attacker statically, and start its template. JailUnavailable if this machine has no jail."""
        program = sealed(compiled("attacker"))
        try:
            with Template.start(ElfRuntime.of_program(program)) as template:
                yield cls(template, program)
        finally:
            os.close(program)

    @property
    def tells_destinations(self) -> bool:
        """True if the template can look into the program's memory (docs/explanation/jail.md)."""
        return os.geteuid() == 0 or "private-memory" not in self._template.layers("elf")

    def attempt(self, word: str) -> NativeSeen:
        """Run the attacker in a jail."""
        with Child.open(self._template, self.program, _POLICY) as child:
            os.write(child.frames_in, word.encode())
            ending = child.wait(DEADLINE_S)
            return NativeSeen(_tries(drained(child.frames_out)), ending)

    @staticmethod
    def freely(word: str) -> NativeSeen:
        """Run the attacker as an ordinary process of this user, in an empty folder of its own."""
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder, "attacker")
            program.write_bytes(compiled("attacker"))
            program.chmod(0o700)
            (said, heard), (word_read, word_write) = os.pipe(), os.pipe()
            os.write(word_write, word.encode())
            os.close(word_write)
            with open(said, "rb") as pipe:
                try:
                    subprocess.run(
                        [
                            sys.executable,
                            "-I",
                            "-S",
                            "-c",
                            _AT_THREE_AND_FOUR,
                            str(word_read),
                            str(heard),
                            "./attacker",
                        ],
                        pass_fds=[word_read, heard],
                        cwd=folder,
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                        timeout=DEADLINE_S,
                        check=False,
                    )
                finally:
                    os.close(heard)
                    os.close(word_read)
                return NativeSeen(_tries(pipe.read()), None)


def _tries(said: bytes) -> dict[str, str]:
    pairs = (line.split(" ") for line in said.decode("ascii").splitlines())
    return {name: "ok" if number == "0" else errno.errorcode.get(int(number), number) for name, number in pairs}
