"""The stub that takes the place of egress in a case. It applies the same rules, but responds from the case: no request leaves
the machine.

A request is admitted by egress/rules.py itself, against a grant that is made from the manifest as for a run. An admitted
request is looked up among the exchanges of the case. Each exchange is used once, in any order, since several requests can be
open at once. A request that matches no exchange ends the run; otherwise an operation that caught the error would pass.

Not here: name resolution, TLS, injecting and scrubbing credentials, which do not affect an operation.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, NoReturn

import anyio
import msgspec

from aileron.connector_tests.cases import CaseExchange, CaseStream, CaseWebSocket
from aileron.connector_tests.talk import Script
from aileron.connector_tests.websocket_service import WebSocketService
from aileron.egress.decode import decoder_for
from aileron.egress.dial import Wire
from aileron.egress.failures import ConnectionProblem, denied, unreachable
from aileron.egress.headers import read_response_head
from aileron.egress.journal import Journal
from aileron.egress.key_places import check_body
from aileron.egress.login import login_at
from aileron.egress.meter import Meter
from aileron.egress.refusal import BadAnswerError, Reason, RefusedError
from aileron.egress.response import Body, EgressResponse
from aileron.egress.rules import AllowedRequest, EgressRequest, admit, check_granted
from aileron.egress.scrub import Needles
from aileron.egress.stream import Stream, StreamRequest
from aileron.egress.url import WEBSOCKET_SCHEMES, parse_url
from aileron.egress.websocket import Answer, WebSocketRequest, check_subprotocols
from aileron.egress.websocket_messages import Opened, WebSocket
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.names import HostPort
from aileron.model.plan import Grant

__all__ = ["Stub"]

_PIECE_BYTES: Final = 64 << 10
_MAX_SHOWN: Final = 200
"""Maximum number of characters of a request's body in a message."""


class Stub:
    """A stand-in for all services in one case (a WayOut, executor/broker.py): it answers the connector's requests
    with the case's exchanges. `problem` describes the first request that did not match.
    """

    def __init__(
        self,
        exchanges: tuple[CaseExchange, ...],
        first: HostPort | None,
        streams: tuple[CaseStream, ...] = (),
        websockets: tuple[CaseWebSocket, ...] = (),
    ) -> None:
        self._left = list(exchanges)
        self._first: Final = first
        self.problem: str | None = None
        self.streams: Final = _Streams(self, streams, first)
        self.websockets: Final = _WebSockets(self, websockets, first)

    @property
    def left_over(self) -> str | None:
        """Description of the expected exchanges, streams and WebSockets that were not used; None if all were used."""
        unused = ", ".join(map(str, (*self._left, *self.streams.left, *self.websockets.left)))
        return f"it never asked for {unused}" if unused else self.streams.unfinished or self.websockets.unfinished

    @contextlib.asynccontextmanager
    async def open(
        self, request: EgressRequest, grant: Grant, meter: Meter, journal: Journal, deadline: float
    ) -> AsyncIterator[EgressResponse]:
        """Yield the answer of the case's exchange that matches the request. Raises AileronError as egress does, and if
        no exchange matches.
        """
        meter.count_request()
        admitted = _admitted(request, grant)
        body = await _whole(request.body, meter)
        _check_held(request, admitted, body, grant)
        sent = f" with the body {body[:_MAX_SHOWN].decode('utf-8', 'replace')!r}" if body else ""
        destination, path = admitted.url.destination, _paths(admitted)[-1]
        message = f"no exchange is left for {admitted.method} {destination}{path}{sent}"
        yield self.answered(admitted, request.credential, meter, message, body)

    def answered(
        self, admitted: AllowedRequest, credential: str | None, meter: Meter, message: str, body: bytes = b""
    ) -> EgressResponse:
        """Return the answer of the case's exchange that matches the request, which was sent with `credential`, and use
        up the exchange.

        Raises AileronError with `message` if no exchange matches. Raises AileronError also if the matching exchange is marked
        as unreachable.
        """
        exchange = self._taken(admitted, credential, body, message)
        if exchange.unreachable:
            raise unreachable("connect", admitted.url.destination, ConnectionProblem("the case says so"))
        return _answer(exchange, admitted, meter)

    def refuse(self, problem: str) -> NoReturn:
        """End the run with an AileronError whose message is `problem`, and store it in `self.problem`, unless an
        earlier problem is stored.
        """
        self.problem = self.problem or problem
        raise AileronError(FailureClass.NOT_FOUND, problem, boundary=Boundary.USER)

    def _taken(self, admitted: AllowedRequest, credential: str | None, body: bytes, message: str) -> CaseExchange:
        for exchange in self._left:
            if exchange.method != admitted.method or exchange.path not in _paths(admitted):
                continue
            if (exchange.host or self._first) == admitted.url.destination and _is_sent(exchange.sends, body):
                self._left.remove(exchange)
                if exchange.credential not in (None, credential):
                    self.refuse(
                        f"{exchange} was asked with {credential or 'no'} credential; expected {exchange.credential}"
                    )
                return exchange
        return self.refuse(message)


class _WebSockets:
    """The expected WebSockets of one case. The connector can open each once, in any order."""

    def __init__(self, stub: Stub, websockets: tuple[CaseWebSocket, ...], first: HostPort | None) -> None:
        self._stub: Final = stub
        self._first: Final = first
        self.left: Final = list(websockets)
        self.unfinished: str | None = None
        """Description of the first WebSocket on which the connector left expected lines unsent."""

    @contextlib.asynccontextmanager
    async def open(
        self, request: WebSocketRequest, grant: Grant, meter: Meter, journal: Journal, deadline: float
    ) -> AsyncIterator[Answer]:
        """Yield a WebSocket with the case's service at its other end; or, if the case has an exchange for the
        handshake, that exchange's answer.

        Raises AileronError as egress does, and if the case has neither a matching WebSocket nor such an exchange.
        """
        meter.count_request()
        admitted = _admitted_handshake(request, grant)
        expected = self._taken(admitted, request)
        if expected is None:
            message = f"no [[case.websocket]], nor an exchange that answers its GET, is left for {request.url.partition('?')[0]}"
            yield self._stub.answered(admitted, request.credential, meter, message)
            return
        near, far = socket.socketpair()
        for end in (near, far):
            end.setblocking(False)
        opened, wire, to = Opened((), expected.subprotocol), Wire(near), admitted.url.destination
        websocket = WebSocket(wire, wire, opened, to, meter, deadline, Needles)
        service, problem = WebSocketService(far, Script(expected.lines)), None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(service.talk)
            try:
                yield websocket
            except AileronError as error:  # raised below: a group of tasks would wrap it
                problem = error
            finally:
                websocket.end()
                tasks.cancel_scope.cancel()
        unsaid = service.finish()
        if service.problem is not None:
            self._stub.problem = self._stub.problem or f"{to} was sent {service.problem}"
        elif unsaid is not None:
            self.unfinished = self.unfinished or f"{expected} ended before {unsaid!r}"
        if problem is not None:
            raise problem

    def _taken(self, admitted: AllowedRequest, request: WebSocketRequest) -> CaseWebSocket | None:
        for expected in self.left:
            at = expected.host or self._first
            if at != admitted.url.destination or expected.path not in _paths(admitted):
                continue
            self.left.remove(expected)
            if expected.credential not in (None, request.credential):
                asked = request.credential or "no"
                self._stub.refuse(f"{expected} was asked with {asked} credential; expected {expected.credential}")
            if expected.subprotocol is not None and expected.subprotocol not in request.subprotocols:
                offered = ", ".join(request.subprotocols) or "none"
                self._stub.refuse(f"{expected} was offered {offered} as subprotocols; expected {expected.subprotocol}")
            return expected
        return None


class _Streams:
    """The expected streams of one case. The connector can open each once; streams to the same host are used in their order."""

    def __init__(self, stub: Stub, streams: tuple[CaseStream, ...], first: HostPort | None) -> None:
        self._stub: Final = stub
        self._first: Final = first
        self.left: Final = list(streams)
        self.unfinished: str | None = None
        """Description of the first stream on which the connector left expected lines unsent."""

    @contextlib.asynccontextmanager
    async def open(
        self, request: StreamRequest, grant: Grant, meter: Meter, journal: Journal, deadline: float
    ) -> AsyncIterator[Stream]:
        """Yield a stream with the case's service at its other end.

        Raises AileronError as egress does, and if the case has no such stream.
        """
        meter.count_request()
        destination = _admitted_stream(request, grant)
        if request.command is not None:
            self._stub.refuse(f"cases have no streams of ssh, as that to {destination}")
        expected = next(
            (case_stream for case_stream in self.left if (case_stream.host or self._first) == destination), None
        )
        if expected is None:
            self._stub.refuse(f"no [[case.stream]] is left for a stream to {destination}")
        self.left.remove(expected)
        stream = _ScriptedStream(Script(expected.lines), destination, meter, deadline, self._stub)
        try:
            yield stream
        finally:
            self.unfinished = self.unfinished or stream.finish()


class _ScriptedStream(Stream):
    """A stream whose other end follows the case's script. `attend` must run concurrently."""

    def __init__(self, script: Script, destination: HostPort, meter: Meter, deadline: float, stub: Stub) -> None:
        near, self._far = socket.socketpair()
        for end in (near, self._far):
            end.setblocking(False)
        super().__init__(Wire(near), "", destination, meter, deadline, lambda: None)
        self._script: Final = script
        self._stub: Final = stub
        self._to: Final = destination

    async def attend(self) -> None:
        """Play the service until the connector has sent all its lines; then end the stream.

        Raises AileronError if the connector sends something else.
        """
        await self._say(self._script.begin())
        while self._script.expected is not None:
            await anyio.wait_readable(self._far)
            data = self._far.recv(_PIECE_BYTES)
            if not data:
                return
            await self._say(self._heard(data))
        self._far.shutdown(socket.SHUT_WR)

    def finish(self) -> str | None:
        """Check all data that the connector had sent when it closed the stream. Return a description of the expected
        lines that it did not send, or None.
        """
        self.close()
        try:
            while data := self._far.recv(_PIECE_BYTES):  # everything has arrived: the other end is closed
                self._script.hear(data)
        except OSError:
            pass
        except ValueError as error:
            self._stub.problem = self._stub.problem or f"{self._to} was sent {error}"
        self._far.close()
        expected = self._script.expected
        return None if expected is None else f"the stream to {self._to} ended before {expected!r}"

    async def _say(self, data: bytes) -> None:
        while data:
            await anyio.wait_writable(self._far)
            data = data[self._far.send(data) :]

    def _heard(self, data: bytes) -> bytes:
        try:
            return self._script.hear(data)
        except ValueError as error:
            return self._stub.refuse(f"{self._to} was sent {error}")


def _admitted_stream(request: StreamRequest, grant: Grant) -> HostPort:
    """Return the destination of a stream that the connector requests. It must be a granted host and, if the grant has a
    credential, one of its logins. Raises AileronError otherwise.
    """
    destination: HostPort | None = None
    try:
        destination = request.checked_destination()
        check_granted(destination, grant)
        if grant.credential is not None and login_at(request, grant) is None:
            raise RefusedError(
                Reason.STREAM_CREDENTIAL, f"a step with a credential gets streams to its logins, not to {destination}"
            )
    except RefusedError as error:
        raise denied(error, destination, None, grant) from None
    return destination


def _admitted(request: EgressRequest, grant: Grant) -> AllowedRequest:
    destination: HostPort | None = None
    try:
        url = parse_url(request.url)
        destination = url.destination
        return admit(url, request, grant)
    except RefusedError as error:
        raise denied(error, destination, request.credential, grant) from None


def _admitted_handshake(request: WebSocketRequest, grant: Grant) -> AllowedRequest:
    destination: HostPort | None = None
    try:
        url = parse_url(request.url, WEBSOCKET_SCHEMES)
        destination = url.destination
        asked = EgressRequest("GET", request.url, request.headers, request.credential)
        admitted = admit(url, asked, grant, is_websocket=True)
        check_subprotocols(request.subprotocols)
    except RefusedError as error:
        raise denied(error, destination, request.credential, grant) from None
    return admitted


def _paths(admitted: AllowedRequest) -> tuple[str, str]:
    """Return both forms of a request's path that a case can state: the path as sent, and the path as in the ledger, in
    which a placeholder stands for a key.
    """
    query = "" if admitted.url.query is None else f"?{admitted.url.query}"
    return admitted.url.target, admitted.recorded_path + query


def _check_held(request: EgressRequest, admitted: AllowedRequest, body: bytes, grant: Grant) -> None:
    """Check that a request's streamed body contains the place where egress would insert the key. Raises AileronError as
    egress does.
    """
    if admitted.use is None or not isinstance(request.body, AsyncIterator):
        return
    try:
        check_body(admitted.use.need, admitted.fields, body)
    except RefusedError as error:
        raise denied(error, admitted.url.destination, request.credential, grant) from None


async def _whole(body: bytes | AsyncIterator[bytes] | None, meter: Meter) -> bytes:
    """Return the complete body of the request, and count its bytes against the run's budget."""
    if isinstance(body, bytes) or body is None:
        meter.count_up(len(body or b""))
        return body or b""
    whole = bytearray()
    async for piece in body:
        meter.count_up(len(piece))
        whole += piece
    return bytes(whole)


def _is_sent(expected: Any, body: bytes) -> bool:
    if expected is msgspec.UNSET:
        return True
    if isinstance(expected, str) and body == expected.encode():
        return True
    try:
        found = json.loads(body)
        # TOML has no null: a value with a null is written as a string.
        return found == expected or (isinstance(expected, str) and found == json.loads(expected))
    except ValueError:
        return False


def _reader(body: bytes) -> Callable[[], Awaitable[bytes | None]]:
    pieces = iter([body[at : at + _PIECE_BYTES] for at in range(0, len(body), _PIECE_BYTES)])

    async def read() -> bytes | None:
        return next(pieces, None)

    return read


def _answer(exchange: CaseExchange, admitted: AllowedRequest, meter: Meter) -> EgressResponse:
    """Return the answer of an exchange as egress passes it on: without header fields of the connection, and with its
    body decoded.
    """

    def broken(words: str) -> AileronError:
        return unreachable("exchange", admitted.url.destination, ConnectionProblem(words))

    fields = [(name.encode("ascii"), value.encode("ascii")) for name, value in exchange.headers]
    try:
        head = read_response_head(admitted.method, exchange.status, fields)
        decoder = decoder_for(head.codings)
    except BadAnswerError as error:
        raise broken(str(error)) from None
    kept = tuple((name.decode("ascii"), value.decode("ascii")) for name, value in head.fields)
    return EgressResponse(head.status, kept, Body(_reader(exchange.body), meter, Needles, decoder, 0, broken))
