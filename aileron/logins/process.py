"""The process that forks one child process per login. It does so only once no other process can inspect it.

The process imports all modules that a login needs, reads the authorities that verify certificates, confines itself, and then
forks, so that a login begins in two milliseconds. It never reads an order: it passes on the socket over which the order comes.
So this process never has a secret in its memory, and no login has another login's secret.

    daemon ── a packet with one descriptor: the control socket of a login ──► fork

The process has one thread, so that a fork is complete. It ends when the daemon ends.

Source: unix(7), fork(2); docs/adr/0057-logins.md. Not here: the confinement (confine.py), a login (child.py).
"""

from __future__ import annotations

import contextlib
import encodings.idna  # noqa: F401 - later imports are impossible
import os
import select
import socket
from collections.abc import Sequence
from typing import Final

from aileron.isolated.packets import received_with
from aileron.logins.child import Logins, be_login
from aileron.logins.confine import Confinement
from aileron.logins.login_messages import MAX_LOGINS, READY
from aileron.tls import client_context

__all__ = ["serve_control"]

_REAP_S: Final = 5.0
"""Maximum seconds until an ended child process is reaped. Until then it is a zombie, which holds no memory."""
_MAX_RUNNING: Final = 2 * MAX_LOGINS
"""Maximum number of forked processes. A login that the daemon has closed counts until its process has ended, which takes a
moment.
"""


def serve_control(descriptor: int, protocols: Sequence[str]) -> int:
    """Fork a login for each control socket that the daemon sends, until the daemon closes the socket `descriptor`. Return 0."""
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
            for number in passed:
                if running < _MAX_RUNNING and (pid := _forked()) is not None:
                    if pid == 0:
                        be_login(number, logins, confinement)
                    running += 1
                os.close(number)  # if no login holds this socket, the daemon sees that it is closed


def _authorities(control: socket.socket) -> str | None:
    """Read the additional certificate authorities (`egress.ca_file`) from the file that came with the first packet.
    Return the certificates in PEM, or None if no file came.
    """
    _, passed, _ = received_with(control, 16, 1)
    if not passed:
        return None
    with open(passed[0], "rb") as file:
        return file.read().decode("ascii", "ignore")


def _forked() -> int | None:
    """Return the result of fork(2), or None if the machine has no room for another process. Running logins are not
    affected.
    """
    try:
        return os.fork()
    except OSError:
        return None


def _reap() -> int:
    """Reap ended child processes, and return their number."""
    ended = 0
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            ended += 1
    return ended
