"""The options `--publish PORT` and `--publish HOSTPORT:PORT`, which make a server that the agent started reachable
from this machine.

Listens only on loopback outside the cell, and forwards each connection to PORT on the cell's own loopback. The server
there is the agent's, so a person's browser must not take it for another server on `localhost`.

>>> parse_publish("8080:3000")
Publish(host_port=8080, port=3000)

Source: ip(7), ipv6(7). Not here: forwarding the bytes (relays.py), the connection into the cell
(aileron_sandbox.cell.door).
"""

from __future__ import annotations

import contextlib
import errno
import re
import socket
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

import msgspec

from aileron.cell.relays import Door

__all__ = ["Publish", "PublishRefused", "Published", "parse_publish"]

_BACKLOG: Final = 64
"""Maximum length of a listener's queue of connections that are not yet accepted. A browser opens six at once."""


class PublishRefused(Exception):
    """Error: a port cannot be published. `what` is the problem, and `fix` says what to do."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix


class Publish(msgspec.Struct, frozen=True):
    """A port on this machine, and the port in the cell to which its connections are forwarded."""

    host_port: int
    port: int


def parse_publish(text: str) -> Publish:
    """Parse the value of `--publish`: PORT or HOSTPORT:PORT. Raises ValueError, with the expected form, for any other text."""
    if re.fullmatch(r"[0-9]{1,5}(?::[0-9]{1,5})?", text) is None:
        raise ValueError(f"{text!r} is not a port: use PORT or HOSTPORT:PORT")
    host_port, _, port = text.partition(":")
    found = Publish(int(host_port), int(port or host_port))
    for number in (found.host_port, found.port):
        if not 1 <= number <= 65535:
            raise ValueError(f"{number} in {text!r} is not a port: use 1 to 65535")
    return found


class Published:
    """The listeners of one published port, on both loopback addresses. They open before the agent starts, so that a
    port that is refused is reported first.
    """

    def __init__(self, publish: Publish) -> None:
        self.publish: Final = publish
        with contextlib.ExitStack() as undo:
            made = [undo.enter_context(_listening("127.0.0.1", publish))]
            if (other := _maybe_listening("::1", publish)) is not None:
                made.append(undo.enter_context(other))
            undo.pop_all()
        self.listeners: Final = tuple(made)

    def door(self, connect: Callable[[int], socket.socket]) -> Door:
        """Return a `Door` that forwards connections of the published port to the port in the cell, to which `connect`
        connects. If no server listens there, the door closes the connection at once.
        """
        return Door(f"publish {self.publish.host_port}", lambda: connect(self.publish.port), patience_s=0)

    def close(self) -> None:
        """Close the listeners, so that new connections are refused. Idempotent."""
        for listener in self.listeners:
            listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _maybe_listening(address: str, publish: Publish) -> socket.socket | None:
    """Return a listening socket on the address, or None if the machine lacks the address."""
    try:
        return _listening(address, publish)
    except PublishRefused as refused:
        cause = refused.__cause__
        if isinstance(cause, OSError) and cause.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            return None
        raise


def _listening(address: str, publish: Publish) -> socket.socket:
    try:
        return _listener(address, publish.host_port)
    except OSError as error:
        port = publish.host_port
        if error.errno == errno.EADDRINUSE:
            what = f"port {port} is in use on this machine"
            raise PublishRefused(what, f"choose another, such as --publish {_other(port)}:{publish.port}") from error
        if error.errno == errno.EACCES:
            what = f"port {port} cannot be used: {error.strerror}"
            raise PublishRefused(
                what, f"choose one above 1023, such as --publish {_other(port)}:{publish.port}"
            ) from error
        raise PublishRefused(f"port {port} cannot be used: {error.strerror}", "choose another port") from error


def _listener(address: str, port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        # Despite connections that ended a minute ago, socket(7)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if made.family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind((address, port))
        made.listen(_BACKLOG)
    except BaseException:
        made.close()
        raise
    return made


def _other(port: int) -> int:
    """Return a port to suggest instead of `port`, above those that only root can use."""
    return port + 8000 if port < 1024 else port + 1 if port < 65535 else port - 1
