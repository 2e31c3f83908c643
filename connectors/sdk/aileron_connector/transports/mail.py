"""Adapter for smtplib, imaplib and poplib. In each, the method that makes the socket is replaced, and returns a stream
of the host (tcp.py).

If the host logs in, all classes work, with or without `starttls()` (`stls()`): the host already does TLS, so these
methods send no command. `login()` takes any user name and password.

Otherwise the classes without SSL request a stream without TLS, which the host grants only to a loopback service that the user
named; so connect with `SMTP_SSL`, `IMAP4_SSL`, `POP3_SSL`. STARTTLS is not possible: the host speaks TLS from the first byte or
not at all.

Runs inside the jail. Source: https://docs.python.org/3/library/smtplib.html. Not here: passwords, since none enters the jail.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from aileron_connector import loop, tcp

__all__ = ["change_imaplib", "change_poplib", "change_smtplib"]

_OWN_NAME: Final = "[127.0.0.1]"
"""Name that smtplib sends in EHLO. smtplib itself uses it if the machine's name does not resolve; a jail must not look
up names.
"""

_ENCRYPTED: Final = b"TLS is spoken outside of the jail"


def change_smtplib(module: ModuleType) -> None:
    """Make smtplib.SMTP and SMTP_SSL connect through streams of the host within an invocation."""
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
    _leave_out_starttls(module.SMTP, "starttls", _smtp_is_encrypted)


def change_imaplib(module: ModuleType) -> None:
    """Make imaplib.IMAP4 and IMAP4_SSL connect through streams of the host within an invocation."""
    _change(module.IMAP4, "_create_socket", lambda self, timeout: _connect(self.host, self.port, timeout, tls=False))
    _change(module.IMAP4_SSL, "_create_socket", lambda self, timeout: _connect(self.host, self.port, timeout, tls=True))
    _leave_out_starttls(module.IMAP4, "starttls", _imap_is_encrypted)


def change_poplib(module: ModuleType) -> None:
    """Make poplib.POP3 and POP3_SSL connect through streams of the host within an invocation."""
    _change(module.POP3, "_create_socket", lambda self, timeout: _connect(self.host, self.port, timeout, tls=False))
    _change(module.POP3_SSL, "_create_socket", lambda self, timeout: _connect(self.host, self.port, timeout, tls=True))
    _leave_out_starttls(module.POP3, "stls", _pop3_is_encrypted)


def _connect(host: str, port: int, timeout: object, *, tls: bool) -> tcp.Stream:
    return tcp.connect(host, port, tls=tls, timeout_s=timeout if isinstance(timeout, int | float) else None)


def _leave_out_starttls(kind: Any, name: str, done: Callable[[Any], Any]) -> None:
    """Make the method that starts TLS send nothing on a stream that the host has logged in, which is encrypted already."""
    original = getattr(kind, name)

    def method(self: Any, *args: Any, **options: Any) -> Any:
        has_login = isinstance(self.sock, tcp.Stream) and self.sock.login is not None
        return done(self) if has_login else original(self, *args, **options)

    setattr(kind, name, method)


def _smtp_is_encrypted(client: Any) -> tuple[int, bytes]:
    client.ehlo_or_helo_if_needed()
    return 220, _ENCRYPTED


def _imap_is_encrypted(client: Any) -> tuple[str, list[bytes]]:
    client._tls_established = True  # as IMAP4.starttls does, for login methods that require it
    return "OK", [_ENCRYPTED]


def _pop3_is_encrypted(client: Any) -> bytes:
    client._tls_established = True
    return b"+OK " + _ENCRYPTED


def _change(kind: Any, name: str, make: Callable[..., tcp.Stream]) -> None:
    original = getattr(kind, name)

    def method(self: Any, *args: Any) -> Any:
        return original(self, *args) if loop.maybe_current() is None else make(self, *args)

    setattr(kind, name, method)
