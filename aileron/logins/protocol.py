"""The interface of a protocol: log in at the service, answer the library's own login, and filter the stream after that.

    1 log_in   the service accepts the credential        (the connector hears that its stream is open)
    2 greet    the library's own login is answered here: the user name and password that it sends never leave
    3 filter   bytes both ways, inspected for as long as the protocol needs

Everything runs in the process of one login, one step after the other. Fuzzing targets these methods: `greet` and the filters
parse the connector's bytes, `log_in` the service's.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable
from typing import ClassVar, NamedTuple

from aileron.logins.messages import Note, Order
from aileron.logins.side import Side

__all__ = ["Filter", "Login", "Passed", "Unchanged"]


class Passed(NamedTuple):
    """The bytes that go on to either end. A `note` is on disk before any of them is sent."""

    to_server: bytes = b""
    to_client: bytes = b""
    note: Note | None = None


class Filter(abc.ABC):
    """The filter of a stream after the login. Does no I/O, and gets pieces as the network cut them. A LoginError ends the
    stream.
    """

    @abc.abstractmethod
    def up(self, data: bytes) -> Iterable[Passed]:
        """Handle bytes from the connector to the service."""

    @abc.abstractmethod
    def down(self, data: bytes) -> Iterable[Passed]:
        """Handle bytes from the service to the connector."""

    def up_ended(self) -> Iterable[Passed]:
        """Handle that the connector sends nothing more."""
        return ()

    def down_ended(self) -> Iterable[Passed]:
        """Handle that the service sends nothing more: return what was kept of its bytes, if it can be passed on.

        Raise LoginError if the stream did not end properly; what was said before is delivered nevertheless.
        """
        return ()

    @property
    def is_idle(self) -> bool:
        """True once nothing is inspected any longer: all bytes pass unchanged."""
        return False

    @property
    def has_said_goodbye(self) -> bool:
        """True if the connector has asked for the end with the protocol's own command, so the service can just close the
        connection.
        """
        return False


class Unchanged(Filter):
    """The filter that passes everything unchanged."""

    def up(self, data: bytes) -> Iterable[Passed]:
        """Pass the bytes to the service unchanged."""
        return (Passed(to_server=data),)

    def down(self, data: bytes) -> Iterable[Passed]:
        """Pass the bytes to the connector unchanged."""
        return (Passed(to_client=data),)

    @property
    def is_idle(self) -> bool:
        """Always true."""
        return True


class Login(abc.ABC):
    """The login of one protocol, for one order.

    `can_read_only` is true if its filter can block every change for an order with `reads_only`; other protocols never get such
    an order.
    """

    can_read_only: ClassVar[bool] = False

    def __init__(self, order: Order) -> None:
        self.order = order
        self.mechanism = ""
        """The way in which the credential was presented to the service; set by `log_in`."""
        self.sent_in_clear: tuple[bytes, ...] = ()
        """The secret in each form in which it went over the wire and can be read back. It is masked in everything that the
        service says for as long as the stream lasts.

        Set by `log_in`, before the secret is sent.
        """

    @abc.abstractmethod
    def log_in(self, server: Side) -> None:
        """Log in: return when the service has accepted the credential. LoginError."""

    @abc.abstractmethod
    def greet(self, client: Side, server: Side) -> Filter:
        """Answer the library's own login until the library is satisfied, and return the filter for the stream. LoginError.

        Bytes that were read and not used stay waiting in their side.
        """
