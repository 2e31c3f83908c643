"""Accepts connections, one after another, on a Unix socket on which the daemon does not speak HTTP.

Runs in the daemon's event loop. If no descriptor is free, clients wait in the backlog, and no error is raised.

Source: accept(2), EMFILE. Not here: the clients (ingress/peers.py), the sockets that speak HTTP (ingress/server.py).
"""

from __future__ import annotations

import logging
import socket

import anyio
import anyio.lowlevel

from aileron.isolated.packets import FULL_PAUSE_S

__all__ = ["accepted"]

_log = logging.getLogger(__name__)


async def accepted(listener: socket.socket, what: str) -> socket.socket:
    """Wait for the next connection to a non-blocking listener. The returned socket is non-blocking too.

    `what` describes the connection in the log message: "no {what} can be accepted".
    """
    while True:
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            await anyio.wait_readable(listener)
        except OSError as error:
            _log.warning("no %s can be accepted: out of system resource (%s)", what, error.strerror)
            await anyio.sleep(FULL_PAUSE_S)
        else:
            connection.setblocking(False)
            await anyio.lowlevel.cancel_shielded_checkpoint()  # many clients must not keep the loop to themselves
            return connection
