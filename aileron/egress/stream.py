"""Streams of bytes for the executor, with or without a login: a connector's request for a stream, and the open stream.

Runs in the daemon. Not here: which requests get a stream (tcp.py, login.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio
import httpcore2
import msgspec

from aileron.egress.dial import Wire
from aileron.egress.failures import ConnectionProblem, unreachable
from aileron.egress.journal import RequestReport
from aileron.egress.meter import Meter
from aileron.egress.refusal import Reason, RefusedError
from aileron.egress.steps import failure_class, within
from aileron.model.names import HostPort, check_host

__all__ = ["MAX_DESTINATION", "Stream", "StreamRequest", "stream_report"]

MAX_DESTINATION: Final = 300
"""Maximum number of characters of a refused destination that are recorded, as in failures.py."""
_PIECE_BYTES: Final = 248 << 10
"""Maximum number of bytes of one read of a socket. With its header, a frame of this size fits into an empty pipe to a
jail (256 KiB).
"""

_FIRST_PAUSE_S, _MOST_PAUSE_S = 0.001, 0.05
"""Shortest and longest pause, in seconds, between two checks whether all bytes have arrived: from a local round trip to
a distant one. No event reports the arrival.
"""
_UNREAD_PIECES: Final = 64
"""Maximum number of reads at one check, so that a service that sends without end cannot block the event loop."""

_T = TypeVar("_T")


class StreamRequest(msgspec.Struct, frozen=True):
    """A connector's request for a stream. Only the range of the port has been checked."""

    host: str
    port: int
    tls: bool
    command: str | None = None
    """The command that an `ssh` login executes."""

    def checked_destination(self) -> HostPort:
        """Return the destination in its canonical spelling. Raises RefusedError(url_host) if the host is malformed."""
        try:
            return HostPort(check_host(self.host.lower()), self.port)
        except ValueError as error:
            raise RefusedError(Reason.URL_HOST, f"the stream's host: {error}") from None


class Stream:
    """An open stream of bytes to a service. One task can send while another receives."""

    def __init__(
        self,
        wire: Wire,
        address: str,
        destination: HostPort,
        meter: Meter,
        deadline: float,
        check: Callable[[], None],
    ) -> None:
        """Take `check`, a function that raises AileronError if incoming bytes must no longer be passed on."""
        self._wire: Final = wire
        self._check: Final = check
        self._destination: Final = destination
        self._meter: Final = meter
        self._deadline: Final = deadline
        self.address: Final = address
        self.bytes_up = 0
        self.bytes_down = 0

    @property
    def scrubbed(self) -> int:
        """Number of occurrences of a secret that were masked. Always 0 here, because this stream is not searched."""
        return 0

    async def send(self, data: bytes) -> None:
        """Send all bytes. Raises AileronError: network_error, or resource_limit_exceeded before any byte is sent."""
        self._meter.count_up(len(data))
        self.bytes_up += len(data)
        await self._exchange(lambda: self._wire.write(data))

    def end(self) -> None:
        """Shut down the stream's direction to the service, after which nothing more can be sent. The service notices
        only without TLS.
        """
        self._wire.end_writing()

    async def receive(self) -> bytes:
        """Return some bytes, or none at the end. Raises AileronError: network_error, resource_limit_exceeded for bytes
        over the budget, or capability_denied if a secret was bound for the host meanwhile.
        """
        data = await self._exchange(lambda: self._wire.read(_PIECE_BYTES))
        self._meter.count_down(len(data))
        self.bytes_down += len(data)
        self._check()
        return data

    async def flush(self) -> None:
        """Wait until the service's kernel has received all sent bytes, so that `close` loses none; discard bytes that
        the service sends meanwhile.

        If a socket is closed with unread bytes, or bytes arrive after it is closed, it is reset (RFC 1122 section
        4.2.2.13), and unsent bytes are lost. A service over TLS 1.3 sends session tickets without a request (RFC 8446
        section 4.6.1), and may do so late. The caller must set a deadline, because this never returns if the service
        reads nothing.
        """
        pause_s = _FIRST_PAUSE_S
        # The service has closed, or the connection broke: nothing more arrives
        with contextlib.suppress(httpcore2.ReadError):
            while True:
                for _ in range(_UNREAD_PIECES):
                    if not self._wire.read_waiting(_PIECE_BYTES):
                        break
                if not self._wire.unsent_bytes():
                    return
                await anyio.sleep(pause_s)
                pause_s = min(2 * pause_s, _MOST_PAUSE_S)

    async def attend(self) -> None:
        """Do the work that must run concurrently with the stream until it ends. A stream without a login has no such
        work; the stream of a login records the login's notes (login.py). An AileronError ends the stream.
        """

    def close(self) -> None:
        """Close the connection to the service at once, without waiting."""
        self._wire.close()

    async def _exchange(self, step: Callable[[], Awaitable[_T]]) -> _T:
        try:
            return await within(self._deadline, "exchange", self._destination, step)
        except anyio.BusyResourceError:
            # For a TLS key update the reader must write, so both tasks wait for the same event. Only a peer that
            # requests new keys and does not read causes this.
            pass
        raise unreachable(
            "exchange",
            self._destination,
            ConnectionProblem("TLS failed: the server requests new keys but does not read"),
        )


def stream_report(number: int, stream: Stream | None, started_at: float, error: BaseException | None) -> RequestReport:
    """Return the report of how the stream with this `number` ended. `stream` is None if it was never open. `started_at`
    as in `anyio.current_time()`.
    """
    return RequestReport(
        number=number,
        status=None,
        bytes_up=0 if stream is None else stream.bytes_up,
        bytes_down=0 if stream is None else stream.bytes_down,
        ms=(anyio.current_time() - started_at) * 1000,
        address=None if stream is None else stream.address,
        scrubbed=0 if stream is None else stream.scrubbed,
        failure=failure_class(error),
    )
