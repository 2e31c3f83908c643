"""Answers of a case in the place of egress: the same rules, and nothing leaves.

A request is admitted by egress/rules.py itself, against a grant made of the manifest as a run's is. What passes is looked up
among the exchanges of the case; each serves once, in any order, since several requests may be under way. A request that none fits
ends the run: an operation that caught the error would else pass.

Not here: resolving, TLS, injecting and scrubbing, which have no part in what an operation does.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, NoReturn

import msgspec

from aileron.egress.decode import decoder_for
from aileron.egress.failures import ConnectionProblem, denied, unreachable
from aileron.egress.headers import read_response_head
from aileron.egress.journal import Journal
from aileron.egress.meter import Meter
from aileron.egress.refusal import BadAnswerError, RefusedError
from aileron.egress.response import Body, EgressResponse
from aileron.egress.rules import AllowedRequest, EgressRequest, admit
from aileron.egress.scrub import Needles
from aileron.egress.tcp import Stream, StreamRequest
from aileron.egress.url import parse_url
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.names import HostPort
from aileron.model.plan import Grant
from aileron.trial.cases import CaseExchange

__all__ = ["Stub"]

_PIECE_BYTES: Final = 64 << 10
_MAX_SHOWN: Final = 200
"""Characters of a request's body in a message."""


class Stub:
    """The way out of one case (executor/broker.py, WayOut). `problem` is the first request that did not fit, in words."""

    def __init__(self, exchanges: tuple[CaseExchange, ...], first: HostPort | None) -> None:
        self._left = list(exchanges)
        self._first: Final = first
        self.problem: str | None = None
        self.streams: Final = _NoStreams(self)

    @property
    def unused(self) -> tuple[CaseExchange, ...]:
        """What was expected and not asked for."""
        return tuple(self._left)

    @contextlib.asynccontextmanager
    async def open(
        self, request: EgressRequest, grant: Grant, meter: Meter, journal: Journal, deadline: float
    ) -> AsyncIterator[EgressResponse]:
        """The answer of the exchange that fits. AileronError as egress, and where none fits."""
        meter.count_request()
        admitted = _admitted(request, grant)
        body = await _whole(request.body, meter)
        exchange = self._taken(admitted, request.credential, body)
        if exchange.unreachable:
            raise unreachable("connect", admitted.url.destination, ConnectionProblem("the case says so"))
        yield _answer(exchange, admitted, meter)

    def refuse(self, problem: str) -> NoReturn:
        """End the run, and remember why."""
        self.problem = self.problem or problem
        raise AileronError(FailureClass.NOT_FOUND, problem, boundary=Boundary.USER)

    def _taken(self, admitted: AllowedRequest, credential: str | None, body: bytes) -> CaseExchange:
        url = admitted.url
        for exchange in self._left:
            if (exchange.method, exchange.path) != (admitted.method, url.target):
                continue
            if (exchange.host or self._first) == url.destination and _is_sent(exchange.sends, body):
                self._left.remove(exchange)
                if exchange.credential not in (None, credential):
                    self.refuse(
                        f"{exchange} was asked with {credential or 'no'} credential; expected {exchange.credential}"
                    )
                return exchange
        sent = f" with the body {body[:_MAX_SHOWN].decode('utf-8', 'replace')!r}" if body else ""
        return self.refuse(f"no exchange is left for {admitted.method} {url.destination}{url.target}{sent}")


class _NoStreams:
    """Cases have requests and answers; a stream has neither."""

    def __init__(self, stub: Stub) -> None:
        self._stub = stub

    @contextlib.asynccontextmanager
    async def open(
        self, request: StreamRequest, grant: Grant, meter: Meter, journal: Journal, deadline: float
    ) -> AsyncIterator[Stream]:
        """Refused, as what the case cannot answer."""
        self._stub.refuse(
            f"a stream to {request.host}:{request.port}: cases answer requests only; try it with --upstream"
        )
        yield  # type: ignore[unreachable]  # what makes it a generator


def _admitted(request: EgressRequest, grant: Grant) -> AllowedRequest:
    destination: HostPort | None = None
    try:
        url = parse_url(request.url)
        destination = url.destination
        return admit(url, request, grant)
    except RefusedError as error:
        raise denied(error, destination, request.credential, grant) from None


async def _whole(body: bytes | AsyncIterator[bytes] | None, meter: Meter) -> bytes:
    """The request's body, counted against the budget piece by piece."""
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
        # TOML has no null: what has one is written as a string.
        return found == expected or (isinstance(expected, str) and found == json.loads(expected))
    except ValueError:
        return False


def _reader(body: bytes) -> Callable[[], Awaitable[bytes | None]]:
    pieces = iter([body[at : at + _PIECE_BYTES] for at in range(0, len(body), _PIECE_BYTES)])

    async def read() -> bytes | None:
        return next(pieces, None)

    return read


def _answer(exchange: CaseExchange, admitted: AllowedRequest, meter: Meter) -> EgressResponse:
    """As egress hands one on: fields that belong to the connection alone are gone, a body that says it is encoded is decoded."""

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
