"""The engine: one request of a connector, from its text to a scrubbed response. The only way out of the jail.

Runs in the daemon, called by the executor for each `http` frame. It trusts neither the connector that asks, nor the
resolver, nor the upstream that answers; the engine is where a secret meets the network.

    1 count · 2 admit (rules.py), read a body that must be complete (held.py) · 3 resolve and check every address
    4 renew or fetch the credential if necessary · 5 get the secrets to search the response for, lend, inject
    6 record durably
    7 connect · 8 send · 9 check the head · 10 decode, count and scrub the body · 11 pool or close · 12 record the end

Rules
- Nothing is looked up before 2 has passed, nothing is renewed or lent before 3, and before 6 has returned no packet
  goes to the upstream. 3 and 7 are skipped if a pooled connection is used (pool.py); if that connection is gone by 8,
  they happen then.
- Redirects, cookies and upstream errors are the connector's business: they are relayed. Nothing is retried here, except
  after a refused token (renewing.py) or a challenge (challenged.py).
- A request that waits for a renewal gives up its slot of the limit for all steps, because the renewal is itself a
  request and needs a slot.
- A response is scrubbed of every secret that any connector could have sent to its host (5), and of every secret that
  the step was lent; this list is read again for each piece. If the list is not empty, partial responses are refused
  (headers.py).
- The response to one of the supervisor's own requests (`open_own`) is not scrubbed: it goes into no jail, and a
  provider's response holds tokens.
- The secret is lent until the response has ended. An error has no cause or context, as h11's errors quote the bytes
  that they could not parse.
- Every wait ends at the deadline of the step; look-ups and connection attempts have shorter deadlines.
- If 6 was reached, 12 follows, whatever happened, cancellation included. If a rule refused a request, the refusal is
  recorded before the error is raised.

>>> async with egress.open(request, grant, meter, journal, deadline) as response:       # doctest: +SKIP
...     async for piece in response:
...         print(response.status, piece)

Source: docs/reference/egress.md. Not here: what ends an invocation (the executor: every `capability_denied`), retries.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final, TypeVar

import anyio
import httpcore2

from aileron.config import Settings
from aileron.egress.challenged import Challenged, Prepare, Rounds
from aileron.egress.client_certificate import certificate_tag
from aileron.egress.decode import decoder_for
from aileron.egress.exchange import HttpPassage
from aileron.egress.headers import Field, check_whole, frame_body, read_response_head, without_parts
from aileron.egress.held import PLACES, too_long
from aileron.egress.inject import KINDS, RENEWABLE, Lender, inject
from aileron.egress.journal import Journal, RequestIntent, RequestReport
from aileron.egress.key_places import check_body
from aileron.egress.login import LoginDoor
from aileron.egress.lookup import Resolver, SystemResolver
from aileron.egress.meter import Meter
from aileron.egress.outgoing import Injection, Outgoing
from aileron.egress.pool import Connection, Key, Pool
from aileron.egress.refusal import BadAnswerError, Reason, RefusedError
from aileron.egress.renewing import Renewing
from aileron.egress.response import Body, EgressResponse, scrub_fields
from aileron.egress.rules import AllowedRequest, EgressRequest, admit, other_body
from aileron.egress.signing.refused import RefusedSignatures
from aileron.egress.steps import connected, enter, failure_class
from aileron.egress.tcp import Streams
from aileron.egress.url import parse_url
from aileron.egress.websocket import WebSockets
from aileron.model.plan import Grant
from aileron.model.secret import Secret
from aileron.tls import client_context

__all__ = ["Egress"]

MAX_CONNECTIONS: Final = 64  # in use at once, of all steps together; a quarter of them for one step (meter.py)
_METHOD_CHARACTERS: Final = 32  # recorded of a refused method; the longest registered method has 17

_T = TypeVar("_T")


class Egress:
    """The engine that sends requests of connectors and the supervisor's own. One instance per daemon: it has the TLS
    settings, the pool of connections, and the lender of credentials.
    """

    def __init__(
        self,
        settings: Settings,
        lender: Lender,
        *,
        resolve: Resolver | None = None,
        own_port: int | None = None,
        logins: LoginDoor | None = None,
    ) -> None:
        """Set up what all requests share. `resolve` None means the system's resolver. `own_port` is the daemon's port
        on loopback. `logins` starts the processes that log in at services; if it is None, logins are not available.

        Raises AileronError(invalid_request) if `egress.ca_file` contains no certificate.
        """
        self.lender: Final = lender
        self.own_port: Final = own_port
        self.resolve: Final = SystemResolver() if resolve is None else resolve
        self.tls: Final = client_context(settings.egress_ca_pem)
        self.ca_pem: Final = settings.egress_ca_pem
        self.pool: Final = Pool()
        self.slots: Final = anyio.Semaphore(MAX_CONNECTIONS)
        self.holding: Final = anyio.Semaphore(PLACES)
        self.rounds: Final = Rounds()
        without_alpn = client_context(settings.egress_ca_pem, protocols=())
        self.streams: Final = Streams(self.resolve, without_alpn, self.slots, own_port, lender, logins)
        http11 = client_context(settings.egress_ca_pem, protocols=("http/1.1",))
        self.websockets: Final = WebSockets(self.resolve, http11, self.slots, own_port, lender, settings.egress_ca_pem)

    def open(
        self, request: EgressRequest, grant: Grant, meter: Meter, journal: Journal, deadline: float
    ) -> contextlib.AbstractAsyncContextManager[EgressResponse]:
        """Return a context manager that sends a request when entered, and ends the exchange when left. Its value is the
        response. `deadline` as in `anyio.current_time()`.

        Raises AileronError: capability_denied (`details`: requested, granted, reason), resource_limit_exceeded
        (`details.limit`), network_error (`details.phase`), or the error of the lender or the journal. The same errors
        may be raised while the body is read.
        """

        def begin(prepare: Prepare | None = None, whole: bytes | None = None) -> _Exchange:
            asked = request if whole is None else dataclasses.replace(request, body=whole)
            return _Exchange(self, asked, grant, meter, journal, deadline, prepare=prepare)

        use = grant.credential
        if use is None or request.credential != use.need.kind:
            return begin()
        match KINDS[use.need.kind].on_refusal:
            case "answer":
                return Challenged(begin, self.rounds, use.binding, deadline)
            case "explain":
                return RefusedSignatures(begin(), request.url, use)
            case "renew":
                return Renewing(begin, meter, can_repeat=not isinstance(request.body, AsyncIterator))
            case "relay":
                return begin()

    def open_own(
        self, request: EgressRequest, grant: Grant, meter: Meter, journal: Journal, deadline: float
    ) -> contextlib.AbstractAsyncContextManager[EgressResponse]:
        """Return a context manager for one of the supervisor's own requests, as `open` does for a connector's. The
        response stays in the daemon, so it is not scrubbed. This works even while the vault is locked.
        """
        assert grant.credential is None, "what is lent is for connectors"
        return _Exchange(self, request, grant, meter, journal, deadline, is_own=True)

    def forget_certificates(self) -> None:
        """Close every connection that has a client certificate: pooled ones at once, those in use when they are put
        back into the pool. Called when the vault is locked.
        """
        self.pool.forget_certificates()

    async def aclose(self) -> None:
        """Close the pooled connections. A connection that is still in use is closed when its response is left."""
        self.pool.close()


class _Exchange(HttpPassage[EgressResponse]):
    """Context manager of one HTTP request: it sends the request when entered, and records the end when left."""

    def __init__(
        self,
        egress: Egress,
        request: EgressRequest,
        grant: Grant,
        meter: Meter,
        journal: Journal,
        deadline: float,
        *,
        is_own: bool = False,
        prepare: Prepare | None = None,
    ) -> None:
        method = request.method[:_METHOD_CHARACTERS]
        super().__init__(egress, request, grant, meter, journal, deadline, method=method, is_own=is_own)
        self._egress = egress
        self._prepare_lent = prepare
        self._request = request
        self._given = request.body  # the body to send; replaced by bytes if it must be complete first
        self._bytes_up = 0
        self._generation = 0

    @property
    def whole(self) -> bytes | None:
        """The request's complete body, known once the response's head has arrived; None if the body was streamed."""
        return self._given if isinstance(self._given, bytes) else None

    async def _run(self) -> EgressResponse:
        self._number = self._meter.count_request()
        admitted = self._checked(self._admit)
        if isinstance(self._request.body, bytes):
            self._count_up(len(self._request.body))
        await enter(self._stack, (self._meter.in_flight,), self._destination, self._deadline)
        if admitted.holds is not None:
            admitted = await self._hold(admitted, admitted.holds)
        await enter(self._place, (self._egress.slots,), self._destination, self._deadline)
        identity = None if admitted.use is None else str(admitted.use.binding)
        key = Key(admitted.url.destination, admitted.plain, admitted.private, identity)
        self._connection = self._egress.pool.take(key)
        addresses = await self._vet(admitted) if self._connection is None else ()
        if not self._is_own:
            await self._ready(admitted.use, key.destination)
            self._bound = self._egress.lender.needles(key.destination)
        self._generation = self._egress.pool.generation  # before the loan: any later wait can lock the vault
        injection = self._prepare(admitted)
        if self._connection is not None and self._connection.certificate != certificate_tag(injection.certificate):
            self._connection.wire.close()  # it was made with the binding's previous certificate
            self._connection, addresses = None, await self._vet(admitted)
        self._meter.remember(injection.roots)
        self._once, self._has_certificate = injection.once, injection.certificate is not None
        intent = RequestIntent(self._number, admitted.method, key.destination, admitted.recorded_path, identity)
        await self._write_down(intent)  # step 6
        if self._connection is not None and not self._connection.is_alive():
            self._connection.wire.close()  # the peer closed it during the record; nothing was sent on it
            self._connection, addresses = None, await self._vet(admitted)
        if self._connection is None:
            self._connection = await self._connect(key, addresses, injection.certificate)
        request = injection.request
        self._answer = await self._sent(self._connection, request, self._content(request, admitted))
        return self._read_head(admitted, self._answer)

    def _admit(self) -> AllowedRequest:
        """Do step 2: parse the URL, then check every rule that needs no look-up of the host."""
        url = parse_url(self._request.url)
        self._destination = url.destination
        return admit(url, self._request, self._grant)

    async def _hold(self, admitted: AllowedRequest, most: int) -> AllowedRequest:
        """Read a streamed body of at most `most` bytes to its end and frame it as a complete body, as a part of step 2.
        Meanwhile the request occupies no shared resource except memory.
        """
        await enter(self._stack, (self._meter.holding, self._egress.holding), self._destination, self._deadline)
        longest = most if admitted.length is None else admitted.length
        body = await self._reach("queue", lambda: self._read_whole(longest))
        if len(body) > most:
            raise self._denied(too_long(most))
        framing, length = self._checked(lambda: self._check_held(admitted, body))
        self._given = body
        fields = admitted.fields[:-1] if framing is None else (*admitted.fields[:-1], framing)
        return dataclasses.replace(admitted, fields=fields, length=length, holds=None)

    def _check_held(self, admitted: AllowedRequest, body: bytes) -> tuple[Field | None, int | None]:
        """Check `body`, which was read to its end, as rules.py checks a body that came in one piece. Return the header
        field that frames the body, and the body's length.
        """
        assert admitted.use is not None
        framing = frame_body(admitted.method, self._request.headers, body)
        check_body(admitted.use.need, admitted.fields, body)
        return framing

    async def _read_whole(self, most: int) -> bytes:
        """Read the request's streamed body and return it. If the body has more than `most` bytes, stop a little beyond
        `most`.
        """
        body, pieces = bytearray(), self._given
        assert isinstance(pieces, AsyncIterator)
        async for piece in pieces:
            self._count_up(len(piece))
            body += piece
            if len(body) > most:
                break
        return bytes(body)

    def _prepare(self, admitted: AllowedRequest) -> Injection:
        """Do step 5: lend the credential, and return the request with the credential in it."""
        use, body = admitted.use, self._given
        whole_only = use is not None or self._is_whole_only()
        request = Outgoing(
            method=admitted.method,
            url=admitted.url,
            fields=without_parts(admitted.fields) if whole_only else admitted.fields,
            body=body if isinstance(body, bytes) else None,
            is_streamed=isinstance(body, AsyncIterator),
        )
        if use is None:
            return Injection(request)
        lent = self._stack.enter_context(self._egress.lender.lend(use))
        if self._prepare_lent is not None:
            lent = self._prepare_lent(lent, admitted.url.destination)
        self.stored = lent.stored
        self.token = lent.secret if use.need.kind in RENEWABLE else None
        return inject(use, lent, request)

    async def _connect(self, key: Key, addresses: tuple[str, ...], certificate: Secret | None) -> Connection:
        """Do step 7: connect to one of the addresses, and return the new connection."""
        tls = None if key.plain else self._egress.tls
        if certificate is not None:
            assert not key.plain, "rules.py: there is no TLS to carry it"
            tls = await self._context_with(certificate)
        wire, address = await connected(self._deadline, key.destination, addresses, tls, self._certificate_refused)
        return Connection.over(wire, address, key, certificate_tag(certificate), self._generation)

    def _content(self, request: Outgoing, admitted: AllowedRequest) -> bytes | AsyncIterator[bytes] | None:
        body = self._given
        if not isinstance(body, AsyncIterator):
            return request.body
        pieces = self._streamed(body, admitted.length)
        return pieces if admitted.sha256 is None else self._hashed(pieces, admitted.sha256)

    async def _streamed(self, body: AsyncIterator[bytes], length: int | None) -> AsyncGenerator[bytes]:
        """Yield the pieces of a streamed request body, counted and checked against the announced length."""
        sent = 0
        async for chunk in body:
            sent += len(chunk)
            if length is not None and sent > length:
                break
            self._count_up(len(chunk))
            yield chunk
        if length is not None and sent != length:
            raise self._denied(RefusedError(Reason.BODY_LENGTH, "the body is not as long as its Content-Length"))

    async def _hashed(self, pieces: AsyncGenerator[bytes], sha256: str) -> AsyncGenerator[bytes]:
        """Yield the pieces of a streamed body whose hash was signed. The last piece goes out only if the complete body
        has that hash.
        """
        so_far, held = hashlib.sha256(), b""
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                if held and piece:
                    yield held
                so_far.update(piece)
                held = piece or held
        if so_far.hexdigest() != sha256:
            raise self._denied(other_body())
        if held:
            yield held

    def _count_up(self, size: int) -> None:
        self._meter.count_up(size)
        self._bytes_up += size

    def _read_head(self, admitted: AllowedRequest, answer: httpcore2.Response) -> EgressResponse:
        """Check the response's head (step 9), and prepare to decode and scrub the body (step 10)."""
        try:
            head = read_response_head(admitted.method, answer.status, answer.headers)
            if self._is_whole_only():
                check_whole(head)
            needles = self._needles()
            decoder = decoder_for(head.codings)
        except BadAnswerError as error:
            words = str(error)
        else:
            relayed = head.fields if admitted.use is None else KINDS[admitted.use.need.kind].relayed(head.fields)
            fields, hits = scrub_fields(relayed, needles)
            self._body = Body(self._reader(answer), self._meter, self._needles, decoder, hits, self._bad_answer)
            return EgressResponse(head.status, fields, self._body)
        raise self._bad_answer(words)

    async def _end(self, error: BaseException | None) -> None:
        """Pool or close the connection and record the end of the request (steps 11 and 12), also when the caller is
        being cancelled.
        """
        await self._end_answer()
        if self._connection is not None:
            if self._body is not None and self._body.failure is not None:
                self._connection.wire.close()  # framed well or not: a peer that sent a bad body gets no further request on it
            self._egress.pool.put(self._connection)
        self._place.close()
        self._stack.close()
        self.token = None
        await self._write_down_end(error)

    def _report(self, started_at: float, error: BaseException | None) -> RequestReport:
        return RequestReport(
            number=self._number,
            status=None if self._answer is None else self._answer.status,
            bytes_up=self._bytes_up,
            bytes_down=0 if self._body is None else self._body.bytes_down,
            ms=(anyio.current_time() - started_at) * 1000,
            address=None if self._connection is None else self._connection.address,
            scrubbed=0 if self._body is None else self._body.scrubbed,
            failure=failure_class(error or (self._body.failure if self._body else None)),
        )
