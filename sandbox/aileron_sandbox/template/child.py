"""One child from the fork to its end: confine, run, exit. Nothing here returns into the template's loop, whatever happens.

Two ways lead in, and both go through the same steps in the same order:

- `run` for a child that is forked when it is asked for;
- `wait_and_run` for one that is forked ahead. It does what is the same for every child, then blocks at its end of a socket
  until the template hands over one `Spawn` with its descriptors. It runs that one program and ends, as the other does.

Rules
- Before the hand-over a child knows nothing of any invocation, and the template forks nothing while it holds a request's
  descriptors, so no child is ever born with those of another.
- A child that cannot get as far as waiting ends at once and says so in the log. It does not keep its failure for a request
  that comes when the reason may be gone: that one gets a child of its own, and if need be the reason of its own.

Source: docs/explanation/jail.md. Not here: the steps (confine.py), the fork (__main__.py).
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Iterator
from typing import Final, NoReturn

from aileron_sandbox.template import confine, descriptors, mounts, program
from aileron_sandbox.template.messages import MAX_REQUEST, Failed, Spawn, decode

__all__ = ["CONFINEMENT_FAILED", "DESCRIPTORS_OF_A_SPAWN", "run", "wait_and_run"]

CONFINEMENT_FAILED: Final = 71  # EX_OSERR, sysexits.h; the reason travels on the status pipe
DESCRIPTORS_OF_A_SPAWN: Final = 4
_NOT_NEEDED: Final = 0
_Failure = tuple[str, int]
"""The step that did not work, and its errno; 0 for a bug in the step."""


def run(prepared: confine.Prepared, spawn: Spawn, fds: list[int]) -> NoReturn:
    """Confine, run what `spawn` and the descriptors beside it say, exit."""
    code = CONFINEMENT_FAILED
    try:
        failure = _first_failure(confine.ahead(prepared))
        if failure is None:
            program.get_ready()
        code = _finish(prepared, spawn, fds, failure)
    finally:
        os._exit(code)


def wait_and_run(prepared: confine.Prepared, door: socket.socket) -> NoReturn:
    """Do what is the same for all, wait at `door` to be told the rest, and then as `run`."""
    code = CONFINEMENT_FAILED
    try:
        # What waits holds only what it needs: not the host's socket, and not the template's end of its own door.
        descriptors.close_all_but(*prepared.descriptors, door.fileno())
        failure = _first_failure(confine.ahead(prepared))
        if failure is None:
            program.get_ready()
            program.rehearse(mounts.REHEARSAL, 1)
            code = _answer(prepared, door)
        else:
            step, number = failure
            print(f"aileron_sandbox: a child forked ahead failed at {step}: errno {number}", file=sys.stderr)
    finally:
        os._exit(code)


def _answer(prepared: confine.Prepared, door: socket.socket) -> int:
    # No deadline is needed: the wait ends with the template's end of the door, and this process with the template, which is
    # pid 1 of the namespace above.
    data, fds, _, _ = socket.recv_fds(door, MAX_REQUEST, DESCRIPTORS_OF_A_SPAWN)
    if not data:
        return _NOT_NEEDED
    spawn = decode(data)
    if not isinstance(spawn, Spawn):
        raise ValueError("expected a Spawn")
    return _finish(prepared, spawn, fds, None)


def _finish(prepared: confine.Prepared, spawn: Spawn, fds: list[int], failure: _Failure | None) -> int:
    if failure is None and len(fds) != DESCRIPTORS_OF_A_SPAWN:  # the kernel drops what exceeds RLIMIT_NOFILE, unix(7)
        failure = "descriptors", errno.EMFILE
    if failure is None:
        failure = _first_failure(confine.steps(prepared, confine.Given(*fds), spawn))
    if failure is None:
        return program.run(mounts.PROGRAM)
    step, number = failure
    os.write(prepared.status, Failed(spawn.child, number, step).encode())
    return CONFINEMENT_FAILED


def _first_failure(steps: Iterator[confine.Step]) -> _Failure | None:
    """Take the steps until one does not work; None if all did."""
    step = "start"
    try:
        for step, confine_one in steps:  # noqa: B007 - the handlers name the step
            confine_one()
    except OSError as error:
        return step, error.errno or 0
    except BaseException:  # noqa: BLE001 - a bug in a step must still end the child unstarted
        return step, 0
    return None
