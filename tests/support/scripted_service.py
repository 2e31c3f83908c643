"""A service that a test scripts, in a thread, at the other end of a login's socket; with TLS from where the script starts it.

>>> def lies(talk: Talk) -> None:
...     talk.say(b"220 hello")
...     talk.hear()                       # b"EHLO [127.0.0.1]"
...
>>> with Scripted(lies, tls=context) as service, LoginAt(SmtpLogin, …, service=service.far) as login: …

`heard` is every byte received, decrypted: a test searches it for what must not have been sent. The script may go on after the
login has failed; the loss of its socket then ends it without an error. Not here: real services (dovecot.py, postfix.py).
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from typing import Self

__all__ = ["Scripted", "Talk"]

_WAIT_S = 20.0


class Talk:
    """The service's end of the conversation."""

    def __init__(self, sock: socket.socket, tls: ssl.SSLContext | None) -> None:
        self._sock = sock
        self._tls = tls
        self._waiting = b""
        self.heard = bytearray()

    def say(self, *lines: bytes) -> None:
        """Send lines, ended by CR LF."""
        self._sock.sendall(b"".join(line + b"\r\n" for line in lines))

    def say_raw(self, data: bytes) -> None:
        """Send bytes, unchanged."""
        self._sock.sendall(data)

    def hear(self) -> bytes:
        """Return a line without its end. EOFError."""
        while b"\n" not in self._waiting:
            self._more()
        line, _, self._waiting = self._waiting.partition(b"\n")
        return line.removesuffix(b"\r")

    def hear_bytes(self, size: int) -> bytes:
        """Return `size` bytes. EOFError."""
        while len(self._waiting) < size:
            self._more()
        taken, self._waiting = self._waiting[:size], self._waiting[size:]
        return taken

    def start_tls(self) -> None:
        """Start TLS as the server."""
        assert self._tls is not None
        self._sock = self._tls.wrap_socket(self._sock, server_side=True)

    def close(self) -> None:
        """Shut the connection down without a message."""
        socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def _more(self) -> None:
        got = self._sock.recv(65536)
        if not got:
            raise EOFError
        self.heard += got
        self._waiting += got

    def end(self) -> None:
        """Close the socket, plain or TLS."""
        self._sock.close()


class Scripted:
    """A conversation that follows `script`; a context manager."""

    def __init__(self, script: Callable[[Talk], None], tls: ssl.SSLContext | None = None) -> None:
        near, self.far = socket.socketpair()
        near.settimeout(_WAIT_S)
        self._script = script
        self.talk = Talk(near, tls)
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def heard(self) -> bytes:
        """Every byte received so far."""
        return bytes(self.talk.heard)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.far.close()
        self._thread.join(_WAIT_S)
        assert not self._thread.is_alive(), "the script did not end"

    def _run(self) -> None:
        try:
            self._script(self.talk)
        except (OSError, EOFError):
            pass  # the login has ended
        finally:
            self.talk.end()
