"""The life of one child from the fork to its end: confine, run, exit. No call here ever returns into the template's loop.

A child does the work that is the same for every child, then takes one `Spawn` with its descriptors from its `door`, a
socket whose other end is the template's. It runs that one program and ends. A child that is forked ahead blocks at
the door; for a child that is forked on request, the request is already there.

Rules
- Before the request a child knows nothing of any invocation: it first closes every inherited descriptor that is not its own.
- A child that fails before it waits for a request ends at once, and reports the failure in the log. It does not store its
  failure for a later request, because the reason may be gone by then: that request gets a new child, which may report its
  own failure. Only a request that was already passed to the child gets this failure, because no other child has that
  request.

Source: docs/explanation/jail.md. Not here: the steps (confine.py), the fork (__main__.py).
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Iterator
from typing import Final, NoReturn

from aileron_sandbox import kernel
from aileron_sandbox.policy import Profile
from aileron_sandbox.template import confine, descriptors, landlocked, mounts, program
from aileron_sandbox.template.template_messages import MAX_REQUEST, Failed, Spawn, decode

__all__ = ["CONFINEMENT_FAILED", "DESCRIPTORS_OF_A_SPAWN", "run"]

CONFINEMENT_FAILED: Final = 71  # EX_OSERR, sysexits.h; the reason travels on the status pipe
DESCRIPTORS_OF_A_SPAWN: Final = 4
_NOT_NEEDED: Final = 0
_Failure = tuple[str, int]
"""The name of the step that failed, and its errno; 0 for a bug in the step."""


def run(prepared: confine.Prepared, door: socket.socket, *, ahead: bool) -> NoReturn:
    """Do the work that is the same for all children, receive the host's request over the socket `door`, confine this
    process, run the program, and exit. `ahead` is true if the child was forked before the request came.
    """
    code = CONFINEMENT_FAILED
    try:
        if door.fileno() != descriptors.DOOR:  # dup3(2): EINVAL
            os.dup2(door.fileno(), descriptors.DOOR, inheritable=False)
        descriptors.close_all_but(*prepared.descriptors, descriptors.DOOR)
        room = landlocked if prepared.mode == "landlock" else confine
        failure = _first_failure(room.ahead(prepared))
        if failure is None and not prepared.is_compiled:
            program.get_ready()
        if ahead and failure is None and not prepared.is_compiled and prepared.mode == "namespaces":
            program.rehearse(mounts.REHEARSAL, 1)
        code = _answer(prepared, failure, ahead=ahead)
    finally:
        kernel.exit_thread(code)  # there is no other thread; and unlike exit_group(2) it notifies nobody (filters.py)


def _answer(prepared: confine.Prepared, failure: _Failure | None, *, ahead: bool) -> int:
    # No deadline is needed: the wait ends with the template's end of the door, and this process with the template, which is
    # pid 1 of the namespace above.
    door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=descriptors.DOOR)
    if ahead and failure is not None:
        door.shutdown(socket.SHUT_RD)  # from here the template's send is EPIPE; what was sent before can still be read
    data, fds, _, _ = socket.recv_fds(door, MAX_REQUEST, DESCRIPTORS_OF_A_SPAWN)
    door.detach()
    if not data:
        return _NOT_NEEDED if failure is None else _lost(*failure)
    spawn = decode(data)
    if not isinstance(spawn, Spawn):
        raise ValueError("expected a Spawn")
    if failure is None and len(fds) != DESCRIPTORS_OF_A_SPAWN:  # the kernel drops what exceeds RLIMIT_NOFILE, unix(7)
        failure = "descriptors", errno.EMFILE
    if failure is None:
        room = landlocked if prepared.mode == "landlock" else confine
        failure = _first_failure(room.steps(prepared, confine.Given(*fds), spawn))
    if failure is None:
        return _run(landlocked.PROGRAM if prepared.mode == "landlock" else mounts.PROGRAM, spawn.profile)
    step, number = failure
    os.write(prepared.status, Failed(spawn.child, number, step).encode())
    return CONFINEMENT_FAILED


def _run(path: str, profile: Profile) -> int:
    code = CONFINEMENT_FAILED
    try:
        code = program.run(path)
    finally:
        if profile != "python" or program.has_threads():
            os._exit(code)  # ends all processes that the program left; their earlier calls are answered first
    return code


def _lost(step: str, number: int) -> int:
    if number != errno.EPIPE:  # EPIPE: the template has ended, which is no failure
        print(f"aileron_sandbox: a child forked ahead failed at {step}: errno {number}", file=sys.stderr)
    return CONFINEMENT_FAILED


def _first_failure(steps: Iterator[confine.Step]) -> _Failure | None:
    """Execute the steps of the confinement until one fails, and return that failure; None if all succeeded."""
    step = "start"
    try:
        for step, confine_one in steps:  # noqa: B007 - the handlers name the step
            confine_one()
    except OSError as error:
        return step, error.errno or 0
    except BaseException:  # noqa: BLE001 - a bug in a step must still end the child unstarted
        return step, 0
    return None
