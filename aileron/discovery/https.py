"""Requests to a domain's HTTPS servers, which need no credential and send none.

Rules
- The server must show a certificate for its name. TLS settings are those of every outside service (aileron/tls.py).
- Redirects are followed to https only, and only to a host that the caller allows. Everything else that redirects is refused.
- An answer has a bounded size, and a host a deadline, which covers the look-up of its name too: getaddrinfo(3) cannot be
  interrupted, so each request has a thread, which is left behind when it is late.

Source: RFC 9110. Not here: who may be asked (mail.py, calendars.py).
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable
from typing import Final, NamedTuple, Self

from aileron.discovery.offers import DiscoveryError, server
from aileron.egress.refusal import RefusedError
from aileron.egress.url import parse_url
from aileron.model.names import HostPort
from aileron.tls import client_context

__all__ = ["MAX_BODY_BYTES", "Connect", "Https", "Reply", "Url"]

MAX_BODY_BYTES: Final = 64 << 10
"""64 KiB: the maximum size of an answer. The files of mail servers that providers publish have under 8 KiB."""
MAX_REDIRECTS: Final = 3
"""Maximum number of redirects: to a name such as `www`, to another path, and one to spare."""
_HOST_S: Final = 6.0
"""Seconds for one question with all of its redirects: a connection with TLS takes under one second on most networks."""
_HTTPS_ONLY: Final = {"https": "https"}
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})

Connect = Callable[[HostPort, float], socket.socket]
"""Type of a function that connects to a host by TCP within some seconds. Raises OSError."""


class Url(NamedTuple):
    """An https URL: the server, and the path with its query."""

    server: HostPort
    target: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a URL that somebody else wrote, by the rules of egress. Raises ValueError saying what is wrong."""
        try:
            parsed = parse_url(text, _HTTPS_ONLY)
        except RefusedError as refused:
            raise ValueError(str(refused)) from None
        return cls(server(parsed.host, parsed.port), parsed.target)

    @property
    def path(self) -> str:
        """The URL's path, without its query."""
        return self.target.partition("?")[0]

    def __str__(self) -> str:
        host = self.server.host if self.server.port == 443 else str(self.server)
        return f"https://{host}{self.target}"


class Reply(NamedTuple):
    """The last answer to a question. `redirect` is where it leads, if that was not followed."""

    url: Url
    status: int
    body: bytes
    redirect: Url | None = None


class Https:
    """A client for one search. `ca_pem` are certificates that are trusted in addition to the system's."""

    def __init__(self, ca_pem: str | None = None, *, connect: Connect | None = None, host_s: float = _HOST_S) -> None:
        self._ca_pem: Final = ca_pem
        self._connect: Final = connect or _connect
        self._host_s: Final = host_s

    def ask(self, method: str, url: Url, may_follow: Callable[[Url], bool]) -> Reply:
        """Send a request without a body, and follow its redirects as long as `may_follow`. Raises DiscoveryError."""
        until = time.monotonic() + self._host_s
        for _ in range(MAX_REDIRECTS + 1):
            exchange = _Exchange(method, url, client_context(self._ca_pem, ("http/1.1",)), self._connect, until)
            status, location, body = exchange.result()
            if status not in _REDIRECTS or location is None:
                return Reply(url, status, body)
            target = _redirected(url, location)
            asked_at = time.monotonic()
            if not may_follow(target):
                return Reply(url, status, b"", target)
            until += time.monotonic() - asked_at  # a person decided: their time is not the server's
            url = target
        raise DiscoveryError(f"{url.server.host} redirects more than {MAX_REDIRECTS} times")


def _redirected(url: Url, location: str) -> Url:
    try:
        return Url.parse(urllib.parse.urljoin(str(url), location))
    except ValueError as error:
        raise DiscoveryError(f"{url.server.host} redirects to an address that is not followed: {error}") from None


class _TooLongError(Exception):
    """Exception for an answer with a body of more than MAX_BODY_BYTES."""


class _Exchange(threading.Thread):
    """A request and its answer, in a thread of its own."""

    def __init__(self, method: str, url: Url, tls: ssl.SSLContext, connect: Connect, until: float) -> None:
        super().__init__(name="discovery", daemon=True)
        self._method: Final = method
        self._url: Final = url
        self._tls: Final = tls
        self._connect: Final = connect
        self._until: Final = until
        self._socket: socket.socket | None = None
        self._result: tuple[int, str | None, bytes] | None = None
        self._problem = "did not answer in time"

    def result(self) -> tuple[int, str | None, bytes]:
        """Return status, Location and body. Raises DiscoveryError, also if the answer is not complete at the deadline."""
        if self._left() > 0:
            self.start()
            self.join(self._left())
        result, problem = self._result, self._problem
        if result is not None:
            return result
        if self._socket is not None:
            with contextlib.suppress(OSError):  # wakes the thread, which then ends
                self._socket.shutdown(socket.SHUT_RDWR)
        raise DiscoveryError(f"{self._url.server.host} {problem}")  # not what the thread says of the closed socket

    def run(self) -> None:
        """Send the request and keep its answer or the problem."""
        try:
            self._result = self._exchanged()
        except ssl.SSLCertVerificationError as error:
            self._problem = f"shows a certificate that is not trusted ({error.verify_message})"
        except TimeoutError:
            pass
        except _TooLongError:
            self._problem = f"sends more than {MAX_BODY_BYTES} bytes"
        except socket.gaierror:
            self._problem = "does not exist, or cannot be looked up"
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._problem = f"cannot be asked ({getattr(error, 'strerror', None) or type(error).__name__})"

    def _exchanged(self) -> tuple[int, str | None, bytes]:
        destination = self._url.server
        with self._connect(destination, self._left_or_late()) as raw:
            self._socket = raw
            raw.settimeout(self._left_or_late())
            with self._tls.wrap_socket(raw, server_hostname=destination.host) as secured:
                self._socket = secured
                connection = http.client.HTTPSConnection(destination.host, destination.port, context=self._tls)
                connection.sock = secured
                connection.request(self._method, self._url.target, headers=self._headers())
                answer = connection.getresponse()
                body = answer.read(MAX_BODY_BYTES + 1)
                if len(body) > MAX_BODY_BYTES:
                    raise _TooLongError
                return answer.status, answer.getheader("Location"), body

    def _headers(self) -> dict[str, str]:
        return {"User-Agent": "aileron", "Accept": "*/*", "Connection": "close"} | (
            {"Depth": "0"} if self._method == "PROPFIND" else {}
        )

    def _left(self) -> float:
        return self._until - time.monotonic()

    def _left_or_late(self) -> float:
        left = self._left()
        if left <= 0:
            raise TimeoutError
        return left


def _connect(destination: HostPort, seconds: float) -> socket.socket:
    return socket.create_connection((destination.host, destination.port), seconds)
