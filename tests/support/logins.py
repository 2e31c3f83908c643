"""A login in a thread of the test, at a real service: `aileron.logins.perform` without its processes.

>>> with LoginAt(SmtpLogin, "smtp+starttls://localhost:2525", "me", b"secret", tls=authority_context) as login:
...     client = login.client          # the connector's end of the stream: give it to smtplib
...     login.notes                    # what was noted so far
>>> login.outcome                      # at the end: LoggedIn → Over, or Failed

`login.logged_in()` waits for the login; `login.over()` waits for the end and returns it. The service is reached at 127.0.0.1, by
whatever name the target has: that name is what certificates are verified for.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Literal, Self

from aileron.logins.login_messages import Failed, FromLogin, LoggedIn, Note, Order, Over
from aileron.logins.perform import perform
from aileron.logins.protocol import Login
from aileron.model.login import LoginDetails, LoginTarget
from aileron.tls import client_context

__all__ = ["LoginAt", "trusting"]

WAIT_S = 20.0
"""Seconds to wait for an event: far more than it takes."""


def trusting(ca_pem: str | None) -> ssl.SSLContext:
    """Return the TLS context of the process that logs in: the system's authorities, and this one."""
    return client_context(ca_pem, ())


class LoginAt:
    """A login. `keep` takes each note; an exception from it ends the login, as for a record that cannot be written."""

    def __init__(
        self,
        make: Callable[[Order], Login],
        target: str,
        username: str,
        secret: bytes,
        *,
        tls: ssl.SSLContext | None = None,
        credential: Literal["password", "token"] = "password",
        details: LoginDetails | None = None,
        command: str | None = None,
        reads_only: bool = False,
        previewed: bool = False,
        seen: str | None = None,
        login_s: float = 10.0,
        stream_s: float = 30.0,
        service: socket.socket | None = None,
        keep: Callable[[Note], None] | None = None,
    ) -> None:
        """Use `service`, a connected socket, in place of one to 127.0.0.1, for a scripted server at its other end."""
        where = LoginTarget.parse(target)
        self.order = Order(
            target=where,
            credential=credential,
            username=username,
            secret=secret,
            details=details or LoginDetails(),
            command=command,
            login_s=login_s,
            stream_s=stream_s,
            reads_only=reads_only,
            previewed=previewed,
            seen=seen,
        )
        self.notes: list[Note] = []
        self.told: list[FromLogin] = []
        self._keep = keep
        self._changed = threading.Condition()
        self._make = make
        self._tls = tls or trusting(None)
        if service is None:
            service = socket.create_connection(("127.0.0.1", where.destination.port), timeout=WAIT_S)
        self._service = service
        self.client, self._connector = socket.socketpair()
        self.client.settimeout(WAIT_S)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self.client.close()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the login did not end with its connector"

    @property
    def outcome(self) -> FromLogin | None:
        """Last message of the login; None before the first."""
        return self.told[-1] if self.told else None

    def logged_in(self) -> LoggedIn:
        """Wait until the service has accepted the credential. AssertionError with the message that came instead."""
        first = self._wait(lambda: self.told)[0]
        assert isinstance(first, LoggedIn), first
        return first

    def failed(self) -> Failed:
        """Wait until the login has failed, and return the failure."""
        first = self._wait(lambda: self.told)[0]
        assert isinstance(first, Failed), first
        return first

    def over(self) -> Over:
        """Wait until the stream has ended, and return how."""
        last = self._wait(lambda: [message for message in self.told if isinstance(message, Over | Failed)])[0]
        assert isinstance(last, Over), last
        return last

    def _wait(self, found: Callable[[], list[FromLogin]]) -> list[FromLogin]:
        with self._changed:
            assert self._changed.wait_for(found, WAIT_S), self.told
            return found()

    def _run(self) -> None:
        perform(self._make, self.order, self._service, self._connector, self._tls, self._tell, self._note)

    def _tell(self, told: FromLogin) -> None:
        with self._changed:
            self.told.append(told)
            self._changed.notify_all()

    def _note(self, note: Note) -> None:
        if self._keep is not None:
            self._keep(note)
        self.notes.append(note)
