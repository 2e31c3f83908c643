"""Client for the account's SMTP server. It sends a message, and can find out beforehand which recipients the server accepts.

    with sending.opened() as server:
        answer = server.check(outgoing)     # MAIL, RCPT, RSET: nothing is sent
        said = server.send(outgoing)        # to everybody, or, if one is refused, to nobody

The supervisor logs in, and records sender and recipients before the message itself leaves. Runs in the jail, over `smtplib`.
Source: RFC 5321, RFC 1870 (size), RFC 6531 (addresses outside of ASCII). Not here: composing the message (writing.py).
"""

from __future__ import annotations

import contextlib
import smtplib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import failing
import places
from writing import Outgoing

from aileron_connector import ExternalApiError, NetworkError
from aileron_connector.mail import one_line

__all__ = ["Checked", "Server", "opened"]

WAIT_S: Final = 25.0
MAX_ANSWER_BYTES: Final = 256 << 10
"""Maximum number of bytes that the server may send. Its answers to a hundred recipients have about 10 KiB."""
_SERVER: Final = "the mail server (SMTP)"
_MAX_WORDS: Final = 200


class Checked(NamedTuple):
    """The SMTP server's answer to the envelope of a message: the accepted and the refused recipients, or a refusal of
    the whole message.
    """

    accepted: list[str]
    refused: dict[str, str]
    """Refused recipients, each with the server's words."""
    refusal: str | None
    """Reason why the server refused the message before recipients were checked; None if it answered for each recipient."""


class _Bounded:
    """A file object from which smtplib reads the server's replies. It raises OSError after MAX_ANSWER_BYTES."""

    def __init__(self, file: Any) -> None:
        self._file: Final = file
        self._taken = 0

    def readline(self, limit: int) -> bytes:
        line: bytes = self._file.readline(limit)
        self._taken += len(line)
        if self._taken > MAX_ANSWER_BYTES:
            raise OSError(f"the server said more than {MAX_ANSWER_BYTES} bytes")
        return line

    def close(self) -> None:
        self._file.close()


class _Connection(smtplib.SMTP_SSL):
    def getreply(self) -> tuple[int, bytes]:
        if self.file is None and self.sock is not None:
            self.file = _Bounded(self.sock.makefile("rb"))
        return super().getreply()


@contextlib.contextmanager
def opened() -> Iterator[Server]:
    """Log in to the account's SMTP server, and quit when the block ends. Exceptions of smtplib become failures of the
    connector.
    """
    with failing.translated(_SERVER):
        host = places.sending()
        connection = _Connection(host.host, host.port, timeout=WAIT_S)
        try:
            connection.ehlo_or_helo_if_needed()
            connection.login("placeholder", "placeholder")
            yield Server(connection)
        finally:
            with contextlib.suppress(smtplib.SMTPException, OSError):
                connection.quit()


class Server:
    """The account's SMTP server after the login."""

    def __init__(self, connection: _Connection) -> None:
        self._connection: Final = connection

    def check(self, message: Outgoing) -> Checked:
        """Ask the server for which recipients it would accept the message. Sends no message."""
        checked = self._envelope(message)
        self._connection.rset()
        return checked

    def send(self, message: Outgoing) -> str:
        """Send the message to all recipients and return the server's reply.

        Raises ExternalApiError if the server does not accept the message; then no recipient gets it. Raises
        NetworkError if the connection broke after the message began; it is then unknown whether the message was sent.
        """
        checked = self._envelope(message)
        if checked.refusal is not None or checked.refused:
            self._connection.rset()
            raise _refused(checked)
        try:
            code, said = self._connection.data(message.data)
        except smtplib.SMTPDataError as error:
            raise _not_taken(error.smtp_code, error.smtp_error) from None
        except (smtplib.SMTPServerDisconnected, OSError) as error:
            failure = failing.what_failed(_SERVER, error)
            words = (
                f"{failure.message}; the message may have been sent: look for Message-ID {message.message_id} in the folder for "
                "sent mail, and ask a recipient, before you send it again"
            )
            details = {**failure.details, "message_id": message.message_id, "may_have_been_sent": True}
            raise NetworkError(words, details=details) from None
        if code != 250:
            raise _not_taken(code, said)
        return f"{code} {_words(said)}"

    def _envelope(self, message: Outgoing) -> Checked:
        problem = self._problem(message)
        if problem is not None:
            return Checked([], {}, problem)
        code, said = self._connection.mail(message.sender.address, self._options(message))
        if code != 250:
            return Checked(
                [], {}, f"the server does not take mail from {message.sender.address}: {code} {_words(said)}"
            )
        accepted, refused = [], {}
        for recipient in message.recipients:
            code, said = self._connection.rcpt(recipient)
            if code in {250, 251}:
                accepted.append(recipient)
            else:
                refused[recipient] = f"{code} {_words(said)}"
        return Checked(accepted, refused, None)

    def _problem(self, message: Outgoing) -> str | None:
        """Return a reason, known before sending, why the server cannot accept the message, such as its size; None if
        there is none.
        """
        offered = self._connection.esmtp_features
        limit = offered.get("size", "")
        if limit.isascii() and limit.isdigit() and 0 < int(limit) < len(message.data):
            return f"the message has {len(message.data)} bytes; the server takes {limit}"
        if message.needs_utf8 and "smtputf8" not in offered:
            return "an address has letters outside of ASCII, which the server does not take (it has no SMTPUTF8)"
        return None

    def _options(self, message: Outgoing) -> list[str]:
        options = [f"SIZE={len(message.data)}"] if "size" in self._connection.esmtp_features else []
        return [*options, "SMTPUTF8"] if message.needs_utf8 else options


def _refused(checked: Checked) -> ExternalApiError:
    if checked.refusal is not None:
        return ExternalApiError(f"nothing was sent: {checked.refusal}")
    named = "; ".join(f"{address}: {words}" for address, words in list(checked.refused.items())[:5])
    return ExternalApiError(
        f"nothing was sent, to nobody: the server refuses {len(checked.refused)} of the recipients: {named}",
        details={"refused": dict(list(checked.refused.items())[:20])},
    )


def _not_taken(code: int, said: bytes | str) -> ExternalApiError:
    return ExternalApiError(f"nothing was sent: the server does not take the message: {code} {_words(said)}")


def _words(said: bytes | str) -> str:
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
    return one_line(text)[:_MAX_WORDS]
