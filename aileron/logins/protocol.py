"""What a protocol has to do: log in at the service, answer the library's own login, and say what passes after that.

    1 log_in   the service accepts the credential        (the connector hears that its stream is open)
    2 greet    the library's own login is answered here: what it sends as user name and password never leaves
    3 filter   bytes both ways, looked at for as long as the protocol wants

Everything runs in the process of one login, one step after the other. What is fuzzed is here: `greet` and the filters parse the
connector's bytes, `log_in` the service's.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable
from typing import ClassVar, NamedTuple

from aileron.logins.messages import Note, Order
from aileron.logins.side import Side

__all__ = ["Filter", "Login", "Passed", "Unchanged"]


class Passed(NamedTuple):
    """What goes on to either end. With a `note`, that is on disk before any of it is sent."""

    to_server: bytes = b""
    to_client: bytes = b""
    note: Note | None = None


class Filter(abc.ABC):
    """Bytes after the login. No I/O; pieces come as the network cut them. LoginError ends the stream."""

    @abc.abstractmethod
    def up(self, data: bytes) -> Iterable[Passed]:
        """Of the connector, for the service."""

    @abc.abstractmethod
    def down(self, data: bytes) -> Iterable[Passed]:
        """Of the service, for the connector."""

    def up_ended(self) -> Iterable[Passed]:
        """The connector sends nothing more."""
        return ()

    def down_ended(self) -> Iterable[Passed]:
        """Nor does the service: what was kept of it, if it is to be passed on. LoginError where that was no good end; what was
        said before is delivered all the same.
        """
        return ()

    @property
    def is_idle(self) -> bool:
        """Nothing is looked at any more: whatever comes passes as it is."""
        return False

    @property
    def has_said_goodbye(self) -> bool:
        """The connector has asked for the end by the protocol's own word, so the service may just close the connection."""
        return False


class Unchanged(Filter):
    """Everything passes."""

    def up(self, data: bytes) -> Iterable[Passed]:
        """As it is."""
        return (Passed(to_server=data),)

    def down(self, data: bytes) -> Iterable[Passed]:
        """As it is."""
        return (Passed(to_client=data),)

    @property
    def is_idle(self) -> bool:
        """Always."""
        return True


class Login(abc.ABC):
    """One protocol, for one order. `can_read_only`: its filter lets nothing through that changes anything, where the order says
    `reads_only`; other protocols never get such an order.
    """

    can_read_only: ClassVar[bool] = False

    def __init__(self, order: Order) -> None:
        self.order = order
        self.mechanism = ""
        """How the service was shown the credential; set by `log_in`."""
        self.sent_in_clear: tuple[bytes, ...] = ()
        """The secret in each form in which it went over the wire so that it can be read back: masked in whatever the service says
        for as long as the stream lasts. Set by `log_in`, before it is sent."""

    @abc.abstractmethod
    def log_in(self, server: Side) -> None:
        """Until the service has accepted the credential. LoginError."""

    @abc.abstractmethod
    def greet(self, client: Side, server: Side) -> Filter:
        """Until the library thinks that it has logged in. LoginError. What was read and not used stays waiting in its side."""
