"""smtplib, imaplib and poplib on a given stream: what the SDK does for them in a jail, for tests without one.

>>> with LoginAt(ImapLogin, …) as login, imap(login.client) as client:
...     client.login("any", "any")
"""

from __future__ import annotations

import contextlib
import imaplib
import poplib
import smtplib
import socket
from collections.abc import Iterator

__all__ = ["imap", "pop3", "smtp"]


class _Smtp(smtplib.SMTP):
    def __init__(self, sock: socket.socket) -> None:
        self._given = sock
        super().__init__("mail.example.com", 587, local_hostname="[127.0.0.1]")

    def _get_socket(self, host: object, port: object, timeout: object) -> socket.socket:
        return self._given


class _Imap(imaplib.IMAP4):
    def __init__(self, sock: socket.socket) -> None:
        self._given = sock
        super().__init__("mail.example.com")

    def _create_socket(self, timeout: object) -> socket.socket:
        return self._given


class _Pop3(poplib.POP3):
    def __init__(self, sock: socket.socket) -> None:
        self._given = sock
        super().__init__("mail.example.com")

    def _create_socket(self, timeout: object) -> socket.socket:
        return self._given


@contextlib.contextmanager
def _ends(sock: socket.socket) -> Iterator[None]:
    """Shut the socket down at the end, because the clients' files keep open a socket that is only closed."""
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def smtp(sock: socket.socket) -> Iterator[smtplib.SMTP]:
    """Yield an SMTP client that has read the greeting."""
    with _ends(sock):
        client = _Smtp(sock)
        yield client
        client.close()


@contextlib.contextmanager
def imap(sock: socket.socket) -> Iterator[imaplib.IMAP4]:
    """Yield an IMAP client that has read the greeting."""
    with _ends(sock):
        client = _Imap(sock)
        yield client
        with contextlib.suppress(OSError, imaplib.IMAP4.abort):
            client.shutdown()


@contextlib.contextmanager
def pop3(sock: socket.socket) -> Iterator[poplib.POP3]:
    """Yield a POP3 client that has read the greeting."""
    with _ends(sock):
        client = _Pop3(sock)
        yield client
        client.close()
