"""The process of one login: it reads its order, carries it out, reports the result, and ends.

It is forked by process.py with one descriptor; two more come with the order. Beyond these and one secret it can reach nothing.
Not here: the login (perform.py), what the process may do (confine.py).
"""

from __future__ import annotations

import importlib
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from aileron.hidden.packets import received_with
from aileron.logins.confine import Confinement
from aileron.logins.messages import (
    MAX_PACKET,
    FromLogin,
    LoginError,
    Note,
    Noted,
    Order,
    Problem,
    decode_noted,
    decode_order,
    encode,
)
from aileron.logins.perform import perform
from aileron.logins.protocol import Login
from aileron.model.login import LoginProtocol

__all__ = ["CLASSES", "Logins", "be_login"]

CLASSES: Final[dict[LoginProtocol, tuple[str, str]]] = {
    "smtp": ("smtp", "SmtpLogin"),
    "imap": ("imap", "ImapLogin"),
    "pop3": ("pop3", "Pop3Login"),
    "postgres": ("postgres", "PostgresLogin"),
    "mysql": ("mysql", "MysqlLogin"),
    "redis": ("redis", "RedisLogin"),
    "ssh": ("ssh", "SshLogin"),
}
"""The module below `aileron.logins.protocols`, and the login class in it, of each protocol."""


class Logins:
    """The protocols that a process can log in with, and the TLS context that verifies certificates."""

    def __init__(self, protocols: Sequence[str], tls: ssl.SSLContext) -> None:
        """Import the protocols' modules. KeyError for an unknown protocol."""
        self.tls: Final = tls
        self._classes: Final = {name: _class_of(*CLASSES[name]) for name in CLASSES if name in protocols}

    def of(self, order: Order) -> Login:
        """Return the login for an order. Raise LoginError if this process does not have the protocol, or the protocol cannot
        keep the order.
        """
        made = self._classes.get(order.target.protocol)
        if made is None:
            raise LoginError(Problem.PROTOCOL, f"no login by {order.target.protocol} is made here")
        if order.reads_only and not made.can_read_only:
            raise LoginError(
                Problem.NOT_ALLOWED, f"a preview can only read, and a stream of {order.target.protocol} could do more"
            )
        return made(order)


def be_login(descriptor: int, logins: Logins, confinement: Confinement) -> NoReturn:
    """Run one login in the fork, given the login's control socket. Never returns."""
    try:
        confinement.confine_login(descriptor)
        control = socket.socket(fileno=descriptor)
        packet, passed, _ = received_with(control, MAX_PACKET, 2)
        order = decode_order(packet)
        confinement.end_after(order.stream_s)
        service, stream = (socket.socket(fileno=one) for one in passed)
        service.setblocking(True)
        stream.setblocking(True)
        perform(logins.of, order, service, stream, logins.tls, _teller(control), _noter(control))
    finally:
        os._exit(0)


def _teller(control: socket.socket) -> Callable[[FromLogin], None]:
    def tell(what: FromLogin) -> None:
        try:
            control.send(encode(what))
        except OSError:
            raise LoginError(Problem.CLOSED, "the supervisor has gone") from None

    return tell


def _noter(control: socket.socket) -> Callable[[Note], None]:
    def note(what: Note) -> None:
        """Send a note, and wait until the daemon confirms that it is on disk. Raise LoginError if the daemon does not."""
        try:
            control.send(encode(what))
            answer = control.recv(64)
        except OSError:
            answer = b""
        if not answer or not isinstance(decode_noted(answer), Noted):
            raise LoginError(Problem.CLOSED, "what is sent could not be written down")

    return note


def _class_of(module: str, name: str) -> type[Login]:
    found = getattr(importlib.import_module(f"aileron.logins.protocols.{module}"), name)
    if isinstance(found, type) and issubclass(found, Login):
        return found
    raise TypeError(f"{name} is no login")
