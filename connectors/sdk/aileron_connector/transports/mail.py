"""smtplib, imaplib and poplib over a stream of the host (tcp.py), by the one method in which each makes its socket.

The classes without SSL ask for a stream without TLS, which the host grants to a loopback service the user named only; so
connect with `SMTP_SSL`, `IMAP4_SSL`, `POP3_SSL`. STARTTLS cannot be: TLS is the host's, from the first byte or not at all.

Runs inside the jail. Source: https://docs.python.org/3/library/smtplib.html. Not here: passwords; none enters the jail.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from aileron_connector import loop, tcp

__all__ = ["change_imaplib", "change_poplib", "change_smtplib"]

_OWN_NAME: Final = "[127.0.0.1]"
"""What smtplib calls itself where the machine's name leads nowhere; to find out it would look names up."""


def change_smtplib(module: ModuleType) -> None:
    """smtplib.SMTP and SMTP_SSL."""
    original = module.SMTP.__init__

    def start(
        self: Any, host: str = "", port: int = 0, local_hostname: str | None = None, *args: Any, **options: Any
    ) -> None:
        if local_hostname is None and loop.maybe_current() is not None:
            local_hostname = _OWN_NAME
        original(self, host, port, local_hostname, *args, **options)

    module.SMTP.__init__ = start
    _change(module.SMTP, "_get_socket", lambda self, host, port, timeout: _connect(host, port, timeout, tls=False))
    _change(module.SMTP_SSL, "_get_socket", lambda self, host, port, timeout: _connect(host, port, timeout, tls=True))


def change_imaplib(module: ModuleType) -> None:
    """imaplib.IMAP4 and IMAP4_SSL."""
    _change(module.IMAP4, "_create_socket", lambda self, timeout: _connect(self.host, self.port, timeout, tls=False))
    _change(module.IMAP4_SSL, "_create_socket", lambda self, timeout: _connect(self.host, self.port, timeout, tls=True))


def change_poplib(module: ModuleType) -> None:
    """poplib.POP3 and POP3_SSL."""
    _change(module.POP3, "_create_socket", lambda self, timeout: _connect(self.host, self.port, timeout, tls=False))
    _change(module.POP3_SSL, "_create_socket", lambda self, timeout: _connect(self.host, self.port, timeout, tls=True))


def _connect(host: str, port: int, timeout: object, *, tls: bool) -> tcp.Stream:
    return tcp.connect(host, port, tls=tls, timeout_s=timeout if isinstance(timeout, int | float) else None)


def _change(kind: Any, name: str, make: Callable[..., tcp.Stream]) -> None:
    original = getattr(kind, name)

    def method(self: Any, *args: Any) -> Any:
        return original(self, *args) if loop.maybe_current() is None else make(self, *args)

    setattr(kind, name, method)
