"""The gateway: an agent's requests to a model's API, passed on byte for byte, and the answers as they come.

An ASGI application in the daemon, behind the check of Host and Origin that every route has. It trusts neither side: not the agent
for the key, which may have to be its session's token, not the provider for the end of an answer. Of an agent in a cell the door
has said whose session it is (ingress/known.py): whatever it shows as a key is then a placeholder, where the vault has one.

    agent ⇄ Hypercorn ⇄ Gateway ⇄ httpcore2 ⇄ the provider

Rules
- A body is never kept or logged, and read only where a session began with tools put into its requests (inject/). One piece of
  it is held at a time, and the next is taken when the other side took this one: a slow reader slows the provider down, and a
  slow provider the agent.
- Each piece goes on at once.
- An agent that goes away ends the request upstream at once. An answer that breaks off upstream breaks off here: it is never
  ended as if it were whole.
- A session's token leaves with no request; a key of the vault's goes to the upstream that it is named for and nowhere else.
- Strangers, who show no open session, have half of the places at most, and STRANGER_IDLE_S for the next piece of what they send:
  however many they are and however slow, callers with a session are served, by whichever upstream.
- HTTP/1.1 on this side: in no other version of it does the server break an answer off.

Source: docs/reference/gateway.md; RFC 9110, RFC 9112; the ASGI specification 3.0. Not here: which fields (upstreams.py), sockets
(dial.py), who may connect (daemon/).
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import Final, Literal, Protocol

import anyio
import anyio.lowlevel
import httpcore2
import msgspec
from starlette.types import Message, Receive, Scope, Send

from aileron.api.failures import ErrorAnswer, ErrorBody
from aileron.config import GatewaySettings, Settings
from aileron.gateway.dial import Dialer
from aileron.gateway.inject.exchange import MAX_BODY_BYTES, WIRES, Exchange, Holding, Injection, understood
from aileron.gateway.upstreams import (
    Destination,
    Fields,
    check_key,
    check_method,
    check_no_token,
    destinations,
    injected_path,
    provider_of,
    request_fields,
    response_fields,
    round_fields,
    token_of,
    why_unread,
)
from aileron.ingress.known import cell_session_of, is_strangers
from aileron.model.failure import AileronError, Boundary, Failure, FailureClass
from aileron.model.secret import Secret
from aileron.tls import client_context

__all__ = ["Gateway", "Keys", "gateway_app"]

MAX_IN_FLIGHT: Final = 256
"""Requests at once, of all agents. Each holds two descriptors, and a megabyte of the server's buffers at most; an agent with its
helpers was seen with a dozen.
"""
MAX_OF_STRANGERS: Final = MAX_IN_FLIGHT // 2
"""Of those. Each has one connection of the pool at most, so that is half of it as well."""
CONNECT_S: Final = 15.0
"""TCP and TLS together, a lost packet or two included."""
IDLE_S: Final = 660.0
"""Of silence, on either side. A model that thinks says nothing for minutes, and the providers' own clients wait 600 s by default:
theirs is to end first, so that an agent reads what it would read without a gateway.
"""
STRANGER_IDLE_S: Final = 15.0
"""For the next piece of a stranger's body. Ingress shares 8 MiB a second among all of theirs: a piece of 8 KiB has its turn
within a second; over a network, two packets may be lost."""
WRITE_S: Final = 60.0
"""An upstream that takes not a byte for that long is gone. While it does not, an agent that left is not noticed either."""
KEEP_S: Final = 60.0
"""An idle connection upstream; the next turn of an agent is seldom later. One that the peer closed is not used."""
KEEP: Final = 16
"""Idle connections upstream, as many as an agent with helpers has at once."""
DRAIN_S: Final = 10.0
"""For the rest of a body nobody wants: who still writes when they are refused hears of a broken pipe, not of the refusal."""
_TURN: Final = 4
"""Pieces of an answer after which others have their turn, if they all came in one packet. Among them is who notices that the
agent has gone: asyncio logs each write from the sixth after that.
"""
_JSON: Final = msgspec.json.Encoder()
_UNKEPT: Final = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
"""Of an answer of our own; a provider's has what the provider gave it."""
_log = logging.getLogger(__name__)


class Keys(Protocol):
    """What the gateway asks of the vault and of sessions."""

    def check_settings(self) -> None:
        """Return if the settings in force, which say where a key is sent, are as a person agreed to them.

        AileronError(consent_required), and (vault_locked) where somebody decides and the vault that says who is locked.
        """
        ...

    def vault_is_locked(self) -> bool:
        """Whether there is a vault that is locked; no vault is not locked."""
        ...

    async def upstream_key(self, secret: str) -> Secret:
        """The value of a stored secret. AileronError(vault_locked), (binding_required) where there is none of that name."""
        ...

    async def check_token(self, token: str) -> None:
        """Return if it is an open session's. AileronError(unauthorized)."""
        ...


def gateway_app(
    settings: Settings, keys: Keys, ours: Iterable[tuple[str, int]], injection: Injection | None = None
) -> Gateway:
    """The application for the paths of the gateway, which is served at the addresses `ours` and is no upstream of its own; the
    caller closes it when it is served no more. Without `injection` no request gets tools.
    """
    return Gateway(settings, keys, ours, injection)


class Gateway:
    """One for each daemon, in as many servers as there are."""

    def __init__(
        self, settings: Settings, keys: Keys, ours: Iterable[tuple[str, int]], injection: Injection | None = None
    ) -> None:
        self.adopt(settings)
        self._keys: Final = keys
        self._injection: Final = injection
        self._pool: Final = httpcore2.AsyncConnectionPool(
            ssl_context=client_context(settings.egress_ca_pem, protocols=("http/1.1",)),
            max_connections=MAX_IN_FLIGHT,
            max_keepalive_connections=KEEP,
            keepalive_expiry=KEEP_S,
            network_backend=Dialer(ours),
        )
        self._in_flight = 0
        self._of_strangers = 0

    def adopt(self, settings: Settings) -> None:
        """Where requests go from now on; what is under way ends where it began."""
        self._destinations = destinations(settings.gateway)
        self._require_vault = settings.gateway.require_vault

    async def aclose(self) -> None:
        """Close what is idle upstream."""
        await self._pool.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI: `http`."""
        if any(name == b"upgrade" and value.lower() == b"websocket" for name, value in scope["headers"]):
            await _refuse_websocket(send)
            return
        async with anyio.create_task_group() as tasks:
            patience = _Patience()
            idle_s = STRANGER_IDLE_S if is_strangers(scope) else IDLE_S
            upload = _Upload(receive, tasks.cancel_scope, patience, idle_s)
            tasks.start_soon(upload.watch)
            await self._exchange(scope, upload, _Answer(send, tasks.cancel_scope), patience)
            tasks.cancel_scope.cancel()

    async def _exchange(self, scope: Scope, upload: _Upload, answer: _Answer, patience: _Patience) -> None:
        if scope["http_version"] != "1.1":
            await upload.drain()
            await answer.refuse(_version_failure(scope), 505)
            return
        try:
            with self._place(scope):
                with patience.scope:
                    await self._pass_on(scope, upload, answer, patience)
                patience.check()
        except AileronError as error:
            await upload.drain()
            if answer.has_begun:
                _log.warning("an answer broke off: %s", error)  # and is left unended, which the server makes plain
            else:
                await answer.refuse(error.failure)

    @contextlib.contextmanager
    def _place(self, scope: Scope) -> Iterator[None]:
        """One of the places. AileronError(busy) where none is left for who asks."""
        strangers = int(is_strangers(scope))
        if self._in_flight >= MAX_IN_FLIGHT:
            raise _busy(f"{MAX_IN_FLIGHT} requests to models are under way: try again")
        if strangers and self._of_strangers >= MAX_OF_STRANGERS:
            raise _busy(f"{MAX_OF_STRANGERS} requests to models without a session's token are under way: try again")
        self._in_flight += 1
        self._of_strangers += strangers
        try:
            yield
        finally:
            self._in_flight -= 1
            self._of_strangers -= strangers

    async def _pass_on(self, scope: Scope, upload: _Upload, answer: _Answer, patience: _Patience) -> None:
        fields = list(scope["headers"])
        check_method(scope["method"])
        session, path = self._asked_by(scope)
        destination = self._destinations[provider_of(path, fields)]
        self._check_vault(destination)
        query = scope["query_string"]
        target = destination.prefix + path + (b"?" + query if query else b"")
        sent = await self._fields(scope, fields, destination, target)
        upstream = _Upstream(self._pool, destination, scope["method"], target, sent, patience)
        if self._injection is None or session is None or scope["method"] != "POST" or path not in WIRES:
            await _relay(upstream, sent, upload, upload, answer, patience)
            return
        with self._injection.holding(session) as held:
            body = await _Body.read(upload, held)
            why = why_unread(fields) or (None if body.is_whole else f"the body has more than {MAX_BODY_BYTES} bytes")
            if why is not None:
                await self._injection.tools.passed(session, WIRES[path].wire, why)
            found = None if why else await understood(self._injection, session, path, b"".join(body.pieces))
            if found is None:
                await _relay(upstream, sent, body, upload, answer, patience)
            else:
                await Exchange(self._injection, found, upstream, _Told(answer, patience)).run()

    def _asked_by(self, scope: Scope) -> tuple[str | None, bytes]:
        """The session whose requests get tools, if it is one's, and the path as its API has it. AileronError(unauthorized)."""
        path: bytes = scope["raw_path"]
        if self._injection is None:
            return None, path
        cell, found = cell_session_of(scope), injected_path(path)
        if cell is not None and found is None:  # the connection itself says whose it is
            return (cell if self._injection.tools.is_injected(cell) else None), path
        if found is None:
            return None, path
        session = self._injection.tools.session_of(found[0])
        if cell not in (None, session):
            raise AileronError(FailureClass.UNAUTHORIZED, "this address is another session's", boundary=Boundary.USER)
        return session, found[1]

    def _check_vault(self, to: Destination) -> None:
        if self._require_vault and self._keys.vault_is_locked():
            raise AileronError(
                FailureClass.VAULT_LOCKED,
                "the vault is locked, and the gateway waits for it: `aileron vault unlock`, or gateway.require_vault = false",
                boundary=Boundary.USER,
            )
        try:
            self._keys.check_settings()
        except AileronError as error:
            # Until the vault is open, what was agreed to is what a file says that others can write: so only where none had to.
            if error.failure.failure_class is not FailureClass.VAULT_LOCKED or to != _DEFAULTS[to.provider]:
                raise

    async def _fields(self, scope: Scope, fields: Fields, to: Destination, target: bytes) -> Fields:
        key: bytes | None = None
        if to.secret is not None:
            if cell_session_of(scope) is None:
                await self._keys.check_token(token_of(fields, to))
            key = (await self._keys.upstream_key(to.secret)).reveal()
            check_key(key, to.secret)
        elif to.is_plain and scope["scheme"] == "https":
            raise _only_here(to)
        sent = request_fields(fields, to, key)
        check_no_token(target, sent, to)
        return sent


async def _relay(
    upstream: _Upstream,
    fields: Fields,
    content: AsyncIterable[bytes],
    upload: _Upload,
    answer: _Answer,
    patience: _Patience,
) -> None:
    """A request as it is, and its answer as it comes."""
    async with upstream.response(fields, content) as response:
        patience.wait_for("agent", IDLE_S)
        await answer.begin(response.status, response_fields(response.headers))
        patience.wait_for("provider", IDLE_S)
        async for piece in response.aiter_stream():
            patience.wait_for("agent", IDLE_S)
            await answer.write(piece)
            patience.wait_for("provider", IDLE_S)
    await upload.drain()
    patience.wait_for("agent", IDLE_S)
    await answer.end()


class _Upstream:
    """One request's way to its API, for as many rounds as it takes (inject/exchange.py)."""

    def __init__(
        self,
        pool: httpcore2.AsyncConnectionPool,
        destination: Destination,
        method: str,
        target: bytes,
        fields: Fields,
        patience: _Patience,
    ) -> None:
        self._pool: Final = pool
        self._to: Final = destination
        self._method: Final = method
        self._target: Final = target
        self._fields: Final = fields
        self._patience: Final = patience

    @contextlib.asynccontextmanager
    async def response(
        self, fields: Fields, content: bytes | AsyncIterable[bytes]
    ) -> AsyncIterator[httpcore2.Response]:
        """What the API answers; an answer that breaks off breaks the block off. AileronError(network_error), (busy)."""
        to = self._to
        request = httpcore2.Request(
            self._method,
            httpcore2.URL(scheme=to.scheme, host=to.host, port=to.port, target=self._target),
            headers=fields,
            content=content,
            extensions={"timeout": {"connect": CONNECT_S, "pool": CONNECT_S}},
        )
        self._patience.wait_for("provider", WRITE_S)
        try:
            response = await self._pool.handle_async_request(request)
        except _HTTP_ERRORS as error:
            raise _failed(to, error) from None
        try:
            if response.status < 200:
                raise _failed(to, None)
            yield response
        except _HTTP_ERRORS as error:
            raise _failed(to, error) from None
        finally:
            with anyio.CancelScope(shield=True):  # it never waits: dial.py
                await response.aclose()

    @contextlib.asynccontextmanager
    async def ask(self, body: bytes, number: int) -> AsyncIterator[_Said]:
        """A round with a body of ours."""
        async with self.response(round_fields(self._fields, len(body), number), body) as response:
            yield _Said(response, self._patience)


class _Said:
    """What an API answers to a round."""

    def __init__(self, response: httpcore2.Response, patience: _Patience) -> None:
        self._response: Final = response
        self._patience: Final = patience
        self.status: Final = response.status
        self.fields: Final[Fields] = list(response.headers)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body."""
        self._patience.wait_for("provider", IDLE_S)
        async for piece in self._response.aiter_stream():
            yield piece
            self._patience.wait_for("provider", IDLE_S)


class _Told:
    """The agent, of a request with rounds."""

    def __init__(self, answer: _Answer, patience: _Patience) -> None:
        self._answer: Final = answer
        self._patience: Final = patience

    async def begin(self, status: int, fields: Fields, length: int | None) -> None:
        """Status and fields."""
        self._patience.wait_for("agent", IDLE_S)
        told = [field for field in response_fields(fields) if field[0].lower() != b"content-length"]
        if length is not None:
            told.append((b"content-length", b"%d" % length))
        await self._answer.begin(status, told)

    async def write(self, piece: bytes) -> None:
        """One piece."""
        self._patience.wait_for("agent", IDLE_S)
        await self._answer.write(piece)

    async def end(self) -> None:
        """It was whole."""
        self._patience.wait_for("agent", IDLE_S)
        await self._answer.end()

    def wait_for_tools(self, limit_s: float) -> None:
        """Neither side owes anything."""
        self._patience.wait_for("us", limit_s)


class _Body:
    """A request's body, of which as much as is read for tools was read; iterated it is what it was."""

    def __init__(self, pieces: list[bytes], rest: AsyncIterator[bytes] | None) -> None:
        self.pieces: Final = pieces
        self._rest: Final = rest

    @classmethod
    async def read(cls, upload: _Upload, held: Holding) -> _Body:
        """The whole of it, or more than MAX_BODY_BYTES. AileronError(busy)."""
        pieces: list[bytes] = []
        coming = aiter(upload)
        async for piece in coming:
            held.add(len(piece))
            pieces.append(piece)
            if held.size > MAX_BODY_BYTES:
                return cls(pieces, coming)
        return cls(pieces, None)

    @property
    def is_whole(self) -> bool:
        """Whether `pieces` are all of it."""
        return self._rest is None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """All of it."""
        for piece in self.pieces:
            yield piece
        if self._rest is not None:
            async for piece in self._rest:
                yield piece


class _Patience:
    """How long an exchange waits for whoever is next: cancels `scope` when it is used up.

    One deadline, moved seldom: a scope for each of ten thousand chunks would be a tenth of what the gateway costs.
    """

    def __init__(self) -> None:
        self.scope: Final = anyio.CancelScope()
        self._who: Literal["provider", "agent", "us"] = "provider"
        self._limit_s = 0.0
        self._since = 0.0

    def wait_for(self, who: Literal["provider", "agent", "us"], limit_s: float) -> None:
        """From now on they have that long, or up to a hundredth less."""
        self._who = who
        now = time.monotonic()  # twice for each piece; the event loop's own clock is found anew each time it is asked
        if limit_s != self._limit_s or now - self._since > limit_s / 100:
            self._limit_s, self._since = limit_s, now
            self.scope.deadline = anyio.current_time() + limit_s

    def check(self) -> None:
        """Return if it was not used up. AileronError(network_error)."""
        if self.scope.cancelled_caught:
            whats = {"provider": "provider said or took", "agent": "agent sent or took", "us": "tools answered"}
            what = whats[self._who]
            raise AileronError(
                FailureClass.NETWORK_ERROR,
                f"the {what} nothing for {self._limit_s:.0f} s",
                boundary=Boundary.EXTERNAL,
                details={"phase": "exchange"},
            )


class _Upload:
    """The body of a request on its way up, and who sends it: `receive` has one caller at a time.

    Iterated once, by httpcore2. When that is over, for whatever reason, `watch` takes the rest, if there is one, and waits for
    the agent to go away.
    """

    def __init__(self, receive: Receive, exchange: anyio.CancelScope, patience: _Patience, idle_s: float) -> None:
        self._receive: Final = receive
        self._exchange: Final = exchange
        self._patience: Final = patience
        self._idle_s: Final = idle_s
        self._released: Final = anyio.Event()
        self._whole: Final = anyio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The pieces as they come."""
        try:
            while not self._whole.is_set():
                self._patience.wait_for("agent", self._idle_s)
                if piece := await self._next():
                    self._patience.wait_for("provider", WRITE_S)
                    yield piece
            self._patience.wait_for("provider", IDLE_S)
        finally:
            self._released.set()

    async def watch(self) -> None:
        """Until the agent goes away: then the exchange is cancelled."""
        await self._released.wait()
        while True:
            self._note(await self._receive())

    async def drain(self) -> None:
        """Let the agent finish, for DRAIN_S at most."""
        self._released.set()
        if not self._whole.is_set():
            with anyio.move_on_after(DRAIN_S):
                await self._whole.wait()

    async def _next(self) -> bytes:
        message = await self._receive()
        self._note(message)
        if self._exchange.cancel_called:
            await anyio.lowlevel.checkpoint()  # which does not return
        body: bytes = message.get("body", b"")
        return body

    def _note(self, message: Message) -> None:
        if message["type"] == "http.disconnect":
            self._exchange.cancel()
        elif not message.get("more_body", False):
            self._whole.set()


class _Answer:
    """What goes back."""

    def __init__(self, send: Send, exchange: anyio.CancelScope) -> None:
        self._send: Final = send
        self._exchange: Final = exchange
        self._pieces = 0
        self.has_begun = False

    async def begin(self, status: int, fields: Fields) -> None:
        """Status and fields."""
        self.has_begun = True
        await self._send({"type": "http.response.start", "status": status, "headers": fields})

    async def write(self, piece: bytes) -> None:
        """One piece."""
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        self._pieces += 1
        if self._pieces % _TURN == 0:
            await anyio.lowlevel.checkpoint()
            if self._exchange.cancel_called:
                await anyio.sleep_forever()  # which ends at once

    async def end(self) -> None:
        """It was whole."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def refuse(self, failure: Failure, status: int | None = None) -> None:
        """A failure of the gateway's own, in the form of every answer of the daemon."""
        with anyio.move_on_after(DRAIN_S):
            for message in _refusal(failure, status or failure.failure_class.http_status):
                await self._send(message)


async def _refuse_websocket(send: Send) -> None:
    """426, at once: there is a client that tries a WebSocket first, and on any other answer tries again for ten seconds."""
    failure = AileronError(
        FailureClass.INVALID_REQUEST, "the gateway speaks no WebSocket: send the request with POST"
    ).failure
    upgrade = [(b"upgrade", b"HTTP/1.1"), (b"connection", b"upgrade, close")]  # RFC 9110 section 15.5.22
    for message in _refusal(failure, 426, upgrade):
        await send(message)


def _refusal(failure: Failure, status: int, more: Fields | None = None) -> list[Message]:
    body = _JSON.encode(ErrorAnswer(error=ErrorBody.of(failure, None)))
    fields = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *_UNKEPT, *(more or [])]
    return [
        {"type": "http.response.start", "status": status, "headers": fields},
        {"type": "http.response.body", "body": body, "more_body": False},
    ]


_DEFAULTS: Final = destinations(GatewaySettings())
_HTTP_ERRORS: Final = (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException)


def _failed(to: Destination, error: Exception | None) -> AileronError:
    """In words of ours: what a library says may have in it what a peer sent."""
    match error:
        case httpcore2.PoolTimeout():
            return _busy("no connection to the model is free: try again")
        case httpcore2.LocalProtocolError():
            return AileronError(FailureClass.INVALID_REQUEST, "the request's fields are none that HTTP/1.1 can carry")
        case httpcore2.ReadError() | httpcore2.WriteError():
            why = "broke the connection off"
        case _:
            why = "ended the connection before the end of its answer, or does not speak HTTP/1.1"
    return AileronError(
        FailureClass.NETWORK_ERROR,
        f"{to.authority.decode()} {why}",
        boundary=Boundary.EXTERNAL,
        details={"phase": "exchange"},
    )


def _busy(why: str) -> AileronError:
    return AileronError(FailureClass.BUSY, why, retriable=True)


def _only_here(to: Destination) -> AileronError:
    return AileronError(
        FailureClass.UNAUTHORIZED,
        f"what is served on loopback without a key is not for other machines: set gateway.upstreams.{to.provider}.secret, and "
        "agents there show their session's token",
        boundary=Boundary.USER,
    )


def _version_failure(scope: Scope) -> Failure:
    return AileronError(
        FailureClass.INVALID_REQUEST, f"the gateway speaks HTTP/1.1, not HTTP/{scope['http_version']}"
    ).failure
