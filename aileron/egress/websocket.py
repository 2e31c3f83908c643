"""The opening of a WebSocket at a granted host: the same checks in the same order as for a request, and the handshake.

Runs in the daemon, called by the executor for each `websocket_open` frame. It trusts neither the connector nor the service.

    1 count · 2 admit · 3 resolve and check every address · 4 renew or fetch the credential if necessary
    5 get the secrets to search the response for, lend, inject · 6 record durably · 7 connect, verify TLS
    8 the handshake, and the first message if the credential is in it · 9 messages both ways (websocket_messages.py)
    10 close · 11 record the end

Rules
- The opening request is a GET: all of rules.py applies to it, and the credential is added as to any other request. The
  fields of the handshake are written only here, before a credential is added, so that exactly what is signed is sent.
- A step that only reads (a preview) gets no WebSocket, because the effect of a message cannot be checked.
- Each WebSocket has a new connection, in HTTP/1.1: after the handshake, only its two ends know its state.
- No extension is offered or accepted, because compressed messages could not be searched.
- A response that opens no WebSocket is scrubbed and relayed like the response to a request, up to `HELD_BYTES`.
- A first message with the credential is sent before the connector learns that the WebSocket is open; it never sees the message.
- The secret is lent until the WebSocket is closed. A secret that is bound or lent meanwhile is searched for from then on.
- If 6 was reached, 11 follows, cancellation included. If a rule refused the WebSocket, the refusal is recorded before
  the error is raised.

Source: RFC 6455 section 4; docs/reference/egress.md. Not here: frames of the jail (the executor's broker), the socket (dial.py).
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import secrets
import ssl
from typing import Final

import anyio
import httpcore2

from aileron.egress.around import HELD_BYTES
from aileron.egress.client_certificate import certificate_tag
from aileron.egress.decode import decoder_for
from aileron.egress.exchange import HttpPassage
from aileron.egress.failures import ConnectionProblem, unreachable
from aileron.egress.headers import TOKEN, Field, check_whole, read_response_head, without_parts
from aileron.egress.inject import KINDS, RENEWABLE, Lender, inject
from aileron.egress.journal import Journal, RequestIntent, RequestReport
from aileron.egress.lookup import Resolver
from aileron.egress.meter import Meter
from aileron.egress.outgoing import Injection, Outgoing
from aileron.egress.pool import Connection, Key
from aileron.egress.refusal import BadAnswerError, Reason, RefusedError
from aileron.egress.renewing import Renewing
from aileron.egress.response import Body, EgressResponse, scrub_fields
from aileron.egress.rules import AllowedRequest, EgressRequest, admit
from aileron.egress.signing.refused import RefusedSignatures
from aileron.egress.steps import connected, enter, failure_class
from aileron.egress.url import WEBSOCKET_SCHEMES, parse_url
from aileron.egress.websocket_messages import Opened, Part, WebSocket
from aileron.model.plan import Grant

__all__ = ["METHOD", "Answer", "WebSocketRequest", "WebSockets", "check_subprotocols"]

METHOD: Final = "WEBSOCKET"
"""Method of WebSockets in the ledger."""
MAX_SUBPROTOCOLS: Final = 16  # the IANA registry has some 150 names; a client that offers many lists versions of one
_ACCEPTS: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 section 1.3

Answer = WebSocket | EgressResponse
"""An open WebSocket, or the service's response if it opened none."""


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class WebSocketRequest:
    """A connector's request for a WebSocket, as unchecked text. `credential` is the name of a kind of credential, never
    a secret.
    """

    url: str
    headers: tuple[Field, ...] = ()
    subprotocols: tuple[str, ...] = ()
    credential: str | None = None


class WebSockets:
    """Opens the WebSockets of connectors, with parts of the daemon's `Egress`: the resolver, the trusted certificates, the
    semaphore for all requests in progress, and the lender of credentials.
    """

    def __init__(
        self,
        resolve: Resolver,
        tls: ssl.SSLContext,
        slots: anyio.Semaphore,
        own_port: int | None,
        lender: Lender,
        ca_pem: str | None,
    ) -> None:
        """Take `tls`, which offers only HTTP/1.1. `ca_pem` contains the certificate authorities that `tls` trusts in
        addition to the system's.
        """
        self.resolve: Final = resolve
        self.tls: Final = tls
        self.slots: Final = slots
        self.own_port: Final = own_port
        self.lender: Final = lender
        self.ca_pem: Final = ca_pem

    def open(
        self, request: WebSocketRequest, grant: Grant, meter: Meter, journal: Journal, deadline: float
    ) -> contextlib.AbstractAsyncContextManager[Answer]:
        """Return a context manager that opens a WebSocket when entered, and closes it when left. `deadline` as in
        `anyio.current_time()`. Raises AileronError as `Egress.open` does.
        """

        def begin() -> _Opening:
            return _Opening(self, request, grant, meter, journal, deadline)

        use = grant.credential
        if use is None or request.credential != use.need.kind:
            return begin()
        match KINDS[use.need.kind].on_refusal:
            case "explain":
                return RefusedSignatures[Answer](begin(), request.url, use)
            case "renew":
                return Renewing[Answer](begin, meter, can_repeat=True)
            case (
                "relay" | "answer"
            ):  # the answer to a challenge would need a second handshake: rules.py refuses that kind
                return begin()


class _Opening(HttpPassage[Answer]):
    """Context manager of one WebSocket: it opens the WebSocket when entered, and closes it and records the end when left."""

    def __init__(
        self,
        websockets: WebSockets,
        request: WebSocketRequest,
        grant: Grant,
        meter: Meter,
        journal: Journal,
        deadline: float,
    ) -> None:
        super().__init__(websockets, request, grant, meter, journal, deadline, method=METHOD)
        self._websockets = websockets
        self._request = request
        self._key = base64.b64encode(secrets.token_bytes(16)).decode()
        self._websocket: WebSocket | None = None

    async def _run(self) -> Answer:
        self._number = self._meter.count_request()
        admitted = self._checked(self._admit)
        destination = admitted.url.destination
        await enter(self._stack, (self._meter.in_flight,), destination, self._deadline)
        await enter(self._place, (self._websockets.slots,), destination, self._deadline)
        addresses = await self._vet(admitted)
        await self._ready(admitted.use, destination)
        injection = self._prepare(admitted)
        identity = None if admitted.use is None else str(admitted.use.binding)
        intent = RequestIntent(self._number, METHOD, destination, admitted.recorded_path, identity)
        await self._write_down(intent)  # step 6
        key = Key(destination, admitted.plain, admitted.private, identity)
        tls = None if admitted.plain else self._websockets.tls
        if injection.certificate is not None:
            self._has_certificate = True
            tls = await self._context_with(injection.certificate, ("http/1.1",))
        wire, address = await connected(self._deadline, destination, addresses, tls, self._certificate_refused)
        connection = self._connection = Connection.over(wire, address, key, certificate_tag(injection.certificate))
        answer = self._answer = await self._sent(connection, injection.request)
        try:
            if answer.status == WebSocket.status:
                websocket = self._websocket = self._opened(connection, answer)
            else:
                return await self._refusal(answer)
        except BadAnswerError as error:
            words = str(error)
        else:
            if injection.first_message is not None:
                await websocket.send(Part(injection.first_message.reveal(), is_text=True, is_last=True))
            return websocket
        raise unreachable("exchange", destination, ConnectionProblem(words, retriable=False))

    def _admit(self) -> AllowedRequest:
        """Do step 2: parse the URL, then check every rule that needs no look-up of the host."""
        asked = self._request
        url = parse_url(asked.url, WEBSOCKET_SCHEMES)
        self._destination = url.destination
        admitted = admit(
            url, EgressRequest("GET", asked.url, asked.headers, asked.credential), self._grant, is_websocket=True
        )
        if self._grant.read_only:
            raise RefusedError(
                Reason.READ_ONLY,
                "a preview can only read, and what a message does cannot be checked: WebSockets are not allowed",
            )
        return dataclasses.replace(admitted, fields=(*admitted.fields, *self._handshake_fields(asked.subprotocols)))

    def _handshake_fields(self, subprotocols: tuple[str, ...]) -> tuple[Field, ...]:
        check_subprotocols(subprotocols)
        offered = (("Sec-WebSocket-Protocol", ", ".join(subprotocols)),) if subprotocols else ()
        return (
            ("Connection", "Upgrade"),
            ("Upgrade", "websocket"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", self._key),
            *offered,
        )

    def _prepare(self, admitted: AllowedRequest) -> Injection:
        """Do step 5: lend the credential, and return the request with the credential in it."""
        lender, use = self._websockets.lender, admitted.use
        self._bound = lender.needles(admitted.url.destination)
        fields = without_parts(admitted.fields) if use is not None or self._is_whole_only() else admitted.fields
        request = Outgoing(admitted.method, admitted.url, fields)
        if use is None:
            return Injection(request)
        lent = self._stack.enter_context(lender.lend(use))
        self.stored = lent.stored
        self.token = lent.secret if use.need.kind in RENEWABLE else None
        injection = inject(use, lent, request)
        self._meter.remember(injection.roots)
        self._once = injection.once
        return injection

    def _opened(self, connection: Connection, answer: httpcore2.Response) -> WebSocket:
        """Return the open WebSocket after a response with status 101. Raises BadAnswerError for a handshake that does
        not follow RFC 6455 section 4.1.
        """
        chosen = check_handshake(self._key, self._request.subprotocols, answer.headers)
        head = read_response_head("HEAD", 200, answer.headers)  # the other checks of a response's fields
        fields, hits = scrub_fields(head.fields, self._needles())
        stream = answer.extensions["network_stream"]
        assert isinstance(stream, httpcore2.AsyncNetworkStream)
        assert self._destination is not None
        websocket = WebSocket(
            connection.wire,
            stream,
            Opened(fields, chosen),
            self._destination,
            self._meter,
            self._deadline,
            self._needles,
        )
        websocket.scrubbed = hits
        return websocket

    async def _refusal(self, answer: httpcore2.Response) -> EgressResponse:
        """Return the complete response of a service that opened no WebSocket. Raises BadAnswerError if the response is
        longer than HELD_BYTES.
        """
        head = read_response_head("GET", answer.status, answer.headers)
        if self._is_whole_only():
            check_whole(head)
        fields, hits = scrub_fields(head.fields, self._needles())
        self._body = Body(
            self._reader(answer), self._meter, self._needles, decoder_for(head.codings), hits, self._bad_answer
        )
        response = EgressResponse(head.status, fields, self._body)
        if not await response.hold(HELD_BYTES):
            words = f"it opened no WebSocket: status {head.status}, with a body of more than {HELD_BYTES >> 10} KiB"
            raise BadAnswerError(words)
        return response

    async def _end(self, error: BaseException | None) -> None:
        """Close the WebSocket and record its end (steps 10 and 11)."""
        if self._websocket is not None:
            self._websocket.end()
        await self._end_answer()
        if self._connection is not None:
            self._connection.wire.close()
        self._place.close()
        self._stack.close()
        self.token = None
        await self._write_down_end(error)

    def _report(self, started_at: float, error: BaseException | None) -> RequestReport:
        """Return the report of how the WebSocket ended. Its byte counts cover all frames, or the response's body if no
        WebSocket was opened.
        """
        seen = self._websocket or self._body
        return RequestReport(
            number=self._number,
            status=None if self._answer is None else self._answer.status,
            bytes_up=0 if self._websocket is None else self._websocket.bytes_up,
            bytes_down=0 if seen is None else seen.bytes_down,
            ms=(anyio.current_time() - started_at) * 1000,
            address=None if self._connection is None else self._connection.address,
            scrubbed=0 if seen is None else seen.scrubbed,
            failure=failure_class(error or (self._body.failure if self._body else None)),
        )


def check_subprotocols(offered: tuple[str, ...]) -> None:
    """Raise RefusedError if there are too many subprotocols, or one that cannot be written in a field of the handshake."""
    if len(offered) > MAX_SUBPROTOCOLS or not all(map(TOKEN.fullmatch, offered)):
        raise RefusedError(
            Reason.HEADER_VALUE,
            f"the subprotocols are not up to {MAX_SUBPROTOCOLS} valid HTTP tokens of 256 characters",
        )


def check_handshake(key: str, subprotocols: tuple[str, ...], fields: list[tuple[bytes, bytes]]) -> str | None:
    """Return the subprotocol that the service chose in its response with status 101, or None if it chose none. Raises
    BadAnswerError if the response does not accept exactly this handshake, whose random value is `key`.
    """

    def values(name: bytes) -> list[str]:
        return [value.decode("latin-1").strip() for found, value in fields if found.lower() == name]

    digest = hashlib.sha1(key.encode() + _ACCEPTS, usedforsecurity=False).digest()
    options = {option.strip().lower() for value in values(b"connection") for option in value.split(",")}
    if [value.lower() for value in values(b"upgrade")] != ["websocket"] or "upgrade" not in options:
        raise BadAnswerError("it switched to another protocol than WebSocket")
    if values(b"sec-websocket-accept") != [base64.b64encode(digest).decode()]:
        raise BadAnswerError("its Sec-WebSocket-Accept does not fit this handshake: something between answered for it")
    if values(b"sec-websocket-extensions"):
        raise BadAnswerError("it insists on an extension of WebSocket, such as compression, which was not offered")
    chosen = values(b"sec-websocket-protocol")
    if len(chosen) > 1 or any(subprotocol not in subprotocols for subprotocol in chosen):
        raise BadAnswerError("it chose a subprotocol that was not offered")
    return chosen[0] if chosen else None
