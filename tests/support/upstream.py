r"""A scripted HTTP upstream on raw sockets: it says exactly the bytes a test gives it, and remembers what it was sent.

It runs in threads of the test process, one for each connection, on 127.0.0.1 and a port of the kernel's choice, with or
without TLS. It knows just enough HTTP to find the end of a request (Content-Length or chunked); everything it answers is
the script's, so that it can also lie, stop in the middle, or answer twice.

>>> with Upstream(lambda request: answer(b"hello")) as upstream:
...     with socket.create_connection(("127.0.0.1", upstream.port)) as client:
...         client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
...         client.recv(1024).startswith(b"HTTP/1.1 200 OK")
True

A script gets one `Seen` request and returns bytes, or yields them piece by piece (and may wait in between for an event of
the test); `CLOSE` among the pieces closes the connection there. `connections` and `received` count what arrived, so a
test of a denial can say: nothing did. Not here: certificates (see `Authority`), name resolution (the test's resolver).
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

import trustme

__all__ = ["CLOSE", "Authority", "Script", "Seen", "Upstream", "answer", "chunked_answer"]

CLOSE = b"\0close\0"
"""Piece of a script that closes the connection."""


@dataclasses.dataclass(frozen=True)
class Seen:
    """A request as it came off the wire."""

    head: bytes
    body: bytes

    @property
    def method(self) -> str:
        """First word of the request line."""
        return self.head.split(b" ", 2)[0].decode("ascii")

    @property
    def target(self) -> str:
        """Second word of the request line."""
        return self.head.split(b" ", 2)[1].decode("ascii")

    @property
    def fields(self) -> list[tuple[str, str]]:
        """Header fields in order, as spelled."""
        lines = self.head.split(b"\r\n")[1:]
        return [(name.decode(), value.strip().decode()) for name, _, value in (line.partition(b":") for line in lines)]

    def values(self, name: str) -> list[str]:
        """Return all values of a field, whatever its case."""
        return [value for found, value in self.fields if found.lower() == name.lower()]


Script = Callable[[Seen], bytes | Iterable[bytes | memoryview]]
"""A function that returns the response to a request."""


def answer(body: bytes = b"", *fields: str, status: str = "200 OK") -> bytes:
    """Return a response with a Content-Length and any more fields (`"Name: value"`)."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *fields]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def chunked_answer(chunks: Iterable[bytes], *fields: str, status: str = "200 OK") -> Iterable[bytes]:
    """Yield a chunked response, one piece for each chunk."""
    yield "\r\n".join([f"HTTP/1.1 {status}", "Transfer-Encoding: chunked", *fields]).encode("latin-1") + b"\r\n\r\n"
    for chunk in chunks:
        yield f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n"
    yield b"0\r\n\r\n"


class Authority:
    """A certificate authority of the test's own. `ca_file` and `ca_pem` are its certificate.

    Each certificate is for `names` too, so that real servers of tests/support can stand under names other than localhost.
    """

    def __init__(self, directory: Path, *names: str) -> None:
        self._ca = trustme.CA()
        self._names = names
        self.ca_file = directory / "ca.pem"
        self._ca.cert_pem.write_to_path(str(self.ca_file))
        self.ca_pem = self.ca_file.read_text(encoding="ascii")

    def server_context(self, *names: str, **options: object) -> ssl.SSLContext:
        """Return the TLS context of a server with these names; `options` go to `trustme.CA.issue_cert`."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._ca.issue_cert(*names, *self._names, **options).configure_cert(context)  # type: ignore[arg-type]
        return context

    def server_files(self, directory: Path, *names: str) -> tuple[Path, Path]:
        """Return key and certificate for a server that is another program, as files of this directory."""
        issued, key, certificate = (
            self._ca.issue_cert(*names, *self._names),
            directory / "server.key",
            directory / "server.pem",
        )
        issued.private_key_pem.write_to_path(str(key))
        certificate.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
        return key, certificate


class Upstream:
    """A running server; a context manager that leaves no thread and no socket behind."""

    def __init__(
        self, script: Script, tls: ssl.SSLContext | None = None, listener: socket.socket | None = None
    ) -> None:
        """Use `listener` (it is closed at the end) in place of one on 127.0.0.1 and a port of the kernel's choice."""
        self._script = script
        self._tls = tls
        self._listener = listener if listener is not None else socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0
        self.handshake_errors: list[str] = []
        self.received = bytearray()
        self.requests: list[Seen] = []
        self._threads: list[threading.Thread] = []
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._stopping = threading.Event()

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept
        self.drop_connections()
        while self._threads:
            self._threads.pop().join(timeout=10)
        self._listener.close()

    def drop_connections(self) -> None:
        """End every open connection from this side, as a server that restarts does."""
        with self._lock:
            for sock in self._open:
                with contextlib.suppress(OSError):
                    # Not SSLSocket.shutdown: it forgets that there is TLS, and a thread that reads would get TLS records as text.
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def _start(self, run: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=run, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                sock, _address = self._listener.accept()
            except OSError as error:
                if error.errno != errno.EMFILE:
                    return
                # accept(2) takes its descriptor before it waits, and a test may leave none for a while.
                self._stopping.wait(0.01)
                continue
            self.connections += 1
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # pieces leave as the script says them
            self._start(self._serve, sock)

    def _serve(self, sock: socket.socket) -> None:
        with self._lock:
            self._open.add(sock)
        try:
            if self._tls is not None:
                with self._lock:
                    self._open.discard(sock)
                sock = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
                with self._lock:
                    self._open.add(sock)
                sock.do_handshake()
            self._converse(sock)
        except ssl.SSLError as error:
            self.handshake_errors.append(error.reason or "closed")
        except OSError:
            pass  # the client went away
        finally:
            with self._lock:
                self._open.discard(sock)
            sock.close()

    def _converse(self, sock: socket.socket) -> None:
        buffer = b""
        while True:
            taken = _take_request(buffer)
            while taken is None:
                data = sock.recv(65536)
                if not data:
                    return
                self.received += data
                buffer += data
                taken = _take_request(buffer)
            seen, buffer = taken
            self.requests.append(seen)
            said = self._script(seen)
            for piece in (said,) if isinstance(said, bytes) else said:
                if piece == CLOSE:
                    return
                sock.sendall(piece)


def _take_request(data: bytes) -> tuple[Seen, bytes] | None:
    """Return the first whole request and the bytes after it, or None if there is none yet."""
    head, end, rest = data.partition(b"\r\n\r\n")
    if not end:
        return None
    seen = Seen(head, b"")
    if seen.values("transfer-encoding") == ["chunked"]:
        return _take_chunks(head, rest)
    length = int((seen.values("content-length") or ["0"])[0])
    if len(rest) < length:
        return None
    return Seen(head, rest[:length]), rest[length:]


def _take_chunks(head: bytes, rest: bytes) -> tuple[Seen, bytes] | None:
    body = b""
    while True:
        size, end, rest = rest.partition(b"\r\n")
        if not end or len(rest) < int(size, 16) + 2:
            return None
        chunk, rest = rest[: int(size, 16)], rest[int(size, 16) + 2 :]
        if not chunk:
            return Seen(head, body), rest
        body += chunk
