"""Cells for tests: a policy that shows the system and one folder, and a command that runs in a cell to its end.

ran = run(policy_of(folder), [PYTHON, "-c", "print(1)"])
seen = tried(policy_of(folder), ["read", "/etc/hostname"], ["write", "/etc/x"])
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from aileron_sandbox.cell.door import Cell, Ended, Event, NotStarted, Streams
from aileron_sandbox.cell.policy import Bind, CellPolicy
from aileron_sandbox.unavailable import JailUnavailable

__all__ = [
    "DEADLINE_S",
    "ENVIRONMENT",
    "PIPES",
    "PYTHON",
    "TERMINAL",
    "Ran",
    "begun",
    "opened",
    "outside",
    "policy_of",
    "read_until",
    "read_until_said",
    "run",
    "tried",
]

DEADLINE_S: Final = 30.0
PIPES: Final[Streams] = ("pipe", "pipe", "pipe")
TERMINAL: Final[Streams] = ("terminal", "terminal", "terminal")
PYTHON: Final = os.path.realpath(sys.executable)
ENVIRONMENT: Final = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
_PROBE: Final = Path(__file__).parent / "probes" / "cell.py"
_ROOTS: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


def policy_of(folder: Path, *binds: Bind, **more: Any) -> CellPolicy:
    """Return a policy that shows the system, this interpreter, and `folder`, where the program starts and may write."""
    home = more.pop("home", "/home/you")
    system = [Bind(path, path, mounts=True) for path in ("/usr", "/etc") if os.path.isdir(path)]
    links = []
    for name in _ROOTS:
        path = f"/{name}"
        if os.path.islink(path):
            links.append((path, os.readlink(path)))
        elif os.path.isdir(path):
            system.append(Bind(path, path, mounts=True))
    base = os.path.realpath(sys.base_prefix)
    if not base.startswith("/usr"):
        system.append(Bind(base, base))
    probe = Bind(str(_PROBE), "/probe.py")
    own = Bind(str(folder), str(folder), writable=True)
    return CellPolicy(
        folder=str(folder),
        home=home,
        binds=(*system, probe, own, *binds),
        links=(*links, *more.pop("links", ())),
        **more,
    )


def opened(
    policy: CellPolicy, command: Sequence[str], streams: Streams = PIPES, environment: dict[str, str] = ENVIRONMENT
) -> Cell:
    """Return a prepared cell. A machine that cannot make cells skips the test; in CI it fails it."""
    try:
        return Cell.start(policy, command, environment, streams)
    except JailUnavailable as error:
        if os.environ.get("AILERON_MUST_JAIL") or not error.what.startswith("cannot make a cell, namespaces"):
            raise
        pytest.skip(f"no cell here: {error}")


@contextlib.contextmanager
def begun(
    policy: CellPolicy, command: Sequence[str], streams: Streams = PIPES, environment: dict[str, str] = ENVIRONMENT
) -> Iterator[Cell]:
    """Yield a cell in which the command has begun, and close it at the end."""
    with opened(policy, command, streams, environment) as cell:
        cell.begin()
        yield cell


@dataclasses.dataclass(frozen=True)
class Ran:
    """Output, events and end of a command that ran in a cell."""

    end: Event
    out: str
    error: str
    events: tuple[Event, ...]


def run(
    policy: CellPolicy,
    command: Sequence[str],
    streams: Streams = PIPES,
    environment: dict[str, str] = ENVIRONMENT,
    during: Callable[[Cell], None] | None = None,
) -> Ran:
    """Run the command in a cell to its end."""
    with begun(policy, command, streams, environment) as cell:
        if during is not None:
            during(cell)
        return finish(cell)


def finish(cell: Cell) -> Ran:
    """Read all output and events until the streams are closed and the command has ended."""
    said: dict[int, bytes] = {fd: b"" for fd in (cell.pipes[1], cell.pipes[2], cell.terminal) if fd is not None}
    events: list[Event] = []
    poll = select.poll()
    for fd in (*said, cell.control):
        poll.register(fd, select.POLLIN)
    open_ones = set(said)
    until = time.monotonic() + DEADLINE_S
    while open_ones or not (events and isinstance(events[-1], Ended | NotStarted)):
        ready = poll.poll(max(0.0, until - time.monotonic()) * 1000)
        assert ready, f"nothing came for {DEADLINE_S} s: {said} {events}"
        for fd, _ in ready:
            if fd == cell.control:
                event = cell.event()
                if event is not None:
                    events.append(event)
                if isinstance(event, Ended | NotStarted):
                    poll.unregister(fd)
            else:
                try:
                    piece = os.read(fd, 1 << 16)
                except OSError:  # EIO: the end of a terminal
                    piece = b""
                said[fd] += piece
                if not piece:
                    poll.unregister(fd)
                    open_ones.discard(fd)
    out = said.get(cell.pipes[1] if cell.pipes[1] is not None else cell.terminal or -1, b"")
    error = said.get(cell.pipes[2] or -1, b"")
    return Ran(events[-1], out.decode(errors="replace"), error.decode(errors="replace"), tuple(events))


def tried(policy: CellPolicy, *attempts: Sequence[Any], streams: Streams = PIPES) -> list[Any]:
    """Return the answer of each attempt of probes/cell.py in a cell."""
    ran = run(policy, [PYTHON, "-I", "-S", "/probe.py", json.dumps(attempts)], streams)
    assert ran.end == Ended(0, None, None), ran
    answers: list[Any] = json.loads(ran.out)
    return answers


def outside(*attempts: Sequence[Any]) -> list[Any]:
    """Return the answers of the same attempts as an ordinary process."""
    ran = subprocess.run(
        [PYTHON, "-I", "-S", str(_PROBE), json.dumps(attempts)], capture_output=True, check=True, timeout=DEADLINE_S
    )
    answers: list[Any] = json.loads(ran.stdout)
    return answers


def read_until(fd: int, wanted: bytes) -> bytes:
    """Read a terminal or pipe until these bytes have arrived."""
    said = b""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    until = time.monotonic() + DEADLINE_S
    while wanted not in said:
        assert poll.poll(max(0.0, until - time.monotonic()) * 1000), f"no {wanted!r} within {DEADLINE_S} s: {said!r}"
        piece = os.read(fd, 1 << 16)
        assert piece, f"it ended without {wanted!r}: {said!r}"
        said += piece
    return said


def read_until_said(cell: Cell, wanted: bytes) -> bytes:
    """Read the standard output of a cell, which has to be a pipe, until these bytes have arrived."""
    assert cell.pipes[1] is not None
    return read_until(cell.pipes[1], wanted)
