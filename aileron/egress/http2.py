"""HTTP/2 to an upstream that speaks it (ALPN `h2`): one request at a time over one connection.

Runs in the daemon, on frames of an upstream it does not trust. h2 handles the protocol's state, HPACK and flow control;
this module decides what is read, when and how much. Requests go one at a time, so that every byte that arrives belongs
to the request whose deadline, budget and row in the ledger apply; more requests use more connections (pool.py).

Rules
- Frames are separated here and passed to h2 one complete frame at a time. A frame over the announced maximum is an
  error before its content is read; h2 would first collect up to 16 MiB.
- HEADERS, CONTINUATION and DATA must belong to the request in progress; a push, or a frame of any other stream, is an
  error.
- A field is checked as h2 checks it (RFC 9113 section 8.2: no upper case, no CR, LF or NUL, no connection-specific
  fields; `:status` as the only pseudo-header field, once and before all other fields).
- Frames without a part of a response (pings, settings, window updates, resets, empty data, unknown types) may outnumber
  frames with a part of a response by at most `MAX_NOISE`. The header blocks of one response are bounded in bytes, both
  encoded and decoded.
- After a GOAWAY that does not abort the request in progress, the request can finish; the connection is not used again.
- Requests are sent never-indexed: no table keeps a credential, and no proxy on the way is allowed to (RFC 7541 section 7.1.3).

httpcore2's own HTTP/2 is not used: it turns off the checks of fields, has no bound on frames, and assumes without a
check that `:status` is a number.

Source: RFC 9113, RFC 7541. Not here: TLS and ALPN (dial.py), what may be sent (rules.py), the response's fields
(headers.py).
"""

from __future__ import annotations

import collections
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterable
from typing import Final

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
import httpcore2
from hpack import NeverIndexedHeaderTuple

from aileron.egress.dial import Wire

__all__ = ["MAX_FRAME_BYTES", "MAX_NOISE", "Http2"]

MAX_FRAME_BYTES: Final = 16 << 10  # the least a peer must be allowed, and the default (RFC 9113 section 4.2)
MAX_NOISE: Final = 1000
"""Maximum number by which the frames without content from a server may exceed its frames with content. A server that
probes the connection sends one ping for every few data frames; a flood has tens of thousands of frames.
"""
WINDOW_BYTES: Final = 1 << 20  # 1 MiB on the way to us; what is buffered here is one read, whatever the window
_MAX_HEADER_LIST_BYTES: Final = 96 << 10
"""Maximum size of all decoded fields in bytes, with 32 more for each field, as RFC 9113 counts; headers.py allows less."""
_READ_BYTES: Final = 64 << 10
_WRITE_BYTES: Final = 64 << 10
_FRAME_HEAD: Final = 9

_DATA, _HEADERS, _PRIORITY, _RST, _SETTINGS, _PUSH, _PING, _GOAWAY, _WINDOW, _CONTINUATION = range(10)
_OF_A_REQUEST: Final = frozenset({_DATA, _HEADERS, _CONTINUATION})
_FOR_H2: Final = _OF_A_REQUEST | {_RST, _SETTINGS, _PING, _WINDOW}
_NO_BODY: Final = frozenset({204, 304})
_STATUS: Final = re.compile(rb"[1-9][0-9]{2}")

# At DEBUG hpack logs each field, and the encoded block with the credential in it.
for _name in ("hpack.hpack", "hpack.table"):
    logging.getLogger(_name).disabled = True


class Http2:
    """An HTTP/2 connection. Its errors are httpcore2's: RemoteProtocolError, ReadError, WriteError."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self._h2.local_settings = h2.settings.Settings(
            client=True,
            initial_values={
                h2.settings.SettingCodes.ENABLE_PUSH: 0,
                h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: WINDOW_BYTES,
                h2.settings.SettingCodes.MAX_HEADER_LIST_SIZE: _MAX_HEADER_LIST_BYTES,
            },
        )
        del self._h2.local_settings[h2.settings.SettingCodes.ENABLE_CONNECT_PROTOCOL]  # only a server sends it
        self._h2.decoder.max_header_list_size = _MAX_HEADER_LIST_BYTES
        self._buffer = bytearray()  # less than one frame, plus the bytes of the last read
        self._events: collections.deque[h2.events.Event] = collections.deque()
        self._stream: int | None = None
        self._head_bytes_left = 0
        self._noise_left = MAX_NOISE
        self._is_new = True
        self._is_ended = False  # the current response is complete: bytes after it wait in the buffer
        self._is_over = False
        self._is_mute = False

    def is_idle(self) -> bool:
        """Return whether the last request and its response are complete, and another request can follow."""
        return self._stream is None and not self._is_over

    def is_alive(self) -> bool:
        """Return whether the connection is idle, and still usable after the frames that have arrived. These frames are
        processed first, without waiting for more.
        """
        self._noise_left = MAX_NOISE
        try:
            self._take_in(self._wire.read_waiting(_READ_BYTES))
        except (httpcore2.NetworkError, httpcore2.ProtocolError):
            self._is_over = True
        return self.is_idle() and not self._buffer  # a partial frame could begin the next request's response

    async def send(self, request: httpcore2.Request, head_bytes: int) -> httpcore2.Response:
        """Send a request and return the head of its response. The response's `stream` is its body: read the body to its
        end, or close the connection.

        `head_bytes` bounds the header blocks of the response, interim ones included, as they are on the wire.
        """
        assert self.is_idle()
        self._noise_left, self._head_bytes_left = MAX_NOISE, head_bytes
        body = _body_of(request)
        self._begin(request, ends=body is None)
        try:
            await self._flush()
            if body is not None:
                await self._upload(body)
        except httpcore2.WriteError:
            self._is_over = self._is_mute = True  # the peer may have responded before it closed
        status, fields = _parse_head(await self._read_head())
        expected = _expected_bytes(request.method, status, fields)
        return httpcore2.Response(status, headers=fields, content=self._read_body(expected))

    def _begin(self, request: httpcore2.Request, *, ends: bool) -> None:
        if self._is_new:
            self._is_new = False
            self._h2.initiate_connection()
            self._h2.increment_flow_control_window(WINDOW_BYTES - self._h2.inbound_flow_control_window)
        self._stream = self._h2.get_next_available_stream_id()
        fields = [(name.lower(), value) for name, value in request.headers]
        authority = next(value for name, value in fields if name == b"host")
        pseudo = [
            (b":method", request.method),
            (b":scheme", request.url.scheme),
            (b":authority", authority),
            (b":path", request.url.target),
        ]
        kept = [field for field in fields if field[0] not in {b"host", b"transfer-encoding"}]
        block = [NeverIndexedHeaderTuple(name, value) for name, value in (*pseudo, *kept)]
        try:
            self._h2.send_headers(self._stream, block, end_stream=ends)
        except h2.exceptions.ProtocolError:
            pass  # for example, the peer allows no stream at all
        else:
            return
        raise self._broken()

    async def _upload(self, body: AsyncIterable[bytes]) -> None:
        """Send the request's body as fast as the peer's flow-control windows allow. Stop at its end, or when a complete
        response or a reset shows that the peer wants no more of it.
        """
        assert self._stream is not None
        chunks = aiter(body)
        try:
            async for chunk in chunks:
                await self._send_data(self._stream, memoryview(chunk))
                if self._is_answered():
                    return
            self._h2.end_stream(self._stream)
            await self._flush()
        finally:
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()

    async def _send_data(self, stream: int, rest: memoryview) -> None:
        while rest and not self._is_answered():
            room = min(self._h2.local_flow_control_window(stream), self._h2.max_outbound_frame_size, _WRITE_BYTES)
            if room <= 0:
                await self._receive()
                continue
            self._h2.send_data(stream, bytes(rest[:room]))
            self._noise_left += 1  # the peer may answer each frame with a window update
            rest = rest[room:]
            await self._flush()

    def _is_answered(self) -> bool:
        return self._is_ended or any(isinstance(event, h2.events.StreamReset) for event in self._events)

    async def _read_head(self) -> h2.events.ResponseReceived:
        while True:
            match await self._next():
                case h2.events.ResponseReceived() as head:
                    return head
                case h2.events.InformationalResponseReceived():
                    pass
                case _:
                    raise self._broken()

    async def _read_body(self, expected: int | None) -> AsyncGenerator[bytes]:
        """Yield the pieces of the response's body: `expected` bytes, or any number if `expected` is None. The length is
        checked here, because h2 does not check it if a head or trailers end the stream.
        """
        assert self._stream is not None
        received = 0
        while True:
            match await self._next():
                case h2.events.DataReceived() as part:
                    received += len(part.data or b"")
                    if expected is not None and received > expected:
                        raise self._broken()
                    self._h2.acknowledge_received_data(part.flow_controlled_length or 0, self._stream)
                    await self._flush()
                    if part.data:
                        yield part.data
                case h2.events.TrailersReceived():
                    pass  # not relayed
                case h2.events.StreamEnded():
                    break
                case _:
                    raise self._broken()
        if expected not in (None, received):
            raise self._broken()
        # If the peer responded before it had the complete request, the stream is still half open.
        self._is_over |= bool(self._events) or self._h2.open_outbound_streams > 0
        self._stream, self._is_ended = None, False

    async def _next(self) -> h2.events.Event:
        """Return the next HTTP/2 event of the request in progress, reading more data from the peer if necessary."""
        while not self._events:
            if not self._take_frame():
                self._buffer += await self._read()
            await self._flush()
        return self._events.popleft()

    async def _receive(self) -> None:
        self._take_in(await self._read())
        await self._flush()

    async def _read(self) -> bytes:
        data = await self._wire.read(_READ_BYTES)
        if not data:
            raise self._broken()
        return data

    async def _flush(self) -> None:
        data = self._h2.data_to_send()
        if data and not self._is_mute:
            await self._wire.write(data)

    def _take_in(self, data: bytes) -> None:
        """Process all complete frames in `data`, which is the continuation of data that arrived earlier."""
        self._buffer += data
        while self._take_frame():
            pass

    def _take_frame(self) -> bool:
        """Take one frame from the received data, check its stream, and store its events for the current request. Return
        False if the received data has no complete frame, or the current response has already arrived completely.

        Frames are taken one by one, on demand, because one read may bring six thousand frames.
        """
        if len(self._buffer) < _FRAME_HEAD or self._is_ended:
            return False
        length = int.from_bytes(self._buffer[:3], "big")
        kind, stream = self._buffer[3], int.from_bytes(self._buffer[5:9], "big") & 0x7FFFFFFF
        if length > MAX_FRAME_BYTES:
            raise self._broken()
        if len(self._buffer) < _FRAME_HEAD + length:
            return False
        frame = bytes(self._buffer[: _FRAME_HEAD + length])
        del self._buffer[: _FRAME_HEAD + length]
        self._count(kind, length)
        if (kind in _OF_A_REQUEST and stream != self._stream) or kind == _PUSH:
            raise self._broken()
        if kind == _GOAWAY:
            self._take_leave(frame)
        elif kind in _FOR_H2:
            for event in self._feed(frame):
                self._keep(event)
        return True

    def _count(self, kind: int, length: int) -> None:
        if kind in (_HEADERS, _CONTINUATION):
            self._head_bytes_left -= _FRAME_HEAD + length
        self._noise_left -= 1
        if self._noise_left < 0 or self._head_bytes_left < 0:
            raise self._broken()

    def _keep(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.DataReceived(data=data):
                self._noise_left += 2 if data else 0
            case h2.events.StreamEnded():
                self._is_ended = True
            case h2.events.StreamReset(stream_id=stream) if stream != self._stream:
                return  # reset of an earlier request
            case (
                h2.events.ResponseReceived()
                | h2.events.InformationalResponseReceived()
                | h2.events.TrailersReceived()
                | h2.events.StreamReset()
            ):
                pass
            case _:
                return  # events of the connection, which h2 handles
        self._events.append(event)

    def _take_leave(self, frame: bytes) -> None:
        """Handle a GOAWAY frame (RFC 9113 section 6.8) without the library h2: after a GOAWAY, h2 would accept no
        further frame, though the request may be allowed to finish.
        """
        last = int.from_bytes(frame[_FRAME_HEAD : _FRAME_HEAD + 4], "big") & 0x7FFFFFFF
        if len(frame) < _FRAME_HEAD + 8 or (self._stream is not None and last < self._stream):
            raise self._broken()
        self._is_over = True

    def _feed(self, frame: bytes) -> list[h2.events.Event]:
        try:
            return self._h2.receive_data(frame)
        except h2.exceptions.ProtocolError:
            pass
        raise self._broken()  # outside the handler: h2's message quotes the peer

    def _broken(self) -> httpcore2.RemoteProtocolError:
        self._is_over = True
        return httpcore2.RemoteProtocolError("it violated HTTP/2")


def _body_of(request: httpcore2.Request) -> AsyncIterable[bytes] | None:
    """Return the request's body, or None if its header fields announce no body (headers.py frames bodies)."""
    framing = {name.lower(): value for name, value in request.headers}
    if b"transfer-encoding" not in framing and framing.get(b"content-length", b"0") == b"0":
        return None
    assert isinstance(request.stream, AsyncIterable)
    return request.stream


def _parse_head(head: h2.events.ResponseReceived) -> tuple[int, list[tuple[bytes, bytes]]]:
    fields = [(bytes(name), bytes(value)) for name, value in head.headers or ()]
    statuses = [value for name, value in fields if name == b":status"]
    if len(statuses) != 1 or not _STATUS.fullmatch(statuses[0]):
        raise httpcore2.RemoteProtocolError("it violated HTTP/2")
    return int(statuses[0]), [field for field in fields if not field[0].startswith(b":")]


def _expected_bytes(method: bytes, status: int, fields: list[tuple[bytes, bytes]]) -> int | None:
    """Return the number of bytes that the response's body must have; None if any number is valid. h2 has checked that
    there is at most one `content-length`, and that its value is a number.
    """
    if method.upper() == b"HEAD" or status in _NO_BODY:
        return 0
    return next((int(value) for name, value in fields if name == b"content-length"), None)
