"""The TCP ports of the daemon: listening sockets, created before any application serves them.

Runs in the daemon at its start, so this module imports little.

Rules
- The daemon listens on both loopback addresses, or does not start: `localhost` may mean either, and a program that listened on
  the other one would receive our clients' requests.

Source: ip(7), ipv6(7). Not here: access, and the applications (listeners.py).
"""

from __future__ import annotations

import errno
import random
import socket
import time
from typing import Final

from aileron.config import ListenAddress
from aileron.model.failure import AileronError, FailureClass

__all__ = ["listen_on", "listen_on_loopback"]

_ADDRESSES: Final = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
_FIRST_PORT, _LAST_PORT = 20480, 32767
"""Range from which a new port is chosen: below the range from which Linux chooses ports for outgoing connections (from 32768
on, ip(7)), so that no outgoing connection holds the port when the daemon is started again.
"""
_TRIES: Final = 64
"""Number of ports that are tried. If all fail, another problem must be the cause."""
_DYING_S: Final = 3.0
"""Seconds to wait for the ingress of a killed daemon to end: its priority is low, and the machine may be busy."""
_BACKLOG: Final = 64
_IP_FREEBIND: Final = 15  # linux/in.h
_IPV6_FREEBIND: Final = 78  # linux/in6.h


def listen_on_loopback(port: int | None) -> tuple[int, list[socket.socket]]:
    """Return listening sockets on the available loopback addresses, all on `port`. If `port` is None, choose a free port.

    Raises AileronError (internal_error) if another program has the port.
    """
    if port is not None:
        try:
            return port, _listeners_soon(port)
        except OSError as error:
            raise AileronError(
                FailureClass.INTERNAL_ERROR,
                f"cannot listen on loopback port {port} ({error.strerror}): stop the program that uses it (`ss "
                "-ltnp` shows it), or remove daemon.port from config.toml to get a new one",
            ) from error
    for _ in range(_TRIES):
        candidate = random.SystemRandom().randint(_FIRST_PORT, _LAST_PORT)  # `secrets` imports HMAC, too
        try:
            return candidate, _listeners(candidate)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise AileronError(
                    FailureClass.INTERNAL_ERROR,
                    f"cannot listen on loopback: {error.strerror}; see `ip address show lo`",
                ) from error
    raise AileronError(
        FailureClass.INTERNAL_ERROR,
        f"{_TRIES} loopback ports were all in use: set daemon.port in config.toml to a free one",
    )


def listen_on(address: ListenAddress) -> socket.socket:
    """Return a listening socket on `address`. Raises AileronError (internal_error) if listening fails.

    An address that no interface has yet is accepted too (ip(7), IP_FREEBIND), because the network of a container comes and goes.
    """
    family = socket.AF_INET6 if ":" in address.address else socket.AF_INET
    level, option = (
        (socket.IPPROTO_IPV6, _IPV6_FREEBIND) if family is socket.AF_INET6 else (socket.IPPROTO_IP, _IP_FREEBIND)
    )
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(level, option, 1)
        listener.bind((address.address, address.port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise AileronError(
            FailureClass.INTERNAL_ERROR,
            f"cannot listen on daemon.listen {address} ({error.strerror}): stop the program that uses it (`ss "
            "-ltnp` shows it), or change it in config.toml",
        ) from error
    return listener


def _listeners_soon(port: int) -> list[socket.socket]:
    """Return the listeners on the daemon's port. Retry for a while, because the ingress of a killed daemon may hold the port
    until it has ended.
    """
    until = time.monotonic() + _DYING_S
    while True:
        try:
            return _listeners(port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > until:
                raise
        time.sleep(_DYING_S / 50)


def _listeners(port: int) -> list[socket.socket]:
    made: list[socket.socket] = []
    try:
        for family, address in _ADDRESSES:
            listener = _listener(family, address, port)
            if listener is not None:
                made.append(listener)
    except OSError:
        for listener in made:
            listener.close()
        raise
    return made


def _listener(family: socket.AddressFamily, address: str, port: int) -> socket.socket | None:
    """Return a listening socket on one address; None if this machine has no IPv6."""
    try:
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        if family is socket.AF_INET6 and error.errno == errno.EAFNOSUPPORT:
            return None
        raise
    try:
        listener.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # a daemon that has just ended is not another program
        if family is socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((address, port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        if family is socket.AF_INET6 and error.errno == errno.EADDRNOTAVAIL:
            return None
        raise
    return listener
