r"""Streams of bytes to a declared host and port, for protocols that are not HTTP: mail, databases.

    with tcp.connect("irc.example.com", 6697) as stream:
        stream.sendall(b"NICK me\r\n")
        for line in stream.makefile("rb"): ...

The host resolves the name, checks the address, connects, and does TLS; bytes are written and read here without TLS. If
the manifest names a login, the host has logged in before the stream opens; no credential is in the jail.

`Stream` has the socket methods that libraries use, so you can pass it to a library that takes a socket; smtplib,
imaplib and poplib get one automatically (transports/mail.py). Runs inside the jail. Not here: names and addresses,
which no connector needs.
"""

from __future__ import annotations

import io
from types import TracebackType
from typing import Any, Final, Self

from aileron_connector import http, loop
from aileron_connector.failures import Refused
from aileron_sandbox.frames import MAX_BODY_BYTES, Chunk, Frame, TcpOpened
from aileron_sandbox.frames import Refused as RefusedFrame

__all__ = ["Stream", "connect"]

_BUFFER_BYTES: Final = 64 << 10
_SHUT_RD: Final = 0  # shutdown(2); importing the socket module would take 1 ms for three numbers


def connect(
    host: str, port: int, *, tls: bool = True, command: str | None = None, timeout_s: float | None = None
) -> Stream:
    """Connect to a granted destination. Raises ConnectionError if the connection fails, TimeoutError after `timeout_s`.

    TLS is used from the first byte; if the service does not speak TLS, a ConnectionError says so. `tls` may be false only for
    a service on the user's machine that they have named in `egress.private_plain`. If the manifest names a login, the stream is
    logged in already, `tls` is ignored, and for `ssh` the `command` is executed. `timeout_s` applies to this and each later
    wait; None waits for as long as the invocation lasts.
    """
    conversation = loop.current()
    stream = Stream(conversation, conversation.open_tcp(host, port, tls=tls, command=command), f"{host}:{port}")
    stream.login = next(
        (
            destination.login
            for destination in conversation.hosts
            if (destination.host, destination.port) == (host.lower(), port)
        ),
        None,
    )
    stream.settimeout(timeout_s)
    stream._wait_opened()
    return stream


class Stream:
    """An open stream. Reading reaches the end when the service has closed its half, and raises ConnectionError if the
    stream breaks.
    """

    def __init__(self, conversation: loop.Conversation, stream_id: int, name: str) -> None:
        self._conversation: Final = conversation
        self._id: Final = stream_id
        self._name: Final = name
        self._timeout_s: float | None = None
        self._pending = memoryview(b"")
        self._can_read = True
        self._can_write = True
        self._files = 0
        self._is_closed = False
        self.login: str | None = None
        """Protocol by which the host has logged in, such as `imap`; None if the host has not logged in."""

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Send all of `data`. Raises ConnectionError if the service or the host accepts no more data."""
        if not self._can_write:
            raise BrokenPipeError(f"the stream to {self._name} has ended")
        view = memoryview(data).cast("B")
        for at in range(0, len(view), MAX_BODY_BYTES):
            if not self._conversation.upload(self._id, view[at : at + MAX_BODY_BYTES]):
                self._can_write = False
                raise BrokenPipeError(f"{self._name} accepts no more data")

    def send(self, data: Any, flags: int = 0) -> int:
        """Send all of `data` and return its number of bytes."""
        self.sendall(data)
        return memoryview(data).nbytes

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Return at most `size` bytes, or no bytes at the end. Raises ConnectionError if the stream breaks, or TimeoutError."""
        if not self._pending and size:
            self._pending = memoryview(self._next_piece())
        taken, self._pending = bytes(self._pending[:size]), self._pending[size:]
        return taken

    def recv_into(self, buffer: Any, size: int = 0, flags: int = 0) -> int:
        """Receive into `buffer` and return the number of bytes. Raises the errors of `recv`."""
        view = memoryview(buffer).cast("B")
        data = self.recv(size or len(view))
        view[: len(data)] = data
        return len(data)

    def can_read(self) -> bool:
        """Return whether `recv` would return at once, with bytes or at the end. Raises ConnectionError if the stream breaks."""
        while self._can_read and not self._pending:
            frame = self._conversation.maybe_answer(self._id)
            if frame is None:
                return False
            self._pending = memoryview(self._piece_of(frame))
        return True

    read = recv
    write = sendall

    def makefile(self, mode: str = "r", buffering: int | None = None, **text: Any) -> Any:
        """Return a file over the stream, like `socket.makefile`. The stream stays open until all its files are closed, too."""
        raw = _File(self, reads="r" in mode, writes="w" in mode)
        if buffering == 0:
            return raw
        size = _BUFFER_BYTES if buffering is None or buffering < 0 else buffering
        binary: Any
        if raw.readable() and raw.writable():
            binary = io.BufferedRWPair(raw, raw, size)
        else:
            binary = io.BufferedReader(raw, size) if raw.readable() else io.BufferedWriter(raw, size)
        return binary if "b" in mode else io.TextIOWrapper(binary, **text)

    def shutdown(self, how: int) -> None:
        """End writing if `how` is SHUT_WR (1), after which the service can still answer; close the stream for SHUT_RD
        (0) and SHUT_RDWR (2).
        """
        if how == 1:
            self._end_writing()
        else:
            self._close_now()

    def close(self) -> None:
        """Close the stream when all its files are closed."""
        self._is_closed = True
        if not self._files:
            self._close_now()

    def settimeout(self, timeout: float | None) -> None:
        """Set the maximum number of seconds for each later wait. None waits for as long as the invocation lasts."""
        self._timeout_s = timeout

    def gettimeout(self) -> float | None:
        """Return the timeout in seconds that was set by `settimeout`."""
        return self._timeout_s

    def setsockopt(self, *_option: object) -> None:
        """Ignore the option, as there is no socket to set it on."""

    def getsockopt(self, *_option: object) -> int:
        """Raise OSError, because libraries call this method before they wrap a socket in TLS of their own, but the host
        does TLS.
        """
        raise OSError(
            "TLS cannot start in the middle of a stream (STARTTLS): the host speaks it, from the first byte; "
            "connect to the service's port for TLS, e.g. with SMTP_SSL or IMAP4_SSL"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Stream to {self._name}>"

    def _wait_opened(self) -> None:
        try:
            message, _ = self._conversation.next_answer(self._id, self._timeout_s)
        except BaseException:
            self._close_now()
            raise
        if isinstance(message, RefusedFrame):
            self._break_off(message)
        assert isinstance(message, TcpOpened)  # the session allows no other first frame

    def _next_piece(self) -> bytes:
        while self._can_read:
            if piece := self._piece_of(self._conversation.next_answer(self._id, self._timeout_s)):
                return piece
        return b""

    def _piece_of(self, frame: Frame) -> bytes:
        message, piece = frame
        if isinstance(message, RefusedFrame):
            self._break_off(message)
        if isinstance(message, Chunk) and message.end:
            self._can_read = False
        return piece or b""

    def _break_off(self, message: RefusedFrame) -> None:
        self._close_now()
        error: Refused = http.refusal(message.error)
        raise ConnectionError(error.message) from error

    def _end_writing(self) -> None:
        if self._can_write:
            self._can_write = False
            self._conversation.upload(self._id, b"", end=True)

    def _close_now(self) -> None:
        self._can_write = False  # `forget` ends this half, but bytes already sent still go out
        self._can_read = False
        self._pending = memoryview(b"")
        self._conversation.forget(self._id)

    def _file_closed(self) -> None:
        self._files -= 1
        if self._is_closed and not self._files:
            self._close_now()


class _File(io.RawIOBase):
    """The raw file of a stream, to be wrapped by the buffers of the io module."""

    def __init__(self, stream: Stream, *, reads: bool, writes: bool) -> None:
        super().__init__()
        self._stream: Final = stream
        self._reads: Final = reads or not writes
        self._writes: Final = writes
        stream._files += 1

    def readable(self) -> bool:
        return self._reads

    def writable(self) -> bool:
        return self._writes

    def readinto(self, buffer: Any) -> int:
        return self._stream.recv_into(buffer)

    def write(self, data: Any) -> int:
        return self._stream.send(data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._stream._file_closed()
