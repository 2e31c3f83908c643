"""The jail as a command: `python -m aileron_sandbox` examines this machine; `… run PROGRAM` runs a zip application or a compiled
program in a jail.

python -m aileron_sandbox [--json]      exit 0 if this machine can run a jail, else 1 with the fix
python -m aileron_sandbox run FILE      the program's log on standard error, its frames (descriptor 4) on standard output
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import select
import sys
from pathlib import Path
from typing import Final

from aileron_sandbox.elf import ElfRuntime
from aileron_sandbox.ending import Ending, Exited
from aileron_sandbox.jail import Child, Template
from aileron_sandbox.policy import Policy, Profile
from aileron_sandbox.runtime import PythonRuntime
from aileron_sandbox.support import examine
from aileron_sandbox.unavailable import JailUnavailable

__all__ = ["main"]

_DEADLINE_S: Final = 60.0
_READ_BYTES: Final = 64 << 10
_ELF: Final = b"\x7fELF"
_USAGE: Final = "usage: python -m aileron_sandbox [--json] | run PROGRAM"


def main(arguments: list[str]) -> int:
    """Run the command line with these arguments, and return the exit status."""
    match arguments:
        case [] | ["--json"]:
            return _report(as_json=bool(arguments))
        case ["run", program]:
            return _run(program)
        case _:
            print(_USAGE, file=sys.stderr)
            return 2


def _report(*, as_json: bool) -> int:
    report = examine()
    if as_json:
        print(json.dumps(report.to_json()))
    elif report.available:
        print(f"jails are available: {', '.join(report.layers)}")
    else:
        print(f"jails are not available: {report.what}\nfix: {report.fix}", file=sys.stderr)
    return 0 if report.available else 1


def _run(program: str) -> int:
    try:
        with (
            _sealed(Path(program).read_bytes()) as file,
            Template.start(_runtime(file)) as template,
            Child.open(template, file.fileno(), Policy(cpu_s=int(_DEADLINE_S), profile=_profile(file))) as child,
        ):
            child.close_input()
            _relay(child)
            ending = child.wait(_DEADLINE_S)
    except (JailUnavailable, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return _status(ending)


def _sealed(data: bytes) -> io.FileIO:
    file = io.FileIO(os.memfd_create("program", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "w+b")
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    return file


def _profile(file: io.FileIO) -> Profile:
    return "elf" if os.pread(file.fileno(), len(_ELF), 0) == _ELF else "python"


def _runtime(file: io.FileIO) -> PythonRuntime | ElfRuntime:
    if _profile(file) == "elf":
        return ElfRuntime.of_program(file.fileno())
    return PythonRuntime.of_this_interpreter()


def _relay(child: Child) -> None:
    """Copy the child's log to standard error and its frames to standard output, until both pipes have ended."""
    targets = {child.log: sys.stderr.buffer, child.frames_out: sys.stdout.buffer}
    while targets:
        ready, _, _ = select.select(list(targets), [], [], _DEADLINE_S)
        if not ready:
            raise TimeoutError(f"no frame arrived for {_DEADLINE_S:.0f} s")
        for fd in ready:
            data = os.read(fd, _READ_BYTES)
            if data:
                targets[fd].write(data)
                targets[fd].flush()
            else:
                del targets[fd]


def _status(ending: Ending) -> int:
    if isinstance(ending, Exited):
        return ending.code
    print(f"error: {ending}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
