"""Translation of exceptions of imaplib, smtplib and the host into failures for the caller.

Runs in the jail. Not here: refusals that a server sends as an answer (imap.py, sending.py).
"""

from __future__ import annotations

import contextlib
import imaplib
import smtplib
from collections.abc import Iterator
from typing import Final

from answers import AnswerError

from aileron_connector import ConnectorError, ExternalApiError, NetworkError
from aileron_connector.mail import one_line

__all__ = ["translated", "what_failed"]

_MAX_WRAPPED: Final = 10
_MAX_WORDS: Final = 200


@contextlib.contextmanager
def translated(server: str) -> Iterator[None]:
    """Turn exceptions in the block (of imaplib, smtplib, the parser and the connection) into ConnectorErrors. `server`
    is the server's name in messages.
    """
    try:
        yield
    except ConnectorError:
        raise
    except AnswerError as error:
        raise ExternalApiError(f"{server} sent an answer that cannot be read: {error}") from error
    except (imaplib.IMAP4.error, smtplib.SMTPException, OSError, EOFError) as error:
        raise what_failed(server, error) from None  # the new failure includes the library's words


def what_failed(server: str, error: BaseException) -> ConnectorError:
    """Return the failure for an exception. If a failure that the host reported caused the exception, return the host's
    failure, because it says the most; otherwise return a new failure that quotes the library.
    """
    behind: BaseException | None = error
    for _ in range(_MAX_WRAPPED):
        if isinstance(behind, ConnectorError):
            return behind
        if behind is None:
            break
        behind = behind.__cause__ or behind.__context__
    words = one_line(str(error))[:_MAX_WORDS]
    is_broken = isinstance(error, imaplib.IMAP4.abort | smtplib.SMTPServerDisconnected | OSError | EOFError)
    if isinstance(error, imaplib.IMAP4.error | smtplib.SMTPException) and not is_broken:
        return ExternalApiError(f"{server} does not do it: {words}")
    return NetworkError(f"the connection to {server} broke: {words}", details={"phase": "exchange"})
