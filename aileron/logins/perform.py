"""Executes one login from its order to its end: logs in, answers the client library's own login, relays, and reports the
result.

Runs in the process of one login, or in a thread of a test. Not here: the process (child.py), the steps of each protocol
(protocols/).
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from typing import Final

import msgspec

from aileron.logins.login_messages import (
    MAX_WORDS,
    Effects,
    Failed,
    FromLogin,
    LoggedIn,
    LoginError,
    Note,
    Order,
    Over,
    Problem,
)
from aileron.logins.mask import SHORTEST, Mask
from aileron.logins.protocol import Login
from aileron.logins.relay import relay
from aileron.logins.side import Side
from aileron.logins.words import printable
from aileron.model.login import HAVE_STARTTLS, LoginTarget

__all__ = ["perform"]

CONNECTOR: Final = "the connector"
_SHOWN_TYPE: Final = 60


def perform(
    make: Callable[[Order], Login],
    order: Order,
    service: socket.socket,
    connector: socket.socket,
    tls: ssl.SSLContext,
    tell: Callable[[FromLogin], None],
    note: Callable[[Note], None],
) -> None:
    """Log in at the service as `order` says, and relay the stream until it ends. `tell` reports `Failed` if the login
    fails; otherwise `LoggedIn`, and `Over` at the end of the stream. `note` sends a note, and returns when the note is
    on disk.

    Both sockets belong to this login from now on, and are closed at the end.
    """
    began = time.monotonic()
    destination = order.target.destination
    login: Login | None = None
    client = Side(connector, began + order.stream_s, CONNECTOR)
    server = Side(service, began + min(order.login_s, order.stream_s), "the service", tls, destination.host)
    mask = Mask(())
    is_open = False
    try:
        login = make(order)
        login.log_in(server)
        mask = Mask(login.sent_in_clear)
        tell(LoggedIn(mechanism=login.mechanism[:MAX_WORDS]))
        is_open = True
        server.wait_until(began + order.stream_s)
        through = login.greet(client, server)
        sent = login.sent_in_clear
        relay(client, server, through, began + order.stream_s, lambda record: note(_masked(record, sent)), mask)
        end: Over | LoginError = Over(scrubbed=mask.hits)
    except LoginError as error:
        end = error if is_open else _with_cure(error, order.target, server)
    except Exception as error:  # noqa: BLE001 - an error that a parser did not foresee ends this stream, and quotes nothing
        end = LoginError(Problem.PROTOCOL, f"what was said at {destination} could not be handled ({_name(error)})")
    finally:
        for side in (server, client):
            side.close()
        for sock in (service, connector):
            sock.close()
    if isinstance(end, LoginError):
        clean = _Words(order.secret, () if login is None else login.sent_in_clear)
        message, said = clean(str(end)), clean(end.said)
        if is_open:
            end = Over(scrubbed=mask.hits + clean.hits, problem=end.problem, message=message, said=said)
        else:
            tell(Failed(problem=end.problem, message=message, said=said, may_allow=end.may_allow))
            return
    tell(end)


def _with_cure(error: LoginError, target: LoginTarget, server: Side) -> LoginError:
    """Return the error of a login. If the error shows that the port needs the other form of TLS (at once, or STARTTLS),
    its message also names the `--login` option with which to build the connector.
    """
    if target.encryption == "tls" and target.protocol in HAVE_STARTTLS and error.problem is Problem.NOT_ENCRYPTED:
        other, why = "starttls", "if it offers STARTTLS"
    elif target.encryption == "starttls" and error.problem is Problem.TOO_SLOW and server.has_said_nothing:
        other, why = "tls", "if it expects TLS at once"
    else:
        return error
    declared = f"{target.protocol}+{other}://{target.destination}"
    return LoginError(error.problem, f"{error}; {why}, build the connector with --login {declared}", error.said)


def _masked(note: Note, sent: tuple[bytes, ...]) -> Note:
    """Return the note with the secret (its forms in `sent`) masked, so that it can be stored: the text of changed rows,
    which a person reads, could contain the secret. The digest covers the unmasked rows.
    """
    if not isinstance(note, Effects) or not sent:
        return note
    mask = Mask(sent)
    text = mask.feed(note.text.encode("utf-8", "replace")) + mask.finish()
    return msgspec.structs.replace(note, text=text.decode("utf-8", "replace"))


class _Words:
    """A cleaner of the service's text that a login reports: it masks the secret, and returns one line of printable
    characters and limited length.
    """

    def __init__(self, secret: bytes, sent: tuple[bytes, ...]) -> None:
        self._forms = tuple(form for form in (secret, *sent) if len(form) >= SHORTEST)
        self.hits = 0

    def __call__(self, text: str) -> str:
        mask = Mask(self._forms)
        raw = text.encode("utf-8", "replace")
        clean = (mask.feed(raw) + mask.finish()).decode("utf-8", "replace")
        self.hits += mask.hits
        return printable(clean)[:MAX_WORDS].strip()


def _name(error: Exception) -> str:
    return type(error).__name__[:_SHOWN_TYPE]
