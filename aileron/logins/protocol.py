"""The interface of a protocol: log in at the service, answer the client library's own login, and filter the stream after that.

    1 log_in   the service accepts the credential        (the connector is notified that its stream is open)
    2 greet    the library's own login is answered here: the user name and password that it sends are dropped
    3 filter   bytes in both directions, inspected for as long as the protocol needs

All steps run in the process of one login, one after the other. Fuzzing targets these methods: `greet` and the filters parse
the connector's bytes, `log_in` the service's.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable
from typing import ClassVar, NamedTuple

from aileron.logins.login_messages import Note, Order
from aileron.logins.side import Side

__all__ = ["Filter", "Login", "Passed", "Unchanged"]


class Passed(NamedTuple):
    """The result of a filter: bytes to pass on to the service and to the connector. If there is a `note`, the note is
    on disk before any of these bytes is sent.
    """

    to_server: bytes = b""
    to_client: bytes = b""
    note: Note | None = None


class Filter(abc.ABC):
    """The filter of a stream after the login. It does no I/O, and gets the data in pieces as the network cut them. A
    LoginError that a filter raises ends the stream.
    """

    @abc.abstractmethod
    def up(self, data: bytes) -> Iterable[Passed]:
        """Handle bytes from the connector, and yield what to pass on."""

    @abc.abstractmethod
    def down(self, data: bytes) -> Iterable[Passed]:
        """Handle bytes from the service, and yield what to pass on."""

    def up_ended(self) -> Iterable[Passed]:
        """Handle the end of the bytes from the connector, which sends nothing more, and yield what to pass on."""
        return ()

    def down_ended(self) -> Iterable[Passed]:
        """Handle the end of the bytes from the service. Return the bytes that were held back, if they can be passed on.

        Raise LoginError if the stream did not end properly; all bytes returned before are delivered nevertheless.
        """
        return ()

    @property
    def is_idle(self) -> bool:
        """True once the filter no longer inspects anything, so that all bytes pass unchanged."""
        return False

    @property
    def has_said_goodbye(self) -> bool:
        """True if the connector has ended the session with the protocol's own command, so that the service can close the
        connection.
        """
        return False


class Unchanged(Filter):
    """The filter that passes all bytes unchanged in both directions."""

    def up(self, data: bytes) -> Iterable[Passed]:
        """Pass the bytes to the service unchanged."""
        return (Passed(to_server=data),)

    def down(self, data: bytes) -> Iterable[Passed]:
        """Pass the bytes to the connector unchanged."""
        return (Passed(to_client=data),)

    @property
    def is_idle(self) -> bool:
        """Always true, because this filter inspects nothing."""
        return True


class Login(abc.ABC):
    """Base class of the logins: the login over one protocol, as one order of the daemon says.

    `can_read_only` is true if the protocol's filter can block every change for an order with `reads_only`. A protocol without
    such a filter never gets such an order.
    """

    can_read_only: ClassVar[bool] = False

    def __init__(self, order: Order) -> None:
        self.order = order
        self.mechanism = ""
        """The mechanism with which the credential was presented to the service. It is set by `log_in`."""
        self.sent_in_clear: tuple[bytes, ...] = ()
        """The forms of the secret that were sent to the service, and that could be read if its output repeated them.
        These forms are masked in all output of the service for as long as the stream lasts.

        The value is set by `log_in`, before the secret is sent.
        """

    @abc.abstractmethod
    def log_in(self, server: Side) -> None:
        """Log in at the service, and return when it has accepted the credential. Raises LoginError if the login fails."""

    @abc.abstractmethod
    def greet(self, client: Side, server: Side) -> Filter:
        """Answer the login that the connector's client library attempts, until the library believes that it has logged
        in, and return the filter for the stream. Raises LoginError if the library's login cannot be answered.

        Bytes that were read but not used stay in the `Side` that read them.
        """
