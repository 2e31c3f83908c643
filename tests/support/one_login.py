"""One login without its processes: the protocol and the relay in a thread of the test, between a real server and a client.

    with LoggedIn(SshLogin(an_order(...)), port, tls) as login:
        login.client.sendall(b"…")          # what the connector does
    login.over                              # how the stream ended

A login that fails raises its LoginError from `with`. Not here: confinement and messages (the processes' own tests).
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from typing import Final, Self

from aileron.logins.mask import Mask
from aileron.logins.messages import LoginError, Order
from aileron.logins.protocol import Login
from aileron.logins.relay import relay
from aileron.logins.side import Side
from aileron.model.login import LoginDetails, LoginTarget

__all__ = ["LoggedIn", "an_order"]

_JOIN_S: Final = 10.0


def an_order(
    target: str,
    username: str,
    secret: bytes,
    details: LoginDetails | None = None,
    command: str | None = None,
    login_s: float = 5.0,
) -> Order:
    """An order with a password or a key."""
    return Order(
        target=LoginTarget.parse(target),
        credential="password",
        username=username,
        secret=secret,
        details=details or LoginDetails(),
        command=command,
        login_s=login_s,
        stream_s=20.0,
    )


class LoggedIn:
    """A stream behind a login. `client` is the connector's end."""

    def __init__(self, login: Login, tls: ssl.SSLContext | None = None, connected: socket.socket | None = None) -> None:
        """`connected` in place of a connection to where the order says."""
        order = login.order
        place = order.target.destination
        self._socket: Final = connected or socket.create_connection((place.host, place.port), 5)
        self.client, self._jails_end = socket.socketpair()
        self.client.settimeout(10)
        until = time.monotonic() + order.login_s
        self._server: Final = Side(self._socket, until, "the server", tls, place.host)
        self._for_client: Final = Side(self._jails_end, until, "the connector")
        self.login: Final = login
        self.over: LoginError | None = None
        self.mask: Mask | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        try:
            self.login.log_in(self._server)
        except BaseException:
            self._close()
            raise
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.client.close()
        self.wait()
        self._close()

    def wait(self) -> LoginError | None:
        """Until the stream is over, and how."""
        self._thread.join(_JOIN_S)
        assert not self._thread.is_alive(), "the stream does not end"
        return self.over

    def _run(self) -> None:
        self.mask = Mask(self.login.sent_in_clear)
        until = time.monotonic() + self.login.order.stream_s
        try:
            through = self.login.greet(self._for_client, self._server)
            relay(self._for_client, self._server, through, until, lambda note: None, self.mask)
        except LoginError as error:
            self.over = error
        finally:
            self._close_stream()

    def _close_stream(self) -> None:
        self._jails_end.close()
        self._server.sock.close()

    def _close(self) -> None:
        self._close_stream()
        self._socket.close()
        self.client.close()
