"""One login, as a process: reads its order, does it, says what became of it, and ends.

Forked by process.py, with one descriptor; two more come with the order. It has these, one secret, and no way to anything else.
Not here: the login (perform.py), what it may do (confine.py).
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
"""The module below `aileron.logins.protocols`, and the class in it."""


class Logins:
    """What a process of logins knows: some protocols, and whom certificates have to be from."""

    def __init__(self, protocols: Sequence[str], tls: ssl.SSLContext) -> None:
        """Imports them. KeyError for one that there is not."""
        self.tls: Final = tls
        self._classes: Final = {name: _class_of(*CLASSES[name]) for name in CLASSES if name in protocols}

    def of(self, order: Order) -> Login:
        """The login for an order. LoginError where this process has not the protocol, or the protocol cannot keep the order."""
        made = self._classes.get(order.target.protocol)
        if made is None:
            raise LoginError(Problem.PROTOCOL, f"no login by {order.target.protocol} is made here")
        if order.reads_only and not made.can_read_only:
            raise LoginError(
                Problem.NOT_ALLOWED, f"a preview can only read, and a stream of {order.target.protocol} could do more"
            )
        return made(order)


def be_login(descriptor: int, logins: Logins, confinement: Confinement) -> NoReturn:
    """In the fork, with the control socket of the login. Never returns."""
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
        """Until the daemon says that it is on disk; it says so, or goes."""
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
