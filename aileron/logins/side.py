"""The two ends of a login's stream, each a `Side`: read within bounds and a deadline, and over TLS if requested.

    service ◄──► Side │ protocol │ Side ◄──► connector

Runs in the process of one login, which has nothing else to do, so a side can block. Trusts neither end.

Rules
- Until the login has ended, each end can send at most MAX_LOGIN_BYTES in total, and lines of at most MAX_LINE bytes.
- No bytes that were sent before TLS are used after TLS began: unread bytes when TLS begins are an error (CVE-2011-0411).
- An error quotes no received bytes.

Not here: what the bytes mean (protocols/), bytes after the login (relay.py).
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Callable
from typing import Final

from aileron.logins.login_messages import LoginError, Problem
from aileron.tls import was_cut

__all__ = ["MAX_LINE", "MAX_LOGIN_BYTES", "Side"]

MAX_LOGIN_BYTES: Final = 256 << 10
"""Maximum number of bytes that one end can send during the login: 256 KiB. Greetings, capabilities, SASL and the start-up
parameters of a database take a few KiB.
"""
MAX_LINE: Final = 16 << 10
"""Maximum length of a line in bytes: 16 KiB. RFC 4954 section 4 allows lines of 12,288 octets, the longest lines of
these protocols.
"""
_PIECE: Final = 16 << 10
_NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST"})
"""OpenSSL's error reasons for a first record that is not TLS (include/openssl/sslerr.h), such as the greeting of a mail
server.
"""


class Side:
    """The connection to one end of a login's stream, the service or the connector. `deadline` is in the time of
    `time.monotonic()`; `who` names this end in messages.
    """

    def __init__(
        self,
        sock: socket.socket,
        deadline: float,
        who: str,
        tls: ssl.SSLContext | None = None,
        host: str = "",
    ) -> None:
        """Wrap a socket. `tls` and `host` are the context for TLS and the host name that the certificate must have; `tls` is
        None for the connector's end.
        """
        self._sock = sock
        self._deadline = deadline
        self._who: Final = who
        self._tls: Final = tls
        self._host: Final = host
        self._waiting = bytearray()
        self._taken = 0

    @property
    def sock(self) -> socket.socket:
        """The current socket to this end, for use after the login."""
        return self._sock

    @property
    def who(self) -> str:
        """The name of this end in messages."""
        return self._who

    def close(self) -> None:
        """Close the socket immediately, without waiting. Send TLS's closing alert if the socket's buffer has room, so that the
        service sees that the stream was not cut.
        """
        with contextlib.suppress(OSError, ValueError):
            self._sock.setblocking(False)
            if isinstance(self._sock, ssl.SSLSocket):
                self._sock.unwrap()
        self._sock.close()

    def wait_until(self, deadline: float) -> None:
        """Set a new deadline for all further reads from and writes to this end."""
        self._deadline = deadline

    def replace(self, sock: socket.socket) -> None:
        """Use another socket for this end from now on, for a protocol with its own encrypted transport (`ssh`)."""
        self._sock = sock

    @property
    def is_encrypted(self) -> bool:
        """True once TLS has begun and the certificate was verified for the host."""
        return isinstance(self._sock, ssl.SSLSocket)

    @property
    def has_said_nothing(self) -> bool:
        """True while nothing was read from this end and TLS has not begun."""
        return not self._taken and not self.is_encrypted

    @property
    def certificate(self) -> bytes | None:
        """The other end's certificate in DER; None if TLS has not begun."""
        return self._sock.getpeercert(binary_form=True) if isinstance(self._sock, ssl.SSLSocket) else None

    def line(self) -> bytes:
        """Return the next line without its line end (CRLF or LF). Raises LoginError if the line is too long, if this
        end has sent more than MAX_LOGIN_BYTES in total, or if it is closed or too slow.
        """
        while (at := self._waiting.find(b"\n")) < 0:
            if len(self._waiting) > MAX_LINE:
                raise LoginError(Problem.PROTOCOL, f"{self._who} sent a line of more than {MAX_LINE} bytes")
            self._more()
        found = bytes(self._waiting[:at]).removesuffix(b"\r")
        del self._waiting[: at + 1]
        return found

    def exactly(self, size: int) -> bytes:
        """Return exactly `size` bytes. Raises LoginError if `size` exceeds MAX_LOGIN_BYTES, if this end has sent more
        than MAX_LOGIN_BYTES in total, or if it closes or the deadline passes before `size` bytes have arrived.
        """
        if size > MAX_LOGIN_BYTES:
            raise LoginError(
                Problem.PROTOCOL, f"{self._who} announced {size} bytes; a login has at most {MAX_LOGIN_BYTES}"
            )
        while len(self._waiting) < size:
            self._more()
        found = bytes(self._waiting[:size])
        del self._waiting[:size]
        return found

    def peek(self, size: int) -> bytes:
        """Return the next `size` bytes without consuming them. Raises LoginError as `exactly` does, except that `size`
        has no limit.
        """
        while len(self._waiting) < size:
            self._more()
        return bytes(self._waiting[:size])

    def take_waiting(self) -> bytes:
        """Return and remove the bytes that were read from this end but not used in the login. The relay passes them on
        first.
        """
        found = bytes(self._waiting)
        self._waiting.clear()
        return found

    def write(self, data: bytes) -> None:
        """Write all of the data. Raises LoginError if this end is closed or too slow."""
        problem = self._exchange(lambda: self._sock.sendall(data))
        if problem is not None:
            raise problem

    def start_tls(self) -> None:
        """Begin TLS and verify the certificate. Raise LoginError (certificate) if the certificate is not valid or TLS
        fails, (not_encrypted) if unencrypted bytes are waiting or the end does not use TLS, (closed) or (too_slow).

        Raises ValueError if TLS has begun already, or at the connector's end.
        """
        if self._tls is None or isinstance(self._sock, ssl.SSLSocket):
            raise ValueError("TLS begins once, and at the service's end")
        if self._waiting:
            raise LoginError(
                Problem.NOT_ENCRYPTED, f"{self._who} sent something before TLS began, which was not encrypted"
            )
        problem = self._exchange(self._handshake)
        if problem is not None:
            raise problem

    def _handshake(self) -> None:
        assert self._tls is not None
        self._sock = self._tls.wrap_socket(
            self._sock, server_hostname=self._host, do_handshake_on_connect=False, suppress_ragged_eofs=False
        )
        self._sock.settimeout(self._left())
        self._sock.do_handshake()

    def _more(self) -> None:
        got: list[bytes] = []
        problem = self._exchange(lambda: got.append(self._sock.recv(_PIECE)))
        if problem is not None:
            raise problem
        if not got[0]:
            raise LoginError(Problem.CLOSED, f"{self._who} closed the connection before the login was over")
        self._taken += len(got[0])
        if self._taken > MAX_LOGIN_BYTES:
            raise LoginError(
                Problem.PROTOCOL, f"{self._who} sent more than {MAX_LOGIN_BYTES} bytes before the login was over"
            )
        self._waiting += got[0]

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def _exchange(self, step: Callable[[], object]) -> LoginError | None:
        """Execute `step`, one operation on the socket. Return its error, or None. The caller raises it outside the
        exception handler, because OpenSSL's errors quote the invalid bytes.
        """
        try:
            self._sock.settimeout(self._left())
            step()
        except ssl.SSLCertVerificationError as error:
            return LoginError(Problem.CERTIFICATE, f"{self._who}'s certificate is not valid: {error.verify_message}")
        except TimeoutError:
            return LoginError(Problem.TOO_SLOW, f"{self._who} did not answer in time")
        except ssl.SSLError as error:
            if was_cut(error) or isinstance(error, ssl.SSLZeroReturnError):
                return LoginError(Problem.CLOSED, f"{self._who} closed the connection before the login was over")
            if error.reason in _NOT_TLS:
                return LoginError(Problem.NOT_ENCRYPTED, f"{self._who} does not use TLS on this port")
            return LoginError(Problem.CERTIFICATE, f"TLS with {self._who} failed: {error.reason or 'no reason given'}")
        except OSError as error:
            return LoginError(Problem.CLOSED, f"the connection to {self._who} broke: {error.strerror or 'closed'}")
        return None
