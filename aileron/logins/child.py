"""The process of one login: it reads the daemon's order, executes the order, reports the result, and ends.

The process is forked by process.py with one descriptor; two more come with the order. It can reach nothing except these
descriptors and one secret. Not here: the login (perform.py), what the process may do (confine.py).
"""

from __future__ import annotations

import importlib
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Final, NoReturn, assert_never

from aileron.isolated.packets import received_with
from aileron.logins.confine import Confinement
from aileron.logins.login_messages import (
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
from aileron.model.login import PROTOCOLS, LoginProtocol

__all__ = ["CLASSES", "Logins", "be_login"]


def _place_of(protocol: LoginProtocol) -> tuple[str, str]:
    match protocol:
        case "smtp":
            return "smtp", "SmtpLogin"
        case "imap":
            return "imap", "ImapLogin"
        case "pop3":
            return "pop3", "Pop3Login"
        case "postgres":
            return "postgres", "PostgresLogin"
        case "mysql":
            return "mysql", "MysqlLogin"
        case "redis":
            return "redis", "RedisLogin"
        case "ssh":
            return "ssh", "SshLogin"
        case impossible:
            assert_never(impossible)


CLASSES: Final = {protocol: _place_of(protocol) for protocol in PROTOCOLS}
"""Module below `aileron.logins.protocols` and name of the login class in that module, by protocol."""


class Logins:
    """The login classes that a process has imported, one for each protocol with which it can log in, and the TLS
    context that verifies certificates.
    """

    def __init__(self, protocols: Sequence[str], tls: ssl.SSLContext) -> None:
        """Import the modules of these protocols. Unknown protocols are ignored."""
        self.tls: Final = tls
        self._classes: Final = {name: _class_of(*CLASSES[name]) for name in CLASSES if name in protocols}

    def of(self, order: Order) -> Login:
        """Return the login for an order. Raise LoginError if this process has not imported the protocol, or if the
        protocol cannot do what the order requires.
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
    """Run one login in the process that was forked for it. `descriptor` is the login's control socket. Never returns."""
    try:
        confinement.confine_login(descriptor)
        control = socket.socket(fileno=descriptor)
        packet, passed, _ = received_with(control, MAX_PACKET, 2)
        order = decode_order(packet)
        confinement.end_after(order.stream_s)
        service, stream = (socket.socket(fileno=number) for number in passed)
        service.setblocking(True)
        stream.setblocking(True)
        perform(logins.of, order, service, stream, logins.tls, _teller(control), _noter(control))
    finally:
        os._exit(0)


def _teller(control: socket.socket) -> Callable[[FromLogin], None]:
    def tell(message: FromLogin) -> None:
        try:
            control.send(encode(message))
        except OSError:
            raise LoginError(Problem.CLOSED, "the supervisor has gone") from None

    return tell


def _noter(control: socket.socket) -> Callable[[Note], None]:
    def note(message: Note) -> None:
        """Send the daemon a note (a mail message, its result, or effects), and wait until it confirms that the note is
        on disk. Raise LoginError if the daemon does not confirm.
        """
        try:
            control.send(encode(message))
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
