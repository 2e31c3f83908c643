"""The process that forks one process for each login, once nobody can look into it.

Imports what logging in takes, reads the authorities that certificates are verified with, confines itself, and then forks: a login
begins in two milliseconds. It never reads an order: it passes on the socket over which that comes, so no secret is ever in its
memory, nor in that of another login.

    daemon ── a packet with one descriptor: the control socket of a login ──► fork

One thread, so that a fork is whole. Ends with the daemon.

Source: unix(7), fork(2); docs/adr/0057-logins.md. Not here: what it gives up (confine.py), a login (child.py).
"""

from __future__ import annotations

import contextlib
import encodings.idna  # noqa: F401 - what is not imported now cannot be any more
import os
import select
import socket
from collections.abc import Sequence
from typing import Final

from aileron.hidden.packets import received_with
from aileron.logins.child import Logins, be_login
from aileron.logins.confine import Confinement
from aileron.logins.messages import MAX_LOGINS, READY
from aileron.tls import client_context

__all__ = ["serve_control"]

_REAP_S: Final = 5.0
"""How long a process that has ended may wait to be forgotten; it has no memory any more."""
_MAX_RUNNING: Final = 2 * MAX_LOGINS
"""One that the daemon has let go of counts here until it is gone, which takes it a moment."""


def serve_control(descriptor: int, protocols: Sequence[str]) -> int:
    """Fork a login for each packet, until the daemon lets go of the socket. 0."""
    control = socket.socket(fileno=descriptor)
    logins = Logins(protocols, client_context(_authorities(control), (), at_once=True))
    confinement = Confinement()
    confinement.confine_process()
    control.send(READY)
    running = 0
    waiting = select.poll()
    waiting.register(control, select.POLLIN)
    while True:
        is_asked = waiting.poll(_REAP_S * 1000 if running else None)
        running -= _reap()
        if is_asked:
            packet, passed, _ = received_with(control, 16, 1)
            if not packet:
                return 0
            for one in passed:
                if running < _MAX_RUNNING and (pid := _forked()) is not None:
                    if pid == 0:
                        be_login(one, logins, confinement)
                    running += 1
                os.close(one)  # of which the daemon hears where nobody else has it: it is at its end


def _authorities(control: socket.socket) -> str | None:
    """The first packet has a file, if there are any beside the system's (`egress.ca_file`)."""
    _, passed, _ = received_with(control, 16, 1)
    if not passed:
        return None
    with open(passed[0], "rb") as file:
        return file.read().decode("ascii", "ignore")


def _forked() -> int | None:
    """As fork(2); None where the machine has no room for another process. The logins that there are go on."""
    try:
        return os.fork()
    except OSError:
        return None


def _reap() -> int:
    """How many have ended since."""
    ended = 0
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            ended += 1
    return ended
